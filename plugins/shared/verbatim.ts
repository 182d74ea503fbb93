import { isAscii, isUtf8 } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { type JsonBytes, pastBlanks } from '../../core/tools/json-bytes.ts'
import { jsonBytes } from '../../meter/index.ts'

/** A JSON text in pieces that are written one after the other. */
export type Pieces = readonly (string | Uint8Array)[]

/** The text as one piece. */
export function joined(text: string | Pieces): string | Buffer {
  if (typeof text === 'string') return text
  return Buffer.concat(text.map(piece => (typeof piece === 'string' ? Buffer.from(piece) : piece)))
}

/**
 * A string of at least this many UTF-16 units is looked up among the strings as sent; for a shorter one, writing it as
 * JSON costs about as much. (Reading and writing takes as long either way at 4 KB, less than half as long at 16 KB, a
 * third at 64 KB.)
 */
const LONG_TEXT = 8 * 1024

/**
 * Replaces a long string while the text around it is parsed or written. The random part never leaves the process, so no
 * client can send it.
 */
const MARK = `${randomBytes(16).toString('hex')}:`

/**
 * The long strings of a body, each with the bytes that the client sent. A text that goes upstream unchanged is sent as
 * these bytes, because writing one megabyte as JSON takes 2.5 ms of the event loop, and copying it half as much again.
 * The spelling may differ from that of JSON.stringify (`\/`), the value never: a string is found by its value, not by
 * its place.
 */
export class Verbatim {
  readonly #long: LongText[] = []
  readonly #inserted: (string | Uint8Array | Pieces)[] = []

  /** Whether the body's long strings save more time than looking at each of its values costs. */
  static pays({ long, nodes }: JsonBytes): boolean {
    let bytes = 0
    for (const { from, to } of long) bytes += to - from
    return Verbatim.paysFor(bytes, nodes)
  }

  /** The same. @param longBytes of all long strings together */
  static paysFor(longBytes: number, nodes: number): boolean {
    return longBytes > NODE_BYTES * nodes
  }

  /**
   * Of a body that another thread has parsed. To read a string again would cost what it saves, so of its long strings
   * those are taken that are plain ASCII, such as images: their bytes are their text.
   */
  static of(bytes: Uint8Array, { long }: JsonBytes): Verbatim {
    const sent = new Verbatim()
    const body = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    for (const { from, to } of long) {
      const json = body.subarray(from, to)
      if (json.length < LONG_TEXT + 2 || !isAscii(json) || json.includes(BACKSLASH)) continue
      sent.#long.push({ text: null, json })
    }
    return sent
  }

  /**
   * The value of a JSON body whose shape was read to its end; the same that `parseJson` gives.
   * @throws SyntaxError
   */
  parse({ bytes, long }: JsonBytes): unknown {
    const body = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    const texts: string[] = []
    let rest = ''
    let at = body.length - jsonBytes(bytes).length
    for (const { from, to } of long) {
      if (body[pastBlanks(body, to)] === COLON) continue // The name of a member.
      const json = body.subarray(from, to)
      const text = JSON.parse(json.toString('utf8')) as string
      rest += `${body.toString('utf8', at, from)}"${MARK}${texts.length}"`
      at = to
      texts.push(text)
      // Bytes that are not UTF-8 were read as U+FFFD and must be sent as that. So must an unpaired half of a surrogate
      // pair, which `wellFormed` replaces in the whole body.
      if (text.length >= LONG_TEXT && isUtf8(json) && text.isWellFormed()) this.#long.push({ text, json })
    }
    rest += body.toString('utf8', at)
    return JSON.parse(rest, (_, value) =>
      typeof value === 'string' && value.startsWith(MARK) ? texts[Number(value.slice(MARK.length))] : value,
    )
  }

  /** JSON with a mark for each long string, to be given to `pieces`. */
  write(body: object): string {
    let next = 0
    return JSON.stringify(body, (_, value) => {
      if (typeof value !== 'string' || value.length < LONG_TEXT) return value
      const i = this.#find(value, next)
      if (i < 0) return value
      next = i + 1
      return `${MARK}${i}`
    })
  }

  /**
   * The place of a long string, which most often is the next one. Only those around it are compared: among thousands of
   * the same length that differ in their last letter, each would be read thousands of times.
   */
  #find(value: string, next: number): number {
    const { length } = this.#long
    for (let k = 0; k < Math.min(length, NEAR); k++) {
      // 0, -1, 1, -2, … from the next one.
      const i = (next + (k % 2 === 0 ? k / 2 : length - (k + 1) / 2)) % length
      if (isText(this.#long[i]!, value)) return i
    }
    return -1
  }

  /**
   * Takes JSON that was written beforehand.
   * @returns the string that stands for it in a body, until `pieces` puts the JSON in its place
   */
  insert(json: string | Uint8Array | Pieces): string {
    return `${MARK}i${this.#inserted.push(json) - 1}`
  }

  /** The JSON that `write` made, with the strings as sent and what was inserted in place of their marks. */
  pieces(json: string): string | Pieces {
    const pieces: (string | Uint8Array)[] = []
    let at = 0
    for (;;) {
      const mark = json.indexOf(`"${MARK}`, at)
      if (mark < 0) break
      const end = json.indexOf('"', mark + 1)
      const name = json.slice(mark + 1 + MARK.length, end)
      const whole = name.startsWith('i') ? this.#inserted[Number(name.slice(1))]! : this.#long[Number(name)]!.json
      pieces.push(json.slice(at, mark), ...(Array.isArray(whole) ? (whole as Pieces) : [whole as string | Uint8Array]))
      at = end + 1
    }
    if (at === 0) return json
    pieces.push(json.slice(at))
    return pieces
  }
}

interface LongText {
  /** Null: the bytes are plain ASCII without a backslash, and so between their quotation marks they are the text. */
  text: string | null
  json: Buffer
}

/**
 * To read a file of 6 MiB for this would make a string outside of the heap, which takes 2 ms, and V8 compares such a
 * string with another one letter by letter, which takes 6. In pieces it takes 1.
 */
const PIECE = 64 * 1024
const written = Buffer.allocUnsafeSlow(PIECE)

function isText({ text, json }: LongText, value: string): boolean {
  if (text !== null) return text === value
  if (value.length !== json.length - 2) return false
  for (let from = 0; from < value.length; from += PIECE) {
    const piece = value.slice(from, from + PIECE)
    // A letter beyond ASCII is written as several bytes, none of which is in `json`, or does not fit.
    const length = written.write(piece)
    if (length !== piece.length || written.compare(json, from + 1, from + 1 + length, 0, length) !== 0) return false
  }
  return true
}

/** Looking at one value twice costs about as much as writing this many bytes. */
const NODE_BYTES = 128
/** So many strings are compared with one that is written, half of them behind and half before the last one found. */
const NEAR = 16
const COLON = 0x3a
const BACKSLASH = 0x5c
