import assert from 'node:assert/strict'
import { test } from 'node:test'
import type Anthropic from '@anthropic-ai/sdk'
import type { FunctionTool, NativeTool, Turn } from '../../core/canon/conversation.ts'
import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import {
  backendOf,
  bodyOf,
  contextOf,
  conversationOf,
  decoderFor,
  replayOf,
  replyEvents,
  replyFrames,
  sequenced,
  unfitOf,
} from './dialect-kit.ts'

const user: Turn = { role: 'user', parts: [{ type: 'text', text: 'Hi' }] }
const weather: FunctionTool = {
  type: 'function',
  name: 'get_weather',
  parameters: { type: 'object' },
  path: 'tools[0]',
}
const bash: NativeTool = {
  type: 'native',
  version: 'bash_20250124',
  name: 'bash',
  parameters: { type: 'object', properties: { command: { type: 'string' } } },
  description: 'Runs a command.',
  path: 'tools[0]',
}

test('a request is one that the published types accept', () => {
  const body = bodyOf(
    anthropicMessages,
    {
      surface: 'messages',
      system: [{ type: 'text', text: 'Be brief.', cache: { ttl: '1h' } }],
      turns: [
        user,
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
              content: [{ type: 'text', text: 'boom', cache: {} }],
              isError: true,
              path: '',
            },
          ],
        },
        { role: 'system', parts: [{ type: 'text', text: 'Hurry.' }] },
      ],
      tools: [weather, { type: 'web_search', maxUses: 3, blockedDomains: ['e.org'], path: 'tools[1]' }, bash],
      toolChoice: { type: 'auto' },
      parallelToolCalls: false,
      reasoning: { effort: 'max', thinking: 'adaptive', summary: 'auto' },
      maxOutputTokens: 500,
      sampling: { stop: ['END'], temperature: 0.3 },
    },
    { model: 'claude-opus-5', nativeTools: ['bash_20250124'] },
  )
  const expected = {
    model: 'claude-opus-5',
    max_tokens: 500,
    system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral', ttl: '1h' } }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Hi' }] },
      { role: 'assistant', content: [{ type: 'tool_use', id: 'up_call_eba1_1', name: 'get_weather', input: {} }] },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: 'up_call_eba1_1',
            content: 'boom',
            is_error: true,
            cache_control: { type: 'ephemeral' },
          },
        ],
      },
      { role: 'system', content: [{ type: 'text', text: 'Hurry.' }] },
    ],
    tools: [
      { name: 'get_weather', input_schema: { type: 'object' } },
      { type: 'web_search_20250305', name: 'web_search', max_uses: 3, blocked_domains: ['e.org'] },
      { type: 'bash_20250124', name: 'bash' },
    ],
    tool_choice: { type: 'auto', disable_parallel_tool_use: true },
    stream: true,
    thinking: { type: 'adaptive', display: 'summarized' },
    output_config: { effort: 'max' },
    stop_sequences: ['END'],
  } satisfies Anthropic.MessageCreateParams
  assert.deepEqual(body, expected)
})

test('[TOOL-6] signed and redacted thinking goes back into the running tool loop, before its calls, and nowhere else', () => {
  const { setup, events } = replyEvents(anthropicMessages, 'thinking-and-parallel-tools')
  const conversation = { ...setup.conversation, reasoning: { effort: 'high' as const } }
  for (const all of [true, false]) {
    const reply = replayOf(events, all)
    const { messages } = bodyOf(anthropicMessages, { ...conversation, turns: [user, ...reply] })
    assert.deepEqual(
      messages[1].content.map((block: any) => block.type),
      ['thinking', 'redacted_thinking', 'text', 'thinking', 'tool_use', 'tool_use', 'tool_use'],
      all ? 'reasoning replayed' : 'only calls replayed',
    )
    assert.equal(messages[1].content[0].signature, 'EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds')
    assert.deepEqual(messages[1].content[5].input, { input: '*** Begin\n⛅ 😀 end' })

    const later = bodyOf(anthropicMessages, { ...conversation, turns: [user, ...reply, user] })
    assert.equal(JSON.stringify(later).includes('signature'), false)
    const other = bodyOf(anthropicMessages, { ...conversation, turns: [user, ...reply] }, { model: 'another' })
    assert.equal(/signature|redacted/.test(JSON.stringify(other)), false)
    const off = bodyOf(anthropicMessages, {
      ...setup.conversation,
      reasoning: { effort: 'none' },
      turns: [user, ...reply],
    })
    assert.equal(/signature|redacted/.test(JSON.stringify(off)), false)
  }
})

test('[TOOL-6] thinking that a limit cut is no end of a message', () => {
  const kept = (block: object) => ({
    type: 'reasoning' as const,
    summary: [],
    continuation: { dialect: 'anthropic-messages', model: 'large-1', data: { blocks: [block] } },
  })
  const parts = [
    kept({ type: 'thinking', thinking: 'hm', signature: 'a' }),
    kept({ type: 'redacted_thinking', data: 'b' }),
  ]
  const reasoning = { effort: 'high' as const }
  const messagesOf = (...turns: Turn[]) => bodyOf(anthropicMessages, { reasoning, turns: [user, ...turns] }).messages
  const plain = messagesOf()
  assert.deepEqual(messagesOf({ role: 'assistant', parts }), plain)
  const said = messagesOf({ role: 'assistant', parts: [parts[0]!, { type: 'text', text: 'So' }, parts[1]!] })
  assert.deepEqual(
    said.slice(1).map((message: any) => message.content.map((block: any) => block.type)),
    [['thinking', 'text'], ['text']],
  )
  const told: Turn = { role: 'system', parts: [{ type: 'text', text: 'Go on.' }] }
  assert.deepEqual(messagesOf({ role: 'assistant', parts }, told), messagesOf(told))
})

test('[MSG-6] a replayed thinking block without a signature is never sent', () => {
  const turns: Turn[] = [
    user,
    {
      role: 'assistant',
      parts: [
        { type: 'reasoning', summary: ['I think'] },
        {
          type: 'reasoning',
          summary: ['I think'],
          continuation: {
            dialect: 'anthropic-messages',
            model: 'large-1',
            data: { blocks: [{ type: 'thinking', thinking: 'I think', signature: '' }] },
          },
        },
        { type: 'call', id: 'call_eba1_1', kind: 'function', name: 'get_weather', input: '{}', path: '' },
      ],
    },
    { role: 'tool', parts: [{ type: 'result', callId: 'call_eba1_1', kind: 'function', content: [], path: '' }] },
  ]
  const body = bodyOf(anthropicMessages, { turns, tools: [weather], reasoning: { thinking: 'adaptive' } })
  assert.deepEqual(
    body.messages[1].content.map((block: any) => block.type),
    ['tool_use'],
  )
})

test('thinking that is lost from a running tool loop is not demanded back: models with budgets go on without', () => {
  const { events } = replyEvents(anthropicMessages, 'tool-use')
  const turns = [user, ...replayOf(events, false)]
  const reasoning = { thinking: 'enabled', budgetTokens: 2000 } as const
  const init = { turns, tools: [weather], reasoning, maxOutputTokens: 4000 }
  assert.deepEqual(bodyOf(anthropicMessages, init, { model: 'claude-sonnet-4-5' }).thinking, { type: 'disabled' })
  assert.deepEqual(bodyOf(anthropicMessages, init, { model: 'claude-sonnet-4-6' }).thinking, { type: 'adaptive' })
  assert.deepEqual(bodyOf(anthropicMessages, { ...init, turns: [user] }, { model: 'claude-sonnet-4-5' }).thinking, {
    type: 'enabled',
    budget_tokens: 2000,
  })
})

test('search results go back verbatim to the model that made them, else as text', () => {
  const { setup, events } = replyEvents(anthropicMessages, 'web-search')
  const turns = [user, ...replayOf(events, true), user]
  const own = bodyOf(anthropicMessages, { ...setup.conversation, turns }).messages[1].content
  assert.deepEqual(
    own.map((block: any) => block.type),
    [
      'text',
      'server_tool_use',
      'web_search_tool_result',
      'server_tool_use',
      'web_search_tool_result',
      'text',
      'text',
      'text',
    ],
  )
  assert.equal(own[2].content[0].encrypted_content, 'Ev0DCioIAxgCIiQ3NmU4ZmI4OC1k')
  const other = bodyOf(anthropicMessages, { ...setup.conversation, turns }, { model: 'another' }).messages[1].content
  assert.ok(other.every((block: any) => block.type === 'text'))
  assert.match(other[1].text, /weather NYC today/)
})

test('a paused search is sent back to be continued', () => {
  const { setup, events } = replyEvents(anthropicMessages, 'pause')
  const { messages } = bodyOf(anthropicMessages, { ...setup.conversation, turns: [user, ...replayOf(events, true)] })
  assert.equal(messages.length, 2)
  assert.equal(messages[1].content.at(-1).type, 'server_tool_use')
})

test('[MSG-4] client-executed tools are native where the backend has the version, else functions of the same shape', () => {
  const native = bodyOf(anthropicMessages, { tools: [bash] }, { nativeTools: ['bash_20250124'] })
  assert.deepEqual(native.tools, [{ type: 'bash_20250124', name: 'bash' }])
  const plain = bodyOf(anthropicMessages, { tools: [bash] })
  assert.deepEqual(plain.tools, [{ name: 'bash', description: 'Runs a command.', input_schema: bash.parameters }])
  assert.ok(anthropicMessages.nativeTools.has('memory_20250818'))
})

test('at most four cache markers go out', () => {
  const parts = Array.from({ length: 6 }, (_, i) => ({ type: 'text' as const, text: `t${i}`, cache: {} }))
  const body = bodyOf(anthropicMessages, { turns: [{ role: 'user', parts }] })
  assert.equal(body.messages[0].content.filter((block: any) => block.cache_control).length, 4)
})

test('[METER-5] figures of message_delta replace those of message_start', () => {
  const { events } = replyEvents(anthropicMessages, 'cache-usage')
  const usage = sequenced(events).filter(event => event.type === 'usage')
  assert.deepEqual(usage, [
    { type: 'usage', usage: { prompt: 10_005, cached: 9000, cacheWrite: 1000, cacheWriteHour: 0, output: 7 } },
  ])
})

test('[METER-4] thinking tokens are the report of the model', () => {
  const { events } = replyEvents(anthropicMessages, 'thinking-omitted')
  const usage = sequenced(events).find(event => event.type === 'usage')
  assert.equal(usage?.usage.reasoning, 30)
})

test('thinking and effort by generation of the model', () => {
  const plan = (reasoning: object, model: string, more: object = {}) => {
    const { thinking, output_config, max_tokens } = bodyOf(anthropicMessages, { reasoning, ...more }, { model })
    return { thinking, effort: output_config?.effort, max_tokens }
  }
  const adaptive = { type: 'adaptive' }
  const cases: [object, string, { thinking?: object; effort?: string; max_tokens?: number }][] = [
    [{}, 'claude-opus-4-6', {}],
    [{ effort: 'low' }, 'claude-opus-4-6', { effort: 'low' }],
    [{ effort: 'minimal' }, 'claude-opus-4-6', { effort: 'low' }],
    [{ effort: 'medium' }, 'claude-opus-4-6', { effort: 'medium', thinking: adaptive }],
    [{ effort: 'xhigh' }, 'claude-opus-4-6', { effort: 'high', thinking: adaptive }],
    [{ effort: 'xhigh' }, 'claude-opus-4-8', { effort: 'xhigh', thinking: adaptive }],
    [{ effort: 'ultra' }, 'claude-sonnet-5-5', { effort: 'max', thinking: adaptive }],
    [{ effort: 'none' }, 'claude-opus-4-6', { thinking: { type: 'disabled' } }],
    [{ effort: 'none' }, 'claude-opus-4-7', {}],
    [{ effort: 'none' }, 'claude-mythos-5', { effort: 'low' }],
    [{ thinking: 'enabled', budgetTokens: 9000 }, 'claude-opus-4-7', { effort: 'high', thinking: adaptive }],
    [
      { thinking: 'enabled', budgetTokens: 9000, summary: 'auto' },
      'claude-haiku-4-5',
      { thinking: { type: 'enabled', budget_tokens: 9000, display: 'summarized' }, max_tokens: 17_192 },
    ],
    [
      { effort: 'high' },
      'claude-sonnet-4-20250514',
      { thinking: { type: 'enabled', budget_tokens: 16_384 }, max_tokens: 24_576 },
    ],
    [
      { effort: 'high' },
      'claude-opus-4-5-20251101',
      { effort: 'high', thinking: { type: 'enabled', budget_tokens: 16_384 }, max_tokens: 24_576 },
    ],
    [{ effort: 'low' }, 'claude-3-7-sonnet-20250219', {}],
    [{ thinking: 'between_tools' }, 'claude-opus-5-5', { thinking: { type: 'between_tools' } }],
    [{ thinking: 'between_tools' }, 'claude-opus-4-6', { thinking: adaptive }],
    [{ thinking: 'disabled', effort: 'high' }, 'claude-opus-4-6', { effort: 'high', thinking: { type: 'disabled' } }],
  ]
  for (const [reasoning, model, expected] of cases) {
    const found = plan(reasoning, model)
    assert.deepEqual(
      found,
      { thinking: undefined, effort: undefined, max_tokens: 8192, ...expected },
      `${JSON.stringify(reasoning)} on ${model}`,
    )
  }
})

test('a budget stays below the cap, and where none fits there is no thinking', () => {
  const thinking = (maxOutputTokens: number) =>
    bodyOf(anthropicMessages, { reasoning: { effort: 'high' }, maxOutputTokens }, { model: 'claude-sonnet-4-5' })
      .thinking
  assert.deepEqual(thinking(3000), { type: 'enabled', budget_tokens: 2999 })
  assert.deepEqual(thinking(1000), { type: 'disabled' })
})

test('sampling gives way to thinking and to models that refuse it', () => {
  const sampling = { temperature: 1.7, topP: 0.5, topK: 40 }
  const sent = (model: string, reasoning: object = {}) => {
    const { temperature, top_p, top_k } = bodyOf(anthropicMessages, { sampling, reasoning }, { model })
    return { temperature, top_p, top_k }
  }
  assert.deepEqual(sent('compatible'), { temperature: 1, top_p: 0.5, top_k: 40 })
  assert.deepEqual(sent('claude-sonnet-4-5'), { temperature: 1, top_p: undefined, top_k: 40 })
  assert.deepEqual(sent('claude-opus-4-7'), { temperature: undefined, top_p: undefined, top_k: undefined })
  const thinking = { effort: 'high' }
  assert.deepEqual(sent('compatible', thinking), { temperature: undefined, top_p: undefined, top_k: undefined })
})

test('a forced tool choice switches off thinking that only an effort asked for', () => {
  const init = { tools: [weather], toolChoice: { type: 'required' }, reasoning: { effort: 'high' } } as const
  const body = bodyOf(anthropicMessages, { ...init, tools: [weather] }, { model: 'claude-opus-4-6' })
  assert.equal(body.thinking, undefined)
  assert.deepEqual(body.output_config, { effort: 'high' })
  assert.deepEqual(bodyOf(anthropicMessages, { ...init, tools: [weather] }, { model: 'claude-opus-5' }).thinking, {
    type: 'disabled',
  })
})

test('[REQ-1] what the dialect can’t carry names its member', () => {
  const forced = { tools: [weather], toolChoice: { type: 'required' as const } }
  assert.equal(unfitOf(anthropicMessages, forced), null)
  assert.equal(unfitOf(anthropicMessages, forced, { model: 'claude-mythos-5' }), 'tool_choice')
  assert.equal(unfitOf(anthropicMessages, { ...forced, reasoning: { thinking: 'adaptive' } }), 'tool_choice')
  assert.equal(unfitOf(anthropicMessages, { ...forced, reasoning: { effort: 'high' } }), null)
  assert.equal(unfitOf(anthropicMessages, { surface: 'chat', sampling: { logprobs: true } }), 'logprobs')
  assert.equal(unfitOf(anthropicMessages, { sampling: { topK: 3 } }), null)
  assert.equal(unfitOf(anthropicMessages, { sampling: { topK: 3 } }, { model: 'claude-opus-4-8' }), 'top_k')
  const turns: Turn[] = [user, { role: 'assistant', parts: [{ type: 'text', text: 'It is (' }] }]
  assert.equal(unfitOf(anthropicMessages, { surface: 'messages', turns }), null)
  assert.equal(unfitOf(anthropicMessages, { surface: 'messages', turns }, { model: 'claude-opus-4-6' }), 'messages')
  assert.equal(unfitOf(anthropicMessages, { surface: 'chat', turns }, { model: 'claude-opus-4-6' }), null)
  assert.equal(
    unfitOf(
      anthropicMessages,
      { reasoning: { effort: 'high' }, surface: 'chat' },
      { model: 'claude-3-5-haiku-20241022' },
    ),
    'reasoning_effort',
  )
})

test('[AUTH-7] [ERR-6] [ERR-7] error bodies of the provider map by their type', () => {
  const fault = (status: number, type: string, message = 'claude says no', headers = {}) =>
    anthropicMessages.fault(
      status,
      headers,
      JSON.stringify({ type: 'error', error: { type, message }, request_id: 'req_1' }),
    )
  const cases: [number, string, string | undefined, string][] = [
    [401, 'authentication_error', undefined, 'upstream_auth_error'],
    [403, 'permission_error', undefined, 'upstream_auth_error'],
    [402, 'billing_error', undefined, 'insufficient_quota'],
    [400, 'invalid_request_error', 'Your credit balance is too low to access the API', 'insufficient_quota'],
    [400, 'invalid_request_error', 'prompt is too long: 210000 tokens > 200000 maximum', 'context_length_exceeded'],
    [400, 'invalid_request_error', 'messages.0: bad', 'upstream_server_error'],
    [408, 'invalid_request_error', undefined, 'gateway_timeout'],
    [404, 'not_found_error', undefined, 'upstream_server_error'],
    [413, 'request_too_large', undefined, 'upstream_server_error'],
    [429, 'rate_limit_error', undefined, 'capacity_exceeded'],
    [500, 'api_error', undefined, 'upstream_server_error'],
    [504, 'timeout_error', undefined, 'gateway_timeout'],
    [529, 'overloaded_error', undefined, 'provider_unavailable'],
  ]
  for (const [status, type, message, code] of cases) {
    const found = fault(status, type, message)
    assert.equal(found.code, code, type)
    assert.doesNotMatch(found.message, /claude|anthropic|credit/i)
  }
  assert.equal(fault(429, 'rate_limit_error', 'x', { 'retry-after': '12' }).horizonMs, 12_000)
  assert.equal(anthropicMessages.fault(529, {}, 'not json').code, 'provider_unavailable')
})

test('a request without a cap takes the model’s', () => {
  assert.equal(bodyOf(anthropicMessages, {}, { maxOutputTokens: 64_000 }).max_tokens, 64_000)
  assert.equal(bodyOf(anthropicMessages, {}).max_tokens, 8192)
  assert.equal(bodyOf(anthropicMessages, { maxOutputTokens: 1 }, { maxOutputTokens: 64_000 }).max_tokens, 1)
  assert.equal(conversationOf().maxOutputTokens, undefined)
})

test('the provider’s terminal event ends the reading, not the end of the connection', () => {
  const decoder = decoderFor(anthropicMessages, conversationOf())
  const frames = replyFrames(anthropicMessages, 'text')
  for (const frame of frames) decoder.frame(frame.event, frame.data, () => undefined)
  assert.equal(decoder.done, true)
})

test('of a client’s betas only those that the dialect carries go on, beside the operator’s', () => {
  const beta = (previews: string[] | undefined, headers: Record<string, string> = {}) =>
    anthropicMessages.request(conversationOf({ surface: 'messages' }), backendOf(anthropicMessages, { headers }), {
      ...contextOf(),
      previews,
    }).headers['anthropic-beta']
  const some = ['claude-code-20250219', 'interleaved-thinking-2025-05-14', 'effort-2025-11-24', 'context-1m-2025-08-07']
  assert.equal(beta(undefined), undefined)
  assert.equal(beta(['unheard-of-2030-01-01', '']), undefined)
  assert.equal(beta(some), 'interleaved-thinking-2025-05-14,effort-2025-11-24')
  const operators = { 'Anthropic-Beta': 'context-1m-2025-08-07, effort-2025-11-24' }
  assert.equal(beta(undefined, operators), 'context-1m-2025-08-07, effort-2025-11-24')
  assert.equal(beta(some, operators), 'context-1m-2025-08-07,effort-2025-11-24,interleaved-thinking-2025-05-14')
})

test('the headers of a backend’s requests are one object, and one more for the betas that its clients ask for', () => {
  const backend = backendOf(anthropicMessages)
  const headers = (stream: boolean, previews?: string[]) =>
    anthropicMessages.request(conversationOf({ surface: 'messages' }), backend, { ...contextOf(), stream, previews })
      .headers
  const plain = headers(true)
  const beta = headers(true, ['effort-2025-11-24'])
  assert.equal(beta['anthropic-beta'], 'effort-2025-11-24')
  assert.equal(headers(true, ['effort-2025-11-24']), beta)
  assert.equal(headers(true, ['interleaved-thinking-2025-05-14'])['anthropic-beta'], 'interleaved-thinking-2025-05-14')
  assert.equal(headers(true, ['effort-2025-11-24'])['anthropic-beta'], 'effort-2025-11-24')
  assert.equal(headers(true), plain)
  assert.equal(plain['anthropic-beta'], undefined)
  assert.deepEqual([plain['accept'], headers(false)['accept']], ['text/event-stream', 'application/json'])
})

test('[REQ-2] a union of thousands of branches at a schema’s top becomes one object in the time that its size takes', () => {
  const branch = (name: string) => ({ properties: Object.fromEntries([[name, {}]]) })
  const names = Array.from({ length: 20_000 }, (_, i) => `a${i}`)
  const parameters = { anyOf: [...names, '__proto__', 'a0'].map(branch), properties: { z: {}, a1: { type: 'string' } } }
  const { properties } = bodyOf(anthropicMessages, { turns: [user], tools: [{ ...weather, parameters }] }).tools[0]
    .input_schema
  assert.deepEqual(Object.keys(properties), [...names, '__proto__', 'z'])
  assert.deepEqual(properties.a1, { type: 'string' })
})

test('[RESP-4] a choice allows tools by name and namespace', () => {
  const tool = (name: string, namespace?: string): FunctionTool => ({ ...weather, name, namespace })
  const { tools } = bodyOf(anthropicMessages, {
    turns: [user],
    tools: [tool('f'), tool('f', 'n'), tool('g', 'n'), tool('h'), bash, { type: 'web_search', path: '' }],
    toolChoice: {
      type: 'allowed',
      mode: 'auto',
      tools: [
        { name: 'f', kind: 'function' },
        { name: 'g', namespace: 'n', kind: 'function' },
        { name: 'bash', kind: 'function' },
      ],
    },
  })
  assert.deepEqual(
    tools.map((one: { name: string }) => one.name),
    ['f', 'n__g', 'bash'],
  )
})

/** The markers of a request for a conversation whose client has none, by what carries them. */
function marksOf(model: string, characters: number): string[] {
  const text = (length: number) => ({ type: 'text', text: 'x'.repeat(length) }) as const
  const body: any = bodyOf(
    anthropicMessages,
    {
      surface: 'chat',
      system: [text(characters)],
      turns: [user, { role: 'assistant', parts: [text(5)] }, user],
    },
    { model, settings: { provider: { cache_control: 'auto' }, backend: {} } },
  )
  return [...body.system, ...body.messages.flatMap((m: any) => m.content)]
    .filter(block => block.cache_control)
    .map(block => `${block.text.length}`)
}

test('what is marked for clients without markers begins at the minimum of the model', () => {
  for (const [model, minimum] of [
    ['claude-opus-5', 512],
    ['claude-mythos-preview', 512],
    ['claude-sonnet-5', 1024],
    ['claude-opus-4-8', 1024],
    ['claude-opus-4-7', 2048],
    ['claude-opus-4-6', 4096],
    ['claude-opus-4-5-20251101', 4096],
    ['claude-opus-4-1-20250805', 1024],
    ['claude-sonnet-4-6', 2048],
    ['claude-sonnet-4-5-20250929', 1024],
    ['claude-sonnet-4-20250514', 1024],
    ['claude-3-7-sonnet-20250219', 1024],
    ['claude-haiku-4-5', 4096],
    ['claude-3-5-haiku-latest', 2048],
    ['claude-next', 4096],
    ['some-other-model', 1024],
  ] as const) {
    const characters = 4 * minimum
    // Names of members are counted too, a handful of characters in each block.
    assert.deepEqual(marksOf(model, characters - 100), [], model)
    assert.deepEqual(marksOf(model, characters).slice(0, 1), [`${characters}`], model)
  }
})
