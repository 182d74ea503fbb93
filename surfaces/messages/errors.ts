/** Errors of the Messages API: their types and their envelope. */
import { ERRORS, type ErrorCode, errorMembers, type GatewayError } from '../../core/canon/errors.ts'
import type { NamedSchema } from '../described.ts'
import { errorSchema } from '../envelope.ts'
import { exactly, shape, string } from '../schema.ts'

/** The types of Anthropic's API, where the specification leaves the type of an error open. */
const TYPES: Readonly<Partial<Record<ErrorCode, string>>> = {
  request_too_large: 'request_too_large',
  insufficient_quota: 'rate_limit_error',
  internal_error: 'api_error',
  not_implemented: 'api_error',
  upstream_auth_error: 'api_error',
  upstream_server_error: 'api_error',
  provider_unavailable: 'overloaded_error',
  gateway_timeout: 'timeout_error',
}
const typeOf = (code: ErrorCode): string => TYPES[code] ?? ERRORS[code].type

export const errorReply: NamedSchema = {
  name: 'MessagesError',
  schema: shape({
    type: exactly('error'),
    error: errorSchema((Object.keys(ERRORS) as ErrorCode[]).map(typeOf)),
    request_id: string(),
  }),
}

/**
 * The Messages error envelope as JSON text (wire.md E.1). The official SDK shows `details.error_code` as `errorCode`.
 * @param frame true for a frame of a stream: the wait is then repeated outside `error` (ERR-8)
 */
export function errorBody(error: GatewayError, requestId: string, frame = false): string {
  const { details, ...members } = errorMembers(error, requestId)
  const body: Record<string, unknown> = {
    type: 'error',
    error: {
      ...members,
      type: typeOf(error.code),
      details: { error_code: error.code, ...(details as Record<string, unknown> | undefined) },
    },
    request_id: requestId,
  }
  const wait = (details as Record<string, unknown> | undefined)?.['retry_after_seconds']
  if (frame && wait !== undefined) body['retry_after_seconds'] = wait
  return JSON.stringify(body)
}
