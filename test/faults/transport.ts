/** Faults of TCP, TLS and HTTP, whatever the body would have said. */
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { type Script, settle, type Turn } from '../fake-upstream/server.ts'
import { cut, failed, type Row } from './table.ts'

const unavailable = { status: 503, code: 'provider_unavailable', retryAfter: true } as const
const timedOut = { status: 504, code: 'gateway_timeout', retryAfter: true } as const

/** The head and part of the reply: the first `events` events, or the first half of a buffered body. */
async function begin(turn: Turn, events = 4): Promise<void> {
  const reply = await turn.open()
  if (reply.events.length > 1) for (const event of reply.events.slice(0, events)) await turn.chunk(event)
  else await turn.chunk(reply.body.subarray(0, reply.body.length >> 1))
}

/** The whole body in one piece, compressed. */
const compressed =
  (encoding: string, compress: (body: Buffer) => Buffer, pieces = 1): Script =>
  async turn => {
    const { body } = await turn.reply()
    const bytes = compress(body)
    const size = Math.ceil(bytes.length / pieces)
    const parts = Array.from({ length: pieces }, (_, i) => bytes.subarray(i * size, (i + 1) * size)).filter(
      p => p.length > 0,
    )
    await turn.send(parts, { 'content-encoding': encoding })
  }

const redirect =
  (status: number): Script =>
  turn =>
    turn.answer(status, '', { location: '/elsewhere', 'content-type': 'text/plain' })

const page =
  (status: number): Script =>
  turn =>
    turn.answer(status, `<html><title>${status}</title><h1>Bad gateway</h1></html>`, { 'content-type': 'text/html' })

/** Resets after this many bytes of the response, its head included. */
const resetAt =
  (share: number): Script =>
  async turn => {
    const reply = await turn.reply()
    const head = `HTTP/1.1 200 OK\r\ncontent-type: ${reply.type}\r\ncontent-length: ${reply.body.length}\r\n\r\n`
    const bytes = Buffer.concat([Buffer.from(head), reply.body])
    await turn.write(bytes.subarray(0, share < 1 ? Math.floor(bytes.length * share) : share))
    await turn.reset()
  }

export const connections: Row[] = [
  // Two attempts: nothing was sent, so the same backend is asked again after a pause.
  { name: 'refuse: nobody listens', model: 'closed', fault: () => {}, expect: unavailable, requests: 0 },
  {
    name: 'TLS spoken to a server that has none',
    model: 'plain-tls',
    fault: () => {},
    expect: unavailable,
    requests: 0,
  },
  { name: 'blackhole: accepts and never answers', fault: turn => turn.stall(), expect: timedOut, advance: 21_000 },
  { name: 'reset before a byte of the answer', fault: turn => turn.reset(), expect: failed },
  { name: 'FIN before a byte of the answer', fault: turn => turn.fin(), expect: failed },
  {
    name: 'half-closes, and says nothing',
    fault: async turn => {
      turn.socket.end()
      await settle()
    },
    expect: failed,
  },
  { name: 'reset within the status line', fault: resetAt(9), expect: failed },
  { name: 'reset within the head', fault: resetAt(40), expect: failed },
  { name: 'reset after a quarter of the body', fault: resetAt(0.6), expect: cut() },
  {
    name: 'reset one byte before the end',
    fault: async turn => {
      const reply = await turn.reply()
      await turn.head(200, { 'content-type': reply.type, 'content-length': reply.body.length + 1 })
      await turn.write(reply.body)
      await turn.reset()
    },
    // A stream has said its last word before; a buffered body is not whole.
    expect: { streamed: 'served', collected: 'served', whole: failed },
  },
  {
    name: 'reset after the first events',
    fault: async turn => {
      await begin(turn)
      await turn.reset()
    },
    expect: cut(),
  },
  {
    name: 'FIN inside a chunk',
    fault: async turn => {
      await begin(turn)
      await turn.write('ff\r\ndata: {')
      await turn.fin()
    },
    expect: cut(),
  },
  {
    name: 'FIN between two chunks',
    fault: async turn => {
      await begin(turn)
      await turn.fin()
    },
    expect: cut(),
  },
]

export const stalls: Row[] = [
  {
    name: 'stall inside the status line',
    fault: async turn => {
      await turn.write('HTTP/1.1 2')
      await turn.stall()
    },
    expect: timedOut,
    advance: 21_000,
  },
  {
    name: 'stall inside the head',
    fault: async turn => {
      await turn.write('HTTP/1.1 200 OK\r\ncontent-ty')
      await turn.stall()
    },
    expect: timedOut,
    advance: 21_000,
  },
  {
    name: 'stall after the head',
    fault: async turn => {
      await turn.open()
      await turn.stall()
    },
    expect: timedOut,
    advance: 21_000,
  },
  {
    name: 'stall inside the first event',
    fault: async turn => {
      const { events } = await turn.open()
      await turn.chunk(events[0]!.slice(0, 20))
      await turn.stall()
    },
    expect: timedOut,
    advance: 21_000,
  },
  {
    name: 'stall after some events',
    fault: async turn => {
      await begin(turn)
      await turn.stall()
    },
    expect: {
      streamed: { incomplete: 'stream_idle_timeout' },
      collected: { incomplete: 'stream_idle_timeout' },
      whole: timedOut,
    },
    advance: 91_000,
  },
  {
    name: 'stall after some events, within a chunk',
    fault: async turn => {
      await begin(turn)
      await turn.write('ff\r\ndata: {"id')
      await turn.stall()
    },
    expect: {
      streamed: { incomplete: 'stream_idle_timeout' },
      collected: { incomplete: 'stream_idle_timeout' },
      whole: timedOut,
    },
    advance: 91_000,
  },
  {
    name: 'only comments and pings after some events',
    modes: ['streamed', 'collected'],
    fault: async turn => {
      await begin(turn)
      for (let i = 0; i < 50; i++) await turn.chunk(': ping\n\n')
      await turn.stall()
    },
    expect: { incomplete: 'stream_idle_timeout' },
    advance: 91_000,
  },
  {
    name: 'stall after the terminal event, without the end of the body',
    modes: ['streamed', 'collected'],
    fault: async turn => {
      const { events } = await turn.open()
      for (const event of events) await turn.chunk(event)
      await turn.stall()
    },
    expect: 'served',
  },
]

export const framing: Row[] = [
  {
    name: 'garbage instead of HTTP',
    fault: async turn => {
      await turn.write('SSH-2.0-OpenSSH_9.2p1\r\n\r\n')
      await turn.fin()
    },
    expect: failed,
  },
  {
    name: 'a header line without a colon',
    fault: async turn => {
      await turn.write('HTTP/1.1 200 OK\r\nnonsense\r\n\r\n')
      await settle()
    },
    expect: failed,
  },
  {
    name: 'a NUL in a header',
    fault: async turn => {
      await turn.write('HTTP/1.1 200 OK\r\nx-a: b\0c\r\n\r\n')
      await settle()
    },
    expect: failed,
  },
  {
    name: 'huge headers',
    fault: async turn => {
      await turn.head(200, { 'x-huge': 'h'.repeat(300_000) })
      await settle()
    },
    expect: failed,
  },
  {
    name: 'ten thousand headers',
    fault: async turn => {
      await turn.head(200, Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`x-${i}`, i])))
      await settle()
    },
    expect: failed,
  },
  {
    name: 'Content-Length and Transfer-Encoding',
    fault: async turn => {
      await turn.head(200, { 'content-length': 5, 'transfer-encoding': 'chunked' })
      await turn.chunk('hello')
      await turn.end()
    },
    expect: failed,
  },
  {
    name: 'two different Content-Lengths',
    fault: async turn => {
      await turn.write('HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!')
      await settle()
    },
    expect: failed,
  },
  {
    name: 'Content-Length too short',
    fault: async turn => {
      const reply = await turn.reply()
      const short = reply.body.length >> 1
      await turn.head(200, { 'content-type': reply.type, 'content-length': short })
      await turn.write(reply.body)
    },
    expect: cut(),
  },
  {
    name: 'Content-Length too long, then FIN',
    fault: async turn => {
      const reply = await turn.reply()
      await turn.head(200, { 'content-type': reply.type, 'content-length': reply.body.length + 50 })
      await turn.write(reply.body)
      await turn.fin()
    },
    expect: { streamed: 'served', collected: 'served', whole: failed },
  },
  {
    name: 'no framing at all: the body ends with the connection',
    fault: async turn => {
      const reply = await turn.reply()
      await turn.head(200, { 'content-type': reply.type, connection: 'close' })
      await turn.write(reply.body)
      await turn.fin()
    },
    expect: 'served',
  },
  {
    name: 'no framing, and a reset in the middle',
    fault: async turn => {
      const reply = await turn.reply()
      await turn.head(200, { 'content-type': reply.type, connection: 'close' })
      await turn.write(reply.body.subarray(0, reply.body.length * 0.6))
      await turn.reset()
    },
    expect: cut(),
  },
  {
    name: 'a chunk size that is no number',
    fault: async turn => {
      await begin(turn)
      await turn.write('zz\r\nabc\r\n')
      await settle()
    },
    expect: cut(),
  },
  {
    name: 'trailing garbage behind the last chunk',
    fault: async turn => {
      const { events } = await turn.open()
      for (const event of events) await turn.chunk(event)
      // In one write: garbage that comes later may meet the next request on its way.
      await turn.write(`0\r\n\r\n${'GARBAGE'.repeat(100)}`)
      await settle()
    },
    expect: 'served',
  },
  {
    name: 'a model that talks on behind the terminal event',
    modes: ['streamed', 'collected'],
    fault: async turn => {
      const { events } = await turn.open()
      for (const event of events) await turn.chunk(event)
      while (await turn.chunk('data: {"more":"more"}\n\n'.repeat(100))) await settle()
    },
    expect: 'served',
  },
  {
    name: 'HTTP/1.0',
    fault: async turn => {
      const reply = await turn.reply()
      await turn.write(`HTTP/1.0 200 OK\r\ncontent-type: ${reply.type}\r\n\r\n`)
      await turn.write(reply.body)
      await turn.fin()
    },
    expect: 'served',
  },
  {
    name: 'one byte at a time',
    modes: ['streamed', 'whole'],
    fault: async turn => {
      const reply = await turn.reply()
      await turn.head(200, { 'content-type': reply.type, 'content-length': reply.body.length })
      for (const byte of reply.body) await turn.write(Buffer.of(byte))
    },
    expect: 'served',
  },
]

export const statuses: Row[] = [
  {
    name: '100 Continue that nobody asked for, and nothing more',
    fault: async turn => {
      await turn.write('HTTP/1.1 100 Continue\r\n\r\n')
      await turn.stall()
    },
    expect: timedOut,
    advance: 21_000,
  },
  {
    name: '100 Continue, then the answer',
    fault: async turn => {
      await turn.write('HTTP/1.1 100 Continue\r\n\r\n')
      await turn.send((await turn.reply()).events)
    },
    expect: 'served',
  },
  {
    name: 'a few 103 Early Hints, then the answer',
    fault: async turn => {
      for (let i = 0; i < 5; i++) await turn.write('HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n')
      await turn.send((await turn.reply()).events)
    },
    expect: 'served',
  },
  {
    name: '1xx flood',
    fault: async turn => {
      while (await turn.write('HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n'.repeat(50))) await settle()
    },
    expect: failed,
  },
  {
    name: '101 Switching Protocols',
    fault: async turn => {
      await turn.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n')
      await settle()
    },
    expect: failed,
  },
  { name: '200 with an empty body', fault: turn => turn.answer(200, ''), expect: failed },
  { name: '200 with an HTML page', fault: page(200), expect: failed },
  {
    name: '204',
    fault: async turn => {
      await turn.head(204, {})
    },
    expect: failed,
  },
  {
    name: '204 with a body',
    fault: async turn => {
      await turn.head(204, { 'content-length': 5 })
      await turn.write('hello')
      await settle()
    },
    expect: failed,
  },
  { name: '206 of nothing', fault: turn => turn.answer(206, ''), expect: failed },
  { name: '301', fault: redirect(301), expect: failed },
  { name: '302', fault: redirect(302), expect: failed },
  { name: '307', fault: redirect(307), expect: failed },
  { name: '308', fault: redirect(308), expect: failed },
  {
    name: '304',
    fault: async turn => {
      await turn.head(304, {})
    },
    expect: failed,
  },
  {
    name: '404 from something that is no provider',
    fault: page(404),
    expect: { status: 502, code: 'upstream_server_error', final: true },
  },
  {
    name: '413 from a proxy in between',
    fault: page(413),
    expect: { status: 502, code: 'upstream_server_error', final: true },
  },
  {
    name: '418',
    fault: turn => turn.answer(418, '{}'),
    expect: { status: 502, code: 'upstream_server_error', final: true },
  },
  {
    name: 'HTML 502',
    fault: page(502),
    expect: { status: 502, code: 'upstream_server_error', retryAfter: false, final: false },
  },
  { name: 'HTML 503', fault: page(503), expect: unavailable },
  { name: 'HTML 504', fault: page(504), expect: timedOut },
  {
    name: '502 with Retry-After',
    fault: turn => turn.answer(502, '{}', { 'retry-after': '3' }),
    expect: { status: 502, code: 'upstream_server_error', retryAfter: true },
  },
  {
    name: '500 with an endless body',
    fault: async turn => {
      await turn.head(500, { 'transfer-encoding': 'chunked' })
      for (let i = 0; i < 40; i++) if (!(await turn.chunk('x'.repeat(65_536)))) return
      await turn.end()
    },
    expect: failed,
  },
  {
    name: '500 whose body stalls',
    fault: async turn => {
      await turn.head(500, { 'transfer-encoding': 'chunked' })
      await turn.chunk('{"er')
      await turn.stall()
    },
    expect: timedOut,
    advance: 21_000,
  },
  { name: '999', fault: turn => turn.answer(999, '{}'), expect: failed },
]

export const encodings: Row[] = [
  { name: 'gzip though not asked', fault: compressed('gzip', gzipSync), expect: 'served' },
  { name: 'x-gzip, in capitals', fault: compressed('X-GZIP', gzipSync), expect: 'served' },
  { name: 'deflate though not asked', fault: compressed('deflate', deflateSync), expect: 'served' },
  { name: 'br though not asked', fault: compressed('br', brotliCompressSync), expect: 'served' },
  { name: 'zstd though not asked', fault: compressed('zstd', zstdCompressSync), expect: 'served' },
  { name: 'gzip in a hundred pieces', fault: compressed('gzip', gzipSync, 100), expect: 'served' },
  {
    name: 'gzip in two members',
    fault: compressed('gzip', body => Buffer.concat([gzipSync(body.subarray(0, 100)), gzipSync(body.subarray(100))])),
    expect: 'served',
  },
  {
    name: 'identity, named',
    fault: async turn => turn.send((await turn.reply()).events, { 'content-encoding': 'identity' }),
    expect: 'served',
  },
  { name: 'an encoding that nobody knows', fault: compressed('sdch', body => body), expect: failed },
  { name: 'gzip said and not done', fault: compressed('gzip', body => body), expect: failed },
  { name: 'gzip within gzip', fault: compressed('gzip, gzip', body => gzipSync(gzipSync(body))), expect: failed },
  {
    name: 'gzip without its tail',
    fault: compressed('gzip', body => gzipSync(body).subarray(0, -8)),
    expect: { streamed: 'served', collected: 'served', whole: failed },
  },
  {
    name: 'gzip that breaks in the middle',
    fault: compressed('gzip', body => {
      const bytes = gzipSync(body)
      return bytes.subarray(0, bytes.length >> 1)
    }),
    expect: failed,
    modes: ['whole'],
  },
  { name: 'gzip bomb: one line', fault: compressed('gzip', () => BOMB), expect: failed },
  {
    name: 'gzip bomb of blank lines',
    modes: ['streamed'],
    fault: compressed('gzip', () => BLANK_BOMB),
    expect: failed,
  },
  {
    name: 'gzip bomb as an error body',
    fault: async turn => turn.answer(500, BOMB, { 'content-encoding': 'gzip' }),
    expect: failed,
  },
  {
    name: 'an error body in gzip is still read',
    fault: turn =>
      turn.answer(
        429,
        gzipSync(
          '{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}',
        ),
        { 'content-encoding': 'gzip' },
      ),
    expect: { status: 429, code: 'insufficient_quota', final: true },
  },
]

const BOMB = gzipSync(Buffer.alloc(80 * 1024 * 1024, 'x'))
const BLANK_BOMB = gzipSync(Buffer.alloc(80 * 1024 * 1024, '\n'))
