import { conversation, definePlugin, deny, type Exchange, estimate, type Reply } from '../core/plugin.ts'
import { count, object } from '../core/vocabulary.ts'
import { countTokens, MeterBusy, meterPool, PromptCount, SYNC_LIMIT } from '../meter/index.ts'
import { leastOf } from './shared/account-limits.ts'
import { identity, limitsCheck, model } from './shared/slots.ts'

const schema = object({
  image_tokens: count(85, 'Least tokens that an image counts.'),
  document_tokens: count(1500, 'Least tokens that a document counts.'),
})

/**
 * Counts the prompt in o200k_base (METER-1) and checks it against the context window (MOD-2, MOD-6). Large prompts are
 * counted outside the event loop.
 */
export const tokenEstimate = definePlugin({
  name: 'token-estimate',
  summary: 'Counts the tokens of the prompt exactly, and refuses a prompt over the context window.',
  config: schema,
  needs: [identity, conversation],
  provides: [estimate],
  aboveTerminal: true,
  create(media, { terminal }) {
    // The tables are built on first use: build them at start, so that the first request does not wait.
    countTokens('')

    function judge(x: Exchange, input: number): undefined | Reply {
      x.set(estimate, { input })
      if (terminal.advisory) return undefined
      const requested = x.get(model)
      const account = leastOf('max_input_tokens', x.get(identity), requested.id)
      const maximum = Math.min(requested.context_window, account ?? Number.POSITIVE_INFINITY)
      return input > maximum ? tooLong(input, maximum) : undefined
    }

    async function inPool(x: Exchange, prompt: PromptCount): Promise<undefined | Reply> {
      const refused = await x.peek(limitsCheck)?.(x)
      if (refused) return refused
      const disconnected = new AbortController()
      x.incoming.onAborted(() => disconnected.abort())
      try {
        return judge(x, await prompt.inPool(media, disconnected.signal, meterPool(), x.get(identity).organization.id))
      } catch (error) {
        if (error instanceof MeterBusy) return busy()
        throw error
      }
    }

    return {
      onRequest(x) {
        const prompt = new PromptCount(x.get(conversation))
        if (prompt.size <= SYNC_LIMIT) return judge(x, prompt.now(media))

        return inPool(x, prompt)
      },
    }
  },
})

function tooLong(tokens: number, maximum: number): Reply {
  return deny('context_length_exceeded', {
    message: `prompt is too long: ${tokens} tokens > ${maximum} maximum`,
    details: { context_window: maximum },
  })
}

function busy(): Reply {
  return deny('route_capacity', { message: 'The prompt could not be counted. Retry shortly.' })
}
