import type { GatewayConfig, ModelConfig } from '../../config/types.ts'
import type { Conversation } from '../../core/canon/conversation.ts'
import type { Clocks } from '../../core/plugin.ts'

/** Milliseconds after which the head is sent at the latest; keep-alives follow it (decisions 11). */
const HEAD_WAIT_MS = 30_000
/** Milliseconds that a draining upstream may run on after the client has disconnected. */
const DRAIN_MS = 60_000

type Rows = GatewayConfig['stream_limits']

/** @param firstByte the longest wait for a backend's first event */
export function clocksOf(conversation: Conversation, model: ModelConfig, rows: Rows, firstByte: number): Clocks {
  const { idle, ceiling } = rows[rowOf(conversation, model)]
  return {
    idle,
    ceiling,
    firstByte,
    headWait: Math.min(firstByte, idle, HEAD_WAIT_MS),
    drain: model.on_client_gone === 'drain' ? DRAIN_MS : 0,
  }
}

/**
 * The row of `stream_limits` that applies to an exchange (STR-1). Thinking without an effort counts as the medium row,
 * unless the model sets another (decisions 12).
 */
function rowOf(conversation: Conversation, model: ModelConfig): keyof Rows {
  switch (conversation.reasoning.effort) {
    case 'none':
    case 'minimal':
      return 'minimal'
    case 'low':
    case 'medium':
      return 'medium'
    case 'high':
      return 'high'
    case 'xhigh':
      return 'xhigh'
    case 'max':
    case 'ultra':
      return 'max'
    case undefined:
      return model.default_stream_row
  }
}
