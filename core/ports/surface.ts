/**
 * The surface port: what core needs to know about a client's wire format. The surfaces are in `surfaces/`; core
 * imports none.
 */
import type { Conversation, SurfaceName } from '../canon/conversation.ts'
import { errorMembers, type GatewayError } from '../canon/errors.ts'
import type { FinishEvent, StreamEvent, Usage } from '../canon/events.ts'
import type { JsonPath } from '../tools/json.ts'
import type { HeaderList, Incoming } from './listener.ts'

/** A public API that clients speak. */
export interface Surface {
  readonly name: SurfaceName
  /** The name for people: `Chat Completions`. */
  readonly title: string
  /**
   * The path to which its clients send requests. On a path that contains it, and whose route names no surface, errors
   * have this surface's form.
   */
  readonly path: string
  /** What its requests ask a model for. Absent: text. */
  readonly serves?: 'embeddings'
  /** A header, beside `authorization`, in which its clients may send the key. */
  readonly keyHeader?: string
  /** Headers that only its clients send: they tell whose request a path without a surface has got. */
  readonly ownHeaders?: readonly string[]
  /** The header in which its clients name preview features, separated by commas. */
  readonly previewHeader?: string
  /** The preview features that it knows. A request may name others; nothing is done about them. */
  readonly previews?: ReadonlySet<string>
  /**
   * For a path that takes requests of several surfaces: how `validation` tells which one a request is of. Until then,
   * errors have the form of the caller. Absent: requests are of this surface.
   */
  readonly told?: {
    readonly surfaces: readonly Surface[]
    /** The members of the body that matter. */
    readonly members: readonly string[]
    /**
     * @param names those of `members` that the body has
     * @returns the surface; where neither tells, each that it may be: the first that accepts the body is it
     */
    by(headers: Incoming['headers'], names: ReadonlySet<string>): readonly [Surface, ...Surface[]]
  }
  /** JSON Schema (2020-12) of the request body, for docs and OpenAPI. */
  readonly requestSchema: Record<string, unknown>
  /**
   * Where its bodies hold arguments of calls as JSON values. `validation` keeps the spelling of their numbers. Absent:
   * arguments are strings only.
   */
  readonly argumentsAt?: JsonPath
  /**
   * Checks a parsed body against the surface's schema (GEN-2).
   * @param unknownFields `reject`: unknown members are errors. `strip`: they are removed from the body in place.
   * @returns the paths of the members that were removed
   * @throws GatewayError for the first error
   */
  validate(body: unknown, unknownFields: 'reject' | 'strip'): string[]
  /** What `validation` does about structured output unless its option says otherwise (GEN-3). Absent: `translate`. */
  readonly structuredOutput?: 'reject'
  /**
   * For gateways that offer no structured output on this surface (GEN-3). Absent: no body of the surface can ask for it.
   * @throws GatewayError when a body, which need not be valid, asks for it
   */
  refuseStructured?(body: Record<string, unknown>): void
  /**
   * Builds the canonical conversation from a body that `validate` accepted.
   * @throws GatewayError for rules that a schema cannot express
   */
  parse(body: unknown): Conversation
  /**
   * Builds a conversation as far as possible from a body that `validate` may have refused (count_tokens, decisions
   * 2).
   * @throws GatewayError when the body has nothing to count
   */
  parseLoosely?(body: unknown): Conversation
  /**
   * A count that names a model is refused where a request for it would be. Otherwise counts refuse no model.
   */
  readonly judgesCounts?: boolean
  /**
   * Makes a body for `parseLoosely` of JSON that is no object. Absent: such a body is refused where bodies are counted,
   * too.
   */
  looseBody?(value: unknown): Record<string, unknown>
  /** The reply of a count (`count-tokens`). Default: `{"input_tokens": N}`. */
  countReply?(tokens: number, counted?: Conversation): unknown
  /**
   * The part of a list that a query asks for, where the surface's clients page lists. Absent: they read them whole.
   * @throws GatewayError when the query is not valid
   */
  page?(query: URLSearchParams, ids: readonly string[]): ListPage
  /** Makes the encoder of one exchange. */
  encoder(context: EncodeContext): Encoder
  /** The body of an error reply, as JSON text (ERR-1). */
  error(error: GatewayError, requestId: string): string
  /** Headers that carry the request id in addition to `x-request-id` (Messages: `request-id`). */
  readonly requestIdHeaders: readonly string[]
  /** How the surface works over a WebSocket. Absent: it does not. */
  readonly socket?: SocketForm
}

/** A part of a list: the entries from the index `from`, without that at `to`. */
export interface ListPage {
  from: number
  to: number
  /** Whether the list goes on in the direction in which the client pages. */
  more: boolean
}

/** A surface over a WebSocket: one message is one request, and each frame of its reply is one message. */
export interface SocketForm {
  /**
   * The surface of requests that are messages. Their bodies also have the members of the envelope, and the encoder
   * writes each frame as one JSON text and a line end.
   */
  readonly surface: Surface
  /**
   * Reads the part of a message that is needed to queue it, without building the whole value. It yields when a long
   * message should let others use the event loop.
   * @throws GatewayError
   */
  open(message: Uint8Array): Generator<undefined, Envelope>
  /**
   * Makes the message that carries a frame.
   * @param headers the reply's headers, for its first frame; else null
   */
  frame(json: string, lane: string | undefined, headers: HeaderList | null): string
  /**
   * Makes the message that carries a whole reply, usually an error.
   * @param body JSON text
   */
  reply(status: number, headers: HeaderList, body: string, lane: string | undefined): string
}

/** What a message over a WebSocket is, as far as its queue must know. */
export type Envelope =
  /**
   * Requests of one lane run one after the other; requests of several lanes run at the same time. Requests without a
   * name share one lane. A warm-up is kept for the next request, and asks no model.
   */
  | { kind: 'request'; lane: string | undefined; warmUp: boolean }
  /** A message that needs no answer. */
  | { kind: 'notice' }

/** The facts that an encoder may use. Each is fixed before the first event. */
export interface EncodeContext {
  /** The `x-request-id` of the exchange. */
  requestId: string
  /** Unix seconds. */
  created: number
  /** The canonical public model id (MOD-3). */
  model: string
  /** The validated body, for echo members. */
  body: Record<string, unknown>
  conversation: Conversation
  /** The metered prompt tokens, for Messages `message_start`. */
  promptTokens: number
  /**
   * The id of the reply object without its prefix: [A-Za-z0-9]{24}. The surface adds `resp_`, `chatcmpl-` or `msg_`.
   */
  objectId: string
  /** Makes a new id of an output item. */
  mintItemId(): string
  /** Unix milliseconds. */
  now(): number
}

/**
 * Writes one reply. Streamed: `event` is called for each event in the order of core/canon/events.ts, then `finish` or
 * `error`; each returns the SSE frames to send as a string ('' for none). Buffered: the same calls, whose results are
 * ignored, then `body()`. An encoder is a state machine that emits only well-formed sequences: an event that breaks
 * the grammar is a bug of the gateway, and throws.
 */
export interface Encoder {
  /** Whether the client sees the text of `reasoning` events. */
  readonly showsReasoning: boolean
  /** The frames that open the stream. Called once, when the head is sent. */
  start(): string
  /** Encodes any event except `usage`, `finish`, `error` and `bytes`. `activity` gives ''. */
  event(event: StreamEvent): string
  /** Closes what is open and writes the terminal frames. */
  finish(finish: FinishEvent, usage: Usage): string
  /** Writes the error frames of a reply whose head was sent (ERR-8); nothing may follow. `usage` when it is known. */
  error(error: GatewayError, usage?: Usage): string
  /** A keep-alive in the surface's own form (STR-5, wire.md D). */
  keepAlive(): string
  /**
   * The reply as one JSON text: after `finish`, the buffered body, equal to what a client accumulates from the
   * stream (on Chat Completions but for `annotations`, which only the body has).
   */
  body(): string
  /** The stream, for reading it again, once it has begun; undefined for a reply that cannot be read again. */
  readonly sent?: SentStream | undefined
}

/**
 * A stream that can be read again from any event on, while it is made and afterwards. Its events are numbered from 0,
 * and each reader gets them as the first client did, byte for byte.
 */
export interface SentStream {
  /** The number of events so far. */
  readonly count: number
  /** About the bytes of memory that it holds. */
  readonly size: number
  /** How its texts were cut into events. With the finished object it makes the same stream again. */
  events(): string
  /** The reply object as it is now, JSON. */
  object(): string
  /** @param after the number of the last event that the reader has; -1 for none */
  read(after: number): StreamReader
}

export interface StreamReader {
  /** The number of the next event. */
  readonly sequence: number
  /**
   * The next frame; '' for one that the reader has already.
   * @param visible events from this number on are not to be seen yet: undefined is returned at the first of them
   */
  next(visible: number): string | undefined
}

/** The headers of a stream of server-sent events. */
export const SSE_HEADERS: HeaderList = [
  ['content-type', 'text/event-stream; charset=utf-8'],
  ['cache-control', 'no-cache, no-transform'],
  ['x-accel-buffering', 'no'],
]

/** The surfaces of a build, by name, in the order in which they are listed to people. */
export type SurfaceTable = Readonly<Record<SurfaceName, Surface>>

/** The surface where it is known; undefined where `validation` has to tell it first. */
export const knownSurface = (surface: Surface | undefined): Surface | undefined =>
  surface?.told === undefined ? surface : undefined

/** The body of an error reply: in the surface's form, or in a plain form where the path has no surface. */
export function errorBody(surface: Surface | undefined, error: GatewayError, requestId: string): string {
  return surface ? surface.error(error, requestId) : JSON.stringify({ error: errorMembers(error, requestId) })
}
