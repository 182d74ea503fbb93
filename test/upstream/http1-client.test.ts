/** The HTTP/1.1 client against real sockets, plain and TLS: requests as written, replies of every kind, connections. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { AddressInfo, Socket } from 'node:net'
import { type TestContext, test as testOnce } from 'node:test'
import type { WireControl } from '../../core/plugin.ts'
import { type ClientOptions, Http1Client, type RequestOptions } from '../../plugins/upstream/http1/client.ts'
import { eventually } from '../eventually.ts'
import { vectors, type Whole } from './http1-vectors.ts'
import { allLinks, type Link, plain } from './links.ts'

const links = allLinks()
/** That of the test that runs. */
let link: Link = plain

/** A test on each link. */
function test(name: string, run: (context: TestContext) => Promise<void> | void): void {
  for (const each of links)
    testOnce(`${each.name}: ${name}`, context => {
      link = each
      return run(context)
    })
}

interface Server {
  origin: string
  sockets: Socket[]
  received: string[]
  close(): void
}

async function serve(answer: (socket: Socket, request: string, index: number) => void): Promise<Server> {
  const sockets: Socket[] = []
  const received: string[] = []
  const server = link.server(socket => {
    sockets.push(socket)
    socket.on('error', () => {})
    let text = ''
    socket.on('data', data => {
      text += data.toString('latin1')
      for (;;) {
        const end = text.indexOf('\r\n\r\n')
        if (end === -1) return
        const length = Number(/content-length: (\d+)/.exec(text.slice(0, end))?.[1] ?? 0)
        if (text.length < end + 4 + length) return
        const request = text.slice(0, end + 4 + length)
        text = text.slice(end + 4 + length)
        received.push(request)
        answer(socket, request, received.length - 1)
      }
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    origin: `${link.scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sockets,
    received,
    close() {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}

interface Result {
  status: number
  body: string
  /** A byte of the request may have left. */
  sent: boolean
  error: (Error & { code?: string }) | null
}

function ask(
  client: Http1Client,
  body: RequestOptions['body'] = '{}',
  hooks: { onChunk?(controller: WireControl, bytes: number): void; onEnd?(): void } = {},
): Promise<Result> {
  return new Promise(resolve => {
    const result: Result = { status: 0, body: '', sent: false, error: null }
    client.dispatch({ path: '/p', method: 'POST', headers: { 'x-a': '1' }, body } as RequestOptions, {
      onRequestStart: () => void (result.sent = true),
      onResponseStart: (_, status) => void (result.status = status),
      onResponseData(controller, chunk) {
        result.body += chunk.toString('latin1')
        hooks.onChunk?.(controller, chunk.length)
      },
      onResponseEnd() {
        hooks.onEnd?.()
        resolve(result)
      },
      onResponseError: (_, error) => resolve({ ...result, error }),
    })
  })
}

async function using(
  answer: Parameters<typeof serve>[0],
  run: (client: Http1Client, server: Server) => Promise<void>,
  options: Partial<ClientOptions> = {},
): Promise<void> {
  const server = await serve(answer)
  const { origin } = server
  const client = new Http1Client({ origin, connectTimeoutMs: 10_000, keepAliveMs: 4000, ...link.trust, ...options })
  try {
    await run(client, server)
  } finally {
    await client.close()
    server.close()
  }
}
const ok = (body: string, more = '') =>
  `HTTP/1.1 200 OK\r\n${more}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`

test('a connection is used again, one request at a time', () =>
  using(
    (socket, _, i) => socket.write(ok(`reply ${i}`)),
    async (client, server) => {
      for (let i = 0; i < 3; i++) assert.equal((await ask(client)).body, `reply ${i}`)
      assert.equal(server.sockets.length, 1)
      const both = await Promise.all([ask(client), ask(client)])
      assert.deepEqual(
        both.map(r => r.status),
        [200, 200],
      )
      assert.equal(server.sockets.length, 2)
    },
  ))

test('the request is framed as written: host, headers, length in bytes, body', () =>
  using(
    socket => socket.write(ok('x')),
    async (client, server) => {
      await ask(client, '{"a":"ü"}')
      assert.equal(
        server.received[0],
        `POST /p HTTP/1.1\r\nhost: ${new URL(server.origin).host}\r\nx-a: 1\r\ncontent-length: 10\r\n\r\n${Buffer.from('{"a":"ü"}').toString('latin1')}`,
      )
    },
  ))

test('headers of all requests and those of one: both go out, in that order, and the first are not mixed up', () =>
  using(
    socket => socket.write(ok('x')),
    async (client, server) => {
      const headers = Object.freeze({ 'x-a': '1' })
      const others = Object.freeze({ 'x-a': '2' })
      const send = (path: string, options: Partial<RequestOptions>) =>
        new Promise<void>((resolve, reject) => {
          client.dispatch(
            { method: 'POST', path, headers, ...options },
            { onResponseEnd: () => resolve(), onResponseError: (_, error) => reject(error) },
          )
        })
      await send('/p', { own: { 'x-b': 'first' } })
      await send('/p', { own: { 'x-b': 'second', 'x-c': '3' } })
      await send('/q', {})
      await send('/q', { method: 'PUT' })
      await send('/p', { headers: others })
      const host = `host: ${new URL(server.origin).host}`
      assert.deepEqual(server.received, [
        `POST /p HTTP/1.1\r\n${host}\r\nx-a: 1\r\nx-b: first\r\n\r\n`,
        `POST /p HTTP/1.1\r\n${host}\r\nx-a: 1\r\nx-b: second\r\nx-c: 3\r\n\r\n`,
        `POST /q HTTP/1.1\r\n${host}\r\nx-a: 1\r\n\r\n`,
        `PUT /q HTTP/1.1\r\n${host}\r\nx-a: 1\r\n\r\n`,
        `POST /p HTTP/1.1\r\n${host}\r\nx-a: 2\r\n\r\n`,
      ])
    },
  ))

test('connection: close and bytes beyond the end are not reused', () =>
  using(
    (socket, _, i) => socket.write(i === 0 ? ok('a', 'connection: close\r\n') : ok('b')),
    async (client, server) => {
      await ask(client)
      await ask(client)
      assert.equal(server.sockets.length, 2)
    },
  ))

test('a reset in the middle is an error, and the next request gets a new connection', () =>
  using(
    (socket, _, i) => {
      if (i > 0) socket.write(ok('fine'))
      else socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart', () => socket.resetAndDestroy())
    },
    async client => {
      const cut = await ask(client)
      assert.ok(cut.error)
      assert.equal((await ask(client)).body, 'fine')
    },
  ))

test('a close before the end is an error, never a short reply', () =>
  using(
    socket => socket.end('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n'),
    async client => {
      const cut = await ask(client)
      assert.equal(cut.error?.code, 'UND_ERR_SOCKET')
    },
  ))

test('what is ambiguous is an error', () =>
  using(
    socket => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'),
    async client => assert.equal((await ask(client)).error?.code, 'SLUICE_HTTP_PARSE'),
  ))

test('nobody listening is refused, with the code that says nothing was sent', async () => {
  const server = await serve(() => {})
  server.close()
  const client = new Http1Client({ origin: server.origin, connectTimeoutMs: 1000, keepAliveMs: 1000 })
  assert.equal((await ask(client)).error?.code, 'ECONNREFUSED')
  assert.equal(client.connections, 0)
})

test('a connection made while the event loop was blocked beyond the connect timeout is used', async () => {
  // A handshake needs the loop.
  if (link.scheme === 'https') return
  await using(
    (socket, _, i) => socket.write(ok(`reply ${i}`)),
    async client => {
      const answer = ask(client)
      await new Promise(resolve => setImmediate(resolve))
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 120)
      assert.deepEqual([(await answer).error, (await answer).body], [null, 'reply 0'])
    },
    { connectTimeoutMs: 60 },
  )
})

test('pause keeps bytes in the kernel; resume goes on where it stopped; nothing is lost', () =>
  using(
    socket => {
      const piece = 'x'.repeat(64 * 1024)
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${piece.length * 200}\r\n\r\n`)
      for (let i = 0; i < 200; i++) socket.write(piece)
    },
    async client => {
      let pauses = 0
      const result = await ask(client, '{}', {
        onChunk(controller) {
          if (++pauses % 10 !== 0) return
          controller.pause()
          setImmediate(() => controller.resume())
        },
      })
      assert.equal(result.error, null)
      assert.equal(result.body.length, 200 * 64 * 1024)
    },
  ))

test('a reply that comes at once is read in parts, one for each turn of the event loop', () =>
  using(
    socket => {
      // One write, so that the kernel has more than one part before the client reads.
      socket.write(ok('x'.repeat(2_000_000)))
    },
    async client => {
      let inTurn = 0
      let most = 0
      let turns = 0
      const result = await ask(client, '{}', {
        onChunk: (_, length) => {
          if (inTurn === 0)
            setImmediate(() => {
              most = Math.max(most, inTurn)
              inTurn = 0
              turns++
            })
          inTurn += length
        },
      })
      assert.equal(result.body.length, 2_000_000)
      assert.ok(most < 2 * 65_536, `${most} bytes in one turn`)
      assert.ok(turns >= 15, `${turns} turns`)
    },
  ))

test('abort closes the connection at once', () =>
  using(
    socket => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart'),
    async (client, server) => {
      const result = await ask(client, '{}', { onChunk: controller => controller.abort(new Error('enough')) })
      assert.equal(result.error?.message, 'enough')
      if (!server.sockets[0]!.destroyed) await new Promise(resolve => server.sockets[0]!.once('close', resolve))
      assert.equal(client.connections, 0)
    },
  ))

test('a body arrives as it is: short or long, of any characters, in one piece or several', async () => {
  const long = (text: string) => text.repeat(100_000)
  const bodies: [RequestOptions['body'], string][] = [
    ...['{"a":"é😀"}', long('ascii '), long('é'), long('的'), `${long('x')}😀`].map((text): [string, string] => [
      text,
      text,
    ]),
    [['{"a":', Buffer.from('"é😀"'), '}'], '{"a":"é😀"}'],
    [
      ['{"é":', Buffer.from(`"${long('的')}"`), ',"b":', Buffer.from(`"${long('b')}"`), '}'],
      `{"é":"${long('的')}","b":"${long('b')}"}`,
    ],
  ]
  await using(
    socket => void socket.write(ok('yes')),
    async (client, server) => {
      for (const [body, expected] of bodies) {
        assert.equal((await ask(client, body)).body, 'yes')
        const request = server.received.pop()!
        assert.equal(Buffer.from(request.slice(request.indexOf('\r\n\r\n') + 4), 'latin1').toString(), expected)
      }
    },
  )
})

test('an idle connection that the server closed is not used', () =>
  using(
    (socket, _, i) => {
      socket.write(ok(`reply ${i}`))
      if (i === 0) socket.end()
    },
    async (client, server) => {
      await ask(client)
      await new Promise(resolve => server.sockets[0]!.once('close', resolve))
      assert.equal((await ask(client)).body, 'reply 1')
    },
  ))

test('a header with a line end is refused before anything is sent', async () => {
  const client = new Http1Client({ origin: 'http://127.0.0.1:9', connectTimeoutMs: 100, keepAliveMs: 100 })
  const bad: Pick<RequestOptions, 'headers' | 'own'>[] = [
    { headers: { a: 'b\r\nc: d' } },
    { headers: {}, own: { a: 'b\nc: d' } },
    { headers: { 'a\0': '' } },
  ]
  for (const more of bad)
    assert.throws(() => client.dispatch({ path: '/', method: 'POST', ...more }, {}), /control characters/)
})

// ---- every vector, on a connection that would carry another tenant's reply next ---------------------------------

for (const how of ['in one write', 'byte by byte'] as const) {
  test(`every vector, ${how}: the reply or the fault, and who may use the connection next`, async () => {
    let vector = vectors[0]!
    await using(
      async (socket, request) => {
        if (request.includes('x-next')) return void socket.write(ok('next'))
        const bytes = Buffer.from(vector.bytes, 'latin1')
        if (how === 'in one write') socket.write(bytes)
        else
          for (const byte of bytes) {
            if (socket.destroyed) return
            socket.write(Buffer.from([byte]))
            await new Promise(resolve => setImmediate(resolve))
          }
        if (vector.closes) socket.end()
      },
      async (client, server) => {
        for (vector of vectors) {
          if (how === 'byte by byte' && vector.bytes.length > 2000) continue
          const before = server.sockets.length
          const got = await new Promise<{ seen: unknown; next: Promise<string> }>(resolve => {
            // The next one asks while the reply's last bytes are being read: nothing could be quicker.
            const next = () =>
              new Promise<string>((resolve, reject) => {
                let body = ''
                client.dispatch(
                  { path: '/', method: 'POST', headers: { 'x-next': '1' } },
                  {
                    onResponseData: (_, chunk) => void (body += chunk.toString()),
                    onResponseEnd: () => resolve(body),
                    onResponseError: (_, error) => reject(error),
                  },
                )
              })
            const seen = { status: 0, body: '' }
            client.dispatch(
              { path: '/', method: vector.method ?? 'POST', headers: {} },
              {
                onResponseStart: (_, status) => void (seen.status = status),
                onResponseData: (_, chunk) => void (seen.body += chunk.toString('latin1')),
                onResponseEnd: () => resolve({ seen, next: next() }),
                onResponseError: (_, error) =>
                  resolve({
                    seen: (error as NodeJS.ErrnoException).code === 'SLUICE_HTTP_PARSE' ? 'malformed' : 'cut',
                    next: next(),
                  }),
              },
            )
          })
          assert.equal(await got.next, 'next', vector.name)
          const kept = server.sockets.length === before + 1
          const seen = typeof got.seen === 'string' ? got.seen : { ...(got.seen as Omit<Whole, 'kept'>), kept }
          assert.deepEqual(seen, vector.want, vector.name)
          assert.ok(typeof got.seen !== 'string' || !kept, vector.name)
          // The next vector begins on a connection of its own.
          for (const socket of server.sockets) socket.destroy()
          while (client.connections > 0) await new Promise(resolve => setImmediate(resolve))
        }
      },
    )
  })
}

test('a reset at every byte is an error, or behind the last byte perhaps nothing; never a short reply', async () => {
  for (const text of [ok('hello'), 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n']) {
    let cut = 0
    await using(
      socket => void socket.write(text.slice(0, cut), () => socket.resetAndDestroy()),
      async client => {
        for (cut = 0; cut <= text.length; cut++) {
          const { error, body } = await ask(client)
          if (error === null) assert.deepEqual([cut, body], [text.length, 'hello'])
        }
      },
    )
  }
})

// ---- a connection that is not silent -----------------------------------------------------------------------------

/**
 * The client gave a connection to the next request in the very callback that read the last byte of a reply. What the
 * server had sent behind that byte, and the kernel held already, was then read as the reply to the next request:
 * another tenant's.
 */
test('a second reply that is there when the connection is used again is nobody’s', () =>
  using(
    (socket, _, i) => socket.write(ok(`reply ${i}`)),
    async (client, server) => {
      let second: Promise<Result> | undefined
      const first = await ask(client, '{}', {
        onEnd() {
          // Server and client share a process: the kernel has these bytes before the request that follows.
          server.sockets[0]!.write(ok('stolen'))
          second = ask(client)
        },
      })
      assert.deepEqual([first.body, (await second!).body], ['reply 0', 'reply 1'])
      assert.equal(server.sockets.length, 2)
    },
  ))

/**
 * The same with a FIN: the request was written to a connection that had been closed, and was lost, which is a 502 that
 * nobody may retry.
 */
test('a connection that the server closes behind its reply takes no request: that goes over a new one', () =>
  using(
    (socket, _, i) => socket.write(ok(`reply ${i}`)),
    async (client, server) => {
      let second: Promise<Result> | undefined
      await ask(client, '{}', {
        onEnd() {
          server.sockets[0]!.end()
          second = ask(client)
        },
      })
      assert.deepEqual([(await second!).body, server.received.length], ['reply 1', 2])
    },
  ))

/** The replies to the first request on each connection. What happens to a later one is told by its number, from 0. */
function onKept(lose: (socket: Socket, later: number) => void): Parameters<typeof serve>[0] {
  const used = new WeakSet<Socket>()
  let later = 0
  return (socket, _, i) => {
    if (used.has(socket)) return lose(socket, later++)
    used.add(socket)
    socket.write(ok(`reply ${i}`))
  }
}

/**
 * Servers end a kept connection without saying so: llama.cpp after each streamed reply. A request that was on its way to
 * it was lost, which was a 502, for one to two of a hundred streams.
 */
test('a request that meets the end of a kept connection goes out again over a new one', async () => {
  for (const lose of [
    (socket: Socket) => socket.end(),
    (socket: Socket) => socket.destroy(),
    (socket: Socket) => socket.resetAndDestroy(),
  ]) {
    await using(onKept(lose), async (client, server) => {
      await ask(client)
      const long = 'x'.repeat(100_000)
      const second = await ask(client, long)
      assert.deepEqual([second.error, second.body], [null, 'reply 2'])
      assert.deepEqual([server.received.length, server.sockets.length], [3, 2])
      assert.equal(server.received[2], server.received[1], 'as it was')
    })
  }
})

test('a server that ends kept connections so more than once has none, until that is forgotten', async () => {
  let now = 1000
  await using(
    onKept(socket => socket.destroy()),
    async (client, server) => {
      await ask(client)
      await ask(client)
      assert.equal(server.sockets.length, 2)
      assert.equal((await ask(client)).body, 'reply 4')
      assert.deepEqual([server.received.length, server.sockets.length], [5, 3], 'lost twice')
      for (let i = 0; i < 5; i++) assert.equal((await ask(client)).body, `reply ${5 + i}`)
      const both = await Promise.all([ask(client), ask(client)])
      assert.deepEqual(
        both.map(({ error }) => error),
        [null, null],
      )
      assert.deepEqual([server.received.length, server.sockets.length], [12, 10], 'none is kept, and none lost')
      now += 60_000
      await ask(client)
      await ask(client)
      assert.deepEqual([server.received.length, server.sockets.length], [15, 12], 'kept again, and lost')
    },
    { now: () => now },
  )
})

test('a request is sent again once, and never when it may have been read: a byte of a reply came, or its end came late', async () => {
  let now = 1000
  const begin = (socket: Socket) => void socket.write('H', () => socket.destroy())
  const late = (socket: Socket) => {
    now += 1000
    socket.destroy()
  }
  for (const lose of [begin, late]) {
    await using(
      onKept(lose),
      async (client, server) => {
        await ask(client)
        assert.ok((await ask(client)).error)
        assert.equal(server.received.length, 2)
      },
      { now: () => now },
    )
  }
  await using(
    (socket, _, i) => (i === 0 ? socket.write(ok('x')) : socket.destroy()),
    async (client, server) => {
      await ask(client)
      const { error } = await ask(client)
      assert.deepEqual([error?.code === undefined, server.received.length], [false, 3])
      assert.ok((await ask(client)).error)
      assert.equal(server.received.length, 4, 'a new connection')
    },
  )
})

test('many clients of a server that closes after every reply without saying so: none fails', () =>
  using(
    (socket, _, i) => {
      socket.write(ok(`reply ${i}`))
      // The end races the next request.
      const turns = i % 5
      const end = (left: number): unknown => (left === 0 ? socket.end() : setImmediate(() => end(left - 1)))
      end(turns)
    },
    async client => {
      const errors: unknown[] = []
      await Promise.all(
        Array.from({ length: 16 }, async () => {
          for (let i = 0; i < 40; i++) {
            const { error } = await ask(client)
            if (error) errors.push(error)
          }
        }),
      )
      assert.deepEqual(errors, [])
    },
  ))

test('a reply that comes while nobody asks closes the connection', () =>
  using(
    (socket, _, i) => socket.write(ok(`reply ${i}`)),
    async (client, server) => {
      await ask(client)
      server.sockets[0]!.write(ok('stolen'))
      await once(server.sockets[0]!, 'close')
      assert.equal(client.connections, 0)
      assert.equal((await ask(client)).body, 'reply 1')
    },
  ))

/** A client of a server that does as it likes with its connections. */
async function speaking(context: TestContext, connected: (socket: Socket) => void): Promise<Http1Client> {
  const sockets = new Set<Socket>()
  const server = link.server(socket => {
    sockets.add(socket)
    socket.on('error', () => {})
    connected(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const origin = `${link.scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`
  return new Http1Client({ origin, connectTimeoutMs: 10_000, keepAliveMs: 1000, ...link.trust })
}

/** A server that is one reply ahead answers each request with the reply to the one before. */
test('a reply that comes before the first request is no answer to it, which is not sent', async context => {
  // Its client ends the handshake first, and sends its request with that.
  if (link.name === 'TLS 1.3') return
  const asked: string[] = []
  const client = await speaking(context, socket => {
    socket.write(ok('early'))
    socket.on('data', data => asked.push(data.toString()))
  })
  const { error, body, sent } = await ask(client)
  assert.deepEqual([error?.code, body, sent, asked], ['SLUICE_HTTP_PARSE', '', false, []])
})

/** A server that has too many connections accepts and closes: nothing was sent, and the request may be tried again. */
test('a new connection that the server closes at once is an error before anything is sent', async context => {
  for (const close of [(socket: Socket) => socket.destroy(), (socket: Socket) => socket.resetAndDestroy()]) {
    const client = await speaking(context, close)
    const { error, sent } = await ask(client)
    assert.match(error!.code!, /^(UND_ERR_SOCKET|ECONNRESET)$/)
    assert.equal(sent, false)
  }
})

/** The server had read part of a request only, and what it makes of the rest is not known. */
test('a reply that comes before its request has left is a reply, and the last on its connection', async context => {
  const client = await speaking(context, socket => {
    socket.once('data', () => {
      socket.pause()
      socket.write(ok('early'))
    })
  })
  const early = await ask(client, 'x'.repeat(16 * 1024 * 1024))
  assert.deepEqual([early.error, early.body], [null, 'early'])
  for (let turns = 0; turns < 5; turns++) await new Promise(resolve => setImmediate(resolve))
  assert.equal(client.connections, 0)
})

test('whoever counts the bytes of requests hears when a connection has taken the last one, or has ended', async context => {
  const sockets: Socket[] = []
  const client = await speaking(context, socket => {
    sockets.push(socket)
    socket.once('data', () => {
      socket.pause()
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nearly')
    })
  })
  for (const end of ['resume', 'destroy'] as const) {
    const seen: string[] = []
    const over = Promise.withResolvers<void>()
    client.dispatch(
      {
        path: '/p',
        method: 'POST',
        headers: {},
        body: ['x'.repeat(8 * 1024 * 1024), 'y'.repeat(8 * 1024 * 1024)],
        writing: () => {
          seen.push('writing')
          return () => void seen.push('taken')
        },
      },
      {
        onResponseData: (_, chunk) => void seen.push(chunk.toString('latin1')),
        onResponseEnd: () => over.resolve(),
        onResponseError: () => over.resolve(),
      },
    )
    await eventually(() => seen.length >= 2)
    assert.deepEqual(seen, ['writing', 'early'], end)
    sockets.at(-1)![end]()
    await eventually(() => seen.includes('taken'))
    sockets.at(-1)!.destroy()
    await over.promise
    assert.equal(seen.filter(word => word === 'taken').length, 1)
  }
})

test('a connection that ended while its reply was paused is not used again', () =>
  using(
    (socket, _, i) => {
      if (i > 0) return void socket.write(ok(`reply ${i}`))
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na')
    },
    async (client, server) => {
      let second: Promise<Result> | undefined
      const first = await ask(client, '{}', {
        onChunk(controller) {
          if (server.sockets[0]!.writableEnded) return
          controller.pause()
          server.sockets[0]!.end('b')
          // Several turns of the loop: both would have been read by now.
          let turns = 0
          const turn = () => (++turns < 10 ? setImmediate(turn) : controller.resume())
          turn()
        },
        onEnd: () => void (second = ask(client)),
      })
      assert.deepEqual([first.body, (await second!).body], ['ab', 'reply 1'])
    },
  ))

// ---- an idle connection's age ------------------------------------------------------------------------------------

/**
 * The age was left to a timer that fired once a second, so that a connection could be used when it was almost five
 * seconds old, as a server with the common limit of five closes it. The request was lost: a 502 that nobody may retry.
 */
const ages: { name: string; keepAlive?: string; maxAgeMs?: number; idle: number; kept: boolean }[] = [
  { name: 'below the limit', idle: 3999, kept: true },
  { name: 'at the limit', idle: 4000, kept: false },
  { name: 'long past the limit', idle: 1e9, kept: false },
  { name: 'below the server’s limit by more than a second', keepAlive: 'timeout=3', idle: 1999, kept: true },
  { name: 'below the server’s limit by a second', keepAlive: 'timeout=3', idle: 2000, kept: false },
  { name: 'the server’s limit among others', keepAlive: 'max=100, Timeout=3', idle: 2000, kept: false },
  {
    name: 'the server’s limit in a second line',
    keepAlive: 'max=100\r\nkeep-alive: timeout=3',
    idle: 2000,
    kept: false,
  },
  { name: 'a server’s limit of a second', keepAlive: 'timeout=1', idle: 0, kept: false },
  { name: 'a server’s limit of 0', keepAlive: 'timeout=0', idle: 0, kept: false },
  { name: 'a server’s limit above ours', keepAlive: 'timeout=75', idle: 4000, kept: false },
  { name: 'a server’s limit of many digits', keepAlive: 'timeout=99999999999999999999', idle: 3999, kept: true },
  { name: 'a limit that is no number', keepAlive: 'timeout=soon', idle: 3999, kept: true },
  { name: 'an old connection', maxAgeMs: 100, idle: 100, kept: false },
  { name: 'a connection that is not old yet', maxAgeMs: 100, idle: 99, kept: true },
]
for (const { name, keepAlive, maxAgeMs, idle, kept } of ages) {
  test(`an idle connection, ${name}: ${kept ? 'used again' : 'closed, and another is opened'}`, () => {
    let now = 1000
    return using(
      (socket, _, i) => socket.write(ok(`reply ${i}`, keepAlive && `keep-alive: ${keepAlive}\r\n`)),
      async (client, server) => {
        await ask(client)
        // Known to be silent.
        for (let turns = 0; turns < 5; turns++) await new Promise(resolve => setImmediate(resolve))
        now += idle
        assert.equal((await ask(client)).body, 'reply 1')
        assert.equal(server.sockets.length, kept ? 1 : 2)
        if (!kept && !server.sockets[0]!.destroyed) await once(server.sockets[0]!, 'close')
      },
      { now: () => now, maxAgeMs },
    )
  })
}

test('a client that is closed lets go of its idle connections, old ones too', () => {
  let now = 0
  return using(
    socket => socket.write(ok('x')),
    async (client, server) => {
      await ask(client)
      now = 1e9
      await client.close()
      assert.equal(client.connections, 0)
      if (!server.sockets[0]!.destroyed) await once(server.sockets[0]!, 'close')
    },
    { now: () => now },
  )
})
