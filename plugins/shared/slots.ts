/**
 * Facts that the built-in plugins share. Each slot's comment names the one plugin that fills it. The slots that core
 * itself reads are in core/plugin.ts.
 */
import type { KeyConfig, ModelConfig, OrganizationConfig } from '../../config/types.ts'
import type { CallPart, CompactionWish, Conversation, SearchTool } from '../../core/canon/conversation.ts'
import type { Consumed } from '../../core/canon/limits.ts'
import {
  type CallReport,
  conversation,
  type Exchange,
  type FailedAttempt,
  type Reply,
  slot,
} from '../../core/plugin.ts'
import type { Backend, Unfit } from '../../core/ports/dialect.ts'
import type { Cell, CellState, ProviderSide } from '../../core/ports/store.ts'
import type { WantedMedia } from '../media/fetch-media.ts'
import type { Asked } from '../model-access/asked.ts'
import type { PreparedRequest } from './preparation.ts'
import type { RecentConversation } from './recent.ts'
import type { UnsentRequest } from './unsent.ts'
import type { Verbatim } from './verbatim.ts'

/** Filled by `auth`: who calls. */
export const identity = slot<Identity>('identity')
/** Who calls: an organization, and the key that the client sent. */
export interface Identity {
  organization: OrganizationConfig
  key: KeyConfig
}

/** Filled by `model-access`: the request as its surface parsed it, before stored responses are added. */
export const parsedConversation = slot<Conversation>('parsedConversation')

/**
 * Filled by `validation` before the body is read: the request's place in the budget of work before admission. Whoever
 * takes it out of preparation calls `leave`.
 */
export const preparing = slot<PreparedRequest>('preparing')

/**
 * Filled by `admission`: the request's bytes in the budget of what no provider has taken and answered yet. `upstream`
 * reports to it; the end of the exchange gives the bytes back, too.
 */
export const unsent = slot<UnsentRequest>('unsent')

/**
 * Filled by `admission` before the body is read, when it has not yet looked whether a limit is full. Plugins call it
 * before they begin expensive work; what it returns refuses the request.
 */
export const limitsCheck = slot<(x: Exchange) => undefined | Reply | Promise<undefined | Reply>>('limitsCheck')

/** Filled by `model-access`: the model that the request names. */
export const model = slot<ModelConfig>('model')

/**
 * Filled by `model-access`: names the first capability that a conversation needs and that plan or key do not include;
 * null when they include all.
 */
export const rights = slot<Rights>('rights')
export type Rights = (conversation: Conversation) => Unfit | null

/** Filled by `conversation` when the request continues a response: what that one, and those before it, asked for. */
export const recalledAsked = slot<Asked>('recalledAsked')

/**
 * Filled by `validation`, only when the terminal is advisory: the error with which it would have refused the request.
 */
export const wouldRefuse = slot<Error>('wouldRefuse')

/**
 * Filled by `idempotency` on a first use: whether another execution may have taken its key over. Asked when the
 * exchange settles; nothing is billed then.
 */
export const takenOver = slot<() => boolean>('takenOver')

/** Filled by `routing`: backends that can serve the request, in order of preference. Never empty. */
export const candidates = slot<Backend[]>('candidates', { madeFrom: conversation })

/** Filled by `routing`: how the request is served, beside its `candidates` and its `upstreamConversation`. */
export const plan = slot<Plan>('plan')
export interface Plan {
  /** How the request's hosted search is run; null where it declares none. */
  readonly search: SearchPlan | null
  /**
   * The client wants at most one call, and no backend that can be told serves the request: `conversation` keeps the
   * reply's first call and drops later ones (TOOL-5, decision 59).
   */
  readonly keepsFirstCall: boolean
  /**
   * Prompt tokens of what is sent, at least those of the estimate: what was fetched for it counts in limits, window and
   * exposure. The bill has the estimate.
   */
  readonly input: number
  /** The conversation is compacted first. Absent where it is not. */
  readonly compaction?: CompactionPlan
}

/**
 * Filled by `compaction`: how a request that asks for it is compacted. Null where its prompt is below the client's
 * threshold; a refusal where no summary would fit.
 */
export const compacting =
  slot<(x: Exchange) => CompactionPlan | null | Reply | Promise<CompactionPlan | null | Reply>>('compacting')

/** How the conversation of one exchange is compacted. */
export interface CompactionPlan {
  wish: CompactionWish
  /** The output cap of the call that writes the summary, in tokens. */
  cap: number
  /** Tokens that this call has beside the prompt: the gateway's own words, or the client's. */
  added: number
  /** Those of them that are the client's. */
  asked: number
  /**
   * The most that the request takes in all beyond its prompt and its own output: the summary, and the prompt that has it.
   * Nothing where the summary is the output.
   */
  further: { input: number; output: number }
}

/**
 * Filled by `routing` when the conversation that goes upstream differs from the client's: media were fetched, or a
 * hosted search became a function. `conversation` remains what the client sees and is billed for.
 */
export const upstreamConversation = slot<Conversation>('upstreamConversation')

/** Filled by `media`: fetches files for backends that take them as bytes and not as URLs. */
export const mediaFetch = slot<MediaFetch>('mediaFetch')
export interface MediaFetch {
  /**
   * The files that must be fetched before a backend that takes these kinds only as bytes can serve the conversation.
   * Null when there are none, or when one of them may not be fetched.
   */
  lacking(conversation: Conversation, kinds: ReadonlySet<WantedMedia['kind']>): LackingMedia | null
  /**
   * Fetches them.
   * @throws any error that the files or their hosts did not cause
   */
  fetch(x: Exchange, conversation: Conversation, wanted: readonly WantedMedia[]): Promise<Fetched>
}
export interface LackingMedia {
  wanted: readonly WantedMedia[]
  /**
   * The conversation with placeholders for the files, to check whether a backend could serve it with the bytes in
   * place.
   */
  whole: Conversation
}
/** The conversation with the bytes in place, or the refusal. `final`: no other backend is tried either. */
export type Fetched =
  | { whole: Conversation; refused?: undefined; final?: undefined }
  | { refused: Reply; final: boolean }

/** Filled by `web-search`: how a hosted search goes upstream. */
export const hostedSearch = slot<HostedSearch>('hostedSearch')
export interface HostedSearch {
  /** The plan for a backend that searches by itself; null when the conversation declares no search. */
  native(conversation: Conversation): SearchPlan | null
  /**
   * The plan for other backends: the model sees a function, and the gateway runs its calls. Null when no search
   * provider is configured, or when the conversation declares no search.
   */
  asFunction(conversation: Conversation): { conversation: Conversation; plan: SearchPlan } | null
}

/** How the hosted search of one exchange is run. */
export interface SearchPlan {
  tool: SearchTool
  /**
   * The name of the function that replaces the search upstream, and whose calls the gateway runs; null where backends
   * search themselves.
   */
  name: string | null
  /** What answers the searches: `simulator`, a name of `providers`, or a plugin; null when nothing does. */
  provider: string | null
  /** The most rounds of searches for one request. */
  maxTurns: number
  /** The most searches that the gateway makes for one request. */
  maxSearches: number
  /** The most bytes of results that the model gets for one request. */
  maxResultBytes: number
}

/** Filled by `translation`: what the last attempt does not send as the client wrote it. Absent: all is sent. */
export const adjusted = slot<readonly Adjusted[]>('adjusted')
export interface Adjusted {
  /** The client's member, or its last step: `seed`, `reasoning.effort`, `max_uses`. */
  field: string
  /** `not_supported`, or `sent_as_` and the value. */
  reason: string
}

/** Filled by `upstream`: what became of the exchange's attempts. */
export const callReport = slot<CallReport>('callReport')

/** Filled by `upstream` when an attempt failed: `failed` of `callReport`, for plugins written for 0.1. */
export const failedAttempts = slot<readonly FailedAttempt[]>('failedAttempts')

/** Filled by `usage-capture` at settlement: what was consumed beside the bill; absent when nothing was consumed. */
export const consumption = slot<Omit<Consumed, 'billed'>>('consumption')

/** Filled by `usage-capture` at settlement of what admission let in: what the provider's side says of it. */
export const providerSide = slot<ProviderSide>('providerSide')

/** Filled by `upstream` when an attempt has answered: `served` of `callReport`, for plugins written for 0.1. */
export const servedBy = slot<Backend>('servedBy')

/** Filled by `body-digest`: SHA-256 of the body in hex. */
export const bodyDigest = slot<string>('bodyDigest')

/**
 * For how long a request was made to wait on purpose, in milliseconds. A plugin that does so fills it, such as
 * `runaway`: log, trace and metrics have it.
 */
export const slowed = slot<number>('slowed')

/** Filled by `proxy` at its end: how many bytes of the request body arrived. */
export const receivedBytes = slot<number>('receivedBytes')

/** Filled by `validation` where it saves time: the body's long strings as the client sent them. */
export const verbatim = slot<Verbatim>('verbatim')

/** Filled by `validation`: the recent conversation of which this request is the last turn so far, where one is kept. */
export const recent = slot<RecentConversation>('recent')

/** Filled by `token-estimate`: what was counted, and how to count what the gateway makes of it later. */
export const counted = slot<Counted>('counted')
export interface Counted {
  conversation: Conversation
  /**
   * The tokens of another conversation, or the refusal when no thread is there for it. It changes neither the estimate
   * nor the bill.
   */
  again(conversation: Conversation): Promise<number | Reply>
  /** The refusal of this many tokens where they are over the window of model and account. */
  over(tokens: number): Reply | undefined
}

/**
 * Filled by `token-estimate` where a thread has brought large arguments of calls into the form that is sent: by call,
 * what stands for them in a request. Calls that are not in it are small.
 */
export const writtenArguments = slot<ReadonlyMap<CallPart, WrittenArguments>>('writtenArguments')
export interface WrittenArguments {
  /** The form itself. */
  text: string
  /** The form as a JSON string, UTF-8. */
  quoted: Uint8Array
  /** Whether the form is a JSON object. */
  object: boolean
}

/** Filled by `validation`: the most that a conversation may contain (REQ-2). */
export const contentLimits = slot<ContentLimits>('contentLimits')
export interface ContentLimits {
  images: number
  documents: number
  /** UTF-16 units of history, without the last user turn. */
  replayBytes: number
  /** Bytes of the request body. */
  bodyBytes: number
  /**
   * JSON values in the arguments of tool calls. Arguments that are sent as a JSON string are not counted with the
   * body's values.
   */
  nodes: number
}

/** Filled by `admission`: what was reserved, and the state of the cells after that. */
export const reservation = slot<Reservation>('reservation')
export interface Reservation {
  cells: readonly Cell[]
  states: readonly CellState[]
  /** Limits are reduced because of platform load (LIM-10). */
  compressed: boolean
  /** What was taken from each of `cells`, and when, Unix ms. */
  taken?: { amounts: readonly number[]; at: number }
  /** Reserved tokens; `cost` is in nano-USD, and of the output cap that is sent, which may be above `output`. */
  input: number
  output: number
  cost: number
  /** The most that is billed, nano-USD: `cost`, or infinite where nothing bounds the output. */
  most: number
  /** The output cap that is sent where the client named none and something else sets one, in tokens. */
  cap?: number
}
