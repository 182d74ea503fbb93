/** Cursor's requests: both shapes make the same conversation, and neither loses a member of the other. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import type { Conversation } from '../../core/canon/conversation.ts'
import { chat } from '../../surfaces/chat/index.ts'
import { cursor } from '../../surfaces/cursor/index.ts'
import { refusal, refuses } from './request-kit.ts'

const read = (body: Record<string, unknown>): Conversation => {
  cursor.validate(body, 'reject')
  return cursor.parse(body)
}
const PARAMETERS = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] }
const GRAMMAR = { syntax: 'lark', definition: 'start: "x"' }
const said = ({ tools, turns, system, toolChoice }: Conversation) =>
  JSON.parse(JSON.stringify({ tools, turns, system, toolChoice }, (key, value) => (key === 'path' ? undefined : value)))

const agent = {
  model: 'eb1-preview',
  stream: true,
  stream_options: { include_usage: true },
  store: false,
  user: 'u',
  metadata: { cursorConversationId: 'c' },
  include: ['reasoning.encrypted_content'],
  reasoning: { effort: 'medium', summary: 'auto' },
  prompt_cache_retention: '24h',
  input: [
    { role: 'system', content: 'You are an agent.' },
    { role: 'user', content: [{ type: 'input_text', text: 'fix it' }] },
    { type: 'reasoning', summary: [], encrypted_content: 'x' },
    { role: 'assistant', content: [{ type: 'output_text', text: 'Reading.' }] },
    { type: 'function_call', call_id: 'c1', name: 'read', arguments: '{"path":"a"}' },
    { type: 'custom_tool_call', call_id: 'c2', name: 'ApplyPatch', input: '*** Begin' },
    { type: 'function_call_output', call_id: 'c1', output: 'text of a' },
    { type: 'custom_tool_call_output', call_id: 'c2', output: 'done' },
  ],
  tools: [
    { type: 'function', name: 'read', description: 'Reads', parameters: PARAMETERS, strict: false },
    { type: 'custom', name: 'ApplyPatch', description: 'Patches', format: { type: 'grammar', ...GRAMMAR } },
  ],
  tool_choice: { type: 'custom', name: 'ApplyPatch' },
}
const ask = {
  model: 'eb1-preview',
  stream: true,
  messages: [
    { role: 'system', content: 'You are an agent.' },
    { role: 'user', content: 'fix it' },
    {
      role: 'assistant',
      content: 'Reading.',
      tool_calls: [
        { id: 'c1', type: 'function', function: { name: 'read', arguments: '{"path":"a"}' } },
        { id: 'c2', type: 'custom', custom: { name: 'ApplyPatch', input: '*** Begin' } },
      ],
    },
    { role: 'tool', tool_call_id: 'c1', content: 'text of a' },
    { role: 'tool', tool_call_id: 'c2', content: 'done' },
  ],
  // Cursor mixes levels: a function as Chat Completions has it beside a custom tool as Responses has it.
  tools: [
    { type: 'function', function: { name: 'read', description: 'Reads', parameters: PARAMETERS, strict: false } },
    { type: 'custom', name: 'ApplyPatch', description: 'Patches', format: { type: 'grammar', ...GRAMMAR } },
  ],
  tool_choice: { type: 'custom', custom: { name: 'ApplyPatch' } },
}

test('both shapes make the same turns and tools', () => {
  const [one, other] = [said(read(agent)), said(read(ask))]
  // The reasoning item has no like in Chat Completions.
  for (const turn of one.turns) turn.parts = turn.parts.filter(({ type }: any) => type !== 'reasoning')
  assert.deepEqual(one, other)
  assert.deepEqual(
    other.turns.flatMap(({ parts }: any) => parts).map(({ type, kind }: any) => [type, kind]),
    [
      ['text', undefined],
      ['text', undefined],
      ['call', 'function'],
      ['call', 'custom'],
      ['result', 'function'],
      ['result', 'custom'],
    ],
  )
})

test('each level of a tool may be flat or nested', () => {
  const flat = { name: 'ApplyPatch', format: { type: 'grammar', ...GRAMMAR } }
  const nested = { name: 'ApplyPatch', format: { type: 'grammar', grammar: GRAMMAR } }
  const tools = [
    { type: 'custom', ...flat },
    { type: 'custom', ...nested },
    { type: 'custom', custom: flat },
    { type: 'custom', custom: nested },
  ]
  const [first, ...others] = tools.map(tool => said(read({ ...ask, tools: [ask.tools[0], tool] })))
  for (const other of others) assert.deepEqual(other, first)
  const named = { name: 'read', parameters: PARAMETERS }
  const [plain, wrapped] = [
    { type: 'function', ...named },
    { type: 'function', function: named },
  ].map(tool => said(read({ ...ask, tools: [tool, ask.tools[1]], tool_choice: { type: tool.type, name: 'read' } })))
  assert.deepEqual(plain, wrapped)
  const allowed = { mode: 'required', tools: [{ type: 'function', name: 'read' }] }
  assert.deepEqual(
    read({ ...ask, tool_choice: { type: 'allowed_tools', ...allowed } }).toolChoice,
    read({ ...ask, tool_choice: { type: 'allowed_tools', allowed_tools: allowed } }).toolChoice,
  )
})

test('nothing of it is retained', () => {
  for (const store of [undefined, true, false]) {
    const { store: stored, form } = read({ ...agent, store })
    assert.deepEqual([stored, form?.retains], [undefined, undefined])
  }
})

describe('what is refused', () => {
  refuses(cursor, () => structuredClone(agent), [
    ['neither shape', { input: undefined }, 'missing_required_parameter', 'messages', /'input'/],
    ['a member of the other shape', { max_tokens: 5 }, 'unknown_parameter', 'max_tokens'],
    ['', { previous_response_id: 'resp_1' }, 'unsupported_parameter', 'previous_response_id'],
    ['', { tools: [{ type: 'web_search' }], tool_choice: 'auto' }, 'unsupported_value', 'tools[0].type'],
    ['', { text: { format: { type: 'json_object' } } }, 'unsupported_parameter', 'text.format'],
  ])
  refuses(cursor, () => structuredClone(ask), [
    ['a member of the other shape', { instructions: 'x' }, 'unknown_parameter', 'instructions'],
    ['both shapes', { input: 'x' }, 'unknown_parameter', 'input'],
    ['no name', { tools: [{ type: 'custom' }] }, 'missing_required_parameter', 'tools[0].name', /tools\[0\]\.custom/],
    [
      'flat and nested',
      { tools: [{ type: 'function', name: 'a', function: { name: 'a' } }] },
      'invalid_value',
      'tools[0].name',
    ],
    [
      'half a grammar',
      { tools: [{ type: 'custom', name: 'a', format: { type: 'grammar', syntax: 'lark' } }] },
      'missing_required_parameter',
      'tools[0].format.definition',
    ],
    ['twice', { tools: [ask.tools[1], ask.tools[1]] }, 'invalid_value', 'tools[1].name'],
    ['', { response_format: { type: 'json_object' } }, 'unsupported_parameter', 'response_format'],
  ])
})

// The parser reads custom calls for both surfaces; the schema keeps Chat Completions strict.
test('Chat Completions itself takes none of it', () => {
  const plain = { ...ask, tools: [ask.tools[0]], tool_choice: 'auto' }
  const code = (body: object) => [refusal(chat, body).code, refusal(chat, body).param]
  assert.deepEqual(code(plain), ['unsupported_value', 'messages[2].tool_calls[1].type'])
  const messages = ask.messages.slice(0, 2)
  assert.deepEqual(code({ ...plain, messages, tools: ask.tools }), ['unsupported_value', 'tools[1].type'])
  assert.deepEqual(code({ ...plain, messages, tools: [{ type: 'function', name: 'a' }] }), [
    'missing_required_parameter',
    'tools[0].function',
  ])
  assert.deepEqual(code(agent), ['missing_required_parameter', 'messages'])
})
