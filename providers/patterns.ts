/**
 * Runs the patterns of clients' schemas, in an engine that cannot backtrack (re2js, a port of RE2): its time grows with
 * the length of the text times the size of the pattern, whatever they are. JSON Schema's patterns are those of
 * ECMAScript with the flag `u`. What RE2 does not know (lookarounds, references back) or reads in another way is not
 * run, so a text that matches is never refused.
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'

// Loaded with the first pattern; most requests have none.
const require = createRequire(import.meta.url)

/** UTF-16 units of the longest pattern that is run. */
const LONGEST = 1000
/** Compiled patterns that are kept for the next reply. */
const MOST_KEPT = 64
/** Instructions of all patterns of one check. To compile one takes some 15 µs. */
const MOST_INSTRUCTIONS = 3000
/** Characters times instructions of one check. One takes at most 0.1 µs. */
const MOST_WORK = 500_000

/** The white space of ECMAScript. RE2's has only that of ASCII. */
const SPACES = '\\t-\\r \\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}\\x{feff}'

/** By their source, the newest last. Null: a pattern that is not run. */
const kept = new Map<string, RE2JS | null>()

/** The patterns of one check of a value, with a bound on their work. */
export class Patterns {
  #work = MOST_WORK
  #instructions = MOST_INSTRUCTIONS

  /** True when a part of the text matches, and when that is not found out. */
  matches(pattern: string, text: string): boolean {
    if (this.#instructions < 0 || pattern.length > LONGEST) return true
    const compiled = compiledOf(pattern)
    if (compiled === null) return true
    const size = compiled.programSize()
    this.#instructions -= size
    this.#work -= size * text.length
    return this.#instructions < 0 || this.#work < 0 || compiled.matcher(text).find()
  }
}

function compiledOf(pattern: string): RE2JS | null {
  let compiled = kept.get(pattern)
  if (compiled === undefined) compiled = compile(pattern)
  kept.delete(pattern)
  kept.set(pattern, compiled)
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value!)
  return compiled
}

function compile(pattern: string): RE2JS | null {
  const { RE2JS } = require('re2js') as typeof import('re2js')
  try {
    // Both must know the pattern: RE2 gives a meaning to what ECMAScript refuses. This only reads it.
    new RegExp(pattern, 'u')
    const translated = translate(pattern)
    return translated === null ? null : RE2JS.compile(translated)
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
      if (c === '[') inClass = true
      else if (c === ']') inClass = false
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
