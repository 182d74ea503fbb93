/** Anthropic's error objects, `{type: 'error', error: {type, message}}`: as a body and as an event of a stream. */
import { agreed, type FaultKind, kindOfOpenAiError, speaksOfContext } from '../faults.ts'
import { type JsonObject, object, string } from '../loose-json.ts'

const TYPES: ReadonlyMap<string, FaultKind> = new Map<string, FaultKind>([
  ['authentication_error', 'auth'],
  ['permission_error', 'auth'],
  ['billing_error', 'quota'],
  ['rate_limit_error', 'rate'],
  ['overloaded_error', 'unavailable'],
  ['timeout_error', 'timeout'],
  ['api_error', 'server'],
  ['not_found_error', 'rejected'],
  ['request_too_large', 'rejected'],
])

/**
 * @param error the inner object
 * @param status undefined inside a stream
 */
export function kindOfAnthropicError(error: unknown, status?: number): FaultKind {
  return agreed(status, kindOf(object(error), status))
}

function kindOf(fields: JsonObject, status?: number): FaultKind {
  const known = TYPES.get(string(fields['type']))
  if (known) return known
  if (fields['type'] === 'invalid_request_error') {
    // Account limits and policy refusals have this type too; only their text differs.
    const message = string(fields['message']).slice(0, 2000)
    if (speaksOfContext(message)) return 'context'
    if (/content filtering policy/i.test(message)) return 'policy'
    return /credit balance|usage limits/i.test(message) ? 'quota' : 'rejected'
  }
  // Servers that speak this API beside OpenAI's keep the types of that one (vLLM, llama.cpp).
  return kindOfOpenAiError(fields, status)
}
