/** Shared by Chat Completions and Responses: the error envelope, log probabilities and the text of a refusal. */
import { ERRORS, errorMembers, type GatewayError } from '../core/canon/errors.ts'
import type { TokenLogprob } from '../core/canon/events.ts'
import type { NamedSchema } from './described.ts'
import { among, boolean, opaqueObject, orNull, type Schema, shape, string } from './schema.ts'

/** The types of all errors. */
const TYPES = Object.values(ERRORS).map(spec => spec.type)

/**
 * Schema of an error's members, the same on every surface: `errorMembers` makes them.
 * @param types the values of `type`
 */
export const errorSchema = (types: readonly string[] = TYPES) =>
  shape(
    {
      message: string({ description: 'Names the field, what was measured and what to change.' }),
      type: among([...new Set(types)].sort()),
      code: among(Object.keys(ERRORS).sort()),
      param: orNull(string({ description: 'Path of the member, in the notation of the surface.' })),
      request_id: string(),
      retryable: boolean(),
      details: opaqueObject(),
    },
    ['details'],
  )
/** Body of an error reply: on these two surfaces, and on paths that belong to no surface. */
export const errorReply: NamedSchema = { name: 'Error', schema: shape({ error: errorSchema() }) }

export const unixSeconds: Schema<number> = { type: 'integer' }

/** Body of an error reply, as JSON text (ERR-1, wire.md E.1). `advertise` must have run before. */
export function errorBody(error: GatewayError, requestId: string): string {
  return JSON.stringify({ error: errorMembers(error, requestId) })
}

/**
 * The members of an error inside a stream. `retry_after_seconds` is added to them when the error advertises a wait
 * (ERR-8).
 */
export function frameMembers(error: GatewayError, requestId: string): Record<string, unknown> {
  const members = errorMembers(error, requestId)
  const wait = (members['details'] as Record<string, unknown> | undefined)?.['retry_after_seconds']
  if (wait !== undefined) members['retry_after_seconds'] = wait
  return members
}

export interface WireLogprob {
  token: string
  logprob: number
  bytes: number[] | null
  top_logprobs: { token: string; logprob: number; bytes: number[] | null }[]
}

/**
 * Log probabilities in the form that both APIs use. When a provider left out the bytes, they are the token's UTF-8
 * bytes (wire.md F.8).
 */
export function wireLogprobs(logprobs: readonly TokenLogprob[]): WireLogprob[] {
  return logprobs.map(l => ({ ...one(l), top_logprobs: l.top.map(one) }))
}

function one(l: { token: string; logprob: number; bytes: number[] | null }) {
  return { token: l.token.toWellFormed(), logprob: l.logprob, bytes: l.bytes ?? [...Buffer.from(l.token, 'utf8')] }
}

/** The text of a refusal when the provider gave none. */
export const PLAIN_REFUSAL = 'The model declined to answer this request.'
