/** What is known of an exchange's failed attempts, for its log line and the dashboard. */
import type { GatewayError } from '../../core/errors.ts'
import type { Exchange } from '../../core/plugin.ts'
import { UpstreamFault } from '../../core/upstream-fault.ts'
import { type FailedAttempt, failedAttempts } from '../shared/slots.ts'

/** A search of many rounds may fail in many of them: the last ones tell what was wrong. */
const MOST = 16

/** Adds an attempt that failed. @param headers of its request: their values are kept out of what the provider said */
export function noteFailure(
  x: Exchange,
  failed: Pick<FailedAttempt, 'backend' | 'status' | 'ms'>,
  { code, cause }: GatewayError,
  headers: Readonly<Record<string, string>>,
): void {
  const told = cause instanceof UpstreamFault ? cause : null
  told?.conceal(headers)
  x.set(failedAttempts, [...(x.peek(failedAttempts) ?? []), { ...failed, code, told }].slice(-MOST))
}

/** Fields of a log line: of the attempt itself, and of the exchange. The log adds the provider's words where it may. */
export function upstreamFields({ status, told }: FailedAttempt): {
  upstream_status?: number
  upstream_error?: UpstreamFault
} {
  return { ...(status > 0 && { upstream_status: status }), ...(told && { upstream_error: told }) }
}
