/**
 * The call of a model: what the terminal makes of a plan, and the layers that stand around it. It is public: plugins
 * import it from `sluice`.
 *
 * A layer takes the next one and returns one of the same shape, as undici's interceptors do. There are three places:
 *
 *   call      around the whole call; no backend is chosen yet. It may call `next` never, once or several times
 *   attempt   around each attempt at one backend
 *   wire      below `translation`: the request as it is written goes in, the reply's bytes come out
 *
 * The first line of the pipeline that adds a layer is the outermost of its place.
 */
import type { Conversation } from '../canon/conversation.ts'
import type { ErrorCode, GatewayError } from '../canon/errors.ts'
import type { StreamEvent } from '../canon/events.ts'
import type { UpstreamFault } from '../canon/upstream-fault.ts'
import type { Clock } from '../tools/clock.ts'
import type { Slot } from '../tools/slot.ts'
import type { Backend, FaultHeaders, HeaderValue } from './dialect.ts'
import type { Incoming } from './listener.ts'
import type { Surface } from './surface.ts'

/** How long a call may take, in milliseconds. */
export interface Clocks {
  /** Longest time without model activity (STR-1). */
  readonly idle: number
  /** Longest time of the whole exchange. */
  readonly ceiling: number
  /** Longest wait for the first event of the reply. */
  readonly firstByte: number
  /** Longest wait before the head is sent although no event has come (decisions 11). */
  readonly headWait: number
  /** Longest time that a draining upstream may run on after the client has disconnected. */
  readonly drain: number
}

/** What a layer may know about the exchange. */
export interface CallFacts {
  /** The request id, as sent in `x-request-id`. */
  readonly id: string
  readonly incoming: Incoming
  readonly surface: Surface | undefined
  readonly clock: Clock
  /** Reads a slot that a plugin above fills. @throws Error when the slot is empty */
  get<T>(slot: Slot<T>): T
  /** Reads a slot that may be empty. */
  peek<T>(slot: Slot<T>): T | undefined
  /** Fills a slot that the plugin declares. */
  set<T>(slot: Slot<T>, value: T): void
  /** Registers a function that releases what was just acquired, when the exchange has settled. */
  defer(release: () => void): void
}

/** A call as it is planned. It is never changed in place: a layer that wants another passes on `{ ...call, sent }`. */
export interface Call {
  /** What the client sees and pays for. */
  readonly asked: Conversation
  /** What goes out, before a backend's own limits. */
  readonly sent: Conversation
  /** Prompt tokens of `sent`, as limits count them. */
  readonly input: number
  /** The backends that can serve it, in order of preference; never empty. */
  readonly candidates: readonly Backend[]
  readonly clocks: Clocks
  /** When the exchange reached the terminal, monotonic milliseconds: all its calls and attempts share the ceiling. */
  readonly startedMono: number
  /** The most bytes of a reply. */
  readonly maxReply: number
  readonly facts: CallFacts
  /** What became of the exchange's attempts; the one thing that is written to. */
  readonly report: CallReport
}

/** A call for which a backend has been chosen. */
export interface AttemptCall extends Call {
  readonly backend: Backend
  /** Called when the head of a stream of 200 has come, before its first event. */
  readonly headCame?: () => void
}

/** What became of the attempts of an exchange. `upstream` keeps one for each exchange, in the slot `callReport`. */
export interface CallReport {
  /** The backend that answered last; undefined until one has. */
  readonly served: Backend | undefined
  /** The layer that answered in place of a backend. It has no effect where a backend has answered, too. */
  readonly instead: LayerAnswer | undefined
  /** Attempts that failed, oldest first; of many, the last ones. */
  readonly failed: readonly FailedAttempt[]
  /**
   * A backend has the prompt. One that could not be reached does not have it, nor one that refused the request with an
   * error status: providers charge for neither.
   */
  readonly promptTaken: boolean
  /** Backends that were not asked, each once. */
  readonly passedOver: readonly PassedOver[]
  /** Prompt tokens of the exchange's calls after the first one. */
  readonly furtherInput: number
  /**
   * What calls of layers for purposes of their own cost the operator, nano-USD: beside the calls whose events reach the
   * client. Null when one of them cost what nobody knows.
   */
  readonly ownCost: number | null
  /** A layer makes a further call, whose prompt has this many tokens. */
  calledAgain(promptTokens: number): void
  /** A layer has made a call for a purpose of its own. @param cost nano-USD; null when it is not known */
  calledApart(cost: number | null): void
  answered(backend: Backend): void
  /** A layer answers in place of a backend: say so before its first event. */
  answeredInstead(answer: LayerAnswer): void
  passed(over: PassedOver): void
  /** @param headers of the request; their values are removed from what the provider said */
  failure(attempt: AttemptFailure, error: GatewayError, headers: Readonly<Record<string, string>>): void
  tookPrompt(): void
}

/** An answer that a layer gives in place of a backend. */
export interface LayerAnswer {
  /** Who answers, for the ledger row, logs and traces: the plugin's name. */
  readonly by: string
  /**
   * The share of the model's price at which the answer is billed: 0 is free, 1 is what the model's own would cost. Limits
   * of tokens count nothing of it, since no backend had the prompt.
   */
  readonly share: number
}

/** An attempt that failed, or whose reply was cut. */
export interface FailedAttempt extends AttemptFailure {
  code: ErrorCode
  /** The error that the provider reported; null when it reported none. */
  told: UpstreamFault | null
}
export interface AttemptFailure {
  /** `provider/model`. */
  backend: string
  /** Status of the provider's reply; 0 when none came. */
  status: number
  /** From the attempt's start to its failure, milliseconds. */
  ms: number
  /** What happened, in the gateway's own words, where the provider did not say it: `could not connect: ECONNREFUSED`. */
  why?: string | undefined
}

/** Why a backend is left out: what kept it out, and to which request that was answered. */
export interface LeftOut {
  /** `failures`: its breaker is open. `pause`: the provider asked for one. */
  readonly why: 'failures' | 'pause'
  readonly code: ErrorCode
  /** How that attempt failed: `status 500`, `could not connect: ECONNREFUSED`. */
  readonly how?: string | undefined
  readonly requestId: string
  /** Unix ms. */
  readonly since: number
}
/** A backend that was not asked, since it was left out. */
export interface PassedOver extends LeftOut {
  /** `provider/model`. */
  readonly backend: string
  /** For whom it is left out. */
  readonly scope: 'all' | 'organization'
  /** Until when at least, Unix ms. */
  readonly until: number
}

/** What kind of failure an attempt ended with; plugins/shared/fault-table.ts says what follows from each. */
export type FaultKind =
  /** No connection came about. */
  | 'unreachable'
  /** Nothing was sent, for a reason that is not the backend's, such as missing credentials. */
  | 'not_sent'
  /** The provider refused this request, and every other one would refuse it, too. */
  | 'refused'
  /** The provider says that it did not do the work, for a reason that another backend may not have. */
  | 'declined'
  /** The provider says that it failed. */
  | 'failed'
  /** The reply broke off, or never began: the provider may have done the work. */
  | 'broken'

/** What the retrying part of `upstream` learns of a failure, beside the error. */
export interface CallFault {
  readonly kind: FaultKind
  /**
   * For how long the provider asked not to be called, milliseconds. The wait that clients are given is in the error,
   * within the range of its class (ERR-6).
   */
  readonly restMs?: number | null
  /** The reply was over a bound on its size. */
  readonly oversized?: true
}

/**
 * Where a call's events go: the exchange, a layer, or whoever made the call. Every call ends with exactly one `end` or
 * `fail`, unless its control was told to abort and did not answer `draining`.
 */
export interface CallSink {
  emit(event: StreamEvent): void
  /**
   * Called once for each read from upstream.
   * @returns false when the upstream must be paused, until `resume` of the call's control is called
   */
  flush(): boolean
  /** Sends the head now, although no event has come. After the head no other backend is tried (decisions 11). */
  sendHead(): void
  /** The reply ended normally, after its `finish`. */
  end(): void
  /**
   * The call failed.
   * @param fault why, where an attempt failed before its first event; a layer that passes the error on passes it, too.
   * Without it no other backend is tried.
   */
  fail(error: GatewayError, fault?: CallFault): void
  readonly headSent: boolean
  /** The client has disconnected. An upstream that is being drained may still run. */
  readonly clientGone: boolean
  /** The exchange is settled: nothing that is sent now reaches anybody. */
  readonly closed: boolean
}

/** How a call is paused, resumed and stopped. After the call's end nothing happens. */
export interface CallControl {
  pause(): void
  resume(): void
  /**
   * The client disconnected or the exchange ended: cancel the upstream. A control that returns `draining` keeps the
   * upstream running without a client, so that its usage report still arrives (`on_client_gone: drain`); the call must
   * then still `end` or `fail`.
   */
  abort(reason: 'client_gone' | 'ended'): undefined | 'draining'
}

/** Makes a call. It may end, or fail, before it returns. */
export type Send = (call: Call, sink: CallSink) => CallControl
export type CallLayer = (next: Send) => Send
/** Makes an attempt at `call.backend`. */
export type SendAttempt = (call: AttemptCall, sink: CallSink) => CallControl
export type AttemptLayer = (next: SendAttempt) => SendAttempt

/** JSON as it is sent: text, or text and bytes in pieces. */
export type WireBody = string | readonly (string | Uint8Array)[]

/** A request in its backend's dialect, as it is sent. It is never changed in place. */
export interface WireRequest {
  readonly call: AttemptCall
  readonly method: string
  /** The path with the query, below the provider's `base_url`. */
  readonly path: string
  /** The headers that many requests share, names in lower case: one object, by which the written head is kept. */
  readonly headers: Readonly<Record<string, string>>
  /** The headers of this request alone; a layer adds its own here. None of them is in `headers`. */
  readonly own: Readonly<Record<string, string>>
  readonly body: WireBody
}

/** The connection under a reply. */
export interface WireControl {
  readonly aborted: boolean
  pause(): void
  resume(): void
  abort(reason: Error): void
}

/** Credentials that were fetched for a request. */
export interface WireCredentials {
  readonly headers: Readonly<Record<string, string>>
  /** The provider refused them (401 or 403): they are fetched again, though they have not expired. */
  refused(): void
}

/**
 * What takes a reply: undici's handler, and two calls more. `onResponseError` may come before anything was sent; a
 * `GatewayError` then says that nothing was, for a reason that is not the backend's.
 */
export interface WireHandler {
  /** Nobody waits for the reply any more: what was not sent yet is not sent. */
  readonly over: boolean
  /** The request is handed to the connections: the upstream's clocks run from here. */
  onRequestSent(request: WireRequest, credentials?: WireCredentials): void
  onRequestStart(control: WireControl): void
  /**
   * The request met a kept connection that the server was just closing: nobody has read it, and it goes out again over
   * a new connection. `onRequestStart` follows when that is there, or `onResponseError`.
   */
  onRequestLost(): void
  onResponseStart(control: WireControl, status: number, headers: WireHeaders): void
  onResponseData(control: WireControl, chunk: Buffer): void
  onResponseEnd(control: WireControl): void
  onResponseError(control: WireControl | null, error: Error): void
}
/** The headers of a reply that the gateway reads, names in lower case. Its HTTP/1.1 client drops all others. */
export interface WireHeaders extends FaultHeaders {
  'content-type'?: HeaderValue
  'content-encoding'?: HeaderValue
  'keep-alive'?: HeaderValue
}

/** Sends a written request; its reply goes to the handler. */
export type SendWire = (request: WireRequest, handler: WireHandler) => void
export type WireLayer = (next: SendWire) => SendWire
