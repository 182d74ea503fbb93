/** Schema of a whole Responses reply: the Response object. */
import type { NamedSchema } from '../described.ts'
import { unixSeconds } from '../envelope.ts'
import {
  type Arrives,
  among,
  array,
  boolean,
  exactly,
  integer,
  opaqueObject,
  orNull,
  shape,
  string,
} from '../schema.ts'
import { ITEM } from './items.ts'

/** The status of the response and of each of its items. */
const status = among(['completed', 'incomplete', 'in_progress', 'failed'])
const incompleteReason = among(['max_output_tokens', 'content_filter', 'stream_idle_timeout', 'stream_ceiling_timeout'])
const itemType = among([
  'message',
  'reasoning',
  'function_call',
  'custom_tool_call',
  'web_search_call',
  'tool_search_call',
  'compaction',
])
const warning = shape({ code: string(), message: string() })
const tokens = integer(0)
export const usage = shape({
  input_tokens: tokens,
  input_tokens_details: shape({ cached_tokens: tokens, cache_write_tokens: tokens }),
  output_tokens: tokens,
  output_tokens_details: shape({ reasoning_tokens: tokens }),
  total_tokens: tokens,
})
/** The prefix of a reply's id. */
export const ID = 'resp_'

export const reply: NamedSchema = {
  name: 'Response',
  schema: shape(
    {
      id: string({ pattern: `^${ID}` }),
      object: exactly('response'),
      created_at: unixSeconds,
      completed_at: orNull(unixSeconds),
      model: string(),
      status,
      error: orNull(opaqueObject()),
      incomplete_details: orNull(shape({ reason: incompleteReason })),
      output: array(shape({ id: string({ pattern: `^${ITEM}` }), type: itemType, status }, ['status'])),
      usage: orNull(usage),
      warning,
      previous_response_id: orNull(string()),
      instructions: orNull(string()),
      store: boolean(),
      tools: { type: 'array' },
      presence_penalty: exactly(0),
      frequency_penalty: exactly(0),
    },
    ['warning'],
  ),
}

export type Status = Arrives<typeof status>
export type IncompleteReason = Arrives<typeof incompleteReason>
export type ItemType = Arrives<typeof itemType>
export type Warning = Arrives<typeof warning>
