/** What core needs of a client's wire format. Implementations live in `surfaces/`; core imports none. */
import type { Conversation, SurfaceName } from './conversation.ts'
import { errorMembers, type GatewayError } from './errors.ts'
import type { FinishEvent, StreamEvent, Usage } from './events.ts'
import type { HeaderList } from './listener.ts'

export interface Surface {
  readonly name: SurfaceName
  /** For people: `Chat Completions`. */
  readonly title: string
  /** Where its clients send requests. A path that holds it and has no route is refused in this surface's form. */
  readonly path: string
  /** Another header than `authorization` that its clients may send the key in. */
  readonly keyHeader?: string
  /** The header in which its clients name preview features, comma-separated. */
  readonly previewHeader?: string
  /** JSON Schema (2020-12) of the request body, for docs and OpenAPI. */
  readonly requestSchema: Record<string, unknown>
  /**
   * Checks a parsed body against the surface's schema (GEN-2).
   * `reject`: throws a GatewayError for the first fault. `strip`: unknown members are removed from the body in place and
   * their paths returned; every other fault still throws.
   */
  validate(body: unknown, unknownFields: 'reject' | 'strip'): string[]
  /** Builds the canonical conversation from a body that `validate` accepted. Throws GatewayError for rules a schema can't say. */
  parse(body: unknown): Conversation
  /**
   * A best-effort conversation from a body `validate` may have refused (count_tokens, decisions 2). Never throws except for a
   * missing `messages`.
   */
  parseLoosely?(body: unknown): Conversation
  /** One encoder per exchange. */
  encoder(context: EncodeContext): Encoder
  /** Body of an error reply, a JSON text (ERR-1). */
  error(error: GatewayError, requestId: string): string
  /** Headers beside `x-request-id` that carry the request id (Messages: `request-id`). */
  readonly requestIdHeaders: readonly string[]
  /** How it is spoken over a WebSocket. Absent: it is not. */
  readonly socket?: SocketForm
}

/** A surface over a WebSocket: one message is one request, and each frame of its reply is one message. */
export interface SocketForm {
  /** As `Surface`, for requests that are messages: bodies have the envelope's members too, and an encoder ends each frame, one JSON text, with a line end. */
  readonly surface: Surface
  /** Reads of a message what must be known before its turn comes, without building it; yields where a long one should let others have the event loop. Throws a GatewayError. */
  open(message: Uint8Array): Generator<undefined, Envelope>
  /** A frame as it is sent. @param headers of the reply's head, on its first frame */
  frame(json: string, lane: string | undefined, headers: HeaderList | null): string
  /** The message that stands for a whole reply: an error, as a rule. @param body JSON */
  reply(status: number, headers: HeaderList, body: string, lane: string | undefined): string
}

export type Envelope =
  /** Requests of one lane run one after the other, those of several at the same time. No lane is a lane too. */
  | { kind: 'request'; lane: string | undefined }
  /** Wants no answer. */
  | { kind: 'notice' }

/** What an encoder may know. Every member is fixed before the first event. */
export interface EncodeContext {
  /** `x-request-id` of the exchange. */
  requestId: string
  /** Unix seconds. */
  created: number
  /** The canonical public model id (MOD-3). */
  model: string
  /** The validated body, for echo members. */
  body: Record<string, unknown>
  conversation: Conversation
  /** Metered prompt tokens, for Messages `message_start`. */
  promptTokens: number
  /** Object id of the reply without its prefix: [A-Za-z0-9]{24}. `resp_`, `chatcmpl-`, `msg_` are the surface's own. */
  objectId: string
  /** Mints `item_eba1_…` (output items) and other prefixed ids. */
  mint(prefix: 'item_eba1_' | 'hist_eba1_'): string
  /** Unix milliseconds. */
  now(): number
}

/**
 * Writes one reply. Streamed: `event` for each event in the order of core/events.ts, then `finish` or `error`; each returns the SSE
 * bytes to send as a string ('' for none). Buffered: the same calls with their return value ignored, then `body()`.
 * It is a state machine that can only emit well-formed sequences: an event out of grammar is a bug and throws.
 */
export interface Encoder {
  /** Frames that open the stream; called once, when the head goes out. */
  start(): string
  /** Any event but `usage`, `finish`, `error` and `bytes`. `activity` returns ''. */
  event(event: StreamEvent): string
  /** Closes what is open, then the terminal frames. */
  finish(finish: FinishEvent, usage: Usage): string
  /** Error frame(s) after the head is out (ERR-8); nothing may follow. `usage` when known. */
  error(error: GatewayError, usage?: Usage): string
  /** A keep-alive in the surface's own form (STR-5, wire.md D). */
  keepAlive(): string
  /** The reply as one object, in JSON: after `finish`, the buffered body, equal to what a client accumulates from the stream. */
  body(): string
}

/** The surfaces of a build, by name, in the order in which people are shown them. */
export type SurfaceTable = Readonly<Record<SurfaceName, Surface>>

/** The body of an error reply: the surface's own envelope, or the plain one where the path has no surface. */
export function errorBody(surface: Surface | undefined, error: GatewayError, requestId: string): string {
  return surface ? surface.error(error, requestId) : JSON.stringify({ error: errorMembers(error, requestId) })
}
