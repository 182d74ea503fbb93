/** Loads configuration text, with other files in memory; nothing touches the disk. */
import { resolve } from 'node:path'
import type { ConfigError, LoadOptions, LoadResult } from '../../config/load.ts'
import { formatError, loadConfig } from '../../config/load.ts'
import { AUTH_PACKAGES } from '../../providers/auth/settings.ts'
import { catalog, dialects, surfaces } from './catalog.ts'

export interface TextOptions extends Partial<LoadOptions> {
  files?: Record<string, string>
}

export function loadText(text: string, options: TextOptions = {}): Promise<LoadResult> {
  const files: Record<string, string> = { 'gateway.yaml': text, ...options.files }
  const byPath = new Map(Object.entries(files).map(([name, content]) => [resolve(name), content]))
  return loadConfig('gateway.yaml', {
    plugins: catalog,
    dialects,
    authPackages: AUTH_PACKAGES,
    surfaces,
    env: {},
    cores: 4,
    readFile: async path => {
      const content = byPath.get(path)
      if (content === undefined) throw Object.assign(new Error('no such file'), { code: 'ENOENT' })
      return content
    },
    ...options,
  })
}

/** A small configuration that loads; sections given replace its own. */
export function small(sections: Record<string, string> = {}): string {
  const own: Record<string, string> = {
    version: 'version: 1',
    pipelines: 'pipelines:\n  models: [auth, models]',
    routes: 'routes:\n  - { match: GET /v1/models, pipeline: models }',
    providers: 'providers:\n  local: { dialect: openai-chat, base_url: simulator }',
    models:
      'models:\n  eb1: { aliases: [old], context_window: 1000, price: { input: 1, output: 2 }, backends: [{ provider: local, model: m }] }',
    ...sections,
  }
  return Object.values(own).filter(Boolean).join('\n') + '\n'
}

export const lines = (problems: ConfigError[] | undefined) => (problems ?? []).map(formatError)
