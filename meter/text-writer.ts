/**
 * Passes texts to another thread. It writes them as UTF-8 into shared memory, and the tokenizer of the other thread
 * counts them in place. If the texts were in a message, they would be copied four times, each time into newly allocated
 * memory, which costs even more than the copying.
 */
import { PADDING } from './splitter.ts'

/** The content of the memory: one text behind the other, each followed by `PADDING` free bytes. */
export interface Load {
  /** The length of each text in bytes. */
  lengths: number[]
  /** Whether the first text began in the load before. */
  continued: boolean
  /** Whether the last text continues in the next load. */
  open: boolean
}

/**
 * One event-loop turn writes at most this many UTF-16 units. This takes 0.7 ms when a unit takes more than one byte in
 * UTF-8, otherwise a tenth of that.
 */
const TURN_UNITS = 1 << 19
/** One event-loop turn writes at most this many texts. */
const TURN_TEXTS = 4096

const encoder = new TextEncoder()

export class TextWriter {
  readonly #texts: readonly string[]
  /** The index of the text that is being written. */
  #index = 0
  /** How many UTF-16 units of that text have been written. */
  #offset = 0
  /** The offset in the memory of the next byte. */
  #at = 0
  /** How many bytes of that text are in this load. */
  #length = 0
  #load: Load = { lengths: [], continued: false, open: false }

  constructor(texts: readonly string[]) {
    this.#texts = texts
  }

  /** Whether `write` has returned all texts. */
  get done(): boolean {
    return this.#index === this.#texts.length
  }

  /**
   * Writes as much as one event-loop turn may. Returns the load when it is complete; the next call then begins a new
   * load at the front of the memory. Returns undefined when the caller must call again, in another turn.
   */
  write(memory: Uint8Array): Load | undefined {
    const end = memory.length - PADDING
    let units = TURN_UNITS
    for (let n = 0; n < TURN_TEXTS && units > 0 && !this.done; n++) {
      // Even an empty text needs its padding.
      if (this.#at > end) return this.#full()
      const text = this.#texts[this.#index]!
      const from = this.#offset
      let to = Math.min(text.length, from + units)
      // A surrogate pair is not cut.
      if (to < text.length && text.codePointAt(to - 1)! > 0xffff) to++
      const piece = from === 0 && to === text.length ? text : text.slice(from, to)
      const { read, written } = encoder.encodeInto(piece, memory.subarray(this.#at, end))
      this.#at += written
      this.#length += written
      this.#offset += read
      units -= read
      if (this.#offset === text.length) this.#next()
      else if (read < piece.length) return this.#full()
    }
    return this.done ? this.#give() : undefined
  }

  #next(): void {
    this.#load.lengths.push(this.#length)
    this.#length = 0
    this.#at += PADDING
    this.#index++
    this.#offset = 0
  }

  /**
   * Ends a load because the memory is full. If it has other texts, the text that did not fit is written again from its
   * beginning in the next load. Only a text that is larger than the memory is cut.
   */
  #full(): Load {
    if (this.#load.lengths.length > 0) {
      this.#offset = 0
      return this.#give()
    }
    this.#load.lengths.push(this.#length)
    this.#load.open = true
    return this.#give()
  }

  #give(): Load {
    const load = this.#load
    this.#load = { lengths: [], continued: load.open, open: false }
    this.#at = 0
    this.#length = 0
    return load
  }
}
