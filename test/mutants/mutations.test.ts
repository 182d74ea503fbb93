import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { draw, mutantsOf, withMutant } from './mutations.ts'

const SOURCE = `import { a } from './a.ts'
type Size = 1 | true
const é = 'é'
export function f(n: Size, m = 3): number {
  if (n === 1) a()
  return m > 2 ? m ?? 0 : -1
}
`

test('conditions, operators, statements and constants are changed, types and imports are not', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-mutations-'))
  try {
    writeFileSync(join(folder, 'tsconfig.json'), '{ "files": ["f.ts"], "compilerOptions": { "noResolve": true } }')
    writeFileSync(join(folder, 'f.ts'), SOURCE)
    const mutants = mutantsOf(folder, ['f.ts'])
    assert.deepEqual(
      mutants.map(({ line, was, text }) => `${line} ${was} → ${text}`),
      [
        '4 3 → (3 + 1)',
        '5 n === 1 → !(n === 1)',
        '5 === → !==',
        '5 1 → (1 + 1)',
        '5 a() → {}',
        '6 m > 2 → !(m > 2)',
        '6 > → >=',
        '6 2 → (2 + 1)',
        '6 ?? → &&',
        '6 0 → (0 + 1)',
        '6 1 → (1 + 1)',
      ],
    )
    assert.equal(withMutant(SOURCE, mutants[4]!), SOURCE.replace('a()\n', '{}\n'))
    assert.throws(() => withMutant(`x${SOURCE}`, mutants[4]!), /f\.ts has changed meanwhile/)
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('a seed draws the same ones again, each once, and another seed others', () => {
  const all = Array.from({ length: 1000 }, (_, i) => i)
  const drawn = draw(all, 7, 50)
  assert.deepEqual(draw(all, 7, 50), drawn)
  assert.notDeepEqual(draw(all, 8, 50), drawn)
  assert.equal(new Set(drawn).size, 50)
  assert.deepEqual(draw([1, 2, 3], 7, 50).sort(), [1, 2, 3])
})
