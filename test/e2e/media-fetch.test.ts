/**
 * `media.fetch` from outside: what a client may make the gateway do, on each surface. The fetching itself:
 * test/plugins/media-fetch.test.ts.
 */
import assert from 'node:assert/strict'
import { type AddressInfo, createServer } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { startGateway, type TestGateway } from './harness.ts'

let heard = 0
const canary = createServer(socket => {
  heard++
  socket.destroy()
})
let port: number
before(async () => {
  await new Promise<void>(resolve => canary.listen(0, '127.0.0.1', resolve))
  port = (canary.address() as AddressInfo).port
})
after(() => new Promise(resolve => canary.close(resolve)))

const GEMINI = 'eb1-frontier-preview'
const CHAT = 'eb1-preview'
/** Requests with media by URL that their model's dialect takes as bytes alone, and the member that holds the URL. */
const requests = (url: string): [path: string, body: object, param: string][] => [
  [
    '/v1/chat/completions',
    { model: GEMINI, messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }] },
    'messages[0].content[0].image_url.url',
  ],
  [
    '/v1/responses',
    { model: GEMINI, input: [{ role: 'user', content: [{ type: 'input_image', image_url: url, detail: 'auto' }] }] },
    'input[0].content[0].image_url',
  ],
  [
    '/v1/responses',
    { model: CHAT, input: [{ role: 'user', content: [{ type: 'input_file', file_url: url }] }] },
    'input[0].content[0].file_url',
  ],
  [
    '/v1/messages',
    {
      model: GEMINI,
      max_tokens: 10,
      messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url } }] }],
    },
    'messages[0].content[0]',
  ],
  [
    '/v1/messages',
    {
      model: CHAT,
      max_tokens: 10,
      messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'url', url } }] }],
    },
    'messages[0].content[0]',
  ],
]

async function refused(t: TestGateway, path: string, body: object) {
  const answer = await t.post(path, body)
  assert.equal(answer.status, 400)
  return ((await answer.json()) as any).error as { code: string; param: string; message: string }
}

describe('media.fetch', () => {
  test('[REQ-1] by default nothing is fetched: no backend takes the URL, and the part is named', async () => {
    const t = await startGateway()
    try {
      for (const [path, body, param] of requests(`https://localhost:${port}/x`)) {
        const error = await refused(t, path, body)
        assert.deepEqual([error.code, error.param], ['request_requirements_unsatisfied', param])
      }
      assert.equal(heard, 0)
    } finally {
      await t.close()
    }
  })

  test('[REQ-1] [GEN-7] a host of the list that leads inside is refused as invalid_value, nothing is connected to, nothing is billed', async () => {
    const t = await startGateway({ plugins: { media: `{ fetch: ["localhost:${port}", "127.0.0.1:${port}"] }` } })
    try {
      for (const host of ['localhost', '127.0.0.1', '2130706433', '0x7f.1']) {
        for (const [path, body, param] of requests(`https://${host}:${port}/x`)) {
          const error = await refused(t, path, body)
          assert.deepEqual([error.code, error.param], ['invalid_value', param])
          assert.match(error.message, /could not be fetched: its host could not be reached/)
        }
      }
      const [path, body, param] = requests('https://elsewhere.example/x')[0]!
      const error = await refused(t, path, body)
      assert.deepEqual(
        [error.code, error.param],
        ['request_requirements_unsatisfied', param],
        'a host that is not on the list',
      )
      assert.equal(heard, 0)
      assert.deepEqual(await t.ledger(), [])
      assert.equal(t.simulator.requests.length, 0)
    } finally {
      await t.close()
    }
  })
})
