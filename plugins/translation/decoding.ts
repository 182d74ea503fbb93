/**
 * Removes a content encoding that was not requested (the gateway asks for identity; some providers and proxies compress
 * all the same). It works as a stream and limits the decoded size, so that a decompression bomb is stopped there.
 */

import type { Transform } from 'node:stream'
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress, type Zlib } from 'node:zlib'
import { FrameLimit } from '../../core/ports/dialect.ts'

type Coder = Transform & Zlib

const CODERS: Readonly<Record<string, () => Coder>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
  zstd: createZstdDecompress as unknown as () => Coder,
}

/** What takes the decoded body. */
export interface DecodedSink {
  /** Decoded bytes; the callee may keep them. */
  decoded(bytes: Buffer): void
  /** Everything was decoded. */
  decodedEnd(): void
  /** The bytes do not fit the encoding; `FrameLimit`: the decoded body is too large. */
  decodedError(error: Error): void
  /** All pushed bytes are decoded: more may be pushed. */
  decodedDrain(): void
}

export class Decoding {
  readonly #coder: Coder

  #size = 0

  /** @returns null when the encoding is not known; several on top of each other are not */
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
      sink.decodedError(new FrameLimit(limit))
    })
    coder.on('end', () => sink.decodedEnd())
    coder.on('error', error => sink.decodedError(error))
    coder.on('drain', () => sink.decodedDrain())
  }

  /**
   * Takes encoded bytes and copies them.
   * @returns false when the caller should wait for `decodedDrain`
   */
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
