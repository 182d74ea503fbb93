/**
 * WebSockets through the `proxy` pipeline on `listener: node`: a real target, a real client, and ends whose every byte
 * is the test's. proxy-websocket.test.ts has what both listeners do.
 */
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Server, Socket } from 'node:net'
import { afterEach, beforeEach, test } from 'node:test'
import { ManualClock } from '../../core/tools/clock.ts'
import { eventually } from '../eventually.ts'
import { RawClient } from '../listener/harness.ts'
import { WebSocket, WSServer } from '../listener/web-socket.ts'
import { freePort } from '../ports.ts'
import { KEY, sha256, startGateway, type TestGateway } from './harness.ts'

/** A target of our own. */
class Target {
  readonly server: Server = createServer((request, response) => this.onRequest(request, response))
  readonly sockets = new Set<Socket>()
  /** Handshakes that came. */
  readonly handshakes: IncomingMessage[] = []
  /** The target's ends of tunnels, in order. */
  readonly ends: Socket[] = []
  /** Node leaves it to a server to answer an end with its own. */
  halfOpen = false
  onRequest: (request: IncomingMessage, response: ServerResponse) => void = (_, response) => response.end('plain')
  onHandshake: (request: IncomingMessage, socket: Socket, head: Buffer) => void = (_, socket, head) => {
    this.ends.push(socket)
    if (head.length > 0) socket.unshift(head)
    socket.write(
      'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n',
    )
  }
  url = ''

  async listen(): Promise<void> {
    this.server.on('connection', socket => {
      this.sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => this.sockets.delete(socket))
    })
    this.server.on('upgrade', (request, socket, head) => {
      this.handshakes.push(request)
      socket.on('end', () => {
        if (!this.halfOpen) socket.end()
      })
      this.onHandshake(request, socket as Socket, head)
    })
    this.server.listen(0, '127.0.0.1')
    await once(this.server, 'listening')
    this.url = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`
  }

  close(): void {
    this.server.close()
    for (const socket of this.sockets) socket.destroy()
  }
}

let target: Target
beforeEach(async () => {
  target = new Target()
  await target.listen()
})
afterEach(() => target.close())

interface Options {
  target?: string
  proxy?: string
  limits?: string
  drain?: string
  match?: string
}

function yaml(options: Options): string {
  return `version: 1
server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0, drain: ${options.drain ?? '2s'} }
store: "sqlite::memory:"
pipelines:
  live: [auth, admission, proxy: { target: "${options.target ?? target.url}", ${options.proxy ?? 'timeout: 60s'} }, usage-capture, header-stamp]
routes: [{ match: ${options.match ?? 'ANY /v1/live/*'}, pipeline: live }]
organizations:
  acme: { plan: custom, limits: { ${options.limits ?? ''} }, keys: [{ id: key_test, sha256: "${sha256(KEY)}", status: active }] }
log: { level: info, bodies: false }
`
}

async function using(
  options: Options & { clock?: ManualClock },
  body: (t: TestGateway) => Promise<void>,
): Promise<void> {
  const { clock } = options
  const t = await startGateway({ yaml: () => yaml(options), gateway: { listener: 'node', ...(clock && { clock }) } })
  try {
    await body(t)
  } finally {
    await t.close()
  }
}

const HANDSHAKE = [
  'GET /v1/live/a?b=%2F HTTP/1.1',
  'Host: a',
  `Authorization: Bearer ${KEY}`,
  'Connection: keep-alive, Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
  '\r\n',
].join('\r\n')

async function ask(t: TestGateway, handshake = HANDSHAKE): Promise<RawClient> {
  const client = await RawClient.open(t.gateway.port)
  client.send(handshake)
  return client
}

/** Both ends of a tunnel that is open. */
async function open(t: TestGateway): Promise<{ client: RawClient; end: Socket }> {
  const before = target.ends.length
  const client = await ask(t)
  await client.until(() => client.received.includes('\r\n\r\n'))
  assert.match(client.received.toString('latin1'), /^HTTP\/1\.1 101 Switching Protocols\r\n/)
  return { client, end: target.ends[before]! }
}

const told = (client: RawClient): Buffer => client.received.subarray(client.received.indexOf('\r\n\r\n') + 4)
const idle = (t: TestGateway) => eventually(() => t.gateway.ingress.running.size === 0)
const last = async (t: TestGateway) => (await t.ledger()).sort((a, b) => a.time - b.time).at(-1)!

/** What a socket is sent, as it comes. */
function hearing(socket: Socket): { text: string; ended: boolean; closed: boolean } {
  const heard = { text: '', ended: false, closed: false }
  socket.on('data', data => {
    heard.text += data.toString('latin1')
  })
  socket.on('end', () => {
    heard.ended = true
  })
  socket.on('close', () => {
    heard.closed = true
  })
  return heard
}

test('the gauge of open WebSockets counts a tunnel from its 101 to its end', async () => {
  await using({}, async t => {
    const { client, end } = await open(t)
    assert.equal(t.gateway.ingress.webSockets, 1)
    end.end()
    await client.closing()
    await idle(t)
    assert.equal(t.gateway.ingress.webSockets, 0)
  })
})

test('a WebSocket client and server talk as if nothing stood between: protocol, compression, texts, bytes, pings, close code', async () => {
  const server = new WSServer({
    noServer: true,
    perMessageDeflate: true,
    handleProtocols: (offered: Set<string>) => [...offered].at(-1),
  })
  target.onHandshake = (request, socket, head) =>
    server.handleUpgrade(request, socket, head, (peer: any) => {
      peer.on('message', (data: Buffer, binary: boolean) => {
        if (data.toString() === 'bye') peer.close(4001, 'so long')
        else peer.send(data, { binary })
      })
    })
  await using({}, async t => {
    const client = new WebSocket(`${t.url.replace('http', 'ws')}/v1/live/x`, ['one', 'two'], {
      headers: { authorization: `Bearer ${KEY}` },
      perMessageDeflate: { threshold: 0 },
    })
    const heard: [string, boolean][] = []
    client.on('message', (data: Buffer, binary: boolean) => heard.push([data.toString('latin1'), binary]))
    let headers: Record<string, string> = {}
    client.on('upgrade', (response: IncomingMessage) => {
      headers = response.headers as Record<string, string>
    })
    await once(client, 'open')
    assert.equal(client.protocol, 'two')
    assert.match(client.extensions, /permessage-deflate/)
    assert.match(headers['x-request-id']!, /^req_/)
    client.send('héllo '.repeat(1000))
    client.send(Buffer.from([0, 255, 128]))
    await eventually(() => heard.length === 2)
    assert.deepEqual(heard, [
      [Buffer.from('héllo '.repeat(1000)).toString('latin1'), false],
      ['\u0000ÿ\u0080', true],
    ])
    client.ping('p')
    const [pong] = await once(client, 'pong')
    assert.equal(pong.toString(), 'p')
    client.send('bye')
    const [code, reason] = await once(client, 'close')
    assert.deepEqual([code, reason.toString()], [4001, 'so long'])
    await idle(t)
    const row = await last(t)
    assert.deepEqual(
      [row.request_id, row.outcome, row.organization, row.key_id, row.cost],
      [headers['x-request-id'], 'completed', 'acme', 'key_test', 0],
    )
  })
})

test('the browser’s client, and binary both ways', async () => {
  const server = new WSServer({ noServer: true })
  target.onHandshake = (request, socket, head) =>
    server.handleUpgrade(request, socket, head, (peer: any) => {
      peer.on('message', (data: Buffer, binary: boolean) => peer.send(data, { binary }))
    })
  await using({}, async t => {
    // Node's, which is undici's; its types know a browser's arguments alone.
    const client = new (globalThis.WebSocket as any)(`${t.url.replace('http', 'ws')}/v1/live/x`, {
      headers: { authorization: `Bearer ${KEY}` },
    }) as globalThis.WebSocket
    client.binaryType = 'arraybuffer'
    await once(client, 'open')
    const heard = once(client, 'message')
    client.send(new Uint8Array([1, 0, 255]))
    const [{ data }] = (await heard) as unknown as [{ data: ArrayBuffer }]
    assert.deepEqual([...new Uint8Array(data)], [1, 0, 255])
    client.close(1000)
    await once(client, 'close')
    await idle(t)
  })
})

test('the handshake goes on with what belongs to it; the credential and the headers of this hop stay here', async () => {
  await using({ proxy: 'api_key: target-key', limits: 'requests_per_minute: 60' }, async t => {
    target.onHandshake = (_, socket) => {
      target.ends.push(socket)
      socket.write(
        'HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: upgrade, x-hop\r\nX-Hop: no\r\nKeep-Alive: timeout=5\r\nSec-WebSocket-Accept: abc\r\nSec-WebSocket-Protocol: p\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Request-Id: theirs\r\n\r\n',
      )
    }
    const more =
      'Sec-WebSocket-Protocol: p, q\r\nSec-WebSocket-Extensions: e\r\nOrigin: http://o\r\nX-Api-Key: sk-no\r\nX-Mine: no\r\nKeep-Alive: 1\r\n'
    const client = await ask(t, HANDSHAKE.replace('Upgrade\r\n', `Upgrade, x-mine\r\n${more}`))
    await client.until(() => client.received.includes('\r\n\r\n'))
    const [request] = target.handshakes
    assert.equal(request!.url, '/v1/live/a?b=%2F')
    const { headers } = request!
    const lines = client.received.toString('latin1').split('\r\n')
    const id = lines.find(line => line.startsWith('x-request-id: '))!.slice(14)
    assert.match(id, /^req_/)
    assert.deepEqual(
      { ...headers },
      {
        host: new URL(target.url).host,
        authorization: 'Bearer target-key',
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
        'sec-websocket-protocol': 'p, q',
        'sec-websocket-extensions': 'e',
        origin: 'http://o',
        'x-request-id': id,
      },
    )
    assert.equal(lines[0], 'HTTP/1.1 101 Switching Protocols')
    for (const line of [
      'connection: Upgrade',
      'upgrade: websocket',
      'sec-websocket-accept: abc',
      'sec-websocket-protocol: p',
      'set-cookie: a=1',
      'set-cookie: b=2',
      'x-ratelimit-limit-requests: 60',
    ])
      assert.equal(lines.filter(other => other === line).length, 1, line)
    assert.doesNotMatch(lines.join('\n'), /x-hop|keep-alive|theirs/i)
    client.destroy()
  })
})

test('[AUTH-1] without a key there is no tunnel: 401, closed, and the target is never connected to', async () => {
  await using({}, async t => {
    let connections = 0
    target.server.on('connection', () => connections++)
    const client = await ask(t, HANDSHAKE.replace(KEY, 'sk-wrong'))
    const [answer] = await client.answers(1)
    await client.closing()
    assert.equal(answer!.status, 401)
    assert.equal(answer!.headers.get('connection'), 'close')
    assert.equal(JSON.parse(answer!.body.toString()).error.code, 'invalid_api_key')
    await idle(t)
    assert.equal(connections, 0)
  })
})

test('[BILL-4] one ledger row, with bytes both ways, those in the handshakes’ packets too', async () => {
  await using({}, async t => {
    target.onHandshake = (_, socket, head) => {
      target.ends.push(socket)
      socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello')
      socket.unshift(head)
    }
    const client = await ask(t, `${HANDSHAKE}early`)
    await client.until(() => client.received.includes('hello'))
    const [end] = target.ends
    const heard = hearing(end!)
    client.send(', and more')
    await eventually(() => heard.text === 'early, and more')
    end!.end('!')
    await client.closing()
    assert.equal(told(client).toString(), 'hello!')
    await idle(t)
    const rows = await t.ledger()
    assert.deepEqual(
      rows.map(row => [row.bytes_in, row.bytes_out, row.outcome, row.surface]),
      [[15, 6, 'completed', 'ANY /v1/live/*']],
    )
    assert.equal(t.log.find(({ message }) => message === 'exchange')?.fields.status, 101)
  })
})

test('[STR-4] 40 MB each way to ends that read late: equal to the byte, and held back on the way', async () => {
  await using({}, async t => {
    const { client, end } = await open(t)
    // More than the kernel's buffers on the way hold.
    const data = randomBytes(40 * 1024 * 1024)
    const sum = createHash('sha256').update(data).digest('hex')
    /** Resolves when every buffer between the two ends is full: the writer stands. */
    const stands = (writer: Socket): Promise<void> => {
      let before = -1
      let looks = 0
      return eventually(() => {
        const waits = writer.writableLength
        looks = waits === before && waits > 0 ? looks + 1 : 0
        before = waits
        return looks === 50
      })
    }
    const pieces = Array.from({ length: 640 }, (_, i) => data.subarray(i * 64 * 1024, (i + 1) * 64 * 1024))

    client.socket.pause()
    for (const piece of pieces) end.write(piece)
    await stands(end)
    assert.ok(client.bytes < data.length)
    const head = client.received.length
    client.socket.resume()
    await client.until(() => client.bytes === head + data.length)
    assert.equal(createHash('sha256').update(told(client)).digest('hex'), sum)

    end.pause()
    for (const piece of pieces) client.send(piece)
    await stands(client.socket)
    const received = createHash('sha256')
    let taken = 0
    end.on('data', piece => {
      received.update(piece)
      taken += piece.length
    })
    end.resume()
    await eventually(() => taken === data.length)
    assert.equal(received.digest('hex'), sum)

    client.destroy()
    await idle(t)
    const row = await last(t)
    assert.deepEqual([row.bytes_in, row.bytes_out], [data.length, data.length])
  })
})

test('a target that refuses: its answer is passed on with its body, then the connection closes', async () => {
  await using({}, async t => {
    target.onHandshake = (_, socket) =>
      void socket.end(
        'HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nX-Why: because\r\nContent-Length: 7\r\n\r\nno, you',
      )
    const client = await ask(t)
    await client.closing()
    const [answer] = await client.answers(1)
    assert.deepEqual(
      [answer!.status, answer!.body.toString(), answer!.headers.get('x-why')],
      [403, 'no, you', 'because'],
    )
    assert.equal(answer!.headers.get('connection'), 'close')
    assert.ok(answer!.whole)
    await idle(t)
    assert.equal((await last(t)).outcome, 'completed')
  })
})

test('a target that knows no upgrades answers as to any request', async () => {
  await using({}, async t => {
    target.server.removeAllListeners('upgrade')
    const client = await ask(t)
    await client.closing()
    const [answer] = await client.answers(1)
    assert.deepEqual([answer!.status, answer!.body.toString()], [200, 'plain'])
  })
})

test('[ERR-6] a target that breaks off: 502; switches to something else: 502; is silent: 504; is down: 503', async () => {
  const refused = async (t: TestGateway): Promise<[number, string]> => {
    const client = await ask(t)
    await client.closing()
    const [answer] = await client.answers(1)
    await idle(t)
    assert.equal((await last(t)).outcome, 'upstream_error')
    return [answer!.status, JSON.parse(answer!.body.toString()).error.code]
  }
  await using({}, async t => {
    target.onHandshake = (_, socket) => void socket.destroy()
    assert.deepEqual(await refused(t), [502, 'upstream_server_error'])
    for (const head of ['Upgrade: h2c\r\nConnection: Upgrade\r\n', 'Connection: Upgrade\r\n', '']) {
      target.onHandshake = (_, socket) => {
        socket.write(`HTTP/1.1 101 Switching Protocols\r\n${head}\r\nbytes`)
        socket.resume()
      }
      assert.deepEqual(await refused(t), [502, 'upstream_server_error'], head)
    }
    // Nothing of theirs stays open.
    await eventually(() => target.sockets.size === 0)
  })
  await using({ proxy: 'timeout: 100ms' }, async t => {
    target.onHandshake = (_, socket) => void socket.resume()
    assert.deepEqual(await refused(t), [504, 'gateway_timeout'])
    await eventually(() => target.sockets.size === 0)
  })
  await using({ target: `http://127.0.0.1:${await freePort()}` }, async t => {
    assert.deepEqual(await refused(t), [503, 'provider_unavailable'])
  })
})

test('the target ends the tunnel: its last bytes arrive, then the client is ended', async () => {
  await using({}, async t => {
    const { client, end } = await open(t)
    end.end(Buffer.alloc(2_000_000, 'x'))
    await client.closing()
    assert.equal(client.closed, 'end')
    assert.equal(told(client).length, 2_000_000)
    await idle(t)
    assert.equal((await last(t)).outcome, 'completed')
  })
})

test('the target is reset in the tunnel: the client is ended, and the ledger says whose fault it was', async () => {
  await using({ clock: new ManualClock() }, async t => {
    const { client, end } = await open(t)
    end.write('some')
    await client.until(() => told(client).length === 4)
    end.resetAndDestroy()
    // By the reset: no timer of the gateway ever fires.
    await client.closing()
    await idle(t)
    const row = await last(t)
    assert.deepEqual([row.outcome, row.bytes_out], ['upstream_error', 4])
  })
})

test('[STR-4] the client is reset in the tunnel, or before the target has answered: the target is let go', async () => {
  // By the reset: no timer of the gateway ever fires.
  await using({ clock: new ManualClock() }, async t => {
    const { client, end } = await open(t)
    const heard = hearing(end)
    client.socket.resetAndDestroy()
    await eventually(() => heard.closed || heard.ended)
    await idle(t)
    assert.equal((await last(t)).outcome, 'client_gone')

    target.onHandshake = (_, socket) => void socket.resume()
    const early = await ask(t)
    await eventually(() => target.handshakes.length === 2)
    early.socket.resetAndDestroy()
    await idle(t)
    await eventually(() => target.sockets.size === 0)
    assert.equal((await last(t)).outcome, 'client_gone')
  })
})

test('the client ends its side: the target is told, and its last words still arrive', async () => {
  target.halfOpen = true
  await using({}, async t => {
    const { client, end } = await open(t)
    const heard = hearing(end)
    client.socket.end('that is all')
    await eventually(() => heard.ended)
    assert.equal(heard.text, 'that is all')
    end.end('noted')
    await client.closing()
    assert.equal(told(client).toString(), 'noted')
    await idle(t)
    assert.equal((await last(t)).outcome, 'completed')
  })
})

test('silence of both sides together ends the tunnel after `timeout`; a byte of either keeps it', async () => {
  const clock = new ManualClock()
  await using({ clock, proxy: 'timeout: 60s' }, async t => {
    const { client, end } = await open(t)
    const heard = hearing(end)
    for (let turn = 1; turn <= 3; turn++) {
      clock.advance(50_000)
      client.send('u')
      await eventually(() => heard.text.length === turn)
      clock.advance(50_000)
      end.write('d')
      await client.until(() => told(client).length === turn)
    }
    assert.equal(client.closed, undefined)
    clock.advance(59_000)
    assert.equal(t.gateway.ingress.running.size, 1)
    clock.advance(2_000)
    assert.equal(t.gateway.ingress.running.size, 0)
    await client.closing()
    await eventually(() => heard.ended || heard.closed)
    const row = await last(t)
    assert.deepEqual([row.outcome, row.bytes_in, row.bytes_out], ['upstream_error', 3, 3])
  })
})

test('[LIM-3] a tunnel holds its slot to its end', async () => {
  await using({ limits: 'concurrent_requests: 1' }, async t => {
    for (let turn = 0; turn < 2; turn++) {
      const { client, end } = await open(t)
      const refused = await ask(t)
      const [answer] = await refused.answers(1)
      assert.equal(answer!.status, 429)
      assert.equal(JSON.parse(answer!.body.toString()).error.code, 'concurrency_limit_exceeded')
      if (turn === 0) client.socket.resetAndDestroy()
      else end.end()
      await idle(t)
      client.destroy()
    }
    const { client } = await open(t)
    client.destroy()
    await idle(t)
    assert.equal(target.handshakes.length, 3)
  })
})

test('a drain lets a tunnel run, and ends it at the deadline', async () => {
  // Time enough for a word each way, also on a machine that stands still.
  await using({ drain: '4s' }, async t => {
    const { client, end } = await open(t)
    const heard = hearing(end)
    const drained = t.gateway.drain()
    client.send('still here')
    await eventually(() => heard.text === 'still here')
    end.write('so am I')
    await client.until(() => told(client).includes('so am I'))
    await client.closing()
    await eventually(() => heard.ended || heard.closed)
    await drained
    assert.equal(t.gateway.ingress.running.size, 0)
  })
})

test('a tunnel that ends in a drain lets the process go before the deadline', async () => {
  await using({ drain: '60s' }, async t => {
    const { client, end } = await open(t)
    const drained = t.gateway.drain()
    end.end('bye')
    await client.closing()
    client.destroy()
    await drained
    assert.equal(told(client).toString(), 'bye')
  })
})

test('a reload: the tunnel stays on the chain that opened it', async () => {
  await using({}, async t => {
    const { client, end } = await open(t)
    await t.gateway.reload()
    const heard = hearing(end)
    client.send('on')
    await eventually(() => heard.text === 'on')
    client.destroy()
    await idle(t)
  })
})

test('what is no WebSocket handshake is not passed on: 501, closed, and the target is never connected to', async () => {
  await using({}, async t => {
    let connections = 0
    target.server.on('connection', () => connections++)
    for (const [from, to] of [
      ['Upgrade: websocket', 'Upgrade: tcp'],
      ['Upgrade: websocket', 'Upgrade: websocket, h2c'],
      ['Sec-WebSocket-Version: 13', 'Sec-WebSocket-Version: 7'],
      ['GET ', 'POST '],
      ['Host: a', 'Host: a\r\nContent-Length: 3'],
    ] as const) {
      const client = await ask(t, `${HANDSHAKE.replace(from, to)}abc`)
      const [answer] = await client.answers(1)
      await client.closing()
      assert.equal(answer!.status, 501, to)
      assert.equal(JSON.parse(answer!.body.toString()).error.code, 'not_implemented')
    }
    assert.equal(connections, 0)
  })
  await using({ match: 'POST /v1/live/*' }, async t => {
    const client = await ask(t)
    assert.equal((await client.answers(1))[0]!.status, 501, 'a path that takes POST alone')
    client.destroy()
  })
})
