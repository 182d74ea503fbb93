/**
 * The reference tables of docs/configuration.md, made from the schemas that loading checks with.
 * `docs/generate/index.ts` writes them between the markers of that page.
 */
import type { Plugin } from '../core/plugin.ts'
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

type AnySchema = Record<string, any>

/** Markdown: one heading and table for each section, then one for each plugin that has options. */
export function referenceTables(plugins: Iterable<Plugin>, names: Names): string {
  const parts: string[] = ['## Sections', '']
  for (const name of SECTION_ORDER) parts.push(...section(name, names))
  parts.push('## Plugin options', '')
  for (const plugin of [...plugins].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    parts.push(`### ${plugin.name}`, '', plugin.summary, '')
    const rows = rowsOf(plugin.config ?? {}, '')
    parts.push(...(rows.length > 0 ? table(rows) : ['No options.', '']))
    if (RECIPES[plugin.name]) parts.push(RECIPES[plugin.name]!, '')
  }
  return parts.map(wrapped).join('\n').trimEnd() + '\n'
}

/** By plugin: where the page shows it in use. */
const RECIPES: Readonly<Record<string, string>> = {
  proxy: 'The chain for it: [other paths behind the same keys](#other-paths-behind-the-same-keys).',
}

/** A paragraph in lines of at most 120 columns; a row of a table as it is. */
const wrapped = (line: string): string =>
  line.startsWith('|') ? line : line.replace(/(.{1,119})(?: |$)/g, '$1\n').trimEnd()

function section(name: string, names: Names): string[] {
  const plugin = OPTION_SECTIONS.get(name)
  if (plugin) return [`### ${name}`, '', oldSection(plugin), '']
  const whole = SECTIONS[name] as AnySchema | undefined
  if (whole) {
    const rows = rowsOf(whole, '')
    const value = rows.length > 0 ? '' : ` ${capitalize(kind(whole))}; default ${shown(whole['default'])}.`
    return [
      `### ${name}`,
      '',
      `${whole['description'] ?? ''}${name === 'version' ? ' `2`; [`1`](#from-version-1-to-2) is still read.' : value}`,
      '',
      ...(rows.length > 0 ? table(rows) : []),
    ]
  }
  const entries = ENTRIES[name]
  if (entries)
    return [`### ${name}`, '', entries.description, '', ...table(rowsOf(withNames(entries.entry, names), ''))]
  if (name === 'routes')
    return [`### ${name}`, '', CHAIN_SECTIONS.routes, '', ...table(rowsOf(withNames(route, names), ''))]
  return [
    `### ${name}`,
    '',
    `${CHAIN_SECTIONS.pipelines} An entry is a name, \`name: {options}\`, or in full:`,
    '',
    ...table(rowsOf(fullEntry, '')),
  ]
}

const oldSection = (plugin: string) =>
  `In version 1 only: the options of the plugin [\`${plugin}\`](#${plugin}), which version 2 writes in its line of a pipeline.`

type Row = [key: string, kind: string, fallback: string, description: string]

function table(rows: Row[]): string[] {
  const cells = rows.map(
    ([key, type, fallback, description]) => `| \`${key}\` | ${type} | ${fallback} | ${description} |`,
  )
  return [
    '| key | value | default | meaning |',
    '| --- | --- | --- | --- |',
    ...cells.map(c => c.replaceAll('\n', ' ')),
    '',
  ]
}

function rowsOf(schema: AnySchema, prefix: string): Row[] {
  const required = new Set<string>(schema['required'] ?? [])
  const rows: Row[] = []
  for (const [key, child] of Object.entries((schema['properties'] ?? {}) as Record<string, AnySchema>)) {
    const name = prefix + key
    const inherited = !('default' in child) && !required.has(key)
    const fallback = required.has(key) ? 'required' : inherited ? '' : shown(child['default'])
    rows.push([name, kind(child), fallback, inCell(child['description'] ?? '')])
    // The limits are listed once, under plans.
    if (prefix === '' && child['properties'] === LIMITS && !('active_keys' in (schema['properties'] as object)))
      continue
    if (child['properties']) rows.push(...rowsOf(child, `${name}.`))
    if (child['items']?.properties) rows.push(...rowsOf(child['items'], `${name}[].`))
  }
  return rows
}

const KINDS: Record<string, string> = {
  integer: 'number',
  number: 'number',
  string: 'text',
  boolean: 'true, false',
  object: 'mapping',
  array: 'list',
}
const FORMAT_KINDS: Record<string, string> = {
  duration: 'duration',
  size: 'size',
  usd: 'USD',
  usd_per_million_tokens: 'USD per million tokens',
  listen: 'address',
  network: 'address',
}

function kind(schema: AnySchema): string {
  if (schema['enum']) return schema['enum'].filter((v: unknown) => v !== null).join(', ')
  const types = [schema['type'] ?? []].flat().filter(t => t !== 'null')
  const format = FORMAT_KINDS[schema['format']]
  if (format) return types.includes('object') ? `${format} or mapping` : format
  if (schema['pattern'] === '^all$') return 'all, or a list'
  if (schema['pattern'] === '^auto$') return 'number or auto'
  if (schema['items']?.enum) return `list of ${schema['items'].enum.join(', ')}`
  return types.map(t => KINDS[t] ?? t).join(' or ')
}

function shown(value: unknown): string {
  if (value === null || value === undefined) return '~'
  if (typeof value === 'object') return Array.isArray(value) ? '`[]`' : ''
  return value === '' ? '`""`' : `\`${value}\``
}

const inCell = (text: string) => text.replaceAll('|', '\\|')
const capitalize = (text: string) => (text[0] ?? '').toUpperCase() + text.slice(1)
