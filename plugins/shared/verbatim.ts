import { isUtf8 } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { type JsonBytes, pastBlanks } from '../../core/json-bytes.ts'
import { jsonBytes } from '../../meter/index.ts'

/** A JSON text in pieces, written one after the other. */
export type Pieces = readonly (string | Uint8Array)[]

/** The text in one piece. */
export function joined(text: string | Pieces): string | Buffer {
  if (typeof text === 'string') return text
  return Buffer.concat(text.map(piece => (typeof piece === 'string' ? Buffer.from(piece) : piece)))
}

/**
 * UTF-16 units from which on a string of the body is looked up: below, writing it anew costs about as much. (To read and write 4 KB takes as long either
 * way, 16 KB less than half as long, 64 KB a third.)
 */
const LONG_TEXT = 8 * 1024

/** Stands for a long string while what is around it is parsed or written. It never leaves the process, so nobody can send it. */
const MARK = `${randomBytes(16).toString('hex')}:`

/**
 * The long strings of a body with the bytes that they were sent as. A text that goes on to the upstream as it came goes as these bytes: to write a megabyte as
 * JSON takes 2.5 ms of the event loop, and its copies half as much again. It may be spelled otherwise than JSON.stringify would (`\/`), never with another value:
 * what is replaced is known by its value, not by its place.
 */
export class Verbatim {
  readonly #long: { text: string; json: Uint8Array }[] = []

  /** Whether the body's long strings outweigh what looking at each of its values costs. */
  static pays({ long, nodes }: JsonBytes): boolean {
    let bytes = 0
    for (const { from, to } of long) bytes += to - from
    return bytes > NODE_BYTES * nodes
  }

  /** The value of a JSON body that was read to its end, the same that `parseJson` gives. Throws a SyntaxError. */
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
      // What is no UTF-8 was read as U+FFFD, and must be sent as that. So must half a surrogate pair, which `write` leaves for the whole body.
      if (text.length >= LONG_TEXT && isUtf8(json) && text.isWellFormed()) this.#long.push({ text, json })
    }
    rest += body.toString('utf8', at)
    return JSON.parse(rest, (_, value) =>
      typeof value === 'string' && value.startsWith(MARK) ? texts[Number(value.slice(MARK.length))] : value,
    )
  }

  /** JSON with a mark for each long string: for `pieces`. */
  write(body: object): string {
    return JSON.stringify(body, (_, value) => {
      if (typeof value !== 'string' || value.length < LONG_TEXT) return value
      const i = this.#long.findIndex(({ text }) => text === value)
      return i < 0 ? value : `${MARK}${i}`
    })
  }

  /** What `write` wrote, with the strings in place of their marks. */
  pieces(json: string): string | Pieces {
    const pieces: (string | Uint8Array)[] = []
    let at = 0
    for (;;) {
      const mark = json.indexOf(`"${MARK}`, at)
      if (mark < 0) break
      const end = json.indexOf('"', mark + 1)
      pieces.push(json.slice(at, mark), this.#long[Number(json.slice(mark + 1 + MARK.length, end))]!.json)
      at = end + 1
    }
    if (at === 0) return json
    pieces.push(json.slice(at))
    return pieces
  }
}

/** A value costs about as much to look at, twice, as so many bytes to write. */
const NODE_BYTES = 128
const COLON = 0x3a
