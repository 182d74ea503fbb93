/**
 * `admission`: a request is held against every limit of its organization and key in one step; from all is taken, or
 * from none.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Limits } from '../../config/types.ts'
import { exposure } from '../../core/canon/money.ts'
import { conversation, estimate, usage } from '../../core/plugin.ts'
import { isLimit, type Store } from '../../core/ports/store.ts'
import { admission } from '../../plugins/admission/index.ts'
import { consumption, identity, model, plan, reservation } from '../../plugins/shared/slots.ts'
import {
  createSharedState,
  ManualClock,
  MemoryIncoming,
  plainConversation,
  type RunOptions,
  runPlugin,
} from '../../plugins/testing.ts'
import { caller, gatewayOf, heldStore, lateStore, memoryStore, modelOf, OUT, platformOf, text } from './kit.ts'

interface Asked {
  /** Of the prompt. */
  input?: number
  /** The cap that the client named. */
  cap?: number
}
/** Requests of one caller to one process. What is billed: 10 tokens in, 5 out, 30 micro-USD. */
function requests(who: ReturnType<typeof caller>, store: Store, clock = new ManualClock(), platform = {}) {
  const shared = createSharedState()
  const gateway = gatewayOf({ platform: platformOf(platform) })
  let sent = 0
  return ({ input = 10, cap }: Asked = {}, more: RunOptions<any> = {}) =>
    runPlugin(admission, {
      id: `req_${++sent}`,
      gateway,
      store,
      shared,
      clock,
      events: [text('hi')],
      ...more,
      slots: [
        [identity, who],
        [model, modelOf()],
        [estimate, { input }],
        [
          conversation,
          plainConversation(cap === undefined ? {} : { maxOutputTokens: cap, maxOutputField: 'max_tokens' }),
        ],
        [usage, { usage: { input: 10, cached: 0, output: 5 }, cost: 30_000, billed: true }],
        ...(more.slots ?? []),
      ],
    })
}
const limited = async (limits: Partial<Limits>) => {
  const clock = new ManualClock(Date.UTC(2026, 10, 21, 10))
  return { clock, ask: requests(caller({ limits }), await memoryStore(clock), clock) }
}
const dimensionsOf = (run: Awaited<ReturnType<ReturnType<typeof requests>>>) =>
  run.exchange
    .get(reservation)
    .cells.map((cell, i) => [cell.id, run.exchange.get(reservation).states[i]!.remaining] as const)
    .filter(([, left]) => left !== Number.POSITIVE_INFINITY)

test('[LIM-1] [LIM-4] what is reserved: a request, the prompt, the cap the client named, and the most they can cost', async () => {
  const { ask } = await limited({
    requests_per_minute: 5,
    tokens_per_minute: 1000,
    output_tokens_per_day: 1000,
    concurrent_requests: 2,
    daily_spend_usd: 1e9,
  })
  const run = await ask({ input: 100, cap: 50 })
  assert.equal(run.status, 200)
  const { input, output, cost, compressed } = run.exchange.get(reservation)
  assert.deepEqual({ input, output, cost, compressed }, { input: 100, output: 50, cost: 300_000, compressed: false })
  assert.deepEqual(dimensionsOf(run), [
    ['o:rpm', 4],
    ['o:tpm', 850],
    ['o:otpd', 950],
    ['o:conc', 1],
    ['o:ubpd', 1e8 - 1],
    ['o:day', 1e9 - 300_000],
  ])
})

test('[LIM-4] output_reserve: set aside where the client names no cap, but never more than a minute of the account', async () => {
  const config = { output_reserve: 400 }
  const roomy = await limited({ tokens_per_minute: 1000 })
  assert.equal((await roomy.ask({}, { config })).exchange.get(reservation).output, 400)
  const narrow = await limited({ output_tokens_per_minute: 300 })
  assert.equal((await narrow.ask({}, { config })).exchange.get(reservation).output, 300)
})

test('[LIM-3] afterwards tokens and money are what was billed, and the place is free again', async () => {
  const { ask } = await limited({ tokens_per_day: 1000, concurrent_requests: 2, daily_spend_usd: 1e9 })
  await ask({ input: 100, cap: 50 })
  const [tokens, places, unbilled, spend] = dimensionsOf(await ask({ input: 0, cap: 0 }))
  assert.deepEqual([tokens![1], places![1], unbilled![1], spend![1]], [1000 - 15, 1, 1e8, 1e9 - 30_000])
})

test('[LIM-3] what is not billed gives back all but the request', async () => {
  const { ask } = await limited({ requests_per_day: 100, tokens_per_day: 1000, daily_spend_usd: 1e9 })
  const unbilled = [[usage, { usage: { input: 10, output: 5 }, cost: 30_000, billed: false }]] as const
  await ask({ input: 100, cap: 50 }, { slots: unbilled })
  const remaining = dimensionsOf(await ask({ input: 0, cap: 0 })).map(([, left]) => left)
  assert.deepEqual(remaining, [98, 1000, 1e8, 1e9])
})

test('[AUTH-4] organization and key are held at once, over all models and over this one', async () => {
  const one = { requests_per_day: 5 }
  const who = caller(
    { limits: one, model_limits: { 'test-model': one, other: one } },
    { limits: one, model_limits: { 'test-model': one } },
  )
  const run = await requests(who, await memoryStore())()
  assert.deepEqual(
    dimensionsOf(run).map(([id]) => id),
    ['o:rpd', 'k:key_ci:rpd', 'o:m:test-model:rpd', 'k:key_ci:m:test-model:rpd'],
  )
})

// ---- denials --------------------------------------------------------------------------------------------------------

const DENIED: [limits: Partial<Limits>, code: string, wait: [least: number, most: number], header: [string, string]][] =
  [
    [{ requests_per_minute: 1 }, 'requests_limit_exceeded', [59_000, 60_000], ['requests', '1']],
    [{ requests_per_day: 1 }, 'requests_limit_exceeded', [86_000_000, 87_000_000], ['requests-day', '1']],
    [{ tokens_per_minute: 25 }, 'tokens_limit_exceeded', [11_000, 13_000], ['tokens', '25']],
    [{ input_tokens_per_minute: 15 }, 'input_tokens_limit_exceeded', [19_000, 21_000], ['input-tokens', '15']],
    [{ output_tokens_per_minute: 8 }, 'output_tokens_limit_exceeded', [14_000, 16_000], ['output-tokens', '8']],
  ]
for (const [limits, code, [least, most], [dimension, limit]] of DENIED) {
  test(`[LIM-5] over ${Object.keys(limits)}: 429 ${code}, with the wait after which it is admitted`, async () => {
    const { ask, clock } = await limited(limits)
    // The bill of the first is its estimate, but for the output cap.
    assert.equal((await ask({ input: 10, cap: 5 })).status, 200)
    const { status, json, headers } = await ask({ input: 10, cap: 5 })
    assert.deepEqual([status, json.error.code, json.error.retryable], [429, code, true])
    assert.match(json.error.message, new RegExp(`raise ${Object.keys(limits)}`))
    assert.equal(headers.get(`x-ratelimit-limit-${dimension}`), limit)
    const told = [...headers.keys()].filter(name => name.startsWith('x-ratelimit')).sort()
    // A denial is told under the plain names as well, which show the day where no minute is limited.
    const names = new Set([dimension, dimension.replace('-day', '')])
    const own = ['limit', 'remaining', 'reset'].flatMap(part => [...names].map(name => `x-ratelimit-${part}-${name}`))
    assert.deepEqual(told, [...own, 'x-ratelimit-scope'].sort(), 'of the denied dimension alone')
    assert.equal(headers.get('x-ratelimit-scope'), 'org')
    assert.deepEqual(json.error.details.limit, Number(limit))
    assert.equal(json.error.details.dimension, dimension.replace('-day', '').replace('-', '_'))
    assert.equal(json.error.type, 'rate_limit_error')
    const wait = Number(headers.get('retry-after-ms'))
    assert.ok(least <= wait && wait <= most, String(wait))
    clock.advance(Math.ceil(wait))
    assert.equal((await ask({ input: 10, cap: 5 })).status, 200)
  })
}

test('[LIM-5] over concurrent_requests: 429 while the other runs, admitted when it has ended', async () => {
  const { ask } = await limited({ concurrent_requests: 1 })
  let go = () => {}
  const first = ask({}, { events: [x => void (go = x.hold()), text('slow')] })
  const second = await ask()
  assert.deepEqual([second.status, second.json.error.code], [429, 'concurrency_limit_exceeded'])
  go()
  assert.equal((await first).status, 200)
  assert.equal((await ask()).status, 200)
})

for (const [limit, hours] of [
  ['daily_spend_usd', 14],
  ['monthly_spend_usd', 9 * 24 + 14],
] as const) {
  test(`[LIM-8] [ERR-10] over ${limit}: 429 without a word on money, until the UTC day or month ends, and no client sleeps that long`, async () => {
    const { ask, clock } = await limited({ [limit]: 50_000 })
    assert.equal((await ask({ input: 10, cap: 5 })).status, 200)
    const { status, json, headers } = await ask({ input: 10, cap: 5 })
    assert.deepEqual([status, json.error.code], [429, 'rate_limit_exceeded'])
    const until = new Date(clock.now() + hours * 3_600_000).toISOString().slice(0, 16).replace('T', ' ')
    assert.ok(json.error.message.includes(`until ${until} UTC`), json.error.message)
    assert.doesNotMatch(json.error.message.replace(until, ''), /\d|usd|spend|\$|cost|bill/i)
    assert.deepEqual([json.error.details.dimension, json.error.details.retry], ['spend', 'later'])
    assert.equal(Number(headers.get('retry-after')), hours * 3600)
    assert.equal(headers.get('x-should-retry'), 'false')
    assert.equal(headers.get('x-ratelimit-limit-spend'), '0.00005')
    clock.advance(hours * 3_600_000 - 1)
    assert.equal((await ask({ input: 10, cap: 5 })).status, 429)
    clock.advance(1)
    assert.equal((await ask({ input: 10, cap: 5 })).status, 200)
  })
}

// All three were "A rate limit of this account is reached", retryable, with a wait of days: a client whose request
// could never fit waited for nothing, and one with most of its budget left was not told that a smaller request would
// pass.
test('[LIM-8] a spend limit says whether a smaller request passes, and is retryable only where waiting helps', async () => {
  const { ask } = await limited({ daily_spend_usd: 40_000, monthly_spend_usd: 1e9 })
  const refusal = async (asked: Asked) => {
    const { status, json, headers } = await ask(asked)
    assert.deepEqual([status, json.error.code], [429, 'rate_limit_exceeded'])
    assert.doesNotMatch(json.error.message.replace('2026-11-22 00:00', ''), /\d|usd|spend|\$|cost|bill/i)
    assert.equal(headers.get('x-ratelimit-limit-spend'), '0.00004')
    const { message, retryable } = json.error
    return { message, retryable, waits: headers.has('retry-after'), retried: headers.get('x-should-retry') }
  }
  const never = await refusal({ input: 10, cap: 10 })
  assert.match(never.message, /more than a limit of this account allows in its whole period.*[Ll]ower the output cap/i)
  assert.deepEqual([never.retryable, never.waits, never.retried], [false, false, 'false'])

  assert.equal((await ask({ input: 10, cap: 5 })).status, 200)
  const smaller = await refusal({ input: 10, cap: 5 })
  assert.match(smaller.message, /more than what is left of a limit.*lower the output cap/)
  assert.deepEqual([smaller.retryable, smaller.waits], [true, true])

  assert.equal((await ask({ input: 10, cap: 0 })).status, 200)
  const later = await refusal({ input: 10, cap: 5 })
  assert.match(later.message, /used up until 2026-11-22 00:00 UTC\. Retry then/)
  assert.deepEqual([later.retryable, later.waits], [true, true])
})

test('[LIM-2] a denial takes from no limit', async () => {
  const { ask } = await limited({
    requests_per_day: 100,
    tokens_per_day: 1000,
    concurrent_requests: 5,
    daily_spend_usd: 20_000,
  })
  const before = dimensionsOf(await ask({ input: 0, cap: 0 }, { slots: [[usage, undefined]] }))
  assert.equal((await ask({ input: 100, cap: 5 })).status, 429)
  const after = dimensionsOf(await ask({ input: 0, cap: 0 }))
  assert.deepEqual(after.slice(1), before.slice(1))
  assert.deepEqual([before[0]![1], after[0]![1]], [99, 98])
})

interface Never {
  asks: string
  limits: Partial<Limits>
  answer: [status: number, code: string]
  details?: object
  /** It says when to come again, though not with the same. */
  retryAfter?: true
  scope?: 'org'
  says: RegExp
}
const minute = (limit: number) => ({ dimension: 'token_budget_request', limit })
const NEVER: Never[] = [
  {
    asks: 'more than a minute of tokens',
    limits: { tokens_per_minute: 149 },
    answer: [400, 'request_exceeds_capacity'],
    details: minute(149),
    says: /150 tokens; one full minute of the budget is 149.*raise tokens_per_minute/,
  },
  {
    asks: 'more prompt than a minute',
    limits: { input_tokens_per_minute: 99 },
    answer: [400, 'request_exceeds_capacity'],
    details: minute(99),
    says: /raise input_tokens_per_minute/,
  },
  {
    asks: 'more output than a minute',
    limits: { output_tokens_per_minute: 49 },
    answer: [400, 'request_exceeds_capacity'],
    details: minute(49),
    says: /raise output_tokens_per_minute/,
  },
  {
    asks: 'more tokens than one request may need',
    limits: { max_request_tokens: 149 },
    answer: [429, 'request_token_budget_exceeded'],
    details: { dimension: 'token_budget', limit: 149 },
    retryAfter: true,
    scope: 'org',
    says: /max_request_tokens/,
  },
  {
    asks: 'more money than one request may cost',
    limits: { max_request_usd: 299_999 },
    answer: [429, 'request_spend_cap_exceeded'],
    details: { dimension: 'spend_request' },
    retryAfter: true,
    says: /0\.0003 USD; one request may cost 0\.000299/,
  },
  ...(['max_request_usd', 'daily_spend_usd', 'monthly_spend_usd'] as const).map(
    (limit): Never => ({
      asks: `any money, where ${limit} is none`,
      limits: { [limit]: 0 },
      answer: [429, 'request_spend_cap_exceeded'],
      details: { dimension: 'spend_request' },
      says: new RegExp(`the spend cap is 0\\.00: raise ${limit} of this organization\\.$`),
    }),
  ),
  {
    asks: 'a larger cap than the account has',
    limits: { max_output_tokens: 49 },
    answer: [400, 'invalid_value'],
    says: /max_tokens is 50; the account's maximum is 49/,
  },
]
for (const { asks, limits, answer, details, retryAfter = false, scope, says } of NEVER) {
  test(`[LIM-6] [LIM-7] a request that asks for ${asks} is told not to come again as it is: ${answer.join(' ')}`, async () => {
    const { ask } = await limited(limits)
    const { status, json, headers } = await ask({ input: 100, cap: 50 })
    assert.deepEqual([status, json.error.code], answer)
    assert.match(json.error.message, says)
    for (const [name, value] of Object.entries(details ?? {})) assert.equal(json.error.details[name], value)
    assert.deepEqual([headers.has('retry-after'), headers.get('x-should-retry')], [retryAfter, 'false'])
    assert.equal(json.error.retryable, false)
    if (scope) assert.equal(headers.get('x-ratelimit-scope'), scope)
    assert.notEqual((await ask({ input: 0, cap: 0 })).json?.error?.code, answer[1])
  })
}

// Minutes were 400; a day told its client to come back tomorrow, for ever.
for (const [limit, needs, setting] of [
  [{ tokens_per_day: 149 }, 150, 'tokens_per_day'],
  [{ input_tokens_per_day: 99 }, 100, 'input_tokens_per_day'],
  [{ output_tokens_per_day: 49 }, 50, 'output_tokens_per_day'],
  [{ requests_per_day: 0 }, 1, 'requests_per_day'],
  [{ requests_per_minute: 0 }, 1, 'requests_per_minute'],
  [{ concurrent_requests: 0 }, 1, 'concurrent_requests'],
] as [Partial<Limits>, number, string][]) {
  test(`[ERR-5] [LIM-5] a request that needs more than ${setting} is refused for good`, async () => {
    const { ask } = await limited({ ...limit, daily_spend_usd: 1e9 })
    const { status, json, headers } = await ask({ input: 100, cap: 50 })
    assert.deepEqual([status, json.error.retryable], [429, false])
    assert.equal(headers.get('x-should-retry'), 'false')
    assert.deepEqual([headers.has('retry-after'), headers.has('retry-after-ms')], [false, false])
    const { details, message } = json.error
    assert.deepEqual(
      [details.limit, details.retry_after_seconds, details.retry],
      [limit[setting as never], undefined, undefined],
    )
    assert.match(message, new RegExp(`needs: ${needs}\\. Waiting does not help\\..*aise ${setting}\\.$`))
    assert.equal(headers.get('x-ratelimit-scope'), 'org')
  })
}

test('[ERR-5] of several limits in the way the one that can never hold the request decides', async () => {
  const { ask } = await limited({ requests_per_day: 1, tokens_per_day: 100 })
  assert.equal((await ask({ input: 10, cap: 5 })).status, 200)
  const { json } = await ask({ input: 100, cap: 5 })
  assert.deepEqual([json.error.code, json.error.retryable], ['tokens_limit_exceeded', false])
})

test('[LIM-8] [LIM-4] a used up unbilled_usd_per_day waits, however little it holds: a reservation always fits', async () => {
  const { ask, clock } = await limited({ daily_spend_usd: 1e9, unbilled_usd_per_day: 0 })
  const left = [[consumption, { usage: { input: 10, cached: 0, output: 5 }, unbilled: 30_000 }]] as const
  assert.equal((await ask({ input: 10, cap: 5 }, { slots: left as never })).status, 200)
  const { json, headers } = await ask({ input: 10, cap: 5 })
  assert.deepEqual([json.error.code, json.error.retryable], ['rate_limit_exceeded', true])
  assert.deepEqual([json.error.details.dimension, json.error.details.retry], ['unbilled', 'later'])
  assert.match(json.error.message, /used up until 2026-11-\d\d \d\d:\d\d UTC/)
  clock.advance(Number(headers.get('retry-after-ms')) + 1)
  assert.equal((await ask({ input: 10, cap: 5 })).status, 200)
})

// The words were those of the organization's own limit, whose other models work at once.
test('[ERR-9] a limit of one model names the model, and a limit of a key the key', async () => {
  const one = { requests_per_day: 1 }
  for (const [who, owner] of [
    [caller({ model_limits: { 'test-model': one } }), 'this organization for test-model'],
    [caller({}, { model_limits: { 'test-model': one } }), 'this key for test-model'],
    [caller({}, { limits: one }), 'this key'],
  ] as const) {
    const ask = requests(who, await memoryStore())
    await ask()
    assert.match((await ask()).json.error.message, new RegExp(`per day of ${owner} is reached:`))
  }
})

test('operators are told which limit it was, with its owner, amount and setting; amounts of money only they', async () => {
  const usd = (daily_spend_usd: number) => ({ limits: { daily_spend_usd } })
  for (const [who, told] of [
    [caller({ limits: { requests_per_minute: 1 } }), 'the organization: 1 requests per minute (requests_per_minute)'],
    [caller({}, { limits: { requests_per_day: 1 } }), 'the key: 1 requests per day (requests_per_day)'],
    [
      caller({}, { model_limits: { 'test-model': { requests_per_day: 1 } } }),
      'the key for test-model: 1 requests per day (requests_per_day)',
    ],
    [
      caller({}, { user_limits: { requests_per_minute: 1 } }),
      'each user of the key: 1 requests per minute (user_limits.requests_per_minute)',
    ],
    [caller({}, usd(40_000)), 'the key: 0.00004 USD (daily_spend_usd)'],
    [caller({}, usd(0)), 'the key: 0.00 USD (daily_spend_usd)'],
    [caller({ limits: { max_request_usd: 1000 } }), '0.000001 USD in one request (max_request_usd)'],
    [caller({ limits: { max_request_tokens: 5 } }), '5 tokens in one request (max_request_tokens)'],
    [caller({ limits: { tokens_per_minute: 5 } }), '5 tokens in one full minute (tokens_per_minute)'],
  ] as const) {
    const ask = requests(who, await memoryStore())
    await ask({ input: 10, cap: 5 })
    const { exchange, json } = await ask({ input: 10, cap: 5 })
    assert.equal(exchange.error?.forOperators, told)
    // LIM-8: a client is not told what a limit of spend is.
    if (told.endsWith('0.00004 USD (daily_spend_usd)')) assert.doesNotMatch(json.error.message, /USD/)
  }
})

test('[LIM-7] [ERR-9] a spend cap of 0.00 of a key is told as that of the key', async () => {
  const who = caller({ limits: { monthly_spend_usd: 1e9 } }, { limits: { monthly_spend_usd: 0 } })
  const { json } = await requests(who, await memoryStore())({ input: 10, cap: 5 })
  assert.match(json.error.message, /: raise monthly_spend_usd of this key\.$/)
})

test('[BILL-2] an organization that is free is held to no money', async () => {
  const who = caller({ billing: 'free', limits: { daily_spend_usd: 0, max_request_usd: 0 } })
  assert.equal((await requests(who, await memoryStore())()).status, 200)
})

// ---- the platform ---------------------------------------------------------------------------------------------------

test('[LIM-10] a full platform: 429 capacity_exceeded, and no limit is touched', async () => {
  const clock = new ManualClock()
  const ask = requests(caller({ limits: { requests_per_day: 100 } }), await memoryStore(clock), clock, {
    max_concurrent_requests: 1,
  })
  let go = () => {}
  const first = ask({}, { events: [x => void (go = x.hold()), text('slow')] })
  const second = await ask()
  assert.deepEqual([second.status, second.json.error.code], [429, 'capacity_exceeded'])
  assert.equal(
    [...second.headers.keys()].some(name => name.startsWith('x-ratelimit')),
    false,
  )
  assert.equal(second.exchange.peek(reservation), undefined)
  go()
  await first
  assert.deepEqual(dimensionsOf(await ask()), [['o:rpd', 98]])
})

test('[LIM-10] above scale_limits_above rates and places shrink, money does not', async () => {
  const who = caller({ limits: { requests_per_day: 100, daily_spend_usd: 1e9 } })
  const ask = requests(who, await memoryStore(), undefined, { max_concurrent_requests: 2, scale_limits_above: 0.1 })
  let go = () => {}
  const first = ask({}, { events: [x => void (go = x.hold()), text('slow')] })
  const { cells, compressed } = (await ask()).exchange.get(reservation)
  assert.equal(compressed, true)
  assert.deepEqual(
    cells.filter(isLimit).map(cell => cell.capacity),
    [60, 1e8, 1e9],
  )
  go()
  await first
})

/** A caller's request while the platform runs another one, and its limits are reduced to 0.6. */
async function underLoad(limits: Partial<Limits>, asked: Asked) {
  const ask = requests(caller({ limits }), await memoryStore(), undefined, {
    max_concurrent_requests: 2,
    scale_limits_above: 0.1,
  })
  let go = () => {}
  const first = ask({ input: 0, cap: 0 }, { events: [x => void (go = x.hold()), text('slow')] })
  const run = await ask(asked)
  go()
  await first
  return run
}

// Nothing was wrong with the setting that the organization was told to raise, and nothing of it was used.
test('[LIM-10] [ERR-5] a limit that only platform load makes too small names the platform, and can be retried soon', async () => {
  for (const [limits, asked] of [
    [{ tokens_per_day: 1000 }, { input: 900, cap: 50 }],
    [{ output_tokens_per_minute: 1000 }, { input: 10, cap: 950 }],
  ] as const) {
    const { status, json, headers } = await underLoad(limits, asked)
    assert.deepEqual([status, json.error.retryable, headers.has('x-should-retry')], [429, true, false])
    assert.ok(Number(headers.get('retry-after-ms')) <= 60_000)
    assert.equal(headers.get('x-ratelimit-scope'), 'platform')
    assert.match(
      json.error.message,
      /^The platform is under load and allows this organization 600 .* for now, in place/,
    )
    assert.doesNotMatch(json.error.message, /reached|raise/)
  }
  const never = await underLoad({ tokens_per_day: 1000 }, { input: 1000, cap: 50 })
  assert.deepEqual([never.json.error.retryable, never.headers.get('x-ratelimit-scope')], [false, 'org'])
  assert.equal(never.json.error.details.limit, 1000)
})

// A request without any limit had `x-ratelimit-scope: platform` under load, and no other header of limits.
test('[LIM-9] [LIM-10] where load reduces nothing, nothing says so', async () => {
  for (const limits of [{}, { daily_spend_usd: 1e9 }, { requests_per_day: 0 }, { concurrent_requests: 1 }]) {
    const run = await underLoad(limits, { input: 0, cap: 0 })
    assert.notEqual(run.exchange.peek(reservation)?.compressed, true)
    assert.notEqual(run.headers.get('x-ratelimit-scope'), 'platform')
  }
})

// ---- the ledger -----------------------------------------------------------------------------------------------------

test('[BILL-4] the ledger row is open before the request goes on', async () => {
  const store = await memoryStore()
  const opened: unknown[] = []
  const intent = store.ledger.intent.bind(store.ledger)
  store.ledger.intent = row => {
    opened.push(row)
    return intent(row)
  }
  let before = 0
  const clock = new ManualClock(1_780_000_000_000)
  await requests(caller(), store, clock)({ input: 10 }, { events: [() => void (before = opened.length), text('hi')] })
  assert.equal(before, 1)
  assert.deepEqual(opened, [
    {
      request_id: 'req_1',
      time: 1_780_000_000_000,
      organization: 'acme',
      key_id: 'key_ci',
      surface: 'chat',
      model: 'test-model',
      price_book: '2026-11',
      billing: 'standard',
      input_tokens: 10,
    },
  ])
})

// ---- failures -------------------------------------------------------------------------------------------------------

for (const [how, out] of Object.entries(OUT)) {
  test(`a store that ${how}: 503 provider_unavailable, nothing goes on, and the places on the platform are given back`, async () => {
    const store = await memoryStore()
    const clock = new ManualClock()
    let dispatched = false
    const ask = requests(caller({ limits: { requests_per_day: 5 } }), out(store), clock, { max_concurrent_requests: 1 })
    for (let i = 0; i < 3; i++) {
      const { status, json } = await ask({}, { events: [() => void (dispatched = true)] })
      assert.deepEqual([status, json.error.code], [503, 'provider_unavailable'])
    }
    assert.equal(dispatched, false)
  })
}

test('a ledger that cannot take the row: 503, and what was reserved is given back', async () => {
  const clock = new ManualClock()
  const store = await memoryStore(clock)
  const who = caller({ limits: { tokens_per_day: 1000, concurrent_requests: 1 } })
  let asked = 0
  const broken = heldStore(store, ask => (asked++ === 0 ? ask() : Promise.reject(new Error('disk full'))))
  const unbilled = { slots: [[usage, undefined]] } as const
  assert.equal((await requests(who, broken, clock)({ cap: 5 }, unbilled)).status, 500)
  assert.deepEqual(dimensionsOf(await requests(who, store, clock)({ input: 0, cap: 0 })), [
    ['o:tpd', 1000],
    ['o:conc', 0],
  ])
})

test('[STR-4] a client that leaves while the store is asked: all is given back, and no row is opened', async () => {
  const clock = new ManualClock()
  const store = await memoryStore(clock)
  const client = new MemoryIncoming()
  const who = caller({ limits: { requests_per_day: 5, tokens_per_day: 1000, concurrent_requests: 1 } })
  let questions = 0
  const leaving = heldStore(store, async ask => {
    questions++
    client.abort()
    await new Promise(setImmediate)
    return ask()
  })
  const run = await requests(who, leaving, clock)({ cap: 5 }, { request: client, slots: [[usage, undefined]] })
  assert.equal(run.settlement.outcome, 'client_gone')
  await new Promise(resolve => setImmediate(() => setImmediate(resolve)))
  assert.equal(questions, 1, 'the ledger was not asked')
  assert.deepEqual(dimensionsOf(await requests(who, store, clock)({ input: 0, cap: 0 })).slice(1), [
    ['o:tpd', 1000],
    ['o:conc', 0],
  ])
})

test('a store that answers late decides as one that answers at once', async () => {
  const ask = requests(caller({ limits: { requests_per_day: 1 } }), lateStore(await memoryStore()))
  assert.equal((await ask()).status, 200)
  assert.equal((await ask()).json.error.code, 'requests_limit_exceeded')
})

// 2.8 million tokens of fetched text counted as 1,509, and searches counted their first prompt alone.
test('[LIM-4] what was fetched and what further calls sent counts in limits of tokens; bill and row have the prompt', async () => {
  const { ask } = await limited({ input_tokens_per_minute: 10_000, tokens_per_day: 20_000 })
  const fetched = [plan, { search: null, keepsFirstCall: false, input: 3000 }] as const
  const billed = { input: 10, cached: 0, output: 5 }
  const run = await ask({}, { slots: [fetched, [consumption, { usage: billed, sent: 7000, unbilled: 0 }]] })
  const { input, cells, states } = run.exchange.get(reservation)
  assert.equal(input, 3000)
  assert.equal(states[cells.findIndex(({ dimension }) => dimension === 'input_tokens')]!.remaining, 7000)
  assert.deepEqual(
    dimensionsOf(await ask()),
    [
      ['o:tpd', 20_000 - 7005 - 1000],
      ['o:itpm', 2990],
    ],
    'settled with all that was sent',
  )
  const over = await ask({}, { slots: [[plan, { search: null, keepsFirstCall: false, input: 3000 }]] })
  assert.deepEqual([over.status, over.json.error.code], [429, 'input_tokens_limit_exceeded'])
})

test('[LIM-4] what a compaction takes is reserved: its summary, and the prompt of what follows', async () => {
  const { ask } = await limited({ input_tokens_per_minute: 10_000, output_tokens_per_minute: 10_000 })
  const further = { input: 2000, output: 500 }
  const compaction = {
    wish: { only: false, keeps: 'nothing', path: '' },
    cap: 500,
    added: 0,
    asked: 0,
    further,
  } as const
  const planned = { search: null, keepsFirstCall: false, input: 3000 }
  const bare = (await ask({ cap: 100 }, { slots: [[plan, planned]] })).exchange.get(reservation)
  const whole = (await ask({ cap: 100 }, { slots: [[plan, { ...planned, compaction }]] })).exchange.get(reservation)
  assert.deepEqual([whole.input - bare.input, whole.output - bare.output], [2000, 500])
  const { price } = modelOf()
  assert.equal(whole.cost - bare.cost, exposure(2000, 500, price!))
  const over = { ...compaction, further: { input: 8000, output: 500 } }
  const refused = await ask({}, { slots: [[plan, { ...planned, compaction: over }]] })
  assert.equal(refused.json.error.code, 'request_exceeds_capacity')
})

test('[LIM-4] where the summary is the output, it is what is reserved; else an answer gets what it leaves of a minute', async () => {
  const { ask } = await limited({ output_tokens_per_minute: 4000 })
  const wish = { only: true, keeps: 'user', path: '' } as const
  const compaction = { wish, cap: 3000, added: 0, asked: 0, further: { input: 0, output: 0 } }
  const planned = { search: null, keepsFirstCall: false, input: 10 }
  const outputOf = async (more: object, cap?: number) =>
    (await ask({ cap }, { slots: [[plan, { ...planned, compaction: { ...compaction, ...more } }]] })).exchange.get(
      reservation,
    ).output
  assert.equal(await outputOf({}, 100), 3000)
  const answer = await limited({ output_tokens_per_minute: 900 })
  const both = { ...compaction, wish: { ...wish, only: false }, further: { input: 0, output: 400 } }
  const { exchange } = await answer.ask({}, { slots: [[plan, { ...planned, compaction: both }]] })
  assert.equal(exchange.get(reservation).output, 900)
})

test('[LIM-8] a cap that is not named leaves room for the compaction in what one request may take', async () => {
  const further = { input: 1000, output: 500 }
  const wish = { only: false, keeps: 'nothing', path: '' } as const
  const compaction = { wish, cap: 500, added: 0, asked: 0, further }
  const capOf = async (limits: Partial<Limits>, more: object) => {
    const ask = requests(caller({ limits }), await memoryStore())
    const planned = { search: null, keepsFirstCall: false, input: 100, ...more }
    const run = await ask(
      {},
      {
        slots: [
          [model, modelOf({ context_window: 100_000 })],
          [plan, planned],
        ],
      },
    )
    return run.exchange.get(reservation).cap!
  }
  // A token of output costs as much as four of input.
  for (const [limits, less] of [
    [{ max_request_tokens: 8000 }, 1500],
    [{ max_request_usd: 40_000_000 }, 750],
    [{ daily_spend_usd: 160_000_000 }, 750],
  ] as const)
    assert.equal((await capOf(limits, {})) - (await capOf(limits, { compaction })), less, Object.keys(limits)[0])
})
