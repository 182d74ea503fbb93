/**
 * The names that operators, clients and plugins may depend on, as the present code has them. As a script it records
 * them for a release: `node bin/sluice.mjs --run test/releases/names.ts RELEASE`.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { VERBS } from '../../cli/main.ts'
import { ERRORS } from '../../core/canon/errors.ts'
import * as plugin from '../../core/plugin.ts'
import * as testing from '../../plugins/testing.ts'
import * as dialect from '../../providers/dialect.ts'
import { LEDGER_COLUMNS } from '../../stores/columns.ts'
import { startGateway } from '../e2e/harness.ts'

const ROOT = join(import.meta.dirname, '../..')

export interface Names {
  /** Paths of keys, `*` for a name that the operator chooses, `[]` for a list's entries. */
  configuration: string[]
  /** Options of plugins, `PLUGIN.OPTION`. */
  options: string[]
  /** `VERB` and `VERB --flag`. */
  commands: string[]
  /** `METHOD PATH` of the public APIs and of the admin API. */
  paths: string[]
  /** `NAME type` and `NAME{label}`. */
  metrics: string[]
  /** `CODE status type`. */
  errors: string[]
  ledger: string[]
  /** What can be imported from `sluice`, `sluice/dialect` and `sluice/testing`; types are held by the plugin of the release. */
  exports: string[]
}

interface Schema {
  $ref?: string
  properties?: Record<string, Schema>
  additionalProperties?: Schema | boolean
  items?: Schema
  anyOf?: Schema[]
  oneOf?: Schema[]
}

/** Every key that a schema allows, below `at`. */
function keysOf(schema: Schema, defs: Record<string, Schema>, at: string, found: Set<string>): void {
  for (const part of [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])]) keysOf(part, defs, at, found)
  // A plugin's entry and its options are counted by plugin.
  if (schema.$ref === '#/$defs/limits') keysOf(defs['limits']!, defs, at, found)
  for (const [name, value] of Object.entries(schema.properties ?? {})) {
    const path = at === '' ? name : `${at}.${name}`
    found.add(path)
    keysOf(value, defs, path, found)
  }
  if (typeof schema.additionalProperties === 'object') keysOf(schema.additionalProperties, defs, `${at}.*`, found)
  if (schema.items) keysOf(schema.items, defs, `${at}[]`, found)
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete']
function pathsOf(file: string): string[] {
  const { paths } = parse(readFileSync(join(ROOT, file), 'utf8')) as { paths: Record<string, object> }
  return Object.entries(paths).flatMap(([path, item]) =>
    METHODS.filter(method => method in item).map(method => `${method.toUpperCase()} ${path}`),
  )
}

/** Names, types and labels of /metrics of a gateway that has answered and refused a request. */
async function metricsOf(): Promise<string[]> {
  const t = await startGateway()
  try {
    const chat = { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }] }
    await (await t.post('/v1/chat/completions', chat)).text()
    await (await t.post('/v1/chat/completions', { ...chat, model: 'none' })).text()
    await t.ledger()
    const text = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
    const found = new Set<string>()
    for (const line of text.split('\n')) {
      const type = /^# TYPE (sluice_\w+) (\w+)/.exec(line)
      if (type) found.add(`${type[1]} ${type[2]}`)
      const sample = /^(sluice_\w+)\{(.*)\} /.exec(line)
      if (sample) for (const [, label] of sample[2]!.matchAll(/(\w+)="/g)) found.add(`${sample[1]}{${label}}`)
    }
    return [...found]
  } finally {
    await t.close()
  }
}

export async function names(): Promise<Names> {
  const schema = JSON.parse(readFileSync(join(ROOT, 'config', 'gateway.schema.json'), 'utf8')) as Schema & {
    $defs: Record<string, Schema> & { options: Record<string, Schema> }
  }
  const configuration = new Set<string>()
  keysOf(schema, schema.$defs, '', configuration)
  const options = Object.entries(schema.$defs.options).flatMap(([name, of]) => {
    const found = new Set([name])
    keysOf(of, schema.$defs, name, found)
    return [...found]
  })
  const commands = []
  for (const [name, { load }] of Object.entries(VERBS)) {
    const flags = new Set((await load()).help?.match(/--[a-z][a-z-]*/g))
    commands.push(name, ...[...flags].map(flag => `${name} ${flag}`))
  }
  const all = {
    configuration: [...configuration],
    options,
    commands,
    paths: [...pathsOf('docs/openapi.yaml'), ...pathsOf('docs/admin-api.yaml')],
    metrics: await metricsOf(),
    errors: Object.entries(ERRORS).map(([code, { status, type }]) => `${code} ${status} ${type}`),
    ledger: [...LEDGER_COLUMNS],
    exports: [
      ...Object.keys(plugin).map(name => `sluice ${name}`),
      ...Object.keys(dialect).map(name => `sluice/dialect ${name}`),
      ...Object.keys(testing).map(name => `sluice/testing ${name}`),
    ],
  }
  for (const list of Object.values(all)) list.sort()
  return all
}

if (import.meta.main) {
  const file = join(import.meta.dirname, process.argv[2]!, 'names.json')
  writeFileSync(file, JSON.stringify(await names(), null, 2) + '\n')
}
