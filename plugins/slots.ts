/** Facts that the built-in plugins share. One writer each, named in its comment. Slots core itself reads are in core/plugin.ts. */
import type { KeyConfig, ModelConfig, OrganizationConfig } from '../config/types.ts'
import type { Conversation, SearchTool } from '../core/conversation.ts'
import type { Backend, Decoder, FaultHeaders, OutboundRequest } from '../core/dialect.ts'
import type { ErrorCode, GatewayError } from '../core/errors.ts'
import { slot } from '../core/plugin.ts'
import type { Cell, CellState } from '../core/store.ts'
import type { Pieces, Verbatim } from './verbatim.ts'

/** Filled by `auth`. */
export const identity = slot<Identity>('identity')
export interface Identity {
  organization: OrganizationConfig
  key: KeyConfig
}

/** Filled by `conversation`. */
export const model = slot<ModelConfig>('model')

/** Filled by `conversation` and `validation` on count_tokens chains only: what they would have refused. */
export const wouldRefuse = slot<Error>('wouldRefuse')

/** Filled by `routing`: backends that can serve the request, in order of preference. Never empty. */
export const candidates = slot<Backend[]>('candidates')

/**
 * Filled by `routing` when what goes upstream is not what the client wrote: media that was fetched, a hosted search that became a function. What
 * the client sees, and is billed for, stays `conversation`.
 */
export const upstreamConversation = slot<Conversation>('upstreamConversation')

/** Filled by `routing` when the request declares a hosted search: who runs it. */
export const searchPlan = slot<SearchPlan>('searchPlan')
export interface SearchPlan {
  tool: SearchTool
  /** The function that stands for it upstream, whose calls the gateway runs; null where backends search themselves. */
  name: string | null
}

/**
 * Filled by `translation`, called by `upstream` for each attempt: writes the request for a backend. `conversation` stands in for the exchange's own,
 * in the later rounds of a search loop. Throws when the request can't be written.
 */
export const outbound = slot<(backend: Backend, conversation?: Conversation) => Outbound>('outbound')
/** An attempt's request in its backend's dialect, and what reads the reply to it. */
export interface Outbound {
  readonly request: Omit<OutboundRequest, 'body'>
  /** JSON, with long texts as the client sent them. */
  readonly body: string | Pieces
  /** A new decoder for a reply of 2xx. */
  decoder(): Decoder
  /** The error that a reply of another status is for the client. */
  fault(status: number, headers: FaultHeaders, body: string): GatewayError
}

/** Filled by `upstream` when an attempt has answered. */
export const servedBy = slot<Backend>('servedBy')

/** Filled by `proxy` when it is done: bytes of the request's body that came. */
export const receivedBytes = slot<number>('receivedBytes')

/** Filled by `validation` where it saves time: the body's long strings as they were sent. */
export const verbatim = slot<Verbatim>('verbatim')

/** Filled by `validation`: caps that the canonical conversation is held against (REQ-2). */
export const contentLimits = slot<ContentLimits>('contentLimits')
export interface ContentLimits {
  images: number
  documents: number
  /** UTF-16 units of history, without the last user turn. */
  replayBytes: number
  /** Bytes of a body. */
  bodyBytes: number
  /** Values in the arguments of calls: those that are text have not been counted with the body's. */
  nodes: number
}

/** Filled by `admission`: what was reserved, and how the cells stood after it. */
export const reservation = slot<Reservation>('reservation')
export interface Reservation {
  cells: readonly Cell[]
  states: readonly CellState[]
  /** Limits are compressed by platform load (LIM-10). */
  compressed: boolean
  /** Tokens and nano-USD that were reserved. */
  input: number
  output: number
  cost: number
}

/** Filled by `otel` when the exchange is traced; `upstream` tells it of its attempts. */
export const trace = slot<Trace>('trace')
export interface Trace {
  /** An attempt begins; the one before has ended. @returns its `traceparent` */
  attempt(backend: Backend): string
  /** The running attempt failed. */
  failed(code: ErrorCode): void
}
