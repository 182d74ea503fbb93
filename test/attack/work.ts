/**
 * What a unit of work costs (core/canon/work.ts): shapes of schemas, arguments and patterns that are expensive for a
 * client's bytes, each held against the whole budget of one request. It runs in this process and measures its own CPU
 * time.
 */
import { REQUEST_WORK, Work } from '../../core/canon/work.ts'
import { outputSchema } from '../../providers/anthropic-messages/output-schema.ts'
import { KeptPatterns } from '../../providers/patterns.ts'
import { meets } from '../../providers/strict-arguments.ts'
import type { Result } from './kit.ts'

const ROUNDS = 7

const many = (n: number, entry: (i: number) => unknown) => Array.from({ length: n }, (_, i) => entry(i))
const members = (n: number, value: unknown) => Object.fromEntries(Array.from({ length: n }, (_, i) => [`m${i}`, value]))

/** A schema with 2^20 ways to the leaf. */
function ways(leaf: unknown): object {
  const $defs: Record<string, unknown> = { d20: leaf }
  for (let i = 0; i < 20; i++) {
    const next = { $ref: `#/$defs/d${i + 1}` }
    $defs[`d${i}`] = { anyOf: [next, next] }
  }
  return { type: 'object', properties: { p: { $ref: '#/$defs/d0' } }, $defs }
}

/** Leaves, each with a value that does not match it. */
const LEAVES: [leaf: unknown, value: unknown][] = [
  [{ type: 'null' }, 1],
  [{ enum: many(60_000, i => i + 10_000_000) }, 1],
  [{ enum: many(60_000, i => `entry ${i + 100_000}`) }, 'entry 99'],
  [{ type: many(9000, () => 'null') }, 1],
  [{ anyOf: many(9000, () => false) }, 1],
  [{ required: [...many(9999, i => `m${i}`), 'none'] }, members(9999, 1)],
  [
    { properties: members(9999, {}), additionalProperties: false, required: [] },
    { ...members(9999, 1), none: 1 },
  ],
  [{ minProperties: 1_000_000 }, members(90_000, 1)],
  [{ items: { type: 'number' } }, many(20_000, String)],
  [{ minLength: 60_000 }, '😀'.repeat(40_000)],
  [{ allOf: [...many(900, () => ({ $ref: '#/$defs/none' })), false] }, 1],
]
/** Each with a text in which it has to look at all characters. */
const PATTERNS: [source: (i: number) => string, text: string][] = [
  [() => '^(a+)+$', `${'a'.repeat(5000)}!`],
  [() => '^(.*a){20}[bc]$', 'a'.repeat(1000)],
  [() => '(?:\\p{L}*){25}[bc]', 'a'.repeat(1000)],
  [() => '^(?:a?){0,100}[bc]', 'a'.repeat(1000)],
  // A new one each time: they are compiled.
  [i => `^(?:a?){0,900}${i}$`, 'a'],
  [i => `^${'\\p{L}'.repeat(25)}${i}$`, 'a'],
  [i => `^${i}$`, 'a'],
]

export async function work(): Promise<Result> {
  let unique = 0
  const shapes: ((budget: Work) => void)[] = [
    ...LEAVES.map(([leaf, p]) => {
      const [schema, value] = JSON.parse(JSON.stringify([ways(leaf), { p }]))
      return (budget: Work) => void meets(schema, value, budget)
    }),
    ...PATTERNS.map(([source, text]) => (budget: Work) => {
      const kept = new KeptPatterns()
      while (budget.left > 0) kept.matches(source(unique++), text, budget)
    }),
    // Made of 10,000 values, the most that a client may send.
    budget =>
      void outputSchema({ type: 'object', additionalProperties: false, examples: many(9990, () => []) }, budget),
  ]
  /** ns of CPU time for a unit: of each shape the first round, and the median of all. */
  const cold: number[] = []
  const warm: number[] = []
  let longest = 0
  for (const shape of shapes) {
    const rounds: number[] = []
    for (let i = 0; i < ROUNDS; i++) {
      const budget = new Work(REQUEST_WORK)
      const before = process.cpuUsage()
      shape(budget)
      const { user, system } = process.cpuUsage(before)
      longest = Math.max(longest, (user + system) / 1000)
      rounds.push(((user + system) * 1000) / (REQUEST_WORK - budget.left))
    }
    cold.push(rounds[0]!)
    warm.push(rounds.toSorted((a, b) => a - b)[ROUNDS >> 1]!)
  }
  const us = (ns: number) => (ns / 1000).toFixed(4)
  const note = [
    `a unit of work takes ${us(Math.min(...warm))} to ${us(Math.max(...warm))} µs of CPU time`,
    `${us(Math.max(...cold))} in code that never ran`,
    `the ${REQUEST_WORK.toLocaleString('en')} of a request at most ${longest.toFixed(0)} ms`,
  ]
  return { part: 'work', cases: shapes.length * ROUNDS, note: note.join('; ') }
}
