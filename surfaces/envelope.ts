/** What Chat Completions and Responses share: the error envelope, log probabilities and how a reply ends. */
import { ERRORS, errorMembers, type GatewayError } from '../core/errors.ts'
import type { TokenLogprob } from '../core/events.ts'
import type { NamedSchema } from './described.ts'
import { among, boolean, opaqueObject, orNull, type Schema, shape, string } from './schema.ts'

/** Of an error, on every surface: what `errorMembers` makes. */
export const errorSchema = shape(
  {
    message: string({ description: 'Names the field, what was measured and what to change.' }),
    type: among([...new Set(Object.values(ERRORS).map(spec => spec.type))].sort()),
    code: among(Object.keys(ERRORS).sort()),
    param: orNull(string({ description: 'Path of the member, in the notation of the surface.' })),
    request_id: string(),
    retryable: boolean(),
    details: opaqueObject(),
  },
  ['details'],
)
/** Body of an error reply, on these two surfaces and on paths that have none. */
export const errorReply: NamedSchema = { name: 'Error', schema: shape({ error: errorSchema }) }

export const unixSeconds: Schema<number> = { type: 'integer' }

/** Body of an error reply (ERR-1, wire.md E.1). `advertise` must have run. */
export function errorBody(error: GatewayError, requestId: string): string {
  return JSON.stringify({ error: errorMembers(error, requestId) })
}

/** The members of an in-stream error, with `retry_after_seconds` beside them when a wait was advertised (ERR-8). */
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

/** Log probabilities as both APIs write them; bytes that a provider left out are those of the token (wire.md F.8). */
export function wireLogprobs(logprobs: readonly TokenLogprob[]): WireLogprob[] {
  return logprobs.map(l => ({ ...one(l), top_logprobs: l.top.map(one) }))
}

function one(l: { token: string; logprob: number; bytes: number[] | null }) {
  return { token: l.token.toWellFormed(), logprob: l.logprob, bytes: l.bytes ?? [...Buffer.from(l.token, 'utf8')] }
}

/** Stands for a refusal of which the provider gave no text. */
export const PLAIN_REFUSAL = 'The model declined to answer this request.'
