/** What became of the attempts of one exchange, for its ledger row, its log line, its trace and the dashboard. */
import type { GatewayError } from '../../core/canon/errors.ts'
import { UpstreamFault } from '../../core/canon/upstream-fault.ts'
import type {
  AttemptFailure,
  CallFacts,
  CallReport,
  FailedAttempt,
  LayerAnswer,
  PassedOver,
} from '../../core/plugin.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { callReport, failedAttempts, servedBy, unsent } from './slots.ts'

/** The most failed attempts kept of one exchange. A search may fail in many rounds; the last ones are kept. */
const MOST = 16

const NONE: readonly FailedAttempt[] = []

export class Report implements CallReport {
  served: Backend | undefined
  instead: LayerAnswer | undefined
  failed = NONE
  passedOver: readonly PassedOver[] = []
  promptTaken = false
  furtherInput = 0
  ownCost: number | null = 0
  readonly #facts: Pick<CallFacts, 'set' | 'peek'>

  constructor(facts: Pick<CallFacts, 'set' | 'peek'>) {
    this.#facts = facts
    facts.set(callReport, this)
  }

  calledAgain(promptTokens: number): void {
    this.furtherInput += promptTokens
  }

  calledApart(cost: number | null): void {
    this.ownCost = cost === null || this.ownCost === null ? null : this.ownCost + cost
  }

  answered(backend: Backend): void {
    this.served = backend
    this.#facts.set(servedBy, backend)
  }

  answeredInstead(answer: LayerAnswer): void {
    const { by, share } = answer
    if (!(share >= 0 && share <= 1)) throw new Error(`${by} answers at ${share} of the price: give a share from 0 to 1`)
    this.instead = answer
    this.#facts.peek(unsent)?.answered()
  }

  passed(over: PassedOver): void {
    if (!this.passedOver.some(({ backend }) => backend === over.backend)) this.passedOver = [...this.passedOver, over]
  }

  failure(attempt: AttemptFailure, { code, cause }: GatewayError, headers: Readonly<Record<string, string>>): void {
    const told = cause instanceof UpstreamFault ? cause : null
    told?.conceal(headers)
    this.failed = [...this.failed, { ...attempt, code, told }].slice(-MOST)
    this.#facts.set(failedAttempts, this.failed)
  }

  tookPrompt(): void {
    this.promptTaken = true
  }
}

/** Fields of a log line, of an attempt or an exchange. The log writes the provider's words where it may. */
export function upstreamFields({ status, told, why }: FailedAttempt): {
  upstream_status?: number
  upstream_why?: string
  upstream_error?: UpstreamFault
} {
  return {
    ...(status > 0 && { upstream_status: status }),
    ...(why !== undefined && { upstream_why: why }),
    ...(told && { upstream_error: told }),
  }
}
