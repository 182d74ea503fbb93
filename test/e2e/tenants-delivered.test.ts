/**
 * A client that leaves between the gateway's write of the last bytes and their delivery. The outcome is written before
 * those bytes, so the row is `completed` with its whole bill, whether they are in the kernel's buffers or still in the
 * gateway's; nothing is amended or booked twice, and the slot is free. A client that leaves before them has its bill for
 * what had been sent.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { eventually } from '../eventually.ts'
import { behave, type FakeUpstream, startFakeUpstream } from '../fake-upstream/server.ts'
import { RawClient } from '../listener/harness.ts'
import { LISTENERS } from '../listeners.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'

const chunk = (choice: object) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, ...choice }] })}\n\n`
const PART = 'word '.repeat(200_000)

/** Serves one client, who reads nothing, with `parts` parts of text. */
async function using(
  listener: 'uws' | 'node',
  parts: number,
  text: string,
  stream: boolean,
  run: (t: TestGateway, client: RawClient, server: FakeUpstream) => Promise<void>,
): Promise<void> {
  const server = await startFakeUpstream()
  const frames = Array.from({ length: parts }, () => chunk({ delta: { content: text }, finish_reason: null }))
  frames.push(chunk({ delta: {}, finish_reason: 'stop' }), 'data: [DONE]\n\n')
  server.script = turn => turn.stream(frames.join(''))
  const t = await startGateway({
    gateway: { listener },
    providers: `  chat: { dialect: openai-chat, base_url: "${server.url}" }`,
    models:
      '  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: chat, model: m }] }',
    plugins: { upstream: '{ max_reply: 64MiB }' },
    organization: '    limits: { concurrent_requests: 1 }',
  })
  try {
    const client = await RawClient.open(t.gateway.port)
    client.socket.pause()
    // Asked for as a stream in either case: a reply that is asked for whole has a smaller bound.
    const body = JSON.stringify({
      model: 'eb1-preview',
      max_completion_tokens: 9000,
      stream,
      messages: [{ role: 'user', content: 'x' }],
    })
    client.send(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    )
    await run(t, client, server)
  } finally {
    await t.close()
    await server.close()
  }
}

/** The slot of the organization is free again. */
async function servesAnother(t: TestGateway, server: FakeUpstream): Promise<void> {
  server.script = behave
  const body = { model: 'eb1-preview', max_tokens: 16, messages: [{ role: 'user', content: 'x' }] }
  assert.equal((await t.post('/v1/chat/completions', body)).status, 200)
}

for (const listener of LISTENERS) {
  describe(`listener ${listener}`, () => {
    for (const [what, stream, parts, text, unsent] of [
      ['a stream, in the kernel', true, 3, 'some words ', 0],
      ['a reply of one body, in the kernel', false, 3, 'some words ', 0],
      ['a large reply of one body, mostly in the gateway', false, 20, PART, 1],
    ] as const) {
      test(`${what}: completed and billed once`, () =>
        using(listener, parts, text, stream, async (t, client, server) => {
          await eventually(() => server.requests.length === 1 && t.gateway.ingress.running.size === 0)
          assert.equal(t.gateway.listener.unsent, unsent)
          const written = await t.ledger()
          assert.equal(written.length, 1)
          const [row] = written
          assert.equal(row!.outcome, 'completed')
          assert.ok(row!.output >= parts * 2 && row!.cost > 0, JSON.stringify(row))
          client.destroy()
          await eventually(() => t.gateway.listener.unsent === 0)
          await servesAnother(t, server)
          const rows = await t.ledger()
          assert.equal(rows.length, 2)
          assert.deepEqual(
            rows.find(({ request_id }) => request_id === row!.request_id),
            row,
          )
        }))
    }

    test('a large stream whose earlier bytes nobody takes: client_gone, and billed for what was sent', () =>
      using(listener, 20, PART, true, async (t, client, server) => {
        const begun = once(client.socket, 'data')
        client.socket.resume()
        await begun
        client.socket.pause()
        assert.deepEqual(await t.ledger(), [])
        client.destroy()
        await eventually(() => t.gateway.ingress.running.size === 0)
        await servesAnother(t, server)
        const rows = await t.ledger()
        const left = rows.filter(({ outcome }) => outcome === 'client_gone')
        assert.deepEqual([rows.length, left.length], [2, 1])
        const { output, cost } = left[0]!
        assert.ok(output > 0 && output < 20 * 200_000 && cost > 0, JSON.stringify(left[0]))
      }))
  })
}
