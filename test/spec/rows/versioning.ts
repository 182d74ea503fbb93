import assert from 'node:assert/strict'
import { DIALECTS } from '../kit/gateways.ts'
import { PATHS, SURFACES } from '../kit/reply.ts'
import { section } from '../kit/row.ts'

export const versioning = section('Versioning', 'versions', [
  {
    at: 'rule 1',
    says: 'the path prefix /v1 is the only supported one',
    async check(w) {
      for (const surface of SURFACES) {
        for (const prefix of ['', '/v2', '/v1/v1']) {
          const url = w.base.replace('/v1', prefix) + PATHS[surface]
          assert.equal((await w.post(surface, url, JSON.stringify(w.body(surface)))).status, 404, url)
        }
      }
      return '404 without a prefix, below /v2 and below /v1/v1'
    },
  },
  {
    at: 'rule 2',
    says: 'any request below /v24b/v1/ is 410 endpoint_retired; the message says /v1',
    async check(w) {
      const url = `${w.base.replace('/v1', '/v24b/v1')}/models`
      for (const reply of [await w.get(url), await w.post('messages', url, 'no JSON')]) {
        assert.deepEqual([reply.status, reply.code], [410, 'endpoint_retired'])
        assert.match(reply.error.message, /\/v1/)
      }
      return 'GET and POST'
    },
  },
  {
    at: 'rule 3',
    says: 'legacy ids are accepted; the catalogue is the four ids',
    async check(w) {
      for (const model of ['eb1-preview-efficient', 'eb1-preview-fast', 'eb1-preview-delta'])
        await w.well('chat', { model })
      assert.deepEqual(
        (await w.models()).map(({ id }) => id),
        Object.values(DIALECTS),
      )
      return 'three legacy ids, four listed ones'
    },
  },
  {
    at: 'rule 4',
    says: 'the flat fields of Chat’s stream errors are still there',
    async check(w) {
      const say = '[[sim: text "one two three four five six"; error server after 4]]'
      const reply = await w.ask('chat', { stream: true, say })
      const frame = reply.frames.find(({ data }) => data.error)!.data
      for (const name of ['code', 'type', 'message', 'request_id']) assert.equal(frame[name], frame.error[name], name)
      return 'code, type, message, request_id beside the nested object'
    },
  },
  {
    at: 'rule 5',
    says: 'the input counts of Messages are disjoint',
    async check(w) {
      const system = [{ type: 'text', text: 'Disjoint. '.repeat(1500), cache_control: { type: 'ephemeral' } }]
      const model = DIALECTS['anthropic-messages']
      await w.well('messages', { model, more: { system } })
      const { usage, input } = await w.well('messages', { model, more: { system } })
      assert.ok(usage.cache_read_input_tokens > 0 && usage.input_tokens < input - usage.cache_read_input_tokens + 1)
      return `${usage.input_tokens} and ${usage.cache_read_input_tokens} of ${input}`
    },
  },
  {
    at: 'rule 6',
    says: 'a header with a version changes nothing',
    async check(w) {
      for (const version of [undefined, '2023-06-01', '2099-01-01'])
        await w.well('messages', { headers: { 'anthropic-version': version } })
      return 'with and without anthropic-version'
    },
  },
])
