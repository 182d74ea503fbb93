import assert from 'node:assert/strict'
import { DIALECTS } from '../kit/gateways.ts'
import { SURFACES } from '../kit/reply.ts'
import { section } from '../kit/row.ts'
import { effort, image, tool } from '../kit/shapes.ts'

const JSON_FORMATS = [
  { type: 'json_object' },
  { type: 'json_schema', json_schema: { name: 'a', schema: { type: 'object', properties: {} } } },
]
/** What a client of the service must never learn: names of the providers, their models, what they cost. */
const INTERNAL = /sim-|simulator|127\.0\.0\.1|"(cost|price|provider|backend)"/

export const service = section('What the service does', 'service', [
  {
    at: '1',
    says: 'three completion surfaces, model discovery and token counting at one base address',
    async check(w) {
      for (const surface of SURFACES) await w.well(surface)
      assert.equal((await w.get('/models')).status, 200)
      assert.equal((await w.count()).status, 200)
      return 'five paths below /v1 answer 200'
    },
  },
  {
    at: '1',
    says: 'the surfaces are authenticated',
    async check(w) {
      const headers = { authorization: undefined }
      for (const surface of SURFACES) assert.equal((await w.ask(surface, { headers })).status, 401)
      assert.equal(w.sent.length, 0)
      return '401 on each without a key, and nothing is sent'
    },
  },
  {
    at: '2',
    says: 'each surface has its own wire format, and all run on the same models',
    async check(w) {
      const object = { responses: 'response', chat: 'chat.completion', messages: 'message' }
      for (const model of Object.values(DIALECTS)) {
        for (const surface of SURFACES) {
          const { json } = await w.well(surface, { model })
          assert.deepEqual([json.object ?? json.type, json.model], [object[surface], model])
        }
      }
      return 'four models on three surfaces'
    },
  },
  {
    at: '3',
    says: 'buffered JSON and SSE on every surface',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const reply = await w.well(surface, { model, stream, say: '[[sim: text "one two three"]]' })
        const type = stream ? 'text/event-stream' : 'application/json'
        assert.equal(reply.header('content-type')?.split(';')[0], type)
        assert.equal(reply.text, 'one two three')
      }),
  },
  {
    at: '4',
    says: 'function tools, in the shape of the surface, executed by the client',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const say = '[[sim: call weather {"city":"Ulm"}]]'
        const reply = await w.well(surface, { model, stream, say, more: { tools: [tool(surface)] } })
        assert.deepEqual(
          reply.calls.map(({ name, input }) => [name, input]),
          [['weather', { city: 'Ulm' }]],
        )
      }),
  },
  {
    at: '4',
    says: 'image input, in the shape of the surface',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        await w.well(surface, { model, stream, more: image(surface) })
        assert.match(JSON.stringify(w.forwarded), /iVBORw0KGgo/)
      }),
  },
  {
    at: '4',
    says: 'images are for analysis only: none are made',
    async check(w) {
      const reply = await w.ask('responses', { more: { tools: [{ type: 'image_generation' }] } })
      assert.deepEqual([reply.status, w.sent.length], [400, 0], String(reply))
      return `400 ${reply.code}`
    },
  },
  {
    at: '5',
    says: 'reasoning controls exist',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const more = effort(surface, 'high')
        const reply = await w.well(surface, { model, stream, more, say: '[[sim: reason 1 tokens 30]]' })
        assert.match(JSON.stringify(w.forwarded), /effort|thinking/i)
        assert.ok(reply.output >= 30, `output ${reply.output}`)
      }),
  },
  {
    at: '5',
    says: 'model and account determine the capabilities',
    accounts: { plain: { capabilities: ['tools'] } },
    async check(w) {
      for (const surface of SURFACES) {
        for (const ask of [{ model: 'bare' }, { as: 'plain' }]) {
          const reply = await w.ask(surface, { ...ask, more: image(surface) })
          assert.deepEqual([reply.status, reply.code], [400, 'request_requirements_unsatisfied'], String(reply))
        }
      }
      assert.equal(w.sent.length, 0)
      return 'an image is refused where model or plan has none'
    },
  },
  {
    at: '6',
    says: 'unknown fields are rejected, at any depth',
    check: w =>
      w.surfaces(async (surface, stream) => {
        const top = await w.ask(surface, { stream, more: { frobnicate: 1 } })
        assert.deepEqual([top.status, top.error.type, top.error.param], [400, 'invalid_request_error', 'frobnicate'])
        const where = surface === 'responses' ? 'input' : 'messages'
        const turn = { role: 'user', content: 'hello', frobnicate: 1 }
        const deep = await w.ask(surface, { stream, more: { [where]: [turn] } })
        assert.equal(deep.status, 400, String(deep))
        assert.match(deep.error.param, /frobnicate/)
      }),
  },
  {
    at: '6',
    says: 'fields that are known and not offered are rejected',
    async check(w) {
      const fields = {
        chat: [{ n: 2 }, { store: true }, { modalities: ['audio'] }],
        responses: [{ background: true }, { truncation: 'auto' }],
        messages: [{ container: 'c_1' }],
      }
      for (const surface of SURFACES) {
        for (const more of fields[surface]) {
          const reply = await w.ask(surface, { more })
          assert.equal(reply.status, 400, String(reply))
          assert.equal(reply.error.param.split('[')[0], Object.keys(more)[0])
        }
      }
      return 'n, store and modalities of Chat; background and truncation of Responses; container of Messages'
    },
  },
  {
    at: '6',
    says: 'no silent fallback: what a backend does not get is named',
    async check(w) {
      const hot = await w.well('chat', { model: 'eb1-fast-preview', more: { temperature: 1.7 } })
      assert.match(hot.header('x-adjusted') ?? '', /temperature=/)
      const seeded = await w.well('chat', { model: 'eb1-fast-preview', more: { seed: 7 } })
      assert.match(seeded.header('x-adjusted') ?? '', /seed=/)
      await w.well('chat', { model: 'eb1-preview', more: { seed: 7 } })
      assert.equal(w.forwarded.seed, 7)
      return hot.header('x-adjusted')!
    },
  },
  {
    at: '6',
    says: 'no silent fallback: context management compacts, or is refused',
    async check(w) {
      const more = { context_management: [{ type: 'compaction', compact_threshold: 1000 }] }
      const reply = await w.ask('responses', { more, say: 'word '.repeat(1500) })
      if (reply.status === 200) assert.match(JSON.stringify(reply.json.output), /compaction/)
      return `${reply.status}`
    },
  },
  {
    at: '6',
    says: 'a capability error is a fault of the request or of its model',
    async check(w) {
      const reply = await w.ask('chat', { model: 'bare', more: { tools: [tool('chat')] } })
      assert.deepEqual([reply.status, reply.error.type, reply.error.retryable], [400, 'invalid_request_error', false])
      assert.equal(reply.header('x-should-retry'), 'false')
      return reply.error.message
    },
  },
  {
    at: '7',
    says: 'no JSON mode and no JSON Schema on Chat Completions',
    async check(w) {
      for (const response_format of JSON_FORMATS) {
        for (const stream of [false, true]) {
          const reply = await w.ask('chat', { stream, more: { response_format } })
          assert.equal(reply.status, 400, String(reply))
          assert.match(reply.error.param, /^response_format/)
        }
      }
      await w.well('chat', { more: { response_format: { type: 'text' } } })
      return '400 response_format for both; text is taken'
    },
  },
  {
    at: '7',
    says: 'and only there: Responses and Messages have structured output',
    async check(w) {
      const schema = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] }
      const strict = { ...schema, additionalProperties: false }
      for (const model of Object.values(DIALECTS)) {
        const format = { type: 'json_schema', name: 'a', schema: strict, strict: true }
        for (const stream of [false, true]) {
          const text = await w.well('responses', { model, stream, more: { text: { format } } })
          assert.equal(typeof JSON.parse(text.text).a, 'number')
          const more = { output_config: { format: { type: 'json_schema', schema: strict } } }
          const told = await w.well('messages', { model, stream, more })
          assert.equal(typeof JSON.parse(told.text).a, 'number')
        }
      }
      return 'a schema on both, four dialects, buffered and streamed'
    },
  },
  {
    at: '8',
    says: 'access belongs to an organization: keys, plan, limits of rate and spend',
    accounts: { rate: { limits: { requests_per_minute: 1 } }, spend: { limits: { daily_spend_usd: 0.000001 } } },
    async check(w) {
      await w.well('chat', { as: 'rate' })
      for (const as of ['rate', 'spend']) assert.equal((await w.ask('chat', { as })).status, 429)
      await w.well('chat')
      return 'a limit of one organization leaves another alone'
    },
  },
  {
    at: '8',
    says: 'a key has overrides of its own',
    account: { limits: { requests_per_minute: 100 }, key: { limits: { requests_per_minute: 1 } } },
    async check(w) {
      await w.well('chat')
      assert.equal((await w.ask('chat')).code, 'requests_limit_exceeded')
      return 'the second request of a key with one a minute is 429'
    },
  },
  { at: '8', says: 'access is an invite-only paid beta', beyond: 'who is invited is the operator’s decision' },
  {
    at: '9',
    says: 'further routes may answer, and nothing relies on them',
    beyond: 'the sentence promises nothing',
  },
  {
    at: '10',
    says: 'provider, serving architecture and cost are no part of a reply',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const told = [
          await w.well(surface, { model, stream, say: '[[sim: text "fine"]]' }),
          await w.ask(surface, { model, stream, say: '[[sim: status 500]]' }),
          await w.ask(surface, { model, stream, say: '[[sim: error auth after 0]]' }),
        ]
        for (const { raw, headers } of told) {
          const text = raw.replaceAll(/\[\[sim[^\]]*\]\]/g, '')
          assert.doesNotMatch(text + JSON.stringify([...headers]), INTERNAL)
        }
      }),
  },
])
