/**
 * The benchmarks' upstream: a bare uWebSockets.js server that answers from memory in the format of each API, at the
 * same cost for every contender. It prints `listening PORT`. With a certificate and a key (PEM files) as arguments, it
 * also listens with TLS, and prints `secure PORT PORT`: one for HTTP/1.1 and one, of Node, for HTTP/2.
 *
 *   POST /v1/chat/completions, /v1/messages, /v1/responses   JSON, or server-sent events if the body asks for a stream
 *   GET  /stats                                              { whole, streams }: how many complete replies were sent
 *
 * The model of the request selects how a stream is written. `single…`: one frame in each write. `trickle…`: the first
 * frames, then one content frame every four seconds without end. `agents…`: a stream of 60 events. Otherwise: ten frames
 * in each write, as those to agents, too.
 */
import { readFileSync } from 'node:fs'
import { createSecureServer } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { type BareResponse, loadNative } from '../http/uws/native.ts'
import { type Reply, replies } from './upstream-replies.ts'

const uws = loadNative()

/** Frames in one write of a stream: a provider under load flushes several events at once. */
const GROUP = 10
const TRICKLE_MS = 4000
/** What a body says. The prompts of a load do not have these texts. */
const [STREAM, TRICKLE, AGENTS, SINGLE] = ['"stream":true', '"model":"trickle', '"model":"agents', '"model":"single']
const SEARCHED = [STREAM, TRICKLE, AGENTS, SINGLE]
/** As long as the longest text that is searched in a body, and may be split over two reads. */
const OVERLAP = 32

const stats = { whole: 0, streams: 0 }
const trickling = new Set<() => void>()
// All trickling streams share one timer. Each stream has its slice of the period, by its place in the set. So there are
// no bursts, and the memory profile measures streams only.
const SLICES = 40
let slice = 0
setInterval(() => {
  let place = 0
  for (const push of trickling) if (place++ % SLICES === slice) push()
  slice = (slice + 1) % SLICES
}, TRICKLE_MS / SLICES).unref()

function grouped(frames: Buffer[], size: number): Buffer[] {
  const pieces: Buffer[] = []
  for (let i = 0; i < frames.length; i += size) pieces.push(Buffer.concat(frames.slice(i, i + size)))
  return pieces
}

function serve(reply: Reply) {
  const groups = grouped(reply.frames, GROUP)
  const agentGroups = grouped(reply.agentFrames, GROUP)
  return (res: BareResponse) => {
    let gone = false
    let onGone: (() => void) | undefined
    const found = new Set<string>()
    let rest = ''
    res.onAborted(() => {
      gone = true
      onGone?.()
    })
    res.onData((chunk, last) => {
      // A view of the chunk: it is searched here and now, and not copied.
      const bytes = Buffer.from(chunk)
      const ends = rest + bytes.toString('latin1', 0, OVERLAP)
      for (const text of SEARCHED)
        if (!found.has(text) && (ends.includes(text) || bytes.includes(text))) found.add(text)
      if (!last) rest = (rest + bytes.toString('latin1', Math.max(0, bytes.length - OVERLAP))).slice(-OVERLAP)
      if (!last || gone) return
      if (!found.has(STREAM)) return whole()
      if (found.has(TRICKLE)) return trickle()
      if (found.has(AGENTS)) return stream(agentGroups)
      return stream(found.has(SINGLE) ? reply.frames : groups)
    })

    function whole(): void {
      stats.whole++
      res.cork(() => {
        res.writeHeader('content-type', 'application/json')
        res.end(reply.whole)
      })
    }

    function stream(pieces: Buffer[]): void {
      let i = 0
      const next = (): void => {
        if (gone) return
        res.cork(() => {
          if (i === 0) res.writeHeader('content-type', 'text/event-stream')
          const piece = pieces[i++]!
          if (i < pieces.length) res.write(piece)
          else {
            stats.streams++
            res.end(piece)
          }
        })
        if (i < pieces.length) setImmediate(next)
      }
      next()
    }

    function trickle(): void {
      // The fifth frame has content, on every surface.
      const first = Buffer.concat(reply.frames.slice(0, 5))
      const more = reply.frames[5]!
      const push = () => res.cork(() => res.write(more))
      onGone = () => trickling.delete(push)
      trickling.add(push)
      res.cork(() => {
        res.writeHeader('content-type', 'text/event-stream')
        res.write(first)
      })
    }
  }
}

const [cert, key] = process.argv.slice(2)
const app = uws.App()
for (const [path, reply] of Object.entries(replies)) app.post(path, serve(reply))
app.get('/stats', res => {
  res.writeHeader('content-type', 'application/json')
  res.end(JSON.stringify(stats))
})
app.any('/*', res => {
  res.writeStatus('404 Not Found')
  res.end()
})
app.listen('127.0.0.1', 0, socket => {
  if (!socket) throw new Error('cannot listen')
  console.log(`listening ${uws.us_socket_local_port(socket)}`)
})

if (cert !== undefined && key !== undefined) {
  const secure = uws.SSLApp({ cert_file_name: cert, key_file_name: key })
  for (const [path, reply] of Object.entries(replies)) secure.post(path, serve(reply))
  const http2 = createSecureServer({ cert: readFileSync(cert), key: readFileSync(key) })
  http2.on('stream', (stream, headers) => {
    const reply = replies[headers[':path']!]!
    const groups = grouped(reply.frames, GROUP)
    let body = ''
    stream.on('error', () => {})
    stream.on('data', chunk => (body += chunk))
    stream.on('end', () => {
      if (stream.closed || stream.destroyed) return
      if (!body.includes('"stream":true')) {
        stats.whole++
        stream.respond({ ':status': 200, 'content-type': 'application/json', 'content-length': reply.whole.length })
        return stream.end(reply.whole)
      }
      stream.respond({ ':status': 200, 'content-type': 'text/event-stream' })
      let i = 0
      const next = (): void => {
        if (stream.destroyed) return
        const piece = groups[i++]!
        if (i < groups.length) {
          stream.write(piece)
          return void setImmediate(next)
        }
        stats.streams++
        stream.end(piece)
      }
      next()
    })
  })
  secure.listen('127.0.0.1', 0, socket => {
    if (!socket) throw new Error('cannot listen')
    http2.listen(0, '127.0.0.1', () =>
      console.log(`secure ${uws.us_socket_local_port(socket)} ${(http2.address() as AddressInfo).port}`),
    )
  })
}
