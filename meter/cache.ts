/**
 * Counts of long parts, remembered: agents resend their whole history with every turn. Keyed by a digest of the text; no text is kept.
 */
import { type CipherGCM, createCipheriv, createSecretKey, randomBytes } from 'node:crypto'

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
 * The digest is GMAC (NIST SP 800-38D): AES-GCM's authentication tag, 128 bits, over the text's UTF-8, under a key that this process made up and nobody else
 * learns. Two different texts of n blocks share it with a chance of n / 2^128 over the keys; since keys and digests never leave the process, nobody can aim for
 * that. The nonce may stay the same: nothing is encrypted, and tags are never shown. Chosen for its speed: 0.13 ms for 200 KB in parts of 8 KB, where SHA-256
 * takes 1.1 ms and BLAKE2b 0.3 ms on a processor without SHA instructions.
 *
 * A lone surrogate is U+FFFD in UTF-8, so texts that differ only there share a digest. They share their count as well.
 */
const ALGORITHM = 'aes-256-gcm'
const key = createSecretKey(randomBytes(32))
const nonce = Buffer.alloc(12)
const options = { authTagLength: 16 }

/** UTF-16 units turned into UTF-8 at once. */
const STRETCH = 1 << 16
// One unit more, for a pair at the end.
const scratch = Buffer.alloc(3 * (STRETCH + 1))

export function digest(text: string): string {
  const mac = createCipheriv(ALGORITHM, key, nonce, options)
  for (let at = 0; at < text.length; ) at = feed(mac, text, at, STRETCH)
  return finish(mac)
}

/** `digest` with a rest after every `slice` UTF-16 units or so. */
export async function digestInSlices(text: string, slice: number, rest: () => Promise<void>): Promise<string> {
  const mac = createCipheriv(ALGORITHM, key, nonce, options)
  let rested = 0
  for (let at = 0; at < text.length; ) {
    at = feed(mac, text, at, Math.min(slice, STRETCH))
    if (at - rested >= slice) {
      rested = at
      await rest()
    }
  }
  return finish(mac)
}

/** Feeds up to `units` from `at`; returns where it stopped. A surrogate pair is not cut: its halves alone would both become U+FFFD. */
function feed(mac: CipherGCM, text: string, at: number, units: number): number {
  let end = at + units
  if (end < text.length) {
    const last = text.charCodeAt(end - 1)
    if (last >= 0xd800 && last < 0xdc00) end++
  }
  const whole = at === 0 && end >= text.length
  const written = scratch.write(whole ? text : text.slice(at, end), 0, 'utf8')
  mac.setAAD(scratch.subarray(0, written))
  return end
}

function finish(mac: CipherGCM): string {
  mac.final()
  return mac.getAuthTag().toString('latin1')
}
