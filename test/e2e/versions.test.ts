/** One house written in both versions of gateway.yaml: every answer is the same, ids and times aside. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const limited = { organization: '    capabilities: [tools, web_search]' }
const two = (url: string) =>
  defaultYaml(url, {
    ...limited,
    plugins: { 'web-search': '{ provider: simulator, max_turns: 2 }', media: '{ fetch: [localhost], timeout: 1s }' },
  })
const one = (url: string) =>
  defaultYaml(url, {
    ...limited,
    extra: 'web_search: { provider: simulator, max_turns: 2 }\nmedia: { fetch: [localhost], timeout: 1s }',
  })
    .replace('version: 2', 'version: 1')
    .replaceAll(/(model-access|compaction|web-search|media), /g, '')

let houses: TestGateway[]
before(async () => {
  houses = await Promise.all([one, two].map(yaml => startGateway({ yaml })))
})
after(() => Promise.all(houses.map(house => house.close())))

const user = (content: unknown) => [{ role: 'user', content }]
const picture = { type: 'image_url', image_url: { url: 'https://localhost/a.png' } }
const search = { type: 'web_search_20250305', name: 'web_search' }
const cases: [string, string, object, RegExp][] = [
  ['a reply', '/v1/chat/completions', { model: 'eb1-preview', messages: user('[[sim: text "hello"]]') }, /hello/],
  ['no such model', '/v1/chat/completions', { model: 'eb9', messages: user('x') }, /model_not_found/],
  [
    'what the plan leaves out',
    '/v1/chat/completions',
    { model: 'eb1-preview', messages: user([picture]) },
    /image input, which the plan does not include/,
  ],
  [
    'a search that the gateway runs',
    '/v1/messages',
    {
      model: 'eb1-preview',
      max_tokens: 100,
      tools: [search],
      messages: user('[[sim: call web_search {"query":"tides"}; text "found"]]'),
    },
    /web_search_tool_result/,
  ],
  [
    'a body that would be refused, counted',
    '/v1/messages/count_tokens',
    { model: 'eb9', messages: user('four words are here') },
    /input_tokens/,
  ],
]
for (const [name, path, body, expected] of cases) {
  test(name, async () => {
    const answers = await Promise.all(
      houses.map(async house => {
        const reply = await house.post(path, body)
        const text = await reply.text()
        assert.match(text, expected)
        return [reply.status, text.replaceAll(/[A-Za-z0-9_-]{20,}/g, 'ID').replaceAll(/"created":\d+/g, '"created":0')]
      }),
    )
    assert.deepEqual(answers[0], answers[1])
  })
}
