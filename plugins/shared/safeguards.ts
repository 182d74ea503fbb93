/** What the built-in terminals that spend have to have above them. */
import type { Safeguard } from '../../core/plugin.ts'
import { flag } from '../../core/tools/vocabulary.ts'
import { identity, reservation } from './slots.ts'

/** For a terminal that costs its operator money. */
export const LIMITED: Safeguard = {
  slot: reservation,
  waiver: 'unlimited',
  without: 'serves without limits, without a spend cap and without a ledger row',
}
/** For a terminal that sends its operator's credential with whatever it is sent. */
export const KNOWN_CALLER: Safeguard = {
  slot: identity,
  waiver: 'open',
  without: 'lends its credential to everybody who reaches the listener',
}

/** The options with which the operator does without. */
export const unlimited = flag(
  false,
  'True where requests need no limits and no ledger rows: the pipeline then loads without admission.',
)
export const open = flag(false, 'True where everybody may use `api_key`: the pipeline then loads without auth.')
