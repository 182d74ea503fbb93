/**
 * Texts on their way to another thread: written as UTF-8 into memory that both threads see, where the tokenizer counts them as they lie. A message with the
 * texts themselves would be copied four times on its way, each time into fresh memory, which costs more than the copying.
 */
import { PADDING } from './splitter.ts'

/** What lies in the memory: texts one behind the other, `PADDING` bytes of room behind each. */
export interface Load {
  /** Bytes of each text. */
  lengths: number[]
  /** The first text began in the load before. */
  continued: boolean
  /** The last text goes on in the next load. */
  open: boolean
}

/** UTF-16 units and texts written in one turn of the event loop: 0.7 ms where a unit takes more than a byte, else a tenth of that. */
const TURN_UNITS = 1 << 19
const TURN_TEXTS = 4096

const encoder = new TextEncoder()

export class TextWriter {
  readonly #texts: readonly string[]
  /** The text being written, and how much of it has been. */
  #index = 0
  #offset = 0
  /** Where in the memory the next byte goes. */
  #at = 0
  /** Bytes of the text being written, in this load. */
  #length = 0
  #load: Load = { lengths: [], continued: false, open: false }

  constructor(texts: readonly string[]) {
    this.#texts = texts
  }

  /** All texts are in the loads given out. */
  get done(): boolean {
    return this.#index === this.#texts.length
  }

  /** Writes one turn's worth. Returns the load when it is complete; the next call begins another one, at the front of the memory. */
  write(memory: Uint8Array): Load | undefined {
    const end = memory.length - PADDING
    let units = TURN_UNITS
    for (let n = 0; n < TURN_TEXTS && units > 0 && !this.done; n++) {
      // Even an empty text needs room behind it.
      if (this.#at > end) return this.#full()
      const text = this.#texts[this.#index]!
      const from = this.#offset
      let to = Math.min(text.length, from + units)
      // A surrogate pair goes in one piece.
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

  /** A text that fits into the memory is not cut: it begins again in the next load. */
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
