import type { Backend, DialectSettings } from '../../core/ports/dialect.ts'
import { choice } from '../../core/tools/vocabulary.ts'
import { settingsOf } from '../dialect-settings.ts'

export const settings = {
  provider: {
    cache_control: choice(
      ['auto', 'off'],
      'Whether the anthropic-messages dialect marks what the provider shall cache, for clients of Chat Completions and Responses, which have no such markers. `auto`: where it can pay; a written token costs more at the provider than an uncached one.',
      'auto',
    ),
  },
} satisfies DialectSettings

/** Whether the dialect marks what the provider shall cache, for clients whose API has no markers. */
export function marksCache(backend: Backend): boolean {
  return settingsOf<typeof settings>(backend).provider.cache_control === 'auto'
}
