/** Three surfaces × four dialects, buffered and streamed, from the official clients: text, a parallel tool loop, images, reasoning. */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

/** One model for each dialect; see the harness. */
const DIALECTS = {
  'openai-chat': 'eb1-preview',
  'openai-responses': 'eb1-efficient-preview',
  'anthropic-messages': 'eb1-fast-preview',
  gemini: 'eb1-frontier-preview',
}
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const CITIES = ['Oslo', 'Lima']
const ASK = '[[sim: call get_weather {"city":"Oslo"}]] [[sim: call get_weather {"city":"Lima"}]] weather?'
const schema = { type: 'object' as const, properties: { city: { type: 'string' } }, required: ['city'] }

for (const [dialect, model] of Object.entries(DIALECTS)) {
  for (const stream of [false, true]) {
    describe(`${dialect} ${stream ? 'streamed' : 'buffered'}`, () => {
      test('[GEN-1] [TOOL-1] chat: parallel tool loop', async () => {
        const client = t.openai()
        const tools = [{ type: 'function' as const, function: { name: 'get_weather', parameters: schema } }]
        const call = async (messages: any[]) =>
          stream
            ? client.chat.completions.stream({ model, messages, tools }).finalChatCompletion()
            : client.chat.completions.create({ model, messages, tools })
        const messages: any[] = [{ role: 'user', content: ASK }]
        const first = (await call(messages)).choices[0]!
        assert.equal(first.finish_reason, 'tool_calls')
        const calls = first.message.tool_calls as any[]
        assert.deepEqual(
          calls.map(c => JSON.parse(c.function.arguments).city),
          CITIES,
        )
        assert.equal(new Set(calls.map(c => c.id)).size, 2)
        messages.push(first.message, ...calls.map(c => ({ role: 'tool', tool_call_id: c.id, content: 'sunny' })))
        const second = (await call(messages)).choices[0]!
        assert.equal(second.finish_reason, 'stop')
        assert.ok(second.message.content)
      })

      test('[GEN-1] [TOOL-1] [RESP-2] responses: parallel tool loop by previous_response_id', async () => {
        const client = t.openai()
        const tools = [{ type: 'function' as const, name: 'get_weather', parameters: schema, strict: false }]
        const call = async (body: any) =>
          stream
            ? client.responses.stream({ model, tools, ...body }).finalResponse()
            : client.responses.create({ model, tools, ...body })
        const first = await call({ input: ASK })
        const calls = first.output.filter((o: any) => o.type === 'function_call') as any[]
        assert.deepEqual(
          calls.map(c => JSON.parse(c.arguments).city),
          CITIES,
        )
        assert.ok(calls.every(c => c.call_id.startsWith('call_eba1_') && c.id.startsWith('item_eba1_')))
        const second = await call({
          previous_response_id: first.id,
          input: calls.map(c => ({ type: 'function_call_output', call_id: c.call_id, output: 'sunny' })),
        })
        assert.equal(second.status, 'completed')
        assert.ok(second.output_text)
        assert.equal(second.previous_response_id, first.id)
      })

      test('[GEN-1] [TOOL-1] [MSG-1] messages: parallel tool loop', async () => {
        const client = t.anthropic()
        const tools = [{ name: 'get_weather', input_schema: schema }]
        const call = async (messages: any[]) =>
          stream
            ? client.messages.stream({ model, max_tokens: 1000, messages, tools }).finalMessage()
            : client.messages.create({ model, max_tokens: 1000, messages, tools })
        const messages: any[] = [{ role: 'user', content: ASK }]
        const first = await call(messages)
        assert.equal(first.stop_reason, 'tool_use')
        const uses = first.content.filter((b: any) => b.type === 'tool_use') as any[]
        assert.deepEqual(
          uses.map(u => u.input.city),
          CITIES,
        )
        messages.push(
          { role: 'assistant', content: first.content },
          { role: 'user', content: uses.map(u => ({ type: 'tool_result', tool_use_id: u.id, content: 'sunny' })) },
        )
        const second = await call(messages)
        assert.equal(second.stop_reason, 'end_turn')
        assert.ok(second.content.some((b: any) => b.type === 'text' && b.text))
      })

      test('[CHAT-3] [METER-3] an image reaches the model from every surface', async () => {
        const chat = await t.openai().chat.completions.create({
          model,
          messages: [
            {
              role: 'user',
              content: [
                { type: 'text', text: 'what is this?' },
                { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } },
              ],
            },
          ],
        })
        const responses = await t.openai().responses.create({
          model,
          input: [
            {
              role: 'user',
              content: [
                { type: 'input_text', text: 'what is this?' },
                { type: 'input_image', image_url: `data:image/png;base64,${PIXEL}`, detail: 'auto' },
              ],
            },
          ],
        })
        const messages = await t.anthropic().messages.create({
          model,
          max_tokens: 500,
          messages: [
            {
              role: 'user',
              content: [
                { type: 'text', text: 'what is this?' },
                { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PIXEL } },
              ],
            },
          ],
        })
        const texts = [
          chat.choices[0]!.message.content,
          responses.output_text,
          messages.content.map((b: any) => b.text ?? '').join(''),
        ]
        for (const text of texts) assert.match(text!, /image/i)
        const prompts = [
          chat.usage!.prompt_tokens,
          responses.usage!.input_tokens,
          messages.usage.input_tokens +
            (messages.usage.cache_read_input_tokens ?? 0) +
            (messages.usage.cache_creation_input_tokens ?? 0),
        ]
        assert.equal(new Set(prompts).size, 1, `[METER-1] one count on all surfaces: ${prompts}`)
        assert.ok(prompts[0]! >= 85)
      })

      test('[MSG-6] [METER-4] reasoning: summaries on Responses and Messages, tokens inside the output', async () => {
        const ask = '[[sim: reason 3]] think'
        const client = t.openai()
        const body = { model, input: ask, reasoning: { effort: 'high' as const, summary: 'auto' as const } }
        const response: any = stream
          ? await client.responses.stream(body).finalResponse()
          : await client.responses.create(body)
        const item = response.output.find((o: any) => o.type === 'reasoning')
        assert.ok(item, 'a reasoning item')
        assert.ok(response.usage.output_tokens_details.reasoning_tokens > 0)
        assert.ok(response.usage.output_tokens > response.usage.output_tokens_details.reasoning_tokens)
        const anthropic = t.anthropic()
        const ask2 = {
          model,
          max_tokens: 4000,
          messages: [{ role: 'user' as const, content: ask }],
          thinking: { type: 'adaptive' as const },
        }
        const message: any = stream
          ? await anthropic.messages.stream(ask2 as any).finalMessage()
          : await anthropic.messages.create(ask2 as any)
        const thinking = message.content.find((b: any) => b.type === 'thinking')
        assert.ok(thinking?.thinking, 'a thinking block')
        assert.equal(thinking.signature, '')
      })
    })
  }
}
