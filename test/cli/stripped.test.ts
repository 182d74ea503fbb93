/**
 * bin/stripped.mjs: modules are kept as JavaScript between starts, and only while their source is what they were made
 * from.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'

const LAUNCHER = join(import.meta.dirname, '../../bin/sluice.mjs')
const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, NODE_DISABLE_COMPILE_CACHE: ___, ...ENV } = process.env
const SUMMARY = 'Lists plugins, dialects and built-in plans.'

function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-stripped-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

function help(cache: string, env: Record<string, string> = {}, cwd = '.'): string {
  const run = spawnSync(process.execPath, [LAUNCHER, 'help'], {
    encoding: 'utf8',
    env: { ...ENV, NODE_COMPILE_CACHE: cache, ...env },
    cwd,
  })
  assert.deepEqual([run.stderr, run.status], ['', 0])
  return run.stdout
}
const kept = (cache: string): string => join(cache, readdirSync(cache).find(name => name.startsWith('stripped-'))!)
/** The file with one word of `list`'s summary replaced: the n-th time that it stands there, from 0. */
function tamper(file: string, nth: number): void {
  const bytes = readFileSync(file)
  let at = bytes.indexOf(SUMMARY)
  for (let i = 0; i < nth; i++) at = bytes.indexOf(SUMMARY, at + 1)
  assert.ok(at > 0)
  bytes.write('Lasts', at)
  writeFileSync(file, bytes)
}

test('the second start takes what the first has kept', t => {
  const cache = folder(t)
  assert.match(help(cache), /Lists plugins/)
  const file = kept(cache)
  // The source comes first, then the JavaScript: only the latter is changed.
  tamper(file, 1)
  assert.match(help(cache), /Lasts plugins/)
})

test('a module whose source has changed is stripped again, and kept anew', t => {
  const cache = folder(t)
  help(cache)
  const file = kept(cache)
  const whole = readFileSync(file)
  tamper(file, 0)
  tamper(file, 0)
  assert.ok(!readFileSync(file).includes(SUMMARY))
  assert.match(help(cache), /Lists plugins/)
  assert.deepEqual(readFileSync(file), whole)
})

test('a file that is cut short or none of ours is not believed', t => {
  const cache = folder(t)
  help(cache)
  const file = kept(cache)
  const whole = readFileSync(file)
  for (const broken of [
    whole.subarray(0, whole.length - 1),
    Buffer.from('{"a":1}\n'),
    Buffer.alloc(0),
    Buffer.alloc(9999),
  ]) {
    writeFileSync(file, broken)
    assert.match(help(cache), /Lists plugins/)
    assert.deepEqual(readFileSync(file), whole)
  }
})

test('a folder that cannot be written is no fault', t => {
  const cache = join(folder(t), 'file')
  writeFileSync(cache, '')
  assert.match(help(join(cache, 'below')), /Lists plugins/)
  assert.ok(!existsSync(join(cache, 'below')))
})

test('without a compile cache nothing is kept', t => {
  const cache = folder(t)
  assert.match(help('', {}, cache), /Lists plugins/)
  assert.match(help(cache, { NODE_DISABLE_COMPILE_CACHE: '1' }), /Lists plugins/)
  assert.deepEqual(readdirSync(cache), [])
})
