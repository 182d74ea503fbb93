/** The first memory of a body whose size is not known, in bytes; twice as much each time it is full. */
const FIRST_BYTES = 1024 * 1024

/**
 * Collects a body that arrives in pieces, in one piece of memory. Pieces that are joined at the end would need twice
 * the memory, and until a collection of garbage three times.
 */
export class CollectedBody {
  readonly #most: number
  #memory: Buffer
  #length = 0

  /**
   * The system gives memory when it is written first, so what is announced and does not come costs nothing.
   * @param size of the body, where it is known
   * @param most the largest size that may come, in bytes
   */
  constructor(size: number | undefined, most: number) {
    this.#most = most
    this.#memory = Buffer.allocUnsafeSlow(size ?? Math.min(most, FIRST_BYTES))
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
    this.#memory = Buffer.allocUnsafeSlow(Math.max(needed, Math.min(this.#most, 2 * old.length)))
    this.#memory.set(old.subarray(0, this.#length))
    // This frees the old memory now; a collection of garbage could come much later.
    ;(old.buffer as ArrayBuffer).transfer(0)
  }
}
