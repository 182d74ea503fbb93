import { keepArguments, largeArguments } from '../core/canon/arguments.ts'
import { type CallPart, type Conversation, formOf } from '../core/canon/conversation.ts'
import { conversation, definePlugin, type Exchange, estimate, type Reply } from '../core/plugin.ts'
import { count, object } from '../core/tools/vocabulary.ts'
import { countTokens, meterPool, PromptCount, SYNC_LIMIT } from '../meter/index.ts'
import { leastOf } from './shared/account-limits.ts'
import { inThreads, tooLong } from './shared/prompt-counting.ts'
import { counted, identity, model, recent, type WrittenArguments, writtenArguments } from './shared/slots.ts'

const schema = object({
  image_tokens: count(85, 'Least tokens that an image counts.'),
  document_tokens: count(1500, 'Least tokens that a document counts.'),
})

const BUSY = 'The prompt could not be counted. Retry shortly.'

/**
 * Counts the prompt in o200k_base (METER-1) and checks it against the context window (MOD-2, MOD-6). Large prompts are
 * counted outside the event loop.
 */
export const tokenEstimate = definePlugin({
  name: 'token-estimate',
  summary: 'Counts the tokens of the prompt exactly, and refuses a prompt over the context window.',
  config: schema,
  needs: [identity, conversation],
  provides: [estimate, counted],
  mayProvide: [writtenArguments],
  aboveTerminal: true,
  dryRun: 'safe',
  create(media, { terminal }) {
    // The tables are built on first use: build them at start, so that the first request does not wait.
    countTokens('')

    function accept(x: Exchange, input: number): undefined | Reply {
      x.set(estimate, { input })
      x.peek(recent)?.prompt.learnArguments(x.get(conversation))
      return terminal.advisory ? undefined : over(x, input)
    }

    function over(x: Exchange, input: number, how = ''): undefined | Reply {
      const requested = x.get(model)
      const account = leastOf('max_input_tokens', x.get(identity), requested.id)
      const maximum = Math.min(requested.context_window, account ?? Number.POSITIVE_INFINITY)
      return input > maximum ? tooLong(formOf(x.get(conversation)).members.turns, input, maximum, how) : undefined
    }

    /** For what the gateway itself adds to a conversation after it was counted. */
    function again(x: Exchange, conversation: Conversation): Promise<number | Reply> {
      return inThreads(
        x,
        (signal, owner) => new PromptCount(conversation).inPool(media, signal, meterPool(), owner),
        BUSY,
      )
    }

    return {
      onRequest(x) {
        const said = x.get(conversation)
        x.set(counted, {
          conversation: said,
          again: other => again(x, other),
          over: tokens => over(x, tokens, ', with the files that were fetched for it'),
        })
        const known = x.peek(recent)?.prompt
        known?.recallArguments(said)
        const large = largeArguments(said)
        if (large.length === 0) {
          const prompt = new PromptCount(said, known)
          if (prompt.size <= SYNC_LIMIT) return accept(x, prompt.now(media))
          return inThreads(
            x,
            async (signal, owner) => accept(x, await prompt.inPool(media, signal, meterPool(), owner)),
            BUSY,
          )
        }
        const whole = async (signal: AbortSignal, owner: string) => {
          x.set(writtenArguments, await write(large, signal, owner))
          return accept(x, await new PromptCount(said, known).inPool(media, signal, meterPool(), owner))
        }
        return inThreads(x, whole, BUSY)
      },
    }
  },
})

/** Brings the arguments of calls into the form that is counted and sent. @returns those that are long */
async function write(
  calls: readonly CallPart[],
  signal: AbortSignal,
  owner: string,
): Promise<Map<CallPart, WrittenArguments>> {
  const written = new Map<CallPart, WrittenArguments>()
  const made = await meterPool().normalise(
    calls.map(call => call.input),
    signal,
    owner,
  )
  for (const [i, call] of calls.entries()) {
    const { text, quoted, object } = made[i]!
    const sent = keepArguments(call, text === '' ? call.input : text)
    if (quoted) written.set(call, { text: sent, quoted, object })
  }
  return written
}
