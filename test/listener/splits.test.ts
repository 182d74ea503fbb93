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

/**
 * Reliability 2.4 (1): uWebSockets.js answers 505 when a packet ends right behind the method's space, or in ` HTTP/1.1\r\n` short of its last
 * byte. These eleven cuts and no others. Fixed upstream in uWebSockets v20.70.
 */
function knownCuts(message: string): number[] {
  const version = message.indexOf(' HTTP/1.1')
  return [message.indexOf(' ') + 1, ...Array.from({ length: 10 }, (_, i) => version + 1 + i)]
}

for (const kind of kinds) {
  for (const name of ['get', 'length', 'chunks'] as const) {
    test(`${kind}: ${name}, cut in two at every byte`, { timeout: 120_000 }, async () => {
      const message = messages[name]
      const known = kind === 'uws' ? knownCuts(message) : []
      const refused: number[] = []
      await serving(kind, echo, async h => {
        const tryCut = async (cut: number): Promise<void> => {
          const client = await RawClient.open(h.port)
          await client.sendPieces([message.slice(0, cut), message.slice(cut)])
          const [answer] = await client.answers(1)
          if (answer?.status === 505) refused.push(cut)
          else {
            assert.equal(answer?.status, 200, `cut at ${cut}`)
            assert.equal(answer.body.toString().split(' ').at(-1), String(bodies[name]), `cut at ${cut}`)
          }
          client.destroy()
        }
        for (let cut = 1; cut < message.length; cut++) await tryCut(cut)
      })
      assert.deepEqual(refused, known)
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
