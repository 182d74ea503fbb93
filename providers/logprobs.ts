/** Token log probabilities from providers that report them. */
import type { TokenLogprob } from '../core/canon/events.ts'
import { list, object, string } from './loose-json.ts'

/**
 * Reads OpenAI's `[{token, logprob, bytes?, top_logprobs?}]`. Missing bytes are the token's UTF-8 (wire.md F.8).
 * Undefined for an empty list.
 */
export function openAiLogprobs(value: unknown): TokenLogprob[] | undefined {
  const entries = list(value)
  if (entries.length === 0) return undefined
  return entries.map(entry => {
    const fields = object(entry)
    return { ...tokenOf(fields), top: list(fields['top_logprobs']).map(top => tokenOf(object(top))) }
  })
}

function tokenOf(fields: Record<string, unknown>): Omit<TokenLogprob, 'top'> {
  const token = string(fields['token'])
  const bytes = fields['bytes']
  return {
    token,
    logprob: typeof fields['logprob'] === 'number' ? fields['logprob'] : 0,
    bytes: Array.isArray(bytes) ? (bytes as number[]) : utf8(token),
  }
}

/** The bytes of a token in UTF-8. */
export function utf8(token: string): number[] {
  return [...Buffer.from(token, 'utf8')]
}
