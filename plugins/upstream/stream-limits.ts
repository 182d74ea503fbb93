import type { GatewayConfig, ModelConfig } from '../../config/types.ts'
import type { Conversation } from '../../core/conversation.ts'

export type StreamRow = keyof GatewayConfig['stream_limits']

/** The effort row an exchange's clocks follow (STR-1). Thinking without an effort is the medium row (decisions 12). */
export function streamRow(asked: Conversation, model: ModelConfig): StreamRow {
  switch (asked.reasoning.effort) {
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
