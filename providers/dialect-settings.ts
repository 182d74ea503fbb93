import type { Backend, DialectSettings, SettingsOf } from '../core/ports/dialect.ts'

/** What the settings `S` that a dialect declares are set to for a backend of this dialect: loading has checked them. */
export function settingsOf<S extends DialectSettings>({ settings }: Backend): SettingsOf<S> {
  return settings as unknown as SettingsOf<S>
}
