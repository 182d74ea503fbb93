/** The sections of the file: which there are, those with one schema, and those that map names to entries. */
import type { Report } from './report.ts'
import { CHAIN_SECTIONS, SECTION_ORDER, SECTIONS, type Sections } from './schema.ts'
import type { ConfigSource } from './source.ts'
import { didYouMean } from './suggest.ts'
import { faultOfFormer } from './version-1.ts'

/** Reports sections that do not exist, and those that are missing. */
export function checkSectionNames(data: Record<string, unknown>, report: Report): void {
  for (const name of Object.keys(data)) {
    const former = data['version'] === 2 ? faultOfFormer(name) : undefined
    if (former !== undefined) report.error([name], former, 'key')
    if (former !== undefined || SECTION_ORDER.includes(name)) continue
    report.error(
      [name],
      `unknown section '${name}'${didYouMean(name, SECTION_ORDER) || `; sections: ${SECTION_ORDER.join(', ')}`}`,
      'key',
    )
  }
  const required = ['version', ...Object.keys(CHAIN_SECTIONS)]
  for (const name of required) {
    if (name in data || report.source.brokenSections.has(name)) continue
    const cure = name === 'version' ? 'start the file with `version: 2`' : CHAIN_SECTIONS[name as 'routes']
    report.error([], `the section '${name}' is missing: ${cure}`)
  }
}

/** Checks every section that has one schema. Sections with a fault are left out of the result. */
export function readSections(source: ConfigSource, report: Report): Partial<Sections> {
  const sections: Record<string, unknown> = {}
  for (const [name, schema] of Object.entries(SECTIONS)) {
    if (name === 'version' && !(name in source.data)) continue
    if (source.brokenSections.has(name)) continue
    const value = source.data[name] ?? schema['default']
    const checked = report.check(schema, value, [name], name)
    if (checked !== null) sections[name] = checked
  }
  return sections as Partial<Sections>
}

/** The entries of a section that maps names to them; none after a fault was reported. */
export function namedEntries(section: string, report: Report): Record<string, unknown> {
  const raw = report.source.data[section]
  if (raw === undefined || raw === null) return {}
  if (!report.mapping(raw, [section])) return {}
  for (const name of Object.keys(raw)) {
    if (!/^[A-Za-z0-9][\w.:/-]{0,127}$/.test(name)) {
      report.error([section, name], `'${name}' is no name: letters, digits and . _ - : / only, at most 128`, 'key')
    }
  }
  return raw
}
