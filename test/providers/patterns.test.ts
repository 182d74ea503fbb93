/**
 * What patterns of clients cost. They were compiled before anything was known of their size, and 64 of them were kept: a
 * request of 69 KB with 64 strict tools, each with a thousand characters of `(){1000}`, ended the process, out of
 * memory.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { REQUEST_WORK, Work } from '../../core/canon/work.ts'
import { MOST_SIZE, sizeBound } from '../../providers/pattern-size.ts'
import { KeptPatterns } from '../../providers/patterns.ts'

/** What a program has beside its instructions: the ranges of its classes, those of repeated ones once. */
function rangesOf(program: any): number {
  const seen = new Set<{ length: number }>()
  for (const { runes } of program.re2().prog.inst) if (runes) seen.add(runes)
  let ranges = 0
  for (const runes of seen) ranges += runes.length / 2
  return ranges
}

const plenty = () => new Work(Number.MAX_SAFE_INTEGER)

const atom = fc.constantFrom(
  ...['a', 'é', '😀', '.', '^', '$', '\\b', '\\B', '\\d', '\\D', '\\w', '\\W', '\\s', '\\S', '\\.', '\\n', '\\x41'],
  ...['\\u0041', '\\u{41}', '\\u{1f600}', '\\p{L}', '\\P{Lu}', '\\p{C}', '\\p{Greek}', '[ab]', '[^a-z]', '[\\w\\s-]'],
  ...['[\\p{L}\\p{N}]', '[^\\P{L}\\]]', '[[:alpha:]', '[\\^{2}]', '(?:)', '()', '(|)', '(a|)', '(?:|a|b|)', 'ab|ac'],
)
const quantifier = fc.oneof(
  fc.constantFrom('*', '+', '?', '*?', '+?', '??', '{0}', '{0,0}', '{0,1}', '{0,}', '{1,}', '{1000}', '{0,1000}'),
  fc.tuple(fc.nat(12), fc.nat(12)).map(([n, m]) => `{${n},${n + m}}`),
  fc.tuple(fc.nat(40), fc.constantFrom('', ',', '?')).map(([n, more]) => (more === '?' ? `{${n}}?` : `{${n}${more}}`)),
)
const { pattern } = fc.letrec<{ pattern: string }>(tie => ({
  pattern: fc.oneof(
    { maxDepth: 6, withCrossShrink: true },
    atom,
    fc.array(tie('pattern'), { minLength: 1, maxLength: 6 }).map(parts => parts.join('')),
    fc.array(tie('pattern'), { minLength: 2, maxLength: 6 }).map(parts => `(?:${parts.join('|')})`),
    fc
      .tuple(fc.constantFrom('(', '(?:', '(?<n>'), tie('pattern'), quantifier)
      .map(([open, inner, count]) => `${open}${inner})${count}`),
    fc.tuple(tie('pattern'), fc.integer({ min: 2, max: 40 })).map(([inner, times]) => inner.repeat(times)),
  ),
}))

test('the bound of a pattern is at least what it takes when it is compiled (property)', () => {
  let compiledOnes = 0
  fc.assert(
    fc.property(pattern, source => {
      const kept = new KeptPatterns()
      kept.matches(source, '', plenty())
      const bound = sizeBound(source)
      for (const [, compiled] of kept.entries()) {
        if (!compiled) continue
        compiledOnes++
        assert.ok(source.length <= 1000 && bound <= MOST_SIZE)
        const size = compiled.programSize() + rangesOf(compiled) / 8
        assert.ok(bound >= size, `${source}: ${bound} < ${size}`)
      }
    }),
    { numRuns: 1000 },
  )
  assert.ok(compiledOnes > 200, `${compiledOnes}`)
})

test('any text has a bound, in one pass (property)', () => {
  const bits = fc.constantFrom(
    '(',
    ')',
    '(?',
    '(?<',
    '[',
    ']',
    '\\',
    '{',
    '}',
    '{9}',
    '{2,',
    '*',
    '|',
    'a',
    '\\p{',
    '\\u{',
  )
  fc.assert(
    fc.property(fc.array(bits, { maxLength: 40 }), parts => {
      const bound = sizeBound(parts.join(''))
      assert.ok(bound >= 5 && !Number.isNaN(bound))
    }),
    { numRuns: 2000 },
  )
})

/** Each has more instructions, or ranges, than may be compiled. */
const LARGE = [
  '(){1000}'.repeat(122),
  '(((a{10}){10}){10}){10}',
  '(a?){0,600}(b?){0,600}',
  '\\p{L}'.repeat(190),
  `[${'\\P{Lu}\\p{C}'.repeat(80)}]`,
  '(?:[ab]{100}|x){40}',
  'a{1000}'.repeat(4),
]

test('a pattern that is too large is neither compiled nor kept, and passes', () => {
  const kept = new KeptPatterns()
  for (const source of LARGE) {
    const work = new Work(REQUEST_WORK)
    assert.ok(sizeBound(source) > MOST_SIZE, source)
    assert.equal(kept.matches(source, 'x', work), true)
    // Its text was read, and nothing else was done.
    assert.equal(REQUEST_WORK - work.left, source.length)
  }
  assert.deepEqual(kept.entries(), [])
  assert.equal(kept.matches('^a{900}$', 'x', new Work(REQUEST_WORK)), false)
})

test('what is kept is bounded by its size, the ones used last stay, and what is not run counts, too', () => {
  const kept = new KeptPatterns()
  for (let i = 0; i < 40; i++) {
    kept.matches('^used$', 'x', plenty())
    kept.matches(`^(?:a?){0,900}${i}$`, 'x', plenty())
    const sum = kept.entries().reduce((all, [, compiled]) => all + (compiled?.programSize() ?? 0), 0)
    assert.ok(sum <= kept.size && kept.size <= 12_000, `${sum} ${kept.size}`)
  }
  assert.ok(kept.entries().some(([source]) => source === '^used$'))
  assert.ok(kept.entries().length >= 4)
  for (let i = 0; i < 3000; i++) kept.matches(`(?=${'x'.repeat(900)}${i})`, 'x', plenty())
  assert.ok(kept.size <= 12_000 && kept.entries().length < 1000)
})

test('what is kept takes some megabytes, whatever the patterns are', () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const taken = () => {
    collect()
    const { heapUsed, arrayBuffers } = process.memoryUsage()
    return heapUsed + arrayBuffers
  }
  const shapes: ((i: number) => string)[] = [
    i => `(){900}${i}`,
    i => `^(?:a?){0,900}${i}`,
    i => `^${'\\p{L}'.repeat(25)}${i}`,
    i => Array.from({ length: 300 }, (_, j) => String.fromCodePoint(0x4e00 + j + i)).join('x|'),
    i => `^[ab]${i}`,
    i => `(?=${'x'.repeat(900)}${i})`,
  ]
  // The engine's own tables are loaded before anything is measured.
  new KeptPatterns().matches('^\\p{L}a$', 'b', plenty())
  for (const [at, shape] of shapes.entries()) {
    const before = taken()
    const kept = new KeptPatterns()
    // A long text makes the engine take its largest state.
    for (let i = 0; i < 100; i++) kept.matches(shape(i), 'a'.repeat(600), plenty())
    const grown = taken() - before
    assert.ok(grown < 8 * 1024 * 1024, `shape ${at}: ${grown} bytes`)
    assert.ok(kept.size <= 12_000)
  }
})

test('compiling and matching draw on the budget, and what it does not suffice for is not done', () => {
  const source = '^[a-f]{400}$'
  const text = 'a'.repeat(400)
  const kept = new KeptPatterns()
  const work = new Work(REQUEST_WORK)
  assert.equal(kept.matches(source, `${text}x`, work), false)
  const first = REQUEST_WORK - work.left
  assert.equal(kept.matches(source, `${text}x`, work), false)
  const again = REQUEST_WORK - work.left - first
  assert.ok(first - again > 400 * sizeBound(source), 'compiled once')
  assert.ok(again > 400 * 401, 'an instruction looks at each character')

  const poor = new KeptPatterns()
  assert.equal(poor.matches(source, `${text}x`, new Work(1000)), true)
  assert.deepEqual(poor.entries(), [])
  assert.equal(kept.matches(source, `${text}x`, new Work(again - 1)), true, 'not matched either')
})

test('what RE2 and ECMAScript read in different ways passes', () => {
  const kept = new KeptPatterns()
  for (const [source, text] of [
    ['[^]b[a]', 'aba'],
    ['a{03}', 'aaa'],
    ['a{1,03}', 'a'],
  ] as const) {
    assert.ok(new RegExp(source, 'u').test(text), source)
    assert.equal(kept.matches(source, text, plenty()), true, source)
  }
  // In ECMAScript an inner bracket is a member like any other.
  assert.equal(kept.matches('^[[:a]+$', ':[a', plenty()), true)
  assert.equal(kept.matches('^[[:a]+$', 'b', plenty()), false)
})
