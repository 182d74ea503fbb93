/**
 * Counts of long parts, remembered: agents resend their whole history with every turn. Keyed by a digest of the text; no text is kept.
 */
import { type CipherGCM, createCipheriv, createSecretKey, randomBytes } from 'node:crypto'
import { isStringOneByteRepresentation } from 'node:v8'

/** Parts shorter than this (UTF-16 units) are about as cheap to count again as to look up. */
export const CACHED_FROM = 1536

/** What an entry takes: its place in the Map and a string of 16 bytes, with their headers; measured on the heap, 70, and doubled for a Map that is about to grow. */
const ENTRY_BYTES = 128

/** Digests by token count. Least recently used entries go first. */
export class CountCache {
  readonly #entries = new Map<string, number>()
  readonly #capacity: number

  /** `bytes`: what it may take of memory. */
  constructor(bytes: number) {
    this.#capacity = Math.max(1, Math.floor(bytes / ENTRY_BYTES))
  }

  get(key: string): number | undefined {
    const count = this.#entries.get(key)
    if (count === undefined) return undefined
    this.#entries.delete(key)
    this.#entries.set(key, count)
    return count
  }

  set(key: string, count: number): void {
    if (!this.#entries.delete(key) && this.#entries.size >= this.#capacity) {
      const { value } = this.#entries.keys().next()
      if (value !== undefined) this.#entries.delete(value)
    }
    this.#entries.set(key, count)
  }

  get size(): number {
    return this.#entries.size
  }
}

/*
 * The digest is GMAC (NIST SP 800-38D): AES-GCM's authentication tag, 128 bits, over the text, under a key that this process made up and nobody else learns. Two
 * different texts of n blocks share it with a chance of n / 2^128 over the keys; since keys and digests never leave the process, nobody can aim for that. The
 * nonces may stay the same: nothing is encrypted, and tags are never shown. Chosen for its speed, 15 µs for 100 KB; SHA-256 takes 60 with a processor's SHA
 * instructions, and 500 without.
 *
 * Digested is the text as V8 keeps it, in one byte a unit or in two, since that is copied without looking at it. A text that comes in the other form than it did
 * before is not recognised: it is counted again, no more. (JSON.parse uses two only where it must.)
 */
const ALGORITHM = 'aes-256-gcm'
const key = createSecretKey(randomBytes(32))
const options = { authTagLength: 16 }
/** The same bytes may be a text in one form, another in the other, and a row of texts. Their digests must differ: each kind has a nonce of its own. */
const LATIN1 = Buffer.alloc(12, 1)
const UTF16 = Buffer.alloc(12, 2)
const ROW = Buffer.alloc(12, 3)

/** UTF-16 units copied at once. */
const STRETCH = 1 << 16
const scratch = Buffer.alloc(2 * STRETCH)

export function digest(text: string): string {
  const mac = begin(text)
  for (let at = 0; at < text.length; at += STRETCH) feed(mac, text, at, STRETCH)
  return finish(mac)
}

/** `digest` with a rest after every `slice` UTF-16 units. */
export async function digestInSlices(text: string, slice: number, rest: () => Promise<void>): Promise<string> {
  const mac = begin(text)
  const step = Math.min(slice, STRETCH)
  for (let at = 0, rested = 0; at < text.length; at += step) {
    if (at - rested >= slice) {
      rested = at
      await rest()
    }
    feed(mac, text, at, step)
  }
  return finish(mac)
}

/** The digest of `texts[from, to)` in a row, each shorter than `STRETCH`. Beginning a digest takes as long as 50 KB of it: a row is cheaper than its parts. */
export function digestRow(texts: readonly string[], from: number, to: number): string {
  const mac = createCipheriv(ALGORITHM, key, ROW, options)
  let at = 0
  for (let i = from; i < to; i++) {
    const text = texts[i]!
    if (at + 4 + 2 * text.length > scratch.length) {
      mac.setAAD(scratch.subarray(0, at))
      at = 0
    }
    // Each text's form and length stand before it: where one ends and the next begins makes a difference to the count.
    const oneByte = isStringOneByteRepresentation(text)
    scratch.writeUInt32LE(2 * text.length + (oneByte ? 0 : 1), at)
    at += 4 + scratch.write(text, at + 4, oneByte ? 'latin1' : 'utf16le')
  }
  mac.setAAD(scratch.subarray(0, at))
  return finish(mac)
}

function begin(text: string): CipherGCM {
  return createCipheriv(ALGORITHM, key, isStringOneByteRepresentation(text) ? LATIN1 : UTF16, options)
}

function feed(mac: CipherGCM, text: string, at: number, units: number): void {
  const whole = at === 0 && units >= text.length
  const encoding = isStringOneByteRepresentation(text) ? 'latin1' : 'utf16le'
  const written = scratch.write(whole ? text : text.slice(at, at + units), 0, encoding)
  mac.setAAD(scratch.subarray(0, written))
}

function finish(mac: CipherGCM): string {
  mac.final()
  return mac.getAuthTag().toString('latin1')
}
