/** Random identifiers, from a pool of the system's randomness: one system call for many ids. */
import { randomFillSync } from 'node:crypto'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
const pool = new Uint8Array(8192)
let next = pool.length

function randomByte(): number {
  if (next === pool.length) {
    randomFillSync(pool)
    next = 0
  }
  return pool[next++]!
}

/** `length` characters of [A-Za-z0-9], uniform: 5.95 bits each. */
export function token(length = 24): string {
  let out = ''
  while (out.length < length) {
    const b = randomByte()
    // 248 is the largest multiple of 62 in a byte: above it the draw would favour the first letters.
    if (b < 248) out += ALPHABET[b % 62]
  }
  return out
}

/** `x-request-id`. */
export const requestId = (): string => 'req_' + token(24)
/** A public tool-call id, the same on every surface (TOOL-1). */
export const callId = (): string => 'call_eba1_' + token(24)
/** A Responses output item. */
export const itemId = (): string => 'item_eba1_' + token(24)
/** A hosted search, on Messages (MSG-3). */
export const searchId = (): string => 'hist_eba1_' + token(24)
