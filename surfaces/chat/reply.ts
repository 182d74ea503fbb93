/** Schema of a whole Chat Completions reply. */
import type { NamedSchema } from '../described.ts'
import { unixSeconds } from '../envelope.ts'
import {
  type Arrives,
  among,
  array,
  exactly,
  integer,
  opaqueObject,
  orNull,
  type Schema,
  shape,
  string,
} from '../schema.ts'

const functionCall = shape({
  id: string(),
  type: exactly('function'),
  function: shape({ name: string(), arguments: string() }),
})
/** Chat Completions itself offers no custom tools. */
const customCall = shape({
  id: string(),
  type: exactly('custom'),
  custom: shape({ name: string(), input: string() }),
})
const finishReason = among(['stop', 'length', 'tool_calls', 'content_filter'])
const tokens = integer(0)
/** The prefix of a reply's id. */
export const ID = 'chatcmpl-'

const replyWith = (name: string, toolCall: Schema): NamedSchema => ({
  name,
  schema: shape(
    {
      id: string({ pattern: `^${ID}` }),
      object: exactly('chat.completion'),
      created: unixSeconds,
      model: string(),
      choices: array(
        shape({
          index: exactly(0),
          message: shape(
            {
              role: exactly('assistant'),
              content: orNull(string()),
              refusal: orNull(string()),
              annotations: { type: 'array' },
              tool_calls: array(toolCall),
            },
            ['tool_calls'],
          ),
          logprobs: orNull(opaqueObject()),
          finish_reason: finishReason,
        }),
        { minItems: 1, maxItems: 1 },
      ),
      usage: shape({
        prompt_tokens: tokens,
        completion_tokens: tokens,
        total_tokens: tokens,
        completion_tokens_details: shape({ reasoning_tokens: tokens }),
        prompt_tokens_details: shape({ cached_tokens: tokens }),
      }),
      service_tier: exactly('default'),
      metadata: opaqueObject(),
    },
    ['metadata'],
  ),
})

export const reply = replyWith('ChatCompletion', functionCall)
export const replyOfAllCalls = (name: string) => replyWith(name, { oneOf: [functionCall, customCall] })

export type ToolCall = Arrives<typeof functionCall | typeof customCall>
export type ChatFinish = Arrives<typeof finishReason>
