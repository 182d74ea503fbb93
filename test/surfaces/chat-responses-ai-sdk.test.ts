import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai'
import { GatewayError } from '../../core/canon/errors.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import type { Surface } from '../../core/ports/surface.ts'
import { chat } from '../../surfaces/chat/index.ts'
import { responses } from '../../surfaces/responses/index.ts'
import { encode } from './openai-kit.ts'
import { accepted } from './request-kit.ts'

// The SDK prints hints to stderr otherwise, e.g. that reasoning without encrypted content is not replayed.
;(globalThis as { AI_SDK_LOG_WARNINGS?: boolean }).AI_SDK_LOG_WARNINGS = false

const stop = { type: 'finish' as const, reason: 'stop' as const }
const call = (index: number, city: string): StreamEvent[] => [
  { type: 'tool_call', index, id: `call_eba1_${index}`, kind: 'function', name: 'get_weather' },
  { type: 'tool_args', index, text: '{"city":' },
  { type: 'tool_args', index, text: `"${city}"}` },
  { type: 'tool_end', index },
]

/** A provider whose requests are checked, parsed and answered by the surface: two calls first, then text. */
function provider(surface: Surface, failure?: GatewayError) {
  const turns: string[][] = []
  const openai = createOpenAI({
    apiKey: 'sk-test',
    baseURL: 'http://gateway.invalid/v1',
    fetch: async (_url, init) => {
      const body = JSON.parse(String(init?.body))
      const conversation = accepted(surface, body)
      turns.push(conversation.turns.map(t => t.role))
      const events: StreamEvent[] = conversation.turns.some(t => t.role === 'tool')
        ? [{ type: 'reasoning_end' }, { type: 'text', text: 'Both ' }, { type: 'text', text: 'are cold.' }]
        : [
            { type: 'reasoning', text: 'hm', part: 0 },
            { type: 'reasoning_end' },
            ...call(0, 'Oslo'),
            ...call(1, 'Bergen'),
          ]
      const { sse, object } = encode(surface, body, { events, end: failure ?? stop })
      return body.stream
        ? new Response(sse, { headers: { 'content-type': 'text/event-stream; charset=utf-8' } })
        : new Response(JSON.stringify(object), { headers: { 'content-type': 'application/json' } })
    },
  })
  return { turns, model: surface.name === 'chat' ? openai.chat('eb1-preview') : openai.responses('eb1-preview') }
}

const weather = tool({
  description: 'Weather of a city.',
  inputSchema: jsonSchema<{ city: string }>({
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  }),
  execute: async ({ city }) => `cold in ${city}`,
})
const settings = {
  prompt: 'Weather?',
  tools: { get_weather: weather },
  stopWhen: stepCountIs(3),
  maxRetries: 0,
  // Stored items come back as references, which are refused by contract (RESP-4).
  providerOptions: { openai: { store: false } },
}

for (const surface of [chat, responses]) {
  const row = surface.name === 'chat' ? 'CHAT-4' : 'RESP-5'
  describe(`${surface.name} and the AI SDK`, () => {
    it(`[${row}] a tool loop with parallel calls, buffered`, async () => {
      const { model, turns } = provider(surface)
      const result = await generateText({ model, ...settings })
      assert.equal(result.text, 'Both are cold.')
      assert.equal(result.finishReason, 'stop')
      assert.deepEqual(turns, [['user'], ['user', 'assistant', 'tool']])
      assert.deepEqual(
        result.steps[0]!.toolCalls.map(c => [c.toolCallId, c.input]),
        [
          ['call_eba1_0', { city: 'Oslo' }],
          ['call_eba1_1', { city: 'Bergen' }],
        ],
      )
      assert.deepEqual([result.usage.inputTokens, result.usage.outputTokens], [240, 60], 'summed over both steps')
    })

    it(`[${row}] a tool loop with parallel calls, streamed`, async () => {
      const { model, turns } = provider(surface)
      const result = streamText({ model, ...settings })
      assert.equal(await result.text, 'Both are cold.')
      assert.deepEqual(turns, [['user'], ['user', 'assistant', 'tool']])
      const steps = await result.steps
      assert.deepEqual(
        steps.map(s => s.finishReason),
        ['tool-calls', 'stop'],
      )
      const usage = await result.usage
      assert.deepEqual([usage.inputTokens, usage.outputTokens], [240, 60], 'summed over both steps')
    })

    it('[ERR-8] an error frame is an error part', async () => {
      const { model } = provider(
        surface,
        new GatewayError('provider_unavailable', { message: 'A dependency is gone.' }),
      )
      const errors: unknown[] = []
      const result = streamText({ model, ...settings, onError: ({ error }) => void errors.push(error) })
      const kinds: string[] = []
      for await (const part of result.stream) kinds.push(part.type)
      assert.ok(kinds.includes('error'), kinds.join())
      assert.ok(errors.length > 0)
    })
  })
}
