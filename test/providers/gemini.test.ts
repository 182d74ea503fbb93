import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { FunctionTool, Turn } from '../../core/canon/conversation.ts'
import { gemini } from '../../providers/gemini/index.ts'
import { bodyOf, decodeBody, replayOf, replyEvents, sequenced, unfitOf } from './dialect-kit.ts'

const user: Turn = { role: 'user', parts: [{ type: 'text', text: 'Hi' }] }
const weather: FunctionTool = {
  type: 'function',
  name: 'get_weather',
  parameters: { type: 'object' },
  path: 'tools[0]',
}
const search = { type: 'web_search', path: 'tools[1]' } as const

test('[TOOL-6] the signature of a call goes back on its part; a lost one is the documented stand-in, on the first call only', () => {
  const { setup, events } = replyEvents(gemini, 'thoughts-and-parallel-calls')
  for (const all of [true, false]) {
    const turns = [user, ...replayOf(events, all)]
    const signatures = (backend: object) =>
      bodyOf(gemini, { ...setup.conversation, turns }, backend)
        .contents[1].parts.filter((part: any) => part.functionCall)
        .map((part: any) => part.thoughtSignature)
    assert.deepEqual(signatures(setup.backend!), ['EpoGCpcGAXLI2nw3XqSN', undefined, undefined])
    assert.deepEqual(signatures({ model: 'gemini-3-pro-preview' }), [
      'skip_thought_signature_validator',
      undefined,
      undefined,
    ])
    assert.deepEqual(signatures({ model: 'gemini-2.5-pro' }), [undefined, undefined, undefined])
  }
})

test('[TOOL-6] the signature of a call whose arguments a client changed does not go back', () => {
  const { setup, events } = replyEvents(gemini, 'thoughts-and-parallel-calls')
  const signed = (change: (call: any) => object) => {
    let first = true
    const turns = [user, ...replayOf(events, true)].map(turn => ({
      ...turn,
      parts: turn.parts.map(part => {
        if (part.type !== 'call' || !first) return part
        first = false
        return { ...part, ...change(part) }
      }),
    }))
    const [call] = bodyOf(gemini, { ...setup.conversation, turns }, setup.backend!).contents[1].parts.filter(
      (part: any) => part.functionCall,
    )
    return call.thoughtSignature
  }
  const standIn = 'skip_thought_signature_validator'
  const input = (call: any) => JSON.parse(call.input)
  assert.equal(
    signed(call => ({ input: JSON.stringify(input(call), null, 2) })),
    'EpoGCpcGAXLI2nw3XqSN',
  )
  assert.equal(
    signed(call => ({ input: JSON.stringify({ ...input(call), id: 'call_1' }) })),
    standIn,
  )
  assert.equal(
    signed(() => ({ input: '{}' })),
    standIn,
  )
  // What 0.1.0 kept says nothing of the arguments.
  const old = (call: any) => ({ ...call.continuation, data: { signature: call.continuation.data.signature } })
  assert.equal(
    signed(call => ({ input: '{}', continuation: old(call) })),
    'EpoGCpcGAXLI2nw3XqSN',
  )
})

test('[CHAT-1] a seed goes in the 32 bits that the API has for it, the same each time', () => {
  const seedOf = (seed: number) => bodyOf(gemini, { surface: 'chat', sampling: { seed } }).generationConfig.seed
  for (const seed of [0, 7, -1, 2 ** 31 - 1, -(2 ** 31)]) assert.equal(seedOf(seed), seed)
  for (const seed of [2 ** 31, -(2 ** 31) - 1, 1_732_000_000_001, 2 ** 63, -(2 ** 63)]) {
    const sent = seedOf(seed)
    assert.ok(Number.isInteger(sent) && sent >= 0 && sent < 2 ** 31, `${seed} as ${sent}`)
    assert.equal(seedOf(seed), sent)
  }
  assert.notEqual(seedOf(1_732_000_000_001), seedOf(1_732_000_000_002))
})

test('[TOOL-3] a name the API refuses goes as an alias and comes back as declared', () => {
  const { setup, events } = replyEvents(gemini, 'thoughts-and-parallel-calls')
  const body = bodyOf(gemini, setup.conversation!, setup.backend)
  const [, odd] = body.tools[0].functionDeclarations
  assert.match(odd.name, /^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$/)
  const call = events.filter(event => event.type === 'tool_call')[1]!
  assert.deepEqual([call.name, call.namespace], ['9 lives', 'mcp'])
})

test('thinking by level or by budget, as the model has it', () => {
  const config = (reasoning: object, model: string) =>
    bodyOf(gemini, { reasoning }, { model }).generationConfig?.thinkingConfig
  assert.equal(config({}, 'gemini-3-flash-preview'), undefined)
  assert.deepEqual(config({ summary: 'auto' }, 'gemini-3-flash-preview'), { includeThoughts: true })
  assert.deepEqual(config({ effort: 'minimal' }, 'gemini-3-flash-preview'), { thinkingLevel: 'MINIMAL' })
  assert.deepEqual(config({ effort: 'none' }, 'gemini-3-pro-preview'), { thinkingLevel: 'LOW' })
  assert.deepEqual(config({ effort: 'medium' }, 'gemini-3-pro-preview'), { thinkingLevel: 'LOW' })
  assert.deepEqual(config({ effort: 'medium' }, 'gemini-3.1-pro-preview'), { thinkingLevel: 'MEDIUM' })
  assert.deepEqual(config({ effort: 'ultra' }, 'gemini-3-flash-preview'), { thinkingLevel: 'HIGH' })
  assert.deepEqual(config({ effort: 'none' }, 'gemini-2.5-flash'), { thinkingBudget: 0 })
  assert.deepEqual(config({ effort: 'none' }, 'gemini-2.5-pro'), { thinkingBudget: 128 })
  assert.deepEqual(config({ effort: 'high' }, 'gemini-2.5-flash'), { thinkingBudget: 16_384 })
  assert.deepEqual(config({ effort: 'max' }, 'gemini-2.5-flash'), { thinkingBudget: 24_576 })
  assert.deepEqual(config({ thinking: 'enabled', budgetTokens: 3000 }, 'gemini-2.5-pro'), { thinkingBudget: 3000 })
  assert.deepEqual(config({ thinking: 'enabled', budgetTokens: 3000 }, 'gemini-3-flash-preview'), {
    thinkingLevel: 'MEDIUM',
  })
  assert.equal(config({ summary: 'auto' }, 'gemini-2.0-flash'), undefined)
})

test('stop strings are matched upstream, but for Messages, which has to name the one that matched', () => {
  const stops = (surface: 'chat' | 'messages', stop: string[]) =>
    bodyOf(gemini, { surface, sampling: { stop } }).generationConfig?.stopSequences
  assert.deepEqual(stops('chat', ['END']), ['END'])
  assert.equal(stops('messages', ['END']), undefined)
  assert.equal(stops('messages', ['a', 'b', 'c', 'd', 'e', 'f']), undefined)
})

test('[REQ-1] what the dialect can’t carry names its member', () => {
  assert.equal(unfitOf(gemini, { tools: [weather], parallelToolCalls: false }), 'parallel_tool_calls')
  assert.equal(unfitOf(gemini, { parallelToolCalls: false }), null)
  const image = {
    type: 'image',
    source: { kind: 'url', url: 'https://e.org/a.png' },
    path: 'messages[0].content[0]',
  } as const
  assert.equal(unfitOf(gemini, { turns: [{ role: 'user', parts: [image] }] }), image.path)
  const gif = { ...image, source: { kind: 'data', mediaType: 'image/gif', data: 'R0lGODlh' } } as const
  for (const [model, fault] of [
    ['gemini-2.0-flash', image.path],
    ['gemini-3-pro-preview', image.path],
    ['compatible', null],
  ] as const) {
    assert.equal(unfitOf(gemini, { turns: [user, { role: 'user', parts: [gif] }] }, { model }), fault)
    const result = { type: 'result' as const, callId: 'c', kind: 'function' as const, content: [gif], path: '' }
    assert.equal(unfitOf(gemini, { turns: [user, { role: 'tool', parts: [result] }] }, { model }), fault)
  }
  const strict: FunctionTool = { ...weather, strict: true }
  assert.equal(unfitOf(gemini, { tools: [strict] }, { model: 'gemini-2.5-pro' }), null)
  assert.equal(unfitOf(gemini, { tools: [strict] }, { model: 'gemini-2.0-flash' }), 'tools[0].strict')
  assert.equal(unfitOf(gemini, { tools: [weather, search] }, { model: 'gemini-2.5-pro' }), 'tools[1]')
  assert.equal(unfitOf(gemini, { tools: [weather, search] }), null)
  assert.equal(unfitOf(gemini, { tools: [search] }, { model: 'gemini-2.5-pro' }), null)
  assert.equal(unfitOf(gemini, { tools: [{ ...search, allowedDomains: ['e.org'] }] }), 'tools[1].allowed_domains')
  // A bound on the number of searches is named in x-adjusted: one grounded reply does not reach it.
  assert.equal(unfitOf(gemini, { tools: [{ ...search, maxUses: 2 }] }), null)
  assert.equal(unfitOf(gemini, { tools: [search], maxSearches: 2 }), null)
  assert.equal(unfitOf(gemini, { maxSearches: 2 }), null)
  const named = { type: 'tool', name: 'web_search', kind: 'web_search' } as const
  assert.equal(unfitOf(gemini, { tools: [search], toolChoice: named }), 'tool_choice')
  assert.equal(unfitOf(gemini, { reasoning: { effort: 'high' } }, { model: 'gemini-2.0-flash' }), 'reasoning.effort')
  assert.equal(unfitOf(gemini, { sampling: { topK: 9 } }), null)
})

test('[METER-5] the prompt holds what the search read, and the output the thoughts', () => {
  const usage = sequenced(replyEvents(gemini, 'grounding').events).find(event => event.type === 'usage')
  assert.deepEqual(usage?.usage, { prompt: 40, output: 25, reasoning: 5, searches: 1 })
})

test('[STR-3] thoughts that ate the budget end as length with their tokens reported', () => {
  const events = sequenced(replyEvents(gemini, 'thoughts-ate-the-budget').events)
  assert.deepEqual(events.slice(-2), [
    { type: 'usage', usage: { prompt: 8, output: 64, reasoning: 64 } },
    { type: 'finish', reason: 'length' },
  ])
})

test('[AUTH-7] [ERR-6] [ERR-7] error bodies of the provider map by their status name', () => {
  const fault = (code: number, status: string, message = 'no', details: object[] = []) =>
    gemini.fault(code, {}, JSON.stringify({ error: { code, status, message, details } }))
  const quota = (quotaId: string) => [
    { '@type': 'type.googleapis.com/google.rpc.QuotaFailure', violations: [{ quotaId }] },
    { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '34.5s' },
  ]
  assert.equal(fault(401, 'UNAUTHENTICATED').code, 'upstream_auth_error')
  assert.equal(fault(403, 'PERMISSION_DENIED').code, 'upstream_auth_error')
  const badKey = fault(400, 'INVALID_ARGUMENT', 'API key not valid.', [{ reason: 'API_KEY_INVALID' }])
  assert.equal(badKey.code, 'upstream_auth_error')
  const minute = fault(429, 'RESOURCE_EXHAUSTED', 'quota', quota('GenerateRequestsPerMinutePerProjectPerModel'))
  assert.deepEqual([minute.code, minute.horizonMs], ['capacity_exceeded', 34_500])
  const day = fault(429, 'RESOURCE_EXHAUSTED', 'quota', quota('GenerateRequestsPerDayPerProjectPerModel-FreeTier'))
  assert.deepEqual([day.code, day.horizonMs], ['insufficient_quota', null])
  const long = fault(
    400,
    'INVALID_ARGUMENT',
    'The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).',
  )
  assert.equal(long.code, 'context_length_exceeded')
  const refused = fault(400, 'INVALID_ARGUMENT', 'Invalid JSON payload received.')
  assert.deepEqual([refused.code, refused.retriable], ['upstream_server_error', false])
  assert.equal(fault(503, 'UNAVAILABLE').code, 'provider_unavailable')
  assert.equal(fault(504, 'DEADLINE_EXCEEDED').code, 'gateway_timeout')
  assert.equal(fault(500, 'INTERNAL').code, 'upstream_server_error')
  assert.equal(gemini.fault(503, {}, '[{"error":{"code":503,"status":"UNAVAILABLE"}}]').code, 'provider_unavailable')
  assert.equal(gemini.fault(404, {}, '').code, 'upstream_server_error')
})

test('[GEN-7] pages behind a redirect of the provider are shown as their site, or not at all', () => {
  const redirect = (n: number) => `https://vertexaisearch.cloud.google.com/grounding-api-redirect/${n}`
  const chunks = [
    { web: { uri: redirect(0), title: 'uefa.com' } },
    { web: { uri: redirect(1), title: 'uefa.com' } },
    { web: { uri: redirect(2), title: 'Euro 2024', domain: 'En.Wikipedia.org' } },
    { web: { uri: redirect(3), title: 'A page. With a sentence for a title' } },
    { web: { uri: redirect(4) } },
    { web: { uri: 'https://example.com/page', title: 'Itself' } },
    { web: { uri: 'no url', title: 'example.com' } },
    { retrievedContext: { uri: redirect(5) } },
  ]
  const text = 'Spain won.'
  const groundingMetadata = {
    webSearchQueries: ['euro'],
    groundingChunks: chunks,
    groundingSupports: [{ segment: { endIndex: 10, text }, groundingChunkIndices: [0, 1, 2, 3, 4, 5, 6, 7] }],
  }
  const candidate = { content: { parts: [{ text }] }, finishReason: 'STOP', groundingMetadata }
  const setup = { conversation: { tools: [search] } }
  const events = decodeBody(gemini, setup, JSON.stringify({ candidates: [candidate] }))
  const pages = [
    { title: 'uefa.com', url: 'https://uefa.com/' },
    { title: 'Euro 2024', url: 'https://en.wikipedia.org/' },
    { title: 'Itself', url: 'https://example.com/page' },
  ]
  const place = { start: 0, end: 10, citedText: text }
  assert.deepEqual(
    events.filter(event => event.type === 'citation').map(event => event.citation),
    pages.map(page => ({ ...page, ...place })),
  )
  assert.deepEqual(events.find(event => event.type === 'search_end')?.results, pages)
})

// A server that ends calls with a reason of its own, FUNCTION_CALL, lost its whole reply; after a stream of the call, the
// client got an error.
test('a finish reason that is not Google’s ends a reply that has output, and Google’s own failures stay failures', () => {
  const call = { functionCall: { name: 'get_weather', args: {} } }
  const ended = (finishReason: string, ...parts: object[]) => {
    const body = JSON.stringify({ candidates: [{ content: { parts }, finishReason }] })
    const last = decodeBody(gemini, { conversation: { tools: [weather] } }, body).at(-1)!
    return last.type === 'finish' ? last.reason : last.type
  }
  assert.equal(ended('FUNCTION_CALL', call), 'tool_calls')
  assert.equal(ended('END', { text: 'x' }), 'stop')
  assert.equal(ended('END'), 'error')
  for (const failed of ['OTHER', 'MALFORMED_FUNCTION_CALL', 'UNEXPECTED_TOOL_CALL', 'MALFORMED_RESPONSE'])
    assert.equal(ended(failed, call), 'error', failed)
})
