/** What a dialect of the simulator is: a reader of requests and a writer of replies. */
import { createHash } from 'node:crypto'
import type { ErrorKind } from './directives.ts'
import type { SimPrompt, SimReply } from './model.ts'

export type Body = Record<string, unknown>

/** One event of a stream; `event` is the SSE event name, absent where the dialect has none. */
export interface SimEvent {
  event?: string
  data: string
}

export interface SimDialect {
  readonly name: 'openai-chat' | 'openai-responses' | 'anthropic-messages' | 'gemini'
  /**
   * Reads a request as strictly as the provider does where a translation could go wrong.
   * @param path decoded, without the query
   * @throws SimRefusal
   */
  read(body: Body, path: string): SimPrompt
  buffered(reply: SimReply): unknown
  /** The whole stream, terminal event included. */
  stream(reply: SimReply): SimEvent[]
  /** The error body of an HTTP failure. */
  error(kind: ErrorKind, status: number, message: string, code?: string | null): unknown
  /** An error in the middle of a stream. */
  errorEvent(kind: ErrorKind): SimEvent
  /** HTTP statuses of kinds that differ from `STATUS`. */
  readonly status?: Partial<Record<ErrorKind, number>>
}

/** HTTP statuses of the kinds, unless the dialect has its own. */
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
 * Stands for what a provider signs or encrypts: only what the simulator made itself verifies. Not a secret; the point
 * is to catch a gateway that loses, mixes up or changes it.
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
/** `data:image/png;base64,…` → `image/png`; anything else is `url`. */
export function mediaTypeOf(url: string): string {
  return /^data:([^;,]+)/.exec(url)?.[1] ?? 'url'
}
