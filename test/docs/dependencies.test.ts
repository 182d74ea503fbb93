/** docs/dependencies.md names every direct dependency, in its own table, and none that is gone. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

const ROOT = join(import.meta.dirname, '..', '..')
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8')

test('the page and package.json name the same packages', () => {
  const { dependencies, optionalDependencies, devDependencies } = JSON.parse(read('package.json'))
  const [, production, rest] = read('docs/dependencies.md').split(/^## In .*$/m)
  const [development, ofConsole] = rest!.split(/^## The console$/m)
  const named = (text: string) => rowHeads(text).flatMap(head => head.match(/(?<=`)[^`,\s]+(?=`)/g) ?? [])
  assert.deepEqual(named(production!).sort(), Object.keys({ ...dependencies, ...optionalDependencies }).sort())
  assert.deepEqual(named(development!).sort(), Object.keys(devDependencies).sort())
  const its = JSON.parse(read('console/package.json'))
  assert.deepEqual(named(ofConsole!).sort(), Object.keys({ ...its.dependencies, ...its.devDependencies }).sort())
})

test('what an operator may add is optional: npm installs no peer by itself', () => {
  const { peerDependencies, peerDependenciesMeta } = JSON.parse(read('package.json'))
  const optional = Object.keys(peerDependenciesMeta).filter(name => peerDependenciesMeta[name].optional)
  assert.deepEqual(Object.keys(peerDependencies).sort(), optional.sort())
})

test('a package that wants a Node above 20 is bundled, so that npm warns of none', () => {
  const { packages } = JSON.parse(read('package-lock.json'))
  const production = Object.entries<any>(packages).filter(([path, { dev }]) => path !== '' && !dev)
  const wanting = production.filter(([, { engines, inBundle }]) => !inBundle && />=\s*2[1-9]/.test(engines?.node ?? ''))
  assert.deepEqual(
    wanting.map(([path]) => path),
    [],
  )
})

test('no package runs a script at its installation', () => {
  const locks = ['package-lock.json', 'console/package-lock.json'].map(file => JSON.parse(read(file)).packages)
  const packages = locks.flatMap(one => Object.entries<any>(one))
  const scripted = packages.filter(([path, entry]) => path !== '' && entry.hasInstallScript)
  assert.deepEqual(
    scripted.map(([path]) => path),
    [],
  )
})

/** The first cell of each row of a page's tables. */
function rowHeads(text: string): string[] {
  return text.split('\n').flatMap(line => (line.startsWith('| `') ? [line.slice(2, line.indexOf(' |', 2))] : []))
}
