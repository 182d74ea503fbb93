/**
 * The bucket of what costs the gateway work and no model any: counts of tokens, quotes, warm-ups over a WebSocket, looks
 * at usage, limits and receipts, and streams that are read again.
 */
import type { Exchange, Reply } from '../../core/plugin.ts'
import type { Admission, Cell, Store } from '../../core/ports/store.ts'
import { type Identity, identity } from '../shared/slots.ts'
import { countingCell } from './cells.ts'
import { denied } from './denials.ts'

/** The refusal of an exchange; undefined where it may go on. */
export type Refusal = undefined | Reply | Promise<undefined | Reply>

const AMOUNTS = [1]
const NONE: readonly Cell[] = []

/** Takes one from the bucket of the caller's organization (decision 52), or refuses. */
export function counting(store: Store): (x: Exchange) => Refusal {
  const cells = new WeakMap<Identity, readonly Cell[]>()

  function cellsOf(caller: Identity): readonly Cell[] {
    let known = cells.get(caller)
    if (!known) {
      const cell = countingCell(caller.organization)
      cells.set(caller, (known = cell ? [cell] : NONE))
    }
    return known
  }

  return function take(x) {
    const caller = x.peek(identity)
    const taken = caller ? cellsOf(caller) : NONE
    if (!caller || taken.length === 0) return undefined
    const org = caller.organization.id
    const decide = (admission: Admission): undefined | Reply => {
      if (!admission.admitted)
        return denied(taken, AMOUNTS, admission, x.clock.now(), {
          words: 'counts of tokens, quotes, warm-ups, looks at usage, limits and receipts, and streams read again',
        })
      store.limits.settle(org, x.id, AMOUNTS, x.clock.now())
      return undefined
    }
    const admission = store.limits.admit({ org, id: x.id, cells: taken, amounts: AMOUNTS, now: x.clock.now() })
    return admission instanceof Promise ? admission.then(decide) : decide(admission)
  }
}
