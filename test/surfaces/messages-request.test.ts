import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import type { Conversation, NativeTool } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import { form } from '../../surfaces/messages/form.ts'
import { messages } from '../../surfaces/messages/index.ts'
import { accepted, bodyOf, type RefusedRow, refusal, refuses } from './request-kit.ts'

type Json = Record<string, unknown>

const minimal = (more: Json = {}): Json => ({
  model: 'eb1-preview',
  max_tokens: 1000,
  messages: [{ role: 'user', content: 'Hello' }],
  ...more,
})
/** A body whose first message has these blocks. */
const blocks = (role: string, ...content: Json[]): Json => ({ messages: [{ role, content }] })
const withBlocks = (role: string, ...content: Json[]): Json => minimal(blocks(role, ...content))
const withTool = (tool: Json): Json => minimal({ tools: [tool] })

const accept = (body: unknown): Conversation => accepted(messages, body)

const PNG = 'iVBORw0KGgo='
const base64Image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } }
const strictSchema = {
  type: 'object',
  properties: { a: { type: 'object', properties: { b: { type: 'string' } }, required: ['b'] } },
  required: ['a'],
  additionalProperties: false,
}
const marked = (text: string) => ({ type: 'text', text, cache_control: { type: 'ephemeral' } })

// biome-ignore format: one case a line
const REFUSED: RefusedRow[] = [
  ['[GEN-2] no object', [], 'invalid_json', null],
  ['[GEN-2] no model', { model: undefined, messages: [] }, 'missing_required_parameter', 'model'],
  ['[GEN-2] no max_tokens', { max_tokens: undefined }, 'missing_required_parameter', 'max_tokens'],
  ['[GEN-2] no messages', { messages: undefined }, 'missing_required_parameter', 'messages'],
  ['[GEN-2] null model', { model: null }, 'invalid_type', 'model'],
  ['[GEN-2] unknown member', { foo: 1 }, 'unknown_parameter', 'foo'],
  ['[GEN-2] unknown member, null', { foo: null }, 'unknown_parameter', 'foo'],
  ['[GEN-2] __proto__', JSON.parse('{"__proto__":{}}'), 'unknown_parameter', '__proto__'],
  ['[GEN-2] max_tokens 0', { max_tokens: 0 }, 'invalid_value', 'max_tokens'],
  ['[GEN-2] max_tokens fraction', { max_tokens: 100.5 }, 'invalid_type', 'max_tokens'],
  ['[GEN-2] max_tokens string', { max_tokens: '5' }, 'invalid_type', 'max_tokens'],
  ['[GEN-2] empty messages', { messages: [] }, 'invalid_value', 'messages'],
  ['[GEN-2] messages string', { messages: 'hi' }, 'invalid_type', 'messages'],
  ['[GEN-2] stream string', { stream: 'true' }, 'invalid_type', 'stream'],
  ['[GEN-2] temperature', { temperature: 1.5 }, 'invalid_value', 'temperature'],
  ['[GEN-2] top_p', { top_p: -0.1 }, 'invalid_value', 'top_p'],
  ['[GEN-2] top_k', { top_k: -1 }, 'invalid_value', 'top_k'],
  ['[GEN-2] empty stop sequence', { stop_sequences: [''] }, 'invalid_value', 'stop_sequences[0]'],
  ['[GEN-2] 17 stop sequences', { stop_sequences: Array(17).fill('x') }, 'invalid_value', 'stop_sequences'],
  ['[GEN-2] role', { messages: [{ role: 'tool', content: 'x' }] }, 'invalid_value', 'messages[0].role'],
  ['[GEN-2] no role', { messages: [{ content: 'x' }] }, 'missing_required_parameter', 'messages[0].role'],
  ['[GEN-2] no content', { messages: [{ role: 'user' }] }, 'missing_required_parameter', 'messages[0].content'],
  ['[GEN-2] content type', { messages: [{ role: 'user', content: 7 }] }, 'invalid_type', 'messages[0].content'],
  ['[GEN-2] message member', { messages: [{ role: 'user', content: 'x', name: 'n' }] }, 'unknown_parameter', 'messages[0].name'],
  ['[GEN-2] user with a reply’s members', { messages: [{ role: 'user', content: 'x', stop_reason: 'end_turn' }] }, 'unknown_parameter', 'messages[0].stop_reason'],
  // Blocks
  ['[GEN-2] block member', blocks('user', { type: 'text', text: 'a' }, { type: 'text', text: 'b', foo: 1 }), 'unknown_parameter', 'messages[0].content[1].foo'],
  ['[GEN-2] block type', blocks('user', { type: 'video' }), 'unsupported_value', 'messages[0].content[0].type'],
  ['[GEN-2] block without type', blocks('user', { text: 'a' }), 'missing_required_parameter', 'messages[0].content[0].type'],
  ['[GEN-2] text without text', blocks('user', { type: 'text' }), 'missing_required_parameter', 'messages[0].content[0].text'],
  ['[GEN-2] container_upload', blocks('user', { type: 'container_upload', file_id: 'f' }), 'unsupported_value', 'messages[0].content[0].type'],
  ['[GEN-2] mcp_tool_use', blocks('assistant', { type: 'mcp_tool_use' }), 'unsupported_value', 'messages[0].content[0].type'],
  ['[GEN-2] an empty compaction', blocks('assistant', { type: 'compaction', content: '' }), 'invalid_value', 'messages[0].content[0].content'],
  ['[GEN-2] code execution result', blocks('assistant', { type: 'code_execution_tool_result' }), 'unsupported_value', 'messages[0].content[0].type'],
  ['[GEN-2] image from the assistant', blocks('assistant', base64Image), 'unsupported_value', 'messages[0].content[0].type'],
  ['[GEN-2] tool_use from the user', blocks('user', { type: 'tool_use', id: 'a', name: 'b', input: {} }), 'unsupported_value', 'messages[0].content[0].type'],
  ['[GEN-2] image in system', { system: [base64Image] }, 'unsupported_value', 'system[0].type'],
  ['[GEN-2] image file', blocks('user', { type: 'image', source: { type: 'file', file_id: 'f' } }), 'unsupported_value', 'messages[0].content[0].source.type'],
  ['[GEN-2] image media type', blocks('user', { type: 'image', source: { type: 'base64', media_type: 'image/tiff', data: PNG } }), 'invalid_value', 'messages[0].content[0].source.media_type'],
  ['[GEN-2] image base64', blocks('user', { type: 'image', source: { type: 'base64', media_type: 'image/png', data: '!!!!' } }), 'invalid_value', 'messages[0].content[0].source.data'],
  ['[GEN-2] image url', blocks('user', { type: 'image', source: { type: 'url', url: 'ftp://x/y' } }), 'invalid_value', 'messages[0].content[0].source.url'],
  ['[GEN-2] document file', blocks('user', { type: 'document', source: { type: 'file', file_id: 'f' } }), 'unsupported_value', 'messages[0].content[0].source.type'],
  ['[GEN-2] document media type', blocks('user', { type: 'document', source: { type: 'base64', media_type: 'text/html', data: PNG } }), 'unsupported_value', 'messages[0].content[0].source.media_type'],
  ['[GEN-2] document citations', blocks('user', { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'x' }, citations: { enabled: true } }), 'unsupported_value', 'messages[0].content[0].citations.enabled'],
  ['[GEN-2] image in a document', blocks('user', { type: 'document', source: { type: 'content', content: [{ type: 'image', source: { type: 'url', url: 'nope' } }] } }), 'invalid_value', 'messages[0].content[0].source.content[0].source.url'],
  ['[GEN-2] block in a result', blocks('user', { type: 'tool_result', tool_use_id: 'c', content: [{ type: 'text', text: 'a', foo: 1 }] }), 'unknown_parameter', 'messages[0].content[0].content[0].foo'],
  ['[GEN-2] result without id', blocks('user', { type: 'tool_result', content: 'x' }), 'missing_required_parameter', 'messages[0].content[0].tool_use_id'],
  ['[GEN-2] input no object', blocks('assistant', { type: 'tool_use', id: 'a', name: 'b', input: 'x' }), 'invalid_type', 'messages[0].content[0].input'],
  ['[GEN-2] caller', blocks('assistant', { type: 'tool_use', id: 'a', name: 'b', input: {}, caller: { type: 'code_execution_20250825', tool_id: 't' } }), 'unsupported_value', 'messages[0].content[0].caller.type'],
  ['[GEN-2] server tool', blocks('assistant', { type: 'server_tool_use', id: 'a', name: 'web_fetch', input: {} }), 'unsupported_value', 'messages[0].content[0].name'],
  ['[GEN-2] search result member', blocks('assistant', { type: 'web_search_tool_result', tool_use_id: 'a', content: [{ type: 'web_search_result', url: 'u', x: 1 }] }), 'unknown_parameter', 'messages[0].content[0].content[0].x'],
  // Cache markers
  ['[GEN-2] marker type', blocks('user', { type: 'text', text: 'a', cache_control: { type: 'persistent' } }), 'invalid_value', 'messages[0].content[0].cache_control.type'],
  ['[GEN-2] marker ttl', { cache_control: { type: 'ephemeral', ttl: '2h' } }, 'invalid_value', 'cache_control.ttl'],
  ['[GEN-2] five markers', { system: [marked('a'), marked('b')], messages: [{ role: 'user', content: [marked('c'), marked('d'), marked('e')] }] }, 'invalid_value', 'messages[0].content[2].cache_control'],
  ['[GEN-2] fifth marker at the top', { cache_control: { type: 'ephemeral' }, system: [marked('a'), marked('b'), marked('c'), marked('d')] }, 'invalid_value', 'cache_control'],
  // Controls
  ['[GEN-2] thinking type', { thinking: { type: 'sometimes' } }, 'invalid_value', 'thinking.type'],
  ['[GEN-2] thinking without type', { thinking: {} }, 'missing_required_parameter', 'thinking.type'],
  ['[GEN-2] no budget', { thinking: { type: 'enabled' } }, 'missing_required_parameter', 'thinking.budget_tokens'],
  ['[GEN-2] small budget', { thinking: { type: 'enabled', budget_tokens: 1023 } }, 'invalid_value', 'thinking.budget_tokens'],
  ['[GEN-2] budget at max_tokens', { max_tokens: 2000, thinking: { type: 'enabled', budget_tokens: 2000 } }, 'invalid_value', 'thinking.budget_tokens'],
  ['[GEN-2] budget on adaptive', { thinking: { type: 'adaptive', budget_tokens: 2000 } }, 'unknown_parameter', 'thinking.budget_tokens'],
  ['[GEN-2] display', { thinking: { type: 'adaptive', display: 'full' } }, 'invalid_value', 'thinking.display'],
  ['[GEN-2] effort none', { output_config: { effort: 'none' } }, 'invalid_value', 'output_config.effort'],
  ['[GEN-2] output format', { output_config: { format: { type: 'json_schema', schema: {} } } }, 'unsupported_parameter', 'output_config.format'],
  ['[GEN-2] old output format', { output_format: { type: 'json_schema' } }, 'unsupported_parameter', 'output_format'],
  ['[GEN-2] task budget', { output_config: { task_budget: { type: 'tokens', total: 1 } } }, 'unsupported_parameter', 'output_config.task_budget'],
  ['[GEN-2] service tier', { service_tier: 'priority' }, 'unsupported_value', 'service_tier'],
  ['[GEN-2] speed', { speed: 'fast' }, 'unsupported_value', 'speed'],
  ['[GEN-2] metadata member', { metadata: { user: 'x' } }, 'unknown_parameter', 'metadata.user'],
  ['[GEN-2] long user_id', { metadata: { user_id: 'x'.repeat(2049) } }, 'invalid_value', 'metadata.user_id'],
  ['[GEN-2] context edit', { context_management: { edits: [{ type: 'other' }] } }, 'unsupported_value', 'context_management.edits[0].type'],
  ...['inference_geo', 'container', 'fallback_credit_token', 'user_profile_id', 'workspace_id'].map((name): RefusedRow => [`[GEN-2] ${name}`, { [name]: 'x' }, 'unsupported_parameter', name]),
  ...['mcp_servers', 'fallbacks', 'betas'].map((name): RefusedRow => [`[GEN-2] ${name}`, { [name]: ['x'] }, 'unsupported_parameter', name]),
  ['[GEN-2] compaction of another type', { compaction: { type: 'x' } }, 'invalid_value', 'compaction.type'],
  ['[GEN-2] compaction of no type', { compaction: { instructions: 'x' } }, 'missing_required_parameter', 'compaction.type'],
  ['[GEN-2] compaction as a list', { compaction: [1] }, 'invalid_value', 'compaction'],
  ['[GEN-2] compaction beside context_management', { compaction: { type: 'summarize' }, context_management: {} }, 'invalid_value', 'compaction'],
  ['[GEN-2] an edit given twice', { context_management: { edits: [{ type: 'compact_20260112' }, { type: 'compact_20260112' }] } }, 'invalid_value', 'context_management.edits[1].type'],
  ['[GEN-2] thinking cleared last', { context_management: { edits: [{ type: 'compact_20260112' }, { type: 'clear_thinking_20251015' }] } }, 'invalid_value', 'context_management.edits[1]'],
  ['[GEN-2] no thinking turn kept', { context_management: { edits: [{ type: 'clear_thinking_20251015', keep: { type: 'thinking_turns', value: 0 } }] } }, 'invalid_value', 'context_management.edits[0].keep.value'],
  ...['thread', 'billing_policy'].map((name): RefusedRow => [`[GEN-2] ${name}`, { [name]: { type: 'x' } }, 'unsupported_parameter', name]),
  // Tools
  ['[GEN-2] computer tool', { tools: [{ type: 'computer_20250124', name: 'computer' }] }, 'unsupported_value', 'tools[0].type'],
  ['[GEN-2] other bash', { tools: [{ type: 'bash_20241022', name: 'bash' }] }, 'unsupported_value', 'tools[0].type'],
  ['[GEN-2] newer search', { tools: [{ type: 'web_search_20260318', name: 'web_search' }] }, 'unsupported_value', 'tools[0].type'],
  ['[GEN-2] undated editor', { tools: [{ type: 'text_editor_x', name: 'e' }] }, 'unsupported_value', 'tools[0].type'],
  ['[GEN-2] function tool', { tools: [{ type: 'function', function: { name: 'f' } }] }, 'unsupported_value', 'tools[0].type'],
  ['[GEN-2] bash renamed', { tools: [{ type: 'bash_20250124', name: 'shell' }] }, 'invalid_value', 'tools[0].name'],
  ['[GEN-2] editor renamed', { tools: [{ type: 'text_editor_20250728', name: 'str_replace_editor' }] }, 'invalid_value', 'tools[0].name'],
  ['[GEN-2] max_characters on an old editor', { tools: [{ type: 'text_editor_20250429', name: 'str_replace_based_edit_tool', max_characters: 5 }] }, 'unknown_parameter', 'tools[0].max_characters'],
  ['[GEN-2] no schema', { tools: [{ name: 'f' }] }, 'missing_required_parameter', 'tools[0].input_schema'],
  ['[GEN-2] schema no object', { tools: [{ name: 'f', input_schema: { type: 'array' } }] }, 'invalid_value', 'tools[0].input_schema.type'],
  ['[GEN-2] tool member', { tools: [{ name: 'f', input_schema: {}, foo: 1 }] }, 'unknown_parameter', 'tools[0].foo'],
  ['[GEN-2] allowed callers', { tools: [{ name: 'f', input_schema: {}, allowed_callers: ['code_execution_20250825'] }] }, 'unsupported_value', 'tools[0].allowed_callers[0]'],
  ['[GEN-2] long name', { tools: [{ name: 'x'.repeat(1025), input_schema: {} }] }, 'invalid_value', 'tools[0].name'],
  ['[GEN-2] same name twice', { tools: [{ name: 'f', input_schema: {} }, { name: 'f', input_schema: {} }] }, 'invalid_value', 'tools[1].name'],
  ['[GEN-2] function named like the search', { tools: [{ type: 'web_search_20250305', name: 'web_search' }, { name: 'web_search', input_schema: {} }] }, 'invalid_value', 'tools[1].name'],
  ['[GEN-2] domains both ways', { tools: [{ type: 'web_search_20250305', name: 'web_search', allowed_domains: ['a'], blocked_domains: ['b'] }] }, 'invalid_value', 'tools[0].blocked_domains'],
  ['[GEN-2] choice type', { tool_choice: { type: 'required' } }, 'invalid_value', 'tool_choice.type'],
  ['[GEN-2] any without tools', { tool_choice: { type: 'any' } }, 'invalid_value', 'tool_choice'],
  ['[GEN-2] undeclared choice', { tools: [{ name: 'f', input_schema: {} }], tool_choice: { type: 'tool', name: 'g' } }, 'invalid_value', 'tool_choice'],
]
refuses(messages, minimal, REFUSED)

test('[MSG-5] validation errors name messages[i].content[j] and the error body carries it', () => {
  const error = refusal(
    messages,
    minimal({
      messages: [
        { role: 'user', content: 'a' },
        { role: 'user', content: [{ type: 'text', text: 1 }] },
      ],
    }),
  )
  const body = JSON.parse(messages.error(error, 'req_1'))
  assert.deepEqual(body, {
    type: 'error',
    error: {
      type: 'invalid_request_error',
      code: 'invalid_type',
      param: 'messages[1].content[0].text',
      message: error.message,
      request_id: 'req_1',
      retryable: false,
      details: { error_code: 'invalid_type' },
    },
    request_id: 'req_1',
  })
  assert.match(error.message, /messages\[1\]\.content\[0\]\.text/)
})

test('a thread is refused in the words the official tool runner understands', () => {
  const error = refusal(messages, minimal({ thread: { type: 'create' } }))
  const { details } = JSON.parse(messages.error(error, 'r')).error
  assert.deepEqual(details, { error_code: 'thread_unsupported_request', unsupported: ['thread'] })
})

test('[TOOL-2] a strict tool needs every property required and nothing else, at each level', () => {
  const error = refusal(messages, withTool({ name: 'f', strict: true, input_schema: strictSchema }))
  assert.equal(error.param, 'tools[0].input_schema.properties.a')
  const whole = structuredClone(strictSchema) as any
  whole.properties.a.additionalProperties = false
  const [tool] = accept(withTool({ name: 'f', strict: true, input_schema: whole })).tools
  assert.ok(tool?.type === 'function' && tool.strict)
  accept(withTool({ name: 'f', strict: false, input_schema: strictSchema }))
})

test('null is absent, empty lists are absent, 100.0 is an integer', () => {
  const plain = accept(minimal())
  const optional = Object.keys((messages.requestSchema['properties'] ?? {}) as Json).filter(
    name => !['model', 'max_tokens', 'messages'].includes(name),
  )
  assert.ok(optional.includes('container') && optional.includes('thread'))
  assert.deepEqual(accept(minimal(Object.fromEntries(optional.map(name => [name, null])))), plain)
  assert.deepEqual(accept(minimal({ tools: [], stop_sequences: [], mcp_servers: [], betas: [], fallbacks: [] })), plain)
  assert.equal(
    accept(JSON.parse('{"model":"m","max_tokens":100.0,"messages":[{"role":"user","content":"x"}]}')).maxOutputTokens,
    100,
  )
})

test('strip removes unknown members at any depth, says which, and still refuses other faults', () => {
  const body = minimal({
    grown: 1,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'a', tone: 'x' }] }],
    tools: [{ name: 'f', input_schema: { type: 'object', 'x-own': 1 }, novel: true }],
  })
  assert.deepEqual(messages.validate(body, 'strip').sort(), ['grown', 'messages[0].content[0].tone', 'tools[0].novel'])
  assert.deepEqual(body['messages'], [{ role: 'user', content: [{ type: 'text', text: 'a' }] }])
  assert.deepEqual((body['tools'] as Json[])[0], { name: 'f', input_schema: { type: 'object', 'x-own': 1 } })
  assert.throws(() => messages.validate(minimal({ thread: { type: 'create' } }), 'strip'), {
    code: 'unsupported_parameter',
  })
})

// ---- the conversation -----------------------------------------------------------------------------------------------

test('[MSG-1] controls become canonical', () => {
  const conversation = accept(
    minimal({
      model: 'eb1-preview-fast',
      max_tokens: 4000,
      stream: true,
      system: [
        { type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral', ttl: '1h' } },
        { type: 'text', text: '' },
      ],
      stop_sequences: ['END'],
      temperature: 0.5,
      top_p: 0.9,
      top_k: 40,
      thinking: { type: 'enabled', budget_tokens: 2048 },
      output_config: { effort: 'high' },
      metadata: { user_id: '{"a":1}' },
      tools: [{ name: 'f', description: 'd', input_schema: { type: 'object', properties: {} } }],
      tool_choice: { type: 'tool', name: 'f', disable_parallel_tool_use: true },
    }),
  )
  assert.deepEqual(conversation, {
    surface: 'messages',
    form,
    requestedModel: 'eb1-preview-fast',
    model: 'eb1-preview-fast',
    stream: true,
    system: [{ type: 'text', text: 'Be brief.', cache: { ttl: '1h' } }],
    turns: [{ role: 'user', parts: [{ type: 'text', text: 'Hello' }] }],
    tools: [
      {
        type: 'function',
        name: 'f',
        description: 'd',
        parameters: { type: 'object', properties: {} },
        path: 'tools[0]',
      },
    ],
    toolChoice: { type: 'tool', name: 'f', kind: 'function' },
    parallelToolCalls: false,
    sampling: { temperature: 0.5, topP: 0.9, topK: 40, stop: ['END'], logprobs: false },
    reasoning: { effort: 'high', thinking: 'enabled', summary: 'auto', budgetTokens: 2048 },
    maxOutputTokens: 4000,
    maxOutputField: 'max_tokens',
  } satisfies Conversation)
})

test('[MSG-1] adaptive thinking; summaries are wanted unless display says otherwise', () => {
  const reasoning = (thinking: Json) => accept(minimal({ thinking })).reasoning
  assert.deepEqual(reasoning({ type: 'adaptive' }), { thinking: 'adaptive', summary: 'auto' })
  assert.deepEqual(reasoning({ type: 'adaptive', display: 'summarized' }), { thinking: 'adaptive', summary: 'auto' })
  assert.deepEqual(reasoning({ type: 'adaptive', display: 'omitted' }), { thinking: 'adaptive' })
  assert.deepEqual(reasoning({ type: 'between_tools' }), { thinking: 'between_tools', summary: 'auto' })
  assert.deepEqual(reasoning({ type: 'disabled' }), { thinking: 'disabled' })
})

test('[TOOL-5] tool choice', () => {
  const tools = [
    { name: 'f', input_schema: {} },
    { type: 'web_search_20260209', name: 'web_search' },
  ]
  const choice = (tool_choice: Json | undefined, declared: Json[] = tools) => {
    const { toolChoice, parallelToolCalls } = accept(minimal({ tools: declared, tool_choice }))
    return [toolChoice, parallelToolCalls]
  }
  assert.deepEqual(choice(undefined), [{ type: 'auto' }, true])
  assert.deepEqual(choice(undefined, []), [{ type: 'none' }, true])
  assert.deepEqual(choice({ type: 'auto', disable_parallel_tool_use: true }), [{ type: 'auto' }, false])
  assert.deepEqual(choice({ type: 'any' }), [{ type: 'required' }, true])
  assert.deepEqual(choice({ type: 'none' }), [{ type: 'none' }, true])
  assert.deepEqual(choice({ type: 'tool', name: 'web_search' }), [
    { type: 'tool', name: 'web_search', kind: 'web_search' },
    true,
  ])
  assert.deepEqual(choice({ type: 'tool', name: 'web_search' }, [{ name: 'web_search', input_schema: {} }]), [
    { type: 'tool', name: 'web_search', kind: 'function' },
    true,
  ])
})

test('[MSG-3] web search declarations', () => {
  for (const type of ['web_search_20250305', 'web_search_20260209']) {
    const conversation = accept(
      withTool({
        type,
        name: 'web_search',
        max_uses: 3,
        allowed_domains: ['example.com'],
        blocked_domains: [],
        user_location: { type: 'approximate', city: 'Oslo' },
      }),
    )
    assert.deepEqual(conversation.tools, [
      {
        type: 'web_search',
        maxUses: 3,
        allowedDomains: ['example.com'],
        userLocation: { type: 'approximate', city: 'Oslo' },
        path: 'tools[0]',
      },
    ])
  }
})

test('[MSG-4] native tools keep version, fixed name and published shape; other editors are plain functions', () => {
  const names: [string, string][] = [
    ['bash_20250124', 'bash'],
    ['text_editor_20250124', 'str_replace_editor'],
    ['text_editor_20250429', 'str_replace_based_edit_tool'],
    ['text_editor_20250728', 'str_replace_based_edit_tool'],
    ['memory_20250818', 'memory'],
  ]
  for (const [type, name] of names) {
    const [tool] = accept(withTool({ type, name, cache_control: { type: 'ephemeral' } })).tools as [NativeTool]
    assert.equal(tool.type, 'native')
    assert.deepEqual([tool.version, tool.name, tool.path, tool.cache], [type, name, 'tools[0]', {}])
    assert.equal(tool.parameters['type'], 'object')
    assert.ok('command' in (tool.parameters['properties'] as Json))
    assert.notEqual(tool.description, '')
  }
  const [editor] = accept(
    withTool({ type: 'text_editor_20250728', name: 'str_replace_based_edit_tool', max_characters: 100 }),
  ).tools as [NativeTool]
  assert.deepEqual(editor.options, { max_characters: 100 })
  assert.ok('insert_text' in (editor.parameters['properties'] as Json))
  for (const [type, name, member] of [
    ['text_editor_20991231', 'edit_files', 'insert_text'],
    ['text_editor_20241022', 'str_replace_editor', 'new_str'],
  ] as const) {
    const [tool] = accept(withTool({ type, name, max_characters: 5 })).tools
    assert.ok(tool?.type === 'function')
    assert.equal(tool.name, name)
    assert.ok(member in (tool.parameters['properties'] as Json))
  }
})

test('results are hoisted in order into a tool turn, the rest follows as a user turn', () => {
  const conversation = accept(
    minimal({
      messages: [
        { role: 'user', content: 'go' },
        {
          role: 'assistant',
          content: [
            { type: 'text', text: 'Looking.' },
            { type: 'tool_use', id: 'call_eba1_a', name: 'f', input: { x: [1, 'é'] }, caller: { type: 'direct' } },
            { type: 'tool_use', id: 'toolu_foreign', name: 'g', input: {} },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Here:' },
            { type: 'tool_result', tool_use_id: 'toolu_foreign', content: 'text', is_error: true },
            {
              type: 'tool_result',
              tool_use_id: 'call_eba1_a',
              cache_control: { type: 'ephemeral' },
              content: [
                { type: 'text', text: 'T' },
                base64Image,
                { type: 'tool_reference', tool_name: 'late' },
                {
                  type: 'search_result',
                  source: 'https://s',
                  title: 'S',
                  content: [
                    { type: 'text', text: 'x' },
                    { type: 'text', text: 'y' },
                  ],
                },
              ],
            },
            { type: 'tool_result', tool_use_id: 'none' },
          ],
        },
      ],
    }),
  )
  assert.deepEqual(conversation.turns, [
    { role: 'user', parts: [{ type: 'text', text: 'go' }] },
    {
      role: 'assistant',
      parts: [
        { type: 'text', text: 'Looking.' },
        {
          type: 'call',
          id: 'call_eba1_a',
          kind: 'function',
          name: 'f',
          input: '{"x":[1,"é"]}',
          path: 'messages[1].content[1]',
        },
        { type: 'call', id: 'toolu_foreign', kind: 'function', name: 'g', input: '{}', path: 'messages[1].content[2]' },
      ],
    },
    {
      role: 'tool',
      parts: [
        {
          type: 'result',
          callId: 'toolu_foreign',
          kind: 'function',
          content: [{ type: 'text', text: 'text' }],
          path: 'messages[2].content[1]',
          isError: true,
        },
        {
          type: 'result',
          callId: 'call_eba1_a',
          kind: 'function',
          content: [
            { type: 'text', text: 'T' },
            {
              type: 'image',
              source: { kind: 'data', mediaType: 'image/png', data: PNG },
              path: 'messages[2].content[2].content[1]',
            },
            { type: 'text', text: '[tool: late]' },
            { type: 'text', text: '[search result: S; https://s]\nx\ny', cache: {} },
          ],
          path: 'messages[2].content[2]',
        },
        { type: 'result', callId: 'none', kind: 'function', content: [], path: 'messages[2].content[3]' },
      ],
    },
    { role: 'user', parts: [{ type: 'text', text: 'Here:' }] },
  ])
})

// Search results were documents: each counted at least 1,500 tokens, and eleven of ten words were refused as more
// documents than a request may hold.
test('a search result is text, with its title and source in one line before it', () => {
  const found = (title: string, text: string) => ({
    type: 'search_result',
    source: 'https://s',
    title,
    content: text === '' ? [] : [{ type: 'text', text }],
  })
  const many = Array.from({ length: 11 }, (_, i) => found(`${i}\nth`, i === 10 ? '' : 'ten words'))
  assert.deepEqual(
    accept(withBlocks('user', ...many)).turns[0]!.parts,
    many.map((_, i) => ({ type: 'text', text: `[search result: ${i} th; https://s]${i === 10 ? '' : '\nten words'}` })),
  )
})

test('system messages: leading ones are system, later ones keep their place; same roles merge', () => {
  const conversation = accept(
    minimal({
      system: 'A',
      messages: [
        { role: 'system', content: 'B' },
        { role: 'user', content: 'one' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'two' },
            { type: 'text', text: '' },
          ],
        },
        { role: 'system', content: [{ type: 'text', text: 'C' }] },
        { role: 'assistant', content: 'prefill' },
      ],
    }),
  )
  const text = (t: string) => ({ type: 'text', text: t })
  assert.deepEqual(conversation.system, [text('A'), text('B')])
  assert.deepEqual(conversation.turns, [
    { role: 'user', parts: [text('one'), text('two')] },
    { role: 'system', parts: [text('C')] },
    { role: 'assistant', parts: [text('prefill')] },
  ])
})

test('media and documents', () => {
  const { turns } = accept(
    withBlocks(
      'user',
      {
        type: 'image',
        source: { type: 'url', url: 'https://e.org/a.png' },
        cache_control: { type: 'ephemeral', ttl: '5m' },
      },
      {
        type: 'document',
        source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' },
        title: 'T',
        context: 'C',
      },
      { type: 'document', source: { type: 'url', url: 'https://e.org/a.pdf' }, citations: { enabled: false } },
      { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'plain' }, title: null },
      { type: 'document', source: { type: 'content', content: 'whole' } },
      {
        type: 'document',
        source: { type: 'content', content: [{ type: 'text', text: 'a' }, base64Image, { type: 'text', text: 'b' }] },
      },
    ),
  )
  const at = (j: number, rest = '') => `messages[0].content[${j}]${rest}`
  assert.deepEqual(turns[0]?.parts, [
    { type: 'image', source: { kind: 'url', url: 'https://e.org/a.png' }, path: at(0), cache: { ttl: '5m' } },
    {
      type: 'document',
      source: { kind: 'data', mediaType: 'application/pdf', data: 'JVBERi0=' },
      path: at(1),
      title: 'T',
      context: 'C',
    },
    { type: 'document', source: { kind: 'url', url: 'https://e.org/a.pdf' }, path: at(2) },
    { type: 'document', source: { kind: 'text', text: 'plain' }, path: at(3) },
    { type: 'document', source: { kind: 'text', text: 'whole' }, path: at(4) },
    { type: 'document', source: { kind: 'text', text: 'a\nb' }, path: at(5) },
    { type: 'image', source: { kind: 'data', mediaType: 'image/png', data: PNG }, path: at(5, '.source.content[1]') },
  ])
})

test('[MSG-6] replayed thinking is dropped, whatever its signature, unless it is a handle of the gateway', () => {
  const { turns } = accept(
    withBlocks(
      'assistant',
      { type: 'thinking', thinking: 'a', signature: '' },
      { type: 'thinking', thinking: 'b' },
      { type: 'thinking', thinking: 'c', signature: 'EqQBCkYIBxgCKkD' },
      { type: 'redacted_thinking', data: 'EroBCkYI' },
      { type: 'thinking', thinking: 'd', signature: 'item_eba1_abc' },
      { type: 'redacted_thinking', data: 'item_eba1_def' },
      { type: 'text', text: 'T' },
    ),
  )
  assert.deepEqual(turns[0]?.parts, [
    { type: 'reasoning', summary: ['d'], handle: 'item_eba1_abc' },
    { type: 'reasoning', summary: [], handle: 'item_eba1_def' },
    { type: 'text', text: 'T' },
  ])
})

test('[MSG-3] a search and its result are one part; foreign result tokens are dropped', () => {
  const { turns } = accept(
    withBlocks(
      'assistant',
      {
        type: 'server_tool_use',
        id: 'hist_eba1_1',
        name: 'web_search',
        input: { query: 'q' },
        caller: { type: 'direct' },
      },
      {
        type: 'web_search_tool_result',
        tool_use_id: 'hist_eba1_1',
        caller: { type: 'direct' },
        content: [
          {
            type: 'web_search_result',
            url: 'https://a',
            title: 'A',
            encrypted_content: 'hist_eba1_h',
            page_age: 'May 1',
          },
          { type: 'web_search_result', url: 'https://b', title: null, encrypted_content: 'EqgfCioI', page_age: null },
        ],
      },
      {
        type: 'text',
        text: 'So',
        citations: [
          { type: 'web_search_result_location', url: 'https://a', title: 'A', cited_text: 'x', encrypted_index: '' },
        ],
      },
      { type: 'server_tool_use', id: 'hist_eba1_2', name: 'web_search', input: {} },
      {
        type: 'web_search_tool_result',
        tool_use_id: 'hist_eba1_2',
        content: { type: 'web_search_tool_result_error', error_code: 'max_uses_exceeded' },
      },
      { type: 'web_search_tool_result', tool_use_id: 'hist_eba1_3', content: [] },
    ),
  )
  assert.deepEqual(turns[0]?.parts, [
    {
      type: 'search',
      id: 'hist_eba1_1',
      query: 'q',
      results: [
        { title: 'A', url: 'https://a', pageAge: 'May 1', handle: 'hist_eba1_h' },
        { title: '', url: 'https://b' },
      ],
    },
    { type: 'text', text: 'So' },
    { type: 'search', id: 'hist_eba1_2', query: '', results: [], errorCode: 'max_uses_exceeded' },
    { type: 'search', id: 'hist_eba1_3', query: '', results: [] },
  ])
})

test('a top-level marker stands for one on the last block', () => {
  const cache_control = { type: 'ephemeral', ttl: '1h' }
  assert.deepEqual(accept(minimal({ cache_control })).turns[0]?.parts, [
    { type: 'text', text: 'Hello', cache: { ttl: '1h' } },
  ])
  const { turns } = accept({
    ...withBlocks('user', { type: 'tool_result', tool_use_id: 'c', content: 'r' }),
    cache_control,
  })
  assert.deepEqual((turns[0]!.parts[0] as any).content, [{ type: 'text', text: 'r', cache: { ttl: '1h' } }])
})

test('input nested past what can be written is a content limit, not a crash', () => {
  const input = JSON.parse('{"a":'.repeat(20_000) + '1' + '}'.repeat(20_000))
  const error = refusal(messages, withBlocks('assistant', { type: 'tool_use', id: 'a', name: 'b', input }))
  assert.deepEqual([error.code, error.param], ['content_limit_exceeded', 'messages[0].content[0].input'])
})

// ---- count_tokens ---------------------------------------------------------------------------------------------------

test('[CNT-1] an accepted body reads the same for counting; max_tokens and stream may be missing', () => {
  for (const body of fixtures().map(([, body]) => body)) {
    assert.deepEqual(messages.parseLoosely!(body), accept(body))
  }
  const { messages: turns, model } = minimal()
  const loose = messages.parseLoosely!({ model, messages: turns })
  assert.deepEqual(loose.turns, accept(minimal()).turns)
  assert.equal(loose.maxOutputTokens, undefined)
})

test('[CNT-1] the schema of a tool is the same on both readings, with what was added to it', () => {
  for (const input_schema of [{}, { type: 'object' }, { type: null }, { type: ['object', 'null'], required: [] }]) {
    const body = { ...minimal(), tools: [{ name: 'now', input_schema }] }
    assert.deepEqual(messages.parseLoosely!(body).tools, accept(body).tools, JSON.stringify(input_schema))
  }
})

test('[CNT-1] a body that Messages would refuse is still read', () => {
  for (const [what, change] of REFUSED) {
    const body = bodyOf(minimal(), change)
    assert.equal(messages.parseLoosely!(body).surface, 'messages', what)
  }
  const said = (body: unknown) => messages.parseLoosely!(body).turns
  const hello = said({ messages: [{ role: 'user', content: 'Hello' }] })
  assert.deepEqual(said({ messages: 'Hello' }), hello, 'a text for the list')
  assert.deepEqual(said({ messages: { role: 'user', content: 'Hello' } }), hello, 'a message for the list')
  for (const value of ['Hello', { role: 'user', content: 'Hello' }, [{ role: 'user', content: 'Hello' }]])
    assert.deepEqual(said(messages.looseBody!(value)), hello, 'JSON that is no body is taken for the messages')
  for (const value of [null, 7, true, []]) assert.deepEqual(said(messages.looseBody!(value)), said({}))
  const odd = messages.parseLoosely!({
    messages: [
      'bare',
      {
        role: 'user',
        content: [
          { type: 'novel', text: 'n' },
          { type: 'other', v: 1 },
        ],
      },
    ],
  })
  assert.deepEqual(odd.turns[0]?.parts, [
    { type: 'text', text: 'bare' },
    { type: 'text', text: 'n' },
    { type: 'text', text: '{"type":"other","v":1}' },
  ])
})

test('[CNT-1] any JSON with a messages array is read without a throw', () => {
  const names = [
    'type',
    'role',
    'content',
    'text',
    'source',
    'input',
    'tool_use_id',
    'cache_control',
    'name',
    'url',
    '__proto__',
  ]
  const tags = [
    'text',
    'image',
    'tool_use',
    'tool_result',
    'server_tool_use',
    'web_search_tool_result',
    'thinking',
    'document',
  ]
  const { value } = fc.letrec<{ value: unknown }>(tie => ({
    value: fc.oneof(
      { depthSize: 'small', maxDepth: 5 },
      fc.constantFrom<unknown>(null, true, 1.5, 'user', 'assistant', 'constructor', 'bash_20250124', ...tags),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(fc.constantFrom(...names), tie('value'), { maxKeys: 5 }),
    ),
  }))
  fc.assert(
    fc.property(fc.array(value, { maxLength: 4 }), value, value, value, (list, tools, system, thinking) => {
      const body = { messages: list, tools: [tools], system, thinking, tool_choice: thinking, cache_control: system }
      const conversation = messages.parseLoosely!(body)
      assert.ok(Array.isArray(conversation.turns))
      // The other door: whatever the schema lets through, parse turns into a conversation or a refusal.
      try {
        messages.validate(body, 'reject')
        messages.parse(body)
      } catch (error) {
        assert.ok(error instanceof GatewayError, String(error))
      }
    }),
    { numRuns: 500, seed: 7 },
  )
})

// ---- what clients send ----------------------------------------------------------------------------------------------

function fixtures(): [name: string, body: Json][] {
  const folder = new URL('./fixtures/', import.meta.url)
  return readdirSync(folder)
    .filter(name => name.startsWith('messages-') && name.endsWith('.json'))
    .sort()
    .map(name => [name, JSON.parse(readFileSync(new URL(name, folder), 'utf8'))])
}

test('the request shapes of coding agents and SDKs are accepted', async t => {
  const all = fixtures()
  assert.ok(all.length >= 6)
  for (const [name, body] of all) await t.test(name, () => void accept(body))
})

test('Claude Code: its accounts are marked as metered only, system turns keep their place, hints do no harm', () => {
  const [, body] = fixtures().find(([name]) => name === 'messages-claude-code-turn.json')!
  const conversation = accept(body)
  assert.equal(conversation.system[0]?.meteredOnly, true)
  assert.equal(conversation.system[1]?.meteredOnly, undefined)
  assert.deepEqual(
    conversation.turns.map(turn => turn.role),
    ['user', 'assistant', 'tool', 'user', 'system'],
  )
  assert.equal(conversation.reasoning.thinking, 'adaptive')
  assert.ok(conversation.tools.every(tool => tool.type === 'function'))
})

test('Claude Code: the session title request is refused at output_config.format', () => {
  const body = minimal({ output_config: { format: { type: 'json_schema', schema: { type: 'object' } } } })
  assert.deepEqual(
    [refusal(messages, body).code, refusal(messages, body).param],
    ['unsupported_parameter', 'output_config.format'],
  )
})

describe('what is done to the conversation itself', () => {
  const managed = (...edits: object[]) => {
    const { compaction, edits: clear } = accepted(messages, { ...minimal(), context_management: { edits } })
    return { compaction, clear }
  }
  const above = (value: number, type = 'input_tokens') => ({ type, value })

  test('edits have the published defaults, and one that clears nothing is none', () => {
    assert.deepEqual(managed(), { compaction: undefined, clear: undefined })
    const uses = { type: 'clear_tool_uses', trigger: { unit: 'tokens', above: 100_000 }, keep: 3, atLeast: 0 }
    assert.deepEqual(managed({ type: 'clear_tool_uses_20250919' }).clear, [{ ...uses, inputs: [], exclude: [] }])
    const all = {
      ...{ trigger: above(7, 'tool_uses'), keep: above(0, 'tool_uses'), clear_at_least: above(5) },
      ...{ clear_tool_inputs: true, exclude_tools: ['Read'] },
    }
    assert.deepEqual(managed({ type: 'clear_tool_uses_20250919', ...all }).clear, [
      { ...uses, trigger: { unit: 'uses', above: 7 }, keep: 0, atLeast: 5, inputs: true, exclude: ['Read'] },
    ])
    const inputs = (clear_tool_inputs: unknown) =>
      (managed({ type: 'clear_tool_uses_20250919', clear_tool_inputs }).clear![0] as { inputs: unknown }).inputs
    assert.deepEqual([inputs(['a']), inputs(false), inputs(null)], [['a'], [], []])
    const thinking = (keep?: unknown) =>
      managed({ type: 'clear_thinking_20251015', ...(keep !== undefined && { keep }) }).clear
    assert.deepEqual(thinking(), [{ type: 'clear_thinking', keep: 1 }])
    assert.deepEqual(thinking({ type: 'thinking_turns', value: 4 }), [{ type: 'clear_thinking', keep: 4 }])
    assert.deepEqual([thinking('all'), thinking({ type: 'all' })], [undefined, undefined])
  })

  test('a compaction has the published threshold, and ends the reply where the client wants that', () => {
    const wish = { keeps: 'nothing', path: 'context_management.edits[0]' }
    const usual = { threshold: 150_000, withinWindow: true }
    assert.deepEqual(managed({ type: 'compact_20260112' }).compaction, { ...wish, ...usual, only: false })
    const own = { trigger: above(9), pause_after_compaction: true, instructions: 'In verse.' }
    assert.deepEqual(managed({ type: 'compact_20260112', ...own }).compaction, {
      ...wish,
      ...{ threshold: 9, only: true, instructions: 'In verse.' },
    })
    const { compaction } = accepted(messages, { ...minimal(), compaction: { type: 'summarize', instructions: '  ' } })
    assert.deepEqual(compaction, { only: true, keeps: 'nothing', path: 'compaction' })
  })

  test('a block stands in a turn of the user, sealed, in clear, or for nothing; what follows in its message stays behind', () => {
    const read = (block: object) => {
      const content = [
        { type: 'text', text: 'a' },
        { type: 'compaction', ...block },
        { type: 'text', text: 'b' },
      ]
      const { turns, sealed } = accepted(messages, {
        ...minimal(),
        messages: [
          { role: 'user', content: 'x' },
          { role: 'assistant', content },
        ],
      })
      return [sealed, turns.slice(1).map(({ role, parts }) => [role, parts])]
    }
    const path = 'messages[1].content[1].encrypted_content'
    const around = (part: object) => [
      true,
      [
        ['assistant', [{ type: 'text', text: 'a' }]],
        ['user', [{ type: 'text', ...part }]],
        ['assistant', [{ type: 'text', text: 'b' }]],
      ],
    ]
    assert.deepEqual(read({ encrypted_content: 'e' }), around({ text: '', capsule: { sealed: 'e', path } }))
    assert.deepEqual(
      read({ content: 'c', encrypted_content: 'e', signature: 's' }),
      around({ text: '', capsule: { sealed: 'e', path, claimed: 'c' } }),
    )
    assert.deepEqual(read({ content: 'c' }), around({ text: 'c', capsule: { sealed: '', keeps: 'nothing', path } }))
    const both = [
      { type: 'text', text: 'a' },
      { type: 'text', text: 'b' },
    ]
    assert.deepEqual(read({ content: null }), [undefined, [['assistant', both]]])
  })

  test('[CNT-1] a body that was not checked is read as far as it goes', () => {
    for (const context_management of [
      null,
      5,
      [],
      { edits: 5 },
      { edits: [null, 'x', { type: 'other' }, { type: 5 }] },
    ])
      assert.deepEqual(
        Object.keys(messages.parseLoosely!({ messages: [], context_management })).filter(key => key === 'edits'),
        [],
      )
    const odd = {
      type: 'clear_tool_uses_20250919',
      trigger: 5,
      keep: { value: 'x' },
      exclude_tools: [5, 'a'],
      clear_tool_inputs: 'x',
    }
    assert.deepEqual(messages.parseLoosely!({ messages: [], context_management: { edits: [odd, odd] } }).edits?.[0], {
      ...{ type: 'clear_tool_uses', trigger: { unit: 'tokens', above: 100_000 } },
      ...{ keep: 3, atLeast: 0, inputs: [], exclude: ['a'] },
    })
  })
})
