/** What core needs of a client's wire format. Implementations live in `surfaces/`; core imports none. */
import type { Conversation, SurfaceName } from './conversation.ts'
import type { GatewayError } from './errors.ts'
import type { FinishEvent, StreamEvent, Usage } from './events.ts'

export interface Surface {
  readonly name: SurfaceName
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
}

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
 * bytes to send as a string ('' for none). Buffered: the same calls with their return value ignored, then `object()`.
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
  /** The reply as one object: after `finish`, the buffered body, equal to what a client accumulates from the stream. */
  object(): Record<string, unknown>
}

export type SurfaceTable = Readonly<Record<SurfaceName, Surface>>
