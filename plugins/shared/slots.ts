/** Facts that the built-in plugins share. One writer each, named in its comment. Slots core itself reads are in core/plugin.ts. */
import type { KeyConfig, ModelConfig, OrganizationConfig } from '../../config/types.ts'
import type { Conversation, SearchTool } from '../../core/conversation.ts'
import type { Backend, Decoder, FaultHeaders, OutboundRequest, Unfit } from '../../core/dialect.ts'
import type { ErrorCode, GatewayError } from '../../core/errors.ts'
import { type Exchange, type Reply, slot } from '../../core/plugin.ts'
import type { Cell, CellState } from '../../core/store.ts'
import type { UpstreamFault } from '../../core/upstream-fault.ts'
import type { WantedMedia } from '../media/fetch-media.ts'
import type { Pieces, Verbatim } from './verbatim.ts'

/** Filled by `auth`. */
export const identity = slot<Identity>('identity')
export interface Identity {
  organization: OrganizationConfig
  key: KeyConfig
}

/**
 * Filled by `model-access`: the request as its surface parsed it, before anything is recalled. `sluice explain` and the
 * faults of a pipeline show it as `asked`.
 */
export const parsedConversation = slot<Conversation>('asked')

/** Filled by `model-access`. */
export const model = slot<ModelConfig>('model')

/** Filled by `model-access`: says which capability a conversation needs that plan or key do not include; null when they include all. */
export const rights = slot<Rights>('rights')
export type Rights = (conversation: Conversation) => Unfit | null

/** Filled by `validation` above an advisory terminal alone: what it would have refused. */
export const wouldRefuse = slot<Error>('wouldRefuse')

/** Filled by `routing`: backends that can serve the request, in order of preference. Never empty. */
export const candidates = slot<Backend[]>('candidates')

/**
 * Filled by `routing` when what goes upstream is not what the client wrote: media that was fetched, a hosted search that became a function. What
 * the client sees, and is billed for, stays `conversation`.
 */
export const upstreamConversation = slot<Conversation>('upstreamConversation')

/** Filled by `media`: fetches for backends that take the bytes of files and no URLs. */
export const mediaFetch = slot<MediaFetch>('mediaFetch')
export interface MediaFetch {
  /**
   * The files that stand between a conversation and a backend that takes these kinds as bytes alone, and the conversation as it would be with them.
   * Null when there are none, or when one of them may not be fetched.
   */
  lacking(conversation: Conversation, kinds: ReadonlySet<WantedMedia['kind']>): LackingMedia | null
  /** Fetches them. Rejects for what is no fault of the files'. */
  fetch(x: Exchange, conversation: Conversation, wanted: readonly WantedMedia[]): Promise<Fetched>
}
export interface LackingMedia {
  wanted: readonly WantedMedia[]
  /** With placeholders, for asking whether a backend could serve it then. */
  whole: Conversation
}
/** The conversation with the bytes in place, or why not; `final`: no other backend is to be asked either. */
export type Fetched =
  | { whole: Conversation; refused?: undefined; final?: undefined }
  | { refused: Reply; final: boolean }

/** Filled by `web-search`: how a hosted search goes upstream. */
export const hostedSearch = slot<HostedSearch>('hostedSearch')
export interface HostedSearch {
  /** For a backend that searches by itself. Null: the conversation declares no search. */
  native(conversation: Conversation): SearchPlan | null
  /** For backends that don't: the model sees a function, whose calls the gateway runs. Null: nobody answers them, or there is no search. */
  asFunction(conversation: Conversation): { conversation: Conversation; plan: SearchPlan } | null
}

/** Filled by `routing` when the request declares a hosted search: who runs it. */
export const searchPlan = slot<SearchPlan>('searchPlan')
export interface SearchPlan {
  tool: SearchTool
  /** The function that stands for it upstream, whose calls the gateway runs; null where backends search themselves. */
  name: string | null
  /** Who answers them: `simulator`, a name of `providers`, or a plugin; null: nobody. */
  provider: string | null
  /** Most rounds of searches for one request. */
  maxTurns: number
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

/** Filled by `upstream` when an attempt failed: the exchange's failed attempts, oldest first, at most sixteen. */
export const failedAttempts = slot<readonly FailedAttempt[]>('failedAttempts')
export interface FailedAttempt {
  /** `provider/model`. */
  backend: string
  code: ErrorCode
  /** Status of the provider's reply; 0 when none came. */
  status: number
  /** What the provider said; null when it said nothing that is an error. */
  told: UpstreamFault | null
  /** From the attempt's start to its failure, milliseconds. */
  ms: number
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
