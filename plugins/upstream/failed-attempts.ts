/** Records the failed attempts of an exchange, for its log line and the dashboard. */
import type { GatewayError } from '../../core/canon/errors.ts'
import { UpstreamFault } from '../../core/canon/upstream-fault.ts'
import type { Exchange } from '../../core/plugin.ts'
import { type FailedAttempt, failedAttempts } from '../shared/slots.ts'

/** The most failed attempts kept of one exchange. A search loop may fail in many rounds; the last ones are kept. */
const MOST = 16

/** What an attempt knows of its failure, beside the error. */
export type Failed = Pick<FailedAttempt, 'backend' | 'status' | 'ms'>

/**
 * Adds a failed attempt.
 * @param headers of its request; their values are removed from what the provider said
 */
export function noteFailure(
  x: Exchange,
  failed: Failed,
  { code, cause }: GatewayError,
  headers: Readonly<Record<string, string>>,
): void {
  const told = cause instanceof UpstreamFault ? cause : null
  told?.conceal(headers)
  x.set(failedAttempts, [...(x.peek(failedAttempts) ?? []), { ...failed, code, told }].slice(-MOST))
}

/** Fields of a log line, of an attempt or an exchange. The log writes the provider's words where it may. */
export function upstreamFields({ status, told }: FailedAttempt): {
  upstream_status?: number
  upstream_error?: UpstreamFault
} {
  return { ...(status > 0 && { upstream_status: status }), ...(told && { upstream_error: told }) }
}
