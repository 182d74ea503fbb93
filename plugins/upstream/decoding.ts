/**
 * Undoes a content encoding that was not asked for (we ask for identity; some providers and proxies compress all the same), as a stream and with a
 * cap on what comes out: a bomb of 1:1000 is stopped at the cap.
 */

import type { Transform } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress, type Zlib } from 'node:zlib'

type Coder = Transform & Zlib

const CODERS: Readonly<Record<string, () => Coder>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
  zstd: createZstdDecompress as unknown as () => Coder,
}

export interface DecodedSink {
  /** Decoded bytes; the callee's own. */
  decoded(bytes: Buffer): void
  /** Everything was decoded. */
  decodedEnd(): void
  /** The bytes are not what the encoding says, or there are too many of them. */
  decodedError(error: Error): void
  /** What was pushed is decoded: more may come. */
  decodedDrain(): void
}

export class Decoding {
  readonly #coder: Coder

  #size = 0

  /** @returns null when the encoding is none that we know; several on top of each other are none. */
  static of(encoding: string, limit: number, sink: DecodedSink): Decoding | null {
    const make = CODERS[encoding.trim().toLowerCase()]
    return make ? new Decoding(make(), limit, sink) : null
  }

  private constructor(coder: Coder, limit: number, sink: DecodedSink) {
    this.#coder = coder

    coder.on('data', (bytes: Buffer) => {
      this.#size += bytes.length
      if (this.#size <= limit) return sink.decoded(bytes)
      this.destroy()
      sink.decodedError(new Error(`the decoded body is over ${limit} bytes`))
    })
    coder.on('end', () => sink.decodedEnd())
    coder.on('error', error => sink.decodedError(error))
    coder.on('drain', () => sink.decodedDrain())
  }

  /** Takes encoded bytes, copied. False: wait for `decodedDrain`. */
  push(bytes: Buffer): boolean {
    return this.#coder.destroyed || this.#coder.write(Buffer.from(bytes))
  }
  end(): void {
    this.#coder.end()
  }
  pause(): void {
    this.#coder.pause()
  }
  resume(): void {
    this.#coder.resume()
  }
  destroy(): void {
    this.#coder.removeAllListeners('data')
    this.#coder.removeAllListeners('end')
    this.#coder.destroy()
  }
}
