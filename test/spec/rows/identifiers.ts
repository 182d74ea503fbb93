import assert from 'node:assert/strict'
import { DIALECTS } from '../kit/gateways.ts'
import { PATHS, SURFACES } from '../kit/reply.ts'
import { section } from '../kit/row.ts'
import { history, searching, tool, WEB_SEARCH } from '../kit/shapes.ts'

const CALL = '[[sim: call weather {"city":"Ulm"}]] go'
const DAY = 86_400

export const identifiers = section('Identifiers issued by the service', 'ids', [
  {
    at: '1',
    says: 'a tool call has one id on all surfaces, with the prefix call_eba1_',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const { calls } = await w.well(surface, { model, stream, say: CALL, more: { tools: [tool(surface)] } })
        assert.match(calls[0]!.id, /^call_eba1_/)
        const turns = [{ user: CALL }, { calls: [calls[0]!.id] }, { results: [calls[0]!.id] }]
        for (const other of SURFACES)
          await w.well(other, { model, more: { tools: [tool(other)], ...history(other, turns) } })
      }),
  },
  {
    at: '1',
    says: 'ids of hosted searches have the prefix hist_eba1_',
    async check(w) {
      for (const model of Object.values(DIALECTS)) {
        for (const stream of [false, true]) {
          const reply = await w.well('messages', { model, stream, say: searching(model), more: WEB_SEARCH })
          const block = reply.json.content.find(({ type }: any) => type === 'server_tool_use')
          assert.match(block?.id ?? String(reply), /^hist_eba1_/)
        }
      }
      return 'on four dialects, buffered and streamed'
    },
  },
  {
    at: '1',
    says: 'ids of output items have the prefix item_eba1_',
    async check(w) {
      for (const model of Object.values(DIALECTS)) {
        for (const say of ['hello', CALL]) {
          const { json } = await w.well('responses', { model, say, more: { tools: [tool('responses')] } })
          for (const { id } of json.output) assert.match(id, /^item_eba1_/)
        }
      }
      return 'messages and calls, on four dialects'
    },
  },
  {
    at: '1',
    says: 'ids are replayed as they are in later turns',
    async check(w) {
      for (const model of Object.values(DIALECTS)) {
        const first = await w.well('responses', { model, say: CALL, more: { tools: [tool('responses')] } })
        const output = { type: 'function_call_output', call_id: first.calls[0]!.id, output: 'sunny' }
        const input = [{ role: 'user', content: CALL }, ...first.json.output, output]
        await w.well('responses', { model, more: { tools: [tool('responses')], input } })
      }
      return 'the items of a reply are the input of the next, on four dialects'
    },
  },
  {
    at: '1',
    says: 'ids that were issued earlier stay valid',
    async check(w) {
      const first = await w.well('chat', { say: CALL, more: { tools: [tool('chat')] } })
      await w.pass(3 * DAY)
      const id = first.calls[0]!.id
      const more = history('chat', [{ user: CALL }, { calls: [id] }, { results: [id] }])
      await w.well('chat', { more: { tools: [tool('chat')], ...more } })
      return 'after three days'
    },
  },
  {
    at: '1',
    says: 'the earlier prefix call_eb2. stays valid',
    async check(w) {
      const turns = [{ user: 'go' }, { calls: ['call_eb2.abc123'] }, { results: ['call_eb2.abc123'] }]
      for (const model of Object.values(DIALECTS)) {
        for (const surface of SURFACES)
          await w.well(surface, { model, more: { tools: [tool(surface)], ...history(surface, turns) } })
      }
      return 'three surfaces, four dialects'
    },
  },
  {
    at: '2',
    says: 'private continuation fields of a provider do not appear',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const more = { tools: [tool(surface)] }
        const reply = await w.well(surface, { model, stream, say: `[[sim: reason 1]] ${CALL}`, more })
        assert.doesNotMatch(reply.raw, /thought_?signature|"signature":"[^"]|encrypted_content":"[^"]/i)
      }),
  },
  {
    at: '3',
    says: 'every reply has X-Request-Id',
    async check(w) {
      await w.surfaces(async (surface, stream) => {
        for (const reply of [
          await w.well(surface, { stream }),
          await w.ask(surface, { stream, more: { model: 'none' } }),
          await w.ask(surface, { stream, headers: { authorization: undefined } }),
          await w.ask(surface, { stream, say: '[[sim: status 500]]' }),
        ])
          assert.match(reply.id, /^req_/, String(reply))
      })
      for (const path of ['/models', '/models/none', '/nowhere', '/responses/resp_none'])
        assert.match((await w.get(path)).id, /^req_/)
      return 'on good replies, errors, lists and unknown paths'
    },
  },
  {
    at: '3',
    says: 'Messages sends request-id, too',
    async check(w) {
      for (const stream of [false, true]) {
        const reply = await w.well('messages', { stream })
        assert.equal(reply.header('request-id'), reply.id)
      }
      const refused = await w.ask('messages', { more: { model: 'none' } })
      assert.equal(refused.header('request-id'), refused.id)
      return 'buffered, streamed and refused'
    },
  },
])

export const retained = section('Retained responses', 'retained', [
  {
    at: '1',
    says: 'a response is retained for 24 hours',
    async check(w) {
      const { json } = await w.well('responses')
      const more = { previous_response_id: json.id }
      await w.pass(DAY - 300)
      assert.equal((await w.get(`/responses/${json.id}`)).status, 200)
      await w.pass(600)
      assert.equal((await w.get(`/responses/${json.id}`)).status, 404)
      assert.equal((await w.ask('responses', { more })).code, 'previous_response_not_found')
      return 'there after 23:55, gone after 24:05'
    },
  },
  {
    at: '1',
    says: 'it belongs to the organization',
    accounts: { other: {} },
    async check(w) {
      const { json } = await w.well('responses', { as: 'sk-specification' })
      const ask = { as: 'other', more: { previous_response_id: json.id } }
      assert.equal((await w.ask('responses', ask)).code, 'previous_response_not_found')
      assert.equal((await w.get(`/responses/${json.id}`, { as: 'other' })).status, 404)
      return 'another organization finds none'
    },
  },
  {
    at: '1',
    says: 'store false retains nothing',
    async check(w) {
      for (const stream of [false, true]) {
        const { json } = await w.well('responses', { stream, more: { store: false } })
        const reply = await w.ask('responses', { more: { previous_response_id: json.id } })
        assert.equal(reply.code, 'previous_response_not_found')
        assert.equal((await w.get(`/responses/${json.id}`)).status, 404)
      }
      return 'buffered and streamed'
    },
  },
  {
    at: '1',
    says: 'a response of more than 1 MiB is served and not retained',
    async check(w) {
      for (const stream of [false, true]) {
        const say = '[[sim: tokens 200000; chunk 65536]]'
        const reply = await w.well('responses', { say, stream, cap: 128_000 })
        const { json } = reply
        if (JSON.stringify(json).length <= 1024 * 1024) throw new Error(`only ${JSON.stringify(json).length} bytes`)
        assert.equal((await w.get(`/responses/${json.id}`)).status, 404)
        assert.ok(json.warning, 'the reply does not say so')
      }
      return 'served whole; 404 afterwards; a warning says so'
    },
  },
  {
    at: '1',
    says: 'input_items of a retained response can be listed',
    async check(w) {
      const { json } = await w.well('responses', { say: 'my name is Ada' })
      const reply = await w.get(`${PATHS.responses}/${json.id}/input_items`)
      assert.equal(reply.status, 200, String(reply))
      assert.match(JSON.stringify(reply.json.data), /my name is Ada/)
      return `${reply.json.data.length} items`
    },
  },
])
