/**
 * Google's error objects, `{error: {code, message, status, details}}`: as a body, as the only element of an array, or
 * inside a stream.
 */
import type { FaultHeaders } from '../../core/ports/dialect.ts'
import { agreed, type FaultKind, kindOfOpenAiError, kindOfStatus, retryAfterMs, speaksOfContext } from '../faults.ts'
import { type JsonObject, list, object, string } from '../loose-json.ts'

/** The failure kinds of google.rpc.Code names. */
const STATUSES: ReadonlyMap<string, FaultKind> = new Map<string, FaultKind>([
  ['UNAUTHENTICATED', 'auth'],
  ['PERMISSION_DENIED', 'auth'],
  ['RESOURCE_EXHAUSTED', 'rate'],
  ['UNAVAILABLE', 'unavailable'],
  ['DEADLINE_EXCEEDED', 'timeout'],
  ['INTERNAL', 'server'],
  ['UNKNOWN', 'server'],
])

/** The `error` member of a body, also inside an array; undefined when there is none. */
export function errorOf(body: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(body)
    const outer = object(Array.isArray(value) ? value[0] : value)
    return 'error' in outer ? object(outer['error']) : undefined
  } catch {
    return undefined
  }
}

/** @param status the HTTP status; undefined inside a stream, where the error's own code counts */
export function kindOfGoogleError(error: JsonObject | undefined, status?: number): FaultKind {
  return agreed(status, kindOf(error, status))
}

function kindOf(error: JsonObject | undefined, status?: number): FaultKind {
  const name = string(error?.['status'])
  const message = string(error?.['message']).slice(0, 2000).toLowerCase()
  if (name === 'INVALID_ARGUMENT' || name === 'FAILED_PRECONDITION') {
    if (details(error).some(detail => detail['reason'] === 'API_KEY_INVALID')) return 'auth'
    const tooLong = message.includes('token count') && message.includes('exceeds')
    return tooLong || speaksOfContext(message) ? 'context' : 'rejected'
  }
  // Every limit has this status. A quota of a day does not return by waiting, so it is `quota`; a limit of a minute
  // is shared capacity (ERR-7).
  if (name === 'RESOURCE_EXHAUSTED' && violations(error).some(quota => quota.includes('PerDay'))) return 'quota'
  const known = STATUSES.get(name)
  if (known) return known
  // Gateways that speak this API keep the envelope of OpenAI's, which has no status of this kind (LiteLLM).
  if (error !== undefined && name === '') return kindOfOpenAiError(error, status)
  const code = status ?? error?.['code']
  return typeof code === 'number' ? kindOfStatus(code) : 'server'
}

/**
 * The requested wait in milliseconds: `RetryInfo.retryDelay` ("34s", "0.5s"), otherwise the headers; null when
 * neither has one.
 */
export function horizonOf(error: JsonObject | undefined, headers: FaultHeaders): number | null {
  for (const detail of details(error)) {
    const delay = string(detail['retryDelay'])
    if (!delay.endsWith('s')) continue
    const seconds = Number(delay.slice(0, -1))
    if (seconds > 0 && Number.isFinite(seconds)) return retryAfterMs({ 'retry-after': String(seconds) })
  }
  return retryAfterMs(headers)
}

function details(error: JsonObject | undefined): JsonObject[] {
  return list(error?.['details']).map(object)
}

function violations(error: JsonObject | undefined): string[] {
  return details(error).flatMap(detail =>
    list(detail['violations']).map(violation => string(object(violation)['quotaId'])),
  )
}
