/**
 * WebSockets on `uws`, below any wire format: messages in, messages out, byte for byte, whatever the packets and
 * however slow the reader.
 */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { join } from 'node:path'
import { test } from 'node:test'
import type { ListenerOptions, Socket, SocketSession } from '../../core/ports/listener.ts'
import { eventually } from '../eventually.ts'
import { random } from '../random.ts'
import { type Harness, RawClient, serving, turns } from './harness.ts'
import { WS } from './web-socket.ts'

const pem = (name: string): string => join(import.meta.dirname, 'tls', `${name}.pem`)
const webSocket = { maxMessageBytes: 1024 * 1024, pongTimeoutMs: 60_000 }

class Session implements SocketSession {
  socket!: Socket
  readonly heard: { text: string; binary: boolean }[] = []
  closings = 0
  drains = 0
  onMessage: (session: Session, text: string) => void = () => {}
  onDrained: () => void = () => {}

  opened(socket: Socket): void {
    this.socket = socket
  }
  message(bytes: Uint8Array, binary: boolean): void {
    const text = Buffer.from(bytes).toString('latin1')
    this.heard.push({ text, binary })
    this.onMessage(this, text)
  }
  drained(): void {
    this.onDrained()
  }
  drain(): void {
    this.drains++
  }
  closed(): void {
    this.closings++
  }
}

/** A listener that opens each socket at once; `sessions` in the order of their opening. */
async function opening(
  body: (harness: Harness & { sessions: Session[] }) => Promise<void>,
  options: Partial<ListenerOptions> = {},
): Promise<void> {
  const sessions: Session[] = []
  await serving(
    'uws',
    incoming => {
      if (!incoming.webSocket) return incoming.respond(426, [], '')
      const session = new Session()
      sessions.push(session)
      incoming.webSocket.accept(session)
      incoming.respond(101, [['x-test', 'yes']], '')
    },
    harness => body({ ...harness, sessions }),
    { webSocket, ...options },
  )
}

async function dial(port: number, scheme = 'ws'): Promise<any> {
  const ws = new WS(`${scheme}://127.0.0.1:${port}/`, { rejectUnauthorized: false })
  ws.on('error', () => {})
  await once(ws, 'open')
  return ws
}

/** A masked frame (RFC 6455 5.2). */
function frame(opcode: number, payload: Buffer, fin = true): Buffer {
  const mask = Buffer.from([1, 2, 3, 4])
  const length = payload.length
  const head =
    length < 126
      ? Buffer.from([0, 0x80 | length])
      : length < 65_536
        ? Buffer.from([0, 0x80 | 126, length >> 8, length & 255])
        : Buffer.concat([
            Buffer.from([0, 0x80 | 127, 0, 0, 0, 0]),
            Buffer.from([length >>> 24, (length >> 16) & 255, (length >> 8) & 255, length & 255]),
          ])
  head[0] = (fin ? 0x80 : 0) | opcode
  return Buffer.concat([head, mask, payload.map((byte, i) => byte ^ mask[i % 4]!)])
}
const text = (value: string): Buffer => frame(1, Buffer.from(value))

const HANDSHAKE =
  'GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'

async function raw(port: number): Promise<RawClient> {
  const client = await RawClient.open(port)
  client.send(HANDSHAKE)
  await eventually(() => client.received.includes('\r\n\r\n'))
  assert.match(client.received.toString(), /^HTTP\/1\.1 101 Switching Protocols\r\n/)
  return client
}

test('the handshake’s answer has the headers of the 101, and no banner', async () => {
  await opening(async ({ port }) => {
    const client = await raw(port)
    assert.match(client.received.toString(), /\r\nx-test: yes\r\n/)
    assert.doesNotMatch(client.received.toString(), /uwebsockets|content-type/i)
    client.socket.destroy()
  })
})

test('messages cut at every byte, joined in one packet, or in fragments with a ping between arrive as they were sent', async () => {
  await opening(async ({ port, sessions }) => {
    const two = Buffer.concat([text('first é'), text('x'.repeat(130))])
    for (let cut = 1; cut < two.length; cut += cut < 24 ? 1 : 7) {
      const client = await raw(port)
      client.socket.setNoDelay()
      const session = sessions.at(-1)!
      client.send(two.subarray(0, cut))
      await new Promise(resolve => setImmediate(resolve))
      client.send(two.subarray(cut))
      await eventually(() => session.heard.length === 2)
      assert.deepEqual(
        session.heard.map(({ text }) => text.length),
        [8, 130],
        `cut at ${cut}`,
      )
      client.socket.destroy()
    }
    const client = await raw(port)
    client.send(
      Buffer.concat([frame(1, Buffer.from('frag'), false), frame(9, Buffer.from('p')), frame(0, Buffer.from('ment'))]),
    )
    client.send(frame(2, Buffer.from([0, 255])))
    await eventually(() => sessions.at(-1)!.heard.length === 2)
    assert.deepEqual(sessions.at(-1)!.heard, [
      { text: 'fragment', binary: false },
      { text: '\u0000ÿ', binary: true },
    ])
    client.socket.destroy()
    await eventually(() => sessions.every(session => session.closings === 1))
  })
})

test('bytes behind the handshake that came with it are never served', async () => {
  await opening(async ({ port, sessions, listener }) => {
    const client = await RawClient.open(port)
    client.send(`${HANDSHAKE}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n`)
    await eventually(() => sessions.length === 1)
    client.send(text('after'))
    await eventually(() => sessions[0]!.heard.length === 1 || client.closed !== undefined)
    assert.equal(sessions.length, 1)
    assert.doesNotMatch(client.received.toString(), /HTTP\/1\.1 (200|426)/)
    client.socket.destroy()
    await eventually(() => listener.connections === 0)
  })
})

test('an exception in a session cuts its socket and no other, and is told of', async () => {
  await opening(async ({ port, sessions, errors }) => {
    const [a, b] = [await dial(port), await dial(port)]
    sessions[0]!.onMessage = () => {
      throw new Error('a bug')
    }
    a.send('x')
    await once(a, 'close')
    assert.equal(sessions[0]!.closings, 1)
    assert.deepEqual(errors.map(String), ['Error: a bug'])
    sessions[1]!.onMessage = session => {
      session.socket.send('still here')
      session.socket.flush()
    }
    b.send('x')
    const [data] = await once(b, 'message')
    assert.equal(String(data), 'still here')
    b.terminate()
  })
})

test('drain reaches every session, and those that open after it; `unsent` counts what is still to be written', async () => {
  await opening(async ({ port, sessions, listener }) => {
    const ws = await dial(port)
    listener.drain()
    assert.equal(sessions[0]!.drains, 1)
    const big = 'x'.repeat(1024 * 1024)
    ws.pause()
    for (let i = 0; i < 64 && sessions[0]!.socket.flush(); i++) sessions[0]!.socket.send(big)
    sessions[0]!.socket.close(1012, 'bye')
    assert.equal(listener.unsent, 1)
    assert.equal(sessions[0]!.closings, 0)
    ws.resume()
    const [code, reason] = await once(ws, 'close')
    assert.deepEqual([code, String(reason)], [1012, 'bye'])
    await eventually(() => listener.unsent === 0)
    assert.equal(sessions[0]!.closings, 1)
  })
})

test('[R8] a client that is sent more and more although it reads nothing is cut', async () => {
  await opening(async ({ port, sessions, listener }) => {
    const ws = await dial(port)
    ws.pause()
    const { socket } = sessions[0]!
    const piece = 'x'.repeat(64 * 1024)
    await eventually(() => {
      socket.send(piece)
      socket.flush()
      return sessions[0]!.closings === 1
    })
    await eventually(() => listener.connections === 0)
    ws.terminate()
  })
})

test('a client that pings without end and reads nothing costs no more than the bound', async () => {
  await opening(async ({ port, sessions }) => {
    const client = await raw(port)
    client.socket.pause()
    const flood = Buffer.concat(Array.from({ length: 1000 }, () => frame(9, Buffer.alloc(125))))
    // What the kernel does not take shows that the other side has stopped, or swallows it: either is fine.
    for (let i = 0; i < 200; i++) {
      client.socket.write(flood)
      await new Promise(resolve => setImmediate(resolve))
    }
    await eventually(() => client.socket.writableLength === 0 || client.closed !== undefined)
    assert.ok(sessions[0]!.socket.buffered <= 512 * 1024, `${sessions[0]!.socket.buffered} bytes are held`)
    client.socket.destroy()
  })
})

/** `SLUICE_FIDELITY_STREAMS` runs more. */
const streams = Number(process.env['SLUICE_FIDELITY_STREAMS'] ?? 24)

for (const scheme of ['ws', 'wss']) {
  test(`[R7] ${streams} ${scheme} sockets with messages of any size and slow readers: equal to the byte`, async () => {
    await opening(
      async ({ port, sessions }) => {
        for (let seed = 1; seed <= streams; seed++) {
          const next = random(seed)
          const ws = await dial(port, scheme)
          const session = sessions.at(-1)!
          const sent = createHash('sha256')
          const got = createHash('sha256')
          let total = 0
          let last = ''
          const write = (): void => {
            while (total < 10_000_000) {
              // Bursts of small ones, some around uWebSockets.js's 16 KB, a few large.
              for (let burst = Math.floor(next() * 8); burst >= 0; burst--) {
                const kind = next()
                const size = Math.floor(
                  kind < 0.7 ? next() * 900 : kind < 0.95 ? 8_000 + next() * 16_000 : next() * 300_000,
                )
                last = `${total} ${seed}${kind < 0.5 ? 'é' : 'x'}`.padEnd(size, String(total))
                sent.update(last)
                total += last.length
                session.socket.send(last)
              }
              if (!session.socket.flush()) return
            }
            session.socket.send('end')
            session.socket.close(1000, 'done')
          }
          session.onDrained = write
          let pauses = 0
          ws.on('message', (data: Buffer) => {
            if (String(data) === 'end') return
            got.update(data)
            if (pauses < 20 && next() < 0.05) {
              pauses++
              ws.pause()
              turns(Math.floor(next() * 60)).then(() => ws.resume())
            }
          })
          write()
          const [code] = await once(ws, 'close')
          assert.equal(code, 1000)
          assert.equal(got.digest('hex'), sent.digest('hex'), `seed ${seed}`)
        }
      },
      scheme === 'wss' ? { tls: { cert: pem('cert'), key: pem('key') } } : {},
    )
  })
}
