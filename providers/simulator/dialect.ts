/** A dialect of the simulator: it reads requests and writes replies. */
import { createHash } from 'node:crypto'
import type { ErrorKind } from './directives.ts'
import type { SimPrompt, SimReply } from './model.ts'

/** A JSON object of a request or a reply. */
export type Body = Record<string, unknown>

/** An event of a stream. `event` is the SSE event name; it is absent in dialects without event names. */
export interface SimEvent {
  event?: string
  data: string
}

export interface SimDialect {
  readonly name: 'openai-chat' | 'openai-responses' | 'anthropic-messages' | 'gemini'
  /**
   * Reads a request. Where a wrong translation is possible, it is as strict as the provider.
   * @param path decoded, without the query
   * @throws SimRefusal when the provider would refuse the request
   */
  read(body: Body, path: string): SimPrompt
  buffered(reply: SimReply): unknown
  /** The events of the whole stream, including the terminal event. */
  stream(reply: SimReply): SimEvent[]
  /** The content type of a stream; absent: server-sent events. */
  readonly contentType?: string
  /** The bytes of one event of a stream; absent: a server-sent event. */
  frame?(event: SimEvent): Buffer
  /** The error body of an HTTP failure. */
  error(kind: ErrorKind, status: number, message: string, code?: string | null): unknown
  /** An error in the middle of a stream. */
  errorEvent(kind: ErrorKind): SimEvent
  /** The HTTP statuses that differ from `STATUS`. */
  readonly status?: Partial<Record<ErrorKind, number>>
}

/** The HTTP status of each kind, unless the dialect has another. */
export const STATUS: Readonly<Record<ErrorKind, number>> = {
  server: 500,
  overloaded: 503,
  rate: 429,
  quota: 429,
  context: 400,
  policy: 400,
  auth: 401,
  timeout: 504,
  invalid: 400,
}

/**
 * Imitates a provider's signature or encryption: only what the simulator itself made can be verified. It is not a
 * secret; it detects a gateway that loses, confuses or changes private data.
 */
export function seal(purpose: string, text: string): string {
  return createHash('sha256').update(`${purpose}\0${text}`, 'utf8').digest('base64url')
}

export function isBody(value: unknown): value is Body {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
export function bodyOf(value: unknown): Body {
  return isBody(value) ? value : {}
}
export function listOf(value: unknown): Body[] {
  return Array.isArray(value) ? value.filter(isBody) : []
}
export function stringOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
/** `data:image/png;base64,…` → `image/png`; for any other URL `url`. */
export function mediaTypeOf(url: string): string {
  return /^data:([^;,]+)/.exec(url)?.[1] ?? 'url'
}
