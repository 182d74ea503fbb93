/** Which outcome an error or a finish means, for the ledger. */
import type { GatewayError } from '../canon/errors.ts'
import type { FinishEvent } from '../canon/events.ts'
import type { Outcome } from '../ports/store.ts'

/** The outcome of an exchange that was answered with an error. */
export function outcomeOf(error: GatewayError): Outcome {
  if (error.status < 500 && error.status !== 429) return 'refused'
  if (error.code === 'internal_error') return 'gateway_error'
  return error.status === 429 && error.code !== 'insufficient_quota' ? 'refused' : 'upstream_error'
}

/**
 * The outcome of a reply that broke off. It is never `refused`, whatever the code: what was delivered is billed
 * (BILL-3).
 */
export function outcomeOfCut(error: GatewayError): Outcome {
  const outcome = outcomeOf(error)
  return outcome === 'refused' ? 'upstream_error' : outcome
}

/**
 * The outcome of a reply that reached its finish.
 * @param origin who made the reply
 */
export function outcomeOfFinish(finish: FinishEvent, origin: 'upstream' | 'gateway'): Outcome {
  if (origin === 'gateway' && finish.reason === 'refusal') return 'refused'
  switch (finish.reason) {
    case 'length':
    case 'context_full':
    case 'idle_timeout':
    case 'ceiling_timeout':
      return 'incomplete'
    default:
      return 'completed'
  }
}
