/**
 * Refuses prompts that hold a phrase which the operator does not want, the way a model would: HTTP 200, a refusal in
 * the format of the client's surface, zero usage (decision 9).
 *
 *   plugins: [./docs/examples/safety-refusal.ts]
 *   …
 *     - admission: { output_reserve: 4096 }
 *     - safety-refusal: { phrases: [make a bomb] }      # below admission, so that the refusal has its ledger row
 *     - translation
 *
 * A real plugin would call a classifier: request hooks may wait, so `onRequest` can be `async`.
 */
import { conversation, definePlugin, refuse } from 'sluice'

interface Options {
  phrases: string[]
  answer: string
}

export default definePlugin<Options>({
  name: 'safety-refusal',
  summary: 'Refuses prompts that hold one of the listed phrases, as the model would.',
  config: {
    type: 'object',
    additionalProperties: false,
    required: ['phrases'],
    properties: {
      phrases: {
        type: 'array',
        minItems: 1,
        items: { type: 'string', minLength: 1 },
        description: 'Looked for in the last user turn, in any case.',
      },
      answer: { type: 'string', default: 'I can’t help with that.', description: 'What the client reads.' },
    },
  },
  needs: [conversation],
  create({ phrases, answer }, { log }) {
    const unwanted = phrases.map(phrase => phrase.toLowerCase())
    return {
      onRequest(x) {
        const asked = x.get(conversation).turns.findLast(turn => turn.role === 'user')
        for (const part of asked?.parts ?? []) {
          if (part.type !== 'text') continue
          const text = part.text.toLowerCase()
          const found = unwanted.findIndex(phrase => text.includes(phrase))
          if (found === -1) continue
          // Logs the index of the phrase and not its text: prompts do not belong in a log.
          log.info({ request_id: x.id, phrase: found }, 'safety-refusal')
          return refuse(answer)
        }
        return undefined
      },
    }
  },
})
