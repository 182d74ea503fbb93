/** The harness that plugin authors get as `sluice/testing`. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { conversation, definePlugin, deny, type Exchange, type PluginHooks, refuse, slot } from '../../core/plugin.ts'
import {
  createSharedState,
  GatewayError,
  ManualClock,
  MemoryIncoming,
  plainSurface,
  runPlugin,
} from '../../plugins/testing.ts'

const mark = slot<string>('testing.mark')
const text = (t: string) => ({ type: 'text' as const, text: t })
const plugin = (hooks: PluginHooks, more: object = {}) =>
  definePlugin({ name: 'mine', summary: 'Under test.', create: () => hooks, ...more })

test('events go through the plugin to the client, in order, and the exchange settles', async () => {
  const run = await runPlugin(plugin({}), { events: [text('a'), text('b')] })
  assert.equal(run.status, 200)
  assert.deepEqual(
    run.events.map(e => e.type),
    ['start', 'text', 'text', 'finish'],
  )
  assert.equal(run.settlement.outcome, 'completed')
})

test('options are checked, and their defaults filled in', async () => {
  const configured = definePlugin<{ size: number; wait: number }>({
    name: 'mine',
    summary: '',
    config: {
      type: 'object',
      additionalProperties: false,
      properties: {
        size: { type: 'integer', default: 7 },
        wait: { type: ['string', 'integer'], format: 'duration', default: '2s' },
      },
    },
    create: ({ size, wait }) => ({ onRequest: () => deny('bad_request', { message: `${size} ${wait}` }) }),
  })
  assert.equal((await runPlugin(configured)).json.error.message, '7 2000')
  assert.equal((await runPlugin(configured, { config: { size: 1, wait: 50 } })).json.error.message, '1 50')
  await assert.rejects(runPlugin(configured, { config: { size: 'x' as never } }), /size/)
  await assert.rejects(runPlugin(configured, { config: { sise: 1 } as never }), /sise/)
})

test('slots, request and conversation are as given; the plugin sees them', async () => {
  const seen: unknown[] = []
  const reader = plugin({
    onRequest(x) {
      seen.push(x.get(mark), x.incoming.method, x.incoming.headers.get('x-a'), x.get(conversation).model)
      return undefined
    },
  })
  await runPlugin(reader, { slots: [[mark, 'above']], request: { method: 'PUT', headers: { 'x-a': '1' } } })
  assert.deepEqual(seen, ['above', 'PUT', '1', 'test-model'])
})

test('a denial, a refusal, and a place below the terminal', async () => {
  const denied = await runPlugin(plugin({ onRequest: () => deny('bad_request', { message: 'no' }) }))
  assert.deepEqual([denied.status, denied.json.error.code, denied.settlement.outcome], [400, 'bad_request', 'refused'])
  const refused = await runPlugin(plugin({ onRequest: () => refuse('not that') }))
  assert.deepEqual(
    refused.events.map(e => e.type),
    ['start', 'refusal', 'finish'],
  )
  assert.equal(refused.events.at(-1).usage.output, 0)
  const below = await runPlugin(
    plugin({
      onResponseHead(_, head) {
        head.headers.set('x-below', head.origin)
        return undefined
      },
    }),
    { below: true, events: [text('a')] },
  )
  assert.equal(below.headers.get('x-below'), 'upstream')
})

test('an upstream that fails, and a client that leaves', async () => {
  const failed = await runPlugin(plugin({}), {
    events: [text('a'), { type: 'error', error: new GatewayError('upstream_server_error', { message: 'x' }) }],
  })
  assert.deepEqual([failed.settlement.outcome, failed.events.at(-1).type], ['upstream_error', 'error'])
  let released = 0
  const left = await runPlugin(
    plugin({
      onRequest(x) {
        x.defer(() => void released++)
        return undefined
      },
    }),
    { events: [text('a'), text('b')], leaveAfter: 1 },
  )
  assert.equal(left.settlement.outcome, 'client_gone')
  assert.equal(released, 1)
})

test('it catches a promised slot that is not filled', async () => {
  await assert.rejects(
    runPlugin(plugin({}, { provides: [mark] }), { events: [text('a')] }),
    /mine: slot 'testing\.mark' not filled/,
  )
  const filling = plugin(
    {
      onRequest(x) {
        x.set(mark, 'here')
        return undefined
      },
    },
    { provides: [mark] },
  )
  assert.equal((await runPlugin(filling, { events: [text('a')] })).exchange.get(mark), 'here')
})

test('it catches a timer that is left, and lets one go that is cancelled', async () => {
  const leaving = (cancel: boolean) =>
    definePlugin({
      name: 'mine',
      summary: '',
      create: (_, { clock }) => ({
        onRequest(x) {
          const timer = clock.setTimer(1000, () => {})
          if (cancel) x.defer(() => timer.cancel())
          return undefined
        },
      }),
    })
  await assert.rejects(runPlugin(leaving(false), { events: [text('a')] }), /1 timers left/)
  await runPlugin(leaving(true), { events: [text('a')] })
  // A clock of the test's own counts only what the plugin added.
  const clock = new ManualClock()
  clock.setTimer(1, () => {})
  await runPlugin(leaving(true), { clock, events: [text('a')] })
})

test('it catches a hold that is never released, and waits for one that is', async () => {
  const holding = (release: boolean) =>
    plugin({
      onEvent(x, event) {
        if (event.type !== 'text') return undefined
        const done = x.hold()
        if (release) setImmediate(done)
        return undefined
      },
    })
  await assert.rejects(runPlugin(holding(false), { events: [text('a')], giveUpMs: 20 }), /a hold was not released/)
  const run = await runPlugin(holding(true), { events: [text('a'), text('b')] })
  assert.deepEqual(
    run.events.map(e => e.type),
    ['start', 'text', 'text', 'finish'],
  )
  await assert.rejects(
    runPlugin(plugin({ onRequest: () => new Promise(() => {}) }), { giveUpMs: 20 }),
    /a hook did not answer/,
  )
})

test('hooks that do not fit together are said so by name', async () => {
  const both = plugin({ onEvent: () => undefined, rewriteEvent: () => undefined })
  await assert.rejects(runPlugin(both), /plugin 'mine' does not start: a plugin has onEvent or rewriteEvent, not both/)
  await assert.rejects(runPlugin(plugin({}, { terminal: true })), /it is a terminal and has no forward hook/)
})

test('hooks of a plugin above see only replies to requests that came so far, its own included', async () => {
  const stamped = (onRequest?: PluginHooks['onRequest']) =>
    plugin({
      onRequest,
      onResponseHead(_, head) {
        head.headers.set('x-note', head.origin)
        return undefined
      },
    })
  const own = await runPlugin(stamped(() => deny('bad_request', { message: 'no' })))
  assert.equal(own.headers.get('x-note'), undefined, 'its own denial goes up from above it')
  assert.equal((await runPlugin(stamped(), { events: [text('a')] })).headers.get('x-note'), 'upstream')
})

test('it catches a slot that is set and not declared, whichever hook sets it', async () => {
  const set = (x: Exchange): undefined => {
    x.set(mark, 'here')
    return undefined
  }
  const sets = { onRequest: set }
  const late = { onSettle: set }
  const expected =
    /mine: the plugin mine sets the slot 'testing\.mark', which it does not declare\. Add it to provides, or to mayProvide, providesLate or rewrites/
  for (const hooks of [sets, late]) await assert.rejects(runPlugin(plugin(hooks), { events: [text('a')] }), expected)
  for (const declared of [{ provides: [mark] }, { mayProvide: [mark] }, { providesLate: [mark] }, { rewrites: [mark] }])
    await runPlugin(plugin(sets, declared), { events: [text('a')] })
})

test('a function between two events stands for what happens then, and gets the exchange', async () => {
  const clock = new ManualClock()
  const ids: string[] = []
  const run = await runPlugin(plugin({}), {
    clock,
    events: [text('a'), x => void ids.push(x.id), () => clock.advance(500), text('b')],
  })
  assert.deepEqual([ids, run.settlement.durationMs], [['req_test'], 500])
  assert.deepEqual(
    run.events.map(e => e.type),
    ['start', 'text', 'text', 'finish'],
  )
})

test('a client of the test’s own leaves when the test says so, while a hook waits too', async () => {
  const client = new MemoryIncoming({ headers: { 'x-a': '1' } })
  let asked: string | undefined
  const waiting = plugin({
    async onRequest(x) {
      asked = x.incoming.headers.get('x-a')
      client.abort()
      return undefined
    },
  })
  const run = await runPlugin(waiting, { request: client, events: [text('a')] })
  assert.deepEqual([asked, run.settlement.outcome, run.status], ['1', 'client_gone', 0])
})

test('an id, a surface, and state that two runs share', async () => {
  const counting = definePlugin({
    name: 'mine',
    summary: '',
    mayProvide: [mark],
    create: (_, { shared, surfaces }) => ({
      onRequest(x) {
        const seen = shared.use('mine', () => ({ requests: 0 }))
        x.set(mark, `${x.id} ${x.surface?.name} ${surfaces[0]?.name} ${++seen.requests}`)
        return undefined
      },
    }),
  })
  const shared = createSharedState()
  const surface = { ...plainSurface, name: 'messages' as const }
  const first = await runPlugin(counting, { id: 'req_1', surface, shared, events: [text('a')] })
  const second = await runPlugin(counting, { id: 'req_2', surface, shared, events: [text('a')] })
  const other = await runPlugin(counting, { events: [text('a')] })
  assert.deepEqual(
    [first, second, other].map(run => run.exchange.get(mark)),
    ['req_1 messages messages 1', 'req_2 messages messages 2', 'req_test chat chat 1'],
  )
})

// Two plugins that chose one key got one value: which of its shapes it had was a matter of who came first.
test('two plugins with one key have a value each, which outlives the chain', async () => {
  const values = new Map<string, unknown[]>([
    ['mine', []],
    ['mine/key', []],
  ])
  const keeping = (name: string) =>
    definePlugin({
      name,
      summary: '',
      create: (_, { shared }) => {
        values.get(name)!.push(shared.use('key', () => ({ of: name })))
        return {}
      },
    })
  const shared = createSharedState()
  for (const name of ['mine', 'mine/key', 'mine']) await runPlugin(keeping(name), { shared, events: [text('a')] })
  const [first, again] = values.get('mine')!
  assert.equal(first, again)
  assert.deepEqual([first, ...values.get('mine/key')!], [{ of: 'mine' }, { of: 'mine/key' }])
  // A test of a plugin looks at its state so.
  assert.equal(
    shared.use('mine/key', () => undefined),
    first,
  )
})

test('a plugin knows which records some plugin of the configuration gives out', async () => {
  const seen: string[][] = []
  const looking = (more: object) =>
    definePlugin({
      name: 'mine',
      summary: '',
      create(_, { retrieved }) {
        seen.push([...retrieved])
        return {}
      },
      ...more,
    })
  for (const more of [{}, { retrieves: ['reply', 'response'] }]) await runPlugin(looking(more), { events: [text('a')] })
  assert.deepEqual(seen, [[], ['reply', 'response']])
})

test('a plugin knows an advisory terminal, and may leave empty above it what it provides elsewhere', async () => {
  const lenient = definePlugin({
    name: 'mine',
    summary: '',
    provides: [mark],
    create: (_, { terminal }) => ({
      onRequest: () => (terminal.advisory ? undefined : deny('invalid_value', { message: 'no' })),
    }),
  })
  assert.equal((await runPlugin(lenient)).status, 400)
  const run = await runPlugin(lenient, { advisory: true, events: [text('a')] })
  assert.deepEqual([run.status, run.exchange.peek(mark)], [200, undefined])
})
