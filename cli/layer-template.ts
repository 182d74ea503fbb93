/** What `sluice plugin new --layer` writes, by place. */

interface LayerTemplate {
  plugin(name: string): string
  test(name: string): string
}

export const LAYERS: Readonly<Record<string, LayerTemplate>> = {
  call: {
    plugin:
      name => `/** A layer around the whole call of a model. Replace it with what you need: docs/plugins.md says more. */
import { type CallSink, definePlugin, SinkAround, type StreamEvent } from 'sluice'

/** What is between the call and the client. It passes everything on; override what you look at or change. */
class Counted extends SinkAround {
  readonly #done: (events: number) => void
  #events = 0
  constructor(sink: CallSink, done: (events: number) => void) {
    super(sink)
    this.#done = done
  }
  override emit(event: StreamEvent): void {
    this.#events++
    this.sink.emit(event)
  }
  override end(): void {
    this.#done(this.#events)
    this.sink.end()
  }
}

export default definePlugin({
  name: '${name}',
  summary: 'Logs how many events a call brought.',
  layers: ['call'],
  create: (_, { log }) => ({
    // To send something else, pass on { ...call, sent }. To make several calls, return a Relay. To answer without a call,
    // emit events to the sink, and end it.
    callLayer: next => (call, sink) =>
      next(call, new Counted(sink, events => log.info({ request_id: call.facts.id, events }, '${name}'))),
  }),
})
`,
    test: name => `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runPlugin } from 'sluice/testing'
import plugin from './${name}.ts'

test('${name} logs how many events a call brought', async () => {
  const run = await runPlugin(plugin, {
    events: [
      { type: 'text', text: 'Hello' },
      { type: 'finish', reason: 'stop' },
    ],
  })
  assert.match(run.body, /Hello/)
  assert.equal(run.log.find(line => line.message === '${name}')?.fields.events, 2)
})
`,
  },
  attempt: {
    plugin:
      name => `/** A layer around each attempt at a backend. Replace it with what you need: docs/plugins.md says more. */
import { type CallFault, type CallSink, definePlugin, type GatewayError, SinkAround } from 'sluice'

/** What is between an attempt and the rest. It passes everything on; override what you look at or change. */
class Watched extends SinkAround {
  readonly #failed: (error: GatewayError) => void
  constructor(sink: CallSink, failed: (error: GatewayError) => void) {
    super(sink)
    this.#failed = failed
  }
  // The fault says whether another backend may be tried: pass it on.
  override fail(error: GatewayError, fault?: CallFault): void {
    this.#failed(error)
    this.sink.fail(error, fault)
  }
}

export default definePlugin({
  name: '${name}',
  summary: 'Logs which backend failed, and how.',
  layers: ['attempt'],
  create: (_, { log }) => ({
    attemptLayer: next => (call, sink) =>
      next(call, new Watched(sink, ({ code }) => log.info({ backend: call.backend.id, code }, '${name}'))),
  }),
})
`,
    test: name => `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GatewayError, runPlugin } from 'sluice/testing'
import plugin from './${name}.ts'

test('${name} logs a failed attempt; the next one answers', async () => {
  const run = await runPlugin(plugin, {
    failures: [new GatewayError('upstream_server_error', { message: 'It failed.' })],
    events: [{ type: 'text', text: 'Hello' }],
  })
  assert.match(run.body, /Hello/)
  assert.equal(run.log.find(line => line.message === '${name}')?.fields.code, 'upstream_server_error')
})
`,
  },
  wire: {
    plugin:
      name => `/** A layer around each written request. Replace it with what you need: docs/plugins.md says more. */
import { definePlugin } from 'sluice'

interface Options {
  header: string
  value: string
}

export default definePlugin<Options>({
  name: '${name}',
  summary: 'Adds a header to what is sent to backends.',
  config: {
    type: 'object',
    additionalProperties: false,
    properties: {
      header: { type: 'string', default: 'x-sent-by', description: 'The name of the header, in lower case.' },
      value: { type: 'string', default: '${name}', description: 'Its value.' },
    },
  },
  layers: ['wire'],
  // \`sluice route\` may run it, since it sends nothing by itself.
  dryRun: 'safe',
  create: ({ header, value }) => ({
    // The headers of one request go into \`own\`; many requests share \`headers\`. To look at the reply's bytes, pass a
    // HandlerAround in place of the handler.
    wireLayer: next => (request, handler) => next({ ...request, own: { ...request.own, [header]: value } }, handler),
  }),
})
`,
    test: name => `import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runPlugin } from 'sluice/testing'
import plugin from './${name}.ts'

test('${name} adds its header to what is sent', async () => {
  const run = await runPlugin(plugin, { config: { value: 'blue' }, events: [{ type: 'text', text: 'Hello' }] })
  assert.equal(run.requests[0]?.own['x-sent-by'], 'blue')
})
`,
  },
}
