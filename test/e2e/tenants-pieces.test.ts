/**
 * Very many small pieces in one read, which uWebSockets.js takes in one turn of the event loop: chunks of a body, and
 * messages of a WebSocket. 8 MB of messages of one byte kept everybody else waiting for 24 s.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { test } from 'node:test'
import { eventually } from '../eventually.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'
import { SocketClient } from './socket-client.ts'

async function using(body: (t: TestGateway) => Promise<void>): Promise<void> {
  const t = await startGateway({ gateway: { listener: 'uws' } })
  try {
    await body(t)
    const reply = await t.post('/v1/chat/completions', {
      model: 'eb1-preview',
      messages: [{ role: 'user', content: 'x' }],
    })
    assert.equal(reply.status, 200)
    await reply.text()
  } finally {
    await t.close()
  }
}

async function overruns(t: TestGateway): Promise<number> {
  const metrics = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
  return Number(/^sluice_turn_overruns_total (\d+)$/m.exec(metrics)![1])
}

test('bodies in chunks of one byte: connections that bring too many at once are closed', async () => {
  await using(async t => {
    const { hostname, port } = new URL(t.url)
    const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`
    const sockets = Array.from({ length: 16 }, () => connect({ port: Number(port), host: hostname }))
    for (const socket of sockets) socket.on('error', () => {}).resume()
    await Promise.all(sockets.map(socket => once(socket, 'connect')))
    for (const socket of sockets) socket.write(head)
    await eventually(() => t.gateway.ingress.running.size === 16)
    // All of them are there when the event loop looks next.
    for (const socket of sockets) socket.write('1\r\na\r\n'.repeat(100_000))
    await eventually(async () => (await overruns(t)) > 0)
    for (const socket of sockets) socket.destroy()
    await eventually(() => t.gateway.ingress.running.size === 0)
  })
})

test('a body in many small chunks is read like any other', async () => {
  await using(async t => {
    const text = JSON.stringify({ model: 'eb1-preview', messages: [{ role: 'user', content: 'x '.repeat(5000) }] })
    const pieces = text.match(/.{1,2}/gs)!
    const body = new ReadableStream({
      pull(controller) {
        for (const piece of pieces.splice(0, 100)) controller.enqueue(Buffer.from(piece))
        if (pieces.length === 0) controller.close()
      },
    })
    const reply = await fetch(`${t.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
      body,
      duplex: 'half',
    } as RequestInit)
    assert.equal(reply.status, 200)
    assert.equal(((await reply.json()) as any).usage.prompt_tokens > 5000, true)
    assert.equal(await overruns(t), 0)
  })
})

test('very many messages at once: some are answered, then the connection is closed', async () => {
  await using(async t => {
    const flood = await SocketClient.open(t)
    const other = await SocketClient.open(t)
    const SENT = 20_000
    for (let i = 0; i < SENT; i++) flood.send('x')
    await eventually(() => flood.closed !== undefined)
    assert.ok([1006, 1013].includes(flood.closed!.code), String(flood.closed!.code))
    assert.ok(flood.frames.length < SENT / 10, `${flood.frames.length} answers`)
    other.create('[[sim: text "x"]] x')
    assert.equal((await other.response()).at(-1)!.type, 'response.completed')
    other.close()
  })
})

test('a hundred messages at once are all answered, in their order', async () => {
  await using(async t => {
    const client = await SocketClient.open(t)
    for (let i = 0; i < 100; i++) client.create('x', { stream_id: `no such name ${i}` })
    client.create('[[sim: text "x"]] x', { stream_id: 'last' })
    await eventually(() => client.frames.some(frame => frame.type === 'response.completed'))
    const refused = client.frames.slice(0, 100)
    assert.deepEqual([...new Set(refused.map(frame => frame['error']?.code))], ['invalid_stream_id'])
    assert.equal(client.closed, undefined)
    client.close()
  })
})
