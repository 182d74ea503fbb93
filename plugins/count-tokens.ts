import { answer, conversation, definePlugin, estimate } from '../core/plugin.ts'
import { counting } from './admission/counting.ts'

/**
 * Answers POST /v1/messages/count_tokens and POST /v1/responses/input_tokens with the metered prompt (CNT-1, CNT-2).
 * Each count takes one from one bucket for both and for warm-ups, which is as large as the organization's requests per
 * minute; it takes nothing from the limits of completions.
 */
export const countTokens = definePlugin({
  name: 'count-tokens',
  summary: 'Answers with the prompt’s metered size.',
  needs: [estimate],
  terminal: true,
  advisory: true,
  create(_, { store }) {
    return {
      // Before the body, because what it costs is to read and count it.
      beforeBody: counting(store),
      forward(x) {
        const { input } = x.get(estimate)
        x.reply(answer(200, x.surface?.countReply?.(input, x.peek(conversation)) ?? { input_tokens: input }))
        return undefined
      },
    }
  },
})
