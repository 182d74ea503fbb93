/**
 * The canonical reply: the stream of events that a dialect's decoder emits and a surface's encoder writes.
 *
 * Decoders may emit calls interleaved and `usage` after `finish`; core/engine/sequence.ts puts the stream in order
 * before any plugin sees it. Plugins and encoders see this grammar (STR-6):
 *
 *   stream    := (compaction)? item* (usage)? (finish | error)
 *   stream    := vectors finish                          (embeddings)
 *   item      := text+ | refusal+ | reasoning* reasoning_end | call | search | activity | break
 *   call      := tool_call tool_args* tool_end          (strictly one after the other, `index` dense from 0)
 *   search    := search_start search_end
 *
 * What plugins add at the end (`onResponseEnd`) comes between `usage` and `finish`.
 *
 * A `text` after a `break` (or after any other item) starts a new text block. A `citation` belongs to the open text
 * block.
 */
import type { Continuation, Keeps, SearchResult, Turn } from './conversation.ts'
import type { GatewayError } from './errors.ts'

export type StreamEvent =
  | CompactionEvent
  | TextEvent
  | { type: 'refusal'; text: string }
  | { type: 'citation'; citation: Citation }
  | { type: 'break' }
  /**
   * A delta of a reasoning summary. `part` counts the summary's parts from 0 within the reasoning item. `id` is on
   * the first delta of an item: the public item id under which private data will be kept.
   */
  | { type: 'reasoning'; text: string; part: number; id?: string }
  /**
   * Ends a reasoning item. Without `reasoning` events before it, the reasoning is hidden and has no summary. `handle`
   * is the item's public id when private data is kept under it.
   */
  | { type: 'reasoning_end'; continuation?: Continuation; handle?: string }
  | ToolCallEvent
  /** A piece of a call's input. Function: JSON text. Custom: raw input text. */
  | { type: 'tool_args'; index: number; text: string }
  | { type: 'tool_end'; index: number }
  | { type: 'search_start'; id: string }
  | {
      type: 'search_end'
      id: string
      query: string
      results: SearchResult[]
      errorCode?: string
      continuation?: Continuation
      /** The provider reported the search behind the text that rests on it. A whole reply shows it before that text. */
      beforeText?: true
      /** The provider paused before this search had a result; the next request may bring it. */
      unfinished?: true
    }
  /**
   * The model is working but shows nothing (hidden reasoning, hosted tools). It resets the idle timeout (decisions
   * 12). `unseen`: output that the gateway keeps from the client, and that is counted all the same.
   */
  | { type: 'activity'; unseen?: Unseen }
  /**
   * `estimated`: the gateway counted part of the reasoning itself, since not every upstream request behind the reply
   * reported its usage. `cut`: the reply did not come to its end, and this is what was reported until then.
   */
  | { type: 'usage'; usage: ProviderUsage; estimated?: true; cut?: true }
  | FinishEvent
  | { type: 'error'; error: GatewayError }
  /** The vectors of a reply to a request for embeddings, all of them: the JSON text of a list, as the provider wrote it. */
  | { type: 'vectors'; json: string }
  /** Bytes of an upstream reply, unchanged; only the `proxy` terminal emits them. */
  | { type: 'bytes'; bytes: Uint8Array }

/** The conversation was compacted: the client goes on with this in place of what was said before. */
export interface CompactionEvent {
  type: 'compaction'
  /** Public item id. */
  id: string
  summary: string
  /** The summary as the client keeps it. The plugin `conversation` seals it on the way back; empty until then. */
  sealed: string
  keeps: Keeps
  /** What stays of the conversation before it, and the most UTF-16 units of texts of the user in it. */
  kept: readonly Turn[]
  most: number
  /** Tokens of what the model wrote, and of its reasoning as far as that was seen. */
  tokens: number
  reasoning: number
  /** What the provider reported of the call that wrote the summary; null when it reported nothing. */
  usage: ProviderUsage | null
  /** The gateway counted a part of the report itself. */
  estimated: boolean
  /** Tokens that the client sent for that call alone: its own words on how to summarise. */
  asked: number
  /** Prompt tokens of the call that follows; null when the reply ends with the compaction. */
  next: number | null
}

/** A piece of output that no client sees. Pieces of one `item` follow each other, and are counted as one text. */
export interface Unseen {
  item: string
  text: string
}

export interface TextEvent {
  type: 'text'
  text: string
  logprobs?: TokenLogprob[]
}

export interface ToolCallEvent {
  type: 'tool_call'
  /** The number of the call in the reply: 0, 1, 2, … */
  index: number
  /** Public id, `call_eba1_…`. */
  id: string
  kind: 'function' | 'custom'
  /** The name that the client declared; aliases are already undone. */
  name: string
  namespace?: string
  continuation?: Continuation
}

export type FinishReason =
  | 'stop'
  | 'stop_sequence'
  | 'tool_calls'
  | 'length'
  | 'context_full'
  | 'content_filter'
  | 'refusal'
  | 'pause'
  /** The conversation was compacted, and nothing else was asked for. */
  | 'compaction'
  | 'idle_timeout'
  | 'ceiling_timeout'

export interface FinishEvent {
  type: 'finish'
  reason: FinishReason
  /** The matched stop string, for `stop_sequence`. */
  stopSequence?: string
  /** The reason of a refusal, when the provider gave one. */
  explanation?: string
  /** What the client should know of a reply that is fine otherwise, for surfaces that have a member for it. */
  warnings?: readonly ReplyWarning[]
}

export interface ReplyWarning {
  /** A stable word, such as `not_retained`. */
  code: string
  /** What happened, and what to do. */
  message: string
}

export interface TokenLogprob {
  token: string
  logprob: number
  bytes: number[] | null
  top: { token: string; logprob: number; bytes: number[] | null }[]
}

export interface Citation {
  url: string
  title: string
  /** Offsets into the text block in UTF-16 code units, when known. */
  start?: number
  end?: number
  citedText?: string
  handle?: string
}

/**
 * A provider's own usage report, normalised (wire.md F.6): `prompt` includes `cached`. A missing member was not
 * reported.
 */
export interface ProviderUsage {
  prompt?: number
  cached?: number
  cacheWrite?: number
  output?: number
  reasoning?: number
  searches?: number
  /** Of `cacheWrite`, what the provider keeps for an hour. */
  cacheWriteHour?: number
  /** The service tier that served, in the provider's words. */
  tier?: string
  /** Set where several upstream requests made one reply: the prompts of all of them. Each is paid for at the provider. */
  rounds?: RoundsReport
}

/** How many upstream requests there were, and the sums over those that the provider reported. */
export interface RoundsReport extends Pick<ProviderUsage, 'prompt' | 'cached' | 'cacheWrite' | 'cacheWriteHour'> {
  count: number
}

/** The usage that is reported and billed, in o200k_base tokens (METER-1…6). `cached + cacheWrite <= input`. */
export interface Usage {
  input: number
  cached: number
  cacheWrite: number
  /** Visible output plus reasoning. */
  output: number
  reasoning: number
  searches: number
  /** True when the gateway had to estimate reasoning or cache tokens, because the provider reported none. */
  estimated: boolean
  /** What the call that compacted the conversation has of these figures; absent where there was none. */
  compaction?: Usage
}

/** The usage without that of a compaction. */
export function lessCompaction({ compaction, ...usage }: Usage): Usage {
  if (!compaction) return usage
  return {
    input: usage.input - compaction.input,
    cached: usage.cached - compaction.cached,
    cacheWrite: usage.cacheWrite - compaction.cacheWrite,
    output: usage.output - compaction.output,
    reasoning: usage.reasoning - compaction.reasoning,
    searches: usage.searches - compaction.searches,
    estimated: usage.estimated,
  }
}

export const ZERO_USAGE: Usage = Object.freeze({
  input: 0,
  cached: 0,
  cacheWrite: 0,
  output: 0,
  reasoning: 0,
  searches: 0,
  estimated: false,
})
