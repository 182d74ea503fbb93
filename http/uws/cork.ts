import type { UwsResponse } from './native.ts'

/** What is written within a cork, and `cork` itself. */
export type CorkedResponse = Pick<UwsResponse, 'cork' | 'writeStatus' | 'write' | 'end' | 'endWithoutBody'>

/** A head for `writeStatus`: ASCII text, or bytes where a value has others, since text is sent as UTF-8. */
export type HeadBytes = string | Uint8Array

/**
 * R7: largest size of a cork in bytes, including framing. The tested build loses bytes when a cork exceeds its 16 KB
 * buffer while the client is slow; smaller corks do not reach that code. This is not an option, because an operator
 * who raised it would not notice the missing bytes.
 */
export const CORK_BYTES = 12 * 1024

/**
 * Bytes reserved in a cork for what uWebSockets.js adds to a head: Date, Content-Length or Transfer-Encoding,
 * Connection, the size of a chunk, and line ends.
 */
export const HEAD_FRAMING_BYTES = 192

/**
 * Largest chunk in a cork without a head, in bytes: its size line and line ends need 8, the chunk that ends the body
 * 5 more.
 */
export const CHUNK_BYTES = CORK_BYTES - 32

/**
 * Whether a response fits in one cork (R7). A UTF-16 code unit takes at most three bytes in UTF-8, so most bodies
 * need not be measured.
 */
export function fitsCork(head: HeadBytes, body: string | Uint8Array): boolean {
  const room = CORK_BYTES - HEAD_FRAMING_BYTES - head.length
  return body.length * 3 <= room || byteLength(body) <= room
}

export function byteLength(body: string | Uint8Array): number {
  return typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength
}

/**
 * Fills corks for all exchanges of one listener. A cork is filled within the call that asks for it, so only one is
 * filled at a time: its content is stored in this object, and no response or chunk needs a closure of its own.
 */
export class Cork {
  #res: CorkedResponse | undefined
  #head: HeadBytes = ''
  #body: string | Uint8Array = ''
  #close = false
  #bodiless = false
  /** Whether the kernel has taken the chunk and all bytes before it. */
  #taken = true

  /**
   * Sends one whole response, which must fit in a cork.
   * @param bodiless only the head is sent; it has the body's length where a length is allowed
   */
  answer(res: CorkedResponse, head: HeadBytes, body: string | Uint8Array, close: boolean, bodiless: boolean): void {
    this.#close = close
    this.#bodiless = bodiless
    this.#fill(res, head, body, this.#answer)
  }

  /**
   * Sends one piece of a stream, which must fit in a cork.
   * @param head with the first piece, else ''
   * @returns false when the kernel has not taken all of it, or of the bytes before it
   */
  chunk(res: CorkedResponse, head: HeadBytes, piece: string | Uint8Array): boolean {
    this.#fill(res, head, piece, this.#chunk)
    return this.#taken
  }

  #fill(res: CorkedResponse, head: HeadBytes, body: string | Uint8Array, fill: () => void): void {
    this.#res = res
    this.#head = head
    this.#body = body
    res.cork(fill)
    this.#res = undefined
    this.#body = ''
  }

  readonly #answer = (): void => {
    const res = this.#res!
    res.writeStatus(this.#head)
    if (this.#bodiless) res.endWithoutBody()
    else res.end(this.#body, this.#close)
  }

  readonly #chunk = (): void => {
    const res = this.#res!
    if (this.#head !== '') res.writeStatus(this.#head)
    this.#taken = res.write(this.#body)
  }
}
