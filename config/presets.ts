/** Presets: what a provider and its backends get from the service that they name. */
import type { Report } from './report.ts'
import type { Path } from './source.ts'
import { didYouMean } from './suggest.ts'
import type { ProviderConfig } from './types.ts'

/** What loading must know about each preset, by name. */
export type PresetFacts = Readonly<
  Record<
    string,
    {
      readonly of: Readonly<Record<string, Readonly<Record<string, unknown>>>>
      readonly settings?: readonly string[]
      readonly backend?: Readonly<Record<string, unknown>>
    }
  >
>

/** A provider with what its preset says; its own members win. Null after a fault was reported. */
export function withPreset(value: unknown, path: Path, presets: PresetFacts, report: Report): unknown {
  const own = value as Record<string, unknown> | null
  const name = own?.['preset']
  if (typeof name !== 'string') return value ?? {}
  const preset = Object.hasOwn(presets, name) ? presets[name]! : undefined
  if (!preset) {
    const known = Object.keys(presets)
    report.error(
      [...path, 'preset'],
      `there is no preset '${name}'${didYouMean(name, known) || `; presets: ${known.join(', ')}`}`,
    )
    return null
  }
  const dialect = own!['dialect'] ?? Object.keys(preset.of)[0]!
  const members = typeof dialect === 'string' && Object.hasOwn(preset.of, dialect) ? preset.of[dialect] : undefined
  if (!members) {
    report.error([...path, 'dialect'], `the preset ${name} is for ${Object.keys(preset.of).join(' and ')}`)
    return null
  }
  const missing = (preset.settings ?? []).filter(setting => !own![setting] && own!['base_url'] === undefined)
  if (missing.length > 0) {
    report.error(path, `the preset ${name} needs ${missing.join(' and ')}`, 'key')
    return null
  }
  const filled = filledIn(members, own!) as Record<string, unknown>
  // A key of one's own stands in for the preset's credentials, as a Bedrock API key does.
  if (own!['api_key'] && filled['auth'] !== 'azure') filled['auth'] = filled['auth'] && 'bearer'
  // Of the locations of Vertex AI, the global one has no host of its own.
  if (typeof filled['base_url'] === 'string') filled['base_url'] = filled['base_url'].replace('//global-', '//')
  const set = Object.entries(filled).filter(([, member]) => member !== undefined)
  return { dialect, ...Object.fromEntries(set), ...own }
}

/** The value with `{name}` in its texts replaced by the setting of that name. */
function filledIn(value: unknown, settings: Record<string, unknown>): unknown {
  if (typeof value === 'string') return value.replace(/\{(\w+)\}/g, (_, name) => String(settings[name] ?? ''))
  if (Array.isArray(value) || typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, filledIn(member, settings)]))
}

/** A model whose backends have what the presets of their providers say; their own members win. */
export function withQuirks(value: unknown, providers: Record<string, ProviderConfig>, presets: PresetFacts): unknown {
  const backends = (value as { backends?: unknown } | null)?.backends
  if (!Array.isArray(backends)) return value
  const quirksOf = (backend: unknown) => {
    const name = (backend as { provider?: unknown } | null)?.provider
    const preset = typeof name === 'string' && Object.hasOwn(providers, name) ? providers[name]!.preset : undefined
    return preset === undefined ? undefined : presets[preset]?.backend
  }
  if (!backends.some(quirksOf)) return value
  const filled = backends.map(backend => (quirksOf(backend) ? { ...quirksOf(backend), ...backend } : backend))
  return { ...(value as object), backends: filled }
}
