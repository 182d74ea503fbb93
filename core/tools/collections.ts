/**
 * Collections for objects that live as long as an exchange. Map and Set are not used for them, because of the garbage
 * collector: each time one of them rehashes, V8 leaves the old table behind with a link to the new one. Once such a
 * table is in old space, it keeps every later table alive, with all that was in them when they rehashed, through
 * every young collection until the next full one. For each exchange some 11 KB of dead objects were copied and
 * promoted, which took a sixth of all CPU time and caused most of the longest pauses.
 */

/** An object that knows its index in a `DenseSet`. It can be in one such set at most. */
export interface Placed {
  /** The index in the set; -1 while the object is in none. Only the set writes it. */
  place: number
}

/** A set as an array without gaps. Adding and deleting take constant time and allocate nothing. */
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

  /**
   * Visits the newest member first. `visit` may delete the member that it is given. Other members that are added or
   * deleted meanwhile may be missed or visited twice.
   */
  forEach(visit: (member: T) => void): void {
    for (let i = this.#members.length - 1; i >= 0; i--) if (i < this.#members.length) visit(this.#members[i]!)
  }

  /** Iterates over a copy, so that members may be added and deleted meanwhile. */
  [Symbol.iterator](): ArrayIterator<T> {
    return this.#members.slice().values()
  }
}

/** Positions of an empty map; a power of two, so that a bit mask finds a position. */
const MIN_CAPACITY = 8
/** Number of letters at the end of an id that are hashed. */
const HASHED_LETTERS = 8
/** Constants of the FNV-1a hash. */
const SEED = 0x811c9dc5
const PRIME = 0x01000193

/**
 * A hash map with open addressing, for ids that the gateway made itself. No client chooses these ids, so no client
 * can make them collide. They end in random letters (core/tools/ids.ts); only the last eight letters are hashed.
 */
export class IdMap<V> {
  #ids: (string | undefined)[] = new Array(MIN_CAPACITY).fill(undefined)
  #values: (V | undefined)[] = new Array(MIN_CAPACITY).fill(undefined)
  #mask = MIN_CAPACITY - 1
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

  /**
   * Adds an id that is not in the map yet.
   * @returns false when the id is already there; the map is then unchanged
   */
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

  /**
   * Removes an id.
   * @returns its value, or undefined when the id was not in the map
   */
  take(id: string): V | undefined {
    const at = this.#find(id)
    const value = this.#values[at]
    if (this.#ids[at] !== undefined) this.#remove(at)
    return value
  }

  #remove(hole: number): void {
    this.#size--
    // Deletion by backward shift leaves no tombstones, so that lookups stay fast in a table with many insertions and
    // deletions.
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

  /** The position of the id, or the free position where it would be put. */
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
  for (let i = Math.max(0, id.length - HASHED_LETTERS); i < id.length; i++)
    hash = Math.imul(hash ^ id.charCodeAt(i), PRIME)
  return (hash ^ (hash >>> 15)) >>> 0
}
