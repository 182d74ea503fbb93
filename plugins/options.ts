/**
 * Option schemas of the built-in plugins, and the types they arrive as. One schema gives the check, the defaults, the editor help and the table in
 * docs/configuration.md. Values with `format: duration` arrive in milliseconds, values with `format: size` in bytes.
 */
import { choice, count, duration, flag, nullable, object, secretText, size, text } from '../core/config/vocabulary.ts'

const none = object({})

export type NoOptions = Record<string, never>

// ---- auth -------------------------------------------------------------------------------------------------------------

export const authOptions = object({
  x_api_key: flag(false, 'Accept x-api-key on the Messages surface when there is no Authorization header (AUTH-2).'),
})
export interface AuthOptions {
  x_api_key: boolean
}

// ---- validation -------------------------------------------------------------------------------------------------------

const unknownFields = (surface: string) =>
  choice(
    ['reject', 'strip'],
    `Unknown fields on the ${surface} surface: reject with 400, or strip and name them in x-sluice-stripped (GEN-2).`,
    'reject',
  )

export const validationOptions = object({
  max_body: size('32MiB', 'Largest request body; more is 413 request_too_large (GEN-5).'),
  body_timeout: duration(
    '60s',
    'The body must be whole this long after the gateway starts to read it, else 408 (GEN-6).',
  ),
  max_depth: count(64, 'Deepest nesting of the JSON body (REQ-2).', 1),
  max_nodes: count(
    100_000,
    'Most values (members, items and scalars) in the JSON body, and in the arguments of its tool calls (REQ-2).',
    1,
  ),
  max_images: count(50, 'Most images in one request (REQ-2).'),
  max_documents: count(10, 'Most documents in one request (REQ-2).'),
  max_replay: size(
    '16MiB',
    'Largest replayed conversation history, ids and reasoning included, without the last user turn (REQ-2).',
  ),
  unknown_fields: {
    ...object({
      responses: unknownFields('Responses'),
      chat: unknownFields('Chat Completions'),
      messages: unknownFields('Messages'),
    }),
    default: {},
    description: 'What happens to fields that a surface does not know.',
  },
})
export interface ValidationOptions {
  /** Bytes. */
  max_body: number
  /** Milliseconds. */
  body_timeout: number
  max_depth: number
  max_nodes: number
  max_images: number
  max_documents: number
  /** Bytes. */
  max_replay: number
  unknown_fields: Record<'responses' | 'chat' | 'messages', 'reject' | 'strip'>
}

// ---- idempotency ------------------------------------------------------------------------------------------------------

export const idempotencyOptions = object({
  keep: duration('24h', 'How long a record can be replayed (IDEM-3).'),
  max_record: size('4MiB', 'Largest reply that is kept; a larger one is remembered as executed but not kept.'),
  max_total: size('1GiB', 'Most bytes kept over all organizations.'),
})
export interface IdempotencyOptions {
  /** Milliseconds. */
  keep: number
  /** Bytes. */
  max_record: number
  /** Bytes. */
  max_total: number
}

// ---- conversation -----------------------------------------------------------------------------------------------------

export const conversationOptions = object({
  retain: duration('24h', 'How long a response can be continued by previous_response_id (RESP-3).'),
  max_retained: size('1MiB', 'A larger response object is served and not retained (RESP-3).'),
  continuation: duration('72h', "How long providers' private continuation data is kept (TOOL-6)."),
})
export interface ConversationOptions {
  /** Milliseconds. */
  retain: number
  /** Bytes. */
  max_retained: number
  /** Milliseconds. */
  continuation: number
}

// ---- token-estimate ---------------------------------------------------------------------------------------------------

export const tokenEstimateOptions = object({
  image_tokens: count(85, 'Least tokens that an image counts (METER-3).'),
  document_tokens: count(1500, 'Least tokens that a document counts (METER-3).'),
})
export interface TokenEstimateOptions {
  image_tokens: number
  document_tokens: number
}

// ---- routing ----------------------------------------------------------------------------------------------------------

export const routingOptions = none
export type RoutingOptions = NoOptions

// ---- admission --------------------------------------------------------------------------------------------------------

export const admissionOptions = object({
  output_reserve: count(4096, 'Output tokens reserved when the request names no cap (LIM-4).', 1),
})
export interface AdmissionOptions {
  output_reserve: number
}

// ---- translation ------------------------------------------------------------------------------------------------------

export const translationOptions = none
export type TranslationOptions = NoOptions

// ---- upstream ---------------------------------------------------------------------------------------------------------

export const upstreamOptions = object({
  connect_timeout: duration('5s', 'Longest wait for a connection to a backend.'),
  first_byte_timeout: duration('120s', "Longest wait for the first event of a backend's answer (decisions 11)."),
  attempts: count(
    2,
    'Most attempts for one request, the first included; retries happen only before the head is out.',
    1,
  ),
  retry_budget: {
    type: 'number',
    minimum: 0,
    maximum: 1,
    default: 0.1,
    description: 'Share of requests that may be retried, per provider.',
  },
  breaker: {
    ...object({
      failures: count(5, 'Failures in a row that open the breaker.', 1),
      error_rate: {
        type: 'number',
        exclusiveMinimum: 0,
        maximum: 1,
        default: 0.5,
        description: 'Share of failures within the window that opens it.',
      },
      window: duration('30s', 'Window of the error rate.'),
      open_for: duration('15s', 'How long an open breaker keeps the backend out before one trial request.'),
    }),
    default: {},
    description: 'When a failing backend is left out.',
  },
})
export interface UpstreamOptions {
  /** Milliseconds. */
  connect_timeout: number
  /** Milliseconds. */
  first_byte_timeout: number
  attempts: number
  retry_budget: number
  /** `window` and `open_for` in milliseconds. */
  breaker: { failures: number; error_rate: number; window: number; open_for: number }
}

// ---- usage-capture, header-stamp, count-tokens, models ----------------------------------------------------------------

export const usageCaptureOptions = none
export type UsageCaptureOptions = NoOptions

export const headerStampOptions = none
export type HeaderStampOptions = NoOptions

export const countTokensOptions = none
export type CountTokensOptions = NoOptions

export const modelsOptions = none
export type ModelsOptions = NoOptions

// ---- proxy ------------------------------------------------------------------------------------------------------------

export const proxyOptions = object(
  {
    target: text('Where requests go; the path and query of the request are appended.', {
      pattern: '^https?://[^\\s/?#]+[^\\s?#]*$',
      examples: ['http://127.0.0.1:8000'],
    }),
    timeout: duration(
      '120s',
      'Longest silence of the target before the reply is given up; through a WebSocket, of both sides together.',
    ),
    api_key: nullable(
      secretText("Sent as a Bearer token to the target; the gateway's own credential never is (decisions 35).", {
        format: 'credential',
      }),
    ),
  },
  ['target'],
)
export interface ProxyOptions {
  target: string
  /** Milliseconds. */
  timeout: number
  api_key: string | null
}

// ---- otel -------------------------------------------------------------------------------------------------------------

export const otelOptions = object(
  {
    endpoint: text('The OTLP/HTTP receiver; spans are posted as JSON to /v1/traces below it.', {
      pattern: '^https?://[^\\s/?#]+[^\\s?#]*$',
      examples: ['http://127.0.0.1:4318'],
    }),
    headers: {
      type: 'object',
      additionalProperties: { type: 'string' },
      default: {},
      description: 'Headers added to every post, e.g. an authorization.',
    },
    service_name: text('The `service.name` of the spans.', { default: 'sluice' }),
    sample: {
      type: 'number',
      minimum: 0,
      maximum: 1,
      default: 1,
      description: 'Share of exchanges that are traced, of those whose traceparent does not decide.',
    },
    follow_parent: flag(
      true,
      "A client's traceparent decides by its sampled flag. Switch it off where clients are strangers: they could have everything traced.",
    ),
    batch: count(512, 'Most spans in one post.', 1),
    queue: count(4096, 'Most spans that wait; what comes on top is dropped and counted in the log.', 1),
    interval: duration('5s', 'Longest wait of a span before it is posted.'),
    timeout: duration('5s', 'Longest wait for the receiver.'),
  },
  ['endpoint'],
)
export interface OtelOptions {
  endpoint: string
  headers: Record<string, string>
  service_name: string
  sample: number
  follow_parent: boolean
  batch: number
  queue: number
  /** Milliseconds. */
  interval: number
  /** Milliseconds. */
  timeout: number
}
