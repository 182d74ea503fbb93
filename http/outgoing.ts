/** The shared parts of streamed responses on both listeners. */

/**
 * The states of a streamed response:
 * - `open`: more may be written
 * - `ending`: the last byte was queued, but not all bytes have left
 * - `cutting`: the same, for a response whose end must look broken off
 * - `closed`: all bytes are in the kernel, or the connection is closed
 */
export type StreamState = 'open' | 'ending' | 'cutting' | 'closed'

/** A queue of bytes to send. It joins small texts, and gives out large data in pieces. */
export class PieceQueue {
  readonly #pieceBytes: number
  #waiting: (string | Uint8Array)[] = []
  #bytes = 0
  #total = 0

  /** @param pieceBytes texts are joined up to this length */
  constructor(pieceBytes: number) {
    this.#pieceBytes = pieceBytes
  }

  get empty(): boolean {
    return this.#waiting.length === 0
  }
  /** Bytes in the queue. */
  get bytes(): number {
    return this.#bytes
  }
  /** All bytes that were ever queued, including those that have left. */
  get total(): number {
    return this.#total
  }

  push(data: string | Uint8Array): void {
    const waiting = this.#waiting
    const last = waiting.length - 1
    const before = waiting[last]
    const text = typeof data === 'string'
    if (text && typeof before === 'string' && before.length + data.length <= this.#pieceBytes) {
      waiting[last] = before + data
    } else waiting.push(data)
    const bytes = text ? Buffer.byteLength(data) : data.byteLength
    this.#bytes += bytes
    this.#total += bytes
  }

  /** Takes the first piece out of the queue, at most `room` bytes of it. Call it only when the queue is not empty. */
  take(room: number): string | Uint8Array {
    const waiting = this.#waiting
    let first = waiting[0]!
    if (typeof first === 'string') {
      // The usual case: the queue is one text that fits.
      const bytes = waiting.length === 1 ? this.#bytes : Buffer.byteLength(first)
      if (bytes <= room) {
        waiting.shift()
        this.#bytes -= bytes
        return first
      }
      first = Buffer.from(first)
    }
    if (first.byteLength <= room) {
      waiting.shift()
      this.#bytes -= first.byteLength
      return first
    }
    waiting[0] = first.subarray(room)
    this.#bytes -= room
    return first.subarray(0, room)
  }

  clear(): void {
    this.#waiting = []
    this.#bytes = 0
  }
}
