/**
 * The canonical reply: the stream of events that a dialect's decoder emits and a surface's encoder writes.
 *
 * Decoders may emit calls interleaved and `usage` after `finish`; `core/sequence.ts` puts the stream in order before any
 * plugin sees it. What plugins and encoders see obeys this grammar (STR-6):
 *
 *   stream    := item* (usage)? (finish | error)
 *   item      := text+ | refusal+ | reasoning* reasoning_end | call | search | activity | break
 *   call      := tool_call tool_args* tool_end          (strictly one after the other, `index` dense from 0)
 *   search    := search_start search_end
 *
 * A `text` after a `break` (or after any other item) starts a new text block. `citation` belongs to the open text block.
 */
import type { Continuation, SearchResult } from './conversation.ts'
import type { GatewayError } from './errors.ts'

export type StreamEvent =
  | TextEvent
  | { type: 'refusal'; text: string }
  | { type: 'citation'; citation: Citation }
  | { type: 'break' }
  /**
   * A delta of a reasoning summary; `part` counts summary parts from 0 within the reasoning item. `id`: on the first delta of an item, the
   * public item id that private data will be kept under.
   */
  | { type: 'reasoning'; text: string; part: number; id?: string }
  /** Ends a reasoning item; alone, it is hidden reasoning without a summary. `handle` is the item's public id, where private data is kept under it. */
  | { type: 'reasoning_end'; continuation?: Continuation; handle?: string }
  | ToolCallEvent
  /** Function: JSON text. Custom: raw input text. */
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
      /** The provider paused before its result came, which the next request may bring. */
      unfinished?: true
    }
  /** The model is at work and shows nothing (hidden reasoning, hosted tools): feeds the idle clock (decisions 12). */
  | { type: 'activity' }
  /** `estimated`: part of the reasoning was counted by the gateway, since not every request that led to the reply was reported. */
  | { type: 'usage'; usage: ProviderUsage; estimated?: true }
  | FinishEvent
  | { type: 'error'; error: GatewayError }
  /** Untouched bytes, from the `proxy` terminal only. */
  | { type: 'bytes'; bytes: Uint8Array }

export interface TextEvent {
  type: 'text'
  text: string
  logprobs?: TokenLogprob[]
}

export interface ToolCallEvent {
  type: 'tool_call'
  /** Dense from 0 in the reply. */
  index: number
  /** Public id, `call_eba1_…`. */
  id: string
  kind: 'function' | 'custom'
  /** The declared name (aliases already undone). */
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
  | 'idle_timeout'
  | 'ceiling_timeout'

export interface FinishEvent {
  type: 'finish'
  reason: FinishReason
  /** The matched stop string, for `stop_sequence`. */
  stopSequence?: string
  /** Refusal explanation, when the provider gave one. */
  explanation?: string
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
  /** UTF-16 offsets into the text block, when known. */
  start?: number
  end?: number
  citedText?: string
  handle?: string
}

/** A provider's own usage report, normalised (wire.md F.6): prompt includes cached. Absent members were not reported. */
export interface ProviderUsage {
  prompt?: number
  cached?: number
  cacheWrite?: number
  output?: number
  reasoning?: number
  searches?: number
}

/** What is reported and billed, in o200k_base tokens (METER-1…6). `cached + cacheWrite <= input`. */
export interface Usage {
  input: number
  cached: number
  cacheWrite: number
  /** Visible output plus reasoning. */
  output: number
  reasoning: number
  searches: number
  /** True when reasoning or cache figures had to be estimated (no report from the provider). */
  estimated: boolean
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
