import assert from 'node:assert/strict'
import { beside } from '../kit/clocks.ts'
import { DIALECTS } from '../kit/gateways.ts'
import { type Reply, SURFACES } from '../kit/reply.ts'
import { type Account, type Row, section } from '../kit/row.ts'
import type { Ask, World } from '../kit/world.ts'
import { MUCH, refusedAs, wait } from './errors.ts'

const MINUTE = 60
/** A prompt of some 110 tokens. */
const LONG = 'word '.repeat(100)

/** A duration such as 250ms or 56s, in seconds. */
const duration = (text: string | null): number => {
  const [, amount, unit] = /^(\d+(?:\.\d+)?)(ms|s)$/.exec(text ?? '') ?? []
  assert.ok(amount !== undefined, `'${text}' is no duration`)
  return Number(amount) / (unit === 'ms' ? 1000 : 1)
}

/** A limit, a request that fits into it once and not twice, and the headers of its denial. */
const DENIED: Record<string, { limit: number; ask: Ask; code: string; header: string; window: 'minute' | 'day' }> = {
  requests_per_minute: { limit: 1, ask: {}, code: 'requests', header: 'requests', window: 'minute' },
  requests_per_day: { limit: 1, ask: {}, code: 'requests', header: 'requests', window: 'day' },
  tokens_per_minute: { limit: 170, ask: { say: MUCH, cap: 110 }, code: 'tokens', header: 'tokens', window: 'minute' },
  tokens_per_day: { limit: 170, ask: { say: MUCH, cap: 110 }, code: 'tokens', header: 'tokens', window: 'day' },
  input_tokens_per_minute: {
    limit: 170,
    ask: { say: LONG },
    code: 'input_tokens',
    header: 'input-tokens',
    window: 'minute',
  },
  input_tokens_per_day: { limit: 170, ask: { say: LONG }, code: 'input_tokens', header: 'input-tokens', window: 'day' },
  output_tokens_per_minute: {
    limit: 170,
    ask: { say: MUCH, cap: 110 },
    code: 'output_tokens',
    header: 'output-tokens',
    window: 'minute',
  },
  output_tokens_per_day: {
    limit: 170,
    ask: { say: MUCH, cap: 110 },
    code: 'output_tokens',
    header: 'output-tokens',
    window: 'day',
  },
}
/** An account of each limit and surface, because a denial leaves nothing for the next. */
const accountsOf = (names: readonly string[]): Record<string, Account> =>
  Object.fromEntries(
    names.flatMap(name =>
      SURFACES.flatMap(surface =>
        [false, true].map(stream => [`${name}-${surface}-${stream}`, { limits: { [name]: DENIED[name]!.limit } }]),
      ),
    ),
  )

/** The first request passes and the second is denied, on every surface. */
const denies = (w: World, name: string, look: (reply: Reply) => void): Promise<string> =>
  w.surfaces(async (surface, stream) => {
    const { ask, code } = DENIED[name]!
    const as = `${name}-${surface}-${stream}`
    await w.well(surface, { ...ask, as, stream })
    const reply = await w.ask(surface, { ...ask, as, stream })
    assert.deepEqual([reply.status, reply.code], [429, `${code}_limit_exceeded`], String(reply))
    look(reply)
  })

const rate = (names: readonly string[], says: string): Row => ({
  at: 'dimensions',
  says,
  accounts: accountsOf(names),
  async check(w) {
    for (const name of names)
      await denies(w, name, ({ error }) => assert.equal(error.details.dimension, DENIED[name]!.code))
    return `${names.join(', ')}: the second request is denied on three surfaces`
  },
})

const plan = (at: string, name: string, says: string): Row => ({
  at,
  says,
  account: { plan: name },
  async check(w) {
    await w.well('chat')
    const [entry] = await w.models()
    return JSON.stringify(entry!.limits ?? 'no limits')
  },
})

type Tier = [
  title: string,
  name: string,
  usd: number | null,
  requests: number,
  tokens: number,
  input: number,
  output: number,
  at_once: number,
]
const TIERS: Tier[] = [
  ['Free', 'free', 0, 5, 20_000, 20_000, 4_000, 1],
  ['Tier 1', 'tier1', 100, 60, 100_000, 100_000, 30_000, 5],
  ['Tier 2', 'tier2', 500, 120, 200_000, 200_000, 60_000, 10],
  ['Tier 3', 'tier3', 1000, 240, 300_000, 300_000, 120_000, 20],
  ['Tier 4', 'tier4', 5000, 500, 400_000, 400_000, 250_000, 50],
  ['Tier 5', 'tier5', null, 1000, 400_000, 400_000, 400_000, 100],
]
const tiers = TIERS.map(
  ([title, name, usd, requests, tokens, input, output, atOnce]): Row => ({
    at: `table: ${title}`,
    says: `${title} has its limits`,
    // What costs nothing passes a cap of nothing.
    account: { plan: name, ...(name === 'free' && { billing: 'free' as const }) },
    async check(w) {
      const { limits } = (await w.models()).find(({ id }) => id === 'eb1-preview')!
      const { requests_per_minute, tokens_per_minute, input_tokens_per_minute, output_tokens_per_minute } = limits
      assert.deepEqual(
        [
          requests_per_minute,
          tokens_per_minute,
          input_tokens_per_minute,
          output_tokens_per_minute,
          limits.concurrent_requests,
        ],
        [requests, tokens, input, output, atOnce],
      )
      const reply = await w.well('chat')
      const cap = reply.header('x-ratelimit-limit-spend')
      assert.equal(cap === null ? null : Number(cap), usd)
      return JSON.stringify(limits)
    },
  }),
)

const ALL: Account = {
  limits: {
    requests_per_minute: 600,
    tokens_per_minute: 60_000,
    input_tokens_per_minute: 40_000,
    output_tokens_per_minute: 30_000,
    concurrent_requests: 9,
    monthly_spend_usd: 50,
  },
}
const header = (at: string, says: string, names: readonly string[], figures: readonly string[]): Row => ({
  at: `table: ${at}`,
  says,
  account: ALL,
  async check(w) {
    const seen = await w.surfaces(async (surface, stream) => {
      const reply = await w.well(surface, { stream, cap: 100 })
      const values = names.map(name => reply.header(`x-ratelimit-${name}`))
      assert.ok(
        values.every(value => value !== null),
        `${names}: ${values}`,
      )
      assert.equal(Number(values[0]), Number(figures[0]))
      assert.ok(Number(values[1]) <= Number(values[0]), `${values}`)
      if (values.length > 2) assert.ok(duration(values[2]!) <= MINUTE)
      await w.pass(MINUTE)
    })
    return `${names.join(', ')}: ${seen}`
  },
})

export const dimensions = section('Dimensions', 'dimensions', [
  {
    at: 'dimensions',
    says: 'every limit must allow a request',
    account: { limits: { requests_per_minute: 100, tokens_per_minute: 100_000, input_tokens_per_minute: 50 } },
    async check(w) {
      assert.equal((await w.ask('chat', { say: LONG })).status, 400)
      await w.well('chat')
      return 'one that does not is enough'
    },
  },
  rate(['requests_per_minute', 'requests_per_day'], 'requests per minute or day'),
  rate(['tokens_per_minute', 'tokens_per_day'], 'tokens per minute or day'),
  rate(['input_tokens_per_minute', 'input_tokens_per_day'], 'input tokens per minute or day'),
  rate(['output_tokens_per_minute', 'output_tokens_per_day'], 'output tokens per minute or day'),
  {
    at: 'dimensions',
    says: 'concurrent requests',
    account: { limits: { concurrent_requests: 1 } },
    async check(w) {
      await beside(w, {}, 1, async () => {
        for (const surface of SURFACES) assert.equal((await w.ask(surface)).code, 'concurrency_limit_exceeded')
      })
      return 'a second one is denied while the first runs'
    },
  },
  {
    at: 'dimensions',
    says: 'the size of prompt and output',
    account: { limits: { max_input_tokens: 50, max_output_tokens: 60 } },
    async check(w) {
      for (const surface of SURFACES) {
        assert.equal((await w.ask(surface, { say: LONG, cap: 20 })).code, 'context_length_exceeded')
        const reply = await w.ask(surface, { cap: 61 })
        assert.equal(reply.status, 400)
        assert.match(reply.error.param, /max_/)
        await w.well(surface, { cap: 60 })
      }
      return '400 for either, on three surfaces'
    },
  },
  {
    at: 'dimensions',
    says: 'spend per day or month',
    accounts: { day: { limits: { daily_spend_usd: 0.002 } }, month: { limits: { monthly_spend_usd: 0.002 } } },
    async check(w) {
      for (const as of ['day', 'month']) {
        await w.well('chat', { as, say: MUCH, cap: 110 })
        for (const surface of SURFACES)
          assert.equal((await w.ask(surface, { as, say: MUCH, cap: 110 })).code, 'rate_limit_exceeded')
      }
      return 'the second request is denied'
    },
  },
  {
    at: 'dimensions',
    says: 'the exposure of one request',
    accounts: { usd: { limits: { max_request_usd: 0.001 } }, tokens: { limits: { max_request_tokens: 100 } } },
    async check(w) {
      for (const surface of SURFACES) {
        assert.equal((await w.ask(surface, { as: 'usd', cap: 110 })).code, 'request_spend_cap_exceeded')
        assert.equal((await w.ask(surface, { as: 'tokens', cap: 110 })).code, 'request_token_budget_exceeded')
        for (const as of ['usd', 'tokens']) await w.well(surface, { as, cap: 50 })
      }
      return 'in USD and in tokens'
    },
  },
  {
    at: 'dimensions',
    says: 'access to models',
    account: { models: ['eb1-fast-preview'] },
    async check(w) {
      for (const surface of SURFACES) assert.equal((await w.ask(surface)).code, 'model_not_available')
      return '403 model_not_available'
    },
  },
  {
    at: 'dimensions',
    says: 'access to streaming',
    accounts: { plan: { streaming: false }, key: { key: { streaming: false } } },
    async check(w) {
      for (const as of ['plan', 'key']) {
        for (const surface of SURFACES) {
          const reply = await w.ask(surface, { as, stream: true })
          assert.deepEqual([reply.status, reply.error.param], [403, 'stream'])
          if (as === 'key') assert.doesNotMatch(reply.error.message, /plan/)
          await w.well(surface, { as })
        }
      }
      return '403; the message says whose right it is'
    },
  },
  {
    at: 'dimensions',
    says: 'buckets of input and output are apart',
    account: { limits: { input_tokens_per_minute: 170, output_tokens_per_minute: 1000 } },
    async check(w) {
      await w.well('chat', { say: LONG, cap: 100 })
      assert.equal((await w.ask('chat', { say: LONG, cap: 100 })).code, 'input_tokens_limit_exceeded')
      const reply = await w.well('chat', { cap: 100 })
      assert.ok(Number(reply.header('x-ratelimit-remaining-output-tokens')) > 700)
      return 'input is used up, output is not'
    },
  },
])

export const plans = section('Plans and tiers', 'plans', [
  plan('table: Beta', 'beta', 'standard access of the paid beta'),
  plan('table: Benchmark', 'benchmark', 'evaluation with a higher throughput'),
  plan('table: Custom', 'custom', 'contracted capacity'),
  ...tiers,
  {
    at: 'table: Advancement basis',
    says: 'settled billing moves an organization to the next tier',
    later: 'console',
    account: { plan: 'tier1' },
    async check(w) {
      // Fifty words cost over fifty dollars, which is the basis of tier 2.
      await w.well('chat', { model: 'dear', say: '[[sim: tokens 60]]', cap: 80 })
      const [entry] = await w.models()
      assert.equal(entry!.limits.requests_per_minute, 120)
      return 'tier 2 after fifty dollars'
    },
  },
])

const family = (name: string) => [`limit-${name}`, `remaining-${name}`, `reset-${name}`]

export const headers = section('Response headers', 'headers', [
  header('requests', 'limit, remaining and reset of requests per minute', family('requests'), ['600']),
  header('tokens', 'limit, remaining and reset of tokens per minute', family('tokens'), ['60000']),
  header('input tokens', 'limit, remaining and reset of input tokens per minute', family('input-tokens'), ['40000']),
  header('output tokens', 'limit, remaining and reset of output tokens per minute', family('output-tokens'), ['30000']),
  header('concurrency', 'limit of concurrent requests and free slots', family('concurrency').slice(0, 2), ['9']),
  header('spend', 'the cap in USD and what remains of it', family('spend').slice(0, 2), ['50']),
  {
    at: 'table: per minute',
    says: 'a day’s limit has headers of its own, and those of the minute show the minute',
    account: { limits: { requests_per_minute: 100, requests_per_day: 5 } },
    async check(w) {
      const reply = await w.well('chat')
      const of = (name: string) => reply.header(`x-ratelimit-${name}`)
      assert.equal(of('limit-requests'), '100')
      assert.ok(duration(of('reset-requests')) <= MINUTE)
      assert.deepEqual([of('limit-requests-day'), of('remaining-requests-day')], ['5', '4'])
      return '100 a minute, 5 a day'
    },
  },
  {
    at: 'table: spend',
    says: 'no cap, no headers; a remainder with at most six decimals',
    accounts: { free: { limits: { requests_per_minute: 10 } }, capped: { limits: { monthly_spend_usd: 1 } } },
    async check(w) {
      assert.equal((await w.well('chat', { as: 'free' })).header('x-ratelimit-limit-spend'), null)
      const left = (await w.well('chat', { as: 'capped', cap: 33 })).header('x-ratelimit-remaining-spend')
      assert.match(left ?? '', /^0\.\d{1,6}$/)
      return left!
    },
  },
  {
    at: 'table: spend',
    says: 'a whole reply shows what is left after it',
    account: { limits: { monthly_spend_usd: 1, output_tokens_per_minute: 10_000 } },
    async check(w) {
      const reply = await w.well('chat', { say: '[[sim: text "one two"]]', cap: 5000 })
      const left = Number(reply.header('x-ratelimit-remaining-spend'))
      assert.ok(left > 0.99, `${left}`)
      assert.equal(reply.header('x-ratelimit-remaining-output-tokens'), '9998')
      return `${left} USD, 9998 tokens`
    },
  },
  {
    at: 'table: scope',
    says: 'org when the limits of the account bind',
    account: ALL,
    check: w =>
      w.surfaces(async (surface, stream) => {
        assert.equal((await w.well(surface, { stream, cap: 50 })).header('x-ratelimit-scope'), 'org')
      }),
  },
  {
    at: 'table: scope',
    says: 'platform when its load compresses them',
    gateway: 'loaded',
    account: { limits: { requests_per_minute: 100 } },
    async check(w) {
      await beside(w, { as: 'sk-specification' }, 3, async () => {
        const reply = await w.well('chat')
        assert.equal(reply.header('x-ratelimit-scope'), 'platform')
        assert.ok(Number(reply.header('x-ratelimit-limit-requests')) < 100)
      })
      return 'a limit of 100 is smaller beside three streams of five'
    },
  },
  {
    at: 'table: retry-after-ms, x-should-retry',
    says: 'milliseconds with Retry-After on what may be retried; false on what cannot succeed',
    account: { limits: { requests_per_minute: 1 } },
    async check(w) {
      await w.well('chat')
      refusedAs(await w.ask('chat'), { status: 429, code: 'requests_limit_exceeded', retry: 'wait' })
      refusedAs(await w.ask('chat', { as: 'sk-specification', model: 'none' }), {
        status: 404,
        code: 'model_not_found',
        retry: 'final',
      })
      return 'a 429 and a 404'
    },
  },
])

export const limits = section('Limits', 'limits', [
  {
    at: 'rule 1',
    says: 'reset values are durations; a dimension without a limit has no headers',
    account: { limits: { requests_per_minute: 100 } },
    async check(w) {
      const reply = await w.well('chat')
      assert.deepEqual(reply.rates, [...family('requests'), 'scope'].map(name => `x-ratelimit-${name}`).sort())
      return reply.header('x-ratelimit-reset-requests')!
    },
  },
  {
    at: 'rule 1',
    says: 'a request without any limit has no x-ratelimit header',
    check: w =>
      w.surfaces(async (surface, stream) => {
        assert.deepEqual((await w.well(surface, { stream })).rates, [])
        assert.deepEqual((await w.ask(surface, { stream, model: 'none' })).rates, [])
      }),
  },
  {
    at: 'rule 1',
    says: 'nor has it one under the load of the platform',
    gateway: 'loaded',
    async check(w) {
      await beside(w, {}, 3, async () => {
        for (const surface of SURFACES) assert.deepEqual((await w.well(surface)).rates, [])
      })
      return 'none beside three streams of five'
    },
  },
  {
    at: 'rule 2',
    says: 'a denial has the headers of its dimension and the scope: requests, tokens, input, output',
    accounts: accountsOf(Object.keys(DENIED)),
    async check(w) {
      for (const [name, { header, window }] of Object.entries(DENIED)) {
        await denies(w, name, reply => {
          assert.equal(reply.header('x-ratelimit-scope'), 'org', name)
          const of = window === 'day' ? `${header}-day` : header
          assert.ok(reply.header(`x-ratelimit-limit-${of}`), `${name}: ${reply.rates}`)
          if (header !== 'tokens') assert.equal(reply.header('x-ratelimit-limit-tokens'), null)
        })
      }
      return 'eight limits, three surfaces, buffered and streamed'
    },
  },
  {
    at: 'rule 2',
    says: 'a denial of concurrency has -concurrency, and one of a spend cap x-ratelimit-limit-spend',
    accounts: { conc: { limits: { concurrent_requests: 0 } }, spend: { limits: { daily_spend_usd: 0.000001 } } },
    async check(w) {
      for (const surface of SURFACES) {
        const conc = await w.ask(surface, { as: 'conc' })
        assert.deepEqual([conc.header('x-ratelimit-limit-concurrency'), conc.header('x-ratelimit-scope')], ['0', 'org'])
        const spend = await w.ask(surface, { as: 'spend' })
        assert.ok(spend.header('x-ratelimit-limit-spend'), String(spend))
        assert.equal(spend.header('x-ratelimit-scope'), 'org')
      }
      return 'three surfaces'
    },
  },
  {
    at: 'rule 3',
    says: 'what may be retried has Retry-After, and all waits are one value',
    account: { limits: { requests_per_minute: 1 } },
    async check(w) {
      await w.well('chat')
      for (const ask of [
        {},
        { as: 'sk-specification', say: '[[sim: status 503]]' },
        { as: 'sk-specification', say: '[[sim: status 504]]' },
      ]) {
        for (const surface of SURFACES) {
          const reply = await w.ask(surface, ask)
          assert.equal(Number(reply.header('retry-after')), Math.max(1, Math.ceil(wait(reply))))
          assert.equal(reply.error.details.retry_after_seconds, wait(reply))
        }
      }
      return 'of a 429, a 503 and a 504'
    },
  },
  {
    at: 'rule 3',
    says: 'a wait is lengthened by up to a quarter, at most 30 s, and never shortened; up to 60 s stays up to 60 s',
    accounts: {
      minute: { limits: { requests_per_minute: 6 } },
      slow: { limits: { requests_per_minute: 1 } },
      day: { limits: { requests_per_day: 1 } },
    },
    async check(w) {
      const told: string[] = []
      for (const as of ['minute', 'slow', 'day']) {
        for (let i = 0; i < 7; i++) await w.ask('chat', { as })
        await w.pass(0, 0)
        const computed = wait(await w.ask('chat', { as }))
        await w.pass(0, 0.9999)
        const longest = wait(await w.ask('chat', { as }))
        await w.pass(0, 0)
        assert.ok(longest > computed || computed === 60, `${as}: ${computed} ${longest}`)
        assert.ok(longest <= computed + Math.min(computed / 4, 30), `${as}: ${computed} ${longest}`)
        if (computed <= 60) assert.ok(longest <= 60, `${as}: ${longest}`)
        told.push(`${computed} to ${longest}`)
      }
      return `seconds: ${told.join(', ')}`
    },
  },
  {
    at: 'rule 4',
    says: 'request and token limits: the time of the refill',
    accounts: accountsOf(['requests_per_minute', 'output_tokens_per_minute']),
    async check(w) {
      for (const name of ['requests_per_minute', 'output_tokens_per_minute']) {
        await denies(w, name, () => {})
        const as = `${name}-chat-false`
        const { ask } = DENIED[name]!
        const denied = await w.ask('chat', { ...ask, as })
        await w.pass(wait(denied) - 1)
        assert.equal((await w.ask('chat', { ...ask, as })).status, 429, `${name}: a second before`)
        await w.pass(1.1)
        await w.well('chat', { ...ask, as })
      }
      return 'denied a second before the told time, admitted after it'
    },
  },
  {
    at: 'rule 4',
    says: 'concurrency: a short interval',
    account: { limits: { concurrent_requests: 1 } },
    async check(w) {
      const told = wait(await beside(w, {}, 1, () => w.ask('chat')))
      assert.ok(told > 0 && told <= 5)
      return `${told} s`
    },
  },
  {
    at: 'rule 4',
    says: 'a daily cap: the start of the next UTC day; a monthly one: the first of the next UTC month',
    accounts: { day: { limits: { daily_spend_usd: 0.002 } }, month: { limits: { monthly_spend_usd: 0.002 } } },
    async check(w) {
      const told: string[] = []
      for (const as of ['day', 'month']) {
        const ask = { as, say: MUCH, cap: 110 }
        const first = await w.well('chat', ask)
        const now = new Date(first.json.created * 1000)
        const end =
          as === 'day'
            ? Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate() + 1)
            : Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1)
        const seconds = wait(await w.ask('chat', ask))
        assert.ok(Math.abs(seconds - (end - now.getTime()) / 1000) <= 1, `${as}: ${seconds}`)
        await w.pass(seconds + 1)
        await w.well('chat', ask)
        told.push(`${seconds} s`)
      }
      return told.join(', ')
    },
  },
  {
    at: 'rule 4',
    says: 'shared capacity: when it is expected to recover; a provider’s own wait is kept',
    accounts: { first: {} },
    async check(w) {
      const reply = await w.ask('chat', { as: 'first', say: '[[sim: status 429 retry-after 20 code rate]]' })
      assert.equal(reply.code, 'capacity_exceeded')
      assert.ok(wait(reply) >= 20 && wait(reply) <= 25, `${wait(reply)}`)
      return `${wait(reply)} s of a provider that says 20`
    },
  },
  {
    at: 'rule 4',
    says: '503 and 504: a short default; a dependency that is out: 5 to 15 s',
    async check(w) {
      const told: number[] = []
      for (const fault of ['status 503', 'error overloaded after 0', 'status 504']) {
        for (const surface of SURFACES) {
          const reply = await w.ask(surface, { say: `[[sim: ${fault}]]` })
          const [least, most] = reply.status === 503 ? [5, 15] : [1, 60]
          assert.ok(wait(reply) >= least && wait(reply) <= most, `${fault}: ${wait(reply)}`)
          told.push(wait(reply))
          await w.pass(120)
        }
      }
      return [...new Set(told)].join(', ')
    },
  },
  {
    at: 'rule 4',
    says: 'a 503 after waiting for capacity in vain: at least the time that was waited',
    long: true,
    async check(w) {
      const told = wait(await beside(w, { model: 'queue' }, 1, () => w.ask('chat', { model: 'queue' })))
      // The queue lets a request wait for a second.
      assert.ok(told >= 1, `${told}`)
      return `${told} s after a second`
    },
  },
  {
    at: 'rule 4',
    says: '502: a wait only where the provider sent one',
    async check(w) {
      for (const surface of SURFACES) {
        assert.equal((await w.ask(surface, { say: '[[sim: status 500]]' })).header('retry-after'), null)
        await w.pass(120)
        const reply = await w.ask(surface, { say: '[[sim: status 500 retry-after 9]]' })
        assert.ok(wait(reply) >= 9 && wait(reply) <= 12)
        await w.pass(120)
      }
      return 'none, and 9 s of a provider that says 9'
    },
  },
  {
    at: 'rule 5',
    says: 'limits are disclosed in headers and in the list of models',
    account: { limits: { requests_per_minute: 77 } },
    async check(w) {
      assert.equal((await w.well('chat')).header('x-ratelimit-limit-requests'), '77')
      for (const entry of await w.models()) assert.equal(entry.limits.requests_per_minute, 77)
      return '77 in both'
    },
  },
  {
    at: 'rule 5',
    says: 'headers are authoritative at the moment: a replay does not repeat those of its original',
    account: { limits: { requests_per_minute: 10 } },
    async check(w) {
      const headers = { 'idempotency-key': 'moment' }
      await w.well('chat', { headers })
      await w.well('chat')
      const again = await w.well('chat', { headers })
      const left = again.header('x-ratelimit-remaining-requests')
      assert.ok(left === null || left === '8', `${left}`)
      return left ?? 'none on a replay'
    },
  },
  {
    at: 'rule 6',
    says: 'spend is checked before dispatch by an estimate, and settled by the final usage',
    account: { limits: { daily_spend_usd: 0.02 } },
    async check(w) {
      assert.equal((await w.ask('chat', { cap: 3000 })).status, 429)
      assert.equal(w.sent.length, 0)
      // Each reserves most of the cap and uses little of it.
      for (let i = 0; i < 5; i++) await w.well('chat', { cap: 1500, say: '[[sim: text "one two"]]' })
      return 'an estimate of 0.03 is refused unsent; five of 0.015 settle below a cap of 0.02'
    },
  },
  {
    at: 'rule 7',
    says: 'a body must be there within 60 seconds',
    long: true,
    async check(w) {
      const head = `POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${w.key()}\r\n`
      const reply = await w.raw(`${head}content-type: application/json\r\ncontent-length: 9\r\n\r\n`)
      assert.match(reply, /^HTTP\/1\.1 408 [\s\S]*request_body_timeout/)
      return '408 request_body_timeout'
    },
  },
  {
    at: 'rule 8',
    says: 'a window of 400000, and of 869811 for eb1-frontier-preview, to the token',
    async check(w) {
      for (const [model, window] of [
        [DIALECTS['openai-chat'], 400_000],
        [DIALECTS.gemini, 869_811],
      ] as const) {
        const overhead = (await w.count({ model, say: ' a' })).json.input_tokens - 1
        const say = ' a'.repeat(window - overhead)
        assert.equal((await w.well('messages', { model, say, cap: 50 })).input, window)
        const { code, error } = await w.ask('messages', { model, say: `${say} a`, cap: 50 })
        assert.deepEqual([code, error.details.context_window], ['context_length_exceeded', window])
      }
      return 'the last token of each window is served, one more is refused'
    },
  },
  {
    at: 'rule 9',
    says: 'a response of more than 1 MiB is not retained',
    async check(w) {
      const { json } = await w.well('responses', { say: '[[sim: tokens 200000; chunk 65536]]', cap: 128_000 })
      const reply = await w.ask('responses', { more: { previous_response_id: json.id } })
      assert.equal(reply.code, 'previous_response_not_found')
      const { json: small } = await w.well('responses')
      await w.well('responses', { more: { previous_response_id: small.id } })
      return 'a small one is'
    },
  },
  {
    at: 'rule 10',
    says: 'tool names of 64 characters go as they are, longer ones under an alias',
    async check(w) {
      for (const [length, aliased] of [
        [64, false],
        [65, true],
      ] as const) {
        const name = 'n'.repeat(length)
        await w.well('chat', {
          more: { tools: [{ type: 'function', function: { name, parameters: { type: 'object' } } }] },
        })
        const sent = w.forwarded.tools[0].function.name
        assert.equal(sent !== name, aliased)
        assert.ok(sent.length <= 64)
      }
      return '64 and 65'
    },
  },
  {
    at: 'rule 11',
    says: 'the ceilings of the rows between are not told',
    beyond: 'nothing is promised',
  },
])
