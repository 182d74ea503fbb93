/** WebSockets through the `proxy` pipeline, between a real client and a real target, on both listeners. */
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { eventually } from '../eventually.ts'
import { WebSocket, WSServer } from '../listener/web-socket.ts'
import { LISTENERS } from '../listeners.ts'
import { KEY, sha256, startGateway, type TestGateway } from './harness.ts'

interface Message {
  data: Buffer
  binary: boolean
}

/** An end of a WebSocket, and all that it heard. */
class End {
  readonly heard: Message[] = []
  readonly pings: string[] = []
  readonly pongs: string[] = []
  closed: [code: number, reason: string] | undefined
  readonly ws: any
  constructor(ws: any) {
    this.ws = ws
    ws.on('message', (data: Buffer, binary: boolean) => this.heard.push({ data, binary }))
    ws.on('ping', (data: Buffer) => this.pings.push(data.toString()))
    ws.on('pong', (data: Buffer) => this.pongs.push(data.toString()))
    ws.on('close', (code: number, reason: Buffer) => {
      this.closed = [code, reason.toString()]
    })
    ws.on('error', () => {})
  }
  get texts(): string[] {
    return this.heard.map(({ data }) => data.toString())
  }
  closing = () => eventually(() => this.closed !== undefined)
}

let target: ReturnType<typeof createServer>
let sockets: Set<Socket>
/** The target's ends, in order, and their handshakes. */
let ends: End[]
let handshakes: IncomingMessage[]
let onHandshake: (request: IncomingMessage, socket: Socket, head: Buffer) => void
beforeEach(async () => {
  sockets = new Set()
  ends = []
  handshakes = []
  const server = new WSServer({ noServer: true, handleProtocols: (offered: Set<string>) => [...offered].at(-1) })
  onHandshake = (request, socket, head) =>
    server.handleUpgrade(request, socket, head, (ws: any) => void ends.push(new End(ws)))
  target = createServer((_, response) => response.end('plain'))
  target.on('connection', socket => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('end', () => socket.end())
    socket.on('close', () => sockets.delete(socket))
  })
  target.on('upgrade', (request, socket, head) => {
    handshakes.push(request)
    onHandshake(request, socket as Socket, head)
  })
  target.listen(0, '127.0.0.1')
  await once(target, 'listening')
})
afterEach(() => {
  target.close()
  for (const socket of sockets) socket.destroy()
})

const yaml = (limits: string, drain: string, server: string) => `version: 1
server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0, drain: ${drain}${server} }
store: "sqlite::memory:"
pipelines:
  live: [auth, admission, proxy: { target: "http://127.0.0.1:${(target.address() as AddressInfo).port}", timeout: 60s }, usage-capture, header-stamp]
routes: [{ match: ANY /v1/live/*, pipeline: live }]
organizations:
  acme: { plan: custom, limits: { ${limits} }, keys: [{ id: key_test, sha256: "${sha256(KEY)}", status: active }] }
log: { level: info, bodies: false }
`

/** What only `uws` does. */
const skip = LISTENERS.includes('uws') ? false : 'there is only listener: node'

for (const listener of LISTENERS) {
  describe(`WebSockets through proxy on ${listener}`, () => {
    async function using(
      body: (t: TestGateway) => Promise<void>,
      { limits = '', drain = '2s', server = '' } = {},
    ): Promise<void> {
      const t = await startGateway({ yaml: () => yaml(limits, drain, server), gateway: { listener } })
      try {
        await body(t)
      } finally {
        await t.close()
      }
    }

    const dial = (t: TestGateway, protocols: string[] = [], key = KEY) =>
      new WebSocket(`${t.url.replace('http', 'ws')}/v1/live/a?b=%2F`, protocols, {
        headers: { authorization: `Bearer ${key}`, origin: 'http://o' },
      })

    /** Both ends of a WebSocket that is open. */
    async function open(t: TestGateway, protocols?: string[]): Promise<{ client: End; end: End; reply: any }> {
      const at = ends.length
      const ws = dial(t, protocols)
      const client = new End(ws)
      const upgraded = once(ws, 'upgrade')
      await once(ws, 'open')
      await eventually(() => ends.length > at)
      return { client, end: ends[at]!, reply: (await upgraded)[0] }
    }

    const idle = (t: TestGateway) => eventually(() => t.gateway.ingress.running.size === 0)
    const rows = async (t: TestGateway) => (await t.ledger()).sort((a, b) => a.time - b.time)

    test('the handshake: path, headers, the subprotocol that the target chose; the credential stays here', async () => {
      await using(async t => {
        const { client, reply } = await open(t, ['one', 'two'])
        const [{ url, headers }] = handshakes as [IncomingMessage]
        assert.equal(url, '/v1/live/a?b=%2F')
        assert.equal(headers['sec-websocket-protocol'], 'one,two')
        assert.equal(headers.origin, 'http://o')
        assert.equal(headers.authorization, undefined)
        assert.equal(client.ws.protocol, 'two')
        assert.match(reply.headers['x-request-id'], /^req_/)
        assert.equal(headers['x-request-id'], reply.headers['x-request-id'])
        assert.equal(t.gateway.ingress.webSockets, 1)
        client.ws.close(1000)
        await client.closing()
        await idle(t)
        assert.equal(t.gateway.ingress.webSockets, 0)
        const [row] = await rows(t)
        assert.deepEqual(
          [row!.request_id, row!.outcome, row!.organization],
          [reply.headers['x-request-id'], 'completed', 'acme'],
        )
        assert.equal(t.log.find(({ message }) => message === 'exchange')?.fields.status, 101)
      })
    })

    test('messages both ways keep their kind, their order and their bounds, in fragments too; pings are answered', async () => {
      await using(async t => {
        const { client, end } = await open(t)
        const said: (string | Buffer)[] = ['', 'héllo', Buffer.from([0, 255, 128]), 'x'.repeat(125), 'x'.repeat(126)]
        said.push('é'.repeat(40_000), randomBytes(65_535), randomBytes(65_536), Buffer.alloc(0), 'end')
        for (const [from, to] of [
          [client, end],
          [end, client],
        ] as const) {
          for (const one of said) from.ws.send(one)
          from.ws.send('in ', { fin: false })
          from.ws.send('three ', { fin: false })
          from.ws.send('parts')
          from.ws.ping('are you there?')
          await eventually(() => to.heard.length === said.length + 1 && from.pongs.length === 1)
          assert.deepEqual(
            to.heard.map(({ data, binary }) => (binary ? data.toString('hex') : data.toString())),
            [...said.map(one => (typeof one === 'string' ? one : one.toString('hex'))), 'in three parts'],
          )
          assert.deepEqual(from.pongs, ['are you there?'])
          assert.deepEqual(to.pings, ['are you there?'])
        }
        client.ws.close()
        await client.closing()
      })
    })

    test('either side closes: the other gets its code and its reason', async () => {
      await using(async t => {
        for (const [code, reason] of [
          [1000, 'done'],
          [4001, 'so löng'],
          [undefined, ''],
        ] as const) {
          for (const who of ['client', 'end'] as const) {
            const pair = await open(t)
            const other = who === 'client' ? pair.end : pair.client
            pair[who].ws.send('last words')
            pair[who].ws.close(code, reason)
            await other.closing()
            assert.deepEqual(other.closed, [code ?? 1005, reason], who)
            assert.deepEqual(other.texts, ['last words'])
            await pair[who].closing()
            await idle(t)
          }
        }
        assert.deepEqual(new Set((await rows(t)).map(row => row.outcome)), new Set(['completed']))
      })
    })

    test('a client that vanishes ends the target’s side; a target that vanishes ends the client’s', async () => {
      await using(async t => {
        const first = await open(t)
        first.client.ws._socket.resetAndDestroy()
        await first.end.closing()
        assert.equal(first.end.closed![0], 1006)
        await idle(t)
        const second = await open(t)
        second.end.ws._socket.resetAndDestroy()
        await second.client.closing()
        assert.ok([1006, 1011].includes(second.client.closed![0]), String(second.client.closed))
        await idle(t)
        assert.deepEqual((await rows(t)).map(row => row.outcome).sort(), ['client_gone', 'upstream_error'])
        await eventually(() => sockets.size === 0)
      })
    })

    test('[STR-4] a client that reads nothing holds the target back, and gets every byte when it reads again', async () => {
      await using(async t => {
        const { client, end } = await open(t)
        client.ws._socket.pause()
        const message = randomBytes(1024 * 1024)
        for (let i = 0; i < 40; i++) end.ws.send(message)
        // More than the kernel's buffers on the way hold, so the target's own stays full.
        let before = -1
        let looks = 0
        await eventually(() => {
          const waits = end.ws.bufferedAmount
          looks = waits === before && waits > 0 ? looks + 1 : 0
          before = waits
          return looks === 50
        })
        client.ws._socket.resume()
        await eventually(() => client.heard.length === 40)
        assert.ok(client.heard.every(({ data }) => data.equals(message)))
        client.ws.close()
        await client.closing()
        await idle(t)
      })
    })

    test('[STR-4] a target that reads slowly gets every message of a client', async () => {
      await using(async t => {
        const { client, end } = await open(t)
        end.ws._socket.pause()
        const message = randomBytes(1024 * 1024)
        for (let i = 0; i < 12; i++) client.ws.send(message)
        client.ws.close(4000)
        end.ws._socket.resume()
        await end.closing()
        assert.equal(end.heard.length, 12)
        assert.ok(end.heard.every(({ data }) => data.equals(message)))
        assert.equal(end.closed![0], 4000)
        await idle(t)
      })
    })

    test('a target that refuses, or knows no upgrades: its answer is passed on', async () => {
      await using(async t => {
        const refused = async () => {
          const [, response] = await once(
            dial(t).on('error', () => {}),
            'unexpected-response',
          )
          let body = ''
          for await (const piece of response) body += piece
          return [response.statusCode, body]
        }
        onHandshake = (_, socket) =>
          void socket.end('HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nno, you')
        assert.deepEqual(await refused(), [403, 'no, you'])
        onHandshake = (_, socket) => void socket.destroy()
        assert.equal((await refused())[0], 502)
        target.removeAllListeners('upgrade')
        assert.deepEqual(await refused(), [200, 'plain'])
        await idle(t)
      })
    })

    test('[AUTH-1] without a key there is no WebSocket: 401, and the target is never connected to', async () => {
      await using(async t => {
        const [, response] = await once(
          dial(t, [], 'sk-wrong').on('error', () => {}),
          'unexpected-response',
        )
        assert.equal(response.statusCode, 401)
        response.resume()
        assert.equal(sockets.size, 0)
      })
    })

    test('[LIM-3] a WebSocket holds its slot to its end', async () => {
      await using(
        async t => {
          const { client } = await open(t)
          const [, response] = await once(
            dial(t).on('error', () => {}),
            'unexpected-response',
          )
          assert.equal(response.statusCode, 429)
          response.resume()
          client.ws.close()
          await client.closing()
          await idle(t)
          const next = await open(t)
          next.client.ws.close()
          await next.client.closing()
        },
        { limits: 'concurrent_requests: 1' },
      )
    })

    test('a drain lets it run, and ends it at the deadline; with `websocket: off` too', async () => {
      await using(
        async t => {
          const { client, end } = await open(t)
          const drained = t.gateway.drain()
          client.ws.send('still here')
          await eventually(() => end.heard.length === 1)
          await client.closing()
          await end.closing()
          await drained
          assert.equal(t.gateway.ingress.running.size, 0)
        },
        { drain: '4s', server: ', websocket: off' },
      )
    })
  })
}

test('on `uws` a client that sends far more than its target takes is closed: its reading cannot be paused', {
  skip,
}, async () => {
  const t = await startGateway({ yaml: () => yaml('', '2s', ''), gateway: { listener: 'uws' } })
  try {
    onHandshake = (request, socket) => {
      const key = request.headers['sec-websocket-key']
      const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
      // Nothing that follows is read.
      socket.pause()
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
      )
    }
    const client = new End(
      new WebSocket(`${t.url.replace('http', 'ws')}/v1/live/a`, { headers: { authorization: `Bearer ${KEY}` } }),
    )
    await once(client.ws, 'open')
    const message = Buffer.alloc(1024 * 1024)
    for (let i = 0; i < 64; i++) client.ws.send(message)
    await client.closing()
    assert.deepEqual(client.closed, [1013, 'too fast'])
    await eventually(() => t.gateway.ingress.running.size === 0)
    const metrics = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
    assert.match(metrics, /^sluice_tunnel_overruns_total 1$/m)
  } finally {
    await t.close()
  }
})

test('on `uws` a target whose proof or whose frames are wrong is not passed on', { skip }, async () => {
  const t = await startGateway({ yaml: () => yaml('', '2s', ''), gateway: { listener: 'uws' } })
  const dial = () =>
    new WebSocket(`${t.url.replace('http', 'ws')}/v1/live/a`, { headers: { authorization: `Bearer ${KEY}` } })
  try {
    onHandshake = (_, socket) =>
      void socket
        .resume()
        .write(
          'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n',
        )
    const [, response] = await once(
      dial().on('error', () => {}),
      'unexpected-response',
    )
    assert.equal(response.statusCode, 502)
    response.resume()
    const server = new WSServer({ noServer: true })
    onHandshake = (request, socket, head) =>
      // A frame of an extension that nobody asked for.
      server.handleUpgrade(request, socket, head, () => void socket.write(Buffer.from([0xc1, 1, 65])))
    const client = new End(dial())
    await client.closing()
    assert.deepEqual(client.closed, [1014, 'the target sent a frame of an extension that was not agreed on'])
    await eventually(() => t.gateway.ingress.running.size === 0 && sockets.size === 0)
  } finally {
    await t.close()
  }
})
