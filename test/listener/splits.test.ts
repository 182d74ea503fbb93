/** Every message that a client may send in two packets must mean what it means in one. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { echo, kinds, RawClient, serving } from './harness.ts'

const messages = {
  get: 'GET /a/b?c=d HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-1\r\nAccept: */*\r\n\r\n',
  length:
    'POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"a":"b\\n"}',
  chunks:
    'POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n06\r\n world\r\n0\r\n\r\n',
}
const bodies = { get: 0, length: 11, chunks: 11 }

for (const kind of kinds) {
  for (const name of ['get', 'length', 'chunks'] as const) {
    // Builds of uWebSockets.js before C++ v20.70 answered 505 to a request line cut behind its method or in `
    // HTTP/1.1\r\n`.
    test(`${kind}: ${name}, cut in two at every byte`, { timeout: 120_000 }, async () => {
      const message = messages[name]
      await serving(kind, echo, async h => {
        for (let cut = 1; cut < message.length; cut++) {
          const client = await RawClient.open(h.port)
          await client.sendPieces([message.slice(0, cut), message.slice(cut)])
          const [answer] = await client.answers(1)
          assert.equal(answer?.status, 200, `cut at ${cut}`)
          assert.equal(answer.body.toString().split(' ').at(-1), String(bodies[name]), `cut at ${cut}`)
          client.destroy()
        }
      })
    })
  }

  test(`${kind}: a body byte by byte`, { timeout: 120_000 }, async () => {
    await serving(kind, echo, async h => {
      const client = await RawClient.open(h.port)
      const at = messages.chunks.indexOf('\r\n\r\n') + 4
      await client.sendPieces([messages.chunks.slice(0, at), ...messages.chunks.slice(at)])
      const [answer] = await client.answers(1)
      assert.equal(answer?.body.toString(), 'POST /a 11')
      client.destroy()
    })
  })
}
