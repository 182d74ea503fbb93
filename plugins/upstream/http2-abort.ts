/**
 * Keeps requests over HTTP/2 that are aborted from stopping the process. undici ends the stream of such a request with
 * `close()` and `destroy()`. `close()` without a code waits until the request's body is sent, and `destroy()` does not:
 * Node 22 then asks a stream that is gone for its body, for ever, in one turn of the event loop. With the code CANCEL,
 * which RFC 9113 has for a stream that is no longer needed, the stream is reset at once. Seen with Node 22.23 and undici
 * 8.12, when clients disconnect from a busy gateway; test/upstream/http2-abort.test.ts fails without this file.
 */
import { type ClientHttp2Session, constants } from 'node:http2'
import { Pool } from 'undici'

const { NGHTTP2_CANCEL } = constants
/** undici's own name for the session of a connection. package.json pins the release that has it. */
const SESSION = 'http2Session'

/** A pool whose HTTP/2 streams can be aborted. It has the signature of undici's factories. */
export function abortablePool(origin: string | URL, options: object): Pool {
  const pool = new Pool(origin, options)
  pool.on('connect', (_origin, targets) => {
    const session = sessionOf(targets.at(-1)!)
    if (session) resetAtOnce(session)
  })
  return pool
}

/** The session of a connection; undefined where the server has chosen HTTP/1.1. */
function sessionOf(client: object): ClientHttp2Session | undefined {
  const name = Object.getOwnPropertySymbols(client).find(({ description }) => description === SESSION)
  return name && ((client as Record<symbol, ClientHttp2Session | null>)[name] ?? undefined)
}

function resetAtOnce(session: ClientHttp2Session): void {
  const open = session.request.bind(session)
  session.request = (headers, options) => {
    const stream = open(headers, options)
    const close = stream.close.bind(stream)
    stream.close = (code = NGHTTP2_CANCEL, callback) => close(code, callback)
    return stream
  }
}
