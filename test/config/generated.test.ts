// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of gateway.yaml
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { Ajv } from 'ajv'
import { parse } from 'yaml'
import { formatError, loadConfig } from '../../config/load.ts'
import { generated } from '../../docs/generate/index.ts'
import { catalog as builtIn, plugins } from '../../plugins/index.ts'
import { dialects } from '../../providers/index.ts'
import { surfaces } from '../../surfaces/index.ts'

const ROOT = join(import.meta.dirname, '../..')
const schema = JSON.parse(generated()['config/gateway.schema.json']!)
const valid = new Ajv({ strict: false, allErrors: true }).compile(schema)
const reference = readFileSync(join(import.meta.dirname, 'fixtures/gateway.reference.yaml'), 'utf8')

test('generated files are current: node bin/sluice.mjs --run docs/generate/index.ts', () => {
  for (const [file, text] of Object.entries(generated())) {
    assert.equal(readFileSync(join(ROOT, file), 'utf8') === text, true, `${file} is out of date`)
  }
})

test('the editor schema takes the reference file and the quickstart', () => {
  for (const text of [reference, readFileSync(join(ROOT, 'gateway.yaml'), 'utf8')]) {
    valid(parse(text))
    assert.deepEqual(valid.errors ?? [], [])
  }
})

test('the editor schema refuses slips, and takes variables, ~ and included files', () => {
  const check = (change: [string | RegExp, string]) => valid(parse(reference.replace(...change)))
  assert.ok(!check(['drain: 30s', 'drian: 30s']))
  assert.ok(!check(['drain: 30s', 'drain: soon']))
  assert.ok(!check(['max_depth: 64', 'max_dept: 64']))
  const germini = reference.replace('dialect: gemini', 'dialect: germini')
  assert.ok(!valid({ ...parse(germini), plugins: [] }))
  assert.ok(!valid({ ...parse(germini), plugins: undefined }))
  assert.ok(valid({ ...parse(germini), plugins: ['./germini.ts'] }))
  assert.ok(check(['dialect: gemini', 'dialect: "${DIALECT}"']))
  assert.ok(!check(['requests_per_minute: 600', 'requests_per_minut: 600']))
  assert.ok(!check(['version: 2', 'version: 3']))
  assert.ok(!check(['platform:', 'media: { fetch: [] }\nplatform:']))
  assert.ok(check([/version: 2([\s\S]*)platform:/, 'version: 1$1media: { fetch: [] }\nplatform:']))
  assert.ok(check(['drain: 30s', 'drain: "${DRAIN}"']))
  assert.ok(check(['max_connections: 20000', 'max_connections: "${MAX:-5}"']))
  assert.ok(check(['drain: 30s', 'drain: ~']))
  assert.ok(check([/^ledger: .*$/m, 'ledger: { file: ./ledger.yaml }']))
  assert.ok(check(['- routing  ', '- my-own-plugin: { a: 1 }']))
})

test('every key has a description', () => {
  const without: string[] = []
  const walk = (node: any, path: string): void => {
    if (typeof node !== 'object' || node === null) return
    for (const [key, value] of Object.entries(node)) {
      if (key === 'properties' && !path.endsWith('/if') && !path.endsWith('/then')) {
        for (const [name, child] of Object.entries(value as Record<string, any>)) {
          if (!child.description && !child.const && child.$ref === undefined) without.push(`${path}/${name}`)
        }
      }
      walk(value, `${path}/${key}`)
    }
  }
  walk(schema, '')
  assert.deepEqual(without, [])
})

test('the reference file and the quickstart load with the plugins and dialects of this build', async () => {
  for (const file of [join(import.meta.dirname, 'fixtures/gateway.reference.yaml'), join(ROOT, 'gateway.yaml')]) {
    const loaded = await loadConfig(file, { plugins: builtIn, dialects, surfaces: Object.keys(surfaces), env: {} })
    assert.deepEqual(loaded.errors?.map(formatError) ?? [], [])
  }
})

test('each built-in plugin has its summary in the docs', () => {
  const docs = readFileSync(join(ROOT, 'docs/configuration.md'), 'utf8')
  for (const plugin of plugins) assert.ok(docs.includes(`### ${plugin.name}\n\n${plugin.summary}`), plugin.name)
})
