/**
 * Finds personal data in texts. Its time and memory have bounds: it looks at each character of a text a bounded number
 * of times, makes objects only for what it finds, and works in slices, so that a text of many megabytes does not hold
 * up other requests.
 */
import { PatternFinder } from './patterns.ts'

/** The kinds that are built in. Where data of two kinds overlap, the kind that is listed first here has them. */
export const KINDS = ['iban', 'email', 'card', 'phone'] as const
export type Kind = (typeof KINDS)[number]

/** Where data are in a text: from `start` to before `end`, in UTF-16 units. */
export interface Span {
  kind: string
  start: number
  end: number
}

/** What the scanners read of a string. Tests count it. */
export type Text = Pick<string, 'length' | 'charCodeAt'>

/** Work in slices: it yields where a slice ends, and returns its result. */
export type Slices<T> = Generator<undefined, T>

/** Runs the work to its end in one piece. */
export function atOnce<T>(work: Slices<T>): T {
  for (;;) {
    const { done, value } = work.next()
    if (done) return value
  }
}

/** The prompt takes more than a bound allows. It is refused then: nothing is sent that was not looked at. */
export class OverBound extends Error {
  readonly bound: 'max_found' | 'max_pattern_work'
  readonly limit: number

  constructor(bound: OverBound['bound'], limit: number) {
    super(bound)
    this.bound = bound
    this.limit = limit
  }
}

/** The most that is found in one prompt, and the most that its patterns may work. */
export interface Bounds {
  found: number
  /** Instructions of a pattern times the UTF-16 units that it may look at. */
  patternWork: number
}

/** Units of one slice. A unit is some 10 ns, so that a slice takes some milliseconds, whatever the text is. */
const SLICE = 131_072
/** A single search of a pattern may take at most this share of all the work that is allowed: some 30 ms by default. */
const SEARCH_SHARE = 100

/** What the work on one prompt has taken so far: of its slice, and of its bounds. */
export class Pace {
  readonly #bounds: Bounds
  readonly #slice: number
  #units = 0
  #found = 0
  #patternWork = 0

  /** @param slice units of a slice */
  constructor(bounds: Bounds, slice = SLICE) {
    this.#bounds = bounds
    this.#slice = slice
  }

  /** Counts work that was done. @returns true when the slice is used up: yield then */
  spent(units: number): boolean {
    this.#units += units
    if (this.#units < this.#slice) return false
    this.#units = 0
    return true
  }

  /** @throws OverBound when more is found than a prompt may hold */
  found(): void {
    if (++this.#found > this.#bounds.found) throw new OverBound('max_found', this.#bounds.found)
  }

  /** The most that a single search may take, in the unit of `patternWork`. */
  get longestSearch(): number {
    return this.#bounds.patternWork / SEARCH_SHARE
  }

  /** Counts a search that is about to be made. @throws OverBound instead of a search that is too much */
  searches(work: number): void {
    const { patternWork } = this.#bounds
    this.#patternWork += work
    if (work > this.longestSearch || this.#patternWork > patternWork)
      throw new OverBound('max_pattern_work', patternWork)
  }
}

/** Finds all that is to be masked. */
export class Finder {
  readonly #kinds: readonly Kind[]
  readonly #patterns: readonly PatternFinder[]
  /** No data is shorter, in UTF-16 units. */
  readonly #shortest: number

  constructor(kinds: readonly Kind[], patterns: readonly PatternFinder[]) {
    this.#kinds = KINDS.filter(kind => kinds.includes(kind))
    this.#patterns = patterns
    this.#shortest = patterns.length > 0 ? 1 : SHORTEST
  }

  /** @param patterns RE2 expressions by the kinds of what they find; they come before the built-in kinds */
  static async of(kinds: readonly Kind[], patterns: Readonly<Record<string, string>>): Promise<Finder> {
    return new Finder(kinds, await PatternFinder.all(patterns))
  }

  /**
   * Where the data are, in their order; no two overlap, and none overlaps a token of an earlier masking.
   * @throws OverBound
   */
  *find(text: string, pace: Pace): Slices<readonly Span[]> {
    if (text.length < this.#shortest) return []
    let spans: readonly Span[] = []
    for (const pattern of this.#patterns) spans = merged(spans, yield* pattern.find(text, pace))
    for (const found of yield* findKinds(text, this.#kinds, pace)) spans = merged(spans, found)
    return spans
  }
}

/**
 * Both lists in one, in the order of their places. Of the second list is left out what overlaps something of the first,
 * or something before it. Both are in the order of their places; nothing in the first overlaps.
 */
export function merged(first: readonly Span[], second: readonly Span[]): readonly Span[] {
  if (second.length === 0) return first
  const all: Span[] = []
  let end = 0
  let i = 0
  for (const span of second) {
    while (i < first.length && first[i]!.end <= span.start) all.push(first[i++]!)
    if (span.start < end || (i < first.length && first[i]!.start < span.end)) continue
    all.push(span)
    end = span.end
  }
  while (i < first.length) all.push(first[i++]!)
  return all
}

// ---- the built-in kinds ---------------------------------------------------------------------------------------------

/** UTF-16 units that are looked at between two looks at the pace. */
const STRIDE = 8192
/** `a@b.cc` */
const SHORTEST = 6

const DIGIT = 1
const LETTER = 2
/** May stand in a label of a domain, beside letters and digits. */
const HYPHEN = 4
/** May stand before the @ of an address, beside letters and digits. */
const LOCAL = 8
/** May stand between two digits of a phone number. */
const GAP = 16
/** Data may be found at it: a digit is one too. */
const MARK = 32
/** A letter, a digit or `_`. */
const WORD = 64

const CLASSES = new Uint8Array(128)
const mark = (characters: string, bits: number) => {
  for (const character of characters) CLASSES[character.charCodeAt(0)]! |= bits
}
mark('0123456789', DIGIT | WORD | LOCAL | MARK)
mark('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ', LETTER | WORD | LOCAL)
mark('_', WORD | LOCAL)
mark('.%+-', LOCAL)
mark('-', HYPHEN)
mark(' .()/-', GAP)
mark('@+(', MARK)

const AT = 0x40
const PLUS = 0x2b
const OPEN = 0x28
const CLOSE = 0x29
const DOT = 0x2e
const DASH = 0x2d
const SPACE = 0x20
const ZERO = 0x30
const NINE = 0x39

/** The bits of a character; 0 beyond the ends of the text and beyond ASCII. */
function classAt(text: Text, at: number): number {
  // NaN beyond the ends.
  const c = text.charCodeAt(at)
  return c < 128 ? CLASSES[c]! : 0
}
const isDigit = (text: Text, at: number): boolean => (classAt(text, at) & DIGIT) !== 0
const isAlphanumeric = (text: Text, at: number): boolean => (classAt(text, at) & (DIGIT | LETTER)) !== 0

/**
 * What each of these kinds finds, in the order of KINDS. Each place is looked at once; what is around a mark is
 * looked at up to a bounded distance. So it makes no difference where the slices end.
 */
export function* findKinds(text: Text, kinds: readonly Kind[], pace: Pace): Slices<Span[][]> {
  const finds = (kind: Kind) => (kinds.includes(kind) ? ([] as Span[]) : null)
  const [ibans, emails, cards, phones] = KINDS.map(finds)
  // Behind the last of its kind, or behind what was looked at for it.
  let [afterEmail, afterCard, afterPhone] = [0, 0, 0]
  const keep = (found: Span[], kind: string, start: number, end: number) => {
    if (touchesToken(text, start, end)) return
    pace.found()
    found.push({ kind, start, end })
  }
  for (let from = 0; from < text.length; from += STRIDE) {
    const to = Math.min(text.length, from + STRIDE)
    let units = to - from + OVERHEAD
    for (let at = from; at < to; at++) {
      const c = text.charCodeAt(at)
      if (c >= 128 || (CLASSES[c]! & MARK) === 0) continue
      if (c === AT) {
        if (!emails) continue
        const start = localStart(text, at, afterEmail)
        const end = start === at ? -1 : domainEnd(text, at + 1)
        if (end === -1) continue
        afterEmail = end
        keep(emails, 'EMAIL', start, end)
        continue
      }
      const digit = (CLASSES[c]! & DIGIT) !== 0
      // All that begins with a digit begins where the digits of the text begin.
      if (digit && isDigit(text, at - 1)) continue
      if (phones && at >= afterPhone) {
        const end = phoneEnd(text, at, c)
        if (end !== -1) {
          afterPhone = end
          keep(phones, 'PHONE', at, end)
        }
      }
      if (!digit) continue
      if (cards && at >= afterCard && c >= ZERO + 2 && c <= ZERO + 6) {
        units += CARD_UNITS
        const end = cardEnd(text, at)
        if (end !== -1) {
          afterCard = end
          keep(cards, 'CARD', at, end)
        }
      }
      if (ibans && (classAt(text, at - 1) & LETTER) !== 0) {
        units += IBAN_UNITS
        const end = ibanEnd(text, at - 2)
        if (end !== -1) keep(ibans, 'IBAN', at - 2, end)
      }
    }
    if (pace.spent(units)) yield
  }
  return [ibans, emails, cards, phones].filter(found => found != null)
}

/** What a text takes beside its characters, in units. */
const OVERHEAD = 64
/**
 * What it takes to look for a card number, whose groups may be of one digit, and for an IBAN, beside its characters.
 */
const CARD_UNITS = 8
const IBAN_UNITS = 32

/** Where the local part of an address begins, of at most 64 characters; `at` when there is none. */
function localStart(text: Text, at: number, after: number): number {
  let start = at
  while (start > after && at - start < 64 && isLocal(text.charCodeAt(start - 1))) start--
  return start
}

/** Letters and digits beyond ASCII, as they are met: 0 for not known yet, 1 for no, 2 for yes. */
const beyond = new Uint8Array(65_536)
function isLocal(c: number): boolean {
  if (c < 128) return (CLASSES[c]! & LOCAL) !== 0
  beyond[c] ||= /[\p{L}\p{N}]/u.test(String.fromCharCode(c)) ? 2 : 1
  return beyond[c] === 2
}

/** Where a domain ends that begins at `at`: one to eight labels and a top-level domain. -1 when there is none. */
function domainEnd(text: Text, at: number): number {
  let end = -1
  for (let labels = 0; labels <= 8; labels++) {
    let length = 0
    while (length < 64 && (classAt(text, at + length) & (DIGIT | LETTER | HYPHEN)) !== 0) length++
    if (labels > 0 && (classAt(text, at) & LETTER) !== 0) {
      let top = Math.min(length, 63)
      while (top > 1 && !isAlphanumeric(text, at + top - 1)) top--
      if (top > 1) end = at + top
    }
    if (length === 0 || length > 63 || text.charCodeAt(at + length) !== DOT) break
    at += length + 1
  }
  return end
}

/**
 * Where a card number ends that begins at `at`: 13 to 19 digits, as many as possible, in groups that end where the
 * text's groups end, with a right check digit. -1 when there is none.
 */
function cardEnd(text: Text, at: number): number {
  let end = -1
  // The check sums by which digits are doubled: those at even places from the left, and those at odd ones.
  let evens = 0
  let odds = 0
  let c = text.charCodeAt(at)
  for (let count = 1; ; count++) {
    const value = c - ZERO
    const doubled = value > 4 ? 2 * value - 9 : 2 * value
    evens += count % 2 === 1 ? doubled : value
    odds += count % 2 === 1 ? value : doubled
    c = text.charCodeAt(++at)
    if (!(c >= ZERO && c <= NINE)) {
      // The last digit is not doubled, the one before it is.
      if (count >= 13 && (count % 2 === 0 ? evens : odds) % 10 === 0) end = at
      if (c !== SPACE && c !== DASH) return end
      c = text.charCodeAt(++at)
      if (!(c >= ZERO && c <= NINE)) return end
    }
    if (count === 19) return end
  }
}

/** Where a phone number ends that begins at `at`; -1 when there is none. */
function phoneEnd(text: Text, at: number, c: number): number {
  if ((classAt(text, at - 1) & WORD) !== 0 || text.charCodeAt(at - 1) === PLUS) return -1
  const digits = c === PLUS ? 1 : c === ZERO && text.charCodeAt(at + 1) === ZERO ? 2 : 0
  const end = digits > 0 ? internationalEnd(text, at + digits) : -1
  return end !== -1 || c === PLUS ? end : northAmericanEnd(text, at, c)
}

/** 8 to 15 digits, the first of which is not 0, with up to two other characters between any two. */
function internationalEnd(text: Text, at: number): number {
  if (!isDigit(text, at) || text.charCodeAt(at) === ZERO) return -1
  let end = -1
  at++
  for (let count = 2; count <= 15; count++) {
    for (let gap = 0; gap < 2 && (classAt(text, at) & GAP) !== 0; gap++) at++
    if (!isDigit(text, at)) break
    at++
    if (count >= 8 && !isDigit(text, at)) end = at
  }
  return end
}

/** (555) 123-4567 and 555-123-4567, also with dots or spaces. */
function northAmericanEnd(text: Text, at: number, c: number): number {
  const digits = (count: number): boolean => {
    for (; count > 0 && isDigit(text, at); count--) at++
    return count === 0
  }
  const gap = (): boolean => {
    const c = text.charCodeAt(at)
    if (c !== DASH && c !== DOT && c !== SPACE) return false
    at++
    return true
  }
  if (c === OPEN) {
    at++
    if (!digits(3) || text.charCodeAt(at) !== CLOSE) return -1
    at++
    if (text.charCodeAt(at) === SPACE) at++
  } else if (!digits(3) || !gap()) return -1
  return digits(3) && gap() && digits(4) && !isDigit(text, at) ? at : -1
}

/** Length of an IBAN by country (ISO 13616 registry). */
const IBAN_LENGTHS = new Map(
  (
    'AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ' +
    'ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 ' +
    'LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 ' +
    'PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30'
  )
    .split(' ')
    .map(entry => [countryCode(entry.charCodeAt(0), entry.charCodeAt(1)), Number(entry.slice(2))]),
)

/** One number for the two letters of a country, whatever their case. */
function countryCode(first: number, second: number): number {
  return ((first & 0x5f) << 8) | (second & 0x5f)
}

/** Where an IBAN ends that begins at `at`, with a right check sum and single spaces anywhere; -1 when there is none. */
function ibanEnd(text: Text, at: number): number {
  if ((classAt(text, at) & LETTER) === 0 || isAlphanumeric(text, at - 1)) return -1
  if (!isDigit(text, at + 3)) return -1
  const length = IBAN_LENGTHS.get(countryCode(text.charCodeAt(at), text.charCodeAt(at + 1)))
  if (length === undefined) return -1
  // The remainder by 97 of the digits, with A = 10 … Z = 35, where the first four characters come last.
  let rest = 0
  const first = at
  const add = (c: number) => {
    const value = c < 0x40 ? c - ZERO : (c & 0x5f) - 0x37
    rest = (rest * (value > 9 ? 100 : 10) + value) % 97
  }
  at += 4
  for (let count = 4; count < length; count++) {
    if (text.charCodeAt(at) === SPACE) at++
    if (!isAlphanumeric(text, at)) return -1
    add(text.charCodeAt(at++))
  }
  if (isAlphanumeric(text, at)) return -1
  for (let i = first; i < first + 4; i++) add(text.charCodeAt(i))
  return rest === 1 ? at : -1
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

/** The longest kind, and the letters behind it. */
export const KIND_LETTERS = 12
export const TOKEN_LETTERS = 8
const LONGEST_TOKEN = KIND_LETTERS + TOKEN_LETTERS + 3

const BRACKET = 0x5b
const isCapital = (c: number): boolean => c >= 0x41 && c <= 0x5a

/** Whether one of these characters belongs to a token such as `[EMAIL_QWHDKXZB]`. */
export function touchesToken(text: Text, start: number, end: number): boolean {
  for (let at = Math.max(0, start - LONGEST_TOKEN + 1); at < end; at++)
    if (text.charCodeAt(at) === BRACKET && tokenEnd(text, at) > start) return true
  return false
}

/** Where the token ends that begins at a bracket; -1 when none does. */
function tokenEnd(text: Text, at: number): number {
  let i = at + 1
  while (i <= at + KIND_LETTERS && isCapital(text.charCodeAt(i))) i++
  if (i === at + 1 || text.charCodeAt(i++) !== 0x5f) return -1
  for (let letters = 0; letters < TOKEN_LETTERS; letters++) if (!isCapital(text.charCodeAt(i++))) return -1
  return text.charCodeAt(i) === 0x5d ? i + 1 : -1
}
