/**
 * Collections for what lives as long as an exchange. Not Map and Set: at every rehash V8 leaves their old table behind with a link to the new
 * one. Once such a table has come into old space it holds each later one, and everything that was in them at their own rehash, through every
 * young collection until the next full one: of each exchange some 11 KB were copied and promoted that had long been dead, a sixth of all CPU time
 * and most of the longest pauses.
 */

/** A member knows its place, and is in one set at most. */
export interface Placed {
  /** Index in the set; -1 outside of it. The set's own. */
  place: number
}

export class DenseSet<T extends Placed> {
  readonly #members: T[] = []

  get size(): number {
    return this.#members.length
  }

  add(member: T): void {
    if (member.place >= 0) return
    member.place = this.#members.push(member) - 1
  }

  delete(member: T): boolean {
    const { place } = member
    if (place < 0) return false
    member.place = -1
    const last = this.#members.pop()!
    if (last !== member) {
      this.#members[place] = last
      last.place = place
    }
    return true
  }

  /** The newest first. The member at hand may leave; others that come or go meanwhile may be missed or seen twice. */
  forEach(visit: (member: T) => void): void {
    for (let i = this.#members.length - 1; i >= 0; i--) if (i < this.#members.length) visit(this.#members[i]!)
  }

  /** A copy, so that members may come and go while it is read. */
  [Symbol.iterator](): ArrayIterator<T> {
    return this.#members.slice().values()
  }
}

const SMALLEST = 8
const HASHED = 8
/** FNV-1a. */
const SEED = 0x811c9dc5
const PRIME = 0x01000193

/**
 * A map from ids that the gateway made itself: nobody outside chooses them, so that nobody can make them collide. They end in letters of chance (`core/ids.ts`), and
 * the last eight are all that is hashed.
 */
export class IdMap<V> {
  #ids: (string | undefined)[] = new Array(SMALLEST).fill(undefined)
  #values: (V | undefined)[] = new Array(SMALLEST).fill(undefined)
  #mask = SMALLEST - 1
  #size = 0

  get size(): number {
    return this.#size
  }

  has(id: string): boolean {
    return this.#ids[this.#find(id)] !== undefined
  }

  get(id: string): V | undefined {
    return this.#values[this.#find(id)]
  }

  set(id: string, value: V): void {
    if (!this.add(id, value)) this.#values[this.#find(id)] = value
  }

  /** Puts in an id that is not there yet. @returns false, and does nothing, when it is */
  add(id: string, value: V): boolean {
    let at = this.#find(id)
    if (this.#ids[at] !== undefined) return false
    if (++this.#size * 2 > this.#mask) {
      this.#grow()
      at = this.#find(id)
    }
    this.#ids[at] = id
    this.#values[at] = value
    return true
  }

  delete(id: string): boolean {
    const at = this.#find(id)
    if (this.#ids[at] === undefined) return false
    this.#remove(at)
    return true
  }

  /** Takes an id out. @returns its value, if it was there */
  take(id: string): V | undefined {
    const at = this.#find(id)
    const value = this.#values[at]
    if (this.#ids[at] !== undefined) this.#remove(at)
    return value
  }

  #remove(hole: number): void {
    this.#size--
    // Backward shift: no tombstones, so that a table in which much comes and goes stays as quick as a new one.
    for (let at = (hole + 1) & this.#mask; this.#ids[at] !== undefined; at = (at + 1) & this.#mask) {
      const home = hashOf(this.#ids[at]!) & this.#mask
      if (((at - home) & this.#mask) < ((at - hole) & this.#mask)) continue
      this.#ids[hole] = this.#ids[at]
      this.#values[hole] = this.#values[at]
      hole = at
    }
    this.#ids[hole] = undefined
    this.#values[hole] = undefined
  }

  *entries(): Generator<[id: string, value: V]> {
    for (let i = 0; i <= this.#mask; i++) if (this.#ids[i] !== undefined) yield [this.#ids[i]!, this.#values[i]!]
  }

  /** Where the id is, or where it would go. */
  #find(id: string): number {
    let at = hashOf(id) & this.#mask
    while (this.#ids[at] !== undefined && this.#ids[at] !== id) at = (at + 1) & this.#mask
    return at
  }

  #grow(): void {
    const ids = this.#ids
    const values = this.#values
    this.#mask = ids.length * 2 - 1
    this.#ids = new Array(this.#mask + 1).fill(undefined)
    this.#values = new Array(this.#mask + 1).fill(undefined)
    for (let i = 0; i < ids.length; i++) {
      if (ids[i] === undefined) continue
      const at = this.#find(ids[i]!)
      this.#ids[at] = ids[i]
      this.#values[at] = values[i]
    }
  }
}

function hashOf(id: string): number {
  let hash = SEED
  for (let i = Math.max(0, id.length - HASHED); i < id.length; i++) hash = Math.imul(hash ^ id.charCodeAt(i), PRIME)
  return (hash ^ (hash >>> 15)) >>> 0
}
