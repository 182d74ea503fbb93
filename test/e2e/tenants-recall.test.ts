/** What one client replays cannot cost the gateway, or the operator, more than it is counted for. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway({ plugins: { 'web-search': '{ provider: chat, max_turns: 3 }' } })
})
after(() => t.close())

const user = (content: string) => ({ role: 'user', content })
const counted = async (body: object): Promise<number> =>
  ((await (await t.post('/v1/messages/count_tokens', body)).json()) as any).input_tokens

test('a search that a client empties before it replays it costs what is sent: its stored results', async () => {
  // Was: 5,000 copies of a search without its results: 1.3 MB in, 50.6 MB to the upstream, 20,025 tokens billed.
  const tools = [{ type: 'web_search_20250305', name: 'web_search', max_uses: 1 }]
  const ask = (messages: object[]) => t.post('/v1/messages', { model: 'eb1-preview', max_tokens: 200, tools, messages })
  const question = user('[[sim: call web_search {"query":"lighthouses"}]] What is known of them?')
  const first = (await (await ask([question])).json()) as any
  const found = first.content.find((block: any) => block.type === 'web_search_tool_result')
  assert.ok(found?.content.length > 0, JSON.stringify(first))
  const emptied = first.content.map((block: any) => (block === found ? { ...block, content: [] } : block))
  const asIs = [question, { role: 'assistant', content: first.content }, user('More.')]
  const empty = [question, { role: 'assistant', content: emptied }, user('More.')]
  const whole = await counted({ model: 'eb1-preview', tools, messages: asIs })
  assert.equal(await counted({ model: 'eb1-preview', tools, messages: empty }), whole)
  const { usage } = (await (await ask(empty)).json()) as any
  assert.equal(usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens, whole)

  const pair = emptied.filter((block: any) => /search/.test(block.type))
  const twice = await ask([question, { role: 'assistant', content: [...pair, ...pair] }, user('More.')])
  assert.equal(twice.status, 400)
  assert.equal(((await twice.json()) as any).error.code, 'conversation_invariant')
})
