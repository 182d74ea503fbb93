/**
 * An ordinary busy tenant meets no bound that exists against hostile ones (decision 66): as many requests at once as its
 * plan allows, all of them in preparation together, then of each kind: with history, tools, images, stop strings,
 * recalled responses and long prompts.
 */
import assert from 'node:assert/strict'
import { connect, type Socket } from 'node:net'
import { test } from 'node:test'
import { BUILT_IN_PLANS } from '../../config/plans.ts'
import { scrape, value } from '../admin/exposition.ts'
import { eventually } from '../eventually.ts'
import { TableClock } from '../faults/table.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from './harness.ts'
import { SocketClient } from './socket-client.ts'

const MODEL = 'eb1-preview'
const SOCKETS = 10
const IMAGE = { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } }
const TOOLS = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }]
const TURNS = Array.from({ length: 20 }, (_, i) => ({ role: i % 2 ? 'assistant' : 'user', content: `turn ${i}` }))

/** One request of each kind. @param kept id of a retained response */
const kinds = (kept: string): ((i: number) => [path: string, body: object])[] => [
  i => [
    '/v1/chat/completions',
    {
      model: MODEL,
      max_tokens: 100,
      messages: [...TURNS, { role: 'user', content: `${i} ${'word '.repeat(800)}` }],
      tools: TOOLS,
      stop: ['END', 'STOP'],
    },
  ],
  i => [
    '/v1/chat/completions',
    { model: MODEL, max_tokens: 100, stream: true, messages: [{ role: 'user', content: `stream ${i}` }] },
  ],
  i => ['/v1/responses', { model: MODEL, max_output_tokens: 100, input: `and ${i}?`, previous_response_id: kept }],
  i => [
    '/v1/chat/completions',
    {
      model: MODEL,
      max_tokens: 100,
      messages: [{ role: 'user', content: [{ type: 'text', text: `image ${i}` }, IMAGE, IMAGE] }],
    },
  ],
  i => ['/v1/messages', { model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: `hello ${i}` }] }],
  i => ['/v1/messages/count_tokens', { model: MODEL, messages: [...TURNS, { role: 'user', content: `count ${i}` }] }],
]

/** Sends a request without the last byte of its body. */
function begin(t: TestGateway, i: number): Socket & { answer: string } {
  const body = JSON.stringify({
    model: MODEL,
    max_tokens: 16,
    messages: [{ role: 'user', content: `${i} ${'x'.repeat(8000)}` }],
  })
  const socket = Object.assign(connect(t.gateway.port, '127.0.0.1'), { answer: '' })
  socket.on('error', () => {})
  socket.on('data', bytes => {
    socket.answer += bytes
  })
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer ${KEY}\r\ncontent-length: ${body.length}\r\n\r\n${body.slice(0, -1)}`,
  )
  return socket
}

/** Every count of a refusal that is not zero. */
async function refusals(t: TestGateway): Promise<string[]> {
  const text = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
  const names =
    /^sluice_(refused_total|content_refused_total|limit_denials_total|shed_total|preparation_refused_total|provider_refused|backend_failures_total|backend_oversized_replies_total|backend_forgotten_organizations_total|store_evicted_total|backend_closed_organizations|directory_lookups_total\{result="refused"\})/
  return text.split('\n').filter(line => names.test(line) && !line.endsWith(' 0'))
}

// The largest published tier, and the built-in plan that allows most at once.
for (const plan of ['tier5', 'benchmark']) {
  const atOnce = (BUILT_IN_PLANS[plan]!['limits'] as { concurrent_requests: number }).concurrent_requests

  test(`${plan}: ${atOnce} requests at once meet no bound`, async () => {
    const clock = new TableClock()
    const t = await startGateway({
      // A slow machine must not look like a tenant that overloads the gateway: no wait ends, and nothing is shed.
      yaml: url =>
        defaultYaml(url, { plugins: { upstream: '{ connect_timeout: 10m }' } }).replace(
          'acme:\n    plan: custom',
          `acme:\n    plan: ${plan}`,
        ),
      gateway: { clock, lag: { lagMs: () => 0, close() {} } },
    })
    try {
      const uploads = Array.from({ length: atOnce }, (_, i) => begin(t, i))
      const preparing = async () => value(await scrape(t), 'sluice_preparing_requests')
      await eventually(async () => (await preparing()) === atOnce, preparing)
      for (const socket of uploads) socket.write('}')
      await eventually(() => uploads.every(socket => socket.answer.includes('\r\n\r\n{')))
      assert.deepEqual([...new Set(uploads.map(socket => socket.answer.split('\r\n')[0]))], ['HTTP/1.1 200 OK'])
      for (const socket of uploads) socket.destroy()
      // These requests are a minute's tokens of the published tier, and so are the next.
      clock.advance(60_000)

      const kept = (await (await t.post('/v1/responses', { model: MODEL, input: 'hello' })).json()) as any
      const client = await SocketClient.open(t)
      for (let i = 0; i < SOCKETS; i++)
        client.create(`over a socket ${i}`, { stream_id: `lane${i}`, max_output_tokens: 100 })
      const all = kinds(kept.id)
      const statuses = await Promise.all(
        Array.from({ length: atOnce - SOCKETS }, async (_, i) => {
          const [path, body] = all[i % all.length]!(i)
          const response = await t.post(path, body)
          const text = await response.text()
          return response.status === 200 ? 200 : text
        }),
      )
      assert.deepEqual([...new Set(statuses)], [200])
      for (let i = 0; i < SOCKETS; i++) assert.equal((await client.response()).at(-1)!.type, 'response.completed')
      client.close()
      assert.deepEqual(await refusals(t), [])
    } finally {
      await t.close()
    }
  })
}
