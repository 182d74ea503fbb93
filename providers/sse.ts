/**
 * Reads server-sent events from bytes, for every dialect. It follows the WHATWG rules (HTML Living Standard, 9.2.6):
 * LF, CR and CRLF end a line; a BOM at the start is dropped; comments and unknown fields are ignored; several `data`
 * lines are joined with LF. It deliberately differs in three points:
 *
 * - An event without data, or with empty data, is not delivered: such an event has no meaning at any provider.
 * - When the stream ends, an event is delivered even if its blank line or its last line end is missing: some
 *   providers omit it. A data line that was cut off is delivered too; it is not JSON, and the decoder reports that.
 * - A line, or the data of one event, that exceeds the limit throws `FrameLimit`.
 *
 * Only whole lines are decoded. So a character that is split between two chunks needs no state, and how the bytes
 * were split has no effect on the result.
 */

import { type FrameHandler, FrameLimit, type FrameReader, type RunHandler } from '../core/ports/dialect.ts'

/** The default limit for a line, in bytes, and for an event's data, in UTF-16 units. */
export const SSE_DEFAULT_LIMIT = 8 * 1024 * 1024

const LF = 10
const CR = 13
const COLON = 58
const SPACE = 32
const LETTER_D = 100
const LETTER_E = 101
/**
 * A line that is split between chunks is collected in a buffer. A buffer larger than this many bytes is released when
 * the line is complete, so that one long line does not cost memory for the whole stream.
 */
const KEEP_BYTES = 64 * 1024
const NOTHING = Buffer.alloc(0)

/** Whether a reply of this content type is an event stream. */
export function isEventStream(contentType: string): boolean {
  return /^text\/event-stream/i.test(contentType)
}

/** Reads one event stream. */
export class SseReader implements FrameReader {
  readonly #limit: number
  /** The bytes of a line whose end has not arrived. Only the first `#keptBytes` are valid. */
  #partial = NOTHING
  #keptBytes = 0
  #started = false
  /** The last chunk ended with CR: an LF at the start of the next chunk is part of the same line end. */
  #skipLf = false
  #event = ''
  #data = ''
  /** True after a `data` field, also an empty one. */
  #hasData = false

  /** @param limit the limit for a line, in bytes, and for an event's data, in UTF-16 units */
  constructor(limit: number = SSE_DEFAULT_LIMIT) {
    this.#limit = limit
  }

  /**
   * Reads a chunk and calls `onEvent` for each event that it completes, in order. The bytes are not kept. Must not be
   * called from `onEvent`.
   * @throws FrameLimit
   */
  push(bytes: Uint8Array, onEvent: FrameHandler, onRun?: RunHandler): void {
    let chunk = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    if (this.#skipLf && chunk.length > 0) {
      this.#skipLf = false
      if (chunk[0] === LF) chunk = chunk.subarray(1)
    }
    const lastCr = chunk.lastIndexOf(CR)
    const complete = Math.max(chunk.lastIndexOf(LF), lastCr) + 1
    if (complete === 0) {
      this.#keep(chunk)
      return
    }
    if (lastCr === chunk.length - 1) this.#skipLf = true
    if (this.#keptBytes + complete > this.#limit) this.#checkLines(chunk.subarray(0, complete))
    let text: string
    if (this.#keptBytes === 0) text = chunk.toString('utf8', 0, complete)
    else {
      // Only the first line of the chunk continues the kept bytes; the other lines are decoded in the same step.
      this.#append(chunk.subarray(0, complete))
      text = this.#partial.toString('utf8', 0, this.#keptBytes)
      this.#release()
    }
    if (complete < chunk.length) this.#keep(chunk.subarray(complete))
    this.#lines(text, lastCr !== -1, onEvent, onRun)
  }

  /** The stream has ended. Delivers an event whose last line end or blank line is missing. */
  end(onEvent: FrameHandler): void {
    if (this.#keptBytes > 0) {
      const text = this.#partial.toString('utf8', 0, this.#keptBytes) + '\n'
      this.#release()
      this.#lines(text, false, onEvent)
    }
    this.#dispatch(onEvent)
  }

  /** @param text whole lines, each with its line end */
  #lines(text: string, hasCr: boolean, onEvent: FrameHandler, onRun?: RunHandler): void {
    let at = 0
    if (!this.#started) {
      this.#started = true
      if (text.charCodeAt(0) === 0xfeff) at = 1
    }
    if (hasCr) text = text.replaceAll('\r\n', '\n').replaceAll('\r', '\n')
    while (at < text.length) {
      if (onRun !== undefined && !this.#hasData && this.#event === '') {
        const next = onRun(text, at)
        if (next > at) {
          at = next
          continue
        }
      }
      const end = text.indexOf('\n', at)
      if (end === at) this.#dispatch(onEvent)
      else this.#field(text, at, end)
      at = end + 1
    }
  }

  #field(text: string, start: number, end: number): void {
    const letter = text.charCodeAt(start)
    if (letter === LETTER_D && text.startsWith('data', start)) {
      const value = valueStart(text, start + 4, end)
      if (value === -1) return
      const line = text.slice(value, end)
      if (this.#hasData) this.#data += '\n' + line
      else {
        this.#hasData = true
        this.#data = line
      }
      if (this.#data.length > this.#limit) throw new FrameLimit(this.#limit)
    } else if (letter === LETTER_E && text.startsWith('event', start)) {
      const value = valueStart(text, start + 5, end)
      if (value !== -1) this.#event = text.slice(value, end)
    }
  }

  #dispatch(onEvent: FrameHandler): void {
    const event = this.#event
    const data = this.#data
    this.#event = ''
    this.#data = ''
    this.#hasData = false
    if (data !== '') onEvent(event, data)
  }

  #keep(bytes: Buffer): void {
    if (bytes.length === 0) return
    if (this.#keptBytes + bytes.length > this.#limit) throw new FrameLimit(this.#limit)
    this.#append(bytes)
  }

  #append(bytes: Buffer): void {
    const size = this.#keptBytes + bytes.length
    if (size > this.#partial.length) {
      // The buffer doubles, so that collecting a long line from small pieces takes linear time.
      const larger = Buffer.allocUnsafeSlow(Math.max(size, 2 * this.#partial.length, 256))
      this.#partial.copy(larger, 0, 0, this.#keptBytes)
      this.#partial = larger
    }
    bytes.copy(this.#partial, this.#keptBytes)
    this.#keptBytes = size
  }

  #release(): void {
    this.#keptBytes = 0
    if (this.#partial.length > KEEP_BYTES) this.#partial = NOTHING
  }

  /**
   * The lines of a chunk may together exceed the limit; a fault is only a single line that does. This check is rare,
   * because the chunk itself must be larger than the limit.
   */
  #checkLines(lines: Buffer): void {
    let length = this.#keptBytes
    for (const byte of lines) {
      if (byte === LF || byte === CR) length = 0
      else if (++length > this.#limit) throw new FrameLimit(this.#limit)
    }
  }
}

/**
 * The index at which a field's value begins; -1 when the field's name is longer than the expected one. `data` without
 * a colon is a field with an empty value.
 */
function valueStart(text: string, afterName: number, end: number): number {
  if (afterName === end) return end
  if (text.charCodeAt(afterName) !== COLON) return -1
  const value = afterName + 1
  return value < end && text.charCodeAt(value) === SPACE ? value + 1 : value
}
