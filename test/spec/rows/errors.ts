import assert from 'node:assert/strict'
import { beside } from '../kit/clocks.ts'
import { DIALECTS } from '../kit/gateways.ts'
import { type Reply, SURFACES, type Surface } from '../kit/reply.ts'
import { type Row, section } from '../kit/row.ts'
import { effort, history, image, tool } from '../kit/shapes.ts'
import type { Ask, World } from '../kit/world.ts'

const models = Object.values(DIALECTS)
/** A reply of over a hundred tokens. */
export const MUCH = '[[sim: tokens 110]]'

interface Expected {
  status: number
  code: string
  type?: string
  /** `final`: never again, without a wait. `told`: never again, and a wait is told. `wait`: after the wait. */
  retry?: 'final' | 'told' | 'wait'
}

/** A refusal in its envelope, with the signals of what may be retried and what not. */
export function refusedAs(reply: Reply, { status, code, type, retry }: Expected): void {
  assert.deepEqual([reply.status, reply.code], [status, code], String(reply))
  if (type !== undefined) assert.equal(reply.error.type, type)
  const [after, ms] = [reply.header('retry-after'), reply.header('retry-after-ms')]
  if (retry === 'wait') {
    assert.deepEqual([reply.header('x-should-retry'), reply.error.retryable], [null, true], String(reply))
    assert.match(after ?? '', /^[1-9]\d*$/)
    assert.equal(Number(after), Math.max(1, Math.ceil(Number(ms) / 1000)))
  }
  if (retry === 'final' || retry === 'told')
    assert.deepEqual([reply.header('x-should-retry'), reply.error.retryable], ['false', false], String(reply))
  if (retry === 'final') assert.deepEqual([after, ms], [null, null], String(reply))
  if (retry === 'told') assert.match(after ?? '', /^[1-9]\d*$/)
}

/** Every surface, buffered and streamed, refuses in this way. */
const refuses = (w: World, ask: Ask | ((surface: Surface) => Ask), expected: Expected, more?: (reply: Reply) => void) =>
  w.surfaces(async (surface, stream) => {
    const reply = await w.ask(surface, { stream, ...(typeof ask === 'function' ? ask(surface) : ask) })
    refusedAs(reply, expected)
    more?.(reply)
    await w.pass(120)
  })

/** Every dialect refuses in this way. */
const everywhere = (w: World, say: string, expected: Expected, more?: (reply: Reply) => void) =>
  w.everywhere(async (surface, model, stream) => {
    const reply = await w.ask(surface, { model, stream, say })
    refusedAs(reply, expected)
    more?.(reply)
    await w.pass(120)
  })

/** What asks for more than its limit can ever hold. */
const NEVER: Record<string, number> = {
  tokens_per_day: 50,
  input_tokens_per_day: 50,
  output_tokens_per_day: 50,
  daily_spend_usd: 0.000001,
  monthly_spend_usd: 0.000001,
}
const noRates = (reply: Reply) => assert.deepEqual(reply.rates, [])
/** The wait that a reply tells, in seconds. */
export const wait = (reply: Reply) => Number(reply.header('retry-after-ms')) / 1000

const unauthorized = (code: string, authorization: string | undefined): Row => ({
  at: `table: 401 ${code}`,
  says: code,
  check: w =>
    refuses(w, { headers: { authorization } }, { status: 401, code, type: 'authentication_error', retry: 'final' }),
})

export const errors = section('Errors', 'errors', [
  {
    at: 'envelope',
    says: 'Chat and Responses: an object error with message, code, type, param, request_id, retryable',
    async check(w) {
      for (const surface of ['chat', 'responses'] as const) {
        const { json } = await w.ask(surface, { more: { frobnicate: 1 } })
        assert.deepEqual(Object.keys(json), ['error'])
        for (const name of ['message', 'code', 'type', 'param', 'request_id', 'retryable'])
          assert.ok(json.error[name] !== undefined, name)
      }
      return 'all six'
    },
  },
  {
    at: 'envelope',
    says: 'retry_after_seconds inside of details',
    account: { limits: { requests_per_minute: 1 } },
    async check(w) {
      await w.well('chat')
      for (const surface of SURFACES) {
        const reply = await w.ask(surface)
        assert.equal(reply.error.details.retry_after_seconds, wait(reply))
      }
      return 'the value of the header'
    },
  },
  {
    at: 'envelope',
    says: 'Messages: the same, wrapped as an object of type error',
    async check(w) {
      const { json } = await w.ask('messages', { more: { frobnicate: 1 } })
      assert.equal(json.type, 'error')
      for (const name of ['message', 'code', 'type', 'param', 'request_id', 'retryable'])
        assert.ok(json.error[name] !== undefined, name)
      return 'type error, and all six'
    },
  },
  {
    at: 'envelope',
    says: 'Messages: where the table leaves the type open, it is that of the public API',
    accounts: { narrow: { models: ['eb1-fast-preview'] } },
    async check(w) {
      const types: [Ask, string][] = [
        [{ model: 'none' }, 'not_found_error'],
        [{ as: 'narrow' }, 'permission_error'],
        [{ say: '[[sim: error rate after 0]]' }, 'rate_limit_error'],
        [{ say: '[[sim: error quota after 0]]' }, 'rate_limit_error'],
        [{ say: '[[sim: status 500]]' }, 'api_error'],
        [{ say: '[[sim: status 401]]' }, 'api_error'],
        [{ say: '[[sim: status 503]]' }, 'overloaded_error'],
        [{ say: '[[sim: status 504]]' }, 'timeout_error'],
      ]
      for (const [ask, type] of types) {
        assert.equal((await w.ask('messages', ask)).error?.type, type, JSON.stringify(ask))
        await w.pass(120)
      }
      return [...new Set(types.map(([, type]) => type))].join(', ')
    },
  },
  {
    at: 'envelope',
    says: 'error.request_id is X-Request-Id',
    check: w =>
      w.surfaces(async (surface, stream) => {
        for (const ask of [{ more: { frobnicate: 1 } }, { say: '[[sim: status 500]]' }, { model: 'none' }]) {
          const reply = await w.ask(surface, { stream, ...ask })
          assert.equal(reply.error.request_id, reply.id)
        }
      }),
  },
  {
    at: 'envelope',
    says: 'error.param names the field',
    accounts: { still: { capabilities: ['tools'] } },
    async check(w) {
      const params = { chat: 'reasoning_effort', responses: /^reasoning/, messages: /^output_config\.effort|^thinking/ }
      for (const surface of SURFACES) {
        assert.equal((await w.ask(surface, { more: { temperature: 9 } })).error.param, 'temperature')
        const reply = await w.ask(surface, { as: 'still', more: effort(surface, 'high') })
        assert.equal(reply.code, 'request_requirements_unsatisfied')
        assert.match(reply.error.param, new RegExp(params[surface]))
      }
      return 'temperature; the field of the surface that asks for reasoning'
    },
  },
  {
    at: 'envelope',
    says: 'error.param of a prompt that is too long names it',
    async check(w) {
      for (const surface of SURFACES) {
        const { error } = await w.ask(surface, { model: 'small', say: 'word '.repeat(90), cap: 100 })
        assert.match(error.param ?? '', surface === 'responses' ? /^input/ : /^messages/)
      }
      return 'input, messages'
    },
  },
  {
    at: 'envelope',
    says: 'a faulty header is named',
    async check(w) {
      const head = 'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a\tb\r\n'
      const reply = await w.raw(`${head}content-length: 2\r\n\r\n{}`)
      assert.match(reply, /^HTTP\/1\.1 400 [\s\S]*"bad_request"/)
      assert.match(reply, /authorization/)
      return 'authorization, whose value has a tab'
    },
  },
  {
    at: 'envelope',
    says: 'Retry-After in whole seconds from 1, retry-after-ms beside it',
    account: { limits: { requests_per_minute: 120, concurrent_requests: 0 } },
    async check(w) {
      for (const surface of SURFACES)
        refusedAs(await w.ask(surface), { status: 429, code: 'concurrency_limit_exceeded' })
      const reply = await w.ask('chat', { as: 'sk-specification', say: '[[sim: status 503]]' })
      refusedAs(reply, { status: 503, code: 'provider_unavailable', retry: 'wait' })
      return `${reply.header('retry-after')} s, ${reply.header('retry-after-ms')} ms`
    },
  },
  {
    at: 'envelope',
    says: 'what can never succeed is retryable false, with x-should-retry false: limits of every window',
    accounts: Object.fromEntries(Object.entries(NEVER).map(([name, value]) => [name, { limits: { [name]: value } }])),
    async check(w) {
      const say = 'word '.repeat(60)
      for (const [name, value] of Object.entries(NEVER)) {
        for (const surface of SURFACES) {
          const reply = await w.ask(surface, { as: name, say, cap: 100 })
          assert.equal(reply.status, 429, `${name} ${reply}`)
          refusedAs(reply, { status: 429, code: reply.code!, retry: 'final' })
          if (!name.endsWith('usd')) assert.match(reply.error.message, new RegExp(name), `${value}`)
        }
      }
      return Object.keys(NEVER).join(', ')
    },
  },
  {
    at: 'envelope',
    says: 'a wait of more than a minute is told apart: it may succeed later, and no client should sleep for it',
    account: { limits: { requests_per_day: 1 } },
    async check(w) {
      await w.well('chat')
      for (const surface of SURFACES) {
        const reply = await w.ask(surface)
        assert.deepEqual([reply.header('x-should-retry'), reply.error.retryable], ['false', true])
        assert.equal(reply.error.details.retry, 'later')
        assert.ok(wait(reply) > 60)
      }
      return 'x-should-retry false, retryable true, details.retry later'
    },
  },
  {
    at: 'table: 400 request_exceeds_capacity',
    says: 'an estimate above a full minute of the token budget',
    account: { limits: { tokens_per_minute: 50 } },
    check: w =>
      refuses(
        w,
        { cap: 100 },
        { status: 400, code: 'request_exceeds_capacity', type: 'invalid_request_error', retry: 'final' },
        reply => assert.equal(reply.error.details.dimension, 'token_budget_request'),
      ),
  },
  {
    at: 'table: 400 context_length_exceeded',
    says: 'prompt is too long: N tokens > M maximum; details.context_window is M',
    check: w =>
      refuses(
        w,
        { model: 'small', say: 'word '.repeat(90), cap: 100 },
        { status: 400, code: 'context_length_exceeded', type: 'invalid_request_error', retry: 'final' },
        ({ error }) => {
          const [, n, m] = /prompt is too long: (\d+) tokens > (\d+) maximum/.exec(error.message)!
          assert.deepEqual([Number(n) > Number(m), m, error.details.context_window], [true, '60', 60])
        },
      ),
  },
  {
    at: 'table: 400 context_length_exceeded',
    says: 'a provider’s own refusal has the code, and the form where the provider tells both figures',
    async check(w) {
      const code = 'context_length_exceeded'
      await everywhere(w, '[[sim: error context after 0]]', { status: 400, code, retry: 'final' })
      for (const surface of SURFACES) {
        const model = DIALECTS['anthropic-messages']
        const { error } = await w.ask(surface, { model, say: '[[sim: error context after 0]]' })
        const [, n, m] = /prompt is too long: (\d+) tokens > (\d+) maximum/.exec(error.message) ?? []
        assert.ok(Number(n) > Number(m), error.message)
        assert.equal(error.details.context_window, Number(m))
      }
      return 'the code on four dialects, the form on anthropic-messages'
    },
  },
  {
    at: 'table: 400 request_requirements_unsatisfied',
    says: 'requirements that cannot be met together',
    check: w =>
      refuses(w, surface => ({ model: 'apart', more: { ...image(surface), tools: [tool(surface)] } }), {
        status: 400,
        code: 'request_requirements_unsatisfied',
        type: 'invalid_request_error',
        retry: 'final',
      }),
  },
  {
    at: 'table: 400 bad_request',
    says: 'invalid inputs of model exclusion',
    check: async w => {
      for (const excluded of ['none-such', 'eb1-preview', ',,'])
        await refuses(
          w,
          { headers: { 'x-excluded-models': excluded } },
          { status: 400, code: 'bad_request', type: 'invalid_request_error', retry: 'final' },
        )
      return 'an unknown id, the requested one, and no list'
    },
  },
  {
    at: 'table: 400 conversation_invariant',
    says: 'a fault of the tool history, with its call_id',
    check: w =>
      refuses(
        w,
        surface => ({ more: history(surface, [{ user: 'go' }, { results: ['call_x'] }]) }),
        { status: 400, code: 'conversation_invariant', type: 'invalid_request_error', retry: 'final' },
        ({ error }) => assert.equal(error.details.call_id, 'call_x'),
      ),
  },
  {
    at: 'table: 400 previous_response_not_found',
    says: 'an unknown previous_response_id',
    async check(w) {
      const code = 'previous_response_not_found'
      for (const stream of [false, true]) {
        const reply = await w.ask('responses', { stream, more: { previous_response_id: 'resp_none' } })
        refusedAs(reply, { status: 400, code, type: 'invalid_request_error', retry: 'final' })
      }
      return 'buffered and streamed'
    },
  },
  unauthorized('missing_authorization', undefined),
  unauthorized('bearer_scheme_required', 'Basic c2s6'),
  unauthorized('invalid_api_key', 'Bearer sk-wrong-key-0001'),
  {
    at: 'table: 403 model_not_available',
    says: 'a public model that the plan does not include',
    account: { models: ['eb1-fast-preview'] },
    check: w => refuses(w, {}, { status: 403, code: 'model_not_available', retry: 'final' }),
  },
  {
    at: 'table: 404 model_not_found',
    says: 'an id that is not offered; the message names public ids',
    check: w =>
      refuses(w, { model: 'none' }, { status: 404, code: 'model_not_found', retry: 'final' }, ({ error }) => {
        for (const id of models) assert.ok(error.message.includes(id), error.message)
      }),
  },
  {
    at: 'table: 404 model_not_found',
    says: 'a model without a price',
    check: w => refuses(w, { model: 'unpriced' }, { status: 404, code: 'model_not_found', retry: 'final' }),
  },
  {
    at: 'table: 408 request_body_timeout',
    says: 'a body that is not there 60 seconds after the gateway began to read it',
    long: true,
    async check(w) {
      const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${w.key()}\r\n`
      const reply = await w.raw(`${head}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{"model":`)
      assert.match(reply, /^HTTP\/1\.1 408 /)
      assert.match(reply, /request_body_timeout/)
      assert.match(reply, /^retry-after: \d+/im)
      return '408, and may be retried'
    },
  },
  {
    at: 'table: 409 idempotency_key_conflict',
    says: 'a key that was used for another request',
    async check(w) {
      const headers = { 'idempotency-key': 'conflict' }
      await w.well('chat', { headers })
      const code = 'idempotency_key_conflict'
      return refuses(w, { headers, say: 'another' }, { status: 409, code, retry: 'final' })
    },
  },
  {
    at: 'table: 410 endpoint_retired',
    says: 'the path /v24b/v1/',
    async check(w) {
      for (const path of ['/chat/completions', '/responses', '/messages', '/what/ever']) {
        const reply = await w.post('chat', `${w.base.replace('/v1', '/v24b/v1')}${path}`, '{}')
        refusedAs(reply, { status: 410, code: 'endpoint_retired', retry: 'final' })
      }
      return 'four paths'
    },
  },
  {
    at: 'table: 429 (limit-specific)',
    says: 'requests, tokens, concurrency and spend are told apart by code; the type is that of a rate limit',
    accounts: {
      requests: { limits: { requests_per_minute: 1 } },
      tokens: { limits: { tokens_per_minute: 150 } },
      concurrency: { limits: { concurrent_requests: 0 } },
      spend: { limits: { daily_spend_usd: 0.0015 } },
    },
    async check(w) {
      const codes: string[] = []
      for (const as of ['requests', 'tokens', 'concurrency', 'spend']) {
        if (as !== 'concurrency') await w.well('chat', { as, say: MUCH, cap: 110 })
        const reply = await w.ask('chat', { as, say: MUCH, cap: 110 })
        assert.deepEqual([reply.status, reply.error.type], [429, 'rate_limit_error'], String(reply))
        codes.push(reply.code!)
      }
      assert.equal(new Set(codes).size, 4)
      return codes.join(', ')
    },
  },
  {
    at: 'table: 429 capacity_exceeded',
    says: 'a denial of shared capacity, without x-ratelimit headers',
    account: { limits: { requests_per_minute: 1000 } },
    check: w =>
      everywhere(w, '[[sim: error rate after 0]]', { status: 429, code: 'capacity_exceeded', retry: 'wait' }, noRates),
  },
  {
    at: 'table: 429 insufficient_quota',
    says: 'passed through from a provider, without x-ratelimit headers',
    account: { limits: { requests_per_minute: 1000 } },
    check: w =>
      w.everywhere(async (surface, model, stream, dialect) => {
        // Gemini tells an exhausted quota and a rate by one status.
        if (dialect === 'gemini') return
        const reply = await w.ask(surface, { model, stream, say: '[[sim: error quota after 0]]' })
        refusedAs(reply, { status: 429, code: 'insufficient_quota', retry: 'final' })
        noRates(reply)
        await w.pass(120)
      }),
  },
  {
    at: 'table: 500 internal_error',
    says: 'a fault of the gateway',
    gateway: 'guarded',
    check: w => refuses(w, { say: 'break here' }, { status: 500, code: 'internal_error' }),
  },
  {
    at: 'table: 502 upstream_auth_error',
    says: 'the provider takes no credential; a fixed 502',
    async check(w) {
      for (const fault of ['error auth after 0', 'status 401', 'status 403'])
        await everywhere(w, `[[sim: ${fault}]]`, { status: 502, code: 'upstream_auth_error' })
      return 'for a 401 and a 403 of four dialects'
    },
  },
  {
    at: 'table: 502 upstream_server_error',
    says: 'a failure of the provider; Retry-After only if it sent one',
    async check(w) {
      const expected = { status: 502, code: 'upstream_server_error' }
      await everywhere(w, '[[sim: status 500]]', expected, reply => assert.equal(reply.header('retry-after'), null))
      return everywhere(w, '[[sim: status 500 retry-after 7]]', expected, reply => {
        assert.ok(wait(reply) >= 7 && wait(reply) <= 9, reply.header('retry-after')!)
      })
    },
  },
  {
    at: 'table: 502 upstream_server_error',
    says: 'one provider’s status is one code, on all dialects',
    async check(w) {
      await everywhere(w, '[[sim: status 408]]', { status: 504, code: 'gateway_timeout', retry: 'wait' })
      return 'a 408 is 504 gateway_timeout'
    },
  },
  {
    at: 'table: 503 route_capacity',
    says: 'a capacity gate of the platform; server_error, and may be retried',
    async check(w) {
      // One waits in the queue, and the queue holds no second one.
      const all = () => Promise.all([...SURFACES, ...SURFACES].map(surface => w.ask(surface, { model: 'queue' })))
      const replies = await beside(w, { model: 'queue' }, 1, all)
      for (const reply of replies)
        refusedAs(reply, { status: 503, code: 'route_capacity', type: 'server_error', retry: 'wait' })
      return 'three surfaces'
    },
  },
  {
    at: 'table: 503 route_unavailable',
    says: 'a restart; server_error, may be retried, and the message says so',
    gateway: 'ending',
    async check(w) {
      let ended: Promise<void> | undefined
      const steps = (raw: string) => (raw.includes('one') ? void (ended ??= w.gateway.stop()) : undefined)
      const say = '[[sim: text "one two three four five six"; stall 4]]'
      const replies = await Promise.all(SURFACES.map(surface => w.ask(surface, { stream: true, say, steps })))
      await ended
      for (const reply of replies) {
        assert.deepEqual([reply.code, reply.error?.retryable], ['route_unavailable', true], reply.raw.slice(-400))
        assert.match(reply.error.message, /restart/)
      }
      return replies[0]!.error.message
    },
  },
  {
    at: 'table: 503 provider_unavailable',
    says: 'the provider is out: 5 to 15 seconds',
    async check(w) {
      const expected = { status: 503, code: 'provider_unavailable', retry: 'wait' } as const
      const within = (reply: Reply) => assert.ok(wait(reply) >= 5 && wait(reply) <= 15, `${wait(reply)}`)
      for (const fault of ['status 503', 'status 503 retry-after 60', 'error overloaded after 0'])
        await everywhere(w, `[[sim: ${fault}]]`, expected, within)
      await refuses(w, { model: 'gone' }, expected, within)
      return 'a 503 of four dialects, and nobody who listens'
    },
  },
  {
    at: 'table: 503 provider_unavailable',
    says: 'who comes during the pause is told the same: an outage, and one wait',
    accounts: { first: {}, second: {} },
    async check(w) {
      const say = '[[sim: status 503 retry-after 60]]'
      refusedAs(await w.ask('chat', { as: 'first', say }), { status: 503, code: 'provider_unavailable', retry: 'wait' })
      const again = await w.ask('chat', { as: 'first', say })
      refusedAs(again, { status: 503, code: 'provider_unavailable', retry: 'wait' })
      assert.ok(wait(again) <= 15, `${wait(again)}`)
      await w.well('chat', { as: 'second' })
      return '503 with at most 15 s; another organization is served'
    },
  },
  {
    at: 'table: 504',
    says: 'a timeout of the gateway; Retry-After',
    async check(w) {
      const expected = { status: 504, code: 'gateway_timeout', retry: 'wait' } as const
      for (const fault of ['status 504', 'error timeout after 0']) await everywhere(w, `[[sim: ${fault}]]`, expected)
      return 'four dialects'
    },
  },
  {
    at: 'after the table',
    says: 'there are 413 and 415',
    async check(w) {
      const typed = await w.ask('chat', { headers: { 'content-type': 'text/plain' } })
      refusedAs(typed, { status: 415, code: 'unsupported_media_type', retry: 'final' })
      const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${w.key()}\r\n`
      const reply = await w.raw(`${head}content-type: application/json\r\ncontent-length: 9999999999\r\n\r\n`)
      assert.match(reply, /^HTTP\/1\.1 413 /)
      return 'unsupported_media_type, request_too_large'
    },
  },
  {
    at: 'rule 1',
    says: 'a request above its token budget: 429, final, Retry-After for one release, details.limit, dimension',
    account: { limits: { max_request_tokens: 50 } },
    check: w =>
      refuses(w, { cap: 100 }, { status: 429, code: 'request_token_budget_exceeded', retry: 'told' }, reply => {
        const { dimension, limit } = reply.error.details
        assert.deepEqual([dimension, limit], ['token_budget', 50])
        assert.match(reply.error.message, /1\d\d.*max_request_tokens|max_request_tokens.*1\d\d/)
        assert.equal(reply.header('x-ratelimit-scope'), 'org')
      }),
  },
  {
    at: 'rule 1',
    says: 'a request above its spend cap: 429, final, Retry-After for one release; the message names the setting',
    account: { limits: { max_request_usd: 0.0001 } },
    check: w =>
      refuses(w, { cap: 100 }, { status: 429, code: 'request_spend_cap_exceeded', retry: 'told' }, ({ error }) =>
        assert.match(error.message, /max_request_usd/),
      ),
  },
  {
    at: 'rule 1',
    says: 'a spend cap of 0.00: 429, final, no retry header; the message names that one setting',
    accounts: {
      request: { limits: { max_request_usd: 0 } },
      day: { limits: { daily_spend_usd: 0, monthly_spend_usd: 10 } },
      month: { limits: { monthly_spend_usd: 0 } },
      key: { limits: { daily_spend_usd: 10 }, key: { limits: { daily_spend_usd: 0 } } },
    },
    async check(w) {
      const named: Record<string, [string, string[]]> = {
        request: ['max_request_usd', ['daily_spend_usd', 'monthly_spend_usd']],
        day: ['daily_spend_usd', ['max_request_usd', 'monthly_spend_usd']],
        month: ['monthly_spend_usd', ['max_request_usd', 'daily_spend_usd']],
        key: ['key', ['max_request_usd', 'monthly_spend_usd']],
      }
      for (const [as, [word, others]] of Object.entries(named)) {
        await refuses(w, { as }, { status: 429, code: 'request_spend_cap_exceeded', retry: 'final' }, ({ error }) => {
          assert.match(error.message, new RegExp(word))
          for (const other of others) assert.ok(!error.message.includes(other), error.message)
        })
      }
      return 'of a request, a day, a month, and of a key'
    },
  },
  {
    at: 'rule 1',
    says: 'a message names the setting, and whose it is: a model’s, a key’s, that of counts',
    accounts: {
      model: { limits: { requests_per_minute: 9 }, model_limits: { 'eb1-preview': { requests_per_minute: 1 } } },
      key: { key: { limits: { requests_per_minute: 1 } } },
      counts: { limits: { requests_per_minute: 1 } },
    },
    async check(w) {
      const told: string[] = []
      for (const [as, words] of [
        ['model', /eb1-preview/],
        ['key', /key/],
      ] as const) {
        await w.well('chat', { as })
        const { error } = await w.ask('chat', { as })
        assert.match(error.message, words)
        assert.match(error.message, /requests_per_minute/)
        told.push(error.message)
      }
      await w.count({ as: 'counts' })
      const { status, error } = await w.count({ as: 'counts' })
      assert.equal(status, 429)
      assert.match(error.message, /count/)
      return told.join(' ')
    },
  },
  {
    at: 'rule 1',
    says: 'under load of the platform the message does not blame the setting of the account',
    gateway: 'loaded',
    account: { limits: { output_tokens_per_minute: 1000 } },
    async check(w) {
      const { error } = await beside(w, { as: 'sk-specification' }, 3, () => w.ask('chat', { cap: 950 }))
      assert.equal(error.code, 'output_tokens_limit_exceeded')
      assert.match(error.message, /load|platform|busy/)
      assert.doesNotMatch(error.message, /raise output_tokens_per_minute/)
      return error.message
    },
  },
  {
    at: 'rule 2',
    says: 'a reached spend limit is a generic rate limit without a word of billing; it says until when',
    accounts: {
      org: { limits: { daily_spend_usd: 0.0015 } },
      key: { key: { limits: { monthly_spend_usd: 0.0015 } } },
    },
    async check(w) {
      for (const as of ['org', 'key']) {
        await w.well('chat', { as, say: MUCH, cap: 110 })
        for (const surface of SURFACES) {
          const { status, code, error } = await w.ask(surface, { as, say: MUCH, cap: 110 })
          assert.deepEqual([status, code, error.type], [429, 'rate_limit_exceeded', 'rate_limit_error'])
          assert.doesNotMatch(error.message, /usd|\$|spend|bill|cost|price|0\.00/i)
          assert.match(error.message, /UTC|until|day|month/)
          assert.equal(error.details?.limit, undefined)
        }
      }
      return 'of the organization and of a key'
    },
  },
  {
    at: 'rule 3',
    says: 'a provider’s 429 and a denial of shared capacity are told by code, not by headers',
    account: { limits: { requests_per_minute: 1000 } },
    async check(w) {
      for (const kind of ['rate', 'quota']) {
        for (const surface of SURFACES) {
          const reply = await w.ask(surface, { say: `[[sim: error ${kind} after 0]]` })
          assert.ok(reply.code === 'capacity_exceeded' || reply.code === 'insufficient_quota')
          noRates(reply)
          await w.pass(120)
        }
      }
      return 'capacity_exceeded, insufficient_quota'
    },
  },
  {
    at: 'rule 4',
    says: 'standing headers are on what the gateway answers: errors, lists and counts, too',
    account: { limits: { requests_per_minute: 1000 } },
    async check(w) {
      await w.well('chat')
      const replies = {
        'a 400': await w.ask('chat', { more: { frobnicate: 1 } }),
        'a 404': await w.ask('chat', { model: 'none' }),
        'a 502': await w.ask('chat', { say: '[[sim: status 500]]' }),
        'the list': await w.get('/models'),
        'a count': await w.count(),
      }
      for (const [what, reply] of Object.entries(replies)) {
        assert.match(reply.id, /^req_/)
        assert.equal(reply.header('x-ratelimit-limit-requests'), '1000', what)
      }
      return Object.keys(replies).join(', ')
    },
  },
  {
    at: 'rule 4',
    says: 'what an edge in front answers may carry none',
    beyond: 'an edge is no part of the gateway',
  },
])
