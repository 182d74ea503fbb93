import { exactValues, type JsonPath, normalJson, wellFormed } from '../core/tools/json.ts'
import type { NormalText } from './pool.ts'

/**
 * The value of a JSON body in UTF-8. The event loop and the meter's threads use the same function.
 * @throws SyntaxError
 */
export function parseJson(body: Uint8Array): unknown {
  return JSON.parse(jsonBytes(body).toString('utf8'))
}

/**
 * The JSON of the objects and arrays at `path`, with the numbers spelled as in the body. A thread gives texts because
 * only they can be sent to another one.
 * @throws SyntaxError
 */
export function exactTexts(body: Uint8Array, path: JsonPath): string[] {
  return exactValues(jsonBytes(body).toString('utf8'), path).map(value => JSON.stringify(value))
}

/** From this many UTF-16 units on a text is also written as a JSON string, so that nobody has to do it later. */
const QUOTED_FROM = 8 * 1024

/** What a thread makes of a JSON text of a client. */
export function normalText(json: string): NormalText {
  const text = normalJson(json)
  const sent = text ?? json
  return {
    text: sent === json ? '' : sent,
    // Memory of its own, which can go to another thread.
    quoted: sent.length < QUOTED_FROM ? undefined : new TextEncoder().encode(wellFormed(JSON.stringify(sent))),
    object: text?.[0] === '{',
  }
}

/**
 * The body without a byte order mark. JSON does not allow one, but some clients send it, and RFC 8259, section 8.1,
 * allows a parser to ignore it.
 */
export function jsonBytes(body: Uint8Array): Buffer {
  const mark = body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? 3 : 0
  return Buffer.from(body.buffer, body.byteOffset + mark, body.byteLength - mark)
}

/** The memory of a body that can go to another thread without a copy; none where it holds other things too. */
export function movable({ buffer, byteLength }: Uint8Array): ArrayBuffer[] {
  return byteLength > 0 && buffer.byteLength === byteLength && buffer instanceof ArrayBuffer ? [buffer] : []
}
