/** What the streamed answers of both listeners have in common. */

/**
 * open     more may be written
 * ending   the last byte has been queued, and not everything has left
 * cutting  the same of an answer that is to look broken off
 * closed   everything is in the kernel, or the connection is gone
 */
export type StreamState = 'open' | 'ending' | 'cutting' | 'closed'

/** What waits to be sent. Small texts are joined, and what is large leaves in pieces. */
export class PieceQueue {
  readonly #pieceBytes: number
  #waiting: (string | Uint8Array)[] = []
  #bytes = 0
  #total = 0

  /** @param pieceBytes texts are joined up to here */
  constructor(pieceBytes: number) {
    this.#pieceBytes = pieceBytes
  }

  get empty(): boolean {
    return this.#waiting.length === 0
  }
  /** Bytes that wait. */
  get bytes(): number {
    return this.#bytes
  }
  /** Bytes that have been queued, of which many may have left. */
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

  /** The first piece, which is no larger than `room` bytes. Only when there is one. */
  take(room: number): string | Uint8Array {
    const waiting = this.#waiting
    let first = waiting[0]!
    if (typeof first === 'string') {
      // All that waits is one text that fits: the usual case.
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
