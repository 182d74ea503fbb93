/** What follows from each kind of failure of an attempt: the one place that says it. */
import type { FaultKind } from '../../core/plugin.ts'
import type { Scope } from '../upstream/breaker.ts'

export interface Consequence {
  /** Another backend may be tried. */
  elsewhere: boolean
  /**
   * Whether the same backend may be tried again, after a pause: `yes`, or `if_safe` for a request that its client has
   * marked as safe to run twice, which may then go to another backend, too. A backend that has refused or declined a
   * request gets no second one from the same exchange.
   */
  again: 'yes' | 'if_safe' | 'no'
  /** For whom it counts against the backend's health; nobody, when the request may have caused it. */
  counts: Scope | 'nobody'
  /** The backend could be reached, so it is tried again for those for whom it could not be. */
  reached: boolean
  /** The provider may have read the prompt for the model, and may charge for it. */
  hasPrompt: boolean
}

export const FAULTS: Readonly<Record<FaultKind, Consequence>> = {
  unreachable: { elsewhere: true, again: 'yes', counts: 'all', reached: false, hasPrompt: false },
  not_sent: { elsewhere: true, again: 'no', counts: 'nobody', reached: false, hasPrompt: false },
  refused: { elsewhere: false, again: 'no', counts: 'nobody', reached: true, hasPrompt: false },
  declined: { elsewhere: true, again: 'no', counts: 'nobody', reached: true, hasPrompt: false },
  failed: { elsewhere: true, again: 'no', counts: 'organization', reached: true, hasPrompt: false },
  broken: { elsewhere: false, again: 'if_safe', counts: 'organization', reached: true, hasPrompt: true },
}
