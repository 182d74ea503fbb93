import type { UwsResponse } from './native.ts'

/**
 * R7: bytes per cork, framing included. The tested build loses bytes when a cork outgrows its 16 KB buffer while the client is slow; below that
 * the path is not reached. Not an option: nobody who raises it would notice what is missing.
 */
export const CORK_BYTES = 12 * 1024

/** Room in a cork for what uWebSockets.js adds to a head: Date, Content-Length or Transfer-Encoding, Connection, a chunk's size and line ends. */
export const HEAD_FRAMING_BYTES = 192

/** Bytes of one chunk in a cork without a head: size line and line ends need 8, the chunk that ends the body 5 more. */
export const CHUNK_BYTES = CORK_BYTES - 32

/** Whether an answer may be written in one cork (R7). No character is more than three bytes: most answers need not be measured. */
export function fitsCork(head: string, body: string | Uint8Array): boolean {
  const room = CORK_BYTES - HEAD_FRAMING_BYTES - head.length
  return body.length * 3 <= room || byteLength(body) <= room
}

export function byteLength(body: string | Uint8Array): number {
  return typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength
}

/**
 * Fills corks, for all exchanges of one listener. A cork is filled within the call that asks for it, so that one is at
 * work at a time: its content is laid down here, and no answer or chunk needs a function of its own.
 */
export class Cork {
  #res: UwsResponse | undefined
  #head = ''
  #body: string | Uint8Array = ''
  #close = false
  #bodiless = false
  /** Whether the kernel has taken the chunk, and all that was written before it. */
  #taken = true

  /**
   * One whole answer, which fits.
   * @param bodiless only the head is sent; it tells the body's length where there is one to tell
   */
  answer(res: UwsResponse, head: string, body: string | Uint8Array, close: boolean, bodiless: boolean): void {
    this.#close = close
    this.#bodiless = bodiless
    this.#fill(res, head, body, this.#answer)
  }

  /**
   * One piece of a stream, which fits. False when the kernel has not taken all of it, or of what was written before.
   * @param head with the first piece, else ''
   */
  chunk(res: UwsResponse, head: string, piece: string | Uint8Array): boolean {
    this.#fill(res, head, piece, this.#chunk)
    return this.#taken
  }

  #fill(res: UwsResponse, head: string, body: string | Uint8Array, fill: () => void): void {
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
