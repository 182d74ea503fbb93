/**
 * Runs the patterns of clients' schemas, in an engine that cannot backtrack (re2js, a port of RE2): its time grows with
 * the length of the text times the size of the pattern, whatever they are. JSON Schema's patterns are those of
 * ECMAScript with the flag `u`. What RE2 does not know (lookarounds, references back) or reads in another way is not
 * run, so a text that matches is never refused.
 *
 * A pattern of a thousand characters can have 370,000 instructions (`(){1000}` again and again), which take 80 MB and
 * 200 ms to compile. So a bound of its size is computed from its text, before either engine sees it: a larger one is
 * not run. What is compiled is kept for later requests, up to a sum of sizes.
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'
import type { Work } from '../core/canon/work.ts'
import type { Budget } from '../core/engine/budget.ts'
import { MOST_SIZE, sizeBound } from './pattern-size.ts'

// Loaded with the first pattern; most requests have none.
const require = createRequire(import.meta.url)

/** UTF-16 units of the longest pattern that is run. */
const LONGEST = 1000
/** Sizes of all that is kept: some 4 MB, at 300 bytes for each instruction. */
const MOST_KEPT = 12_000
export const patternsBudget: Budget = {
  name: 'pattern_programs',
  bound: 'instructions of the programs of clients’ patterns',
  owner: 'process',
  each: [MOST_SIZE, 'of a pattern'],
  all: [MOST_KEPT, 'that are kept, some 4 MB'],
  over: 'nothing: a larger pattern passes, and the one used longest ago is dropped',
  seen: '`sluice_work_used_up_total`, where much is compiled',
}
/** What keeping a pattern takes beside its program, as a size. */
const ENTRY_SIZE = 12

/**
 * Units of work (core/canon/work.ts): for each size that is compiled, and for an instruction that looks at a character.
 */
const COMPILING = 400
const MATCHING = 5
/** Units for what it takes besides to compile a pattern, and to match with one. */
const COMPILE = 4000
const MATCH = 200

/** Flags for a part of the pattern, and counts that begin with a zero, which RE2 takes for text. */
const DIFFERENT = /^(?:\(\?[^:<=!]|\{(?:\d+,)?0\d)/

/** The white space of ECMAScript. RE2's has only that of ASCII. */
const SPACES = '\\t-\\r \\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}'

/** Compiled patterns. */
export class KeptPatterns {
  /** By their source, the newest last. `compiled` is null for a pattern that is not run. */
  readonly #kept = new Map<string, { compiled: RE2JS | null; size: number }>()
  #size = 0

  /** Sizes of all that is kept, as `sizeBound` gives them, with what an entry takes besides. */
  get size(): number {
    return this.#size
  }

  /** All sources and programs; null where a pattern is not run. */
  entries(): [source: string, compiled: RE2JS | null][] {
    return [...this.#kept].map(([source, { compiled }]) => [source, compiled])
  }

  /**
   * True when a part of the text matches, and when that is not found out: the pattern is one that is not run, or too
   * little work is left.
   */
  matches(pattern: string, text: string, work: Work): boolean {
    if (pattern.length > LONGEST) return true
    const compiled = this.#compiled(pattern, work)
    if (!compiled || !work.take(MATCH + MATCHING * compiled.programSize() * (text.length + 1))) return true
    const found = compiled.matcher(text).find()
    // What the engine keeps for its next match may be several times the program.
    compiled.reset()
    return found
  }

  /** The program; null when there is none. Undefined when too little work is left to compile it. */
  #compiled(pattern: string, work: Work): RE2JS | null | undefined {
    const found = this.#kept.get(pattern)
    if (found) {
      this.#kept.delete(pattern)
      this.#kept.set(pattern, found)
      return found.compiled
    }
    if (!work.take(pattern.length)) return undefined
    const bound = sizeBound(pattern)
    if (bound > MOST_SIZE) return null
    if (!work.take(COMPILE + COMPILING * bound)) return undefined
    const compiled = compile(pattern)
    const size = (compiled ? bound : Math.ceil(pattern.length / 100)) + ENTRY_SIZE
    this.#kept.set(pattern, { compiled, size })
    this.#size += size
    while (this.#size > MOST_KEPT) this.#dropOldest()
    return compiled
  }

  #dropOldest(): void {
    const [pattern, { size }] = this.#kept.entries().next().value!
    this.#kept.delete(pattern)
    this.#size -= size
  }
}

/** Those of all requests. */
export const patterns = new KeptPatterns()

function compile(pattern: string): RE2JS | null {
  const { RE2JS } = require('re2js') as typeof import('re2js')
  try {
    // Both must know the pattern: RE2 gives a meaning to what ECMAScript refuses. This only reads it.
    new RegExp(pattern, 'u')
    const translated = translate(pattern)
    // In a group, since re2js makes a second program of one that begins with `^`: that takes time with the cube of its
    // size, and has each character class once for each instruction.
    return translated === null ? null : RE2JS.compile(`(${translated})`)
  } catch {
    return null
  }
}

/** The same pattern for RE2; null when it has none. */
function translate(pattern: string): string | null {
  let out = ''
  let inClass = false
  for (let i = 0; i < pattern.length; i++) {
    const c = pattern[i]!
    if (c !== '\\') {
      if (c === '[' && !inClass) {
        // RE2 takes a bracket that is first for a member of the class; in ECMAScript it ends it.
        if (/^\^?\]/.test(pattern.slice(i + 1, i + 3))) return null
        inClass = true
      } else if (c === '[') {
        // `[:alpha:]` is a class of its own in RE2 alone.
        out += '\\'
      } else if (c === ']') inClass = false
      else if (!inClass && DIFFERENT.test(pattern.slice(i, i + 20))) return null
      out += c
      continue
    }
    const escaped = pattern[++i]!
    if (escaped === 's') out += inClass ? SPACES : `[${SPACES}]`
    else if (escaped === 'S') {
      if (inClass) return null
      out += `[^${SPACES}]`
    } else if (escaped === 'u') {
      const code = /^(?:\{([0-9a-f]+)\}|([0-9a-f]{4}))/i.exec(pattern.slice(i + 1))!
      const point = Number.parseInt(code[1] ?? code[2]!, 16)
      // Half of a surrogate pair: both halves are one character.
      if (point >= 0xd800 && point <= 0xdfff) return null
      out += `\\x{${point.toString(16)}}`
      i += code[0].length
    } else out += `\\${escaped}`
  }
  return out
}
