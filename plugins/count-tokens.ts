import { answer, definePlugin, estimate } from '../core/plugin.ts'

/** Answers POST /v1/messages/count_tokens with the metered prompt (CNT-1). */
export const countTokens = definePlugin({
  name: 'count-tokens',
  summary: 'Answers with the prompt’s metered size.',
  needs: [estimate],
  terminal: true,
  advisory: true,
  create() {
    return {
      forward(x) {
        x.reply(answer(200, { input_tokens: x.get(estimate).input }))
        return undefined
      },
    }
  },
})
