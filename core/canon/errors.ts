/**
 * The error table: every code that the gateway can answer with (ERR-1…10). A surface turns a GatewayError into its
 * own error body; `retryHeaders` gives the headers that go with it.
 */

import { COUNTED, DIMENSIONS, denialCode, isMoney, type Rated } from './limits.ts'

/** One row of the error table. */
export interface ErrorSpec {
  status: number
  type: string
  /**
   * Whether an unchanged retry can succeed. A denial that can never succeed carries `x-should-retry: false` (ERR-5).
   */
  retriable: boolean
  /** Whose fault it is, for logs and metrics. */
  fault: 'client' | 'upstream' | 'gateway'
  /** Default wait before a retry, in milliseconds and before jitter, for codes that have one (decisions 24). */
  horizonMs?: number
  /** The line of docs/errors.md. */
  docs: string
}

const bad = (docs: string): ErrorSpec => ({
  status: 400,
  type: 'invalid_request_error',
  retriable: false,
  fault: 'client',
  docs,
})
const auth = (docs: string): ErrorSpec => ({
  status: 401,
  type: 'authentication_error',
  retriable: false,
  fault: 'client',
  docs,
})
const rate = (docs: string): ErrorSpec => ({
  status: 429,
  type: 'rate_limit_error',
  retriable: true,
  fault: 'client',
  docs,
})

const denials = Object.fromEntries(
  DIMENSIONS.filter(([name]) => !isMoney(name)).map(([name, { denied, horizonMs }]) => [
    denialCode(name),
    { ...rate(denied), ...(horizonMs !== undefined && { horizonMs }) },
  ]),
) as Record<`${Rated}_limit_exceeded`, ErrorSpec>

export const ERRORS = {
  unknown_parameter: bad('A member name is not known at this place of the body.'),
  unsupported_parameter: bad('An official member that this service does not offer.'),
  unsupported_value: bad('An official member with a value that this service does not offer.'),
  invalid_type: bad('A member has the wrong JSON type.'),
  invalid_value: bad('A value is out of range, malformed or not one of the listed ones.'),
  missing_required_parameter: bad('A required member is missing.'),
  invalid_json: bad('The body is empty, is not JSON, or is not a JSON object.'),
  content_limit_exceeded: bad('Images, documents, replayed bytes, JSON nodes or nesting exceed the configured limit.'),
  bad_request: bad(
    'The x-excluded-models, Idempotency-Key or x-sluice-resumable header is malformed, or excludes the requested model.',
  ),
  request_exceeds_capacity: bad('The estimate is above one full minute of the token budget; it can never be admitted.'),
  context_length_exceeded: bad('The prompt is longer than the model window or the account maximum.'),
  request_requirements_unsatisfied: bad('No backend of the model can serve these requirements together.'),
  conversation_invariant: bad('The tool history is inconsistent; details.call_id names the call.'),
  previous_response_not_found: bad(
    'previous_response_id, or a response that it continues, is unknown, expired, deleted or another organization’s.',
  ),
  invalid_stream_id: bad('A WebSocket message has a stream_id that is not valid.'),
  websocket_stream_limit_reached: bad('One WebSocket has used more different values of stream_id than are allowed.'),
  websocket_connection_limit_reached: bad('The WebSocket has been open for 60 minutes; it takes no more requests.'),
  websocket_queue_full: {
    ...rate('More requests wait on one WebSocket than are allowed.'),
    horizonMs: 1000,
  },
  missing_authorization: auth('No Authorization header.'),
  bearer_scheme_required: auth('Authorization is present but not the Bearer scheme.'),
  invalid_api_key: auth('The key is not valid; details.key_hint shows a redacted hint.'),
  address_not_allowed: {
    status: 403,
    type: 'permission_error',
    retriable: false,
    fault: 'client',
    docs: 'The client’s network address may not call.',
  },
  model_not_available: {
    status: 403,
    type: 'permission_error',
    retriable: false,
    fault: 'client',
    docs: 'The model is not in the plan or not in the key’s list.',
  },
  streaming_not_available: {
    status: 403,
    type: 'permission_error',
    retriable: false,
    fault: 'client',
    docs: 'The plan has no streaming.',
  },
  model_not_found: {
    status: 404,
    type: 'not_found_error',
    retriable: false,
    fault: 'client',
    docs: 'The model id is not offered, or has no price.',
  },
  response_not_found: {
    status: 404,
    type: 'not_found_error',
    retriable: false,
    fault: 'client',
    docs: 'The response is unknown, expired, deleted or another organization’s.',
  },
  receipt_not_found: {
    status: 404,
    type: 'not_found_error',
    retriable: false,
    fault: 'client',
    docs: 'The exchange is unknown, has not ended, or is another organization’s.',
  },
  not_found: { status: 404, type: 'not_found_error', retriable: false, fault: 'client', docs: 'No such path.' },
  method_not_allowed: {
    status: 405,
    type: 'invalid_request_error',
    retriable: false,
    fault: 'client',
    docs: 'The path exists with another method; see Allow.',
  },
  request_body_timeout: {
    status: 408,
    type: 'timeout_error',
    retriable: true,
    fault: 'client',
    horizonMs: 1000,
    docs: 'The request body was not complete within body_timeout.',
  },
  idempotency_key_conflict: {
    status: 409,
    type: 'invalid_request_error',
    retriable: false,
    fault: 'client',
    docs: 'The Idempotency-Key was used with another body or endpoint, or its first use still runs (then retriable).',
  },
  endpoint_retired: {
    status: 410,
    type: 'invalid_request_error',
    retriable: false,
    fault: 'client',
    docs: 'The path is retired; the message names the one to use instead.',
  },
  request_too_large: {
    status: 413,
    type: 'invalid_request_error',
    retriable: false,
    fault: 'client',
    docs: 'The body is over max_body.',
  },
  unsupported_media_type: {
    status: 415,
    type: 'invalid_request_error',
    retriable: false,
    fault: 'client',
    docs: 'The body is not application/json, or is content-encoded.',
  },
  upgrade_required: {
    status: 426,
    type: 'invalid_request_error',
    retriable: false,
    fault: 'client',
    docs: 'A WebSocket upgrade on a path or listener that offers none.',
  },
  ...denials,
  request_token_budget_exceeded: {
    ...rate('The exposure of one request in tokens is over its budget.'),
    retriable: false,
    horizonMs: 1000,
  },
  request_spend_cap_exceeded: {
    ...rate('The exposure of one request in USD is over its cap.'),
    retriable: false,
    horizonMs: 1000,
  },
  rate_limit_exceeded: rate(COUNTED.spend.denied),
  conversation_repeats: rate(
    'Many requests of the conversation brought nothing new and cost; the message says how to go on.',
  ),
  capacity_exceeded: { ...rate('Shared capacity is exhausted.'), fault: 'gateway', horizonMs: 2000 },
  insufficient_quota: {
    status: 429,
    type: 'insufficient_quota',
    retriable: false,
    fault: 'upstream',
    docs: 'The upstream account has no quota left.',
  },
  internal_error: {
    status: 500,
    type: 'server_error',
    retriable: true,
    fault: 'gateway',
    docs: 'A fault of the gateway.',
  },
  not_implemented: {
    status: 501,
    type: 'server_error',
    retriable: false,
    fault: 'gateway',
    docs: 'The route, as it is configured, cannot do what was asked; the message says what it lacks.',
  },
  upstream_auth_error: {
    status: 502,
    type: 'server_error',
    retriable: false,
    fault: 'upstream',
    docs: 'The gateway has no credential that the upstream takes; the caller’s key is valid.',
  },
  upstream_server_error: {
    status: 502,
    type: 'server_error',
    retriable: true,
    fault: 'upstream',
    docs: 'The upstream failed.',
  },
  account_unavailable: {
    status: 503,
    type: 'server_error',
    retriable: true,
    fault: 'gateway',
    horizonMs: 60_000,
    docs: 'The key is valid, and the gateway cannot serve its account as it is set up.',
  },
  route_capacity: {
    status: 503,
    type: 'server_error',
    retriable: true,
    fault: 'gateway',
    horizonMs: 2000,
    docs: 'An internal capacity gate is full.',
  },
  route_unavailable: {
    status: 503,
    type: 'server_error',
    retriable: true,
    fault: 'gateway',
    horizonMs: 2000,
    docs: 'A service that the request needs is restarting.',
  },
  provider_unavailable: {
    status: 503,
    type: 'server_error',
    retriable: true,
    fault: 'upstream',
    horizonMs: 5000,
    docs: 'An upstream or platform dependency is not available.',
  },
  gateway_timeout: {
    status: 504,
    type: 'server_error',
    retriable: true,
    fault: 'upstream',
    horizonMs: 5000,
    docs: 'The upstream did not answer in time.',
  },
} satisfies Record<string, ErrorSpec>

export type ErrorCode = keyof typeof ERRORS

export interface ErrorInit {
  /**
   * Says which field is wrong, what was measured, and which setting or input to change (ERR-9). Never upstream text
   * (GEN-7).
   */
  message: string
  /** The path of the wrong member, in the surface's own notation. */
  param?: string | null
  details?: Record<string, unknown>
  /** Extra response headers (rate-limit headers of a denial, Allow, WWW-Authenticate). Names lower case. */
  headers?: Record<string, string>
  /**
   * The wait before a retry, in milliseconds and before jitter; overrides the table's. `null`: no retry headers at
   * all.
   */
  horizonMs?: number | null
  /** Overrides the table: a 409 whose first use still runs is retriable. */
  retriable?: boolean
  /** For metrics only: the name of the bound on content that the request is over; such refusals share codes. */
  bound?: string | undefined
  /**
   * What only operators are told, in the log, on the dashboard and by `sluice trace`: which limit it was, what does not
   * answer. Like refusals have like words, without figures of the request: those that are alike are kept as one.
   */
  forOperators?: string
  /** For logs only. */
  cause?: unknown
}

/**
 * A denial or failure that a client will see. Code throws or returns it; either way the client gets it in the form of
 * its surface.
 */
export class GatewayError extends Error {
  readonly code: ErrorCode
  readonly status: number
  readonly type: string
  readonly param: string | null
  readonly details: Record<string, unknown> | undefined
  readonly headers: Record<string, string> | undefined
  readonly bound: string | undefined
  readonly forOperators: string
  readonly retriable: boolean
  /** The wait before a retry in milliseconds, before jitter (ERR-4); null when there are no retry headers. */
  readonly horizonMs: number | null
  /**
   * The wait that is reported to the client, in milliseconds. `setRetryAfter` sets it once, so that header, details and
   * frame agree (ERR-3).
   */
  retryAfterMs: number | undefined

  constructor(code: ErrorCode, init: ErrorInit) {
    // The stack of a denial says nothing beyond its code, and collecting it costs as much as the rest of the
    // constructor. Errors of the gateway itself keep their stack.
    const frames = Error.stackTraceLimit
    if (code !== 'internal_error') Error.stackTraceLimit = 0
    super(init.message, { cause: init.cause })
    Error.stackTraceLimit = frames
    this.name = 'GatewayError'
    const spec: ErrorSpec = ERRORS[code]
    this.code = code
    this.status = spec.status
    this.type = spec.type
    this.param = init.param ?? null
    this.details = init.details
    this.headers = init.headers
    this.bound = init.bound
    this.forOperators = init.forOperators ?? ''
    this.retriable = init.retriable ?? spec.retriable
    this.horizonMs = init.horizonMs === undefined ? (spec.horizonMs ?? null) : init.horizonMs
  }
}

/** The store's engine is down, slower than its time limit, or full. Never means "not found". */
export class StoreUnavailable extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'StoreUnavailable'
  }
}

/** The store is there, and has not answered in time. */
export class StoreSlow extends StoreUnavailable {}

/** The store will not serve this process until an operator has changed something: waiting does not help. */
export class StoreRefused extends StoreUnavailable {}

/** What operators are told begins so where the store is the cause. */
export const OF_STORE = 'the store: '

/** The error that a client sees for a thrown value. It never contains the text of that value. */
export function asGatewayError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error
  if (error instanceof StoreUnavailable) {
    return new GatewayError('provider_unavailable', {
      message: 'A platform dependency is not available. Retry shortly.',
      horizonMs: 5000,
      forOperators: OF_STORE + error.message,
      cause: error,
    })
  }
  return new GatewayError('internal_error', {
    message: 'An internal error occurred. Retry; if it persists, quote the request id.',
    cause: error,
  })
}

/** The members of an error body that all surfaces share (ERR-1, wire.md E.1). Call `setRetryAfter` first. */
export function errorMembers(error: GatewayError, requestId: string): Record<string, unknown> {
  const members: Record<string, unknown> = {
    message: error.message,
    type: error.type,
    code: error.code,
    param: error.param,
    request_id: requestId,
    retryable: error.retriable,
  }
  let details = error.details
  if (error.retryAfterMs !== undefined)
    details = { ...details, retry_after_seconds: Math.round(error.retryAfterMs * 1000) / 1e6 }
  // `x-should-retry: false` alone would read as "never" (decision 81).
  if (error.retriable && isLong(error)) details = { ...details, retry: 'later' }
  if (details) members['details'] = details
  return members
}

/**
 * Sets the wait that is reported to clients, once: `horizonMs` and at random up to 25 % or 30 s more, and never
 * less; a wait of 60 s or less stays at or below 60 s (ERR-4).
 * @param random uniform in [0, 1)
 */
export function setRetryAfter(error: GatewayError, random: () => number): void {
  if (error.horizonMs === null || error.retryAfterMs !== undefined) return
  // Whole microseconds, rounded up, so that header, details and frame show the same digits.
  error.retryAfterMs = Math.ceil(withJitter(error.horizonMs, random()) * 1000) / 1000
}

/**
 * The wait with its random share (ERR-4).
 * @param r uniform in [0, 1)
 * @returns the wait to report, in milliseconds, at least 1
 */
export function withJitter(horizonMs: number, r: number): number {
  const computed = Math.max(1, horizonMs)
  // The random share is of the bounded quarter: bounded afterwards, nearly every wait beyond two minutes would be 30 s
  // longer, and all clients of one exhausted day would retry in the same second.
  const longer = computed + r * Math.min(computed * 0.25, 30_000)
  return computed <= 60_000 ? Math.min(longer, 60_000) : longer
}

/** The retry headers of an error (ERR-3, ERR-5, ERR-10). Call `setRetryAfter` first. */
export function retryHeaders(error: GatewayError): Record<string, string> {
  const headers: Record<string, string> = {}
  const ms = error.retryAfterMs
  if (ms !== undefined) {
    headers['retry-after'] = String(Math.max(1, Math.ceil(ms / 1000)))
    headers['retry-after-ms'] = String(ms)
  }
  if (!error.retriable || isLong(error)) headers['x-should-retry'] = 'false'
  return headers
}

/** Official SDKs would sleep as long as they are told, for days; beyond a minute they are told not to retry (ERR-10). */
function isLong({ horizonMs }: GatewayError): boolean {
  return horizonMs !== null && horizonMs > 60_000
}

/**
 * Makes a client's text fit to quote in a message: at most 80 characters, everything but visible ASCII replaced by
 * `?`.
 */
export function printable(value: string): string {
  let out = ''
  for (let i = 0; i < value.length && out.length < 80; i++) {
    const c = value.charCodeAt(i)
    out += c >= 0x20 && c <= 0x7e ? value[i] : '?'
  }
  return out.length < value.length ? out + '…' : out
}
