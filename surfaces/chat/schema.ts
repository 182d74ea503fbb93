/** Request schema of POST /v1/chat/completions (wire.md A.2, B.1, B.4, B.5). */
import {
  allowedMode,
  cacheBreakpoint,
  callId,
  effort,
  imageDetail,
  metadata,
  model,
  promptCacheKey,
  promptCacheOptions,
  promptCacheRetention,
  safetyIdentifier,
  serviceTier,
  stopString,
  textOr,
  toolMode,
  toolName,
  user,
  verbosity,
} from '../fields.ts'
import { NO_TYPE, namedSchema, OFFERED_BY_CHOICE } from '../output-format.ts'
import {
  type Arrives,
  anything,
  array,
  boolean,
  forms,
  integer,
  noop,
  number,
  object,
  oneOfStrings,
  only,
  opaqueObject,
  rejected,
  type Schema,
  string,
  tagged,
  titled,
  variant,
  wish,
} from '../schema.ts'

/** Members that clients add to any content part. */
const partHints = { prompt_cache_breakpoint: cacheBreakpoint, cache_control: noop(opaqueObject()) }

const text = variant('type', 'text', { text: string(), ...partHints }, ['text'], { title: 'Text part' })
const image = variant(
  'type',
  'image_url',
  { image_url: object({ url: string(), detail: imageDetail }, ['url']), ...partHints },
  ['image_url'],
  { title: 'Image part' },
)
const file = variant(
  'type',
  'file',
  {
    file: object(
      { file_data: string(), filename: string(), file_id: rejected('Send the bytes as a data URL in file_data.') },
      ['file_data'],
    ),
    ...partHints,
  },
  ['file'],
  { title: 'File part' },
)
const refusal = variant('type', 'refusal', { refusal: string(), ...partHints }, ['refusal'], { title: 'Refusal part' })

const textPart = tagged('type', [text])
const textContent = forms(textOr(textPart))
const name = noop(string())
/** Members that clients add to any message: opencode marks messages for the cache when a model is named after Claude. */
const hints = { name, cache_control: noop(opaqueObject()) }

const system = variant('role', ['system', 'developer'], { content: textContent, ...hints }, ['content'])
const userMessage = variant(
  'role',
  'user',
  { content: forms([string(), array(tagged('type', [text, image, file]), { minItems: 1 })]), ...hints },
  ['content'],
)
// Clients that put streamed calls together leave it in the call that they send back.
const callIndex = noop(integer(0))
const functionCall = variant(
  'type',
  'function',
  {
    cache_control: hints.cache_control,
    id: callId,
    function: object({ name: toolName, arguments: string(), parsed_arguments: noop(anything()) }, [
      'name',
      'arguments',
    ]),
    index: callIndex,
  },
  ['id', 'function'],
)
/** Not offered on Chat Completions itself. */
const customCall = variant(
  'type',
  'custom',
  {
    cache_control: hints.cache_control,
    id: callId,
    custom: object({ name: toolName, input: string() }, ['name', 'input']),
    index: callIndex,
  },
  ['id', 'custom'],
)
const assistantWith = <const C extends readonly Schema[]>(calls: C) =>
  variant('role', 'assistant', {
    content: forms(textOr(tagged('type', [text, refusal]))),
    refusal: string(),
    tool_calls: array(tagged('type', calls)),
    ...hints,
    annotations: noop({ type: 'array' }),
    reasoning_content: noop(string()),
    parsed: noop(anything()),
    audio: noop(opaqueObject()),
    // LiteLLM puts what its message has beyond OpenAI's into it, and sends it back.
    provider_specific_fields: noop(opaqueObject()),
    function_call: rejected('Use tool_calls.'),
  })
const tool = variant('role', 'tool', { content: textContent, tool_call_id: callId, ...hints }, [
  'content',
  'tool_call_id',
])

const functionTool = variant(
  'type',
  'function',
  {
    function: object({ name: toolName, description: string(), parameters: opaqueObject(), strict: boolean() }, [
      'name',
    ]),
  },
  ['function'],
)
const namedFunction = variant('type', 'function', { function: object({ name: toolName }, ['name']) }, ['function'])
const allowedTools = variant(
  'type',
  'allowed_tools',
  {
    allowed_tools: object({ mode: allowedMode, tools: array(tagged('type', [namedFunction]), { minItems: 1 }) }, [
      'mode',
      'tools',
    ]),
  },
  ['allowed_tools'],
)

const messagesWith = <const C extends readonly Schema[]>(calls: C) =>
  array(tagged('role', [system, userMessage, assistantWith(calls), tool]), { minItems: 1 })

/** Messages whose calls may be of custom tools, too. */
export const messagesOfAllCalls = messagesWith([functionCall, customCall])

export const requestSchema = titled(
  'Chat completion request',
  object(
    {
      model,
      messages: messagesWith([functionCall]),
      system: forms(textOr(textPart), { description: 'In place of a system message.' }),
      stream: boolean(),
      stream_options: object({ include_usage: boolean(), include_obfuscation: noop(boolean()) }),
      temperature: number(0, 2),
      top_p: number(0, 1),
      stop: forms([stopString, array(stopString, { maxItems: 4 })]),
      seed: integer(-(2 ** 63), 2 ** 63),
      logprobs: boolean(),
      top_logprobs: integer(0, 20),
      user,
      metadata,
      max_tokens: integer(1),
      max_completion_tokens: integer(1),
      tools: array(tagged('type', [functionTool]), { maxItems: 128 }),
      tool_choice: forms([toolMode, tagged('type', [namedFunction, allowedTools])]),
      parallel_tool_calls: boolean(),
      reasoning_effort: effort,
      verbosity,
      response_format: tagged(
        'type',
        [
          variant('type', 'text', {}),
          variant('type', 'json_object', {}),
          variant('type', 'json_schema', { json_schema: object(namedSchema, ['name']) }, ['json_schema']),
        ],
        { unknown: { code: 'unsupported_parameter', at: 'self' }, missing: NO_TYPE },
        { description: OFFERED_BY_CHOICE },
      ),
      n: only({ type: 'integer', enum: [1] }, 'Send one request for each completion.'),
      presence_penalty: only({ type: 'number', enum: [0] }),
      frequency_penalty: only({ type: 'number', enum: [0] }),
      logit_bias: only({ type: 'object', maxProperties: 0 }),
      modalities: only(array(only(oneOfStrings(['text'])))),
      service_tier: serviceTier,
      store: only({ type: 'boolean', enum: [false] }, 'Chat completions are never stored: leave it out.'),
      prompt_cache_key: promptCacheKey,
      prompt_cache_options: promptCacheOptions,
      prompt_cache_retention: promptCacheRetention,
      safety_identifier: safetyIdentifier,
      audio: rejected(),
      prediction: wish(rejected()),
      web_search_options: rejected('Hosted search is on /v1/responses and /v1/messages.'),
      moderation: rejected(),
      functions: rejected('Use tools.'),
      function_call: rejected('Use tool_choice.'),
    },
    ['model', 'messages'],
  ),
)

/** The types of a body that has passed the schema, for `parse`. */
export type ChatBody = Arrives<typeof requestSchema>
/** All that `parse` reads by itself; tools and their choice are given to it. */
export type ChatMembers = Omit<ChatBody, 'messages' | 'tools' | 'tool_choice'> & { messages: ChatMessage[] }
export type ChatMessage = Arrives<typeof messagesOfAllCalls>[number]
export type TextContent = Arrives<typeof text>
export type UserContent = Arrives<typeof text | typeof image | typeof file>
export type ChatTool = Arrives<typeof functionTool>
export type ChatToolChoice = NonNullable<ChatBody['tool_choice']>
