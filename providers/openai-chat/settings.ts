/** Settings for servers that speak the dialect with differences. */
import type { DialectSettings } from '../../core/ports/dialect.ts'
import { choice, list, text } from '../../core/tools/vocabulary.ts'

export const settings = {
  provider: {
    omit: list(
      text('A member.', { minLength: 1 }),
      'Members that the openai-chat dialect leaves out of the body, for servers that refuse them.',
    ),
  },
  backend: {
    max_tokens_field: choice(
      ['max_completion_tokens', 'max_tokens'],
      'The member that carries the output cap in the openai-chat dialect.',
      'max_completion_tokens',
    ),
  },
} satisfies DialectSettings

export type ChatSettings = typeof settings
