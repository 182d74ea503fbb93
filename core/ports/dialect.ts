/**
 * The dialect port: what the chain needs to know about a provider's wire format. The dialects are in `providers/`;
 * they are pure functions without I/O.
 */
import type { CallPart, Conversation, Effort } from '../canon/conversation.ts'
import type { GatewayError } from '../canon/errors.ts'
import type { ProviderUsage, StreamEvent } from '../canon/events.ts'
import type { CostRates } from '../canon/money.ts'
import type { Members, Schema } from '../tools/vocabulary.ts'

/**
 * A dialect's name as providers give it in gateway.yaml, e.g. `openai-chat`. providers/index.ts lists the dialects of
 * this build.
 */
export type DialectName = string

/** The abilities that `supports` of a backend can list in gateway.yaml. */
export const CAPABILITIES = [
  'tools',
  'strict_tools',
  'single_tool_call',
  'forced_tool_choice',
  'custom_tools',
  'images',
  'documents',
  'reasoning',
  'web_search',
  'logprobs',
  'prefill',
  'structured_output',
] as const
export type Capability = (typeof CAPABILITIES)[number]

/** Settings of gateway.yaml that one dialect has for itself, by their keys there. */
export interface DialectSettings {
  /** In an entry of `providers`. */
  readonly provider?: Readonly<Record<string, Schema>>
  /** In an entry of `backends`. */
  readonly backend?: Readonly<Record<string, Schema>>
}

/** What settings are set to, as the dialect reads them that declares them. */
export type SettingsOf<S extends DialectSettings> = { readonly [K in keyof S]-?: Members<S[K]> }

/** One entry of a model's `backends`, with all defaults resolved. */
export interface Backend {
  /** `provider/model`, for logs and metrics; never shown to clients. */
  id: string
  provider: string
  dialect: DialectName
  /** The number of the load that brought the dialect's file; absent for a dialect of the build. */
  dialectLoad?: number
  /** The variant of the dialect, e.g. `bedrock`. */
  variant?: string
  /** The version of the API, for a variant that names it in the path. */
  apiVersion?: string
  /** Absolute URL without a trailing slash. */
  baseUrl: string
  apiKey?: string
  /** The header that carries the key, with what is before it, in place of the dialect's own. Lower case. */
  keyHeader?: { name: string; prefix: string }
  headers: Record<string, string>
  /** The model id that the provider uses. */
  model: string
  weight: number
  group?: string
  /** What the dialect can express, narrowed by the backend's `supports`. */
  supports: ReadonlySet<Capability>
  nativeTools: ReadonlySet<string>
  effortCeiling?: Effort
  contextWindow?: number
  maxOutputTokens?: number
  /** What the dialects' own settings are set to, in the entry of the provider and in that of the backend. */
  settings: Readonly<Record<keyof DialectSettings, Readonly<Record<string, unknown>>>>
  /** What it costs the operator; absent where the configuration does not say. */
  cost?: CostRates
}

/** Why a backend can't serve a conversation (REQ-1, wire.md F.9). */
export interface Unfit {
  /**
   * The body member that asks for it, e.g. `tools[0].strict`; in the notation of the client's surface where that is
   * known.
   */
  param: string
  /** The requirement in words, for the error message. It names no provider. */
  requirement: string
}

export interface OutboundContext {
  /** Whether to ask the upstream for a stream. */
  stream: boolean
  /**
   * An id that the dialect accepts, made from a public call id: deterministic, [A-Za-z0-9_-], at most 40 characters
   * (wire.md F.7).
   */
  upstreamCallId(publicId: string): string
  /** A stable cache-affinity key without client text, or undefined. */
  cacheKey?: string
  /**
   * Preview features that a client of the dialect's own surface named. The dialect decides which of them it sends
   * upstream.
   */
  previews?: readonly string[]
  /**
   * Stands in the body for the arguments of a call that were written beforehand, as a JSON string or as an object; they
   * take its place when the body is sent. Absent or undefined: the dialect writes them, from `argumentsOf`.
   */
  written?: ((call: CallPart, as: 'text' | 'object') => string | undefined) | undefined
  /** Writes the body as JSON text. Default: JSON.stringify. */
  json?: ((body: object) => string) | undefined
}

/** One HTTP request to a provider. Header names are lower case. */
export interface OutboundRequest {
  method: 'POST'
  /** Appended to the backend's base URL, e.g. `/chat/completions`. It may include a query. */
  path: string
  /** May be one object that many requests share. It must not be changed. */
  headers: Readonly<Record<string, string>>
  /** The body, written by the context's `json`. */
  body: string
  /** What the decoder must remember about the request, such as tool aliases. Only the dialect reads it. */
  state: unknown
  /** Controls that the request left out or changed (decisions 30). Absent: none. */
  adjusted?: readonly Adjustment[]
}

/** A control that a request to a provider has in another form than the client's. Nothing in it is text of a client. */
export interface Adjustment {
  /** The control: `temperature`, `effort`, `max_uses`. */
  control: string
  /** What is sent in place of what the client asked for. Absent: nothing is sent. */
  sent?: string
  /** What the client asked for, where that is a number or a fixed word. */
  asked?: string
  /** What is sent means the same: an effort as a budget of thinking, a long seed as a short one. */
  same?: true
}

export interface DecodeContext {
  backend: Backend
  conversation: Conversation
  /** The `state` that `request` returned. */
  state: unknown
  /** Makes a new public call id, `call_eba1_…`. */
  mintCallId(): string
  /** Makes a new id of a hosted search, `hist_eba1_…`. */
  mintSearchId(): string
}

/**
 * Reads one reply. It pushes events in the order in which the provider sends them; core/engine/sequence.ts puts them in
 * order. A decoder never throws because of what a provider sent: input that it cannot read becomes an `error` event
 * with the code upstream_server_error, and it ignores unknown members and events.
 */
export interface Decoder {
  /**
   * True once the provider's terminal event was read or a stop string matched: the rest of the reply need not be
   * read.
   */
  readonly done?: boolean
  /** Reads one frame. Of server-sent events: the `event:` name ('' if it has none) and the data, lines joined by \n. */
  frame(event: string, data: string, push: (event: StreamEvent) => void): void
  /**
   * Reads frames of server-sent events that are deltas like the last one, all at once.
   * @param text whole lines, each of which ends with LF
   * @param at where a frame begins
   * @returns where the next one begins; `at` when the frame there has to be read by `frame`
   */
  deltas?(text: string, at: number, push: (event: StreamEvent) => void): number
  /** Reads a whole buffered body. */
  body(text: string, push: (event: StreamEvent) => void): void
  /**
   * The stream has ended. Pushes `finish` if the terminal event was read, else an `error` event: a cut stream never
   * counts as finished (STR-6).
   */
  end(push: (event: StreamEvent) => void): void
  /**
   * The usage that the provider has reported before its last event, for a reply that is cut. Only for providers that
   * report early.
   */
  reported?(): ProviderUsage | undefined
}

/** Gets one frame of a stream: its event name ('' when it has none) and its data. */
export type FrameHandler = (event: string, data: string) => void

/** Gets lines of server-sent events at whose offset a frame begins. @returns where the next frame begins, or `at` */
export type RunHandler = (text: string, at: number) => number

/** Cuts the bytes of one streamed reply into frames. */
export interface FrameReader {
  /**
   * Reads a chunk and calls `onFrame` for each frame that it completes, in order. How the stream was cut into chunks
   * has no effect on the frames. The reader does not keep the chunk.
   * @param onRun is asked first where frames are server-sent events, and may read some itself
   * @throws FrameFault when a frame is malformed or too long; the reader cannot be used after this error
   */
  push(chunk: Buffer, onFrame: FrameHandler, onRun?: RunHandler): void
  /** The stream has ended. Calls `onFrame` for a last frame whose end is missing. */
  end(onFrame: FrameHandler): void
}

/** The bytes of a stream are no frame of its framing. The message holds nothing of them. */
export class FrameFault extends Error {
  override name = 'FrameFault'
}

/** A frame of a stream, or a decoded body, exceeds the limit of its reader. */
export class FrameLimit extends FrameFault {
  readonly limit: number
  /** @param limit in bytes, or in UTF-16 units of decoded text */
  constructor(limit: number) {
    super(`A frame or a decoded body of a reply is over ${limit} bytes.`)
    this.name = 'FrameLimit'
    this.limit = limit
  }
}

/** A part of a request that a provider may fault. `content`: system text and messages, with their media. */
export type Blamed =
  | 'content'
  | 'tools'
  | 'tool_choice'
  | 'max_tokens'
  | 'temperature'
  | 'top_p'
  | 'top_k'
  | 'seed'
  | 'stop'
  | 'logprobs'
  | 'effort'

/** The members of a request for embeddings that go on as the client wrote them. */
export interface EmbeddingsRequest {
  input: unknown
  encoding_format?: string
  dimensions?: number
}

/** How an API makes embeddings. */
export interface EmbeddingsForm {
  request(asked: EmbeddingsRequest, backend: Backend): OutboundRequest
  /** @param inputs how many vectors a good reply has */
  decoder(inputs: number): Decoder
}

export interface Dialect {
  readonly name: DialectName
  /** Who defined the wire format, as a value of OpenTelemetry's `gen_ai.provider.name`. */
  readonly vendor: string
  /**
   * True: servers without authentication speak this dialect too, so a backend without a key is not a configuration
   * error.
   */
  readonly keyless?: boolean
  /** Optional packages without which the dialect does not work. */
  readonly packages?: readonly string[]
  /** The same dialect as other services speak it, by name: other paths, members and headers around the same words. */
  readonly variants?: Readonly<Record<string, Dialect>>
  /** The output cap in tokens that is sent where nothing sets one. Absent: the API needs none, and none is sent. */
  readonly outputCap?: number
  /** Every capability that the dialect can express. */
  readonly capabilities: ReadonlySet<Capability>
  /** The versions of native tools that the dialect can express, e.g. `bash_20250124`. */
  readonly nativeTools: ReadonlySet<string>
  /** Absent: the API makes no embeddings. */
  readonly embeddings?: EmbeddingsForm
  /** Settings of this dialect alone. Their keys are its own among all dialects. */
  readonly settings?: DialectSettings
  /** Whether the backend takes a seed. Of those that can serve a request with one, these go first. Absent: none does. */
  seeds?(backend: Backend): boolean
  /**
   * Whether the schemas of tools are written in other words for the backend, in which they may be several times as long.
   * Absent: never.
   */
  rewritesSchemas?(backend: Backend): boolean
  /** Media that the dialect accepts only as bytes: `unfit` refuses their URLs. */
  readonly bytesOnly?: ReadonlySet<'image' | 'document'>
  /**
   * Says why the backend cannot serve the conversation; null when it can. Pure and cheap, since it is called for
   * every backend of the model.
   */
  unfit(conversation: Conversation, backend: Backend): Unfit | null
  /**
   * Whether `request` asks the provider itself for the conversation's `output`. Called only when there is one and the
   * backend supports `structured_output`. False or absent: the conversation comes to the dialect with a forced tool in
   * place of `output`.
   */
  structures?(conversation: Conversation, backend: Backend): boolean
  request(conversation: Conversation, backend: Backend, context: OutboundContext): OutboundRequest
  decoder(context: DecodeContext): Decoder
  /**
   * A reader for a reply of this content type; null when such a reply is one body. Absent: server-sent events are
   * read as such, and all else is one body.
   */
  frames?(contentType: string): FrameReader | null
  /**
   * Maps a non-2xx reply to a gateway error (AUTH-7, ERR-6, ERR-7). The error never repeats upstream text. A
   * Retry-After of the provider is the wait of the error.
   */
  fault(status: number, headers: FaultHeaders, body: string): GatewayError
  /**
   * The part of the request that an error object faults, when its code is one for faults of the request; null for all
   * others, such as those of account, model, credential or version (decision 63).
   * @param error of a reply with status 400, or of an event inside a reply
   */
  blames?(error: unknown): Blamed | null
}

export type HeaderValue = string | string[]
/** The headers of an error reply that say when to retry. The HTTP client may drop all others. */
export interface FaultHeaders {
  'retry-after'?: HeaderValue
  'retry-after-ms'?: HeaderValue
  date?: HeaderValue
}

/** The dialects of a build, by name, in the order in which they are listed to people. */
export type DialectTable = Readonly<Record<DialectName, Dialect>>
