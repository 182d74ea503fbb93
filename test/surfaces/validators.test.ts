/**
 * core/tools/validators/read.ts: the text of validators is made once and kept, and only while all that it is made of
 * stays the same.
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { optionValidators } from '../../config/validate.ts'
import { validatorsOf } from '../../core/tools/validators/read.ts'
import type { Schema } from '../../core/tools/vocabulary.ts'
import { compileRequest } from '../../surfaces/check.ts'
import { surfaces } from '../../surfaces/index.ts'

const ROOT = join(import.meta.dirname, '../..')
const text = (max: number) => ({ type: 'object', properties: { a: { type: 'string', maxLength: max } } })
const fits = (schema: Schema): boolean => validatorsOf(optionValidators([schema]))[0]!({ a: 'four' })

/** A cache of the test's own. @returns its folder of validators */
function cache(t: TestContext, env: Record<string, string> = {}): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-validators-'))
  const before = { ...process.env }
  Object.assign(process.env, { NODE_COMPILE_CACHE: dir, ...env })
  t.after(() => {
    process.env = before
    rmSync(dir, { recursive: true, force: true })
  })
  return join(dir, 'validators')
}

test('what one has made the next one takes', t => {
  const folder = cache(t)
  assert.equal(fits(text(3)), false)
  const [name, ...more] = readdirSync(folder)
  assert.deepEqual(more, [])
  const made = readFileSync(join(folder, name!), 'utf8')
  writeFileSync(join(folder, name!), 'module.exports = () => [() => true]')
  assert.equal(fits(text(3)), true)
  // Of another schema it says nothing.
  assert.equal(fits(text(2)), false)
  assert.equal(readdirSync(folder).length, 2)
  assert.match(made, /^module\.exports = \(function/)
})

test('one that is cut short, or is none of ours, is made anew', t => {
  const folder = cache(t)
  for (const [i, broken] of ['', 'module.exports = (function', 'module.exports = 1', '\0'].entries()) {
    const schema = { ...text(3), title: `broken ${i}` }
    const others = new Set(i === 0 ? [] : readdirSync(folder))
    fits(schema)
    const path = join(folder, readdirSync(folder).find(name => !others.has(name))!)
    const whole = readFileSync(path, 'utf8')
    writeFileSync(path, broken)
    assert.equal(fits(schema), false)
    assert.equal(readFileSync(path, 'utf8'), whole)
  }
})

test('where nothing can be written, or the cache is turned off, it works and nothing is kept', t => {
  const folder = cache(t)
  writeFileSync(folder, 'a file in its place')
  assert.equal(fits(text(3)), false)
  assert.equal(readFileSync(folder, 'utf8'), 'a file in its place')
  rmSync(folder)
  process.env['NODE_DISABLE_COMPILE_CACHE'] = '1'
  assert.equal(fits(text(3)), false)
  process.env['NODE_COMPILE_CACHE'] = ''
  delete process.env['NODE_DISABLE_COMPILE_CACHE']
  assert.equal(fits(text(3)), false)
  assert.deepEqual(readdirSync(join(folder, '..')), [])
})

// Each takes seconds of a busy machine: three are enough for two to meet.
test('processes that start at once do not meet half a file, and leave whole ones', async t => {
  const folder = cache(t)
  const starts = Array.from({ length: 3 }, () =>
    spawn(process.execPath, ['bin/sluice.mjs', 'check'], { cwd: ROOT, stdio: ['ignore', 'pipe', 'inherit'] }),
  )
  for (const [code] of await Promise.all(starts.map(child => once(child, 'close')))) assert.equal(code, 0)
  const files = readdirSync(folder)
  assert.ok(files.length > 4)
  for (const file of files) assert.match(file, /^[0-9a-f]{32}\.cjs$/)
})

test('a schema that is not valid is told of, each time', t => {
  cache(t)
  for (let i = 0; i < 2; i++) assert.throws(() => fits({ type: 'objekt' }), /schema is invalid/)
})

test('an edited request schema is not answered for by the one before', t => {
  cache(t)
  const { requestSchema } = surfaces.chat!
  const edited = { ...requestSchema, required: [...(requestSchema['required'] as string[]), 'seed'] }
  const body = { model: 'm', messages: [{ role: 'user', content: 'hi' }] }
  assert.deepEqual(compileRequest(requestSchema)(body, 'reject'), [])
  assert.throws(() => compileRequest(edited)(body, 'reject'), {
    code: 'missing_required_parameter',
    param: 'seed',
  })
})
