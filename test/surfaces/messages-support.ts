/** Runs canonical events through the Messages encoder, for its tests. */
import type { Conversation } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import type { FinishEvent, StreamEvent, Usage } from '../../core/canon/events.ts'
import { ZERO_USAGE } from '../../core/canon/events.ts'
import type { EncodeContext } from '../../core/ports/surface.ts'
import { messages } from '../../surfaces/messages/index.ts'

export interface Reply {
  /** Members of the request beside the mandatory ones. */
  body?: Record<string, unknown>
  events: StreamEvent[]
  end: FinishEvent | { type: 'error'; error: GatewayError }
  usage?: Partial<Usage>
}

export const REQUEST_ID = 'req_test'

export function contextOf(body: Record<string, unknown>, promptTokens = 100): EncodeContext {
  const whole = { model: 'eb1-preview', max_tokens: 4000, messages: [{ role: 'user', content: 'x' }], ...body }
  messages.validate(whole, 'reject')
  const conversation: Conversation = messages.parse(whole)
  let minted = 0
  return {
    requestId: REQUEST_ID,
    created: 1_780_000_000,
    model: 'eb1-preview',
    body: whole,
    conversation,
    promptTokens,
    objectId: 'ABCDEFGHIJKLMNOPQRSTUVWX',
    mintItemId: () => `item_eba1_${++minted}`,
    now: () => 1_780_000_000_000,
  }
}

/** The frames in order, one string a call, and the object. */
export function encode(reply: Reply): { frames: string[]; object: Record<string, unknown> } {
  const usage = { ...ZERO_USAGE, input: 100, output: 10, ...reply.usage }
  const encoder = messages.encoder(contextOf(reply.body ?? {}, usage.input))
  const frames = [encoder.start(), ...reply.events.map(event => encoder.event(event))]
  frames.push(reply.end.type === 'error' ? encoder.error(reply.end.error, usage) : encoder.finish(reply.end, usage))
  return { frames, object: JSON.parse(encoder.body()) }
}

/** Named by code alone, as golden files write it: `{"type":"error","error":"provider_unavailable"}`. */
export function errorOf(code: string, retryAfterMs?: number): GatewayError {
  const error = new GatewayError(code as 'provider_unavailable', { message: 'The upstream went away. Try again.' })
  error.retryAfterMs = retryAfterMs
  return error
}
