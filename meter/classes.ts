/**
 * Character classes of o200k_base's splitter: the fewest classes of code points that its pattern distinguishes. They
 * are packed into `o200k_base.bin`. The Unicode tables of the running Node are not used, so that a Node upgrade with a
 * newer Unicode version does not change a bill, and all machines of a deployment count alike.
 */
/** Everything else, such as punctuation, symbols and unassigned code points. */
export const OTHER = 0
/** `\p{Lu}\p{Lt}`: only in the first half of a word. */
export const UPPER = 1
/** `\p{Ll}`: only in the second half of a word. */
export const LOWER = 2
/** `\p{Lm}\p{Lo}`: in both halves of a word. */
export const LETTER = 3
/**
 * `\p{M}`: in both halves of a word, and also among punctuation, because the pattern's `[^\s\p{L}\p{N}]` includes it.
 */
export const MARK = 4
/** `\p{N}` */
export const NUMBER = 5
/** `\s` except CR and LF. */
export const SPACE = 6
/** CR and LF. */
export const NEWLINE = 7
/** Only of bytes: the first byte of a UTF-8 sequence of several bytes. */
export const LEAD = 8
/** Only of bytes: the sentinel behind the text. */
export const END = 9

export type Class = 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7

/**
 * The class of a code point, by the Unicode tables of the running Node. Surrogates are OTHER, like U+FFFD, which
 * replaces them in UTF-8.
 */
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
