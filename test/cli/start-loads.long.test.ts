/**
 * What an ordinary start must not load, since it would wait for it. ajv is for the first start, which keeps what it
 * makes with it.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, type TestContext, test } from 'node:test'

const ROOT = join(import.meta.dirname, '../..')
const { NODE_OPTIONS: _, NODE_TEST_CONTEXT: __, ...ENV } = process.env

/**
 * Starts a gateway in a process of its own. @returns paths of CommonJS files and names of Node's own modules that it
 * has loaded by then
 */
function loaded(t: TestContext, cache: string, change: (config: string) => string): { files: string[]; own: string[] } {
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
      env: { ...ENV, NODE_COMPILE_CACHE: cache },
      encoding: 'utf8',
      maxBuffer: 1 << 24,
    },
  )
  return JSON.parse(text)
}

const compilers = (files: string[]): string[] =>
  files.filter(file => /[\\/]ajv[\\/]/.test(file) && !/[\\/]ajv[\\/]dist[\\/]runtime[\\/]/.test(file))

function folder(t: { after(end: () => void): void }): string {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-loads-'))
  t.after(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}
/** Of the first test, which fills it, and of the last. */
const cache = folder({ after })

test("the quickstart's second start is without ajv, and each without Node's own undici", t => {
  const starts = [loaded(t, cache, config => config), loaded(t, cache, config => config)]
  assert.deepEqual(
    starts.map(({ files }) => compilers(files).length > 0),
    [true, false],
  )
  assert.ok(starts[1]!.files.some(file => file.startsWith(join(cache, 'validators'))))
  for (const { own } of starts) {
    assert.deepEqual(
      own.filter(name => name.includes('undici')),
      [],
    )
  }
})

test('where `npm run validators` has written them, so is the first', t => {
  const other = folder(t)
  const to = join(other, 'validators')
  execFileSync(process.execPath, [join(ROOT, 'cli/validators.ts'), to], { env: ENV })
  const written = readdirSync(to)
  assert.deepEqual(compilers(loaded(t, other, config => config).files), [])
  assert.deepEqual(readdirSync(to), written)
})

test('a plugin of one’s own brings ajv once, and has its options checked each time', t => {
  const own = (options: string) => (config: string) =>
    `plugins: [./own.mjs]\n${config.replace('models: [auth, models,', `models: [auth, own: ${options}, models,`)}`
  assert.notDeepEqual(compilers(loaded(t, cache, own('{ a: b }')).files), [])
  assert.deepEqual(compilers(loaded(t, cache, own('{ a: b }')).files), [])
  assert.throws(() => loaded(t, cache, own('{ a: [] }')), /own\.a must be text, and is a list/)
})
