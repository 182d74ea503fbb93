/**
 * The `proxy` pipeline of the reference file: bytes through the gateway to a target and back, on both listeners.
 * Upgrades: proxy-tunnel.test.ts.
 */
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { type Clock, ManualClock } from '../../core/tools/clock.ts'
import { eventually, standsStill } from '../eventually.ts'
import { RawClient } from '../listener/harness.ts'
import { LISTENERS } from '../listeners.ts'
import { freePort } from '../ports.ts'
import { KEY, sha256, startGateway, stillClock, type TestGateway } from './harness.ts'

type Handler = (request: IncomingMessage, response: ServerResponse) => void

/** What the target does with the next requests, by path. */
const handlers = new Map<string, Handler>()
let target: Server
let targetUrl: string
const targetSockets = new Set<Socket>()
before(async () => {
  target = createServer((request, response) => {
    const handler = handlers.get(new URL(request.url!, 'http://t').pathname)
    if (handler) handler(request, response)
    else response.writeHead(404).end()
  })
  target.on('connection', socket => {
    targetSockets.add(socket)
    socket.on('close', () => targetSockets.delete(socket))
  })
  target.listen(0, '127.0.0.1')
  await once(target, 'listening')
  targetUrl = `http://127.0.0.1:${(target.address() as AddressInfo).port}`
})
after(() => {
  target.close()
  for (const socket of targetSockets) socket.destroy()
})

function yaml(options: { target?: string; proxy?: string; limits?: string } = {}): string {
  return `version: 1
server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0, drain: 2s }
store: "sqlite::memory:"
pipelines:
  embeddings:
    - auth
    - admission
    - proxy: { target: "${options.target ?? targetUrl}", ${options.proxy ?? 'timeout: 5s'} }
    - usage-capture
    - header-stamp
routes: [{ match: ANY /v1/embeddings/*, pipeline: embeddings }]
organizations:
  acme: { plan: custom, limits: { ${options.limits ?? ''} }, keys: [{ id: key_test, sha256: "${sha256(KEY)}", status: active }] }
log: { level: info, bodies: false }
`
}

const start = (listener: 'uws' | 'node', options?: Parameters<typeof yaml>[0], clock?: Clock): Promise<TestGateway> =>
  startGateway({ yaml: () => yaml(options), gateway: { listener, ...(clock && { clock }) } })

interface Reply {
  status: number
  headers: IncomingMessage['headers']
  body: Buffer
}

/** A client of our own: fetch hides connections, cuts and header lines. */
function call(
  t: TestGateway,
  path: string,
  options: {
    method?: string
    headers?: Record<string, string | string[]>
    body?: Buffer | string
    chunked?: boolean
  } = {},
): Promise<Reply> {
  const { body } = options
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      `${t.url}/v1/embeddings${path}`,
      {
        method: options.method ?? (body === undefined ? 'GET' : 'POST'),
        agent: false,
        headers: {
          authorization: `Bearer ${KEY}`,
          ...(body !== undefined &&
            (options.chunked ? { 'transfer-encoding': 'chunked' } : { 'content-length': Buffer.byteLength(body) })),
          ...options.headers,
        },
      },
      response => {
        const pieces: Buffer[] = []
        response.on('data', piece => pieces.push(piece))
        response.on('end', () =>
          resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(pieces) }),
        )
        response.on('error', reject)
      },
    )
    request.on('error', reject)
    request.end(body)
  })
}

const json = (reply: Reply) => JSON.parse(reply.body.toString())
const idle = (t: TestGateway) => eventually(() => t.gateway.ingress.running.size === 0)

/** Answers with what it was sent. */
function mirror(request: IncomingMessage, response: ServerResponse): void {
  const pieces: Buffer[] = []
  request.on('data', piece => pieces.push(piece))
  request.on('end', () => {
    const raw: [string, string][] = []
    for (let i = 0; i < request.rawHeaders.length; i += 2)
      raw.push([request.rawHeaders[i]!.toLowerCase(), request.rawHeaders[i + 1]!])
    response.end(
      JSON.stringify({
        method: request.method,
        url: request.url,
        headers: raw,
        body: Buffer.concat(pieces).toString(),
      }),
    )
  })
}

for (const listener of LISTENERS) {
  describe(`proxy on ${listener}`, () => {
    let t: TestGateway
    before(async () => {
      t = await start(listener)
    })
    after(() => t.close())

    test('method, path, query and body reach the target as they are; its status and body come back', async () => {
      handlers.set('/v1/embeddings/mirror', mirror)
      for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'GET', 'OPTIONS']) {
        for (const chunked of [false, true]) {
          const reply = await call(t, '/mirror?a=%2F&b', { method, body: 'hélló', chunked })
          assert.equal(reply.status, 200)
          const seen = json(reply)
          assert.deepEqual(
            [seen.method, seen.url, seen.body],
            [method, '/v1/embeddings/mirror?a=%2F&b', 'hélló'],
            `${method} ${chunked}`,
          )
        }
      }
      const bare = json(await call(t, '/mirror', { method: 'DELETE' }))
      assert.deepEqual([bare.url, bare.body], ['/v1/embeddings/mirror', ''])
    })

    test('no path leads out of its route, and none is rewritten on the way to the target', async () => {
      // http-proxy-3 resolved `..` by itself: /v1/embeddings/../x was matched by this route and sent on, with the
      // target's key, as /v1/x.
      const seen: string[] = []
      const watch = (request: IncomingMessage) => void seen.push(request.url!)
      target.on('request', watch)
      try {
        const status = (path: string) =>
          new Promise<number>((resolve, reject) => {
            const headers = { authorization: `Bearer ${KEY}` }
            httpRequest({ host: '127.0.0.1', port: t.gateway.port, path, agent: false, headers }, response => {
              response.resume().on('end', () => resolve(response.statusCode!))
            })
              .on('error', reject)
              .end()
          })
        const climbing = ['..', '../x', 'a/../../x', '%2e%2E/x', '.%2e/x', '..%2fx', 'a%2f..%2fx', '..\\x', '..;/x']
        climbing.push('..%00/x', '..%09/x', '..%20/x', '%252e%252e/x', '..%25252fx')
        for (const path of climbing) assert.equal(await status(`/v1/embeddings/${path}`), 400, path)
        assert.deepEqual(seen, [])
        const plain = ['a..b', '...', './a', 'a"|b', '%', 'a//b', '%2e', 'a%20..b', '%25', 'a?x=/../', 'a?b="c"']
        for (const path of plain) await status(`/v1/embeddings/${path}`)
        assert.deepEqual(
          seen,
          plain.map(path => `/v1/embeddings/${path}`),
        )
      } finally {
        target.off('request', watch)
      }
    })

    test('a plugin above that takes the whole body leaves it for the target', async () => {
      const folder = await mkdtemp(join(tmpdir(), 'sluice-proxy-'))
      const file = join(folder, 'weighs.mjs')
      await writeFile(
        file,
        `import { definePlugin, requestBody } from 'sluice'
export default definePlugin({
  name: 'weighs',
  summary: 'Weighs the body.',
  needs: [requestBody],
  create: (_, { log }) => ({ onRequest: x => void log.info({ bytes: x.get(requestBody).length }, 'weighs') }),
})
`,
      )
      const weighed = await startGateway({
        yaml: () =>
          `${yaml().replace('    - proxy:', '    - weighs\n    - proxy:')}plugins: [${JSON.stringify(file)}]\n`,
        gateway: { listener },
      })
      try {
        handlers.set('/v1/embeddings/weighed', mirror)
        for (const chunked of [false, true]) {
          for (const body of ['', 'hello', 'x'.repeat(300_000)])
            assert.equal(json(await call(weighed, '/weighed', { method: 'POST', body, chunked })).body, body)
        }
        assert.deepEqual(
          weighed.log.filter(e => e.message === 'weighs').map(e => e.fields.bytes),
          [0, 5, 300_000, 0, 5, 300_000],
        )
        assert.deepEqual(new Set((await weighed.ledger()).map(row => row.bytes_in)), new Set([0, 5, 300_000]))
      } finally {
        await weighed.close()
        await rm(folder, { recursive: true, force: true })
      }
    })

    test('a body that asks to be framed otherwise is no second request to the target', async () => {
      let smuggled = false
      handlers.set('/v1/embeddings/swallow', mirror)
      handlers.set('/smuggled', (_, response) => {
        smuggled = true
        response.end()
      })
      const inner = 'GET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n'
      for (const connection of ['keep-alive', 'keep-alive, content-length', 'transfer-encoding']) {
        for (const method of ['DELETE', 'GET', 'OPTIONS', 'POST']) {
          for (const chunked of [false, true]) {
            const reply = await call(t, '/swallow', { method, body: inner, chunked, headers: { connection } })
            assert.equal(json(reply).body, inner)
          }
        }
      }
      assert.equal(smuggled, false)
    })

    test('headers of one hop, the credential and what the gateway answers for stay here', async () => {
      handlers.set('/v1/embeddings/headers', mirror)
      const reply = await call(t, '/headers', {
        headers: {
          connection: 'x-mine, keep-alive',
          'x-mine': 'no',
          'keep-alive': 'timeout=9',
          te: 'trailers',
          'proxy-authorization': 'Basic no',
          'x-api-key': 'sk-no',
          'x-yours': 'yes',
          'user-agent': 'test/1',
          'x-request-id': 'client-made',
        },
      })
      const sent = new Map<string, string>(json(reply).headers)
      for (const name of ['x-mine', 'te', 'keep-alive', 'proxy-authorization', 'authorization', 'x-api-key']) {
        assert.equal(sent.get(name), undefined, name)
      }
      assert.equal(sent.get('x-yours'), 'yes')
      assert.equal(sent.get('user-agent'), 'test/1')
      assert.equal(sent.get('host'), new URL(targetUrl).host)
      assert.equal(sent.get('x-request-id'), reply.headers['x-request-id'])
      assert.doesNotMatch(JSON.stringify([...sent]), new RegExp(KEY))
    })

    test('reply headers come back, those of one hop do not; every cookie is a line of its own', async () => {
      handlers.set('/v1/embeddings/reply-headers', (request, response) => {
        request.resume()
        response.writeHead(201, [
          'Connection',
          'keep-alive, x-hop',
          'X-Hop',
          'no',
          'Keep-Alive',
          'timeout=5',
          'Proxy-Authenticate',
          'Basic',
          'Set-Cookie',
          'a=1; Path=/',
          'Set-Cookie',
          'b=2',
          'Vary',
          'accept',
          'Vary',
          'origin',
          'X-Request-Id',
          'theirs',
          'Content-Type',
          'text/plain',
        ])
        response.end('made')
      })
      const reply = await call(t, '/reply-headers')
      assert.equal(reply.status, 201)
      assert.equal(reply.body.toString(), 'made')
      assert.deepEqual(reply.headers['set-cookie'], ['a=1; Path=/', 'b=2'])
      assert.equal(reply.headers.vary, 'accept, origin')
      assert.equal(reply.headers['content-type'], 'text/plain')
      assert.match(String(reply.headers['x-request-id']), /^req_/)
      for (const name of ['x-hop', 'proxy-authenticate']) assert.equal(reply.headers[name], undefined, name)
      assert.doesNotMatch(String(reply.headers['keep-alive'] ?? ''), /timeout=5/)
    })

    // On `uws` a value was read as UTF-8 and sent as Latin-1, or the other way round: é became Ã©, or the request a 500.
    test('bytes of 0x80 and above in header values pass both ways as they came', async () => {
      handlers.set('/v1/embeddings/bytes', mirror)
      /** The whole answer to a request with these header lines; one character is one byte. */
      const exchange = async (lines: string[], path = '/bytes', method = 'GET'): Promise<string> => {
        const client = await RawClient.open(t.gateway.port)
        const head = [`${method} /v1/embeddings${path} HTTP/1.1`, 'Host: a', `Authorization: Bearer ${KEY}`, ...lines]
        client.send([...head, 'Connection: close', '', ''].join('\r\n'))
        await client.answers(1)
        client.destroy()
        return client.received.toString('latin1')
      }
      const utf8 = Buffer.from('a é, 漢字 z').toString('latin1')
      const sent = await exchange([`X-Utf8: ${utf8}`])
      // The target's JSON is UTF-8 of what Node took for Latin-1.
      assert.ok(sent.includes(Buffer.from(JSON.stringify(['x-utf8', utf8])).toString('latin1')), sent)

      // What is not UTF-8 was refused on `uws`; U+FFFD, which stood for it, is UTF-8 itself.
      for (const [lines, value] of [
        [['X-Latin1: a \xe9 z'], 'a \xe9 z'],
        [['X-Latin1: a \xef\xbf\xbd z'], 'a \xef\xbf\xbd z'],
        [['X-Latin1: a \xe9 z', `X-Latin1: ${utf8}`], `a \xe9 z, ${utf8}`],
      ] as const) {
        const latin1 = await exchange([...lines])
        assert.ok(latin1.includes(Buffer.from(JSON.stringify(['x-latin1', value])).toString('latin1')), latin1)
      }
      const twice = await exchange(['X-Latin1: a', 'X-Latin1: a \xe9 z'])
      if (listener === 'node') assert.ok(twice.includes(Buffer.from('"a, a \xe9 z"').toString('latin1')), twice)
      else {
        assert.match(twice, /^HTTP\/1\.1 400 /)
        assert.match(twice, /The header 'x-latin1' stands more than once, with bytes that are not UTF-8/)
      }

      const value = '\xe9t\xe9 \x80\xff \xc3\xa9'
      handlers.set('/v1/embeddings/named', (request, response) => {
        request.resume()
        const [status, size] = new URL(request.url!, 'http://t').search.slice(1).split('-').map(Number)
        response.writeHead(status!, { 'X-Name': value })
        response.end(Buffer.alloc(size!, 'x'))
      })
      for (const [status, size, method] of [
        [200, 0, 'GET'],
        [200, 10, 'HEAD'],
        [200, 100_000, 'GET'],
        [304, 0, 'GET'],
        [404, 5, 'GET'],
      ] as const) {
        const client = await RawClient.open(t.gateway.port)
        const path = `/v1/embeddings/named?${status}-${size}`
        client.headAnswers = method === 'HEAD' ? 1 : 0
        client.send(`${method} ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\n\r\n`)
        const [answer] = await client.answers(1)
        client.destroy()
        assert.deepEqual([answer!.status, answer!.headers.get('x-name')], [status, value], `${method} ${path}`)
        if (method === 'GET' && status !== 304) assert.equal(answer!.body.length, size)
      }
    })

    test('HEAD, 204 and 304 have no body, and HEAD keeps its length', async () => {
      handlers.set('/v1/embeddings/status', (request, response) => {
        request.resume()
        const status = Number(new URL(request.url!, 'http://t').searchParams.get('s'))
        response.writeHead(status, status === 200 ? { 'content-length': '1234' } : {})
        response.end()
      })
      const head = await call(t, '/status?s=200', { method: 'HEAD' })
      assert.equal(head.status, 200)
      assert.equal(head.headers['content-length'], '1234')
      for (const status of [204, 304, 302, 404, 500]) {
        const reply = await call(t, `/status?s=${status}`)
        assert.equal(reply.status, status)
        assert.equal(reply.body.length, 0)
      }
    })

    test('it streams both ways: an answer begins while the request still runs', async () => {
      handlers.set('/v1/embeddings/duplex', (request, response) => {
        response.writeHead(200)
        request.on('data', piece => response.write(piece))
        request.on('end', () => response.end('.'))
      })
      const client = await RawClient.open(t.gateway.port)
      client.send(
        `POST /v1/embeddings/duplex HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n`,
      )
      await client.until(() => client.received.includes('one'))
      client.send('3\r\ntwo\r\n')
      await client.until(() => client.received.includes('two'))
      client.send('0\r\n\r\n')
      const [answer] = await client.answers(1)
      assert.equal(answer!.body.toString(), 'onetwo.')
      client.destroy()
    })

    test('[STR-4] 24 MB up and down with a slow end each: equal to the byte, and held back', async () => {
      const size = 24 * 1024 * 1024
      const up = randomBytes(size)
      const sum = createHash('sha256').update(up).digest('hex')
      const received = createHash('sha256')
      let ahead = 0
      handlers.set('/v1/embeddings/big', (request, response) => {
        let taken = 0
        request.on('data', piece => {
          received.update(piece)
          taken += piece.length
          // The target stops to breathe now and then.
          if (taken % 7 === 0) {
            request.pause()
            setImmediate(() => request.resume())
          }
        })
        request.on('end', () => {
          let at = 0
          const pump = (): void => {
            while (at < size) {
              const room = response.write(up.subarray(at, (at += 100_003)))
              ahead = at
              if (!room) return void response.once('drain', pump)
            }
            response.end()
          }
          pump()
        })
      })
      const down = createHash('sha256')
      let stalledAhead = 0
      await new Promise<void>((resolve, reject) => {
        const request = httpRequest(
          `${t.url}/v1/embeddings/big`,
          { method: 'POST', agent: false, headers: { authorization: `Bearer ${KEY}`, 'content-length': size } },
          response => {
            let taken = 0
            let stalled = false
            response.on('data', piece => {
              down.update(piece)
              taken += piece.length
              if (!stalled && taken > 1_000_000) {
                stalled = true
                response.pause()
                void standsStill(() => ahead).then(() => {
                  stalledAhead = ahead - taken
                  response.resume()
                })
              }
            })
            response.on('end', resolve)
            response.on('error', reject)
          },
        )
        request.on('error', reject)
        request.end(up)
      })
      assert.equal(received.digest('hex'), sum)
      assert.equal(down.digest('hex'), sum)
      assert.ok(
        stalledAhead < 16 * 1024 * 1024,
        `the target was ${stalledAhead} bytes ahead of a client that took none`,
      )
    })

    test('[STR-4] a client that leaves destroys the request to the target: before the answer, and in it', async () => {
      // No timer of the gateway ever fires: what ends the request is that the client has left.
      const g = await start(listener, {}, new ManualClock())
      for (const early of [true, false]) {
        let gone: Promise<unknown> | undefined
        handlers.set('/v1/embeddings/slow', (request, response) => {
          gone = new Promise(resolve => response.once('close', resolve))
          request.resume()
          if (!early) response.write('first')
        })
        const client = await RawClient.open(g.gateway.port)
        client.send(`GET /v1/embeddings/slow HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\n\r\n`)
        if (early) await eventually(() => gone !== undefined)
        else await client.until(() => client.received.includes('first'))
        client.destroy()
        await gone
        await idle(g)
      }
      await g.close()
    })

    test('a client that leaves in its upload takes the request to the target with it', async () => {
      let broken: Promise<unknown> | undefined
      handlers.set('/v1/embeddings/half', request => {
        broken = new Promise(resolve => request.on('close', () => resolve(request.complete)))
        request.resume()
      })
      const client = await RawClient.open(t.gateway.port)
      client.send(
        `POST /v1/embeddings/half HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\nContent-Length: 1000\r\n\r\nabc`,
      )
      await eventually(() => broken !== undefined)
      client.destroy()
      assert.equal(await broken, false)
      await idle(t)
    })

    test('an early answer ends the upload: the client gets it, the target is let go, slots are free', async () => {
      let closed: Promise<unknown> | undefined
      handlers.set('/v1/embeddings/early', (request, response) => {
        closed = new Promise(resolve => request.socket.once('close', resolve))
        response.writeHead(413, { 'content-type': 'text/plain' })
        response.end('too much')
      })
      const client = await RawClient.open(t.gateway.port)
      client.send(
        `POST /v1/embeddings/early HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\nContent-Length: 5000000\r\n\r\n`,
      )
      const piece = Buffer.alloc(50_000, 'x')
      for (let i = 0; i < 20; i++) client.send(piece)
      await client.until(() => client.received.includes('too much'))
      assert.match(client.received.toString('latin1'), /^HTTP\/1\.1 413 /)
      await closed
      await idle(t)
      client.destroy()
    })

    test('[ERR-6] a target that cuts its reply: the client sees a cut, never an end', async () => {
      handlers.set('/v1/embeddings/cut', (request, response) => {
        request.resume()
        const chunked = request.url!.includes('chunked')
        response.writeHead(200, chunked ? {} : { 'content-length': '100' })
        response.write('part', () => response.socket!.destroy())
      })
      for (const kind of ['chunked', 'length']) {
        const client = await RawClient.open(t.gateway.port)
        client.send(`GET /v1/embeddings/cut?${kind} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\n\r\n`)
        await client.closing()
        const [answer] = await client.answers(1)
        assert.equal(answer!.status, 200)
        assert.equal(answer!.body.toString(), 'part')
        assert.equal(answer!.whole, false)
      }
      // Cut before any head: an error of its own.
      handlers.set('/v1/embeddings/drop', request => void request.socket.destroy())
      const reply = await call(t, '/drop')
      assert.equal(reply.status, 502)
      assert.equal(json(reply).error.code, 'upstream_server_error')
    })

    test('[BILL-4] one ledger row each, with bytes both ways', async () => {
      handlers.set('/v1/embeddings/count', (request, response) => {
        request.resume()
        request.on('end', () => response.end('x'.repeat(2345)))
      })
      const reply = await call(t, '/count', { body: Buffer.alloc(1234) })
      await idle(t)
      const rows = (await t.ledger()).filter(row => row.request_id === reply.headers['x-request-id'])
      assert.equal(rows.length, 1)
      const [row] = rows
      assert.deepEqual(
        [
          row!.bytes_in,
          row!.bytes_out,
          row!.outcome,
          row!.organization,
          row!.key_id,
          row!.model,
          row!.cost,
          row!.input,
        ],
        [1234, 2345, 'completed', 'acme', 'key_test', '', 0, 0],
      )
    })

    test('[AUTH-1] without a key the target sees nothing', async () => {
      let seen = 0
      handlers.set('/v1/embeddings/closed', (_, response) => {
        seen++
        response.end()
      })
      const reply = await call(t, '/closed', { headers: { authorization: 'Bearer sk-wrong' }, body: 'x' })
      assert.equal(reply.status, 401)
      assert.equal(json(reply).error.code, 'invalid_api_key')
      assert.equal(seen, 0)
    })

    test('a target with a status or header that cannot be passed on is an error, not a crash', async () => {
      const odd = createTcpServer(socket => {
        socket.on('error', () => {})
        socket.once('data', data => {
          const status = /s=(\S+) /.exec(data.toString())![1]
          socket.end(`HTTP/1.1 ${status} Odd\r\nContent-Length: 2\r\n\r\nok`)
        })
      })
      odd.listen(0, '127.0.0.1')
      await once(odd, 'listening')
      const g = await start(listener, { target: `http://127.0.0.1:${(odd.address() as AddressInfo).port}` })
      try {
        for (const status of [999, 600, 101]) {
          const reply = await call(g, `/odd?s=${status}`)
          assert.equal(reply.status, 502, String(status))
        }
        await idle(g)
      } finally {
        await g.close()
        odd.close()
      }
    })

    test('[ERR-6] a target that is down: 503 with a wait of 5 to 15 s; one that is silent: 504', async () => {
      const g = await start(listener, { target: `http://127.0.0.1:${await freePort()}` })
      try {
        const reply = await call(g, '/x', { body: 'hello' })
        assert.equal(reply.status, 503)
        assert.equal(json(reply).error.code, 'provider_unavailable')
        const wait = Number(reply.headers['retry-after'])
        assert.ok(wait >= 5 && wait <= 15)
        await idle(g)
        assert.equal((await g.ledger()).at(-1)!.outcome, 'upstream_error')
      } finally {
        await g.close()
      }
      const clock = new ManualClock()
      const silent = await start(listener, { proxy: 'timeout: 60s' }, clock)
      try {
        const hung: Promise<unknown>[] = []
        handlers.set('/v1/embeddings/hang', (request, response) => {
          hung.push(new Promise(resolve => response.once('close', resolve)))
          request.resume()
          if (request.url!.includes('late')) response.write('begun')
        })
        const asked = call(silent, '/hang')
        await eventually(() => hung.length === 1)
        clock.advance(62_000)
        const reply = await asked
        assert.equal(reply.status, 504)
        assert.equal(json(reply).error.code, 'gateway_timeout')
        assert.ok(Number(reply.headers['retry-after']) >= 1)
        const client = await RawClient.open(silent.gateway.port)
        client.send(`GET /v1/embeddings/hang?late HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${KEY}\r\n\r\n`)
        await client.until(() => client.received.includes('begun'))
        clock.advance(62_000)
        await client.closing()
        assert.equal((await client.answers(1))[0]!.whole, false)
        await Promise.all(hung)
        await idle(silent)
      } finally {
        await silent.close()
      }
    })

    // Eight of them reached the target as the client had written them: it took the client for an address of its choice,
    // or served another path than the one that the gateway had routed.
    test('the target gets no header by which the client could say where a request came from or what is meant', async () => {
      handlers.set('/v1/embeddings/words', mirror)
      const words = {
        Forwarded: 'for=10.0.0.1',
        'X-Forwarded': '10.0.0.1',
        'X-Forwarded-For': '10.0.0.1',
        'X-Forwarded-Host': 'internal',
        'X-Forwarded-Prefix': '/admin',
        'X-Real-IP': '10.0.0.1',
        'True-Client-IP': '10.0.0.1',
        'X-Original-URL': '/admin',
        'X-Original-Host': 'internal',
        'X-Rewrite-URL': '/admin',
        'X-HTTP-Method': 'DELETE',
        'X-HTTP-Method-Override': 'DELETE',
        'X-Method-Override': 'DELETE',
        X_Forwarded_For: '10.0.0.1',
      }
      // Also not behind a proxy that is trusted: it appends to what the client wrote.
      for (const trusted of ['', ', trust_proxy: [127.0.0.1]']) {
        const g = await startGateway({
          yaml: () => yaml().replace('drain: 2s', `drain: 2s${trusted}`),
          gateway: { listener },
        })
        try {
          const reply = await call(g, '/words', { headers: { ...words, 'X-Own': 'kept' } })
          const sent = new Map<string, string>(
            json(reply).headers.map(([name, value]: string[]) => [name!.toLowerCase(), value]),
          )
          assert.equal(sent.get('x-own'), 'kept')
          assert.deepEqual(
            Object.keys(words).filter(name => sent.has(name.toLowerCase())),
            [],
          )
        } finally {
          await g.close()
        }
      }
    })

    test('the target gets its own key, not the client’s', async () => {
      handlers.set('/v1/embeddings/key', mirror)
      const g = await start(listener, { proxy: 'api_key: target-key' })
      try {
        const sent = new Map<string, string>(json(await call(g, '/key')).headers)
        assert.equal(sent.get('authorization'), 'Bearer target-key')
      } finally {
        await g.close()
      }
    })

    test('[LIM-1] [LIM-3] limits hold: of many at once exactly N pass; a slot comes back when its reply is over', async () => {
      const g = await start(listener, { limits: 'requests_per_minute: 6, concurrent_requests: 3' }, stillClock())
      try {
        const open: ServerResponse[] = []
        handlers.set('/v1/embeddings/wait', (request, response) => {
          request.resume()
          open.push(response)
        })
        const denied: Reply[] = []
        const first = Array.from({ length: 10 }, async () => {
          const reply = await call(g, '/wait')
          if (reply.status === 429) denied.push(reply)
          return reply
        })
        await eventually(() => denied.length === 7 && open.length === 3)
        assert.equal(json(denied[0]!).error.code, 'concurrency_limit_exceeded')
        for (const response of open.splice(0)) response.end('ok')
        const replies = await Promise.all(first)
        assert.equal(replies.filter(r => r.status === 200).length, 3)
        assert.equal(replies.find(r => r.status === 200)!.headers['x-ratelimit-limit-requests'], '6')
        await idle(g)
        const second = Array.from({ length: 3 }, () => call(g, '/wait'))
        await eventually(() => open.length === 3)
        for (const response of open.splice(0)) response.end('ok')
        assert.deepEqual(
          (await Promise.all(second)).map(r => r.status),
          [200, 200, 200],
        )
        const over = await call(g, '/wait')
        assert.equal(json(over).error.code, 'requests_limit_exceeded')
      } finally {
        await g.close()
      }
    })
  })
}

// Joined with a comma, as other headers are, the target read one cookie whose value held the others.
for (const listener of LISTENERS) {
  test(`repeated lines of Cookie reach the target as one list of cookies, on ${listener}`, async () => {
    const t = await start(listener)
    let seen: string | undefined
    handlers.set('/v1/embeddings/cookies', (request, response) => {
      seen = request.headers.cookie
      response.end('ok')
    })
    try {
      // Node's own client would join the lines itself.
      const client = await RawClient.open(t.gateway.port)
      const lines = ['Host: a', `Authorization: Bearer ${KEY}`, 'Cookie: a=1', 'Cookie: b=2; c=3', 'Connection: close']
      client.send(`GET /v1/embeddings/cookies HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`)
      await client.closing()
      assert.equal(seen, 'a=1; b=2; c=3')
    } finally {
      await t.close()
    }
  })
}
