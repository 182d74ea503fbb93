/** What an ordinary start must not load, since it would wait for it. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'

const ROOT = join(import.meta.dirname, '../..')
const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, ...ENV } = process.env

/** Starts a gateway in a process of its own. @returns paths of CommonJS files and names of Node's own modules that it has loaded by then */
function loaded(t: TestContext, change: (config: string) => string): { files: string[]; own: string[] } {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-loads-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  const file = join(dir, 'gateway.yaml')
  const quickstart = readFileSync(join(ROOT, 'gateway.yaml'), 'utf8')
  writeFileSync(file, change(quickstart.replace(/^store: .*$/m, 'store: sqlite:gateway.db')))
  writeFileSync(
    join(dir, 'own.mjs'),
    "export default { name: 'own', summary: 'Of a test.', config: { type: 'object', properties: { a: { type: 'string' } } }, create: () => ({}) }\n",
  )
  const script = `
    import { createRequire } from 'node:module'
    import { buildGateway } from ${JSON.stringify(join(ROOT, 'cli/gateway.ts'))}
    const log = { debug() {}, info() {}, warn() {}, error() {} }
    const gateway = await buildGateway(${JSON.stringify(file)}, { log, watch: false, listen: { port: 0 }, admin: { port: 0 } })
    const files = Object.keys(createRequire(${JSON.stringify(file)}).cache)
    process.stdout.write(JSON.stringify({ files, own: process.moduleLoadList }))
    await gateway.close()`
  const text = execFileSync(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', '--input-type=module', '-e', script],
    {
      cwd: dir,
      env: ENV,
      encoding: 'utf8',
      maxBuffer: 1 << 24,
    },
  )
  return JSON.parse(text)
}

const compilers = (files: string[]): string[] =>
  files.filter(file => /[\\/]ajv[\\/]/.test(file) && !/[\\/]ajv[\\/]dist[\\/]runtime[\\/]/.test(file))

test("the quickstart starts without ajv and without Node's own undici", t => {
  const { files, own } = loaded(t, config => config)
  assert.ok(files.some(file => file.endsWith(join('validators', 'generated', 'chat.cjs'))))
  assert.deepEqual(compilers(files), [])
  assert.deepEqual(
    own.filter(name => name.includes('undici')),
    [],
  )
})

test('a plugin of one’s own brings ajv, which checks its options', t => {
  const own = (options: string) => (config: string) =>
    `plugins: [./own.mjs]\n${config.replace('models: [auth, models,', `models: [auth, own: ${options}, models,`)}`
  assert.notDeepEqual(compilers(loaded(t, own('{ a: b }')).files), [])
  assert.throws(() => loaded(t, own('{ a: [] }')), /own\.a must be text, and is a list/)
})
