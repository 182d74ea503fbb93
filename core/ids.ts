/** Random identifiers, from a pool of the system's randomness: one system call for many ids. */
import { randomFillSync } from 'node:crypto'

const ALPHABET = Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789')
/** Letters drawn ahead. */
const pool = Buffer.alloc(8192)
let next = pool.length
let drawn = pool.length

function draw(): void {
  randomFillSync(pool)
  drawn = 0
  // 248 is the largest multiple of 62 in a byte: above it the draw would favour the first letters.
  for (const b of pool) if (b < 248) pool[drawn++] = ALPHABET[b % 62]!
  next = 0
}

/** `length` characters of [A-Za-z0-9], at most 64, uniform: 5.95 bits each. */
export function token(length = 24): string {
  if (next + length > drawn) draw()
  const from = next
  next += length
  return pool.toString('latin1', from, next)
}

/** In the order of their bytes. */
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
/** Base 62 digits of Unix milliseconds, until the year 2081. */
const TIME_DIGITS = 7
let prefixOf = 0
let prefix = ''

function requestPrefix(): string {
  const now = Date.now()
  if (now === prefixOf) return prefix
  prefixOf = now
  let time = ''
  for (let rest = now; time.length < TIME_DIGITS; rest = Math.floor(rest / 62)) time = DIGITS[rest % 62] + time
  prefix = 'req_' + time
  return prefix
}

/**
 * `x-request-id`: 7 characters of time, then 17 of chance, 101 bits. Ids that grow with time keep an index of them hot at its end, as those of RFC 9562,
 * version 7, do: a ledger row costs a third less.
 */
export const requestId = (): string => requestPrefix() + token(17)
/** A public tool-call id, the same on every surface (TOOL-1). */
export const callId = (): string => 'call_eba1_' + token(24)
/** A Responses output item. */
export const itemId = (): string => 'item_eba1_' + token(24)
/** A hosted search, on Messages (MSG-3). */
export const searchId = (): string => 'hist_eba1_' + token(24)
