/** Request schema of POST /v1/messages (wire.md A.4, B.3, B.4, B.5). It follows the provider's published types. */
import { EFFORTS } from '../../core/canon/conversation.ts'
import { model, place, stopString, toolName } from '../fields.ts'
import { OFFERED_BY_CHOICE } from '../output-format.ts'
import {
  type Arrives,
  anything,
  array,
  boolean,
  exactly,
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
  variant,
  wish,
} from '../schema.ts'
import type { ObjectOf, Unchecked, UncheckedObject } from '../unchecked.ts'
import { DATED_EDITOR, NATIVE_OPTIONS, NATIVE_TOOLS, WEB_SEARCH_TYPES } from './native-tools.ts'

const cacheControl = noop(
  object({ type: exactly('ephemeral'), ttl: oneOfStrings(['5m', '1h']), scope: oneOfStrings(['global']) }, ['type']),
)

/** Who made a call. Here it is always the model itself. */
const caller = noop(tagged('type', [variant('type', 'direct', {})]))

// ---- content blocks -------------------------------------------------------------------------------------------------

/** Citations of replayed text. They have no effect: they are neither sent upstream nor metered. */
const citation = tagged('type', [
  variant('type', 'web_search_result_location', {
    url: string(),
    title: string(),
    cited_text: string(),
    encrypted_index: string(),
  }),
  variant('type', 'char_location', {
    cited_text: string(),
    document_index: integer(0),
    document_title: string(),
    start_char_index: integer(0),
    end_char_index: integer(0),
    file_id: string(),
  }),
  variant('type', 'page_location', {
    cited_text: string(),
    document_index: integer(0),
    document_title: string(),
    start_page_number: integer(0),
    end_page_number: integer(0),
    file_id: string(),
  }),
  variant('type', 'content_block_location', {
    cited_text: string(),
    document_index: integer(0),
    document_title: string(),
    start_block_index: integer(0),
    end_block_index: integer(0),
    file_id: string(),
  }),
  variant('type', 'search_result_location', {
    cited_text: string(),
    search_result_index: integer(0),
    source: string(),
    title: string(),
    start_block_index: integer(0),
    end_block_index: integer(0),
  }),
])

const text = variant(
  'type',
  'text',
  { text: string(), cache_control: cacheControl, citations: noop(array(citation)) },
  ['text'],
)

const NO_FILES = 'Files are not stored here: send the bytes as base64, or a URL.'
const urlSource = variant('type', 'url', { url: string({ minLength: 1 }) }, ['url'])

const image = variant(
  'type',
  'image',
  {
    source: tagged(
      'type',
      [variant('type', 'base64', { media_type: string(), data: string() }, ['media_type', 'data']), urlSource],
      { unknown: { code: 'unsupported_value', hint: NO_FILES } },
    ),
    cache_control: cacheControl,
    transformations: noop(object({ oversized_image: oneOfStrings(['downsize', 'error']) })),
  },
  ['source'],
)

/**
 * Citations of the client's own documents are not offered: they need a backend that keeps positions in the documents,
 * and canonical parts have none.
 */
const citationsOff = object({ enabled: only({ type: 'boolean', enum: [false] }) })

const document = variant(
  'type',
  'document',
  {
    source: tagged(
      'type',
      [
        variant('type', 'base64', { media_type: only(oneOfStrings(['application/pdf'])), data: string() }, [
          'media_type',
          'data',
        ]),
        variant('type', 'text', { media_type: only(oneOfStrings(['text/plain'])), data: string() }, [
          'media_type',
          'data',
        ]),
        variant('type', 'content', { content: forms([string(), array(tagged('type', [text, image]))]) }, ['content']),
        urlSource,
      ],
      { unknown: { code: 'unsupported_value', hint: NO_FILES } },
    ),
    title: string(),
    context: string(),
    citations: citationsOff,
    cache_control: cacheControl,
  },
  ['source'],
)

const searchResult = variant(
  'type',
  'search_result',
  {
    source: string(),
    title: string(),
    content: array(tagged('type', [text])),
    citations: noop(object({ enabled: boolean() })),
    cache_control: cacheControl,
  },
  ['source', 'title', 'content'],
)

const toolReference = variant('type', 'tool_reference', { tool_name: string(), cache_control: cacheControl }, [
  'tool_name',
])

const toolResult = variant(
  'type',
  'tool_result',
  {
    tool_use_id: string({ minLength: 1 }),
    content: forms([string(), array(tagged('type', [text, image, document, searchResult, toolReference]))]),
    is_error: boolean(),
    toolset_name: noop(string()),
    cache_control: cacheControl,
  },
  ['tool_use_id'],
)

const toolUse = variant(
  'type',
  'tool_use',
  {
    id: string({ minLength: 1 }),
    name: string({ minLength: 1 }),
    input: opaqueObject(),
    caller,
    toolset_name: noop(string()),
    cache_control: cacheControl,
  },
  ['id', 'name', 'input'],
)

const thinking = variant('type', 'thinking', { thinking: string(), signature: string() }, ['thinking'])
const redactedThinking = variant('type', 'redacted_thinking', { data: string() })

const serverToolUse = variant(
  'type',
  'server_tool_use',
  {
    id: string({ minLength: 1 }),
    name: only(exactly('web_search', { type: 'string' })),
    input: opaqueObject(),
    caller,
    cache_control: cacheControl,
  },
  ['id', 'name', 'input'],
)

const webSearchResult = variant(
  'type',
  'web_search_result',
  { url: string(), title: string(), encrypted_content: string(), page_age: string() },
  ['url'],
)
const webSearchToolResult = variant(
  'type',
  'web_search_tool_result',
  {
    tool_use_id: string({ minLength: 1 }),
    content: forms([
      array(tagged('type', [webSearchResult])),
      tagged('type', [variant('type', 'web_search_tool_result_error', { error_code: string() }, ['error_code'])]),
    ]),
    caller,
    cache_control: cacheControl,
  },
  ['tool_use_id', 'content'],
)

const compaction = variant('type', 'compaction', {
  content: string({ minLength: 1 }),
  encrypted_content: string({ minLength: 1 }),
  signature: noop(string()),
  tool_changes: noop(array(opaqueObject())),
  cache_control: cacheControl,
})

// ---- messages -------------------------------------------------------------------------------------------------------

const content = <const B extends readonly Schema[]>(blocks: B) => forms([string(), array(tagged('type', blocks))])

/**
 * Members that the gateway's reply has besides its content (wire.md C.3): a client may push a whole reply onto
 * `messages` (wire.md 0.2 rule 3).
 */
const replyMembers = {
  id: noop(string()),
  type: noop(exactly('message')),
  model: noop(string()),
  stop_reason: noop(string()),
  stop_sequence: noop(string()),
  stop_details: noop(opaqueObject()),
  container: rejected(),
  diagnostics: noop(opaqueObject()),
  usage: noop(opaqueObject()),
  context_management: noop(opaqueObject()),
  parsed_output: noop(anything()),
}

const message = tagged(
  'role',
  [
    variant('role', 'user', { content: content([text, image, document, searchResult, toolResult, compaction]) }, [
      'content',
    ]),
    variant(
      'role',
      'assistant',
      {
        content: content([text, thinking, redactedThinking, toolUse, serverToolUse, webSearchToolResult, compaction]),
        ...replyMembers,
      },
      ['content'],
    ),
    variant(
      'role',
      'system',
      { content: content([text]), clear_at: rejected(undefined, ['never']), output_config: rejected() },
      ['content'],
    ),
  ],
  { unknown: { code: 'invalid_value' } },
)

// ---- tools ----------------------------------------------------------------------------------------------------------

/** Members that every declaration may have. They have no effect: here no tool is called from code or loaded later. */
const toolHints = {
  cache_control: cacheControl,
  defer_loading: noop(boolean()),
  allowed_callers: array(only(oneOfStrings(['direct']))),
  input_examples: noop(array(anything())),
  eager_input_streaming: noop(boolean()),
}

const customTool = variant(
  'type',
  'custom',
  { name: toolName, description: string(), input_schema: opaqueObject(), strict: boolean(), ...toolHints },
  ['name', 'input_schema'],
)

const domains = array(string({ minLength: 1 }))

const webSearchTool = variant(
  'type',
  WEB_SEARCH_TYPES,
  {
    name: exactly('web_search', { type: 'string' }),
    max_uses: integer(1),
    allowed_domains: domains,
    blocked_domains: domains,
    user_location: tagged('type', [variant('type', 'approximate', place)]),
    strict: noop(boolean()),
    ...toolHints,
  },
  ['name'],
)

const nativeTools = [...NATIVE_TOOLS].map(([type, shape]) =>
  variant(
    'type',
    type,
    {
      name: exactly(shape.name, { type: 'string' }),
      strict: noop(boolean()),
      ...Object.fromEntries(shape.options.map(name => [name, NATIVE_OPTIONS[name]])),
      ...toolHints,
    },
    ['name'],
  ),
)

/** Text editors with another date become plain functions (decision 32). */
const otherTextEditor = object(
  {
    type: string({ pattern: DATED_EDITOR }),
    name: toolName,
    strict: noop(boolean()),
    max_characters: noop(NATIVE_OPTIONS.max_characters),
    ...toolHints,
  },
  ['name'],
)

const tool = tagged('type', [customTool, webSearchTool, ...nativeTools, otherTextEditor], { absent: 'custom' })

const single = { disable_parallel_tool_use: boolean() }
const toolChoice = tagged(
  'type',
  [
    variant('type', 'auto', single),
    variant('type', 'any', single),
    variant('type', 'tool', { name: toolName, ...single }, ['name']),
    variant('type', 'none', {}),
  ],
  { unknown: { code: 'invalid_value' } },
)

// ---- the request ----------------------------------------------------------------------------------------------------

const display = oneOfStrings(['summarized', 'omitted', 'updates'])
const blockBinding = noop(opaqueObject())

export const thinkingControl = tagged(
  'type',
  [
    variant('type', 'enabled', { budget_tokens: integer(1024), display, block_binding: blockBinding }, [
      'budget_tokens',
    ]),
    variant('type', 'adaptive', { display, block_binding: blockBinding }),
    variant('type', 'disabled', {}),
    variant('type', 'between_tools', { block_binding: blockBinding }),
  ],
  { unknown: { code: 'invalid_value' } },
)

const amount = <const W extends string>(...units: readonly W[]) =>
  tagged(
    'type',
    units.map(unit => variant('type', unit, { value: integer(0) }, ['value'])),
  )

/** Words of the client's own on how to summarise. */
const instructions = string({ maxLength: 20_000 })

const contextManagement = object({
  edits: array(
    tagged('type', [
      variant('type', 'clear_tool_uses_20250919', {
        trigger: amount('input_tokens', 'tool_uses'),
        keep: amount('tool_uses'),
        clear_at_least: amount('input_tokens'),
        clear_tool_inputs: forms([boolean(), array(string())]),
        exclude_tools: array(string()),
      }),
      variant('type', 'clear_thinking_20251015', {
        keep: forms([
          oneOfStrings(['all']),
          tagged('type', [
            variant('type', 'thinking_turns', { value: integer(1) }, ['value']),
            variant('type', 'all', {}),
          ]),
        ]),
      }),
      variant('type', 'compact_20260112', {
        trigger: amount('input_tokens'),
        pause_after_compaction: boolean(),
        instructions,
      }),
    ]),
  ),
})

const NOTHING: readonly unknown[] = [[], {}, '']
const AS_HEADER = 'SDKs send it as a header.'
const format = tagged(
  'type',
  [variant('type', 'json_schema', { schema: opaqueObject() }, ['schema'])],
  {},
  { description: OFFERED_BY_CHOICE },
)

export const requestSchema = object(
  {
    model,
    max_tokens: integer(1, undefined, { 'x-hint': 'It caps the reply, reasoning included.' }),
    messages: array(message, { minItems: 1, maxItems: 100_000 }),
    system: forms([string(), array(tagged('type', [text]))]),
    stream: boolean(),
    stop_sequences: array(stopString, { maxItems: 16 }),
    temperature: number(0, 1),
    top_p: number(0, 1),
    top_k: integer(0),
    thinking: thinkingControl,
    output_config: object({
      effort: oneOfStrings(EFFORTS.filter(effort => effort !== 'none')),
      format,
      task_budget: wish(rejected()),
    }),
    output_format: format,
    metadata: noop(object({ user_id: string({ maxLength: 2048 }) })),
    cache_control: cacheControl,
    tools: array(tool),
    tool_choice: toolChoice,
    service_tier: wish(only(oneOfStrings(['auto', 'standard_only']))),
    speed: wish(only(oneOfStrings(['standard']))),
    diagnostics: noop(object({ previous_message_id: string() })),
    context_management: contextManagement,
    safeguards: noop(array(anything())),
    inference_geo: rejected(undefined, NOTHING),
    container: rejected(undefined, NOTHING),
    mcp_servers: rejected(undefined, NOTHING),
    // Empty values pass, as for members that are not offered.
    compaction: forms([
      string({ maxLength: 0 }),
      array(anything(), { maxItems: 0 }),
      object({ type: oneOfStrings(['summarize']), instructions }),
    ]),
    thread: rejected('Send the whole conversation in messages.', NOTHING),
    fallbacks: wish(rejected(undefined, NOTHING)),
    fallback_credit_token: wish(rejected(undefined, NOTHING)),
    billing_policy: rejected(undefined, NOTHING),
    betas: rejected(AS_HEADER, NOTHING),
    user_profile_id: rejected(AS_HEADER, NOTHING),
    workspace_id: rejected(AS_HEADER, NOTHING),
  },
  ['model', 'max_tokens', 'messages'],
  { title: 'Messages request' },
)

// ---- the body for `parse`; from count_tokens it may not have passed the schema --------------------------------------

export type MessagesBody = UncheckedObject<Arrives<typeof requestSchema>>
export type Message = Unchecked<Arrives<typeof message>>
/** Any content block, also one inside another block. */
export type Block = UncheckedObject<
  Arrives<
    | typeof text
    | typeof image
    | typeof document
    | typeof searchResult
    | typeof toolReference
    | typeof toolResult
    | typeof toolUse
    | typeof thinking
    | typeof redactedThinking
    | typeof serverToolUse
    | typeof webSearchToolResult
    | typeof compaction
    | typeof webSearchResult
  >
>
/** Where the bytes of an image or a document come from. */
export type Source = ObjectOf<Block['source']>
export type DeclaredTool = UncheckedObject<Arrives<typeof tool>>
export type WireToolChoice = UncheckedObject<Arrives<typeof toolChoice>>
/** Anything that may carry a cache marker. */
export type Marked = Pick<Block, 'cache_control'>
