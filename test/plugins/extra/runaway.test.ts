/** runaway: which requests count as repeats, what becomes of them, and how it is lifted. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { registerPluginHooks } from '../../../config/modules.ts'
import { parseOptions } from '../../../config/options.ts'
import type { Conversation } from '../../../core/canon/conversation.ts'
import { ZERO_USAGE } from '../../../core/canon/events.ts'
import { identity, model } from '../../../plugins/shared/slots.ts'
import { eventually } from '../../eventually.ts'
import { Random } from '../../random.ts'
import { modelOf } from '../kit.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { conversation, estimate, request, usage } = await import('sluice')
const { ManualClock, MemoryIncoming, createSharedState, plainConversation, runPlugin } = await import('sluice/testing')
const { default: plugin } = await import('../../../plugins/extra/runaway.ts')

type Turn = Conversation['turns'][number]
const said = (role: 'user' | 'assistant' | 'system', text: string): Turn => ({ role, parts: [{ type: 'text', text }] })
let calls = 0
/** A step of an agent: what it says, the call that it makes, and the result of it. The ids are always new. */
function step(name: string, input: string, result: string, words = ''): Turn[] {
  const id = `call_${++calls}`
  return [
    {
      role: 'assistant',
      parts: [
        ...(words ? [{ type: 'text' as const, text: words }] : []),
        { type: 'call', id, kind: 'function', name, input, path: '' },
      ],
    },
    {
      role: 'tool',
      parts: [{ type: 'result', callId: id, kind: 'function', content: [{ type: 'text', text: result }], path: '' }],
    },
  ]
}

const USD = 1e9
interface Asking {
  org?: string
  key?: string
  /** What the request is billed, USD, and what it costs by the list of prices. */
  usd?: number
  list?: number
  billed?: boolean
  /** Members of the conversation beside its turns. */
  over?: Partial<Conversation>
  /** Members of the body. */
  body?: object
  more?: object
}
/** Its timers fire at once, and time passes by that, unless a test wants to see them wait. */
class HastyClock extends ManualClock {
  hasty = true
  waits = 0
  override setTimer(ms: number, fn: () => void) {
    const timer = super.setTimer(ms, fn)
    this.waits++
    if (this.hasty) queueMicrotask(() => this.advance(ms))
    return timer
  }
}

/** A process with one configuration at a time. */
class Gateway {
  readonly clock = new HastyClock()
  readonly shared = createSharedState()
  config: object
  readonly log: { level: string; fields: any; message: string }[] = []

  constructor(config: object = {}) {
    this.config = { slow_repeats: 3, slow_usd: 0.3, refuse_repeats: 6, refuse_usd: 0.6, ...config }
  }

  /** A request whose wait, if there is one, is over at once. */
  async ask(turns: Turn[], asking: Asking = {}) {
    const { org = 'acme', key = 'k', usd = 0.1, list = usd, billed = true, over = {}, body = {}, more = {} } = asking
    let reached = false
    const bill = {
      usage: { ...ZERO_USAGE, input: list * 1e6 },
      cost: usd * USD,
      get billed() {
        return billed && reached
      },
    }
    const waited = this.clock.waits
    const { status, json, headers, log } = await runPlugin<any>(plugin, {
      config: this.config,
      clock: this.clock,
      shared: this.shared,
      slots: [
        [identity, { organization: { id: org }, key: { id: key } }],
        [conversation, plainConversation({ turns, ...over })],
        [request, body],
        [estimate, { input: JSON.stringify(turns).length }],
        [model, modelOf()],
        [usage, bill],
      ],
      events: [() => void (reached = true)],
      ...more,
    } as never)
    this.log.push(...log)
    const waits = this.clock.waits > waited
    return { status, error: json?.error, headers, slowed: headers.get('x-sluice-slowed'), waits }
  }

  /** @returns what became of each: `free`, `slow`, or the code of the error */
  async all(requests: readonly Turn[][], asking: Asking = {}): Promise<string[]> {
    const became: string[] = []
    for (const turns of requests) {
      const { error, slowed } = await this.ask(turns, asking)
      became.push(error?.code ?? (slowed ? 'slow' : 'free'))
    }
    return became
  }
}
const times = <T>(n: number, make: (i: number) => T): T[] => Array.from({ length: n }, (_, i) => make(i))
/** The requests of an agent whose history is these steps: each has one step more. */
const session = (first: Turn, steps: readonly Turn[][]): Turn[][] =>
  times(steps.length + 1, n => [first, ...steps.slice(0, n).flat()])
const task = said('user', 'Fix the test')
const REFUSED = 'conversation_repeats'

test('the same request again and again is slowed, then refused, and the refusal says how to go on', async () => {
  const gateway = new Gateway()
  const turns = [said('user', 'hello')]
  // The first two are no repeats yet: only the second one shows that the first is worth a digest.
  assert.deepEqual(
    await gateway.all(times(5, () => turns)),
    times(5, () => 'free'),
  )
  const slowed = await gateway.ask(turns)
  assert.deepEqual([slowed.status, slowed.waits, slowed.slowed], [200, true, 'repeats=3, delay_ms=5000'])
  assert.deepEqual(await gateway.all(times(3, () => turns)), ['slow', 'slow', REFUSED])
  const { status, error, headers } = await gateway.ask(turns)
  assert.equal(status, 429)
  assert.equal(error.type, 'rate_limit_error')
  assert.deepEqual(error.details.repeats, 6)
  assert.match(error.message, /6 requests brought nothing.*Send something new.*exempt the key/)
  assert.equal(headers.get('x-should-retry'), 'false')
  assert.equal(Math.round(Number(headers.get('retry-after'))), 600)
  assert.deepEqual(
    gateway.log.map(({ level, fields, message }) => [level, fields.key, fields.repeats, fields.cost / USD, message]),
    [
      ['warn', 'k', 3, 0.3, 'a conversation repeats itself and is slowed'],
      ['warn', 'k', 6, 0.6, 'a conversation repeats itself and is refused'],
    ],
    'once for each change',
  )
})

test('a history that grows by the same calls and results is the same, whatever the model says and however long it took', async () => {
  const gateway = new Gateway()
  const codex = (i: number) =>
    step(
      'exec_command',
      '{"cmd":"npm test"}',
      `Chunk ID: ${(7919 * i).toString(16)}\nWall time: 0.${[5, 3, 8, 4][i % 4]} seconds\nProcess exited with code 1\nOutput:\n1 failing (${[12, 14, 11][i % 3]}ms) {"time":"2023-11-14T22:13:${20 + i}Z"}\n   Start at  01:02:${10 + i}`,
      `Attempt ${i}`,
    )
  const became = await gateway.all(session(task, times(14, codex)))
  assert.deepEqual(
    became.filter((one, i) => one !== became[i - 1]),
    ['free', 'slow', REFUSED],
  )
  // The third result is the first whose durations went both ways.
  assert.equal(became.indexOf('slow'), 6)
  assert.equal(became.indexOf(REFUSED), 9)
})

for (const [name, result] of Object.entries<(i: number) => string>({
  'at the beginning of a line': i => `[01:02:${10 + i}] waiting\n01:02:${10 + i} waiting`,
  'in a log of the system': i => `Nov 14 22:13:${20 + i} host app: waiting`,
  'in a log of accesses': i => `::1 - [14/Nov/2023:22:13:${20 + i} +0000] "GET /"`,
  'in JSON': i => `{"time":"2023-11-14T22:13:${20 + i}.123Z","state":"waiting"}`,
  'of the local time': i => `2023-11-15 08:13:${20 + i},123 waiting`,
}))
  test(`a loop whose results differ in the time of a log alone is seen: ${name}`, async () => {
    const steps = times(14, i => step('run', '{"cmd":"tail -1 log"}', result(i)))
    assert.equal((await new Gateway().all(session(task, steps))).at(-1), REFUSED)
  })

test('a circle of several steps is one too', async () => {
  const gateway = new Gateway()
  const circle = (i: number) =>
    [
      () => step('edit', '{"from":"a","to":"b"}', 'ok'),
      () => step('run', '{}', 'b fails'),
      () => step('edit', '{"from":"b","to":"a"}', 'ok'),
      () => step('run', '{}', 'a fails'),
    ][i % 4]!()
  assert.equal((await gateway.all(session(task, times(20, circle)))).at(-1), REFUSED)
})

test('an agent that speaks in texts, and ends in the same words and the same answer, is seen', async () => {
  const gateway = new Gateway()
  const round = () => [said('assistant', '```bash\nls\n```'), said('user', '<output>a.txt</output>')]
  assert.equal((await gateway.all(session(task, times(15, round)))).at(-1), REFUSED)
})

describe('who is never counted', () => {
  const never = async (requests: Turn[][], asking: Asking = {}, gateway = new Gateway()) =>
    assert.deepEqual(new Set(await gateway.all(requests, { usd: 10, ...asking })), new Set(['free']))

  test('an agent that makes progress, with calls and results that come back now and then', () =>
    never(
      session(
        task,
        times(60, i => (i % 3 === 0 ? step('run', '{}', '1 failing') : step('edit', `{"line":${i}}`, 'ok'))),
      ),
    ))

  test('a batch: one system text, one prompt after the other', () =>
    never(
      times(60, i => [said('user', `Translate word ${String(i).padStart(3, '0')}`)]),
      { over: { system: [{ type: 'text', text: 'You translate.' }] } },
    ))

  test('a person or a script that says "continue" to a text that goes on', () =>
    never(
      session(
        task,
        times(60, i => [said('assistant', `Chapter ${i}`), said('user', 'continue')]),
      ),
    ))

  test('a poll that shows progress', () =>
    never(
      session(
        task,
        times(60, i => step('run', '{"cmd":"tail -1 log"}', `step ${i} of 60`)),
      ),
    ))

  /**
   * All times were left out of what is compared, so that polls whose results told their progress in times were slowed
   * and refused.
   */
  for (const [name, result] of Object.entries<(i: number) => string>({
    'a progress bar': i => `frame=1 time=00:00:${10 + i}.00 bitrate=1`,
    'a progress bar with its end': i => `00:00:${10 + i} / 00:40:00`,
    'how long is left': i => `ETA ${100 - i} min`,
    'how long is left, in a smaller unit at last': i => (i < 30 ? `ETA ${60 - i} min` : `ETA ${1700 - i} s`),
    'a figure that gets better': i => `p99 ${200 - 2 * i} ms, max ${[500, 400, 700][i % 3]} ms`,
    'a day': i => `backfilled up to 20${40 + i}-01-01`,
    'a time long ago': i => `replayed up to 2022-01-01T00:${10 + (i % 50)}:00Z of ${Math.floor(i / 50)}`,
  }))
    test(`a poll that shows progress by times: ${name}`, () =>
      never(
        session(
          task,
          times(50, i => step('run', '{"cmd":"tail -1 log"}', result(i))),
        ),
      ))

  /** One key served many users, all of whom began with the same question, and all of them were refused. */
  test('many users of one key who ask the same', async () => {
    const gateway = new Gateway()
    const asking = (body: object) => ({ usd: 10, body })
    for (const i of times(20, i => i))
      for (const body of [{ safety_identifier: `a${i}` }, { user: `b${i}` }, { metadata: { user_id: `c${i}` } }])
        assert.deepEqual(await gateway.all([[said('user', 'hello')]], asking(body)), ['free'])
    const own = await gateway.all(
      times(12, () => [said('user', 'hello')]),
      asking({ user: 'b1' }),
    )
    assert.equal(own.at(-1), REFUSED, 'one of them who does it again and again is seen')
  })

  test('a poll that waits: its repeats are not within one window', async () => {
    const gateway = new Gateway()
    for (const turns of session(
      task,
      times(60, () => step('run', '{"cmd":"sleep 240; tail -1 log"}', 'waiting')),
    )) {
      gateway.clock.advance(240_000)
      assert.deepEqual(await gateway.all([turns], { usd: 10 }), ['free'])
    }
  })

  test('an evaluation that goes through the same conversations twice', () => {
    const run = session(
      task,
      times(20, i => step('run', `{"cmd":"${i}"}`, `${i}`)),
    )
    return never([...run, ...run])
  })

  test('the same prompt for another model, another seed, another schema or another tool', async () => {
    const gateway = new Gateway()
    const turns = [said('user', 'hello')]
    for (const over of times(10, i => [
      { model: `model-${i}` },
      { sampling: { stop: [], logprobs: false, seed: i } },
      { output: { schema: { title: `s${i}` }, strict: true, path: 'response_format' } },
      { tools: [{ type: 'function' as const, name: `t${i}`, parameters: {}, path: '' }] },
      { cacheKey: `session-${i}` },
    ]).flat())
      await never([turns], { over }, gateway)
  })

  test('who asks the same many times at once', async () => {
    const gateway = new Gateway()
    const turns = [said('user', 'hello')]
    let n = 0
    const many = await Promise.all(times(50, () => gateway.ask(turns, { usd: 10, more: { id: `req_${++n}` } })))
    assert.deepEqual(new Set(many.map(({ status, slowed }) => slowed ?? status)), new Set([200]))
  })

  test('requests that were not billed: refused, failed, or cut before anything came', () =>
    never(
      times(60, () => [said('user', 'hello')]),
      { billed: false },
    ))

  test('many repeats that cost little, and few that cost much', async () => {
    await never(
      times(60, () => [said('user', 'hello')]),
      { usd: 0.001 },
    )
    await never(
      times(5, () => [said('user', 'hello')]),
      { usd: 100 },
    )
  })

  test('questions that count tokens', () =>
    never(
      times(60, () => [said('user', 'hello')]),
      { more: { advisory: true } },
    ))

  test('images that differ', () => {
    const shot = (i: number): Turn[] => {
      const [call, result] = step('click', '{"x":1}', '')
      const source = { kind: 'data' as const, mediaType: 'image/png', data: `iVBOR${i}` }
      const part = { ...(result!.parts[0] as any), content: [{ type: 'image', source, path: '' }] }
      return [call!, { role: 'tool', parts: [part] }]
    }
    return never(session(task, times(40, shot)))
  })
})

describe('what lifts it', () => {
  const turns = [said('user', 'hello')]
  const refused = async (config: object = {}) => {
    const gateway = new Gateway(config)
    const became = await gateway.all(times(20, () => turns))
    assert.equal(became.at(-1), REFUSED)
    return gateway
  }

  test('something new in the conversation; the old one stays refused, and others of the key go on', async () => {
    const gateway = await refused()
    const on = [...turns, said('assistant', 'Hi'), said('user', 'Try it another way')]
    assert.deepEqual(await gateway.all([on, [said('user', 'other')], turns]), ['free', 'free', REFUSED])
    assert.deepEqual(await gateway.all([turns], { key: 'other' }), ['free'])
    assert.deepEqual(await gateway.all([turns], { org: 'other' }), ['free'])
  })

  test('time: it begins anew, and is refused again when it goes on as before', async () => {
    const gateway = await refused()
    gateway.clock.advance(599_000)
    const late = await gateway.ask(turns)
    assert.ok(Number(late.headers.get('retry-after')) < 60)
    gateway.clock.advance(1000)
    const again = await gateway.all(times(10, () => turns))
    assert.deepEqual(again.slice(0, 3), ['free', 'free', 'free'])
    assert.equal(again.at(-1), REFUSED)
  })

  test('the operator: by name, or by bounds that are wider', async () => {
    for (const config of [{ exempt: ['acme'] }, { exempt: ['acme/k'] }, { refuse_usd: 100, slow_usd: 100 }]) {
      const gateway = await refused()
      gateway.config = { ...gateway.config, ...config }
      assert.deepEqual(await gateway.all([turns]), ['free'], JSON.stringify(config))
    }
    const gateway = await refused()
    gateway.config = { ...gateway.config, exempt: ['acme/other'] }
    assert.deepEqual(await gateway.all([turns]), [REFUSED], 'a reload alone lifts nothing')
  })
})

test('by key, all of its requests are slowed and refused, until the time is over', async () => {
  const gateway = new Gateway({ scope: 'key' })
  const turns = [said('user', 'hello')]
  const other = (i: number) => [said('user', `something else ${i}`)]
  await gateway.all(times(5, () => turns))
  assert.deepEqual(await gateway.all([other(1)]), ['slow'])
  assert.deepEqual(await gateway.all([other(1)], { key: 'other' }), ['free'])
  // What repeats itself is counted on while all are slowed.
  await gateway.all(times(5, () => turns))
  const { error } = await gateway.ask(other(2))
  assert.equal(error.code, REFUSED)
  assert.match(error.message, /All requests of the key are refused/)
  gateway.clock.advance(600_000)
  assert.deepEqual(await gateway.all([other(3), turns]), ['free', 'free'])
})

test('an organization that pays nothing is judged by what it would have paid', async () => {
  const requests = times(20, () => [said('user', 'hello')])
  assert.equal((await new Gateway().all(requests, { usd: 0, list: 0.1 })).at(-1), REFUSED)
  assert.equal((await new Gateway().all(requests, { usd: 0, list: 0.01 })).at(-1), 'free')
})

test('a client that leaves while it is slowed leaves no timer, and is not counted', async () => {
  const gateway = new Gateway()
  const turns = [said('user', 'hello')]
  await gateway.all(times(5, () => turns))
  gateway.clock.hasty = false
  const request = new MemoryIncoming()
  const run = runPlugin<any>(plugin, {
    config: gateway.config,
    clock: gateway.clock,
    shared: gateway.shared,
    request,
    slots: [
      [identity, { organization: { id: 'acme' }, key: { id: 'k' } }],
      [conversation, plainConversation({ turns })],
      [estimate, { input: JSON.stringify(turns).length }],
      [model, modelOf()],
    ],
  } as never)
  await eventually(() => gateway.clock.pending === 1)
  request.abort()
  const { settlement } = await run
  assert.equal(settlement.outcome, 'client_gone')
  assert.equal(gateway.clock.pending, 0)
  gateway.clock.hasty = true
  assert.equal((await gateway.ask(turns)).slowed, 'repeats=3, delay_ms=5000')
})

test('at most 32 requests of an organization wait; the next is refused, and gets the wait', async () => {
  const gateway = new Gateway()
  const turns = [said('user', 'hello')]
  await gateway.all(times(5, () => turns))
  gateway.clock.hasty = false
  const slots = [
    [identity, { organization: { id: 'acme' }, key: { id: 'k' } }],
    [conversation, plainConversation({ turns })],
    [estimate, { input: JSON.stringify(turns).length }],
    [model, modelOf()],
  ]
  const clients = times(33, () => new MemoryIncoming())
  const { config, clock, shared } = gateway
  const runs = clients.map((request, i) =>
    // Timers of the others are no fault of this one.
    runPlugin<any>(plugin, { config, clock, shared, request, slots, id: `req_${i}` } as never).catch(error => error),
  )
  const last = (await runs.at(-1)) as Error
  assert.match(String(last), /32 timers left/)
  assert.equal(clients.at(-1)!.status, 429)
  assert.ok(Number(clients.at(-1)!.sentHeaders.get('retry-after')) <= 7)
  for (const client of clients) client.abort()
  await Promise.all(runs)
  assert.equal(clock.pending, 0)
  clock.hasty = true
  assert.equal((await gateway.ask(turns)).status, 200, 'they wait no more')
})

test('what is known is bounded for each organization: the others keep theirs', async () => {
  const gateway = new Gateway()
  const turns = [said('user', 'hello')]
  await gateway.all(
    times(20, () => turns),
    { org: 'loops' },
  )
  await gateway.all(times(1100, i => [said('user', `request ${10_000 + i}`)]))
  assert.deepEqual(await gateway.all([turns], { org: 'loops' }), [REFUSED])
  await gateway.all(
    times(1100, i => [said('user', `${i}`.repeat(i + 1))]),
    { org: 'loops' },
  )
  assert.deepEqual(await gateway.all([turns], { org: 'loops' }), ['free'], 'its own flood makes it forget')
})

test('a long conversation is digested in slices, with the same end', async () => {
  const gateway = new Gateway()
  const long = said('user', new Random(1).text(1_500_000))
  const turns = [long, ...times(40, () => step('run', '{}', 'x'.repeat(50_000))).flat()]
  const became = await gateway.all(
    session(
      long,
      times(12, () => step('run', '{}', 'x'.repeat(70_000))),
    ),
  )
  assert.equal(became.at(-1), REFUSED)
  const request = new MemoryIncoming()
  const slots = [
    [identity, { organization: { id: 'acme' }, key: { id: 'k' } }],
    [conversation, plainConversation({ turns })],
    [estimate, { input: 7 }],
    [model, modelOf()],
  ]
  const run = runPlugin<any>(plugin, { request, slots } as never)
  request.abort()
  assert.equal((await run).settlement.outcome, 'client_gone')
})

test('options that would do nothing, or something else than they say, do not load', () => {
  const faults = (config: object) => plugin.check!(parseOptions(plugin, config) as never, {} as never)
  assert.deepEqual(faults({}), [])
  assert.match(faults({ window: 0 })[0]!, /window is 0/)
  assert.match(faults({ refuse_for: 0 })[0]!, /refuse_for is 0/)
  assert.match(faults({ delay: '2m' })[0]!, /more than a minute/)
  assert.match(faults({ refuse_usd: 0.5 })[0]!, /slow_repeats and slow_usd/)
  assert.match(faults({ refuse_repeats: 2 })[0]!, /slow_repeats and slow_usd/)
})

test('whatever grows by something new is free; whatever comes back long enough is refused', async () => {
  for (let seed = 1; seed <= 40; seed++) {
    const random = new Random(seed)
    const gateway = new Gateway()
    const tools = ['read', 'run', 'edit']
    const results = ['ok', 'error', '1 failing in 3.2 s', '']
    let n = 0
    const fresh = () =>
      random.chance(0.2)
        ? [said('assistant', random.text(20)), said('user', `news ${++n} ${random.text(30)}`)]
        : step(random.one(tools), `{"n":${random.below(3)}}`, `${random.one(results)} ${++n}`, random.text(10))
    const old: (() => Turn[])[] = []
    const history: Turn[][] = []
    // Old steps come back all the time, and each request has a new one behind them.
    for (let i = 0; i < 30; i++) {
      const back = old.length > 0 && random.chance(0.5) ? random.one(old)() : []
      const made = fresh()
      if (made[1]!.role === 'tool') {
        const call = made[0]!.parts.find(part => part.type === 'call')!
        const result = made[1]!.parts[0] as any
        old.push(() => step(call.name, call.input, result.content[0].text, random.text(10)))
      }
      history.push([...back, ...made])
    }
    const growing = await gateway.all(session(task, history), { usd: 5 })
    assert.deepEqual(new Set(growing), new Set(['free']), `seed ${seed}`)
    if (old.length === 0) continue
    const before = [task, ...history.flat()]
    const period = 1 + random.below(Math.min(4, old.length))
    const circle = times(30, i => old[i % period]!())
    const circling = await gateway.all(
      times(30, i => [...before, ...circle.slice(0, i + 1).flat()]),
      { usd: 0.1 + random.below(5) },
    )
    const at = circling.indexOf(REFUSED)
    assert.ok(at >= 6 && at <= 8, `seed ${seed}: ${circling}`)
    assert.deepEqual(new Set(circling.slice(at)), new Set([REFUSED]), `seed ${seed}`)
  }
})
