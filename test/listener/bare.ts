/** uWebSockets.js without the adapter, for the tests of the adapter's rules. */
import assert from 'node:assert/strict'
import { type ListenSocket, loadNative, type Serve, type UwsApp } from '../../http/uws/native.ts'

export const uws = loadNative()
export const get = (path = '/'): string => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`
export const post = (headers: string, body = ''): string => `POST / HTTP/1.1\r\nHost: a\r\n${headers}\r\n${body}`

/** A bare server for as long as `body` runs. */
export async function bare(serve: Serve, body: (port: number, app: UwsApp) => Promise<void>): Promise<void> {
  const app = uws.App().any('/*', (res, req) => {
    res.onAborted(() => {})
    serve(res, req)
  })
  let socket: ListenSocket | false = false
  app.listen('127.0.0.1', 0, listening => {
    socket = listening
  })
  assert.ok(socket)
  try {
    await body(uws.us_socket_local_port(socket), app)
  } finally {
    app.close()
  }
}
