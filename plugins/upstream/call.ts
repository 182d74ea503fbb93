import type { GatewayConfig } from '../../config/types.ts'
import { capped } from '../../core/canon/conversation.ts'
import { type Call, conversation, type Exchange, estimate } from '../../core/plugin.ts'
import { Report } from '../shared/call-report.ts'
import { candidates, model, plan, reservation, upstreamConversation } from '../shared/slots.ts'
import type { UpstreamOptions } from './options.ts'
import { clocksOf } from './stream-limits.ts'

/** The call of the plan that the lines above have made. */
export function callOf(
  x: Exchange,
  rows: GatewayConfig['stream_limits'],
  { first_byte_timeout, max_reply }: Pick<UpstreamOptions, 'first_byte_timeout' | 'max_reply'>,
): Call {
  const asked = x.get(conversation)
  return {
    asked,
    sent: capped(x.peek(upstreamConversation) ?? asked, x.peek(reservation)?.cap),
    input: x.peek(plan)?.input ?? x.peek(estimate)?.input ?? 0,
    candidates: x.get(candidates),
    clocks: clocksOf(asked, x.get(model), rows, first_byte_timeout),
    startedMono: x.clock.mono(),
    maxReply: max_reply,
    facts: x,
    report: new Report(x),
  }
}
