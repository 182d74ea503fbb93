/** Dialects and plugins ask what a client's API is like (`formOf`, the members of Surface), never which it is: a new surface would have to be added to each. */
import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { dialects } from '../../providers/index.ts'
import { surfaces } from '../../surfaces/index.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const any = (names: string[]) => `'(?:${names.join('|')})'`

/** Where code is compared with, switched on or looked up by one of the names. */
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
  // The simulator is the providers' side: it is a server of its own, and knows no surface.
  const names = Object.keys(surfaces)
  const simulator = (file: string) => file.startsWith(join('providers', 'simulator'))
  assert.deepEqual([...branches('providers', names, simulator), ...branches('plugins', names, () => false)], [])
})

test('no branch on the name of a dialect outside of its own folder', () => {
  const names = Object.keys(dialects)
  const own = (file: string) => file.startsWith(join('providers', 'simulator'))
  for (const folder of ['core', 'config', 'http', 'plugins', 'surfaces', 'meter', 'stores', 'admin'])
    assert.deepEqual(
      branches(folder, names, () => false),
      [],
      folder,
    )
  assert.deepEqual(branches('providers', names, own), [])
})
