/**
 * Contender: only the two libraries that the gateway uses. uWebSockets.js takes requests, undici sends them upstream,
 * and content is forwarded as it arrives. Its arguments are the port of the upstream and, for TLS, the PEM file of its
 * authority and `http2` for that protocol. It prints `listening PORT`.
 */
import { readFileSync } from 'node:fs'
import { Pool } from 'undici'
import { loadNative } from '../../http/uws/native.ts'
import { abortablePool } from '../../plugins/upstream/http2-abort.ts'

const uws = loadNative()

const [port, ca, protocol] = process.argv.slice(2)

// Over plain undici a client that leaves can stop the process.
const open = protocol === 'http2' ? abortablePool : (origin: string, options: object) => new Pool(origin, options)
const pool = open(ca === undefined ? `http://127.0.0.1:${port}` : `https://localhost:${port}`, {
  allowH2: protocol === 'http2',
  ...(ca !== undefined && { connect: { ca: readFileSync(ca, 'utf8') } }),
  connections: 8192,
  pipelining: 1,
  headersTimeout: 0,
  bodyTimeout: 0,
})

uws
  .App()
  .post('/*', (res, req) => {
    const path = req.getUrl()
    const chunks: Buffer[] = []
    let gone = false
    let abort: (() => void) | undefined
    res.onAborted(() => {
      gone = true
      abort?.()
    })
    res.onData((chunk, last) => {
      chunks.push(Buffer.from(Buffer.from(chunk)))
      if (last) forward(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks))
    })

    function writeHead(status: number, type: string): void {
      res.writeStatus(String(status))
      res.writeHeader('content-type', type)
    }

    function forward(body: Buffer): void {
      if (gone) return
      let status = 0
      let type = ''
      let sized = false
      let whole: Buffer | undefined
      pool.dispatch(
        { method: 'POST', path, headers: ['content-type', 'application/json'], body },
        {
          onRequestStart(controller) {
            abort = () => controller.abort(new Error('client gone'))
          },
          onResponseStart(_controller, code, headers) {
            status = code
            type = String(headers['content-type'])
            sized = headers['content-length'] !== undefined
            if (!sized && !gone) res.cork(() => writeHead(code, type))
          },
          onResponseData(controller, chunk) {
            if (gone) return
            if (sized) {
              whole = whole ? Buffer.concat([whole, chunk]) : chunk
              return
            }
            let room = true
            res.cork(() => {
              room = res.write(chunk)
            })
            if (room) return
            controller.pause()
            res.onWritable(() => {
              controller.resume()
              return true
            })
          },
          onResponseEnd() {
            if (gone) return
            res.cork(() => {
              if (sized) writeHead(status, type)
              res.end(whole)
            })
          },
          onResponseError() {
            if (!gone) res.close()
          },
        },
      )
    }
  })
  .listen('127.0.0.1', 0, socket => {
    if (!socket) throw new Error('cannot listen')
    console.log(`listening ${uws.us_socket_local_port(socket)}`)
  })
