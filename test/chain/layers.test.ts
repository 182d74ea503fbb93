/** Layers of a call: their order, their control, and what a chain refuses. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { buildChain } from '../../core/engine/chain.ts'
import { around, Relay } from '../../core/engine/layers.ts'
import {
  type Call,
  type CallControl,
  definePlugin,
  GatewayError,
  type Plugin,
  type PluginHooks,
  type Send,
  SinkAround,
  type WireHandler,
  type WireRequest,
} from '../../core/plugin.ts'
import { asks, part, run, silent, turn } from './harness.ts'

const still: CallControl = { pause() {}, resume() {}, abort: () => undefined }

/** A plugin that notes what passes its layers. */
const noting = (name: string, noted: string[]): Plugin =>
  part(
    name,
    {
      callLayer: next => (call, sink) => {
        noted.push(`${name} call`)
        return next(call, sink)
      },
      attemptLayer: next => (call, sink) => {
        noted.push(`${name} attempt ${call.backend.id}`)
        return next(call, sink)
      },
      wireLayer: next => (request, handler) => {
        noted.push(`${name} wire`)
        next(request, handler)
      },
    },
    { layers: ['call', 'attempt', 'wire'] },
  )

const translates = (noted: string[]): Plugin =>
  part(
    'translates',
    {
      translate: next => call => {
        noted.push('translate')
        next({ call } as unknown as WireRequest, {} as WireHandler)
        return still
      },
    },
    { layers: ['translate'] },
  )

const calls = (noted: string[], hooks: Partial<PluginHooks> = {}): Plugin =>
  part(
    'calls',
    {
      forward(x, send) {
        x.control(send({ facts: x } as unknown as Call, x))
        x.emit({ type: 'text', text: 'hi' })
        x.emit({ type: 'finish', reason: 'stop' })
        x.end()
        return undefined
      },
      call: next => (call, sink) => {
        noted.push('retry')
        next({ ...call, backend: { id: 'one' } } as never, sink)
        return next({ ...call, backend: { id: 'two' } } as never, sink)
      },
      wire: () => void noted.push('sent'),
      ...hooks,
    },
    { terminal: true, calls: true },
  )

test('the first line is the outermost in each place; an attempt passes what is below the call once more', async () => {
  const noted: string[] = []
  await run([asks(), noting('a', noted), translates(noted), noting('b', noted), calls(noted)])
  await turn()
  const attempt = (id: string) => [`a attempt ${id}`, `b attempt ${id}`, 'translate', 'a wire', 'b wire', 'sent']
  assert.deepEqual(noted, ['a call', 'b call', 'retry', ...attempt('one'), ...attempt('two')])
})

test('a layer keeps its own this', async () => {
  const noted: string[] = []
  class Own {
    readonly #word = 'mine'
    callLayer(next: Send): Send {
      return (call, sink) => {
        noted.push(this.#word)
        return next(call, sink)
      }
    }
  }
  const own = definePlugin({ name: 'own', summary: '', layers: ['call'], create: () => new Own() as PluginHooks })
  await run([asks(), own as Plugin, translates([]), calls([])])
  await turn()
  assert.deepEqual(noted, ['mine'])
})

test('what a plugin declares and what it has are the same, and a terminal that calls has what it needs', async () => {
  const build = (...plugins: Plugin[]) =>
    buildChain('p', {
      entries: plugins.map(({ name }, i) => ({
        ...{ plugin: name, id: name, on_failure: 'deny' as const, config: {} },
        at: { file: 'g.yaml', line: i + 1, column: 1 },
      })),
      plugins: new Map(plugins.map(plugin => [plugin.name, plugin])),
      context: () => ({}) as never,
      log: silent,
    })
  const layer: PluginHooks = { callLayer: next => next }
  await assert.rejects(build(part('x', layer, {}), translates([]), calls([])), /callLayer and layers: \['call'\]/)
  await assert.rejects(build(part('x', {}, { layers: ['wire'] }), translates([]), calls([])), /wireLayer and layers/)
  await assert.rejects(build(translates([]), calls([], { wire: undefined as never })), /lacks the hook call or wire/)
})

test('around: no layer costs nothing; the innermost itself is called', () => {
  const innermost = () => 'x'
  assert.equal(around([], innermost), innermost)
})

/** A control that notes what it is told. */
function noted(): { told: string[]; control: CallControl } {
  const told: string[] = []
  return {
    told,
    control: {
      pause: () => void told.push('pause'),
      resume: () => void told.push('resume'),
      abort(reason) {
        told.push(reason)
        return undefined
      },
    },
  }
}

test('[STR-4] a relay passes on to the call that runs, and tells a later one that the client reads nothing', () => {
  const relay = new Relay()
  const [first, second, third] = [noted(), noted(), noted()]
  relay.to(first.control)
  relay.pause()
  relay.to(second.control)
  relay.resume()
  relay.to(third.control)
  relay.pause()
  relay.to(null)
  relay.resume()
  assert.deepEqual([first.told, second.told, third.told], [['pause'], ['pause', 'resume'], ['pause']])
})

test('[STR-4] after the end a relay cancels whatever begins; one that drains goes on', () => {
  const relay = new Relay()
  assert.equal(relay.abort('client_gone'), undefined)
  const late = noted()
  relay.to(late.control)
  assert.deepEqual(late.told, ['client_gone'])

  const draining = new Relay()
  draining.to({ ...still, abort: () => 'draining' })
  assert.equal(draining.abort('client_gone'), 'draining')
  const next = noted()
  draining.to(next.control)
  assert.deepEqual(next.told, [])
})

test('a call that ends before it returns does not take the place of the one that it led to', () => {
  const relay = new Relay()
  const [first, second] = [noted(), noted()]
  relay.make(() => {
    relay.make(() => second.control)
    return first.control
  })
  relay.pause()
  assert.deepEqual([first.told, second.told], [[], ['pause']])
})

const never = (): never => assert.fail('nobody waits for this call')

test('a call after a promise is made unless nobody waits for it; what is rejected or thrown fails it', async () => {
  const failed: string[] = []
  const sink = { closed: false, fail: (error: Error) => void failed.push(error.message) } as never
  const first = noted()
  const relay = new Relay().makeAfter(Promise.resolve(7), sink, value => {
    assert.equal(value, 7)
    return first.control
  })
  relay.pause()
  await turn()
  assert.deepEqual(first.told, ['pause'])

  const gone = new Relay().makeAfter(Promise.resolve(), sink, never)
  gone.abort('client_gone')
  new Relay().makeAfter(Promise.resolve(), { closed: true, fail: never } as never, never)
  await turn()
  assert.deepEqual(failed, [])

  new Relay().makeAfter(Promise.reject(new GatewayError('invalid_value', { message: 'no' })), sink, never)
  new Relay().makeAfter(Promise.resolve(), sink, () => {
    throw new GatewayError('invalid_value', { message: 'thrown' })
  })
  await turn()
  assert.deepEqual(failed.sort(), ['no', 'thrown'])
})

test('a sink around another passes everything on', () => {
  const told: string[] = []
  const inner = {
    emit: () => void told.push('emit'),
    flush: () => false,
    sendHead: () => void told.push('head'),
    end: () => void told.push('end'),
    fail: (_: unknown, fault: unknown) => void told.push(`fail ${JSON.stringify(fault)}`),
    headSent: true,
    clientGone: true,
    closed: true,
  }
  const sink = new SinkAround(inner)
  sink.emit({ type: 'activity' })
  sink.sendHead()
  sink.fail(new Error() as never, { kind: 'broken' })
  sink.end()
  assert.deepEqual(told, ['emit', 'head', 'fail {"kind":"broken"}', 'end'])
  assert.deepEqual([sink.flush(), sink.headSent, sink.clientGone, sink.closed], [false, true, true, true])
})
