/** Slots: typed facts about an exchange. */

/** A typed fact about an exchange: one plugin fills it, others read it. Make one with `slot`. */
export interface Slot<T> {
  readonly name: string
  readonly index: number
  /** Carries the type; no value is ever stored here. */
  readonly value?: T
}

const slotIndexes = new Map<string, number>()

/**
 * Defines a slot. Two definitions with one name are the same slot, so that a reloaded plugin file reads and writes
 * the same values. A plugin that exports a slot promises other plugins to keep it.
 */
export function slot<T>(name: string): Slot<T> {
  let index = slotIndexes.get(name)
  if (index === undefined) {
    index = slotIndexes.size
    slotIndexes.set(name, index)
  }
  return { name, index }
}

/**
 * An array with room for every slot that is defined so far, so that it need not grow while an exchange fills its
 * slots.
 */
export function emptySlots(): unknown[] {
  return new Array(slotIndexes.size)
}
