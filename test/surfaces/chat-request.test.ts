import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { chat } from '../../surfaces/chat/index.ts'
import { accepted, refuses } from './request-kit.ts'

const user = { role: 'user', content: 'hi' }
const base = () => ({ model: 'eb1-preview', messages: [user] }) as Record<string, any>
const fn = (name = 'f', extra = {}) => ({ type: 'function', function: { name, ...extra } })
const PNG = 'data:image/png;base64,iVBORw0KGgo='

describe('chat request: what is refused', () => {
  refuses(chat, base, [
    ['[GEN-3]', { response_format: { type: 'json_object' } }, 'unsupported_parameter', 'response_format'],
    [
      '[GEN-3]',
      { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: {} } } },
      'unsupported_parameter',
      'response_format',
    ],
    ['[GEN-3]', { response_format: { type: 'grammar', grammar: 'x' } }, 'unsupported_parameter', 'response_format'],
    ['[GEN-2]', { response_format: { type: 'text', x: 1 } }, 'unknown_parameter', 'response_format.x'],
    ['[CHAT-1]', { max_tokens: 10, max_completion_tokens: 11 }, 'invalid_value', 'max_tokens'],
    ['[CHAT-1]', { max_tokens: 0 }, 'invalid_value', 'max_tokens'],
    ['[CHAT-1]', { max_tokens: 1.5 }, 'invalid_type', 'max_tokens'],
    ['[CHAT-1]', { temperature: 2.1 }, 'invalid_value', 'temperature'],
    ['[CHAT-1]', { top_p: -0.1 }, 'invalid_value', 'top_p'],
    ['[CHAT-1]', { stop: ['a', 'b', 'c', 'd', 'e'] }, 'invalid_value', 'stop'],
    ['[CHAT-1]', { stop: '' }, 'invalid_value', 'stop'],
    ['[CHAT-1]', { stop: [1] }, 'invalid_type', 'stop[0]'],
    ['[CHAT-1]', { seed: 1.5 }, 'invalid_type', 'seed'],
    ['[CHAT-1]', { top_logprobs: 3 }, 'invalid_value', 'top_logprobs'],
    ['[CHAT-1]', { logprobs: true, top_logprobs: 21 }, 'invalid_value', 'top_logprobs'],
    ['[CHAT-1]', { user: 'x'.repeat(513) }, 'invalid_value', 'user'],
    ['[CHAT-1]', { metadata: { a: 1 } }, 'invalid_type', 'metadata.a'],
    ['[CHAT-1]', { metadata: { ['k'.repeat(65)]: 'v' } }, 'invalid_value', `metadata.${'k'.repeat(65)}`],
    ['[CHAT-1]', { reasoning_effort: 'huge' }, 'invalid_value', 'reasoning_effort'],
    ['[CHAT-1]', { stream: 'true' }, 'invalid_type', 'stream'],
    ['[CHAT-1]', { n: 2 }, 'unsupported_value', 'n'],
    ['[GEN-2]', { store: true }, 'unsupported_value', 'store'],
    ['[CHAT-1]', { presence_penalty: 0.5 }, 'unsupported_value', 'presence_penalty'],
    ['[CHAT-1]', { logit_bias: { 5: 1 } }, 'unsupported_value', 'logit_bias'],
    ['[CHAT-1]', { modalities: ['text', 'audio'] }, 'unsupported_value', 'modalities[1]'],
    ['[CHAT-1]', { service_tier: 'priority' }, 'unsupported_value', 'service_tier'],
    ['[CHAT-1]', { messages: [] }, 'invalid_value', 'messages'],
    ['[CHAT-1]', { model: '' }, 'invalid_value', 'model'],
    ['[GEN-2]', { audio: { voice: 'a' } }, 'unsupported_parameter', 'audio'],
    ['[GEN-2]', { prediction: {} }, 'unsupported_parameter', 'prediction'],
    ['[GEN-2]', { web_search_options: {} }, 'unsupported_parameter', 'web_search_options'],
    ['[GEN-2]', { functions: [] }, 'unsupported_parameter', 'functions'],
    ['[GEN-2]', { function_call: 'auto' }, 'unsupported_parameter', 'function_call'],
    ['[GEN-2]', { top_k: 5 }, 'unknown_parameter', 'top_k'],
    ['[GEN-2]', { extra_body: {} }, 'unknown_parameter', 'extra_body'],
    ['[GEN-2]', { thinking: null }, 'unknown_parameter', 'thinking'],
    ['[GEN-2]', { stream_options: { foo: 1 } }, 'unknown_parameter', 'stream_options.foo'],
    ['[CHAT-2]', { system: 'a', messages: [{ role: 'system', content: 'b' }, user] }, 'invalid_value', 'system'],
    ['[CHAT-2]', { system: 'a', messages: [user, { role: 'developer', content: 'b' }] }, 'invalid_value', 'system'],
    ['[CHAT-2]', { system: [{ type: 'image_url', image_url: { url: PNG } }] }, 'unsupported_value', 'system[0].type'],
    [
      '[CHAT-3]',
      { messages: [{ role: 'system', content: [{ type: 'image_url', image_url: { url: PNG } }] }] },
      'unsupported_value',
      'messages[0].content[0].type',
    ],
    [
      '[CHAT-3]',
      { messages: [user, { role: 'assistant', content: [{ type: 'image_url', image_url: { url: PNG } }] }] },
      'unsupported_value',
      'messages[1].content[0].type',
    ],
    [
      '[CHAT-3]',
      { messages: [{ role: 'tool', tool_call_id: 'c', content: [{ type: 'image_url', image_url: { url: PNG } }] }] },
      'unsupported_value',
      'messages[0].content[0].type',
    ],
    [
      '[CHAT-3]',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'http://x/a.png' } }] }] },
      'invalid_value',
      'messages[0].content[0].image_url.url',
    ],
    [
      '[CHAT-3]',
      {
        messages: [
          { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/bmp;base64,AAAA' } }] },
        ],
      },
      'invalid_value',
      'messages[0].content[0].image_url.url',
    ],
    [
      '[CHAT-3]',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: PNG, detail: 'max' } }] }] },
      'invalid_value',
      'messages[0].content[0].image_url.detail',
    ],
    [
      '[GEN-2]',
      { messages: [{ role: 'user', content: [{ type: 'input_audio', input_audio: {} }] }] },
      'unsupported_value',
      'messages[0].content[0].type',
    ],
    [
      '[GEN-2]',
      {
        messages: [
          {
            role: 'user',
            content: [{ type: 'file', file: { file_data: 'data:application/pdf;base64,AAAA', file_id: 'file-1' } }],
          },
        ],
      },
      'unsupported_parameter',
      'messages[0].content[0].file.file_id',
    ],
    ['[GEN-2]', { messages: [{ role: 'user', content: [] }] }, 'invalid_value', 'messages[0].content'],
    [
      '[GEN-2]',
      { messages: [{ role: 'user', content: [{ type: 'text', text: 'x', foo: 1 }] }] },
      'unknown_parameter',
      'messages[0].content[0].foo',
    ],
    ['[GEN-2]', { messages: [{ role: 'function', name: 'f', content: 'x' }] }, 'unsupported_value', 'messages[0].role'],
    [
      '[GEN-2]',
      { messages: [user, { role: 'assistant', content: null }] },
      'missing_required_parameter',
      'messages[1].content',
    ],
    [
      '[GEN-2]',
      { messages: [user, { role: 'assistant', content: null, audio: { id: 'a' } }] },
      'missing_required_parameter',
      'messages[1].content',
    ],
    [
      '[GEN-2]',
      { messages: [{ role: 'user', content: 'x', provider_specific_fields: {} }] },
      'unknown_parameter',
      'messages[0].provider_specific_fields',
    ],
    [
      '[GEN-2]',
      { messages: [user, { role: 'assistant', function_call: { name: 'f' } }] },
      'unsupported_parameter',
      'messages[1].function_call',
    ],
    [
      '[GEN-2]',
      { messages: [{ role: 'tool', content: 'x' }] },
      'missing_required_parameter',
      'messages[0].tool_call_id',
    ],
    [
      '[GEN-2]',
      {
        messages: [
          { role: 'assistant', tool_calls: [{ type: 'function', id: 'c', function: { name: 'f', arguments: {} } }] },
        ],
      },
      'invalid_type',
      'messages[0].tool_calls[0].function.arguments',
    ],
    ['[GEN-2]', { tools: [{ type: 'custom', custom: { name: 'x' } }] }, 'unsupported_value', 'tools[0].type'],
    ['[GEN-2]', { tools: [fn('f', { foo: 1 })] }, 'unknown_parameter', 'tools[0].function.foo'],
    ['[GEN-2]', { tools: [fn('')] }, 'invalid_value', 'tools[0].function.name'],
    ['[GEN-2]', { tools: [fn('f'), fn('f')] }, 'invalid_value', 'tools[1].function.name'],
    [
      '[GEN-2]',
      { tools: [fn('f', { parameters: { type: 'array' } })] },
      'invalid_value',
      'tools[0].function.parameters.type',
    ],
    ['[GEN-2]', { tools: Array.from({ length: 129 }, (_, i) => fn(`f${i}`)) }, 'invalid_value', 'tools'],
    [
      '[TOOL-2]',
      { tools: [fn('f', { strict: true, parameters: { type: 'object', properties: { a: {} } } })] },
      'invalid_value',
      'tools[0].function.parameters',
    ],
    [
      '[TOOL-2]',
      {
        tools: [
          fn('f', {
            strict: true,
            parameters: {
              type: 'object',
              properties: { a: { type: 'object' } },
              required: ['a'],
              additionalProperties: false,
            },
          }),
        ],
      },
      'invalid_value',
      'tools[0].function.parameters.properties.a',
    ],
    ['[GEN-2]', { tool_choice: 'required' }, 'invalid_value', 'tool_choice'],
    ['[GEN-2]', { tool_choice: 'always' }, 'invalid_value', 'tool_choice'],
    ['[GEN-2]', { tools: [fn('f')], tool_choice: fn('g') }, 'invalid_value', 'tool_choice'],
    [
      '[GEN-2]',
      { tools: [fn('f')], tool_choice: { type: 'custom', custom: { name: 'f' } } },
      'unsupported_value',
      'tool_choice.type',
    ],
    [
      '[GEN-2]',
      { tools: [fn('f')], tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [fn('g')] } } },
      'invalid_value',
      'tool_choice',
    ],
    // Names and numbers that JSON can hold and a program would trip over.
    [
      '[GEN-2] __proto__ inside',
      { messages: [JSON.parse('{"__proto__":{"a":1},"role":"user","content":"hi"}')] },
      'unknown_parameter',
      'messages[0].__proto__',
    ],
    ['[GEN-2] __proto__', JSON.parse('{"__proto__":{"model":"x"}}'), 'unknown_parameter', '__proto__'],
    ['[GEN-2]', { constructor: { prototype: { a: 1 } } }, 'unknown_parameter', 'constructor'],
    ['[GEN-2] beyond any bound', JSON.parse('{"temperature":1e999}'), 'invalid_type', 'temperature'],
    ['[GEN-2] 400 digits', JSON.parse(`{"seed":${'9'.repeat(400)}}`), 'invalid_type', 'seed'],
    // Named where they miss.
    ['[GEN-2]', { model: undefined }, 'missing_required_parameter', 'model'],
    ['[GEN-2]', { messages: undefined }, 'missing_required_parameter', 'messages'],
  ])
})

describe('chat request: what is accepted', () => {
  it('[CHAT-1] every member of the table, null or at its bounds', () => {
    accepted(chat, {
      ...base(),
      stream: true,
      stream_options: { include_usage: true, include_obfuscation: false },
      temperature: 2,
      top_p: 0,
      stop: ['a', 'b', 'c', 'd'],
      seed: -5,
      logprobs: true,
      top_logprobs: 20,
      user: 'u'.repeat(512),
      metadata: Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`k${i}`, 'v'.repeat(512)])),
      max_tokens: 100,
      max_completion_tokens: 100,
      tools: [],
      tool_choice: 'auto',
      parallel_tool_calls: false,
      reasoning_effort: 'ultra',
      verbosity: 'low',
      response_format: { type: 'text' },
      n: 1,
      presence_penalty: 0,
      frequency_penalty: 0,
      logit_bias: {},
      modalities: ['text'],
      service_tier: 'auto',
      store: false,
      prompt_cache_key: 'k',
      prompt_cache_options: { mode: 'implicit' },
      prompt_cache_retention: '24h',
      safety_identifier: 's',
      audio: null,
      prediction: null,
      web_search_options: null,
      moderation: null,
      functions: null,
      function_call: null,
      system: null,
    })
    const nothing = Object.fromEntries(
      Object.keys(chat.requestSchema['properties'] as object).map(name => [name, null as unknown]),
    )
    accepted(chat, { ...nothing, ...base() })
  })

  it('[CHAT-1] controls reach the conversation', () => {
    const c = accepted(chat, {
      ...base(),
      temperature: 0.5,
      top_p: 0.9,
      seed: 7,
      stop: 'END',
      logprobs: true,
      top_logprobs: 2,
      max_tokens: 64,
      reasoning_effort: 'high',
      verbosity: 'high',
      parallel_tool_calls: false,
      prompt_cache_key: 'key',
      stream: true,
    })
    assert.deepEqual(c.sampling, {
      stop: ['END'],
      logprobs: true,
      topLogprobs: 2,
      temperature: 0.5,
      topP: 0.9,
      seed: 7,
    })
    assert.deepEqual([c.maxOutputTokens, c.maxOutputField], [64, 'max_tokens'])
    assert.deepEqual(
      [c.reasoning, c.verbosity, c.parallelToolCalls, c.cacheKey, c.stream],
      [{ effort: 'high' }, 'high', false, 'key', true],
    )
    assert.deepEqual(c.toolChoice, { type: 'none' })
    const plain = accepted(chat, base())
    assert.deepEqual(plain.sampling, { stop: [], logprobs: false })
    assert.deepEqual([plain.stream, plain.parallelToolCalls, plain.maxOutputTokens], [false, true, undefined])
  })

  it('[CHAT-2] top-level system is the same conversation as a system message', () => {
    const a = accepted(chat, { ...base(), system: 'Be brief.' })
    const b = accepted(chat, { ...base(), messages: [{ role: 'system', content: 'Be brief.' }, user] })
    const c = accepted(chat, {
      ...base(),
      messages: [{ role: 'developer', content: [{ type: 'text', text: 'Be brief.' }] }, user],
    })
    assert.deepEqual(a.system, [{ type: 'text', text: 'Be brief.' }])
    assert.deepEqual([a.system, a.turns], [b.system, b.turns])
    assert.deepEqual([a.system, a.turns], [c.system, c.turns])
  })

  it('[CHAT-3] images and files in user messages', () => {
    const c = accepted(chat, {
      ...base(),
      messages: [
        {
          role: 'user',
          content: [
            {
              type: 'text',
              text: 'see',
              prompt_cache_breakpoint: { mode: 'explicit' },
              cache_control: { type: 'ephemeral' },
            },
            { type: 'image_url', image_url: { url: 'https://example.com/a.png', detail: 'original' } },
            { type: 'image_url', image_url: { url: PNG, detail: null } },
            { type: 'file', file: { file_data: 'data:application/pdf;base64,JVBERi0=', filename: 'a.pdf' } },
          ],
        },
      ],
    })
    const at = (i: number, rest: string) => `messages[0].content[${i}].${rest}`
    assert.deepEqual(c.turns, [
      {
        role: 'user',
        parts: [
          { type: 'text', text: 'see' },
          {
            type: 'image',
            source: { kind: 'url', url: 'https://example.com/a.png' },
            path: at(1, 'image_url.url'),
            detail: 'original',
          },
          {
            type: 'image',
            source: { kind: 'data', mediaType: 'image/png', data: 'iVBORw0KGgo=' },
            path: at(2, 'image_url.url'),
          },
          {
            type: 'document',
            source: { kind: 'data', mediaType: 'application/pdf', data: 'JVBERi0=' },
            path: at(3, 'file.file_data'),
            title: 'a.pdf',
          },
        ],
      },
    ])
  })

  it('[TOOL-1] a tool round trip: calls, results, mid-conversation system text', () => {
    const c = accepted(chat, {
      ...base(),
      tools: [
        fn('f', {
          description: 'd',
          parameters: { type: 'object', properties: { x_unknown: { foo: 1 } } },
          strict: null,
        }),
        fn('g'),
      ],
      tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [fn('g')] } },
      messages: [
        user,
        {
          role: 'assistant',
          content: null,
          refusal: null,
          annotations: [],
          audio: null,
          function_call: null,
          reasoning_content: 'r',
          parsed: null,
          tool_calls: [
            {
              id: 'call_eba1_a',
              type: 'function',
              function: { name: 'f', arguments: '{"broken', parsed_arguments: null },
            },
            { id: 'call_eb2.b', type: 'function', function: { name: 'g', arguments: '{}' } },
          ],
        },
        {
          role: 'tool',
          tool_call_id: 'call_eb2.b',
          content: [{ type: 'text', text: '1' }],
          name: 'g',
          cache_control: {},
        },
        { role: 'tool', tool_call_id: 'call_eba1_a', content: '' },
        { role: 'system', content: 'Now be kind.' },
        { role: 'user', content: '' },
      ],
    })
    const path = (i: number) => `messages[1].tool_calls[${i}]`
    assert.deepEqual(c.turns, [
      { role: 'user', parts: [{ type: 'text', text: 'hi' }] },
      {
        role: 'assistant',
        parts: [
          { type: 'call', id: 'call_eba1_a', kind: 'function', name: 'f', input: '{"broken', path: path(0) },
          { type: 'call', id: 'call_eb2.b', kind: 'function', name: 'g', input: '{}', path: path(1) },
        ],
      },
      {
        role: 'tool',
        parts: [
          {
            type: 'result',
            callId: 'call_eb2.b',
            kind: 'function',
            content: [{ type: 'text', text: '1' }],
            path: 'messages[2]',
          },
          {
            type: 'result',
            callId: 'call_eba1_a',
            kind: 'function',
            content: [{ type: 'text', text: '' }],
            path: 'messages[3]',
          },
        ],
      },
      { role: 'system', parts: [{ type: 'text', text: 'Now be kind.' }] },
      { role: 'user', parts: [] },
    ])
    assert.deepEqual(c.toolChoice, { type: 'allowed', mode: 'required', tools: [{ name: 'g', kind: 'function' }] })
    assert.deepEqual(c.tools, [
      {
        type: 'function',
        name: 'f',
        description: 'd',
        parameters: { type: 'object', properties: { x_unknown: { foo: 1 } } },
        path: 'tools[0]',
      },
      { type: 'function', name: 'g', parameters: { type: 'object', properties: {} }, path: 'tools[1]' },
    ])
  })

  it('[GEN-2] a replayed refusal, as member and as part', () => {
    const c = accepted(chat, {
      ...base(),
      messages: [
        user,
        { role: 'assistant', content: null, refusal: 'No.' },
        { role: 'assistant', content: [{ type: 'refusal', refusal: 'No!' }] },
      ],
    })
    assert.deepEqual(c.turns[1], {
      role: 'assistant',
      parts: [
        { type: 'refusal', text: 'No.' },
        { type: 'refusal', text: 'No!' },
      ],
    })
  })

  it('[TOOL-3] names of any length and script are declared as they are', () => {
    const name = `${'n'.repeat(80)}.tööl`
    const c = accepted(chat, { ...base(), tools: [fn(name)], tool_choice: fn(name) })
    assert.deepEqual(c.toolChoice, { type: 'tool', name, kind: 'function' })
  })

  it('[TOOL-2] a strict tool without parameters keeps the rule of strict schemas', () => {
    const { tools } = accepted(chat, { ...base(), tools: [fn('f', { strict: true }), fn('g', { parameters: null })] })
    assert.deepEqual(
      tools.map(tool => tool.type === 'function' && tool.parameters),
      [
        { type: 'object', properties: {}, required: [], additionalProperties: false },
        { type: 'object', properties: {} },
      ],
    )
  })

  it('[GEN-2] the strip mode leaves a body that parses', () => {
    const body = { ...base(), top_k: 4, messages: [{ ...user, foo: 1 }] }
    assert.deepEqual(chat.validate(body, 'strip').sort(), ['messages[0].foo', 'top_k'])
    assert.deepEqual(chat.parse(body).turns, [{ role: 'user', parts: [{ type: 'text', text: 'hi' }] }])
  })

  it('no schema is compiled for a request: a hundred thousand small bodies are checked before the runner ends this file', () => {
    const body = {
      ...base(),
      messages: [
        { role: 'system', content: 'x'.repeat(300) },
        { role: 'user', content: [{ type: 'text', text: 'y'.repeat(600) }] },
      ],
      temperature: 1,
      stream: true,
    }
    // A few microseconds each; a schema compiled for each would take 50 ms.
    for (let i = 0; i < 100_000; i++) chat.validate(body, 'reject')
  })
})
