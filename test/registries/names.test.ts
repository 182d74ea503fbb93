/**
 * Dialects and plugins must not depend on the name of a surface, but only on its properties (`formOf`, the members of
 * Surface). Otherwise a new surface would need a change in each of them.
 */
import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { dialects } from '../../providers/index.ts'
import { surfaces } from '../../surfaces/index.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const any = (names: string[]) => `'(?:${names.join('|')})'`

/** The places where code compares with one of the names, switches on it, or uses it for a look-up. */
function branches(folder: string, names: string[], besides: (file: string) => boolean): string[] {
  const branch = new RegExp(`[!=]==? ?${any(names)}|${any(names)} ?[!=]==?|case ${any(names)}|^\\s*${any(names)}:`)
  const found: string[] = []
  for (const file of globSync(`${folder}/**/*.ts`, { cwd: ROOT })) {
    if (besides(file)) continue
    const lines = readFileSync(join(ROOT, file), 'utf8').split('\n')
    for (const [i, line] of lines.entries()) if (branch.test(line)) found.push(`${file}:${i + 1} ${line.trim()}`)
  }
  return found
}

test('no branch on the name of a surface in providers/ and plugins/', () => {
  // The simulator stands for a provider: it is a separate server that knows no surface.
  const names = Object.keys(surfaces)
  const simulator = (file: string) => file.startsWith(join('providers', 'simulator'))
  assert.deepEqual([...branches('providers', names, simulator), ...branches('plugins', names, () => false)], [])
})

test('no branch on the name of a dialect outside of its own folder', () => {
  const names = Object.keys(dialects)
  // The table of presets says of each service which dialects it speaks.
  const own = (file: string) =>
    file.startsWith(join('providers', 'simulator')) || file === join('providers', 'presets.ts')
  for (const folder of ['core', 'config', 'http', 'plugins', 'surfaces', 'meter', 'stores', 'admin'])
    assert.deepEqual(
      branches(folder, names, () => false),
      [],
      folder,
    )
  assert.deepEqual(branches('providers', names, own), [])
})
