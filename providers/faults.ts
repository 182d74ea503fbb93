/**
 * Maps failures of providers to the contract's error table, for all four dialects (AUTH-7, ERR-6, ERR-7;
 * wire.md E.2).
 *
 * A dialect finds out what went wrong from the status or from the code of an error object, which may also come inside
 * a stream with status 200, and names it with a `FaultKind`. `faultOf` makes the error. No text of the provider is
 * repeated (GEN-7): it is only read to classify the failure.
 */

import { type ErrorInit, GatewayError } from '../core/canon/errors.ts'
import { UnreadableReply, UpstreamFault } from '../core/canon/upstream-fault.ts'
import type { FaultHeaders } from '../core/ports/dialect.ts'
import { OPENAI_MEDIA, OPENAI_VALUES } from './blame.ts'
import { isObject } from './loose-json.ts'

/** What went wrong at a provider, and the error that the client gets for it. */
export type FaultKind =
  /**
   * The provider refused the gateway's credential. → 502 upstream_auth_error, not retriable: the operator has to act
   */
  | 'auth'
  /** The gateway's account has no quota or money left. → 429 insufficient_quota */
  | 'quota'
  /** A rate or capacity limit of the provider. → 429 capacity_exceeded */
  | 'rate'
  /** The provider says it is overloaded or down. → 503 provider_unavailable */
  | 'unavailable'
  /** The provider timed out. → 504 gateway_timeout */
  | 'timeout'
  /** The prompt does not fit the model's window. → 400 context_length_exceeded */
  | 'context'
  /**
   * The provider's policy filter refused the prompt before it generated anything. → 400 invalid_value,
   * `details.reason: content_policy`. The table has no code for this. The input is at fault: an unchanged retry
   * cannot succeed, and no other backend should be tried.
   */
  | 'policy'
  /** Any other failure of the provider. → 502 upstream_server_error */
  | 'server'
  /**
   * The provider rejects the gateway's own request as malformed or unknown. → 502 upstream_server_error, not
   * retriable
   */
  | 'rejected'

/**
 * provider_unavailable advertises a wait of 5 to 15 s (ERR-6). Jitter may add a quarter (ERR-4), so the upper bound
 * here is 12 s.
 */
const UNAVAILABLE_MIN_MS = 5_000
const UNAVAILABLE_MAX_MS = 12_000
/** The wait of a `provider_unavailable` for one of `ms`. */
export const unavailableMs = (ms: number): number => Math.min(Math.max(ms, UNAVAILABLE_MIN_MS), UNAVAILABLE_MAX_MS)
/** The longest wait that is believed: 31 days, the length of a monthly quota. A longer one is cut to this. */
const RETRY_AFTER_MAX_MS = 31 * 86_400_000

/** The kind of a failure, from its status alone. */
export function kindOfStatus(status: number): FaultKind {
  switch (status) {
    case 401:
    case 403:
      return 'auth'
    case 402:
      return 'quota'
    case 408:
    case 504:
      return 'timeout'
    case 429:
      return 'rate'
    case 503:
    case 529: // Anthropic's overloaded_error
      return 'unavailable'
  }
  return status >= 400 && status < 500 ? 'rejected' : 'server'
}

/**
 * The kind of a failure whose status and error object may disagree. Servers answer in envelopes of other APIs, whose
 * types say less than the status does (a 401 of type `invalid_request_error`). So these statuses win; some bodies only
 * make them more exact.
 * @param status undefined inside a stream, where only the error object says
 * @param said what the error object says
 */
export function agreed(status: number | undefined, said: FaultKind): FaultKind {
  if (status === undefined) return said
  switch (status) {
    case 401:
    case 403:
      // Some servers refuse a prompt by policy with 403.
      return said === 'policy' ? said : 'auth'
    case 429:
      return said === 'quota' ? said : 'rate'
    case 402:
    case 404:
    case 408:
      return kindOfStatus(status)
  }
  // A failure of the server must not become the client's fault because of the body.
  const faultsOthers = said === 'context' || said === 'policy' || said === 'auth' || said === 'rejected'
  return status >= 500 && faultsOthers ? kindOfStatus(status) : said
}

/**
 * The error that the client gets.
 * @param horizonMs the wait that the provider asks for, from `retryAfterMs`; null when it asks for none
 */
export function faultOf(kind: FaultKind, horizonMs: number | null = null, cause?: unknown): GatewayError {
  const wait = horizonMs ?? undefined
  switch (kind) {
    case 'auth':
      return new GatewayError('upstream_auth_error', {
        message: 'The upstream refused the gateway’s own credential. Your API key is valid; the operator has to act.',
        cause,
      })
    case 'quota':
      return new GatewayError('insufficient_quota', {
        message:
          'The upstream account of this service has no quota left. Retrying does not help; the operator has to act.',
        horizonMs: null,
        cause,
      })
    case 'rate':
      return new GatewayError('capacity_exceeded', {
        message: 'The shared capacity of this model is exhausted. Retry after the advertised time.',
        horizonMs: wait,
        cause,
      })
    case 'unavailable':
      return new GatewayError('provider_unavailable', {
        message: 'The upstream of this model is not available. Retry after the advertised time.',
        horizonMs: wait === undefined ? undefined : unavailableMs(wait),
        cause,
      })
    case 'timeout':
      return new GatewayError('gateway_timeout', {
        message: 'The upstream did not answer in time. Retry after the advertised time.',
        horizonMs: wait,
        cause,
      })
    case 'context':
      return new GatewayError('context_length_exceeded', {
        ...tooLong(cause),
        cause,
      })
    case 'policy':
      return new GatewayError('invalid_value', {
        message:
          'The input was refused by the content policy of this model. Change the input; an unchanged retry is refused again.',
        details: { reason: 'content_policy' },
        cause,
      })
    case 'rejected':
      return new GatewayError('upstream_server_error', {
        message:
          'The upstream did not accept the request that the gateway made of yours. An unchanged retry is refused again.',
        retriable: false,
        horizonMs,
        cause,
      })
    case 'server':
      return new GatewayError('upstream_server_error', {
        message: 'The upstream failed while it served this request.',
        horizonMs,
        cause,
      })
  }
}

/**
 * The words for a prompt that is too long, and the window. Where the provider gives both figures, they are in the form
 * of the gateway's own refusal, from which clients read how much to leave out (MOD-6).
 */
function tooLong(cause: unknown): Pick<ErrorInit, 'message' | 'details'> {
  const figures = cause instanceof UpstreamFault ? windowFigures(cause.words) : null
  if (!figures)
    return {
      message: 'The prompt is too long for the context window of this model. Shorten the conversation or the tools.',
    }
  const { tokens, maximum } = figures
  return {
    message: `prompt is too long: ${tokens} tokens > ${maximum} maximum`,
    details: { context_window: maximum },
  }
}

const TOKENS =
  /(?:too long: |resulted in |contains (?:at least )?|request \(|requested tokens \(|token count \()(\d{1,9})\b|\b(\d{1,9}) (?:tokens )?(?:in the (?:messages|prompt)|of text input)\b/i
const MAXIMUM =
  /(?:tokens > |maximum (?:context|prompt) length is |context size \(|context window of |allowed \()(\d{1,9})\b|\b(\d{1,9}) maximum context length\b/i

/**
 * The tokens of the prompt and the most that the model takes, from a provider's sentence; null where it does not give
 * both. Some providers count the output cap too; then the prompt alone may fit, and the figures would mean nothing.
 */
function windowFigures(words: string): { tokens: number; maximum: number } | null {
  const [tokens, maximum] = [TOKENS, MAXIMUM].map(pattern => {
    const found = pattern.exec(words)
    return Number(found?.[1] ?? found?.[2] ?? Number.NaN)
  }) as [number, number]
  return tokens > maximum && maximum > 0 ? { tokens, maximum } : null
}

/**
 * A reply or an event that can't be read.
 * @param detail for the log: a sentence of ours, with nothing of the reply in it
 */
export function unreadable(detail: string): GatewayError {
  return new GatewayError('upstream_server_error', {
    message: 'The upstream sent a reply that can’t be read.',
    cause: new UnreadableReply(detail),
  })
}

/** The error for a stream that ended without its terminal event (STR-6). */
export function cutShort(): GatewayError {
  return new GatewayError('upstream_server_error', { message: 'The upstream ended its reply before it was complete.' })
}

/**
 * The wait that a provider asks for, in milliseconds: `retry-after-ms`, otherwise `retry-after` in seconds or as a
 * date (RFC 9110 10.2.3). A date is compared with the reply's own `date` header, so the gateway's clock plays no part
 * and a wrong clock of the provider does no harm. Null when there is no such header.
 */
export function retryAfterMs(headers: FaultHeaders): number | null {
  const ms = positive(Number(first(headers['retry-after-ms']) ?? Number.NaN))
  if (ms !== null) return ms
  const value = first(headers['retry-after'])
  if (value === undefined || value === '') return null
  const seconds = Number(value)
  if (!Number.isNaN(seconds)) return positive(seconds * 1000)
  const date = first(headers['date'])
  return date === undefined ? null : positive(Date.parse(value) - Date.parse(date))
}

function first(value: string | string[] | undefined): string | undefined {
  return (Array.isArray(value) ? value[0] : value)?.trim()
}

function positive(ms: number): number | null {
  return Number.isFinite(ms) && ms > 0 ? Math.min(ms, RETRY_AFTER_MAX_MS) : null
}

/** The kind of a reply with an error status whose body is in the envelope of the OpenAI family, or is none. */
export function kindOfOpenAiReply(status: number, body: string): FaultKind {
  let parsed: unknown
  try {
    parsed = JSON.parse(body)
  } catch {
    return kindOfStatus(status)
  }
  // Some compatible servers send the object inside a list, and old versions of vLLM without `error` around it.
  const value: unknown = Array.isArray(parsed) ? parsed[0] : parsed
  if (!isObject(value)) return kindOfStatus(status)
  return agreed(status, kindOfOpenAiError(value['error'] ?? value, status))
}

/**
 * Classifies an error object of the OpenAI family (`{message, type, code}`: OpenAI, Azure, vLLM, llama.cpp,
 * OpenRouter and others), with the HTTP status if there is one. Codes take precedence over the status. The message is
 * read only for context length, for which some providers have no code.
 */
export function kindOfOpenAiError(error: unknown, status?: number): FaultKind {
  const fields = typeof error === 'object' && error !== null ? (error as Record<string, unknown>) : {}
  const { code, type } = fields
  const known =
    (typeof code === 'string' && OPENAI_CODES.get(code)) || (typeof type === 'string' && OPENAI_CODES.get(type))
  // `server_error` is the type of every 5xx, so the status is more exact.
  if (known && !(known === 'server' && status !== undefined && status >= 500)) return known
  const message = typeof error === 'string' ? error : fields['message']
  // `Number.NaN` instead of null, because Number(null) is 0.
  const stated = status ?? Number(code ?? Number.NaN)
  if (
    typeof message === 'string' &&
    (Number.isNaN(stated) || stated === 400 || stated === 413) &&
    speaksOfContext(message)
  )
    return 'context'
  if (stated >= 400 && stated < 600) return kindOfStatus(stated)
  // Inside a stream there is no status. What faults the request would fail again.
  return type === 'invalid_request_error' || (typeof code === 'string' && OF_THE_REQUEST.has(code))
    ? 'rejected'
    : 'server'
}

const OPENAI_CODES: ReadonlyMap<string, FaultKind> = new Map<string, FaultKind>([
  ['insufficient_quota', 'quota'],
  ['billing_hard_limit_reached', 'quota'],
  ['billing_not_active', 'quota'],
  ['context_length_exceeded', 'context'],
  ['exceed_context_size_error', 'context'], // llama.cpp
  ['string_above_max_length', 'context'],
  ['content_filter', 'policy'], // Azure
  ['content_policy_violation', 'policy'],
  ['invalid_prompt', 'policy'],
  ['ResponsibleAIPolicyViolation', 'policy'],
  ['rate_limit_exceeded', 'rate'],
  ['rate_limit_error', 'rate'],
  ['too_many_requests', 'rate'],
  ['invalid_api_key', 'auth'],
  ['authentication_error', 'auth'],
  ['permission_error', 'auth'],
  ['no_db_connection', 'auth'], // LiteLLM without a database, for a key that is not its master key
  ['permission_denied', 'auth'],
  ['overloaded_error', 'unavailable'],
  ['service_unavailable', 'unavailable'],
  ['service_unavailable_error', 'unavailable'],
  ['server_is_overloaded', 'unavailable'],
  ['slow_down', 'unavailable'],
  ['timeout', 'timeout'],
  ['timeout_error', 'timeout'],
  ['server_error', 'server'],
  ['internal_error', 'server'],
])

/** Codes of the OpenAI family that fault the request as it was written. */
const OF_THE_REQUEST: ReadonlySet<string> = new Set([
  ...OPENAI_VALUES,
  ...OPENAI_MEDIA,
  'unknown_parameter',
  'unsupported_parameter',
  'missing_required_parameter',
])

const CONTEXT_PHRASES = [
  'maximum context length',
  'context length exceeded',
  'context window',
  'context size',
  'maximum number of tokens allowed', // Google
  'prompt is too long',
  'input is too long',
  'maximum prompt length',
  'exceed context limit', // Anthropic, of the prompt and the output cap together
  'contextwindowexceeded', // LiteLLM
]

/** True when an error message says that the context window was exceeded. Only its first 2,000 characters are read. */
export function speaksOfContext(message: string): boolean {
  const text = message.slice(0, 2000).toLowerCase()
  return CONTEXT_PHRASES.some(phrase => text.includes(phrase))
}
