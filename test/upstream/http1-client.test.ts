/** The lean client against real sockets, beside undici where both can be asked the same. */
import assert from 'node:assert/strict'
import net, { type AddressInfo, type Socket } from 'node:net'
import { test } from 'node:test'
import type { Dispatcher } from 'undici'
import { Http1Client, type RequestOptions } from '../../plugins/upstream/http1/client.ts'

interface Server {
  origin: string
  sockets: Socket[]
  received: string[]
  close(): void
}

async function serve(answer: (socket: Socket, request: string, index: number) => void): Promise<Server> {
  const sockets: Socket[] = []
  const received: string[] = []
  const server = net.createServer(socket => {
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
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
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
  error: (Error & { code?: string }) | null
}

function ask(
  client: Http1Client,
  body: RequestOptions['body'] = '{}',
  hooks: { onChunk?(controller: Dispatcher.DispatchController): void } = {},
): Promise<Result> {
  return new Promise(resolve => {
    const result: Result = { status: 0, body: '', error: null }
    client.dispatch({ path: '/p', method: 'POST', headers: { 'x-a': '1' }, body } as RequestOptions, {
      onResponseStart: (_, status) => void (result.status = status),
      onResponseData(controller, chunk) {
        result.body += chunk.toString()
        hooks.onChunk?.(controller)
      },
      onResponseEnd: () => resolve(result),
      onResponseError: (_, error) => resolve({ ...result, error }),
    })
  })
}

async function using(
  answer: Parameters<typeof serve>[0],
  run: (client: Http1Client, server: Server) => Promise<void>,
  keepAliveMs = 4000,
): Promise<void> {
  const server = await serve(answer)
  const client = new Http1Client({ origin: server.origin, connectTimeoutMs: 1000, keepAliveMs })
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
        `POST /p HTTP/1.1\r\nhost: ${server.origin.slice(7)}\r\nx-a: 1\r\ncontent-length: 10\r\n\r\n${Buffer.from('{"a":"ü"}').toString('latin1')}`,
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
      const host = `host: ${server.origin.slice(7)}`
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
