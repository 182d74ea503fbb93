/**
 * One JSON Schema of the whole gateway.yaml, for editors: completion, hover text and error marks. It is made from the
 * schemas that loading checks with, and loosened where YAML allows more than the data: `${NAME}` may occur anywhere,
 * `~` wherever a key is optional, and a section may be in its own file. `docs/generate/index.ts` writes it to
 * config/gateway.schema.json.
 */
import type { Plugin } from '../core/plugin.ts'
import type { Schema } from '../core/tools/vocabulary.ts'
import {
  CHAIN_SECTIONS,
  ENTRIES,
  fullEntry,
  LIMITS,
  type Names,
  route,
  SECTION_ORDER,
  SECTIONS,
  withNames,
} from './schema.ts'
import { OPTION_SECTIONS } from './version-1.ts'

/** Patterns for the formats that an editor can check without the gateway's code. */
export const PATTERNS: Record<string, string> = {
  duration: '^(\\d+(\\.\\d{1,3})?(ms|s|m|h|d)|0)$',
  size: '^(\\d+(\\.\\d{1,3})?(B|KiB|MiB|GiB|TiB)|0)$',
  usd: '^\\d+(\\.\\d{1,9})?$',
  usd_per_million_tokens: '^\\d+(\\.\\d{1,6})?$',
  timestamp: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d(:\\d\\d(\\.\\d{1,3})?)?(Z|[+-]\\d\\d:\\d\\d)$',
  listen: '^(\\[[0-9A-Fa-f:.%]+\\]|[^\\s:\\[\\]/]*):\\d{1,5}$',
}

const ENV = { $ref: '#/$defs/environment' }

/** The schema of the file, for the plugins, dialects and surfaces of a build. */
export function editorSchema(plugins: Iterable<Plugin>, names: Names): Schema {
  const builtIn = [...plugins].sort((a, b) => (a.name < b.name ? -1 : 1))
  const properties: Record<string, unknown> = {}
  for (const name of SECTION_ORDER) {
    const schema = sectionSchema(name, names)
    properties[name] =
      name === 'version'
        ? schema
        : { description: schema['description'], anyOf: [schema, { $ref: '#/$defs/include' }, { type: 'null' }] }
  }
  const options = Object.fromEntries(
    builtIn.map(p => [
      p.name,
      { ...loosen(p.config ?? { type: 'object', additionalProperties: false }), description: p.summary },
    ]),
  )
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    $id: 'https://sluice.invalid/gateway.schema.json',
    title: 'gateway.yaml',
    description: 'Configuration of Sluice.',
    type: 'object',
    additionalProperties: false,
    required: ['version', ...Object.keys(CHAIN_SECTIONS)],
    properties,
    allOf: [
      {
        if: { properties: { version: { const: 2 } } },
        // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
        then: { properties: Object.fromEntries([...OPTION_SECTIONS.keys()].map(name => [name, false])) },
      },
      // Where no file is named, there are no other dialects.
      {
        if: { properties: { plugins: { anyOf: [{ type: 'null' }, { maxItems: 0, type: 'array' }] } } },
        // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
        then: { properties: { providers: { additionalProperties: { not: { $ref: '#/$defs/ownProvider' } } } } },
      },
    ],
    $defs: {
      environment: {
        type: 'string',
        pattern: '\\$\\{',
        // biome-ignore lint/suspicious/noTemplateCurlyInString: the notation of gateway.yaml
        description: '"${NAME}" or "${NAME:-default}", read from the environment.',
      },
      include: {
        type: 'object',
        additionalProperties: false,
        required: ['file'],
        properties: {
          file: { type: 'string', description: 'A YAML file that holds this section, relative to this one.' },
        },
      },
      limits: loosen({ type: 'object', additionalProperties: false, properties: { ...LIMITS } }),
      options,
      entry: entrySchema(builtIn),
      ownProvider: ownProvider(names),
    },
  }
}

function sectionSchema(name: string, names: Names): Schema {
  const plugin = OPTION_SECTIONS.get(name)
  if (plugin) return { description: `In version 1 only: options of ${plugin}.`, $ref: `#/$defs/options/${plugin}` }
  const whole = SECTIONS[name]
  if (whole) return loosen(whole)
  const entries = ENTRIES[name]
  if (entries) {
    return {
      type: 'object',
      description: entries.description,
      additionalProperties: {
        ...(name === 'providers' ? providerSchema(entries.entry, names) : loosen(withNames(entries.entry, names))),
        description: `An entry of ${name}.`,
      },
    }
  }
  if (name === 'routes')
    return { type: 'array', description: CHAIN_SECTIONS.routes, items: loosen(withNames(route, names)) }
  return {
    type: 'object',
    description: CHAIN_SECTIONS.pipelines,
    additionalProperties: { type: 'array', description: 'A pipeline.', items: { $ref: '#/$defs/entry' } },
  }
}

function providerSchema(entry: Schema, names: Names): Schema {
  // A preset fills in what is required of a provider.
  const anyOf = [{ required: ['preset'] }, { required: entry['required'] }]
  return {
    anyOf: [{ ...loosen(withNames(entry, names)), required: undefined, anyOf }, { $ref: '#/$defs/ownProvider' }],
  }
}

/** The dialects of the operator's own are not known here, so with one any members are allowed. */
function ownProvider({ dialects }: Names): Schema {
  return {
    type: 'object',
    description: 'A provider that speaks a dialect of your own.',
    required: ['dialect', 'base_url'],
    properties: {
      dialect: {
        type: 'string',
        description: 'The dialect of a file of `plugins`.',
        not: { anyOf: [{ enum: dialects }, ENV] },
      },
    },
  }
}

/**
 * Schema of a pipeline entry: a name, `name: {options}`, or the full form. The names and options of the operator's own
 * plugins are not known here, so any are allowed.
 */
function entrySchema(plugins: readonly Plugin[]): Schema {
  const ref = (plugin: Plugin) => ({ $ref: `#/$defs/options/${plugin.name}` })
  const full = loosen(fullEntry)
  return {
    description: 'A plugin of the chain.',
    anyOf: [
      { type: 'string', description: 'The name of a plugin.', examples: plugins.map(p => p.name) },
      {
        type: 'object',
        minProperties: 1,
        maxProperties: 1,
        not: { required: ['plugin'] },
        properties: Object.fromEntries(
          plugins.map(p => [p.name, { description: p.summary, anyOf: [ref(p), { type: 'null' }] }]),
        ),
        additionalProperties: { type: ['object', 'null'], description: 'Options of a plugin of your own.' },
      },
      {
        ...full,
        allOf: plugins.map(p => ({
          if: { properties: { plugin: { const: p.name } } },
          // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
          then: { properties: { config: ref(p) } },
        })),
      },
    ],
  }
}

type AnySchema = Record<string, any>

/**
 * Loosens a schema to everything that YAML may hold.
 * @param optional the key may be left out, so `~` is allowed
 */
function loosen(schema: AnySchema, optional = false): Schema {
  const { format, default: fallback, description, ...rest } = schema
  const about = { ...(description ? { description } : {}), ...(fallback === undefined ? {} : { default: fallback }) }
  // The limits occur at five places, so they are written once, under `$defs`.
  if (rest['properties'] === LIMITS) return { ...about, anyOf: [{ $ref: '#/$defs/limits' }, { type: 'null' }] }
  const inner: AnySchema = { ...rest }
  if (format && PATTERNS[format]) inner['pattern'] = PATTERNS[format]
  if (inner['properties']) {
    const required = new Set<string>(inner['required'] ?? [])
    inner['properties'] = Object.fromEntries(
      Object.entries(inner['properties'] as Record<string, AnySchema>).map(([key, child]) => [
        key,
        loosen(child, !required.has(key)),
      ]),
    )
    if (required.size === 0) delete inner['required']
  }
  if (typeof inner['additionalProperties'] === 'object')
    inner['additionalProperties'] = loosen(inner['additionalProperties'], true)
  if (typeof inner['items'] === 'object') inner['items'] = loosen(inner['items'])
  if (optional && inner['type']) {
    inner['type'] = [...new Set([inner['type'], 'null'].flat())]
    if (inner['enum'] && !inner['enum'].includes(null)) inner['enum'] = [...inner['enum'], null]
  }
  const types = [inner['type'] ?? []].flat()
  const scalar = types.some(t => t !== 'object' && t !== 'array' && t !== 'null') && !('const' in inner)
  const free = types.includes('string') && !inner['pattern'] && !inner['enum']
  return scalar && !free ? { ...about, anyOf: [inner, ENV] } : { ...about, ...inner }
}
