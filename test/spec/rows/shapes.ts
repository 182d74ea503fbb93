import assert from 'node:assert/strict'
import OpenAI from 'openai'
import { DIALECTS } from '../kit/gateways.ts'
import { section } from '../kit/row.ts'
import { SCHEMA, tool } from '../kit/shapes.ts'

const models = Object.values(DIALECTS)

export const shapes = section('Responses and Messages shapes', 'shapes', [
  {
    at: 'Responses',
    says: 'input is a string or typed items',
    async check(w) {
      for (const input of ['hello', [{ role: 'user', content: [{ type: 'input_text', text: 'hello' }] }]])
        assert.match((await w.well('responses', { more: { input } })).text, /hello/)
      return 'both'
    },
  },
  {
    at: 'Responses',
    says: 'text is in text parts of output, and in the SDK’s output_text',
    async check(w) {
      const client = new OpenAI({ baseURL: w.base, apiKey: w.key(), maxRetries: 0 })
      for (const model of models) {
        const reply = await client.responses.create({ model, input: '[[sim: text "one two"]]' })
        assert.equal(reply.output_text, 'one two')
        assert.equal((await w.well('responses', { model, say: '[[sim: text "one two"]]' })).text, 'one two')
      }
      return 'on four dialects'
    },
  },
  {
    at: 'Responses',
    says: 'previous_response_id, store, tool_choice (allowed_tools too) and input_image.detail (original too) are taken',
    async check(w) {
      const first = await w.well('responses', { more: { store: true } })
      await w.well('responses', { more: { previous_response_id: first.json.id } })
      const tool_choice = { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'weather' }] }
      await w.well('responses', { more: { tools: [tool('responses')], tool_choice } })
      const part = { type: 'input_image', image_url: 'data:image/png;base64,iVBORw0KGgo=', detail: 'original' }
      await w.well('responses', { more: { input: [{ role: 'user', content: [part] }] } })
      return 'all are answered with 200'
    },
  },
  {
    at: 'Responses',
    says: 'a response has status and incomplete_details.reason',
    async check(w) {
      for (const model of models) {
        assert.equal((await w.well('responses', { model })).end, 'completed')
        const cut = await w.well('responses', { model, say: '[[sim: tokens 90]]', cap: 20 })
        assert.equal(cut.end, 'incomplete max_output_tokens')
      }
      return 'completed; incomplete with max_output_tokens'
    },
  },
  {
    at: 'Responses',
    says: 'a response may have a warning',
    async check(w) {
      const reply = await w.well('responses', { say: '[[sim: hidden 100]]', cap: 50 })
      assert.ok(reply.json.warning, String(reply))
      return JSON.stringify(reply.json.warning)
    },
  },
  {
    at: 'Messages',
    says: 'messages and a top-level system',
    async check(w) {
      for (const model of models) {
        for (const system of ['be brief', [{ type: 'text', text: 'be brief' }]]) {
          await w.well('messages', { model, more: { system } })
          assert.match(JSON.stringify(w.forwarded), /be brief/)
        }
      }
      return 'as text and as blocks, on four dialects'
    },
  },
  {
    at: 'Messages',
    says: 'text is in text blocks of content',
    async check(w) {
      for (const model of models) {
        const { json } = await w.well('messages', { model, say: '[[sim: text "one two"]]' })
        assert.deepEqual(
          json.content.map(({ type, text }: any) => [type, text]),
          [['text', 'one two']],
        )
      }
      return 'on four dialects'
    },
  },
  {
    at: 'Messages',
    says: 'output_config.effort, adaptive thinking and custom tools with input_schema are taken',
    async check(w) {
      for (const model of models) {
        await w.well('messages', { model, more: { output_config: { effort: 'low' } } })
        await w.well('messages', { model, more: { thinking: { type: 'adaptive' } } })
        const tools = [{ type: 'custom', name: 'weather', input_schema: SCHEMA }]
        const say = '[[sim: call weather {"city":"Ulm"}]]'
        assert.equal((await w.well('messages', { model, say, more: { tools } })).calls.length, 1)
      }
      return 'on four dialects'
    },
  },
  {
    at: 'Messages',
    says: 'a reply has stop_reason',
    async check(w) {
      for (const model of models) {
        for (const stream of [false, true]) {
          const reason = async (say: string, more = {}) => (await w.well('messages', { model, stream, say, more })).end
          assert.equal(await reason('hello'), 'end_turn')
          assert.equal(await reason('[[sim: tokens 90]]', { max_tokens: 20 }), 'max_tokens')
          const more = { tools: [tool('messages')] }
          assert.equal(await reason('[[sim: call weather {"city":"Ulm"}]]', more), 'tool_use')
        }
      }
      return 'end_turn, max_tokens, tool_use on four dialects'
    },
  },
  {
    at: 'Messages',
    says: 'summaries of thinking stream as thinking_delta',
    async check(w) {
      for (const model of [DIALECTS['openai-responses'], DIALECTS['anthropic-messages'], DIALECTS.gemini]) {
        const more = { thinking: { type: 'adaptive', display: 'summarized' }, output_config: { effort: 'high' } }
        const reply = await w.well('messages', { model, stream: true, more, say: '[[sim: reason 2]]' })
        assert.ok(
          reply.frames.some(({ data }) => data.delta?.type === 'thinking_delta'),
          model,
        )
      }
      return 'on the three dialects that have summaries'
    },
  },
])
