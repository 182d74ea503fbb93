/**
 * Finds what the operator's patterns match. A search of RE2 takes time in proportion to the pattern and to the text
 * that is left, and a pattern may look at all of that text for each thing that it finds. So a text is searched in
 * pieces where the pattern allows it, and the work is counted before it is done.
 */
import type { RE2JS } from 're2js'
import { type Pace, type Slices, type Span, touchesToken } from './find.ts'

/** UTF-16 units of a piece, up to the next place where the text may be cut. */
const PIECE = 2048
/** What a search takes beside its characters, in units of the pace. */
const OVERHEAD = 64

/** The parts of a compiled pattern that tell which characters it can take. */
interface Instruction {
  op: number
  matchRune(rune: number): boolean
}

export class PatternFinder {
  readonly kind: string
  readonly #pattern: RE2JS
  readonly #size: number
  /** 1 for each ASCII character that no match can hold: a text may be cut behind it. Null: it must not be cut. */
  readonly #separators: Uint8Array | null

  private constructor(kind: string, pattern: RE2JS) {
    this.kind = kind
    this.#pattern = pattern
    this.#size = pattern.programSize()
    this.#separators = separatorsOf(pattern)
  }

  /** Finders of these patterns, by the kinds of what they find. */
  static async all(patterns: Readonly<Record<string, string>>): Promise<PatternFinder[]> {
    const entries = Object.entries(patterns)
    if (entries.length === 0) return []
    const { RE2JS } = await import('re2js')
    return entries.map(([kind, pattern]) => new PatternFinder(kind, RE2JS.compile(pattern)))
  }

  /** Whether long texts are searched in pieces. */
  get cuts(): boolean {
    return this.#separators !== null
  }

  /** What is found in the text, in the order of the places. @throws OverBound */
  *find(text: string, pace: Pace): Slices<Span[]> {
    const spans: Span[] = []
    for (let from = 0; from < text.length; ) {
      const to = this.#pieceEnd(text, from, pace.longestSearch / this.#size)
      // With the character before: an assertion such as `\b` looks at one character on each side.
      const begin = Math.max(0, from - 1)
      const matcher = this.#pattern.matcher(text.slice(begin, to))
      // The first search says where it begins; the others go on.
      for (let first: number | null = from - begin, at = from; ; first = null) {
        const work = (to - at) * this.#size
        pace.searches(work)
        if (pace.spent(work + OVERHEAD)) yield
        if (!matcher.find(first)) break
        const start = begin + matcher.start()
        at = begin + matcher.end()
        if (at === start || touchesToken(text, start, at)) continue
        pace.found()
        spans.push({ kind: this.kind, start, end: at })
      }
      from = to
    }
    return spans
  }

  /** Where the piece ends that begins at `from`. It is looked for only as far as a search may reach. */
  #pieceEnd(text: string, from: number, longest: number): number {
    if (this.#separators)
      for (let at = from + PIECE; at < text.length && at - from <= longest; at++)
        if (this.#separators[text.charCodeAt(at)] === 1) return at + 1
    return text.length
  }
}

/**
 * The ASCII characters that no match of a pattern can hold. A match then lies between two of them, and a search from
 * behind one of them up to and with the next finds what a search of the whole text finds: an anchor or a boundary looks
 * at one character before and one behind it, and these are in the piece.
 */
function separatorsOf(pattern: RE2JS): Uint8Array | null {
  // The compiled program is no public part of re2js: where it looks otherwise than here, no text is cut.
  const { prog } = (pattern as unknown as { re2?(): { prog?: { inst?: Instruction[] } } }).re2?.() ?? {}
  if (!Array.isArray(prog?.inst)) return null
  const separators = new Uint8Array(128).fill(1)
  for (const instruction of prog.inst) {
    const takes = takenBy(instruction)
    if (!takes) return null
    for (let c = 0; c < 128; c++) if (takes(c)) separators[c] = 0
  }
  return separators.includes(1) ? separators : null
}

/** Which characters an instruction takes; null when it is not known. The numbers are those of RE2's instructions. */
function takenBy(instruction: Instruction): ((c: number) => boolean) | null {
  const { op } = instruction
  // Alternatives, captures, assertions, the end: they take none.
  if (op >= 1 && op <= 7) return () => false
  if (op === 8 || op === 9) return c => instruction.matchRune(c)
  if (op === 10) return () => true
  if (op === 11) return c => c !== 0x0a
  // Among them are those that look behind, further than one character.
  return null
}
