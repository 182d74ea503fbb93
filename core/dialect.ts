/** What the chain needs of a provider's wire format. Implementations live in `providers/`, pure, without I/O. */
import type { Conversation, Effort } from './conversation.ts'
import type { GatewayError } from './errors.ts'
import type { ProviderUsage, StreamEvent } from './events.ts'

/** As providers name it in gateway.yaml, e.g. `openai-chat`. providers/index.ts lists the dialects of this build. */
export type DialectName = string

/** What a backend can be listed to support (`supports` in gateway.yaml). */
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
] as const
export type Capability = (typeof CAPABILITIES)[number]

/** One entry of a model's `backends`, resolved. */
export interface Backend {
  /** `provider/model`, for logs and metrics; never shown to clients. */
  id: string
  provider: string
  dialect: DialectName
  /** Absolute, without a trailing slash. */
  baseUrl: string
  apiKey?: string
  headers: Record<string, string>
  /** The upstream's own model id. */
  model: string
  weight: number
  group?: string
  /** Resolved: what the dialect can express, narrowed by `supports`. */
  supports: ReadonlySet<Capability>
  nativeTools: ReadonlySet<string>
  effortCeiling?: Effort
  contextWindow?: number
  maxOutputTokens?: number
  maxTokensField: 'max_tokens' | 'max_completion_tokens'
  /** How the gemini dialect declares a tool's parameters: as JSON Schema, or, for servers that know only `parameters`, in OpenAPI's words. */
  toolSchema?: 'json_schema' | 'openapi'
}

/** Why a backend can't serve a conversation (REQ-1, wire.md F.9). */
export interface Unfit {
  /** Body member that asks for it, in the client surface's notation where known, e.g. `tools[0].strict`. */
  param: string
  /** In words, for the error message: no provider names. */
  requirement: string
}

export interface OutboundContext {
  /** Ask the upstream for a stream. */
  stream: boolean
  /** A dialect-safe id for a public call id: deterministic, [A-Za-z0-9_-], at most 40 (wire.md F.7). */
  upstreamCallId(publicId: string): string
  /** A stable cache-affinity key without client text, or undefined. */
  cacheKey?: string
  /** Preview features that a client of the dialect's own surface asked for by name: the dialect decides which go on. */
  previews?: readonly string[]
  /** Writes the body; default JSON.stringify. */
  json?: ((body: object) => string) | undefined
}

/** One HTTP request to a provider. Header names lower case. */
export interface OutboundRequest {
  method: 'POST'
  /** Appended to the backend's base URL, e.g. `/chat/completions`. May carry a query. */
  path: string
  /** The same object for many requests, which does not change. */
  headers: Readonly<Record<string, string>>
  /** As the context's `json` writes it. */
  body: string
  /** Dialect-side memory for the decoder: tool aliases and the like. */
  state: unknown
  /** Controls that were left out or lowered, for the log (decisions 30): `seed`, `temperature 1.5 as 1`. */
  leftOut?: readonly string[]
}

export interface DecodeContext {
  backend: Backend
  conversation: Conversation
  /** What `request` returned as `state`. */
  state: unknown
  /** A fresh public call id `call_eba1_…`. */
  mintCallId(): string
  /** A fresh `hist_eba1_…`. */
  mintSearchId(): string
}

/**
 * Reads one reply. `push` receives events in any order the provider sends them (core/sequence.ts orders them). A decoder never throws
 * on provider input: what it can't read becomes `{type:'error'}` with upstream_server_error, and unknown members and events
 * are ignored.
 */
export interface Decoder {
  /** True once the provider's terminal event was read (or a stop string matched): nothing more is worth reading. */
  readonly done?: boolean
  /** One SSE event: its `event:` name ('' if none) and its data, lines joined by \n. */
  frame(event: string, data: string, push: (event: StreamEvent) => void): void
  /** A whole buffered body. */
  body(text: string, push: (event: StreamEvent) => void): void
  /** The stream ended. Pushes `finish` if the terminal event was seen, else an `error` event: a cut stream is never a finished one (STR-6). */
  end(push: (event: StreamEvent) => void): void
  /** Of a provider that speaks of the prompt before its last event: what it has said, for a reply that is cut. */
  reported?(): ProviderUsage | undefined
}

export interface Dialect {
  readonly name: DialectName
  /** Who made the wire format, in the words of OpenTelemetry's `gen_ai.provider.name`. */
  readonly vendor: string
  /** Servers that ask for no key speak it too: a backend that has none is no mistake. */
  readonly keyless?: boolean
  /** All that the dialect can express. */
  readonly capabilities: ReadonlySet<Capability>
  /** Versions of native tools the dialect can carry, e.g. `bash_20250124`. */
  readonly nativeTools: ReadonlySet<string>
  /** Media that the dialect takes as bytes alone: `unfit` refuses their URLs. */
  readonly bytesOnly?: ReadonlySet<'image' | 'document'>
  /** Null when the backend can carry the conversation. Pure and cheap: called for every backend of the model. */
  unfit(conversation: Conversation, backend: Backend): Unfit | null
  request(conversation: Conversation, backend: Backend, context: OutboundContext): OutboundRequest
  decoder(context: DecodeContext): Decoder
  /**
   * Maps a non-2xx reply to the contract's error (AUTH-7, ERR-6, ERR-7). Never repeats upstream text. A provider's Retry-After becomes the
   * error's horizon.
   */
  fault(status: number, headers: FaultHeaders, body: string): GatewayError
}

export type HeaderValue = string | string[]
/** What of a non-2xx reply's head tells when to come again: a client may keep no others. */
export interface FaultHeaders {
  'retry-after'?: HeaderValue
  'retry-after-ms'?: HeaderValue
  date?: HeaderValue
}

/** The dialects of a build, by name, in the order in which people are shown them. */
export type DialectTable = Readonly<Record<DialectName, Dialect>>
