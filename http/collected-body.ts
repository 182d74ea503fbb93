/**
 * The first memory of a body, in bytes. When it is full: all at once where the size is known, else twice as much each
 * time. Forty heads of 24 MB that come together took 50 ms in one turn of the event loop for their memory alone, most
 * of it collections of garbage; so it is taken when a body has begun to come.
 */
const FIRST_BYTES = 1024 * 1024

/**
 * Collects a body that arrives in pieces, in one piece of memory. Pieces that are joined at the end would need twice
 * the memory, and until a collection of garbage three times.
 */
export class CollectedBody {
  readonly #size: number | undefined
  readonly #most: number
  #memory: Buffer
  #length = 0

  /**
   * @param size of the body, where it is known
   * @param most the largest size that may come, in bytes
   */
  constructor(size: number | undefined, most: number) {
    this.#size = size
    this.#most = most
    this.#memory = Buffer.allocUnsafeSlow(Math.min(size ?? most, FIRST_BYTES))
  }

  /** Copies a piece. */
  add(piece: Uint8Array): void {
    const length = this.#length + piece.byteLength
    if (length > this.#memory.length) this.#grow(length)
    this.#memory.set(piece, this.#length)
    this.#length = length
  }

  /** All bytes so far. */
  get bytes(): Uint8Array {
    return this.#memory.subarray(0, this.#length)
  }

  #grow(needed: number): void {
    const old = this.#memory
    this.#memory = Buffer.allocUnsafeSlow(Math.max(needed, this.#size ?? Math.min(this.#most, 2 * old.length)))
    this.#memory.set(old.subarray(0, this.#length))
    // This frees the old memory now; a collection of garbage could come much later.
    ;(old.buffer as ArrayBuffer).transfer(0)
  }
}
