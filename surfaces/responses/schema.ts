/** Request schema of POST /v1/responses (wire.md A.3, B.2, B.4, B.5). */
import {
  allowedMode,
  cacheBreakpoint,
  callId,
  effort,
  imageDetail,
  metadata,
  model,
  place,
  promptCacheKey,
  promptCacheOptions,
  promptCacheRetention,
  safetyIdentifier,
  serviceTier,
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
  map,
  noop,
  number,
  type Optional,
  object,
  oneOfStrings,
  only,
  opaqueObject,
  rejected,
  type Schema,
  string,
  tagged,
  tagsOf,
  titled,
  variant,
} from '../schema.ts'

// ---- content parts --------------------------------------------------------------------------------------------------

const inputText = variant('type', 'input_text', { text: string(), prompt_cache_breakpoint: cacheBreakpoint }, ['text'])
const inputImage = variant('type', 'input_image', {
  image_url: string(),
  detail: imageDetail,
  file_id: rejected('Send the image as a URL or data URL in image_url.'),
  prompt_cache_breakpoint: cacheBreakpoint,
})
const inputFile = variant('type', 'input_file', {
  file_data: string(),
  filename: string(),
  file_url: string(),
  detail: noop(oneOfStrings(['auto', 'low', 'high'])),
  file_id: rejected('Send the file as a data URL in file_data, or as file_url.'),
  prompt_cache_breakpoint: cacheBreakpoint,
})
const outputText = variant(
  'type',
  'output_text',
  {
    text: string(),
    annotations: noop({ type: 'array' }),
    logprobs: noop({ type: 'array' }),
    parsed: noop(anything()),
    prompt_cache_breakpoint: cacheBreakpoint,
  },
  ['text'],
)
const refusal = variant('type', 'refusal', { refusal: string(), parsed: noop(anything()) }, ['refusal'])
const ofUser = [inputText, inputImage, inputFile] as const
const ofAssistant = [outputText, refusal] as const
const messageContent = forms([string(), array(tagged('type', [...ofUser, ...ofAssistant]))])
const outputContent = forms([string(), array(tagged('type', ofUser))])
/**
 * The types of parts that a message of a role may have. `parse` checks it, because an item's tag is its type and not
 * its role.
 */
export const PARTS: Readonly<Record<MessageItem['role'], readonly string[]>> = {
  user: tagsOf(tagged('type', ofUser)),
  assistant: tagsOf(tagged('type', ofAssistant)),
  system: ['input_text'],
  developer: ['input_text'],
}

// ---- tools ----------------------------------------------------------------------------------------------------------

const toolHints = {
  defer_loading: noop(boolean()),
  async: noop(boolean()),
  allowed_callers: only(array(only(oneOfStrings(['direct'])))),
}
export const functionTool = variant(
  'type',
  'function',
  {
    name: toolName,
    description: string(),
    parameters: opaqueObject(),
    strict: boolean(),
    output_schema: noop(opaqueObject()),
    ...toolHints,
  },
  ['name'],
)
export const customTool = variant(
  'type',
  'custom',
  {
    name: toolName,
    description: string(),
    format: tagged('type', [
      variant('type', 'text', {}),
      variant('type', 'grammar', { syntax: oneOfStrings(['lark', 'regex']), definition: string() }, [
        'syntax',
        'definition',
      ]),
    ]),
    ...toolHints,
  },
  ['name'],
)
const SEARCH_TYPES = [
  'web_search',
  'web_search_2025_08_26',
  'web_search_preview',
  'web_search_preview_2025_03_11',
] as const
const searchTool = variant('type', SEARCH_TYPES, {
  search_context_size: oneOfStrings(['low', 'medium', 'high']),
  user_location: object({ type: oneOfStrings(['approximate']), ...place }),
  filters: object({ allowed_domains: array(string({ minLength: 1 }), { maxItems: 100 }) }),
  external_web_access: boolean(),
  search_content_types: noop(array(oneOfStrings(['text', 'image']))),
})
const namespaceTool = variant(
  'type',
  'namespace',
  { name: toolName, description: string(), tools: array(tagged('type', [functionTool, customTool])) },
  ['name', 'tools'],
)
const searchToolsTool = variant(
  'type',
  'tool_search',
  {
    execution: only(oneOfStrings(['client']), 'Run the search in the client.'),
    description: string(),
    parameters: opaqueObject(),
  },
  ['execution'],
)
const tools = array(tagged('type', [functionTool, customTool, searchTool, namespaceTool, searchToolsTool]))

// ---- items ----------------------------------------------------------------------------------------------------------

/**
 * Item ids are never looked up. Client libraries add `created_by`; Codex adds the last one, for a provider that it takes
 * for OpenAI.
 */
const itemHints = {
  id: noop(string()),
  created_by: noop(anything()),
  internal_chat_message_metadata_passthrough: noop(opaqueObject()),
}
const status = oneOfStrings(['in_progress', 'completed', 'incomplete'])
const caller = noop(opaqueObject())

const message = variant(
  'type',
  'message',
  {
    role: oneOfStrings(['user', 'assistant', 'system', 'developer']),
    content: messageContent,
    status: noop(status),
    phase: noop(oneOfStrings(['commentary', 'final_answer'])),
    ...itemHints,
  },
  ['role', 'content'],
)
const functionCall = variant(
  'type',
  'function_call',
  {
    call_id: callId,
    name: toolName,
    arguments: string(),
    namespace: toolName,
    status,
    caller,
    async: noop(boolean()),
    parsed_arguments: noop(anything()),
    ...itemHints,
  },
  ['call_id', 'name', 'arguments'],
)
const customCall = variant(
  'type',
  'custom_tool_call',
  {
    call_id: callId,
    name: toolName,
    input: string(),
    namespace: toolName,
    status,
    caller,
    async: noop(boolean()),
    ...itemHints,
  },
  ['call_id', 'name', 'input'],
)
const functionOutput = variant(
  'type',
  'function_call_output',
  {
    call_id: callId,
    output: outputContent,
    status: noop(status),
    name: noop(string()),
    namespace: noop(string()),
    caller,
    ...itemHints,
  },
  ['call_id', 'output'],
)
const customOutput = variant(
  'type',
  'custom_tool_call_output',
  { call_id: callId, output: outputContent, status: noop(status), caller, ...itemHints },
  ['call_id', 'output'],
)
const reasoning = variant(
  'type',
  'reasoning',
  {
    summary: array(tagged('type', [variant('type', 'summary_text', { text: string() }, ['text'])])),
    content: noop(array(opaqueObject())),
    encrypted_content: string(),
    status: noop(status),
    ...itemHints,
  },
  ['summary'],
)
const searchCall = variant('type', 'web_search_call', {
  action: tagged('type', [
    variant('type', 'search', {
      query: string(),
      queries: array(string()),
      sources: array(map(anything(), { properties: { url: string() } }) as Schema<{ url?: Optional<string> }>),
    }),
    variant('type', 'open_page', { url: string() }),
    variant('type', ['find_in_page', 'find'], { url: string(), pattern: string() }),
  ]),
  status: noop(oneOfStrings(['in_progress', 'searching', 'completed', 'failed', 'incomplete'])),
  ...itemHints,
})
const clientOnly = only(oneOfStrings(['client']), 'Only tool searches that the client runs are offered.')
const toolSearchCall = variant(
  'type',
  'tool_search_call',
  { call_id: callId, execution: clientOnly, arguments: anything(), status, ...itemHints },
  ['call_id', 'execution', 'arguments'],
)
const toolSearchOutput = variant(
  'type',
  'tool_search_output',
  { call_id: callId, execution: clientOnly, tools, status: noop(status), ...itemHints },
  ['call_id', 'execution', 'tools'],
)
const additionalTools = variant(
  'type',
  'additional_tools',
  { role: only(oneOfStrings(['developer'])), tools, ...itemHints },
  ['role', 'tools'],
)

/** Its encrypted_content is the gateway's own (core/canon/compaction.ts). */
const compaction = variant('type', 'compaction', { encrypted_content: string({ minLength: 1 }), ...itemHints }, [
  'encrypted_content',
])
const compactionTrigger = variant('type', 'compaction_trigger', itemHints)

export const item = tagged(
  'type',
  [
    message,
    functionCall,
    functionOutput,
    customCall,
    customOutput,
    reasoning,
    searchCall,
    toolSearchCall,
    toolSearchOutput,
    additionalTools,
    compaction,
    compactionTrigger,
  ],
  {
    absent: 'message',
    absentGiven: ['role', 'content'],
    missing: {
      code: 'unsupported_value',
      hint: 'References to stored items (item_reference) are not offered: send the item itself.',
    },
  },
)

// ---- body -----------------------------------------------------------------------------------------------------------

const namedTool = [
  variant('type', 'function', { name: toolName, namespace: toolName }, ['name']),
  variant('type', 'custom', { name: toolName, namespace: toolName }, ['name']),
  variant('type', SEARCH_TYPES, {}),
]

/** What OpenAI's API lists as values of `include`. Those that are about other items change nothing. */
export const INCLUDES = [
  'file_search_call.results',
  'web_search_call.results',
  'web_search_call.action.sources',
  'message.input_image.image_url',
  'computer_call_output.output.image_url',
  'code_interpreter_call.outputs',
  'reasoning.encrypted_content',
  'message.output_text.logprobs',
] as const

export const requestSchema = titled(
  'Response request',
  object(
    {
      model,
      input: forms([string(), array(item)]),
      instructions: string(),
      previous_response_id: string({ minLength: 1 }),
      store: boolean(),
      stream: boolean(),
      stream_options: noop(object({ include_obfuscation: boolean() })),
      include: array(oneOfStrings(INCLUDES)),
      max_output_tokens: integer(1),
      max_tool_calls: integer(1, undefined, { description: 'Caps hosted searches.' }),
      temperature: number(0, 2),
      top_p: number(0, 1),
      top_logprobs: integer(0, 20),
      parallel_tool_calls: boolean(),
      reasoning: object({
        effort,
        summary: oneOfStrings(['auto', 'concise', 'detailed']),
        generate_summary: oneOfStrings(['auto', 'concise', 'detailed']),
        context: noop(oneOfStrings(['auto', 'current_turn', 'all_turns'])),
        mode: only(oneOfStrings(['standard'])),
      }),
      text: object({
        format: tagged(
          'type',
          [
            variant('type', 'text', {}),
            variant('type', 'json_object', {}),
            variant('type', 'json_schema', namedSchema, ['name', 'schema']),
          ],
          { unknown: { code: 'unsupported_parameter', at: 'self' }, missing: NO_TYPE },
          { description: OFFERED_BY_CHOICE },
        ),
        verbosity,
      }),
      tools: { ...tools, maxItems: 512 },
      tool_choice: forms([
        toolMode,
        tagged('type', [
          ...namedTool,
          variant(
            'type',
            'allowed_tools',
            { mode: allowedMode, tools: array(tagged('type', namedTool), { minItems: 1 }) },
            ['mode', 'tools'],
          ),
        ]),
      ]),
      presence_penalty: only({ type: 'number', enum: [0] }),
      frequency_penalty: only({ type: 'number', enum: [0] }),
      truncation: only(oneOfStrings(['disabled']), 'Content is never dropped silently: shorten the input instead.'),
      metadata,
      user,
      safety_identifier: safetyIdentifier,
      prompt_cache_key: promptCacheKey,
      prompt_cache_options: promptCacheOptions,
      prompt_cache_retention: promptCacheRetention,
      service_tier: serviceTier,
      client_metadata: noop(map(string())),
      context_management: array(tagged('type', [variant('type', 'compaction', { compact_threshold: integer(1) })]), {
        maxItems: 1,
        description: 'The conversation is compacted when its prompt has more tokens.',
      }),
      background: only({ type: 'boolean', enum: [false] }),
      conversation: rejected('Use previous_response_id, or send the items.'),
      prompt: rejected(),
      moderation: rejected(),
      access_programs: rejected(),
      image: rejected(),
    },
    ['model'],
  ),
)

// ---- types of a body that has passed the schema, for `parse` --------------------------------------------------------

export type ResponsesBody = Arrives<typeof requestSchema> & {
  /** Only over a WebSocket. */
  generate?: Optional<boolean>
}
export type Item = Arrives<typeof item>
export type MessageItem = Extract<Item, { role: string; content: unknown }>
export type OutputItem = Arrives<typeof functionOutput | typeof customOutput>
export type CompactionItem = Arrives<typeof compaction>
export type ReasoningItem = Arrives<typeof reasoning>
export type SearchCallItem = Arrives<typeof searchCall>
export type InputPart = Arrives<typeof inputText | typeof inputImage | typeof inputFile>
export type WireFunctionTool = Arrives<typeof functionTool>
export type WireCustomTool = Arrives<typeof customTool>
export type WireSearchTool = Arrives<typeof searchTool>
export type WireTool = Arrives<typeof tools>[number]
export type WireToolChoice = NonNullable<ResponsesBody['tool_choice']>
