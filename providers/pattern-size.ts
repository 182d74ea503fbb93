/**
 * A bound on what a pattern takes when it is compiled, from its text alone (patterns.ts). It is in instructions of RE2:
 * a character is one, a group two more, a counted repetition as many times what it repeats, and so on for repetitions
 * inside it. Each range of characters in a class counts as an eighth of an instruction, which is what it takes in
 * memory and in time; repeated classes have theirs once.
 *
 * It holds for each pattern that ECMAScript takes with the flag `u`, and that patterns.ts translates. For any other
 * text it is some number: such a pattern is not run.
 */

/** The largest pattern that is compiled. */
export const MOST_SIZE = 3000

/** Ranges in the largest class that has a name (`\p{C}`), rounded up. */
const NAMED_RANGES = 800
/** Ranges of `\s` as patterns.ts writes it. */
const SPACE_RANGES = 12
const RANGES_TO_AN_INSTRUCTION = 8
/** Those around each program: it fails, matches, and has a group around it; and one for a pattern without any. */
const AROUND = 5

/** An open group. */
interface Group {
  /** Instructions of what is in it so far, without the last atom. */
  before: number
  /** Instructions of the last atom, to which a repetition applies. */
  last: number
  /** Instructions that note where it begins and ends: none for `(?:…)`. */
  around: 0 | 2
}

/** @returns at least the number of instructions of the compiled pattern; Infinity where it is beyond all bounds */
export function sizeBound(pattern: string): number {
  const open: Group[] = []
  let group: Group = { before: 0, last: 0, around: 0 }
  let ranges = 0
  const add = (instructions: number) => {
    group.before += group.last
    group.last = instructions
  }
  for (let i = 0; i < pattern.length; i++) {
    const c = pattern[i]!
    switch (c) {
      case '(':
        open.push(group)
        group = { before: 0, last: 0, around: pattern.startsWith('?:', i + 1) ? 0 : 2 }
        if (pattern[i + 1] === '?') i = afterOpening(pattern, i)
        break
      case ')': {
        // One for a group that is empty.
        const closed = Math.max(1, group.before + group.last) + group.around
        group = open.pop() ?? { before: 0, last: 0, around: 0 }
        add(closed)
        break
      }
      case '|':
        // One for the choice, and one for a branch that is empty.
        add(2)
        break
      case '*':
      case '+':
      case '?':
        // Two where what is repeated may be empty.
        group.last += c === '*' ? 2 : 1
        break
      case '{': {
        const counted = COUNTED.exec(pattern.slice(i, i + LONGEST_COUNT))
        if (counted) {
          group.last = repeated(group.last, counted)
          i += counted[0].length - 1
        } else add(1)
        break
      }
      case '[':
      case '\\': {
        const end = c === '[' ? afterClass(pattern, i) : afterEscape(pattern, i)
        ranges += rangesIn(pattern.slice(i, end + 1))
        add(1)
        i = end
        break
      }
      default:
        add(1)
    }
  }
  // A group that nobody closed: no engine takes the pattern.
  for (const { before, last } of open) group.before += before + last
  return Math.ceil(AROUND + group.before + group.last + ranges / RANGES_TO_AN_INSTRUCTION)
}

const COUNTED = /^\{(\d+)(?:(,)(\d*))?\}/
/** More than two numbers that RE2 takes. ECMAScript takes more digits, RE2 then refuses the pattern. */
const LONGEST_COUNT = 40

/** `x{n,}` is n times x, the last of them again and again; in `x{n,m}` each of the last m - n may be left out. */
function repeated(size: number, [, least, comma, most]: RegExpExecArray): number {
  const n = Number(least)
  if (comma === undefined) return Math.max(1, n * size)
  if (most === '') return Math.max(1, n) * size + 2
  const m = Number(most)
  return Math.max(1, m * size + Math.max(0, m - n))
}

/** The last character of what begins a group, at its `(?`: `(?:`, `(?<name>`, `(?=`, `(?<!`. */
function afterOpening(pattern: string, at: number): number {
  if (pattern[at + 2] !== '<') return at + 2
  if (pattern[at + 3] === '=' || pattern[at + 3] === '!') return at + 3
  const end = pattern.indexOf('>', at)
  return end === -1 ? pattern.length : end
}

/** The bracket that closes a class. */
function afterClass(pattern: string, at: number): number {
  for (let i = at + 1; i < pattern.length; i++) {
    if (pattern[i] === '\\') i++
    else if (pattern[i] === ']') return i
  }
  return pattern.length
}

/** The last character of an escape: `\n`, `\x41`, `\u0041`, `\u{1f600}`, `\p{Lu}`, `\cJ`. */
function afterEscape(pattern: string, at: number): number {
  const letter = pattern[at + 1]
  if ((letter === 'u' || letter === 'p' || letter === 'P') && pattern[at + 2] === '{') {
    const end = pattern.indexOf('}', at)
    return end === -1 ? pattern.length : end
  }
  return at + 1
}

/** At least the number of ranges of a class or an escape. */
function rangesIn(text: string): number {
  // A member is at least one character; to negate a class takes one range more.
  let ranges = text.length + 1
  for (let i = text.indexOf('\\'); i !== -1; i = text.indexOf('\\', i + 2)) {
    const letter = text[i + 1]
    if (letter === 'p' || letter === 'P') ranges += NAMED_RANGES
    else if (letter === 's' || letter === 'S') ranges += SPACE_RANGES
    else if (letter === 'w' || letter === 'W') ranges += 5
  }
  return ranges
}
