import type { Limits } from '../../config/types.ts'
import { keptTurns, standIn } from '../../core/canon/compaction.ts'
import type { Conversation } from '../../core/canon/conversation.ts'
import {
  conversation as conversationSlot,
  definePlugin,
  type Exchange,
  estimate,
  type Reply,
} from '../../core/plugin.ts'
import type { MaybePromise } from '../../core/ports/store.ts'
import { count, object, size } from '../../core/tools/vocabulary.ts'
import { countTokens, type MediaMinimums, meterPool, PromptCount, SYNC_LIMIT } from '../../meter/index.ts'
import { leastOf } from '../shared/account-limits.ts'
import { disconnection } from '../shared/disconnection.ts'
import { inThreads, tooLong } from '../shared/prompt-counting.ts'
import { type CompactionPlan, compacting, identity, model, plan as planSlot } from '../shared/slots.ts'
import { tokenEstimate } from '../token-estimate.ts'
import { CompactedCall } from './compacted-call.ts'
import { edit } from './edits.ts'
import { INSTRUCTIONS } from './summary.ts'

/** The least that a summary needs, in tokens. */
const LEAST_SUMMARY = 256
/** The share of the window above which a conversation is compacted, where the client names no threshold. */
const DEFAULT_SHARE = 0.8

const BUSY = 'The conversation could not be counted. Retry shortly.'

const schema = object({
  max_summary: count(
    8192,
    'Most output tokens of a summary. They are reserved when a conversation is compacted.',
    LEAST_SUMMARY,
  ),
  keep_text: size(
    '256KiB',
    "Most text of the user's messages that stays beside the summary, for clients that keep them. The newest stay.",
  ),
})

/**
 * Compacts conversations by a call of the same model, and clears old parts of them, for clients that ask for it. A
 * request whose conversation is compacted and then answered is two calls and one ledger row.
 */
export const compaction = definePlugin({
  name: 'compaction',
  summary: 'Compacts long conversations to a summary, and clears old tool results, when a client asks for it.',
  config: schema,
  needs: [identity, conversationSlot],
  rewrites: [conversationSlot],
  provides: [compacting],
  layers: ['call'],
  aboveTerminal: true,
  dryRun: 'safe',
  uses: ['pipelines'],
  create({ max_summary, keep_text }, context) {
    const media = mediaOf(context.config.pipelines[context.pipeline])
    const words = countTokens(INSTRUCTIONS)
    const frame = countTokens(standIn(''))

    /** Tokens of a conversation that is not admitted yet, or the refusal. */
    function tokensOf(x: Exchange, conversation: Conversation): MaybePromise<number | Reply> {
      const prompt = new PromptCount(conversation)
      if (prompt.size <= SYNC_LIMIT) return prompt.now(media)
      return inThreads(x, (signal, owner) => prompt.inPool(media, signal, meterPool(), owner), BUSY)
    }

    async function edited(x: Exchange, asked: Conversation): Promise<undefined | Reply> {
      const managed = await edit(asked, asked.edits!, each => tokensOf(x, each))
      if ('kind' in managed) return managed
      x.set(conversationSlot, { ...managed.conversation, edited: managed.edited })
      return undefined
    }

    /** How the request is compacted; null when its prompt is not longer than the threshold. */
    function planOf(x: Exchange): MaybePromise<CompactionPlan | null | Reply> {
      const conversation = x.get(conversationSlot)
      const wish = conversation.compaction
      if (!wish) return null
      const { input } = x.get(estimate)
      const { id, context_window: window, max_output_tokens } = x.get(model)
      const limit = (name: keyof Limits) => leastOf(name, x.get(identity), id) ?? Number.POSITIVE_INFINITY
      const longest = Math.min(window, limit('max_input_tokens'))
      const usual = wish.withinWindow ? Math.floor(longest * DEFAULT_SHARE) : Number.POSITIVE_INFINITY
      if (wish.threshold !== undefined && input <= Math.min(wish.threshold, usual)) return null
      const asked = wish.instructions === undefined ? 0 : countTokens(wish.instructions)
      const added = wish.instructions === undefined ? words : asked
      const left = window - input - added
      if (left < LEAST_SUMMARY) return noRoom(wish.path, input, window - added - LEAST_SUMMARY)
      // The client's cap is one for what the model answers: where that is the summary, it holds for it. What an account
      // may take in a minute is otherwise for both calls.
      const named = (wish.only && conversation.maxOutputTokens) || Number.POSITIVE_INFINITY
      const minute = Math.floor(limit('output_tokens_per_minute') / (wish.only ? 1 : 2))
      const own = Math.min(max_output_tokens ?? Number.POSITIVE_INFINITY, limit('max_output_tokens'))
      const cap = Math.max(1, Math.min(max_summary, left, own, minute, named))
      const plan = { wish, cap, added, asked }
      if (wish.only) return { ...plan, further: { input: 0, output: 0 } }
      const of = (tokens: number | Reply) =>
        typeof tokens === 'number' ? { ...plan, further: { input: tokens + frame + cap, output: cap } } : tokens
      const bare = tokensOf(x, { ...conversation, turns: keptTurns(conversation.turns, wish.keeps) })
      return bare instanceof Promise ? bare.then(of) : of(bare)
    }

    return {
      onRequest(x) {
        x.set(compacting, planOf)
        const conversation = x.get(conversationSlot)
        return conversation.edits ? edited(x, conversation) : undefined
      },
      callLayer: next => (call, sink) => {
        const { facts } = call
        const plan = facts.peek(planSlot)?.compaction
        if (!plan) return next(call, sink)
        const tokens = async (conversation: Conversation) => {
          const prompt = new PromptCount(conversation)
          if (prompt.size <= SYNC_LIMIT) return prompt.now(media)
          return prompt.inPool(media, disconnection(facts), meterPool(), facts.get(identity).organization.id)
        }
        return new CompactedCall(call, sink, next, { plan, keepText: keep_text, tokens }).start()
      },
    }
  },
})

/** The least that media count, as the pipeline's `token-estimate` has it. */
function mediaOf(entries: readonly { plugin: string; config: unknown }[] | undefined): MediaMinimums {
  const entry = entries?.find(({ plugin }) => plugin === tokenEstimate.name)
  return { image_tokens: 85, document_tokens: 1500, ...(entry?.config as Partial<MediaMinimums>) }
}

function noRoom(param: string, input: number, most: number): Reply {
  return tooLong(param, input, most, '. Its summary would not fit into the window: compact earlier, or send less')
}
