/**
 * Times in the results of tools. A tool writes some of them anew each time although it has found the same: when it was,
 * and how long it took. Others are what it has found: the end of a progress bar, how long is left, the day up to which
 * rows were copied.
 *
 * The wall clock tells nothing: dates within two days of the present, and times of day where a log has them. Any other
 * time shows progress as long as it has only risen, or only fallen, since the call first brought that result. How long
 * something took goes up and down, and does so within a few results. Whether a result is new follows from those before
 * it, so that it stays so in all later requests of the conversation.
 */

/** Longer results of tools are compared as they are. */
const MOST_TIMED = 65_536
/** So many times of a result, the last ones, can show progress. */
const MOST_KEPT = 256
/** Local times without their zone are up to 14 hours off. */
const PRESENT_MS = 48 * 3_600_000

/** A date with or without a time; a time of day or on a progress bar; a duration; the number of a Codex output. */
const TIMES =
  /\b(?:(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?)|(\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?)|(\d{1,9}(?:\.\d{1,9})?) ?([mµun]?s|sec(?:ond)?s?|min(?:ute)?s?|h(?:ours?)?))\b|^Chunk ID: [0-9a-f]+$/gm
/** What stands before a time of day: the beginning of the line, "at", or a date in another form. */
const BEFORE_OF_DAY =
  /(?:(?:^|\n) {0,8}[[(]?|\bat:? {1,4}|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.? {1,2}\d{1,2},? |\b\d{4}(?:,? |:))$/i
const LONGEST_BEFORE = 24
/** What stands behind the first of two, of which the other is the end. */
const BEFORE_END = /^ ?(?:\/|of\b|<)/

/** What is known of a result without its times. */
class Seen {
  /** The last value of each time; NaN for one that tells nothing, or tells nothing any more. */
  readonly #values: Float64Array
  /** Whether it rises (1) or falls (-1); 0 while it has not moved. */
  readonly #ways: Int8Array

  constructor(values: Float64Array) {
    this.#values = values
    this.#ways = new Int8Array(values.length)
  }

  /** @returns whether a time has moved on, in the one direction that it has */
  next(values: Float64Array): boolean {
    let moved = false
    for (const [i, value] of values.entries()) {
      const way = Math.sign(value - this.#values[i]!)
      // Of the same result some times may be present now, and tell nothing.
      if (way === 0 || Number.isNaN(value)) continue
      if (this.#ways[i] === 0) this.#ways[i] = way
      const goesOn = this.#ways[i] === way
      this.#values[i] = goesOn ? value : Number.NaN
      moved ||= goesOn
    }
    return moved
  }
}

/** The steps of a conversation that were there already. */
export class Steps {
  readonly #seen = new Map<string, Seen>()

  /**
   * @param digest of the step without its times
   * @param values of those times, as `untimed` tells them
   * @returns whether the step brings something new
   */
  isNew(digest: string, values: readonly number[]): boolean {
    const kept = Float64Array.from(values.slice(-MOST_KEPT))
    const seen = this.#seen.get(digest)
    if (!seen) this.#seen.set(digest, new Seen(kept))
    return seen === undefined || seen.next(kept)
  }
}

/**
 * A text without its times.
 * @param now Unix milliseconds
 * @param values gets a number for each time: seconds, or NaN for one that tells nothing
 */
export function untimed(text: string, now: number, values: number[]): string {
  if (text.length > MOST_TIMED) return text
  type Found = string | undefined
  return text.replace(TIMES, (_, date: Found, clock: Found, length: Found, unit: Found, at: number) => {
    if (date !== undefined) values.push(valueOfDate(date, now))
    else if (clock !== undefined) values.push(isOfDay(text, at, clock.length) ? Number.NaN : valueOfClock(clock))
    else if (length !== undefined) values.push(Number(length) * secondsIn(unit!))
    return '#'
  })
}

function valueOfDate(date: string, now: number): number {
  const [day, rest = ''] = [date.slice(0, 10), date.slice(11).replace(',', '.')]
  const zoned = rest === '' || /(?:Z|[+-]\d\d:?\d\d)$/.test(rest) ? rest : `${rest}Z`
  const ms = Date.parse(rest === '' ? day : `${day}T${zoned.replace(/([+-]\d\d)(\d\d)$/, '$1:$2')}`)
  return Math.abs(ms - now) < PRESENT_MS ? Number.NaN : ms / 1000
}

function isOfDay(text: string, at: number, length: number): boolean {
  if (BEFORE_END.test(text.slice(at + length, at + length + 4))) return false
  const from = at - LONGEST_BEFORE
  // A slice that begins within a line is not to look like the beginning of one.
  return BEFORE_OF_DAY.test(from > 0 ? `.${text.slice(from, at)}` : text.slice(0, at))
}

function valueOfClock(clock: string): number {
  const [hours, minutes, seconds] = clock.replace(',', '.').split(':').map(Number)
  return hours! * 3600 + minutes! * 60 + seconds!
}

function secondsIn(unit: string): number {
  if (unit.startsWith('h')) return 3600
  if (unit.startsWith('min')) return 60
  return { ms: 1e-3, µs: 1e-6, us: 1e-6, ns: 1e-9 }[unit] ?? 1
}
