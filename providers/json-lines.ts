import { StringDecoder } from 'node:string_decoder'
import { type FrameHandler, FrameLimit, type FrameReader } from '../core/ports/dialect.ts'

/** UTF-16 units of the longest line. */
const LONGEST = 1 << 20

/** The framing of JSON lines (NDJSON): each line that is not blank is a frame, without the name of an event. */
export class JsonLines implements FrameReader {
  readonly #utf8 = new StringDecoder('utf8')
  #line = ''

  /** @throws FrameLimit for a line of over a million characters */
  push(chunk: Buffer, onFrame: FrameHandler): void {
    const lines = (this.#line + this.#utf8.write(chunk)).split('\n')
    this.#line = lines.pop()!
    for (const line of [...lines, this.#line]) if (line.length > LONGEST) throw new FrameLimit(LONGEST)
    for (const line of lines) if (line.trim() !== '') onFrame('', line)
  }
  end(onFrame: FrameHandler): void {
    if (this.#line.trim() !== '') onFrame('', this.#line)
  }
}
