/**
 * `usage-capture`: stands below the terminal, counts what is delivered, prices it, and closes the ledger row that
 * admission opened.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type StreamEvent, ZERO_USAGE } from '../../core/canon/events.ts'
import type { CostRates } from '../../core/canon/money.ts'
import { conversation, estimate, request, usage } from '../../core/plugin.ts'
import type { LedgerRow } from '../../core/ports/store.ts'
import { countTokens } from '../../meter/index.ts'
import {
  callReport,
  consumption,
  identity,
  model,
  plan,
  receivedBytes,
  reservation,
} from '../../plugins/shared/slots.ts'
import {
  GatewayError,
  ManualClock,
  MemoryIncoming,
  plainConversation,
  type RunOptions,
  runPlugin,
} from '../../plugins/testing.ts'
import { usageCapture } from '../../plugins/usage-capture.ts'
import { intent } from '../stores/kit.ts'
import { backend, caller, finish, memoryStore, modelOf, text } from './kit.ts'

type Run = Awaited<ReturnType<typeof runPlugin>> & { row: LedgerRow }

/** One exchange that was admitted: 100 tokens of prompt, and a row in the ledger. */
async function run(events: RunOptions<any>['events'] = [], more: RunOptions<any> = {}): Promise<Run> {
  const clock = more.clock ?? new ManualClock()
  const store = await memoryStore(clock)
  await store.ledger.intent(intent('req_test', { time: clock.now(), input_tokens: 100 }))
  const done = await runPlugin(usageCapture, {
    below: true,
    store,
    clock,
    events,
    ...more,
    slots: [
      [identity, caller()],
      [model, modelOf()],
      [estimate, { input: 100 }],
      [
        reservation,
        { cells: [], states: [], compressed: false, input: 100, output: 50, cost: 0, most: Number.POSITIVE_INFINITY },
      ],
      [callReport, { served: backend(), promptTaken: false, failed: [], ownCost: 0 }],
      ...(more.slots ?? []),
    ],
  })
  await store.ledger.flush()
  const [row] = await store.ledger.query({})
  return { ...done, row: row! }
}
const counted = async (...events: StreamEvent[]) => (await run(events)).exchange.get(usage).usage

// ---- what counts ----------------------------------------------------------------------------------------------------

const args = (words: string): StreamEvent => ({ type: 'tool_args', index: 0, text: words })
const call: StreamEvent = { type: 'tool_call', index: 0, id: 'call_eba1_1', kind: 'function', name: 'get_weather' }
const end: StreamEvent = { type: 'tool_end', index: 0 }

const OUTPUT: [what: string, events: StreamEvent[], texts: string[]][] = [
  ['text, as one text however it is cut', [text('un'), text('believ'), text('able')], ['unbelievable']],
  ['two blocks of text, each by itself', [text('un'), { type: 'break' }, text('able')], ['un', 'able']],
  ['a refusal', [{ type: 'refusal', text: 'I would rather not.' }], ['I would rather not.']],
  [
    'a call: its name and its arguments',
    [call, args('{"city":'), args('"Oslo"}'), end],
    ['get_weather', '{"city":"Oslo"}'],
  ],
  ['a call without arguments, which is {} to the client', [call, end], ['get_weather', '{}']],
  ['nothing', [], []],
]
for (const [what, events, texts] of OUTPUT) {
  test(`[METER-4] output is ${what}`, async () => {
    const { output, input } = await counted(...events)
    assert.equal(
      output,
      texts.reduce((sum, words) => sum + countTokens(words), 0),
    )
    assert.equal(input, 100, 'the prompt is what was counted on the way down')
  })
}

const report = (of: object): StreamEvent => ({ type: 'usage', usage: of })
const thought: StreamEvent[] = [
  { type: 'reasoning', text: 'let me think about this', part: 0 },
  { type: 'reasoning_end' },
]

test('[METER-4] reasoning is what the provider reports, and part of the output', async () => {
  const found = await counted(...thought, text('yes'), report({ reasoning: 40 }))
  assert.deepEqual([found.reasoning, found.output, found.estimated], [40, 40 + countTokens('yes'), false])
})

test('[METER-4] where no provider reports it, its summary is counted, and said to be an estimate', async () => {
  const found = await counted(...thought, text('yes'))
  assert.deepEqual([found.reasoning, found.estimated], [countTokens('let me think about this'), true])
})

const CACHES: [what: string, report: object, cached: number, written: number][] = [
  ['the provider’s share, of our own count', { prompt: 200, cached: 50 }, 25, 0],
  ['never more than the prompt', { prompt: 200, cached: 900, cacheWrite: 900 }, 100, 0],
  ['reads first, then writes, together no more than the prompt', { prompt: 200, cached: 150, cacheWrite: 100 }, 75, 25],
  ['nothing where the provider tells no prompt', { cached: 50 }, 0, 0],
]
for (const [what, of, cached, written] of CACHES) {
  test(`[METER-5] cache figures: ${what}`, async () => {
    const found = await counted(text('a'), report(of))
    assert.deepEqual([found.cached, found.cacheWrite], [cached, written])
  })
}

test('searches that came to something are counted', async () => {
  const search = (id: string, more: object): StreamEvent[] => [
    { type: 'search_start', id },
    { type: 'search_end', id, query: 'q', results: [], ...more },
  ]
  const found = await counted(
    ...search('hist_eba1_1', {}),
    ...search('hist_eba1_2', { errorCode: 'unavailable' }),
    ...search('hist_eba1_3', { unfinished: true }),
  )
  assert.equal(found.searches, 1)
})

// ---- the bill and its row -------------------------------------------------------------------------------------------

test('[BILL-1] [BILL-4] the row: tokens, cost in nano-USD at the model’s price, who served, and how long it took', async () => {
  const clock = new ManualClock()
  const { row } = await run(
    [
      () => clock.advance(200),
      text('yes'),
      x => void x.flush(),
      () => clock.advance(800),
      report({ prompt: 100, cached: 20 }),
    ],
    { clock },
  )
  const output = countTokens('yes')
  assert.deepEqual(
    [row.outcome, row.provider, row.input, row.cached, row.output, row.duration_ms, row.ttfb_ms],
    ['completed', 'local', 100, 20, output, 1000, 200],
  )
  // 80 at 1 USD, 20 at a tenth of it, the output at 4 USD per million.
  assert.equal(row.cost, 80_000 + 2000 + output * 4000)
})

for (const [what, slots] of [
  ['an organization that is free', [[identity, caller({ billing: 'free' })]]],
  ['a model without a price', [[model, modelOf({ price: null })]]],
] as const) {
  test(`[BILL-2] ${what}: tokens are counted and cost nothing`, async () => {
    const { row } = await run([text('yes')], { slots })
    assert.deepEqual([row.input, row.cost], [100, 0])
  })
}

const failure: StreamEvent = {
  type: 'error',
  error: new GatewayError('upstream_server_error', { message: 'The upstream failed.' }),
}
const shown = (x: { flush(): boolean }) => void x.flush()
const ENDS: [
  how: string,
  events: RunOptions<any>['events'],
  leaveAfter: number | undefined,
  outcome: string,
  billed: boolean,
][] = [
  ['a whole reply', [text('yes')], undefined, 'completed', true],
  ['one that reached its cap', [text('yes'), { ...finish, reason: 'length' }], undefined, 'incomplete', true],
  [
    'one that the idle clock ended',
    [text('yes'), { ...finish, reason: 'idle_timeout' }],
    undefined,
    'incomplete',
    true,
  ],
  ['a failure before any output', [failure], undefined, 'upstream_error', false],
  ['a failure after output', [text('yes'), shown, failure], undefined, 'upstream_error', true],
  ['a client that leaves before any output', [text('yes')], 0, 'client_gone', false],
  ['a client that leaves after output', [text('yes'), shown, text('no')], 1, 'client_gone', true],
]
for (const [how, events, leaveAfter, outcome, billed] of ENDS) {
  test(`[BILL-3] ${how}: ${outcome}, ${billed ? 'billed' : 'not billed'}`, async () => {
    const { row } = await run(events, leaveAfter === undefined ? {} : { leaveAfter })
    assert.deepEqual([row.outcome, row.cost > 0, row.input > 0], [outcome, billed, billed])
  })
}

test('[BILL-3] a buffered reply that failed on its way was never seen: not billed', async () => {
  const { row } = await run([text('yes'), failure], { slots: [[conversation, plainConversation({ stream: false })]] })
  assert.deepEqual([row.outcome, row.cost, row.output], ['upstream_error', 0, 0])
})

test('[BILL-3] what a draining upstream says after the client left is not delivered; its report still counts', async () => {
  const client = new MemoryIncoming()
  const { row } = await run(
    [
      x => x.control({ pause() {}, resume() {}, abort: () => 'draining' }),
      text('yes'),
      shown,
      () => client.abort(),
      text(' and a long tail that nobody gets'),
      report({ prompt: 100, reasoning: 7 }),
    ],
    { request: client },
  )
  assert.deepEqual([row.outcome, row.output, row.reasoning], ['client_gone', countTokens('yes') + 7, 7])
})

test('an exchange that was never admitted has no row to close', async () => {
  const { row } = await run([text('yes')], { slots: [[reservation, undefined]] })
  assert.equal(row, undefined)
})

test('a proxied reply: bytes both ways, and no tokens', async () => {
  const bytes = (n: number) => ({ type: 'bytes' as const, bytes: new Uint8Array(n) })
  const events = [(x: any) => x.respondHead(200, []), bytes(300), bytes(200)]
  const store = await memoryStore()
  const outcomes: any[] = []
  const outcome = store.ledger.outcome.bind(store.ledger)
  store.ledger.outcome = row => {
    outcomes.push(row)
    outcome(row)
  }
  await runPlugin(usageCapture, {
    below: true,
    store,
    events,
    slots: [
      [reservation, { cells: [], states: [], compressed: false, input: 0, output: 0, cost: 0, most: 0 }],
      [receivedBytes, 40],
    ],
  })
  assert.equal(outcomes.length, 1)
  assert.deepEqual([outcomes[0].bytes_in, outcomes[0].bytes_out, outcomes[0].usage.output], [40, 500, 0])
})

test('a reply is billed at most what its output cap costs, and its tokens are told as they were counted', async () => {
  const words = text('one two three four five six seven eight')
  const { row: whole } = await run([words])
  const billed = async (most: number) => {
    const { row, exchange } = await run([words], {
      slots: [[reservation, { cells: [], states: [], compressed: false, input: 100, output: 50, cost: most, most }]],
    })
    assert.deepEqual(row.output, whole.output)
    return [row.cost, exchange.get(usage).cost]
  }
  assert.ok(whole.cost > 1)
  assert.deepEqual(await billed(whole.cost), [whole.cost, whole.cost])
  assert.deepEqual(await billed(whole.cost - 1), [whole.cost - 1, whole.cost - 1])
})

test('consumption has all prompt tokens that were sent: what was fetched, and the prompts of further calls', async () => {
  const report = { served: backend(), promptTaken: true, failed: [], furtherInput: 4000, ownCost: 0 }
  const { exchange, row } = await run([text('hi')], {
    slots: [
      [plan, { search: null, keepsFirstCall: false, input: 2500 }],
      [callReport, report],
    ],
  })
  assert.equal(exchange.get(consumption).sent, 6500)
  assert.equal(row.input_tokens, 100)
  const plain = await run([text('hi')])
  assert.equal(plain.exchange.get(consumption).sent, 100)
})

// ---- tags -----------------------------------------------------------------------------------------------------------

const TAGS = {
  team: { from: 'header.X-Team' },
  user: { from: 'user', hash: true },
  customer: { from: 'metadata.customer' },
  session: { from: 'session' },
}
async function tagsOf(headers: Record<string, string>, body: Record<string, unknown> = {}, organization = 'acme') {
  const { row } = await run([text('yes')], {
    config: { tags: TAGS },
    request: { headers },
    slots: [
      [identity, caller({ id: organization })],
      [request, body],
    ],
  })
  return !row.tags ? null : (JSON.parse(row.tags) as Record<string, string>)
}

test('a row says for whom it is: by header, metadata, user and session, and nothing that is not there', async () => {
  const headers = { 'x-team': 'blue', 'session-id': 's1' }
  const tags = await tagsOf(headers, { user: 'ann@example.com', metadata: { customer: 'c-7\n' } })
  assert.deepEqual({ ...tags, user: '' }, { team: 'blue', user: '', customer: 'c-7?', session: 's1' })
  assert.match(tags!['user']!, /^[\w-]{22}$/)
  assert.equal(await tagsOf({}), null)
  assert.equal(await tagsOf({}, { user: '', metadata: { customer: 7 } }), null)
})

test('a hashed tag is the same for one user of one gateway, wherever the request says it', async () => {
  const of = async (body: object, organization?: string) => (await tagsOf({}, { ...body }, organization))!['user']
  const known = await of({ user: 'ann' })
  assert.equal(await of({ metadata: { user_id: 'ann' } }), known)
  assert.equal(await of({ safety_identifier: 'ann', user: 'bob' }), known)
  assert.notEqual(await of({ user: 'bob' }), known)
  assert.notEqual(await of({ user: 'ann' }, 'other'), known)
})

test('a long value is kept as its hash, so that two long ones stay two', async () => {
  const of = async (customer: string) => (await tagsOf({}, { metadata: { customer } }))!['customer']
  assert.equal(await of('x'.repeat(64)), 'x'.repeat(64))
  assert.match((await of('x'.repeat(65)))!, /^[\w-]{22}$/)
  assert.notEqual(await of('x'.repeat(65)), await of('x'.repeat(66)))
})

// ---- the provider's side --------------------------------------------------------------------------------------------

const COST: CostRates = {
  input: 1_000_000,
  cached: 100_000,
  cache_write: 1_250_000,
  cache_write_1h: 2_000_000,
  output: 8_000_000,
  search: 10_000_000,
  tiers: { flex: 0.5 },
}
const costly = { ...backend(), cost: COST }
const answering = (more: object = {}) => ({
  served: costly,
  promptTaken: true,
  failed: [],
  furtherInput: 0,
  ownCost: 0,
  ...more,
})
const priced = { slots: [[callReport, answering()]] } as RunOptions<any>
const sideOf = (row: LedgerRow) => ({
  theirs: [row.provider_input, row.provider_cached, row.provider_cache_write, row.provider_cache_write_1h],
  output: [row.provider_output, row.provider_reasoning],
  ours: [row.counted_input, row.counted_output],
  cost: row.provider_cost,
})

test('a row has both sides: who answered, its own counts, its cost, the price, and what was reserved', async () => {
  const { row } = await run(
    [
      text('yes'),
      report({ prompt: 150, cached: 50, cacheWrite: 30, cacheWriteHour: 10, output: 21, reasoning: 20, tier: 'flex' }),
      finish,
    ],
    priced,
  )
  const output = countTokens('yes') + 20
  assert.deepEqual(sideOf(row), {
    theirs: [150, 50, 30, 10],
    output: [21, 20],
    ours: [100, output],
    // Half of 70 · 1 + 50 · 0.1 + 20 · 1.25 + 10 · 2 + 21 · 8 millionths of a USD.
    cost: 144_000,
  })
  const { price } = modelOf()
  assert.deepEqual(
    [row.provider_model, row.service_tier, row.rounds, row.price_input, row.price_output, row.output_reserved],
    [backend().model, 'flex', 1, price!.input, price!.output, 50],
  )
})

test('a row says whose price the bill has, and of which step', async () => {
  const steps = [{ above: 99, input: 3_000_000, output: 9_000_000 }]
  const priced = async (price: object, prompt: number, billing: 'standard' | 'free' = 'standard') => {
    const { row } = await run([text('yes'), finish], {
      slots: [
        [identity, caller({ billing })],
        [model, { ...modelOf(), price: { input: 1_000_000, output: 2_000_000, ...price } }],
        [estimate, { input: prompt }],
      ],
    } as RunOptions<any>)
    return [row.price_used, row.price_input, row.price_output, row.cost]
  }
  const words = countTokens('yes')
  assert.deepEqual(await priced({ steps }, 99), ['model', 1_000_000, 2_000_000, 99_000 + 2000 * words])
  assert.deepEqual(await priced({ steps, list: 'plan:gold' }, 100), [
    ...['plan:gold>99', 3_000_000, 9_000_000],
    300_000 + 9000 * words,
  ])
  assert.deepEqual(await priced({}, 100, 'free'), ['', undefined, undefined, 0])
})

test('each round of a search is paid for; the bill has the prompt once', async () => {
  const rounds = { count: 3, prompt: 900, cached: 300, cacheWrite: 0, cacheWriteHour: undefined }
  const one = await run([text('yes'), report({ prompt: 200, cached: 50, output: 9, searches: 2, rounds }), finish], {
    slots: [[callReport, answering({ furtherInput: 350 })]],
  } as RunOptions<any>)
  const alone = await run([text('yes'), report({ prompt: 200, cached: 50, output: 9 }), finish], priced)
  assert.deepEqual([one.row.input, one.row.cached, one.row.cost], [alone.row.input, alone.row.cached, alone.row.cost])
  assert.equal(one.row.rounds, 3)
  // The gateway counts the prompts of further rounds, too.
  assert.deepEqual(sideOf(one.row), {
    theirs: [900, 300, 0, undefined],
    output: [9, undefined],
    ours: [450, countTokens('yes')],
    cost: 600_000 + 30_000 + 72_000 + 2 * 10_000_000,
  })
})

test('calls that a layer makes apart cost, too; one whose cost nobody knows makes the whole unknown', async () => {
  const costOf = async (ownCost: number | null) => {
    const events = [text('yes'), report({ prompt: 150, output: 1 }), finish]
    const { row } = await run(events, { slots: [[callReport, answering({ ownCost })]] } as RunOptions<any>)
    return row.provider_cost
  }
  const alone = (await costOf(0))!
  assert.equal(await costOf(12_345), alone + 12_345)
  assert.equal(await costOf(null), undefined)
})

test('a provider that reports nothing is taken to count as the gateway; a backend without a cost has none', async () => {
  const silent = await run([text('yes'), finish], priced)
  assert.deepEqual(sideOf(silent.row), {
    theirs: [undefined, undefined, undefined, undefined],
    output: [undefined, undefined],
    ours: [undefined, undefined],
    cost: 100_000 + 8000 * countTokens('yes'),
  })
  const { row } = await run([text('yes'), report({ prompt: 150, output: 2 }), finish])
  assert.deepEqual([row.provider_input, row.provider_cost], [150, undefined])
})

test('what nobody answered costs nothing, unless a backend has the prompt: then it is not known', async () => {
  const none = await run([], { slots: [[callReport, undefined]] })
  assert.deepEqual([none.row.provider_model, none.row.provider_cost, none.row.rounds], ['', 0, undefined])
  const taken = await run([], {
    slots: [[callReport, answering({ served: undefined })]] as RunOptions<any>['slots'],
  })
  assert.equal(taken.row.provider_cost, undefined)
})

// ---- compaction -------------------------------------------------------------------------------------------------------

const compactionOf = (over: object = {}): StreamEvent => ({
  ...{
    type: 'compaction',
    id: 'item_1',
    summary: 'in short',
    sealed: 's',
    keeps: 'nothing',
    kept: [],
    most: 0,
    tokens: 3,
    reasoning: 5,
  },
  ...{ usage: { prompt: 200, cached: 100, reasoning: 7 }, estimated: false, asked: 11, next: 40 },
  ...over,
})

test('[METER-1] [BILL-1] a compaction and its answer are one bill, each by its own prompt and its own price', async () => {
  const price = { input: 1_000_000, output: 4_000_000, steps: [{ above: 120, input: 3_000_000, output: 9_000_000 }] }
  const slots = [[model, modelOf({ price })]] as never
  const events = [compactionOf(), text('yes'), { type: 'usage', usage: { prompt: 80, cached: 8 } } as const, finish]
  const { exchange, row } = await run(events, { slots })
  const first = { input: 111, cached: 56, cacheWrite: 0, output: 3 + 7, reasoning: 7 }
  const second = { input: 40, cached: 4, output: countTokens('yes') }
  const { usage: bill, cost } = exchange.get(usage)
  assert.deepEqual(bill.compaction, { ...first, searches: 0, estimated: false })
  assert.deepEqual(
    [bill.input, bill.cached, bill.output, bill.reasoning],
    [first.input + second.input, first.cached + second.cached, first.output + second.output, 7],
  )
  // 151 tokens together would be above the step; neither prompt is.
  const priced = (one: { input: number; cached: number; output: number }) =>
    Math.round((one.input - one.cached) * 1000 + one.cached * 100 + one.output * 4000)
  assert.equal(cost, priced(first) + priced(second))
  assert.deepEqual([row.input, row.output, row.cost], [bill.input, bill.output, cost])
})

test('a compaction alone is all of the bill', async () => {
  const bill = await counted(compactionOf({ next: null }), { type: 'finish', reason: 'compaction' })
  assert.deepEqual([bill.input, bill.output], [111, 3 + 7])
  assert.deepEqual({ ...bill, compaction: undefined }, { ...bill.compaction!, compaction: undefined })
})

test('[LIM-4] limits count the prompts of both calls', async () => {
  const report = { served: backend(), promptTaken: true, failed: [], furtherInput: 40, ownCost: 0 }
  const slots = [
    [callReport, report],
    [plan, { search: null, keepsFirstCall: false, input: 130 }],
  ] as never
  const { exchange } = await run([compactionOf(), text('yes'), finish], { slots })
  assert.equal(exchange.get(consumption).sent, 170)
})

test('reasoning of a compaction that was not reported is counted, and a row has what providers reported of both calls', async () => {
  const bill = await counted(compactionOf({ usage: null, next: null }), { type: 'finish', reason: 'compaction' })
  assert.deepEqual([bill.output, bill.reasoning, bill.estimated], [3 + 5, 5, true])
  const first = { prompt: 200, cached: 100, output: 12 }
  const rounds = { count: 2, prompt: 90, cached: 9 }
  for (const [reported, next, usage, figures] of [
    [first, 40, { prompt: 80, cached: 8, output: 2 }, [2, 280, 108, 14]],
    [first, 40, { prompt: 40, output: 2, rounds }, [3, 290, 109, 14]],
    [first, 40, null, [2, 200, 100, 12]],
    [null, 40, { prompt: 80, cached: 8, output: 2 }, [2, 80, 8, 2]],
    [first, null, null, [1, 200, 100, 12]],
  ] as const) {
    const answer: StreamEvent[] =
      next === null ? [] : [text('yes'), ...(usage ? [{ type: 'usage', usage } as const] : [])]
    const { row } = await run([compactionOf({ usage: reported, next }), ...answer, finish], priced)
    assert.deepEqual([row.rounds, row.provider_input, row.provider_cached, row.provider_output], figures)
  }
})

// ---- answers of layers -----------------------------------------------------------------------------------------------

const instead = (more: object = {}) =>
  answering({ served: undefined, promptTaken: false, instead: { by: 'mine', share: 0.1 }, ...more })

test('an answer of a layer is billed at its share, costs no provider anything, and names the layer', async () => {
  const events = [text('yes'), report({ prompt: 200, cached: 100, reasoning: 40, output: 41 }), finish]
  const { row, exchange } = await run(events, { slots: [[callReport, instead()]] } as RunOptions<any>)
  const { price } = modelOf()
  const output = countTokens('yes') + 40
  assert.deepEqual(
    [row.provider, row.provider_model, row.provider_cost, row.provider_input, row.counted_input],
    ['mine', '', 0, undefined, undefined],
  )
  assert.deepEqual([row.input, row.cached, row.output, row.reasoning], [100, 50, output, 40])
  assert.deepEqual(
    [row.price_used, row.price_input, row.price_output],
    ['model*0.1', price!.input / 10, price!.output / 10],
  )
  assert.equal(row.cost, Math.round((50 * price!.input + 5 * price!.input + output * price!.output) / 10_000))
  assert.deepEqual(exchange.get(consumption), { usage: ZERO_USAGE, sent: 0, unbilled: 0 })
})

test('at the share 1 the row has the price as it is, at 0 it costs nothing', async () => {
  const costOf = async (share: number) => {
    const slots = [[callReport, instead({ instead: { by: 'mine', share } })]] as RunOptions<any>['slots']
    const { row } = await run([text('yes'), finish], { slots })
    return [row.price_used, row.cost]
  }
  const [, whole] = await costOf(1)
  assert.ok((whole as number) > 0)
  assert.deepEqual(await costOf(1), ['model', whole])
  assert.deepEqual(await costOf(0), ['model*0', 0])
})

test('a client that leaves an answer of a layer owes nothing beyond its bill', async () => {
  const { exchange, row } = await run([text('yes '), text('and more'), finish], {
    slots: [[callReport, instead()]] as RunOptions<any>['slots'],
    leaveAfter: 1,
  })
  assert.equal(row.outcome, 'client_gone')
  assert.equal(exchange.get(consumption).unbilled, 0)
})

test('where a backend has answered, too, or has the prompt, its work counts, and the price is the whole one', async () => {
  const both = await run([text('yes'), finish], {
    slots: [[callReport, instead({ served: costly, promptTaken: true })]] as RunOptions<any>['slots'],
  })
  assert.deepEqual([both.row.provider, both.row.price_used], [costly.provider, 'model'])
  assert.equal(both.exchange.get(consumption).sent, 100)
  const taken = await run([text('yes'), finish], {
    slots: [[callReport, instead({ promptTaken: true })]] as RunOptions<any>['slots'],
  })
  assert.deepEqual([taken.row.provider, taken.row.price_used], ['mine', 'model*0.1'])
  assert.equal(taken.exchange.get(consumption).sent, 100)
})
