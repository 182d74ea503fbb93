/** Slots: typed facts about an exchange. */

/** A typed fact about an exchange: one plugin fills it, others read it. Make one with `slot`. */
export interface Slot<T> {
  readonly name: string
  readonly index: number
  /** The name of the slot from which this one's value is made on the way down. */
  readonly madeFrom?: string
  /** Carries the type; no value is ever stored here. */
  readonly value?: T
}

const slots = new Map<string, Slot<any>>()

/**
 * Defines a slot. Two definitions with one name are the same slot, so that a reloaded plugin file reads and writes
 * the same values. A plugin that exports a slot promises other plugins to keep it.
 * @param madeFrom the slot from which the value is made on the way down: `check` warns of a plugin below that rewrites
 *   that slot, for it changes less than intended
 */
export function slot<T>(name: string, { madeFrom }: { madeFrom?: Slot<any> } = {}): Slot<T> {
  let known = slots.get(name)
  if (!known) slots.set(name, (known = { name, index: slots.size, ...(madeFrom && { madeFrom: madeFrom.name }) }))
  return known
}

/**
 * An array with room for every slot that is defined so far, so that it need not grow while an exchange fills its
 * slots.
 */
export function emptySlots(): unknown[] {
  return new Array(slots.size)
}
