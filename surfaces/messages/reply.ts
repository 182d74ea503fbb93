/** Schema of a whole Messages reply. */
import type { NamedSchema } from '../described.ts'
import { type Arrives, among, array, exactly, integer, opaqueObject, orNull, shape, string } from '../schema.ts'

const blockType = among(['text', 'thinking', 'tool_use', 'server_tool_use', 'web_search_tool_result', 'compaction'])
const stopReason = among([
  'end_turn',
  'max_tokens',
  'stop_sequence',
  'tool_use',
  'refusal',
  'pause_turn',
  'model_context_window_exceeded',
  'compaction',
])
const tokens = integer(0)
/** The prefix of a reply's id. */
export const ID = 'msg_'

export const reply: NamedSchema = {
  name: 'Message',
  schema: shape(
    {
      id: string({ pattern: `^${ID}` }),
      type: exactly('message'),
      role: exactly('assistant'),
      model: string(),
      content: array(shape({ type: blockType })),
      stop_reason: stopReason,
      stop_sequence: orNull(string()),
      stop_details: orNull(opaqueObject()),
      usage: shape({
        input_tokens: tokens,
        cache_creation_input_tokens: tokens,
        cache_read_input_tokens: tokens,
        output_tokens: tokens,
      }),
      context_management: opaqueObject(),
    },
    ['context_management'],
  ),
}

export type StopReason = Arrives<typeof stopReason>
export type ReplyBlock = Record<string, unknown> & { type: Arrives<typeof blockType> }
