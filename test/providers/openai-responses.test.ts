import assert from 'node:assert/strict'
import { test } from 'node:test'
import type OpenAI from 'openai'
import type { FunctionTool } from '../../core/canon/conversation.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { openaiResponses } from '../../providers/openai-responses/index.ts'
import {
  backendOf,
  bodyOf,
  contextOf,
  conversationOf,
  decodeFrames,
  decoderFor,
  printed,
  replayOf,
  replyEvents,
  replyFrames,
  unfitOf,
} from './dialect-kit.ts'

const weather: FunctionTool = {
  type: 'function',
  name: 'get_weather',
  description: 'Weather',
  parameters: { type: 'object', properties: {}, additionalProperties: false, required: [] },
  strict: true,
  path: 'tools[0]',
}

test('a request is one that the published types accept', () => {
  const body = bodyOf(
    openaiResponses,
    {
      system: [{ type: 'text', text: 'Be brief.' }],
      turns: [
        { role: 'user', parts: [{ type: 'text', text: 'Hi' }] },
        {
          role: 'assistant',
          parts: [{ type: 'call', id: 'call_eba1_1', kind: 'function', name: 'get_weather', input: '{}', path: '' }],
        },
        {
          role: 'tool',
          parts: [
            {
              type: 'result',
              callId: 'call_eba1_1',
              kind: 'function',
              content: [{ type: 'text', text: '12' }],
              path: '',
            },
          ],
        },
      ],
      tools: [
        weather,
        { type: 'custom', name: 'patch', grammar: { syntax: 'regex', definition: 'a+' }, path: 'tools[1]' },
      ],
      toolChoice: { type: 'allowed', mode: 'auto', tools: [{ name: 'patch', kind: 'custom' }] },
      parallelToolCalls: false,
      reasoning: { effort: 'high', summary: 'auto' },
      maxOutputTokens: 500,
      verbosity: 'low',
    },
    { model: 'gpt-5.4' },
  )
  const expected = {
    model: 'gpt-5.4',
    instructions: 'Be brief.',
    input: [
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hi' }] },
      { type: 'function_call', call_id: 'up_call_eba1_1', name: 'get_weather', arguments: '{}' },
      { type: 'function_call_output', call_id: 'up_call_eba1_1', output: '12' },
    ],
    store: false,
    stream: true,
    include: ['reasoning.encrypted_content'],
    max_output_tokens: 500,
    reasoning: { effort: 'high', summary: 'auto' },
    text: { verbosity: 'low' },
    tools: [
      {
        type: 'function',
        name: 'get_weather',
        description: 'Weather',
        parameters: { type: 'object', properties: {}, additionalProperties: false, required: [] },
        strict: true,
      },
      { type: 'custom', name: 'patch', format: { type: 'grammar', syntax: 'regex', definition: 'a+' } },
    ],
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'custom', name: 'patch' }] },
    parallel_tool_calls: false,
  } satisfies OpenAI.Responses.ResponseCreateParams
  assert.deepEqual(body, expected)
})

test('[TOOL-6] encrypted reasoning goes back before the call it led to, once, whether the client replays reasoning or not', () => {
  const { setup, events } = replyEvents(openaiResponses, 'reasoning-and-parallel-calls')
  for (const all of [true, false]) {
    const turns = [conversationOf().turns[0]!, ...replayOf(events, all)]
    const { input } = bodyOf(openaiResponses, { ...setup.conversation, turns }, setup.backend)
    assert.deepEqual(
      input.map((item: any) => item.type),
      [
        'message',
        'reasoning',
        'message',
        'function_call',
        'function_call',
        'custom_tool_call',
        'function_call_output',
        'function_call_output',
        'custom_tool_call_output',
      ],
    )
    assert.equal(input[1].encrypted_content, 'gAAAAABoISQ24OyVRYbk')
    assert.equal('id' in input[1], false)
    assert.equal(input[4].name, 'mcp__search_docs__a63b3e9b5e')
  }
})

test('[TOOL-6] private data of another model or dialect is dropped whole', () => {
  const { setup, events } = replyEvents(openaiResponses, 'reasoning-and-parallel-calls')
  const turns = [conversationOf().turns[0]!, ...replayOf(events, true)]
  const other = bodyOf(openaiResponses, { ...setup.conversation, turns }, { model: 'gpt-5.5' })
  assert.equal(JSON.stringify(other).includes('gAAAA'), false)
  for (const turn of turns) {
    for (const part of turn.parts) if ('continuation' in part && part.continuation) part.continuation.dialect = 'gemini'
  }
  const foreign = bodyOf(openaiResponses, { ...setup.conversation, turns }, setup.backend)
  assert.equal(JSON.stringify(foreign).includes('gAAAA'), false)
})

test('a hosted search goes back as the item it was', () => {
  const { setup, events } = replyEvents(openaiResponses, 'web-search')
  const turns = [conversationOf().turns[0]!, ...replayOf(events, true), conversationOf().turns[0]!]
  const { input } = bodyOf(openaiResponses, { ...setup.conversation, turns }, setup.backend)
  assert.deepEqual(
    input.map((item: any) => item.type),
    ['message', 'web_search_call', 'web_search_call', 'message', 'message'],
  )
})

test('[GEN-7] links lose the mark that names the provider', () => {
  const { events } = replyEvents(openaiResponses, 'web-search')
  assert.equal(JSON.stringify(events).includes('utm_source'), false)
})

test('reasoning effort is the nearest level of the model that is not above the wish', () => {
  const effort = (reasoning: object, model: string, ceiling?: any) =>
    bodyOf(openaiResponses, { reasoning }, { model, effortCeiling: ceiling }).reasoning?.effort
  assert.equal(effort({}, 'gpt-5.4'), undefined)
  assert.equal(effort({ effort: 'none' }, 'gpt-5.4'), 'none')
  assert.equal(effort({ effort: 'none' }, 'gpt-5'), 'minimal')
  assert.equal(effort({ effort: 'none' }, 'o3'), 'low')
  assert.equal(effort({ effort: 'xhigh' }, 'o3'), 'high')
  assert.equal(effort({ effort: 'xhigh' }, 'gpt-5.4'), 'xhigh')
  assert.equal(effort({ effort: 'ultra' }, 'some-model'), 'max')
  assert.equal(effort({ effort: 'ultra' }, 'some-model', 'high'), 'high')
  assert.equal(effort({ thinking: 'enabled', budgetTokens: 1500 }, 'gpt-5.4'), 'low')
  assert.equal(effort({ thinking: 'enabled', budgetTokens: 7999 }, 'gpt-5.4'), 'medium')
  assert.equal(effort({ thinking: 'enabled', budgetTokens: 8000 }, 'gpt-5.4'), 'high')
  assert.equal(effort({ thinking: 'enabled', budgetTokens: 40_000 }, 'gpt-5.4'), 'xhigh')
  assert.equal(effort({ thinking: 'enabled', budgetTokens: 40_000, effort: 'low' }, 'gpt-5.4'), 'low')
  assert.equal(effort({ thinking: 'disabled' }, 'gpt-5.4'), 'none')
})

test('a model that does not reason gets neither reasoning nor its include, and keeps its sampling', () => {
  const body = bodyOf(
    openaiResponses,
    { reasoning: { summary: 'auto' }, sampling: { temperature: 0.5 } },
    { model: 'gpt-4o' },
  )
  assert.equal(body.reasoning, undefined)
  assert.equal(body.include, undefined)
  assert.equal(body.temperature, 0.5)
  assert.equal(bodyOf(openaiResponses, { sampling: { temperature: 0.5 } }, { model: 'o3' }).temperature, undefined)
})

test('[REQ-1] what the dialect can’t carry names its member', () => {
  const image = {
    type: 'image',
    source: { kind: 'url', url: 'https://e.org/a.png' },
    path: 'input[0].content[0].image_url',
  } as const
  assert.equal(unfitOf(openaiResponses, {}), null)
  assert.equal(unfitOf(openaiResponses, { sampling: { topK: 5 } }), 'top_k')
  assert.equal(unfitOf(openaiResponses, { sampling: { topK: 0 } }), null)
  assert.equal(unfitOf(openaiResponses, { turns: [{ role: 'user', parts: [image] }] }), null)
  assert.equal(
    unfitOf(openaiResponses, { turns: [{ role: 'user', parts: [image] }] }, { supports: ['tools'] }),
    image.path,
  )
  assert.equal(unfitOf(openaiResponses, { tools: [weather] }, { supports: [] }), 'tools[0]')
  assert.equal(unfitOf(openaiResponses, { tools: [weather] }, { supports: ['tools'] }), 'tools[0].strict')
  assert.equal(
    unfitOf(openaiResponses, { surface: 'chat', tools: [weather] }, { supports: ['tools'] }),
    'tools[0].function.strict',
  )
  assert.equal(
    unfitOf(
      openaiResponses,
      { tools: [weather], toolChoice: { type: 'required' } },
      { supports: ['tools', 'strict_tools'] },
    ),
    'tool_choice',
  )
  const prefill = [
    { role: 'user', parts: [] },
    { role: 'assistant', parts: [{ type: 'text', text: 'x' }] },
  ] as any
  assert.equal(unfitOf(openaiResponses, { surface: 'messages', turns: prefill }), 'messages')
  assert.equal(unfitOf(openaiResponses, { surface: 'chat', turns: prefill }), null)
  assert.equal(
    unfitOf(openaiResponses, { surface: 'chat', sampling: { logprobs: true } }, { model: 'gpt-5.4' }),
    'logprobs',
  )
  assert.equal(unfitOf(openaiResponses, { surface: 'chat', sampling: { logprobs: true } }, { model: 'gpt-4o' }), null)
  assert.equal(unfitOf(openaiResponses, { reasoning: { effort: 'high' } }, { model: 'gpt-4o' }), 'reasoning.effort')
  assert.equal(unfitOf(openaiResponses, { reasoning: { effort: 'high' } }, { supports: [] }), 'reasoning.effort')
  assert.equal(unfitOf(openaiResponses, { reasoning: { effort: 'none' } }, { supports: [] }), null)
  assert.equal(
    unfitOf(openaiResponses, { tools: [{ type: 'web_search', blockedDomains: ['e.org'], path: 'tools[0]' }] }),
    'tools[0].blocked_domains',
  )
  assert.equal(
    unfitOf(openaiResponses, { maxOutputTokens: 10, maxOutputField: 'max_tokens' }, { maxOutputTokens: 9 }),
    'max_tokens',
  )
})

test('[TOOL-5] a single call in a turn needs a backend that can do it', () => {
  const conversation = { surface: 'messages', tools: [weather], parallelToolCalls: false } as const
  const rest = [...openaiResponses.capabilities].filter(capability => capability !== 'single_tool_call')
  assert.equal(unfitOf(openaiResponses, { ...conversation, tools: [weather] }), null)
  assert.equal(
    unfitOf(openaiResponses, { ...conversation, tools: [weather] }, { supports: rest }),
    'tool_choice.disable_parallel_tool_use',
  )
})

test('[ERR-7] error bodies of the provider map by their code, and nothing of them is repeated', () => {
  const fault = (status: number, error: object, headers = {}) =>
    openaiResponses.fault(
      status,
      headers,
      JSON.stringify({ error: { message: 'gpt-5.4 in org-x', type: null, param: null, ...error } }),
    )
  const cases: [number, object, string, boolean][] = [
    [401, { code: 'invalid_api_key' }, 'upstream_auth_error', false],
    [403, { code: null }, 'upstream_auth_error', false],
    [429, { code: 'insufficient_quota', type: 'insufficient_quota' }, 'insufficient_quota', false],
    [429, { code: 'rate_limit_exceeded', type: 'tokens' }, 'capacity_exceeded', true],
    [400, { code: 'context_length_exceeded' }, 'context_length_exceeded', false],
    [400, { code: 'unsupported_parameter', type: 'invalid_request_error' }, 'upstream_server_error', false],
    [500, { type: 'server_error' }, 'upstream_server_error', true],
    [503, {}, 'provider_unavailable', true],
  ]
  for (const [status, error, code, retriable] of cases) {
    const found = fault(status, error)
    assert.equal(found.code, code, JSON.stringify(error))
    assert.equal(found.retriable, retriable, code)
    assert.doesNotMatch(found.message, /gpt|org-x|openai/i)
  }
  assert.equal(fault(429, { code: 'rate_limit_exceeded' }, { 'retry-after': '7' }).horizonMs, 7000)
  assert.equal(openaiResponses.fault(502, {}, '<html>Bad gateway</html>').code, 'upstream_server_error')
})

test('an affinity key goes as prompt_cache_key', () => {
  const request = openaiResponses.request(conversationOf(), backendOf(openaiResponses), {
    ...contextOf(),
    cacheKey: 'k1',
  })
  assert.equal(JSON.parse(request.body).prompt_cache_key, 'k1')
})

test('the provider’s terminal event ends the reading, not the end of the connection', () => {
  const decoder = decoderFor(openaiResponses, conversationOf())
  const frames = replyFrames(openaiResponses, 'text')
  for (const frame of frames) decoder.frame(frame.event, frame.data, () => undefined)
  assert.equal(decoder.done, true)
})

// ---- items without an output_index ------------------------------------------------------------------------------------

const item = (id: string, name: string, args = '') => ({
  id,
  type: 'function_call',
  call_id: `c_${name}`,
  name,
  arguments: args,
})
const added = (id: string, name: string, more: object = {}) => ({
  type: 'response.output_item.added',
  item: item(id, name),
  ...more,
})
const args = (id: string, delta: string, more: object = {}) => ({
  type: 'response.function_call_arguments.delta',
  item_id: id,
  delta,
  ...more,
})
const done = (id: string, name: string, whole: string, more: object = {}) => ({
  type: 'response.output_item.done',
  item: item(id, name, whole),
  ...more,
})
const completed = (...output: object[]) => ({ type: 'response.completed', response: { status: 'completed', output } })

/** The calls of a stream, with their arguments; and the kind of its last event. */
function callsOf(...frames: { type: string }[]): [calls: string[], last: string | undefined] {
  const decoder = decoderFor(openaiResponses, conversationOf({}), backendOf(openaiResponses))
  const calls: string[] = []
  let last: string | undefined
  const push = (event: StreamEvent) => {
    last = event.type
    if (event.type === 'tool_call') calls[event.index] = `${event.name} `
    else if (event.type === 'tool_args') calls[event.index] += event.text
    else if (event.type === 'tool_end') calls[event.index] += ' end'
  }
  for (const frame of frames) decoder.frame(frame.type, JSON.stringify(frame), push)
  decoder.end(push)
  return [calls, last]
}

// llama.cpp names items by their id alone. All were taken for item 0: the arguments of parallel calls ran together, and
// a call after text was delivered twice.
// A frame that repeats 40 KB of tools was read, though nothing in it is used.
test('long bookkeeping is not read, and every other long frame is', () => {
  const long = 'x'.repeat(3000)
  const text = (type: string, more = '') =>
    `{"type":"${type}","sequence_number":0,"response":{"instructions":"${long}"${more}}}`
  const read = (...frames: string[]) =>
    decodeFrames(
      openaiResponses,
      {},
      frames.map(data => ({ event: '', data })),
    )
  const rest = [
    '{"type":"response.output_text.delta","delta":"hi"}',
    text('response.completed', ',"status":"completed"'),
  ]
  const whole = read(...rest)
  assert.deepEqual(
    whole.map(({ type }) => type),
    ['text', 'finish'],
  )
  for (const type of ['response.created', 'response.in_progress', 'response.queued']) {
    assert.deepEqual(read(text(type), ...rest), whole)
    assert.deepEqual(read(`${text(type).slice(0, -9)}}`, ...rest), whole)
  }
  assert.match(printed(read(text('response.failed', ',"error":{"code":"server_error"}'))), /upstream_server_error/)
  assert.match(printed(read(text('response.output_text.delta').slice(0, -9))), /upstream_server_error/)
})

test('items without an output_index are told apart by their ids, whichever comes first, and none comes twice', () => {
  const both = [['f {"a":1} end', 'g {"b":2} end'], 'finish']
  const whole = [item('x', 'f', '{"a":1}'), item('y', 'g', '{"b":2}')]
  const begun = [added('x', 'f'), args('x', '{"a"'), added('y', 'g'), args('y', '{"b":2}'), args('x', ':1}')]
  assert.deepEqual(callsOf(...begun, completed(...whole)), both)
  assert.deepEqual(callsOf(...begun, completed(...whole.toReversed())), [['f {"a":1} end', 'g {"b":2} end'], 'finish'])
  assert.deepEqual(callsOf(completed(...whole)), both)
  // Other ids at the end: they are the items that began in that place.
  const others = [item('x2', 'f', '{"a":1}'), item('y2', 'g', '{"b":2}')]
  assert.deepEqual(callsOf(...begun, completed(...others)), both)
  // A call that only the end has, beside one of the stream.
  assert.deepEqual(callsOf(added('x', 'f'), args('x', '{"a":1}'), completed(...whole)), both)
  // An id that is used again when its item is done.
  assert.deepEqual(
    callsOf(added('x', 'f'), done('x', 'f', '{"a":1}'), added('x', 'g'), done('x', 'g', '{"b":2}'), completed()),
    both,
  )
})

test('an output_index counts more than an id, and the whole response is matched by ids that are one item’s', () => {
  const both = [['f {"a":1} end', 'g {"b":2} end'], 'finish']
  const [at0, at1] = [{ output_index: 0 }, { output_index: 1 }]
  const same = [added('x', 'f', at0), args('x', '{"a":1}', at0), added('x', 'g', at1), args('x', '{"b":2}', at1)]
  assert.deepEqual(callsOf(...same, completed(item('x', 'f', '{"a":1}'), item('x', 'g', '{"b":2}'))), both)
  const own = [added('x', 'f', at0), args('x', '{"a":1}', at0), added('y', 'g', at1), args('y', '{"b":2}', at1)]
  assert.deepEqual(callsOf(...own, completed(item('y', 'g', '{"b":2}'), item('x', 'f', '{"a":1}'))), both)
})

test('an item that is announced twice at its output_index is one item', () => {
  const at0 = { output_index: 0 }
  assert.deepEqual(
    callsOf(
      added('x', 'f', at0),
      added('x', 'f', at0),
      args('x', '{"a":1}', at0),
      completed(item('x', 'f', '{"a":1}')),
    ),
    [['f {"a":1} end'], 'finish'],
  )
})

test('two open items with one id and no output_index are an error, and so are too many items', () => {
  assert.deepEqual(callsOf(added('x', 'f'), args('x', '{'), added('x', 'g')), [['f {'], 'error'])
  const many = Array.from({ length: 10_010 }, (_, i) => added(`x${i}`, 'f'))
  const [calls, last] = callsOf(...many, completed())
  assert.equal(last, 'error')
  assert.ok(calls.length <= 10_001)
  const ids = Array.from({ length: 10_010 }, (_, i) => args(`x${i}`, '', { output_index: 0 }))
  assert.equal(callsOf(...ids, completed())[1], 'error')
})

// OpenAI's servers refuse a cap below 16. It was raised, and nothing told the client that its cap does not hold.
test('a cap below 16 is raised, and named', () => {
  const sent = (cap: number, maxOutputField?: string) => {
    const conversation = conversationOf({ maxOutputTokens: cap, maxOutputField })
    const request = openaiResponses.request(conversation, backendOf(openaiResponses, {}), contextOf())
    return [JSON.parse(request.body).max_output_tokens, request.adjusted!.map(({ control, sent }) => [control, sent])]
  }
  assert.deepEqual(sent(3, 'max_output_tokens'), [16, [['max_output_tokens', '16']]])
  assert.deepEqual(sent(3), [16, []], 'not a cap of the client')
  assert.deepEqual(sent(16, 'max_output_tokens'), [16, []])
})
