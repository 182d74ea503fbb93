/**
 * Units of gateway.yaml: durations, sizes, money, addresses. Every parser returns null for text that is not in its
 * unit.
 */

const DURATION = /^(\d{1,12})(?:\.(\d{1,3}))?(ms|s|m|h|d)$/
const DURATION_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** `250ms`, `60s`, `1.5s`, `5m`, `24h`, `30d`, `0` to whole milliseconds. */
export function parseDuration(text: string): number | null {
  if (text === '0') return 0
  return scaled(DURATION.exec(text), DURATION_MS)
}

const SIZE = /^(\d{1,15})(?:\.(\d{1,3}))?(B|KiB|MiB|GiB|TiB)$/
const SIZE_BYTES: Record<string, number> = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 }

/** `512B`, `64KiB`, `32MiB`, `1GiB`, `0` to whole bytes. */
export function parseSize(text: string): number | null {
  if (text === '0') return 0
  return scaled(SIZE.exec(text), SIZE_BYTES)
}

function scaled(match: RegExpExecArray | null, units: Record<string, number>): number | null {
  if (!match) return null
  const unit = units[match[3]!]!
  const value = Number(match[1]) * unit + Math.round((Number((match[2] ?? '').padEnd(3, '0')) / 1000) * unit)
  return Number.isSafeInteger(value) ? value : null
}

/**
 * A decimal amount times 10^places as a whole number, computed from its digits and never in floating point: `1.25` with
 * 6 places is 1250000. Null when the amount has more decimals than `places` or is negative, or when the result is not
 * below 2^53.
 */
export function parseDecimal(value: string | number, places: number): number | null {
  // `String` gives the shortest text that reads back as the same double. For a literal of at most 15 digits, that is
  // the literal's exact value.
  const match = /^(\d+)(?:\.(\d*))?(?:e([+-]\d+))?$/i.exec(String(value))
  if (!match) return null
  const fraction = match[2] ?? ''
  const shift = places - fraction.length + Number(match[3] ?? 0)
  if (Math.abs(shift) > 60) return /^0*$/.test(match[1]! + fraction) ? 0 : null
  let digits = BigInt(match[1]! + fraction)
  if (shift >= 0) digits *= 10n ** BigInt(shift)
  else {
    const by = 10n ** BigInt(-shift)
    if (digits % by !== 0n) return null
    digits /= by
  }
  return digits <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(digits) : null
}

/** USD to whole nano-USD: `500.00` is 500000000000. */
export const parseUsd = (value: string | number) => parseDecimal(value, 9)

/** As `parseUsd`, and below zero with a minus sign. */
export function parseSignedUsd(value: string | number): number | null {
  const text = String(value)
  const amount = parseUsd(text.replace(/^-/, ''))
  return amount !== null && text.startsWith('-') ? -amount : amount
}

/** USD per million tokens to whole pico-USD per token: `1.25` is 1250000. */
export const parsePrice = (value: string | number) => parseDecimal(value, 6)

/** `127.0.0.1:8080`, `[::1]:8080`, `localhost:0`, `:8080` (every interface). */
export function parseListen(text: string): { host: string; port: number } | null {
  const match = /^(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:[\]/]*)):(\d{1,5})$/.exec(text)
  if (!match) return null
  const port = Number(match[3])
  if (port > 65535) return null
  return { host: match[1] ?? (match[2] === '' ? '0.0.0.0' : match[2]!), port }
}

/** Whether an address can be reached from this machine only. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)
}

/** `2026-11-24T18:00:00Z`, also with fractions of a second or an offset, to Unix milliseconds. */
export function parseTimestamp(text: string): number | null {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d)$/.test(text)) return null
  const time = Date.parse(text)
  return Number.isNaN(time) ? null : time
}
