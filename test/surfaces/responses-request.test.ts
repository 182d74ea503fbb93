import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { compact } from '../../surfaces/compact/index.ts'
import { form } from '../../surfaces/responses/form.ts'
import { responses } from '../../surfaces/responses/index.ts'
import { accepted, refuses } from './request-kit.ts'

const base = () => ({ model: 'eb1-preview', input: 'hi' }) as Record<string, any>
const fn = (name = 'f', extra = {}) => ({ type: 'function', name, ...extra })
const PNG = 'data:image/png;base64,iVBORw0KGgo='
const user = { role: 'user', content: 'hi' }
const closed = { type: 'object', properties: { a: { type: 'string' } }, required: ['a'], additionalProperties: false }
/** A tool in a namespace, and a choice of this one. */
const choosing = (tool: object) => ({
  tools: [{ type: 'namespace', name: 'n', description: 'N', tools: [fn('f')] }],
  tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [tool] },
})

describe('responses request: what is refused', () => {
  refuses(responses, base, [
    ['[RESP-4]', { conversation: 'conv_1' }, 'unsupported_parameter', 'conversation'],
    ['[RESP-4]', { input: [{ type: 'item_reference', id: 'item_eba1_x' }] }, 'unsupported_value', 'input[0].type'],
    ['[RESP-4]', { input: [user, { id: 'item_eba1_x' }] }, 'unsupported_value', 'input[1].type'],
    ['[RESP-4]', { input: [{ type: null, id: 'item_eba1_x' }] }, 'unsupported_value', 'input[0].type'],
    ['[RESP-1]', { input: undefined }, 'missing_required_parameter', 'input'],
    ['[RESP-1]', { input: [] }, 'missing_required_parameter', 'input'],
    ['[RESP-1]', { model: undefined }, 'missing_required_parameter', 'model'],
    ['[RESP-1]', { input: 5 }, 'invalid_type', 'input'],
    [
      '[RESP-1]',
      { input: [{ type: 'function_call', call_id: 'c', name: 'f' }] },
      'missing_required_parameter',
      'input[0].arguments',
    ],
    [
      '[RESP-1]',
      { input: [{ type: 'function_call', call_id: '', name: 'f', arguments: '' }] },
      'invalid_value',
      'input[0].call_id',
    ],
    [
      '[RESP-1]',
      { input: [{ type: 'function_call_output', call_id: 'c', output: [{ type: 'output_text', text: 'x' }] }] },
      'unsupported_value',
      'input[0].output[0].type',
    ],
    ['[RESP-1]', { input: [{ type: 'reasoning', id: 'r' }] }, 'missing_required_parameter', 'input[0].summary'],
    ['[RESP-1]', { input: [{ content: 'hi' }] }, 'missing_required_parameter', 'input[0].role'],
    ['[RESP-1]', { input: [{ role: 'robot', content: 'hi' }] }, 'invalid_value', 'input[0].role'],
    ['[GEN-2]', { input: [{ ...user, foo: 1 }] }, 'unknown_parameter', 'input[0].foo'],
    [
      '[GEN-2]',
      { input: [{ role: 'user', content: [{ type: 'input_text', text: 'x', foo: 1 }] }] },
      'unknown_parameter',
      'input[0].content[0].foo',
    ],
    [
      '[GEN-2]',
      { input: [{ role: 'user', content: [{ type: 'output_text', text: 'x' }] }] },
      'unsupported_value',
      'input[0].content[0].type',
    ],
    [
      '[GEN-2]',
      { input: [{ role: 'assistant', content: [{ type: 'input_image', image_url: PNG }] }] },
      'unsupported_value',
      'input[0].content[0].type',
    ],
    [
      '[GEN-2]',
      { input: [{ role: 'system', content: [{ type: 'input_image', image_url: PNG }] }] },
      'unsupported_value',
      'input[0].content[0].type',
    ],
    [
      '[GEN-2]',
      { input: [{ role: 'user', content: [{ type: 'input_audio', data: 'x' }] }] },
      'unsupported_value',
      'input[0].content[0].type',
    ],
    [
      '[GEN-2]',
      { input: [{ role: 'user', content: [{ type: 'input_image' }] }] },
      'missing_required_parameter',
      'input[0].content[0].image_url',
    ],
    [
      '[GEN-2]',
      { input: [{ role: 'user', content: [{ type: 'input_image', file_id: 'file_1' }] }] },
      'unsupported_parameter',
      'input[0].content[0].file_id',
    ],
    [
      '[GEN-2]',
      { input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'http://x/' }] }] },
      'invalid_value',
      'input[0].content[0].image_url',
    ],
    [
      '[GEN-2]',
      { input: [{ role: 'user', content: [{ type: 'input_file', filename: 'x' }] }] },
      'missing_required_parameter',
      'input[0].content[0].file_data',
    ],
    [
      '[GEN-2]',
      { input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'file:///etc/passwd' }] }] },
      'invalid_value',
      'input[0].content[0].file_url',
    ],
    ['[GEN-2]', { input: [{ type: 'computer_call', id: 'x' }] }, 'unsupported_value', 'input[0].type'],
    ['[GEN-2]', { input: [{ type: 'mcp_call', id: 'x' }] }, 'unsupported_value', 'input[0].type'],
    [
      '[GEN-2]',
      { input: [{ type: 'tool_search_call', execution: 'server', call_id: 'c', arguments: {} }] },
      'unsupported_value',
      'input[0].execution',
    ],
    [
      '[GEN-2]',
      { input: [{ type: 'additional_tools', role: 'user', tools: [] }] },
      'unsupported_value',
      'input[0].role',
    ],
    [
      '[GEN-2]',
      { input: [{ type: 'additional_tools', role: 'developer', tools: [{ type: 'mcp' }] }] },
      'unsupported_value',
      'input[0].tools[0].type',
    ],
    ['[GEN-2]', { prompt: { id: 'p' } }, 'unsupported_parameter', 'prompt'],
    ['[GEN-2]', { moderation: {} }, 'unsupported_parameter', 'moderation'],
    ['[GEN-2]', { access_programs: {} }, 'unsupported_parameter', 'access_programs'],
    ['[GEN-2]', { image: {} }, 'unsupported_parameter', 'image'],
    ['[GEN-2]', { background: true }, 'unsupported_value', 'background'],
    ['[GEN-2]', { truncation: 'auto' }, 'unsupported_value', 'truncation'],
    ['[GEN-2]', { presence_penalty: 0.5 }, 'unsupported_value', 'presence_penalty'],
    ['[GEN-2]', { service_tier: 'flex' }, 'unsupported_value', 'service_tier'],
    [
      '[GEN-2]',
      { text: { format: { type: 'json_schema', name: 'x', schema: {} } } },
      'unsupported_parameter',
      'text.format',
    ],
    ['[GEN-2]', { text: { format: { type: 'json_object' } } }, 'unsupported_parameter', 'text.format'],
    ['[GEN-2]', { text: { verbosity: 'max' } }, 'invalid_value', 'text.verbosity'],
    ['[GEN-2]', { reasoning: { mode: 'pro' } }, 'unsupported_value', 'reasoning.mode'],
    ['[GEN-2]', { reasoning: { effort: 'huge' } }, 'invalid_value', 'reasoning.effort'],
    ['[GEN-2]', { reasoning: { budget: 1 } }, 'unknown_parameter', 'reasoning.budget'],
    ['[GEN-2]', { include: ['reasoning.encrypted_content', 'foo'] }, 'invalid_value', 'include[1]'],
    ['[GEN-2]', { messages: [] }, 'unknown_parameter', 'messages'],
    ['[GEN-2]', { max_tokens: 5 }, 'unknown_parameter', 'max_tokens'],
    ['[GEN-2]', { response_format: { type: 'text' } }, 'unknown_parameter', 'response_format'],
    ['[GEN-2]', { generate: false }, 'unknown_parameter', 'generate'],
    ['[GEN-2]', { max_output_tokens: 0 }, 'invalid_value', 'max_output_tokens'],
    ['[GEN-2]', { max_tool_calls: 0 }, 'invalid_value', 'max_tool_calls'],
    ['[GEN-2]', { client_metadata: { a: 1 } }, 'invalid_type', 'client_metadata.a'],
    ['[GEN-2]', { context_management: [{ type: 'summarize' }] }, 'unsupported_value', 'context_management[0].type'],
    ['[GEN-2]', { tools: [{ type: 'file_search' }] }, 'unsupported_value', 'tools[0].type'],
    ['[GEN-2]', { tools: [{ type: 'local_shell' }] }, 'unsupported_value', 'tools[0].type'],
    ['[GEN-2]', { tools: [{ type: 'tool_search', execution: 'server' }] }, 'unsupported_value', 'tools[0].execution'],
    [
      '[GEN-2]',
      { tools: [fn('f', { allowed_callers: ['programmatic'] })] },
      'unsupported_value',
      'tools[0].allowed_callers[0]',
    ],
    [
      '[GEN-2]',
      { tools: [{ type: 'custom', name: 'x', format: { type: 'grammar', syntax: 'peg', definition: '' } }] },
      'invalid_value',
      'tools[0].format.syntax',
    ],
    [
      '[GEN-2]',
      { tools: [{ type: 'namespace', name: 'n', description: '', tools: [{ type: 'web_search' }] }] },
      'unsupported_value',
      'tools[0].tools[0].type',
    ],
    [
      '[GEN-2]',
      { tools: [{ type: 'namespace', name: 'n', tools: [fn('a'), fn('a')] }] },
      'invalid_value',
      'tools[0].tools[1].name',
    ],
    ['[GEN-2]', { tools: [fn('f'), { type: 'custom', name: 'f' }] }, 'invalid_value', 'tools[1].name'],
    [
      '[TOOL-2]',
      { tools: [fn('f', { strict: true, parameters: { ...closed, required: [] } })] },
      'invalid_value',
      'tools[0].parameters',
    ],
    [
      '[TOOL-2]',
      { tools: [{ type: 'namespace', name: 'n', tools: [fn('f', { strict: true, parameters: { type: 'object' } })] }] },
      'invalid_value',
      'tools[0].tools[0].parameters',
    ],
    [
      '[RESP-4]',
      {
        tools: [fn('f')],
        tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'g' }] },
      },
      'invalid_value',
      'tool_choice',
    ],
    [
      '[RESP-4]',
      { tools: [fn('f')], tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [] } },
      'invalid_value',
      'tool_choice.tools',
    ],
    [
      '[RESP-4]',
      {
        tools: ['n', 'm'].map(name => ({ type: 'namespace', name, tools: [fn('f')] })),
        tool_choice: { type: 'function', name: 'f' },
      },
      'invalid_value',
      'tool_choice',
    ],
    ['[GEN-2]', { tool_choice: { type: 'mcp', server_label: 'x' } }, 'unsupported_value', 'tool_choice.type'],
    ['[GEN-2]', { tools: [fn('f')], tool_choice: { type: 'web_search' } }, 'invalid_value', 'tool_choice'],
    ['[GEN-2]', { tool_choice: 'required' }, 'invalid_value', 'tool_choice'],
    [
      '[GEN-2] a capsule without a body',
      { input: [{ type: 'compaction', encrypted_content: '' }] },
      'invalid_value',
      'input[0].encrypted_content',
    ],
    [
      '[GEN-2] a trigger before the end',
      { input: [{ type: 'compaction_trigger' }, { role: 'user', content: 'x' }] },
      'invalid_value',
      'input[0]',
      /last item/,
    ],
    ['[RESP-4]', { input: [{ id: 'item_eba1_x' }] }, 'unsupported_value', 'input[0].type', /item_reference/],
    // A choice may leave the namespace of a tool out, and may not name another.
    ['[RESP-4]', choosing(fn('f', { namespace: 'm' })), 'invalid_value', 'tool_choice'],
    ['[RESP-4]', choosing(fn('g')), 'invalid_value', 'tool_choice'],
    ['[RESP-4]', choosing({ type: 'custom', name: 'f' }), 'invalid_value', 'tool_choice'],
    ['[RESP-4]', choosing({ type: 'web_search' }), 'invalid_value', 'tool_choice'],
  ])
})

describe('responses request: what is accepted', () => {
  it('[RESP-1] every member of the table, null or at its bounds', () => {
    const nothing = Object.fromEntries(
      Object.keys(responses.requestSchema['properties'] as object).map(name => [name, null as unknown]),
    )
    accepted(responses, { ...nothing, ...base() })
    accepted(responses, {
      ...base(),
      conversation: null,
      prompt: null,
      background: false,
      stream_options: { include_obfuscation: false },
      include: [],
      tools: [],
      truncation: 'disabled',
      service_tier: 'default',
      text: { format: { type: 'text' }, verbosity: null },
      metadata: { a: 'b' },
      user: 'u',
      safety_identifier: 's',
      prompt_cache_options: { mode: 'explicit', ttl: '30m' },
      prompt_cache_retention: 'in_memory',
      context_management: [{ type: 'compaction', compact_threshold: 1000 }],
      client_metadata: { anything: 'x' },
    })
  })

  it('a compaction is wished for by a trigger, a threshold, or by the endpoint; a capsule stays sealed', () => {
    const wishOf = (more: object) => accepted(responses, { ...base(), ...more }).compaction
    const trigger = [{ role: 'user', content: 'x' }, { type: 'compaction_trigger' }]
    const managed = (compact_threshold?: number | null) => ({
      context_management: [{ type: 'compaction', ...(compact_threshold !== undefined && { compact_threshold }) }],
    })
    assert.deepEqual(wishOf({ input: trigger, ...managed(5) }), { only: true, keeps: 'user', path: 'input[1]' })
    const inline = { only: false, keeps: 'nothing', path: 'context_management' }
    assert.deepEqual(wishOf(managed(5)), { ...inline, threshold: 5 })
    for (const unnamed of [undefined, null])
      assert.deepEqual(wishOf(managed(unnamed)), { ...inline, threshold: Infinity, withinWindow: true })
    assert.deepEqual([wishOf({}), wishOf({ context_management: [] })], [undefined, undefined])
    const whole = accepted(compact, { model: 'm', input: 'x', tools: [], reasoning: { effort: 'low' } })
    assert.deepEqual(whole.compaction, { only: true, keeps: 'user', path: 'input' })
    assert.deepEqual([whole.surface, whole.store, whole.form?.retains], ['compact', undefined, undefined])
    const { turns, sealed } = accepted(responses, {
      ...base(),
      input: [
        { role: 'assistant', content: 'x' },
        { type: 'compaction', encrypted_content: 'e', id: 'i' },
      ],
    })
    assert.equal(sealed, true)
    const capsule = { sealed: 'e', path: 'input[1].encrypted_content', id: 'i' }
    assert.deepEqual(turns[1], { role: 'user', parts: [{ type: 'text', text: '', capsule }] })
  })

  it('[RESP-1] controls reach the conversation', () => {
    const { lateChoice, ...c } = accepted(responses, {
      ...base(),
      instructions: 'Be brief.',
      previous_response_id: 'resp_1',
      store: false,
      stream: true,
      include: ['reasoning.encrypted_content', 'message.output_text.logprobs'],
      max_output_tokens: 10,
      max_tool_calls: 2,
      temperature: 1.5,
      top_p: 0.5,
      top_logprobs: 3,
      parallel_tool_calls: false,
      reasoning: { effort: 'low', summary: 'auto', context: 'auto', mode: 'standard' },
      text: { verbosity: 'low' },
      prompt_cache_key: 'k',
    })
    assert.deepEqual(c, {
      surface: 'responses',
      form,
      requestedModel: 'eb1-preview',
      model: 'eb1-preview',
      stream: true,
      system: [{ type: 'text', text: 'Be brief.' }],
      instructionParts: 1,
      turns: [{ role: 'user', parts: [{ type: 'text', text: 'hi' }] }],
      tools: [],
      toolChoice: { type: 'none' },
      parallelToolCalls: false,
      sampling: { stop: [], logprobs: true, temperature: 1.5, topP: 0.5, topLogprobs: 3 },
      reasoning: { effort: 'low', summary: 'auto', includeEncrypted: true },
      store: false,
      maxOutputTokens: 10,
      maxOutputField: 'max_output_tokens',
      maxSearches: 2,
      verbosity: 'low',
      cacheKey: 'k',
      previousResponseId: 'resp_1',
    })
    assert.deepEqual(lateChoice!([]), { type: 'none' }, 'without a tool of either request')
    assert.equal(accepted(responses, base()).store, true)
    assert.equal(
      accepted(responses, { ...base(), reasoning: { generate_summary: 'concise' } }).reasoning.summary,
      'concise',
    )
  })

  it('[RESP-2] input may be empty or absent with previous_response_id, and its system text then stays in place', () => {
    accepted(responses, { model: 'm', previous_response_id: 'resp_1' })
    accepted(responses, { model: 'm', previous_response_id: 'resp_1', input: [] })
    const body = {
      model: 'm',
      previous_response_id: 'resp_1',
      instructions: 'I',
      input: [{ role: 'developer', content: 'D' }, user],
    }
    const c = accepted(responses, body)
    assert.deepEqual(c.system, [{ type: 'text', text: 'I' }])
    assert.deepEqual(c.turns[0], { role: 'system', parts: [{ type: 'text', text: 'D' }] })
  })

  it('[RESP-2] instructions are told apart from the input: they are not inherited', () => {
    const body = { model: 'm', instructions: 'I', input: [{ role: 'system', content: 'S' }, user] }
    const c = accepted(responses, body)
    assert.deepEqual(c.system.slice(c.instructionParts), [{ type: 'text', text: 'S' }])
    const bare = accepted(responses, { ...body, instructions: '' })
    assert.deepEqual(bare.system.slice(bare.instructionParts), [{ type: 'text', text: 'S' }])
  })

  it('[RESP-1] typed items of a whole agent turn', () => {
    const c = accepted(responses, {
      ...base(),
      tools: [fn('f'), { type: 'custom', name: 'patch' }],
      input: [
        { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'D' }] },
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'see', prompt_cache_breakpoint: { mode: 'explicit' } },
            { type: 'input_image', image_url: PNG, detail: 'original' },
            { type: 'input_file', file_data: 'data:text/plain;base64,aMOk', filename: 'a.txt' },
            { type: 'input_file', file_url: 'https://e.x/a.pdf' },
          ],
        },
        {
          type: 'reasoning',
          id: 'rs_1',
          summary: [{ type: 'summary_text', text: 'hm' }],
          content: null,
          encrypted_content: 'HANDLE',
          status: null,
        },
        { type: 'reasoning', summary: [] },
        {
          type: 'message',
          id: 'msg_1',
          status: 'completed',
          phase: 'commentary',
          role: 'assistant',
          content: [
            { type: 'output_text', text: 'a', annotations: [], logprobs: [], parsed: null },
            { type: 'output_text', text: '' },
            { type: 'refusal', refusal: 'no', parsed: null },
            { type: 'input_text', text: 'b' },
          ],
        },
        {
          type: 'function_call',
          id: 'fc_1',
          call_id: 'call_eba1_1',
          name: 'f',
          arguments: '{',
          status: 'completed',
          namespace: null,
          caller: null,
          parsed_arguments: null,
          created_by: 'x',
        },
        { type: 'custom_tool_call', call_id: 'call_eba1_2', name: 'patch', input: '*** Begin', namespace: 'ns' },
        {
          type: 'custom_tool_call_output',
          call_id: 'call_eba1_2',
          output: [
            { type: 'input_text', text: 'ok' },
            { type: 'input_image', image_url: 'https://e.x/a.png' },
          ],
        },
        { type: 'function_call_output', call_id: 'call_eba1_1', output: 'done', name: 'f', namespace: null },
        {
          type: 'web_search_call',
          id: 'item_eba1_9',
          status: 'completed',
          action: { type: 'search', query: 'q', queries: ['q'], sources: [{ type: 'url', url: 'https://e.x/' }] },
        },
        { type: 'web_search_call', id: 'ws_2', action: { type: 'open_page', url: 'https://e.x/p' } },
        { role: 'assistant', content: 'done' },
      ],
    })
    assert.deepEqual(c.system, [{ type: 'text', text: 'D' }])
    assert.deepEqual(c.turns, [
      {
        role: 'user',
        parts: [
          { type: 'text', text: 'see' },
          {
            type: 'image',
            source: { kind: 'data', mediaType: 'image/png', data: 'iVBORw0KGgo=' },
            path: 'input[1].content[1].image_url',
            detail: 'original',
          },
          {
            type: 'document',
            source: { kind: 'text', text: 'hä' },
            path: 'input[1].content[2].file_data',
            title: 'a.txt',
          },
          { type: 'document', source: { kind: 'url', url: 'https://e.x/a.pdf' }, path: 'input[1].content[3].file_url' },
        ],
      },
      {
        role: 'assistant',
        parts: [
          { type: 'reasoning', summary: ['hm'], handle: 'HANDLE' },
          { type: 'reasoning', summary: [] },
          { type: 'text', text: 'a' },
          { type: 'refusal', text: 'no' },
          { type: 'text', text: 'b' },
          { type: 'call', id: 'call_eba1_1', kind: 'function', name: 'f', input: '{', path: 'input[5]' },
          {
            type: 'call',
            id: 'call_eba1_2',
            kind: 'custom',
            name: 'patch',
            input: '*** Begin',
            path: 'input[6]',
            namespace: 'ns',
          },
        ],
      },
      {
        role: 'tool',
        parts: [
          {
            type: 'result',
            callId: 'call_eba1_2',
            kind: 'custom',
            content: [
              { type: 'text', text: 'ok' },
              {
                type: 'image',
                source: { kind: 'url', url: 'https://e.x/a.png' },
                path: 'input[7].output[1].image_url',
              },
            ],
            path: 'input[7]',
          },
          {
            type: 'result',
            callId: 'call_eba1_1',
            kind: 'function',
            content: [{ type: 'text', text: 'done' }],
            path: 'input[8]',
          },
        ],
      },
      {
        role: 'assistant',
        parts: [
          { type: 'search', id: 'hist_eba1_9', query: 'q', results: [{ title: '', url: 'https://e.x/' }] },
          { type: 'search', id: 'ws_2', query: 'https://e.x/p', results: [] },
          { type: 'text', text: 'done' },
        ],
      },
    ])
  })

  it('[RESP-1] tools of every kind; namespaces are flattened, a search that must not run is dropped', () => {
    const c = accepted(responses, {
      ...base(),
      tools: [
        fn('f', {
          description: 'd',
          parameters: closed,
          strict: true,
          defer_loading: true,
          async: false,
          allowed_callers: ['direct'],
          output_schema: { any: 1 },
        }),
        fn('g', { parameters: null, strict: null }),
        {
          type: 'custom',
          name: 'patch',
          description: 'p',
          format: { type: 'grammar', syntax: 'lark', definition: 'start: x' },
        },
        { type: 'custom', name: 'free', format: { type: 'text' } },
        {
          type: 'web_search',
          search_context_size: 'low',
          user_location: { type: 'approximate', city: 'Oslo' },
          filters: { allowed_domains: ['e.x'] },
          search_content_types: ['text'],
        },
        { type: 'web_search_preview', external_web_access: false },
        { type: 'namespace', name: 'mcp__fs', description: 'files', tools: [fn('f'), { type: 'custom', name: 'h' }] },
        {
          type: 'tool_search',
          execution: 'client',
          description: 'find',
          parameters: { type: 'object', properties: {} },
        },
      ],
      tool_choice: {
        type: 'allowed_tools',
        mode: 'auto',
        tools: [
          { type: 'function', name: 'f' },
          { type: 'web_search' },
          { type: 'custom', name: 'h', namespace: 'mcp__fs' },
        ],
      },
    })
    const empty = { type: 'object', properties: {} }
    assert.deepEqual(c.tools, [
      { type: 'function', name: 'f', parameters: closed, path: 'tools[0]', description: 'd', strict: true },
      { type: 'function', name: 'g', parameters: empty, path: 'tools[1]' },
      {
        type: 'custom',
        name: 'patch',
        path: 'tools[2]',
        description: 'p',
        grammar: { syntax: 'lark', definition: 'start: x' },
      },
      { type: 'custom', name: 'free', path: 'tools[3]' },
      {
        type: 'web_search',
        path: 'tools[4]',
        allowedDomains: ['e.x'],
        userLocation: { type: 'approximate', city: 'Oslo' },
        contextSize: 'low',
      },
      { type: 'function', name: 'f', parameters: empty, path: 'tools[6].tools[0]', namespace: 'mcp__fs' },
      { type: 'custom', name: 'h', path: 'tools[6].tools[1]', namespace: 'mcp__fs' },
      {
        type: 'function',
        name: 'tool_search',
        description: 'find',
        parameters: empty,
        path: 'tools[7]',
        role: 'tool_search',
      },
    ])
    assert.deepEqual(c.toolChoice, {
      type: 'allowed',
      mode: 'auto',
      tools: [
        { name: 'f', kind: 'function' },
        { name: 'web_search', kind: 'web_search' },
        { name: 'h', namespace: 'mcp__fs', kind: 'custom' },
      ],
    })
  })

  it('[TOOL-2] a strict tool without parameters keeps the rule of strict schemas', () => {
    const { tools } = accepted(responses, { ...base(), tools: [fn('f', { strict: true, parameters: null })] })
    assert.deepEqual(tools, [
      {
        type: 'function',
        name: 'f',
        strict: true,
        parameters: { type: 'object', properties: {}, required: [], additionalProperties: false },
        path: 'tools[0]',
      },
    ])
  })

  it('[RESP-4] a choice by a bare name means the tool in its namespace', () => {
    const tools = [
      fn('f'),
      { type: 'namespace', name: 'n', tools: [fn('f'), fn('g'), { type: 'custom', name: 'h' }] },
      { type: 'namespace', name: 'm', tools: [fn('g')] },
    ]
    const chosen = (tool_choice: unknown) => accepted(responses, { ...base(), tools, tool_choice }).toolChoice
    assert.deepEqual(chosen({ type: 'function', name: 'f' }), { type: 'tool', name: 'f', kind: 'function' })
    assert.deepEqual(chosen({ type: 'custom', name: 'h' }), { type: 'tool', name: 'h', kind: 'custom', namespace: 'n' })
    assert.deepEqual(chosen({ type: 'function', name: 'g', namespace: 'm' }), {
      type: 'tool',
      name: 'g',
      kind: 'function',
      namespace: 'm',
    })
    assert.deepEqual(chosen({ type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'g' }] }), {
      type: 'allowed',
      mode: 'auto',
      tools: [
        { name: 'g', kind: 'function', namespace: 'n' },
        { name: 'g', kind: 'function', namespace: 'm' },
      ],
    })
  })

  it('[RESP-1] client tool search and additional_tools items load tools, once', () => {
    const c = accepted(responses, {
      ...base(),
      tools: [{ type: 'tool_search', execution: 'client' }, fn('f')],
      input: [
        user,
        { type: 'additional_tools', role: 'developer', id: 'x', tools: [fn('f'), fn('g')] },
        {
          type: 'tool_search_call',
          call_id: 'call_1',
          execution: 'client',
          arguments: { query: 'mail' },
          status: 'completed',
        },
        {
          type: 'tool_search_output',
          call_id: 'call_1',
          execution: 'client',
          status: 'completed',
          tools: [{ type: 'namespace', name: 'mail', description: '', tools: [fn('send')] }, fn('g')],
        },
      ],
    })
    assert.deepEqual(
      c.tools.map(t => t.path),
      ['tools[0]', 'tools[1]', 'input[1].tools[1]', 'input[3].tools[0].tools[0]'],
    )
    assert.deepEqual(c.turns.slice(1), [
      {
        role: 'assistant',
        parts: [
          {
            type: 'call',
            id: 'call_1',
            kind: 'function',
            name: 'tool_search',
            input: '{"query":"mail"}',
            path: 'input[2]',
          },
        ],
      },
      {
        role: 'tool',
        parts: [
          {
            type: 'result',
            callId: 'call_1',
            kind: 'function',
            content: [{ type: 'text', text: 'Loaded tools: send, g' }],
            path: 'input[3]',
          },
        ],
      },
    ])
  })

  it('[RESP-1] a cut call that never ran is left out of the history', () => {
    const call = { type: 'function_call', call_id: 'c', name: 'f', arguments: '{"a', status: 'incomplete' }
    assert.deepEqual(
      accepted(responses, { ...base(), input: [user, call, user] }).turns.map(t => t.role),
      ['user'],
    )
    const output = { type: 'function_call_output', call_id: 'c', output: 'x' }
    assert.deepEqual(
      accepted(responses, { ...base(), input: [user, call, output] }).turns.map(t => t.role),
      ['user', 'assistant', 'tool'],
    )
  })

  it('[METER-1] a string input, a message item and a Chat message are one conversation', () => {
    const a = accepted(responses, base())
    const b = accepted(responses, {
      ...base(),
      input: [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'hi' }] }],
    })
    assert.deepEqual(a.turns, b.turns)
  })

  it('[GEN-2] the body of a coding agent: transcript, tools and members as it sends them', () => {
    accepted(responses, {
      model: 'eb1-preview',
      instructions: 'You are a coding agent.',
      input: [
        { type: 'message', role: 'developer', content: [{ type: 'input_text', text: '<permissions>' }] },
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'fix it' }] },
        { type: 'reasoning', summary: [], content: null, encrypted_content: 'gAAAA' },
        {
          type: 'message',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'Looking.' }],
          phase: 'commentary',
        },
        { type: 'function_call', name: 'shell', arguments: '{"command":["ls"]}', call_id: 'call_1' },
        { type: 'function_call_output', call_id: 'call_1', output: '{"output":"a"}' },
        {
          type: 'custom_tool_call',
          status: 'completed',
          call_id: 'call_2',
          name: 'apply_patch',
          input: '*** Begin Patch',
        },
        { type: 'custom_tool_call_output', call_id: 'call_2', output: 'ok' },
      ],
      tools: [
        {
          type: 'function',
          name: 'shell',
          description: 'Runs.',
          strict: false,
          parameters: { type: 'object', properties: {}, required: [], additionalProperties: false },
        },
        {
          type: 'custom',
          name: 'apply_patch',
          description: 'Patches.',
          format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' },
        },
        { type: 'web_search', external_web_access: true, search_content_types: ['text', 'image'] },
        {
          type: 'namespace',
          name: 'mcp__x',
          description: 'X',
          tools: [{ type: 'function', name: 'y', strict: false, parameters: { type: 'object' } }],
        },
        { type: 'tool_search', execution: 'client', description: 's', parameters: { type: 'object' } },
      ],
      tool_choice: 'auto',
      parallel_tool_calls: false,
      reasoning: { effort: 'medium', summary: 'auto' },
      store: false,
      stream: true,
      include: ['reasoning.encrypted_content'],
      prompt_cache_key: '0196',
      text: { verbosity: 'medium' },
      client_metadata: { 'x-codex-installation-id': '1' },
    })
    accepted(responses, {
      model: 'm',
      input: [user],
      reasoning: null,
      include: [],
      tools: [],
      tool_choice: 'auto',
      store: false,
    })
  })
})

describe('responses request: lists that are long in two ways take no longer than long ones', () => {
  /** Some 100,000 values, what `max_nodes` lets through. */
  const parsed = (body: object) => responses.parse(body)
  const tools = (n: number) => Array.from({ length: n }, (_, i) => fn(`f${i}`))

  it('[REQ-2] items that load tools, behind thousands of tools', () => {
    const more = Array.from({ length: 15_000 }, () => ({ type: 'additional_tools', tools: [] }))
    const input = [user, { type: 'additional_tools', tools: tools(8000) }, ...more]
    assert.equal(parsed({ ...base(), input }).tools.length, 8000)
  })

  it('[REQ-2] a choice among thousands of tools that names thousands', () => {
    const allowed = Array.from({ length: 48_000 }, (_, i) => fn(`f${15_999 - (i % 100)}`))
    const input = [user, { type: 'additional_tools', tools: tools(16_000) }]
    const choice = { type: 'allowed_tools', mode: 'auto', tools: allowed }
    const { toolChoice } = parsed({ ...base(), input, tool_choice: choice })
    assert.ok(toolChoice.type === 'allowed' && toolChoice.tools.length === allowed.length)
  })

  it('[RESP-4] a choice may leave the namespace out', () => {
    for (const tool of [fn('f'), fn('f', { namespace: 'n' })]) responses.parse({ ...base(), ...choosing(tool) })
  })
})
