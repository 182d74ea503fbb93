/**
 * Character classes of o200k_base's splitter: the coarsest partition of code points that its pattern can tell apart.
 * They are packed into `o200k_base.bin` rather than asked of the running Node, so that a Node upgrade with a newer Unicode
 * version never changes a bill; all machines of a fleet count alike.
 */
export const OTHER = 0
/** `\p{Lu}\p{Lt}`: only in the first half of a word. */
export const UPPER = 1
/** `\p{Ll}`: only in the second half of a word. */
export const LOWER = 2
/** `\p{Lm}\p{Lo}`: in both halves. */
export const LETTER = 3
/** `\p{M}`: in both halves, and also among punctuation, since the pattern's `[^\s\p{L}\p{N}]` admits it. */
export const MARK = 4
/** `\p{N}` */
export const NUMBER = 5
/** `\s` but CR and LF. */
export const SPACE = 6
/** CR and LF. */
export const NEWLINE = 7
/** Used for bytes only: the lead byte of a longer UTF-8 sequence. */
export const LEAD = 8
/** Used for bytes only: the sentinel behind the text. */
export const END = 9

export type Class = 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7

/** The class of a code point by the running Node's Unicode tables. Surrogates are OTHER, as U+FFFD, which they become, is. */
export function charClass(cp: number): Class {
  const c = String.fromCodePoint(cp)
  if (cp === 10 || cp === 13) return NEWLINE
  if (/^\s/u.test(c)) return SPACE
  if (/^[\p{Lu}\p{Lt}]/u.test(c)) return UPPER
  if (/^\p{Ll}/u.test(c)) return LOWER
  if (/^\p{L}/u.test(c)) return LETTER
  if (/^\p{M}/u.test(c)) return MARK
  if (/^\p{N}/u.test(c)) return NUMBER
  return OTHER
}
