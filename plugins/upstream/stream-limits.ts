import type { GatewayConfig, ModelConfig } from '../../config/types.ts'
import type { Conversation } from '../../core/conversation.ts'

/** The head goes out after so long at the latest, with keep-alives (decisions 11). */
const HEAD_WAIT_MS = 30_000
/** How long a draining upstream may run on after the client left. */
const DRAIN_MS = 60_000

/** Limits of an exchange's clocks, milliseconds. */
export interface Clocks {
  /** Without model activity (STR-1). */
  idle: number
  /** Wall clock of the whole exchange. */
  ceiling: number
  /** Until the first event of the reply. */
  firstByte: number
  /** Until the head goes out although no event has come (decisions 11). */
  headWait: number
  /** How long a draining upstream may still run after the client left. */
  drain: number
}

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

/** The effort row an exchange's clocks follow (STR-1). Thinking without an effort is the medium row (decisions 12). */
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
