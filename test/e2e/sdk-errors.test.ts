/** What the official clients make of refusals and failures: error classes, retries, request ids, in-band errors. */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { ManualClock } from '../../core/tools/clock.ts'
import { ShiftedClock, startGateway, type TestGateway } from './harness.ts'

const clock = new ShiftedClock()
let t: TestGateway
before(async () => {
  t = await startGateway({
    // Every kind of failure comes from the same few backends: none of them is to be left out.
    plugins: { upstream: '{ attempts: 1, breaker: { failures: 100000, error_rate: 1, window: 1ms, open_for: 1ms } }' },
    gateway: { clock },
  })
})
after(() => t.close())

const DIALECTS = {
  'openai-chat': 'eb1-preview',
  'openai-responses': 'eb1-efficient-preview',
  'anthropic-messages': 'eb1-fast-preview',
  gemini: 'eb1-frontier-preview',
}
const model = 'eb1-preview'

interface Ask {
  gateway?: TestGateway
  model?: string
  text?: string
  /** Members on top of the body. */
  more?: Record<string, unknown>
  stream?: boolean
  client?: Record<string, unknown>
  headers?: Record<string, string>
}
interface Surface {
  name: string
  sdk: typeof OpenAI | typeof Anthropic
  path: string
  body(ask: Ask): any
  /** Sends; a stream is read to its end. */
  send(ask: Ask): Promise<any>
}

async function settled(reply: Promise<any>, stream: boolean | undefined): Promise<any> {
  const value = await reply
  if (!stream) return value
  const events = []
  for await (const event of value) events.push(event)
  return events
}

const SURFACES: Surface[] = [
  {
    name: 'chat',
    sdk: OpenAI,
    path: '/v1/chat/completions',
    body: ({ model: id = model, text = 'hi', stream, more }) => ({
      model: id,
      messages: [{ role: 'user', content: text }],
      stream,
      ...more,
    }),
    send(ask) {
      const client = (ask.gateway ?? t).openai(ask.client)
      return settled(client.chat.completions.create(this.body(ask), { headers: ask.headers }) as any, ask.stream)
    },
  },
  {
    name: 'responses',
    sdk: OpenAI,
    path: '/v1/responses',
    body: ({ model: id = model, text = 'hi', stream, more }) => ({ model: id, input: text, stream, ...more }),
    send(ask) {
      const client = (ask.gateway ?? t).openai(ask.client)
      return settled(client.responses.create(this.body(ask), { headers: ask.headers }) as any, ask.stream)
    },
  },
  {
    name: 'messages',
    sdk: Anthropic,
    path: '/v1/messages',
    body: ({ model: id = model, text = 'hi', stream, more }) => ({
      model: id,
      max_tokens: 900,
      messages: [{ role: 'user', content: text }],
      stream,
      ...more,
    }),
    send(ask) {
      const client = (ask.gateway ?? t).anthropic(ask.client)
      return settled(client.messages.create(this.body(ask), { headers: ask.headers }) as any, ask.stream)
    },
  },
]

/** What both clients tell of an error, in one form. */
function told(error: any): {
  code: string
  type: string
  param: unknown
  id: string
  details: any
  retryable: unknown
} {
  const nested = error.error?.error ?? error.error ?? {}
  return {
    code: nested.code,
    type: error.type,
    param: nested.param ?? null,
    id: error.requestID,
    details: nested.details,
    retryable: nested.retryable,
  }
}

/** The types that Messages takes from Anthropic's API, where they are not those of the other two surfaces. */
const ANTHROPIC_TYPES: Record<string, string> = {
  insufficient_quota: 'rate_limit_error',
  upstream_auth_error: 'api_error',
  upstream_server_error: 'api_error',
  provider_unavailable: 'overloaded_error',
  gateway_timeout: 'timeout_error',
}
const typeOn = (surface: string, code: string, type: string) =>
  surface === 'messages' ? (ANTHROPIC_TYPES[code] ?? type) : type

type ClassName =
  | 'BadRequestError'
  | 'AuthenticationError'
  | 'PermissionDeniedError'
  | 'NotFoundError'
  | 'ConflictError'
  | 'RateLimitError'
  | 'InternalServerError'
interface Row {
  status: number
  code: string
  type: string
  openai: ClassName | 'APIError'
  anthropic:
    | ClassName
    | 'APIError'
    | 'RequestTimeoutError'
    | 'ContentTooLargeError'
    | 'ServiceUnavailableError'
    | 'GatewayTimeoutError'
  /** x-should-retry: false and no retry. */
  final: boolean
  ask: Ask
}

const upstream = (directive: string): Ask => ({ text: `[[sim: ${directive}]] x` })
const ROWS: Row[] = [
  {
    status: 400,
    code: 'unknown_parameter',
    type: 'invalid_request_error',
    openai: 'BadRequestError',
    anthropic: 'BadRequestError',
    final: true,
    ask: { more: { foo: 1 } },
  },
  {
    status: 401,
    code: 'invalid_api_key',
    type: 'authentication_error',
    openai: 'AuthenticationError',
    anthropic: 'AuthenticationError',
    final: true,
    ask: { headers: { authorization: 'Bearer sk-wrong-0000' } },
  },
  {
    status: 404,
    code: 'model_not_found',
    type: 'not_found_error',
    openai: 'NotFoundError',
    anthropic: 'NotFoundError',
    final: true,
    ask: { model: 'nope' },
  },
  {
    status: 415,
    code: 'unsupported_media_type',
    type: 'invalid_request_error',
    openai: 'APIError',
    anthropic: 'APIError',
    final: true,
    ask: { headers: { 'content-type': 'text/plain' } },
  },
  {
    status: 429,
    code: 'capacity_exceeded',
    type: 'rate_limit_error',
    openai: 'RateLimitError',
    anthropic: 'RateLimitError',
    final: false,
    ask: upstream('status 429 retry-after 3'),
  },
  {
    status: 429,
    code: 'insufficient_quota',
    type: 'insufficient_quota',
    openai: 'RateLimitError',
    anthropic: 'RateLimitError',
    final: true,
    ask: upstream('status 429 code quota'),
  },
  {
    status: 502,
    code: 'upstream_server_error',
    type: 'server_error',
    openai: 'InternalServerError',
    anthropic: 'InternalServerError',
    final: false,
    ask: upstream('status 500'),
  },
  {
    status: 502,
    code: 'upstream_auth_error',
    type: 'server_error',
    openai: 'InternalServerError',
    anthropic: 'InternalServerError',
    final: true,
    ask: upstream('status 401 code auth'),
  },
  {
    status: 503,
    code: 'provider_unavailable',
    type: 'server_error',
    openai: 'InternalServerError',
    anthropic: 'ServiceUnavailableError',
    final: false,
    ask: upstream('status 503'),
  },
  {
    status: 504,
    code: 'gateway_timeout',
    type: 'server_error',
    openai: 'InternalServerError',
    anthropic: 'GatewayTimeoutError',
    final: false,
    ask: upstream('status 504 code timeout'),
  },
]

async function failure(surface: Surface, ask: Ask): Promise<any> {
  const error = await surface.send(ask).then(
    () => assert.fail(`${surface.name}: no error`),
    e => e,
  )
  // A backend that asked for a pause gets it: by now it is over.
  clock.shift += 1000
  assert.ok(error instanceof surface.sdk.APIError, `${surface.name}: ${error}`)
  return error
}

for (const surface of SURFACES) {
  describe(`${surface.name}: error classes`, () => {
    for (const row of ROWS) {
      test(`[ERR-1] [ERR-2] [ERR-5] ${row.status} ${row.code}`, async () => {
        for (const stream of [false, true]) {
          const error = await failure(surface, { ...row.ask, stream })
          const name = surface.name === 'messages' ? row.anthropic : row.openai
          assert.equal(error.status, row.status)
          assert.ok(error instanceof (surface.sdk as any)[name], `${error.constructor.name} is a ${name}`)
          const { code, type, id, details, retryable } = told(error)
          assert.deepEqual([code, type], [row.code, typeOn(surface.name, row.code, row.type)])
          if (surface.name === 'messages') assert.equal(error.errorCode, row.code)
          else assert.equal(error.code, row.code)
          assert.match(id, /^req_/)
          assert.equal(id, (error.error.error ?? error.error).request_id)
          assert.equal(error.headers.get('x-should-retry'), row.final ? 'false' : null)
          assert.equal(retryable, !row.final)
          const wait = error.headers.get('retry-after-ms')
          if (wait === null) assert.equal(details?.retry_after_seconds, undefined)
          else {
            assert.ok(
              Math.abs(details.retry_after_seconds * 1000 - Number(wait)) < 0.001,
              `${details.retry_after_seconds} s, ${wait} ms`,
            )
            assert.equal(error.headers.get('retry-after'), String(Math.max(1, Math.ceil(Number(wait) / 1000))))
          }
          if (row.final) assert.equal(wait, null)
          assert.deepEqual(
            [...error.headers.keys()].filter((n: string) => n.startsWith('x-ratelimit')),
            [],
            '[ERR-7] no limit headers',
          )
        }
      })
    }

    for (const row of ROWS.filter(row => row.final)) {
      test(`[ERR-5] ${row.status} ${row.code}: the client sends it once, however often it may retry`, async () => {
        for (const stream of [false, true]) {
          let sent = 0
          const counted: typeof fetch = (url, init) => {
            sent++
            return fetch(url, init)
          }
          await failure(surface, { ...row.ask, stream, client: { maxRetries: 3, fetch: counted } })
          assert.equal(sent, 1)
        }
      })
    }

    test('[ERR-6] [AUTH-7] [ERR-7] the same from every dialect', async () => {
      const cases: [string, number, string][] = [
        ['status 401 code auth', 502, 'upstream_auth_error'],
        ['status 403 code auth', 502, 'upstream_auth_error'],
        ['status 500 code server', 502, 'upstream_server_error'],
        ['status 502 html', 502, 'upstream_server_error'],
        ['status 500 empty', 502, 'upstream_server_error'],
        ['status 503 code overloaded', 503, 'provider_unavailable'],
        ['status 429 code rate retry-after 2', 429, 'capacity_exceeded'],
        ['status 429 code quota', 429, 'insufficient_quota'],
        ['status 400 code context', 400, 'context_length_exceeded'],
        ['status 400 code policy', 400, 'invalid_value'],
        ['status 504 code timeout', 504, 'gateway_timeout'],
      ]
      for (const [dialect, id] of Object.entries(DIALECTS)) {
        for (const [directive, status, code] of cases) {
          // Gemini says so in a reply of its own (promptFeedback), never by a status.
          if (dialect === 'gemini' && directive.includes('policy')) continue
          const error = await failure(surface, { ...upstream(directive), model: id })
          assert.deepEqual([error.status, told(error).code], [status, code], `${dialect}: ${directive}`)
          const wait = Number(error.headers.get('retry-after'))
          if (code === 'provider_unavailable') assert.ok(wait >= 5 && wait <= 15, `${dialect}: 5 to 15 s, not ${wait}`)
          if (code === 'upstream_server_error')
            assert.equal(error.headers.get('retry-after'), null, 'the upstream sent none')
        }
        // What this dialect's provider calls overloaded.
        const overloaded = dialect === 'anthropic-messages' ? 529 : 503
        assert.equal(
          told(await failure(surface, { ...upstream(`status ${overloaded} code overloaded`), model: id })).code,
          'provider_unavailable',
        )
      }
    })

    test('[ERR-6] 502 carries Retry-After only when the upstream sent one', async () => {
      const error = await failure(surface, upstream('status 500 retry-after 4'))
      const wait = Number(error.headers.get('retry-after'))
      assert.ok(wait >= 4 && wait <= 5, String(wait))
    })

    test('[ERR-2] withResponse() has the request id, buffered and streamed', async () => {
      for (const stream of [false, true]) {
        const client: any =
          surface.name === 'messages'
            ? t.anthropic().messages
            : surface.name === 'chat'
              ? t.openai().chat.completions
              : t.openai().responses
        const { data, response, request_id } = await client.create(surface.body({ stream })).withResponse()
        if (stream) for await (const _ of data);
        assert.match(request_id, /^req_/)
        assert.equal(response.headers.get('x-request-id'), request_id)
        if (surface.name === 'messages') assert.equal(response.headers.get('request-id'), request_id)
        if (!stream) assert.equal(data._request_id, request_id)
        assert.ok((await t.ledger()).some(row => row.request_id === request_id))
      }
    })
  })

  describe(`${surface.name}: in-band errors`, () => {
    for (const [dialect, id] of Object.entries(DIALECTS)) {
      test(`[ERR-8] [STR-6] from ${dialect}: a typed error with its code, type and request id`, async () => {
        for (const [directive, code] of [
          ['error server after 4', 'upstream_server_error'],
          ['error overloaded after 4', 'provider_unavailable'],
          ['end 4', 'upstream_server_error'],
          ['cut 4', 'upstream_server_error'],
          ['close 4', 'upstream_server_error'],
          ['malformed json after 4', 'upstream_server_error'],
        ] as const) {
          const error = await failure(surface, { model: id, stream: true, text: `[[sim: tokens 20; ${directive}]] x` })
          const { code: said, type } = told(error)
          assert.deepEqual([said, type], [code, typeOn(surface.name, code, 'server_error')], `${directive}: ${error}`)
          assert.equal(error.status, undefined, 'the status was 200')
          const nested = error.error.error ?? error.error
          assert.match(nested.request_id, /^req_/)
          assert.equal(nested.retryable, true)
        }
      })
    }

    test('[ERR-8] [ERR-3] the frame as it stands: one error, signals to retry, and nothing that looks like an end', async () => {
      const response = await t.post(
        surface.path,
        surface.body({ stream: true, text: '[[sim: tokens 20; error overloaded after 4]] x' }),
      )
      assert.equal(response.status, 200)
      const id = response.headers.get('x-request-id')
      let text = ''
      try {
        for await (const chunk of response.body!) text += Buffer.from(chunk).toString()
      } catch {
        // A cut connection.
      }
      const frames = text
        .split('\n\n')
        .filter(f => f.includes('data: {'))
        .map(f => JSON.parse(f.slice(f.indexOf('data: ') + 6)))
      const at = frames.findIndex(f => f.error && !f.response)
      const frame = frames[at]
      assert.equal(frame.error.code, 'provider_unavailable')
      assert.equal(frame.error.type, typeOn(surface.name, 'provider_unavailable', 'server_error'))
      assert.equal(frame.error.request_id, id)
      assert.equal(frame.error.retryable, true)
      assert.doesNotMatch(text, /\[DONE\]|message_stop|response\.completed|response\.incomplete|"finish_reason":"/)
      if (surface.name === 'chat') {
        const { message, type, code, request_id, retryable, retry_after_seconds } = frame
        assert.deepEqual(
          [type, code, request_id, retryable],
          ['server_error', 'provider_unavailable', id, true],
          'the deprecated flat fields',
        )
        assert.equal(message, frame.error.message)
        assert.ok((retry_after_seconds ?? frame.error.retry_after_seconds) >= 5)
        assert.equal('choices' in frame, false)
        assert.equal(at, frames.length - 1)
      } else if (surface.name === 'responses') {
        assert.equal(frame.type, 'error')
        assert.equal(frame.request_id, id)
        assert.ok(frame.retry_after_seconds >= 5)
        assert.equal(frames.at(-1).type, 'response.failed', 'decisions 13')
        assert.equal(frames.at(-1).response.error.code, 'provider_unavailable')
        assert.equal(frames.at(-1).response.error.request_id, id, 'for those who read this event alone')
        assert.equal(frames.at(-1).response.error.details.retry_after_seconds, frame.retry_after_seconds)
        assert.equal(frames.length, at + 2)
        assert.deepEqual(
          frames.map(f => f.sequence_number),
          frames.map((_, i) => i),
        )
      } else {
        assert.equal(frame.type, 'error')
        assert.equal(frame.request_id, id)
        assert.ok(frame.retry_after_seconds >= 5)
        assert.equal(frame.error.details.error_code, 'provider_unavailable')
        assert.equal(at, frames.length - 1)
      }
    })
  })
}

describe('limits of body and account', () => {
  let small: TestGateway
  before(async () => {
    small = await startGateway({
      plugins: { validation: '{ max_body: 4KiB, body_timeout: 200ms }' },
      organization: '    models: [eb1-preview]',
      gateway: { clock },
    })
  })
  after(() => small.close())

  test('[MOD-5] [GEN-5] [IDEM-2] 403, 413 and 409 as the clients class them', async () => {
    for (const surface of SURFACES) {
      const denied = await failure(surface, { gateway: small, model: 'eb1-fast-preview' })
      assert.ok(denied instanceof surface.sdk.PermissionDeniedError)
      assert.deepEqual([told(denied).code, told(denied).type], ['model_not_available', 'permission_error'])
      const large = await failure(surface, { gateway: small, text: 'x'.repeat(5000) })
      assert.equal(large.status, 413)
      assert.equal(told(large).code, 'request_too_large')
      if (surface.name === 'messages') assert.ok(large instanceof Anthropic.ContentTooLargeError)
      const headers = { 'idempotency-key': `key-${surface.name}` }
      await surface.send({ gateway: small, headers })
      const conflict = await failure(surface, { gateway: small, headers, text: 'another body' })
      assert.ok(conflict instanceof surface.sdk.ConflictError)
      assert.deepEqual(
        [told(conflict).code, conflict.headers.get('x-should-retry')],
        ['idempotency_key_conflict', 'false'],
      )
    }
  })

  test('[ERR-5] none of them is sent again: the conflict neither, whose status the clients retry', async () => {
    for (const surface of SURFACES) {
      let sent = 0
      const counted: typeof fetch = (url, init) => {
        sent++
        return fetch(url, init)
      }
      const client = { maxRetries: 3, fetch: counted }
      const headers = { 'idempotency-key': `once-${surface.name}` }
      await surface.send({ gateway: small, headers })
      for (const ask of [
        { model: 'eb1-fast-preview' },
        { text: 'x'.repeat(5000) },
        { headers, text: 'another body' },
      ]) {
        sent = 0
        await failure(surface, { gateway: small, client, ...ask })
        assert.equal(sent, 1, JSON.stringify(ask).slice(0, 80))
      }
    }
  })

  test('[GEN-6] a body that does not end: 408, which both clients class and would retry', async () => {
    for (const surface of SURFACES) {
      const slow: typeof fetch = (url, init) => {
        const body = new ReadableStream({
          start: controller => controller.enqueue(new TextEncoder().encode('{"model":')),
        })
        const { 'content-length': _, ...headers } = Object.fromEntries(new Headers(init?.headers))
        return fetch(url, { ...init, headers, body, duplex: 'half' } as RequestInit)
      }
      const error = await failure(surface, { gateway: small, client: { fetch: slow } })
      assert.equal(error.status, 408)
      assert.deepEqual([told(error).code, told(error).type], ['request_body_timeout', 'timeout_error'])
      assert.notEqual(error.headers.get('x-should-retry'), 'false')
      if (surface.name === 'messages') assert.ok(error instanceof Anthropic.RequestTimeoutError)
    }
  })

  test('[GEN-4] a retired path is 410 to both clients', async () => {
    const openai = await failure(SURFACES[0]!, { client: { baseURL: `${t.url}/v24b/v1` } })
    const anthropic = await failure(SURFACES[2]!, { client: { baseURL: `${t.url}/v24b` } })
    for (const error of [openai, anthropic]) {
      assert.equal(error.status, 410)
      assert.equal(told(error).code, 'endpoint_retired')
    }
  })
})

for (const surface of SURFACES) {
  test(`[ERR-3] [LIM-5] ${surface.name}: the client waits retry-after-ms by itself and is admitted then`, async context => {
    const clock = new ManualClock(Date.now())
    const limited = await startGateway({ organization: '    limits: { requests_per_minute: 1 }', gateway: { clock } })
    try {
      const replies: { status: number; wait: string | null; count: string | null }[] = []
      const watched: typeof fetch = async (url, init) => {
        const response = await fetch(url, init)
        const count = new Headers(init?.headers).get('x-stainless-retry-count')
        const wait = response.headers.get('retry-after-ms')
        replies.push({ status: response.status, wait, count })
        // By the gateway's clock exactly so long passes: what is told is enough.
        clock.advance(Math.ceil(Number(wait)))
        return response
      }
      await surface.send({ gateway: limited })
      // One minute of the budget is one request: it is back but for a moment.
      clock.advance(59_700)
      const timers = context.mock.method(globalThis, 'setTimeout')
      await surface.send({ gateway: limited, client: { maxRetries: 1, fetch: watched } })
      assert.deepEqual(
        replies.map(r => r.status),
        [429, 200],
      )
      assert.deepEqual(
        replies.map(r => r.count),
        ['0', '1'],
      )
      const wait = Number(replies[0]!.wait)
      assert.ok(wait >= 300 && wait <= 375, `${wait} ms`)
      assert.ok(
        timers.mock.calls.some(call => call.arguments[1] === wait),
        'the client slept as long',
      )
    } finally {
      await limited.close()
    }
  })

  test(`[ERR-10] ${surface.name}: a horizon over a minute is not slept through`, async () => {
    const limited = await startGateway({ organization: '    limits: { requests_per_day: 1 }' })
    try {
      await surface.send({ gateway: limited })
      let sent = 0
      const watched: typeof fetch = (url, init) => {
        sent++
        return fetch(url, init)
      }
      const error = await failure(surface, { gateway: limited, client: { maxRetries: 3, fetch: watched } })
      assert.ok(error instanceof surface.sdk.RateLimitError)
      assert.ok(Number(error.headers.get('retry-after')) > 60)
      assert.equal(error.headers.get('x-should-retry'), 'false')
      assert.equal(sent, 1)
    } finally {
      await limited.close()
    }
  })
}

test('[ERR-8] a client that reads slowly still gets the typed error', async () => {
  // The connection used to be cut behind the frame: a fetch body then fails with all that was not read, the frame
  // included.
  const slow = await startGateway()
  try {
    const stream = await slow.openai().chat.completions.create({
      model: 'eb1-preview',
      stream: true,
      messages: [{ role: 'user', content: '[[sim: tokens 300; pace 1ms; error server after 100]] x' }],
    })
    await assert.rejects(
      async () => {
        for await (const _ of stream) for (let i = 0; i < 20; i++) await new Promise(resolve => setImmediate(resolve))
      },
      (error: any) => error instanceof OpenAI.APIError && error.code === 'upstream_server_error',
    )
  } finally {
    await slow.close()
  }
})
