/**
 * What clients leave in the messages of the assistant that they send back. LiteLLM put `provider_specific_fields` into
 * them, and others the `index` of streamed calls: the second turn of each tool loop was 400 `unknown_parameter`.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { bodyOf, DIALECTS, type Entry, served } from './conversations.ts'
import { startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

const tools = [{ name: 'get_weather', schema: { type: 'object', properties: { city: { type: 'string' } } } }]
const ASK: Entry = { user: '[[sim: call get_weather {"city":"Oslo"}; call get_weather {"city":"Lima"}]] weather?' }

for (const [dialect, model] of Object.entries(DIALECTS)) {
  test(`[GEN-2] ${dialect}: what SDKs add to an assistant message comes back, and does not go on`, async () => {
    const { calls } = await served(t, 'chat', bodyOf('chat', model, [ASK], { tools }))
    const results: Entry = { results: calls.map(({ id }) => ({ id, output: 'sunny' })) }
    const plain: any = bodyOf('chat', model, [ASK, { calls }, results], { tools })
    const decorated = structuredClone(plain)
    Object.assign(decorated.messages[1], {
      provider_specific_fields: { refusal: null, marker: 'not sent on' },
      annotations: [],
      audio: { id: 'not sent on' },
      parsed: { marker: 'not sent on' },
      function_call: null,
      reasoning_content: 'not sent on',
    })
    decorated.messages[1].tool_calls.forEach((call: any, index: number) => {
      call.index = index
    })
    const asks = [plain, decorated].map(body => served(t, 'chat', body))
    const [without, all] = await Promise.all(asks)
    assert.match(all!.text, /sunny/)
    assert.deepEqual(all!.body.usage.prompt_tokens, without!.body.usage.prompt_tokens)
    const sent = t.simulator.requests.slice(-2).map(({ json }) => JSON.stringify(json))
    assert.doesNotMatch(sent.join(), /not sent on/)
    assert.equal(sent[0], sent[1])
  })
}

test('[GEN-2] the index of a replayed call is an integer', async () => {
  const call = (index: unknown) => ({ id: 'c', type: 'function', index, function: { name: 'f', arguments: '{}' } })
  for (const index of ['0', 0.5, -1]) {
    const messages = [
      { role: 'user', content: 'x' },
      { role: 'assistant', content: null, tool_calls: [call(index)] },
    ]
    const response = await t.post('/v1/chat/completions', { model: 'eb1-preview', messages })
    const { error }: any = await response.json()
    assert.deepEqual([response.status, error.param], [400, 'messages[1].tool_calls[0].index'])
  }
})
