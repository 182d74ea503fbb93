/** Sends a reply, with the transport faults that its directives request. */
import type { ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import { type SimDialect, type SimEvent, STATUS } from './dialect.ts'
import type { Directives } from './directives.ts'
import type { SimReply } from './model.ts'

/** Resolves when the reply is written, when the client has disconnected, or when a `stall` begins. */
export async function writeReply(res: ServerResponse, dialect: SimDialect, reply: SimReply): Promise<void> {
  const { directives, prompt } = reply
  if (directives.delay > 0 && !(await sleep(directives.delay, res))) return
  if (directives.status) {
    writeStatus(res, dialect, directives.status)
    return
  }
  if (directives.error && !prompt.stream) {
    const { kind } = directives.error
    const status = dialect.status?.[kind] ?? STATUS[kind]
    writeStatus(res, dialect, { status, body: 'json', kind })
    return
  }
  res.writeHead(200, head(reply, dialect))
  const pieces = prompt.stream ? streamBytes(dialect, reply) : bodyBytes(dialect, reply)
  await writePieces(res, pieces, directives)
}

/** Headers that providers send: their names and values must not reach a client (GEN-7). */
function head({ seed, prompt, directives }: SimReply, { contentType }: SimDialect): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': prompt.stream ? (contentType ?? 'text/event-stream; charset=utf-8') : 'application/json',
    'x-request-id': `req_sim${seed.slice(0, 24)}`,
    'x-ratelimit-limit-requests': '10000',
    'x-ratelimit-remaining-requests': '9999',
    'openai-processing-ms': '7',
    server: 'sluice-simulator',
  }
  if (prompt.stream) headers['cache-control'] = 'no-cache'
  if (directives.quirks.has('gzip')) headers['content-encoding'] = 'gzip'
  return headers
}

function writeStatus(res: ServerResponse, dialect: SimDialect, wanted: NonNullable<Directives['status']>): void {
  const { status, retryAfter, body } = wanted
  const headers: Record<string, string> = {}
  if (retryAfter !== undefined) headers['retry-after'] = retryAfter
  if (status >= 300 && status < 400) headers['location'] = '/elsewhere'
  if (body === 'empty' || status === 204 || status === 304) {
    res.writeHead(status, headers)
    res.end()
    return
  }
  if (body === 'html') {
    res.writeHead(status, { ...headers, 'content-type': 'text/html' })
    res.end(`<html><head><title>${status}</title></head><body><h1>${status}</h1><hr>simulated proxy</body></html>`)
    return
  }
  const kind = wanted.kind ?? KIND_OF_STATUS[status] ?? (status >= 500 ? 'server' : 'invalid')
  res.writeHead(status, { ...headers, 'content-type': 'application/json' })
  res.end(JSON.stringify(dialect.error(kind, status, `The simulated provider says ${kind}.`)))
}

const KIND_OF_STATUS: Readonly<Record<number, 'auth' | 'rate' | 'overloaded' | 'timeout'>> = {
  401: 'auth',
  403: 'auth',
  429: 'rate',
  503: 'overloaded',
  504: 'timeout',
  529: 'overloaded',
}

/** A buffer is one write; a fault is in the list at the place where it happens. */
type Piece = Buffer | { fault: 'stall' | 'reset' | 'fin' | 'end' }

function streamBytes(dialect: SimDialect, reply: SimReply): Piece[] {
  const { directives } = reply
  const { quirks } = directives
  const events = dialect.stream(reply)
  if (directives.error) {
    events.splice(directives.error.after, Number.POSITIVE_INFINITY, dialect.errorEvent(directives.error.kind))
  }
  if (directives.malformed) corrupt(events, directives.malformed)
  const newline = quirks.has('crlf') ? '\r\n' : quirks.has('cr') ? '\r' : '\n'
  const pieces: Piece[] = events.map((event, i) => {
    if (dialect.frame) return dialect.frame(event)
    let text = i === 0 && quirks.has('bom') ? '\ufeff' : ''
    if (quirks.has('comments')) text += `: simulated comment ${i}${newline}${newline}`
    if (event.event !== undefined) text += `event: ${event.event}${newline}`
    return encode(`${text}data: ${event.data}${newline}${newline}`)
  })
  const { cut } = directives
  faultAt(pieces, directives.stall, 'stall')
  faultAt(pieces, directives.close, 'fin')
  faultAt(pieces, directives.end, 'end')
  faultAt(pieces, cut?.unit === 'events' ? cut.after : undefined, 'reset')
  return transport(pieces, directives)
}

function bodyBytes(dialect: SimDialect, reply: SimReply): Piece[] {
  const { directives } = reply
  let text = JSON.stringify(dialect.buffered(reply))
  if (directives.malformed?.what === 'json') text = text.slice(0, -1)
  else if (directives.malformed?.what === 'event') text = '{"object":"something.else"}'
  const bytes =
    directives.malformed?.what === 'utf8' ? Buffer.concat([encode(text.slice(0, 40)), BAD_UTF8]) : encode(text)
  const half = Math.floor(bytes.length / 2)
  const pieces: Piece[] = [bytes.subarray(0, half), bytes.subarray(half)]
  const { cut } = directives
  // A buffered body has no events: any of these faults happens in its middle.
  if (directives.stall !== undefined) faultAt(pieces, 1, 'stall')
  if (directives.close !== undefined) faultAt(pieces, 1, 'fin')
  if (directives.end !== undefined) faultAt(pieces, 1, 'end')
  if (cut?.unit === 'events') faultAt(pieces, 1, 'reset')
  return transport(pieces, directives)
}

const BAD_UTF8 = Buffer.from([0xf0, 0x9f, 0xff, 0x22])

/** Encodes text. The mark that `corrupt` inserts becomes bytes that are not UTF-8. */
function encode(text: string): Buffer {
  const at = text.indexOf(BAD_MARK)
  if (at === -1) return Buffer.from(text, 'utf8')
  return Buffer.concat([Buffer.from(text.slice(0, at)), BAD_UTF8, Buffer.from(text.slice(at + BAD_MARK.length))])
}
const BAD_MARK = '\u{10fffe}'

function corrupt(events: SimEvent[], { what, after }: NonNullable<Directives['malformed']>): void {
  const event = events[Math.min(after, events.length - 1)]
  if (!event) return
  if (what === 'json') event.data = event.data.slice(0, Math.max(1, event.data.length - 2))
  else if (what === 'utf8') event.data = event.data.slice(0, 10) + BAD_MARK + event.data.slice(10)
  else
    events.splice(after, 0, {
      event: 'simulated.unknown',
      data: '{"type":"simulated.unknown","object":"something.else"}',
    })
}

function faultAt(pieces: Piece[], after: number | undefined, fault: 'stall' | 'reset' | 'fin' | 'end'): void {
  if (after !== undefined) pieces.splice(after, Number.POSITIVE_INFINITY, { fault })
}

/** Applies compression, `cut byte` and `split`, which concern only bytes. */
function transport(pieces: Piece[], directives: Directives): Piece[] {
  if (directives.quirks.has('gzip')) {
    const whole = Buffer.concat(pieces.filter(piece => Buffer.isBuffer(piece)))
    pieces = [gzipSync(whole), ...pieces.filter(piece => !Buffer.isBuffer(piece))]
  }
  const cutAt = directives.cut?.unit === 'bytes' ? directives.cut.after : undefined
  const { split } = directives
  if (cutAt === undefined && split === undefined) return pieces
  const out: Piece[] = []
  let sent = 0
  for (const piece of pieces) {
    if (!Buffer.isBuffer(piece)) {
      out.push(piece)
      continue
    }
    const bytes = cutAt === undefined ? piece : piece.subarray(0, Math.max(0, cutAt - sent))
    sent += bytes.length
    const step = split ?? Math.max(bytes.length, 1)
    for (let i = 0; i < bytes.length; i += step) out.push(bytes.subarray(i, i + step))
    if (bytes.length < piece.length) {
      out.push({ fault: 'reset' })
      break
    }
  }
  return out
}

/** How many writes follow each other in one turn of the event loop. */
const TURN_PIECES = 100

async function writePieces(res: ServerResponse, pieces: Piece[], { pace, split }: Directives): Promise<void> {
  for (const [i, piece] of pieces.entries()) {
    if (res.destroyed) return
    // So that a long reply does not keep others waiting.
    if (i % TURN_PIECES === TURN_PIECES - 1) await new Promise(setImmediate)
    if (!Buffer.isBuffer(piece)) {
      await strike(res, piece.fault)
      return
    }
    const room = res.write(piece)
    if (!room && !(await drained(res))) return
    if (pace > 0 && !(await sleep(pace, res))) return
    // Without an event-loop turn between them, small writes would be sent as one packet.
    if (split !== undefined) await new Promise(setImmediate)
  }
  res.end()
}

async function strike(res: ServerResponse, fault: 'stall' | 'reset' | 'fin' | 'end'): Promise<void> {
  if (fault === 'stall') return
  if (fault === 'end') {
    res.end()
    return
  }
  // What was written before must arrive: a reset discards what is still in the socket's buffer.
  const { socket } = res
  if (!socket) return
  // The callback of an empty write comes after all earlier writes; `drain` comes only after a write that exceeded the
  // buffer.
  if (!socket.destroyed) await new Promise<void>(resolve => void socket.write('', () => resolve()))
  await new Promise(resolve => setTimeout(resolve, 5))
  // When this process was not scheduled for that long, the timer fires before a reader in the same process has read.
  // Data and reset that are read together look like a FIN.
  for (let i = 0; i < 3; i++) await new Promise(setImmediate)
  if (fault === 'reset') socket.resetAndDestroy()
  else socket.end()
}

/** Waits for `drain`. @returns false when the client disconnected meanwhile */
function drained(res: ServerResponse): Promise<boolean> {
  return new Promise(resolve => {
    const done = (open: boolean) => {
      res.off('drain', onDrain)
      res.off('close', onClose)
      resolve(open)
    }
    const onDrain = () => done(true)
    const onClose = () => done(false)
    res.on('drain', onDrain)
    res.on('close', onClose)
  })
}

/** Waits. @returns false when the client disconnected meanwhile */
function sleep(ms: number, res: ServerResponse): Promise<boolean> {
  return new Promise(resolve => {
    const onClose = () => {
      clearTimeout(timer)
      resolve(false)
    }
    const timer = setTimeout(() => {
      res.off('close', onClose)
      resolve(true)
    }, ms)
    res.on('close', onClose)
  })
}
