/**
 * The Vercel AI SDK, unmodified: a multi-turn tool loop with parallel calls, an image and reasoning, on three surfaces
 * × four dialects, buffered and streamed.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { APICallError, generateText, jsonSchema, type ModelMessage, stepCountIs, streamText, tool } from 'ai'
import { KEY, startGateway, type TestGateway } from './harness.ts'

// The SDK prints hints to stderr otherwise.
;(globalThis as { AI_SDK_LOG_WARNINGS?: boolean }).AI_SDK_LOG_WARNINGS = false

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

const DIALECTS = {
  'openai-chat': 'eb1-preview',
  'openai-responses': 'eb1-efficient-preview',
  'anthropic-messages': 'eb1-fast-preview',
  gemini: 'eb1-frontier-preview',
}
const PIXEL =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='

const SURFACES = {
  chat: {
    row: 'CHAT-4',
    model: (id: string) => createOpenAI({ baseURL: `${t.url}/v1`, apiKey: KEY }).chat(id),
    options: { openai: { reasoningEffort: 'high', forceReasoning: true } },
  },
  responses: {
    row: 'RESP-5',
    model: (id: string) => createOpenAI({ baseURL: `${t.url}/v1`, apiKey: KEY }).responses(id),
    // With its default, `store: true`, the SDK replays its items as references, which are refused by contract (RESP-4).
    options: { openai: { store: false, reasoningEffort: 'high', reasoningSummary: 'auto', forceReasoning: true } },
  },
  messages: {
    row: 'MSG-1',
    model: (id: string) => createAnthropic({ baseURL: `${t.url}/v1`, authToken: KEY })(id),
    options: { anthropic: { thinking: { type: 'enabled', budgetTokens: 2000 } } },
  },
}

const weather = tool({
  description: 'Weather of a city.',
  inputSchema: jsonSchema<{ city: string }>({
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  }),
  execute: async ({ city }) => ({ weather: `cold in ${city}` }),
})

/** Two calls at once, then a third, then an answer; each with reasoning before it. */
const ASK = `[[sim: reason 2; call get_weather {"city":"Oslo"}; call get_weather {"city":"Lima"}; next call get_weather {"city":"Rome"}]] Is it cold?`

async function run(surface: keyof typeof SURFACES, id: string, stream: boolean, messages: ModelMessage[]) {
  const { model, options } = SURFACES[surface]
  const settings = {
    model: model(id),
    instructions: 'Be brief.',
    messages,
    tools: { get_weather: weather },
    stopWhen: stepCountIs(5),
    maxOutputTokens: 20_000,
    maxRetries: 0,
    providerOptions: options as any,
  }
  if (!stream) {
    const result = await generateText(settings)
    const { text, steps, finishReason, totalUsage } = result
    return { text, steps, finishReason, usage: totalUsage, messages: result.responseMessages as ModelMessage[] }
  }
  const failures: unknown[] = []
  const result = streamText({ ...settings, onError: ({ error }) => void failures.push(error) })
  const text = await result.text
  assert.deepEqual(failures, [])
  return {
    text,
    steps: await result.steps,
    finishReason: await result.finishReason,
    usage: await result.totalUsage,
    messages: (await result.responseMessages) as ModelMessage[],
  }
}

for (const surface of ['chat', 'responses', 'messages'] as const) {
  for (const [dialect, id] of Object.entries(DIALECTS)) {
    describe(`${surface} to ${dialect}`, () => {
      for (const stream of [false, true]) {
        test(`[${SURFACES[surface].row}] [TOOL-1] [TOOL-6] a tool loop of two turns with an image and reasoning, ${stream ? 'streamed' : 'buffered'}`, async () => {
          const started = t.simulator.requests.length
          const messages: ModelMessage[] = [
            {
              role: 'user',
              content: [
                { type: 'text', text: ASK },
                { type: 'file', mediaType: 'image/png', data: PIXEL },
              ],
            },
          ]
          const first = await run(surface, id, stream, messages)
          assert.equal(first.finishReason, 'stop')
          assert.deepEqual(
            first.steps.map(s => s.toolCalls.map(c => (c.input as any).city)),
            [['Oslo', 'Lima'], ['Rome'], []],
          )
          const ids = first.steps.flatMap(s => s.toolCalls.map(c => c.toolCallId))
          assert.ok(ids.every(call => /^call_eba1_/.test(call)))
          assert.equal(new Set(ids).size, 3)
          assert.match(first.text, /cold in Rome/)
          assert.match(first.text, /1 image \(image\/png\)/)
          const shown = first.steps.map(s => s.reasoningText ?? '')
          if (surface === 'chat') assert.deepEqual(shown, ['', '', ''], 'Chat has no member for reasoning')
          else assert.match(shown[0]!, /weighing what it asks/)
          assert.ok(first.usage.inputTokens! > 85)
          assert.ok(first.usage.outputTokens! > 0)

          const second = await run(surface, id, stream, [
            ...messages,
            ...first.messages,
            { role: 'user', content: '[[sim: call get_weather {"city":"Bergen"}]] and Bergen?' },
          ])
          assert.deepEqual(
            second.steps.map(s => s.toolCalls.map(c => (c.input as any).city)),
            [['Bergen'], []],
          )
          assert.match(second.text, /cold in Bergen/)

          const sent = t.simulator.requests.slice(started)
          assert.equal(sent.length, 5)
          assert.ok(sent.every(r => r.dialect === dialect && !r.body.includes('_eba1_')))
          const back = sent[1]!.body
          // The provider gets back what it signed, and the simulator verifies it.
          if (dialect === 'openai-responses')
            assert.match(back, /"type":"reasoning","encrypted_content":"gAAAAA|"encrypted_content":"gAAAAA/)
          if (dialect === 'anthropic-messages') assert.match(back, /"type":"thinking".*"signature":"[^"]+"/)
          if (dialect === 'gemini') assert.doesNotMatch(back, /skip_thought_signature_validator/)
        })
      }
    })
  }
}

for (const surface of ['chat', 'responses', 'messages'] as const) {
  test(`[ERR-1] ${surface}: a refusal is the SDK's own error, with the message, the status and no retry`, async () => {
    const { model } = SURFACES[surface]
    const call = generateText({ model: model('no-such-model'), prompt: 'x', maxRetries: 2 })
    await assert.rejects(call, error => {
      assert.ok(APICallError.isInstance(error))
      assert.equal(error.statusCode, 404)
      assert.match(error.message, /no-such-model does not exist/)
      assert.match(error.responseHeaders!['x-request-id']!, /^req_/)
      return true
    })
  })

  test(`[ERR-8] [STR-6] ${surface}: a stream that the upstream cuts is an error to the SDK, not a short answer`, async () => {
    for (const id of Object.values(DIALECTS)) {
      const kinds: string[] = []
      const result = streamText({
        model: SURFACES[surface].model(id),
        prompt: '[[sim: cut 6]] tell a story',
        providerOptions: SURFACES[surface].options as any,
        maxOutputTokens: 9000,
        maxRetries: 0,
        onError: () => void kinds.push('error'),
      })
      try {
        for await (const part of result.stream) kinds.push(part.type)
      } catch {
        kinds.push('error')
      }
      assert.ok(kinds.includes('error'), `${id}: ${kinds.join()}`)
    }
  })
}
