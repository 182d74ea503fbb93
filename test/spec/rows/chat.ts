import assert from 'node:assert/strict'
import { idles } from '../kit/clocks.ts'
import { DIALECTS } from '../kit/gateways.ts'
import { section } from '../kit/row.ts'
import { image, tool } from '../kit/shapes.ts'

const USER = { role: 'user', content: 'hello' }
const models = Object.values(DIALECTS)
/** Makes a reply of fifty words, each of which is a token. */
const FIFTY = `[[sim: text "${'word '.repeat(50).trim()}"]]`

export const fields = section('Chat Completions request fields', 'fields', [
  {
    at: 'model',
    says: 'model is required, and an id that is returned for the key',
    async check(w) {
      const reply = await w.ask('chat', { more: { model: undefined } })
      assert.deepEqual([reply.status, reply.code, reply.error.param], [400, 'missing_required_parameter', 'model'])
      for (const { id } of await w.models()) await w.well('chat', { model: id })
      return reply.error.message
    },
  },
  {
    at: 'messages',
    says: 'messages are required, at least one, each with role and content',
    async check(w) {
      for (const messages of [
        undefined,
        [],
        [{ role: 'user' }],
        [{ content: 'hello' }],
        [{ role: 'x', content: 'a' }],
      ]) {
        const reply = await w.ask('chat', { more: { messages } })
        assert.equal(reply.status, 400, String(reply))
        assert.match(reply.error.param, /^messages/)
      }
      return '400 messages for none, an empty list, and a message without role or content'
    },
  },
  {
    at: 'messages',
    says: 'the role system carries instructions',
    async check(w) {
      for (const model of models) {
        await w.well('chat', { model, more: { messages: [{ role: 'system', content: 'be brief' }, USER] } })
        assert.match(JSON.stringify(w.forwarded), /be brief/)
      }
      return 'they reach four dialects'
    },
  },
  {
    at: 'messages',
    says: 'the role user may hold image_url parts',
    async check(w) {
      for (const model of models) {
        await w.well('chat', { model, more: image('chat') })
        assert.match(JSON.stringify(w.forwarded), /iVBORw0KGgo/)
      }
      return 'they reach four dialects'
    },
  },
  {
    at: 'stream',
    says: 'a boolean; true returns SSE',
    async check(w) {
      assert.match((await w.well('chat', { stream: true })).header('content-type')!, /^text\/event-stream/)
      assert.match((await w.well('chat', { stream: false })).header('content-type')!, /^application\/json/)
      assert.equal((await w.ask('chat', { more: { stream: 'yes' } })).error.param, 'stream')
      return 'true, false, and 400 for a text'
    },
  },
  {
    at: 'temperature, top_p, stop, seed, logprobs, user, metadata',
    says: 'all are accepted',
    async check(w) {
      const each = { temperature: 0.5, top_p: 0.9, stop: ['END'], seed: 7, user: 'u', metadata: { a: 'b' } }
      for (const model of models) {
        for (const [name, value] of Object.entries(each)) await w.well('chat', { model, more: { [name]: value } })
        await w.well('chat', { model, more: each })
      }
      const reply = await w.well('chat', { more: { logprobs: true, top_logprobs: 2 } })
      assert.ok(reply.json.choices[0].logprobs.content.length > 0)
      return 'one by one and together, on four dialects; logprobs come back'
    },
  },
  {
    at: 'max_tokens or max_completion_tokens',
    says: 'each is the cap of the output',
    async check(w) {
      for (const model of models) {
        for (const name of ['max_tokens', 'max_completion_tokens']) {
          for (const stream of [false, true]) {
            const reply = await w.well('chat', { model, stream, say: FIFTY, more: { [name]: 20 } })
            assert.deepEqual([reply.end, reply.text.trim().split(' ').length], ['length', 20], model)
          }
        }
      }
      return '20 words of 50, and length'
    },
  },
  {
    at: 'tools',
    says: 'function tools in the nested shape',
    async check(w) {
      await w.well('chat', { more: { tools: [tool('chat')] } })
      const flat = await w.ask('chat', { more: { tools: [tool('responses')] } })
      assert.equal(flat.status, 400, String(flat))
      return `tools[].function; the flat shape is 400 ${flat.code}`
    },
  },
  {
    at: 'tool_choice, parallel_tool_calls',
    says: 'both are accepted',
    async check(w) {
      const named = { type: 'function', function: { name: 'weather' } }
      for (const model of models) {
        for (const tool_choice of ['auto', 'none', 'required', named]) {
          for (const parallel_tool_calls of [true, false])
            await w.well('chat', { model, more: { tools: [tool('chat')], tool_choice, parallel_tool_calls } })
        }
        const forced = await w.well('chat', { model, more: { tools: [tool('chat')], tool_choice: named } })
        assert.equal(forced.calls.length, 1)
      }
      return 'four choices, with and without parallel calls, on four dialects'
    },
  },
  {
    at: 'tool_choice, parallel_tool_calls',
    says: 'parallel_tool_calls false routes around backends without a single-call mode',
    async check(w) {
      const ask = (parallel_tool_calls: boolean) =>
        w.well('chat', { model: 'single', more: { tools: [tool('chat')], parallel_tool_calls } })
      await ask(true)
      assert.equal(w.simulator.requests.at(-1)!.dialect, 'openai-chat')
      await ask(false)
      assert.equal(w.simulator.requests.at(-1)!.dialect, 'anthropic-messages')
      return 'true goes to the first backend, false to the second'
    },
  },
  {
    at: 'response format',
    says: 'text only; JSON mode and JSON Schema are rejected',
    async check(w) {
      await w.well('chat', { more: { response_format: { type: 'text' } } })
      const schema = { name: 'a', schema: { type: 'object' } }
      for (const response_format of [{ type: 'json_object' }, { type: 'json_schema', json_schema: schema }]) {
        const reply = await w.ask('chat', { more: { response_format } })
        assert.deepEqual([reply.status, reply.error.type], [400, 'invalid_request_error'], String(reply))
      }
      return '400 invalid_request_error'
    },
  },
  {
    at: 'reasoning controls',
    says: 'reasoning_effort selects the row of the stream’s times',
    async check(w) {
      for (const [reasoning_effort, idle] of [
        ['minimal', 90],
        ['xhigh', 120],
      ] as const) {
        const reply = await idles(w, 'chat', idle, { more: { reasoning_effort } })
        assert.equal(reply.end, 'length', reasoning_effort)
      }
      return 'minimal is idle after 90 s, xhigh after 120 s'
    },
  },
  {
    at: 'top-level system',
    says: 'stands for a message of the role system',
    async check(w) {
      for (const model of models) {
        await w.well('chat', { model, more: { system: 'be brief' } })
        assert.match(JSON.stringify(w.forwarded), /be brief/)
      }
      const both = { system: 'be brief', messages: [{ role: 'system', content: 'be long' }, USER] }
      assert.equal((await w.ask('chat', { more: both })).status, 400)
      return 'it reaches four dialects; with both it is 400'
    },
  },
])

export const chat = section('Chat Completions response', 'chat', [
  {
    at: 'content',
    says: 'choices[0].message.content holds the text',
    async check(w) {
      for (const model of models) {
        const { json } = await w.well('chat', { model, say: '[[sim: text "one two"]]' })
        assert.equal(json.choices[0].message.content, 'one two')
      }
      return 'on four dialects'
    },
  },
  {
    at: 'finish_reason',
    says: 'choices[0].finish_reason holds the terminal reason',
    async check(w) {
      for (const model of models) {
        const reason = async (say: string, more = {}) => (await w.well('chat', { model, say, more })).end
        assert.equal(await reason('[[sim: text "one two"]]'), 'stop')
        assert.equal(await reason('[[sim: tokens 90]]', { max_tokens: 20 }), 'length')
        assert.equal(await reason('[[sim: call weather {"city":"Ulm"}]]', { tools: [tool('chat')] }), 'tool_calls')
      }
      return 'stop, length, tool_calls on four dialects'
    },
  },
  {
    at: 'finish_reason',
    says: 'one reason for one thing, whichever dialect serves',
    async check(w) {
      const seen = new Set<string>()
      for (const model of models) seen.add((await w.well('chat', { model, say: '[[sim: refuse "no"]]' })).end)
      assert.equal(seen.size, 1, [...seen].join(', '))
      return `a refusal ends with ${[...seen]}`
    },
  },
  {
    at: 'tool_calls',
    says: 'choices[0].message.tool_calls holds the calls',
    async check(w) {
      for (const model of models) {
        const say = '[[sim: call weather {"city":"Ulm"}; call weather {"city":"Aix"}]]'
        const { json } = await w.well('chat', { model, say, more: { tools: [tool('chat')] } })
        const calls = json.choices[0].message.tool_calls
        assert.deepEqual(
          calls.map((call: any) => [call.type, call.function.name, JSON.parse(call.function.arguments).city]),
          [
            ['function', 'weather', 'Ulm'],
            ['function', 'weather', 'Aix'],
          ],
        )
      }
      return 'two calls on four dialects'
    },
  },
  {
    at: 'usage',
    says: 'usage holds the tokens',
    async check(w) {
      for (const model of models) {
        for (const stream of [false, true]) {
          const { usage } = await w.well('chat', { model, stream })
          assert.ok(usage.prompt_tokens > 0 && usage.completion_tokens > 0)
        }
      }
      return 'on four dialects, buffered and streamed'
    },
  },
])
