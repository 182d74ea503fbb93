/** Random identifiers. Their randomness comes from a pool, so that one system call serves many ids. */
import { randomFillSync } from 'node:crypto'

const ALPHABET = Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789')
/** Random letters for the next ids: those from `next` to `drawn` are unused. */
const pool = Buffer.alloc(8192)
let next = pool.length
let drawn = pool.length

function draw(): void {
  randomFillSync(pool)
  drawn = 0
  // 248 is the largest multiple of 62 in a byte. Using the values above it would make the first letters more likely.
  for (const b of pool) if (b < 248) pool[drawn++] = ALPHABET[b % 62]!
  next = 0
}

/**
 * `length` characters of [A-Za-z0-9], uniform: 5.95 bits each.
 * @param length at most 64
 */
export function token(length = 24): string {
  if (next + length > drawn) draw()
  const from = next
  next += length
  return pool.toString('latin1', from, next)
}

/** The digits of base 62, in the order of their byte values, so that ids sort by time. */
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
/** Seven base 62 digits hold Unix milliseconds until the year 2081. */
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
 * A new `x-request-id`: `req_`, 7 characters of time, then 17 random ones (101 bits). Because ids grow with time,
 * inserts touch only the end of an index on them, as with UUID version 7 (RFC 9562): a ledger row costs a third less.
 */
export const requestId = (): string => requestPrefix() + token(17)
/** When a request id was made, in Unix milliseconds; undefined when the text is not a request id. */
export function requestIdTime(id: string): number | undefined {
  if (!/^req_[0-9A-Za-z]{24}$/.test(id)) return undefined
  let time = 0
  for (const digit of id.slice(4, 4 + TIME_DIGITS)) time = time * 62 + DIGITS.indexOf(digit)
  return time
}
/** A new public id of a tool call, in the same form on every surface (TOOL-1). */
export const callId = (): string => 'call_eba1_' + token(24)
/** A new id of a Responses output item. */
export const itemId = (): string => 'item_eba1_' + token(24)
/** A new id of a hosted search on Messages (MSG-3). */
export const searchId = (): string => 'hist_eba1_' + token(24)
