/** What providers say of their failures, in the shapes of OpenAI, Anthropic and Google. */
import { UpstreamFault } from '../core/canon/upstream-fault.ts'
import { isObject } from './loose-json.ts'

/** Of a reply's body: the provider's error object, alone or in an array; else the text itself. */
export function toldInBody(body: string): UpstreamFault {
  try {
    const parsed: unknown = JSON.parse(body)
    const value: unknown = Array.isArray(parsed) ? parsed[0] : parsed
    return toldIn(isObject(value) ? (value['error'] ?? value) : value)
  } catch {
    return toldIn(body.trim())
  }
}

/** Of an error object, or of what is in its place. */
export function toldIn(error: unknown): UpstreamFault {
  if (!isObject(error)) return new UpstreamFault(error, { message: error })
  // Google calls its type `status` and names members in `details`; servers built on FastAPI call the message `detail`.
  const { type, status, code, param, message, detail, details } = error
  return new UpstreamFault(error, {
    type: type ?? status,
    code,
    param: param ?? violatedField(details),
    message: message ?? detail,
  })
}

/** `details: [{ fieldViolations: [{ field }] }]`: the first field that Google names. */
function violatedField(details: unknown): unknown {
  if (!Array.isArray(details)) return undefined
  for (const detail of details) {
    const violations: unknown = isObject(detail) ? detail['fieldViolations'] : undefined
    if (Array.isArray(violations) && isObject(violations[0])) return violations[0]['field']
  }
  return undefined
}
