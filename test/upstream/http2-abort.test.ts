/** Requests over HTTP/2 that are aborted: see plugins/upstream/http2-abort.ts. */
import assert from 'node:assert/strict'
import { constants, createSecureServer, type ServerHttp2Stream } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { type TestContext, test } from 'node:test'
import { abortablePool } from '../../plugins/upstream/http2-abort.ts'
import { hasOpenssl, makeCertificates } from '../faults/certificates.ts'

const skip = !hasOpenssl() && 'there is no openssl here to make certificates with'

async function serve(t: TestContext, on: (stream: ServerHttp2Stream) => void) {
  const { server: pki, remove } = makeCertificates()
  const server = createSecureServer({ cert: pki.cert, key: pki.key })
  server.on('stream', stream => {
    stream.on('error', () => {})
    on(stream)
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const origin = `https://localhost:${(server.address() as AddressInfo).port}`
  const pool = abortablePool(origin, { allowH2: true, connect: { ca: pki.ca } })
  t.after(async () => {
    await pool.destroy()
    server.close()
    remove()
  })
  return pool
}

for (const when of ['before its head', 'after its head'] as const)
  test(`a request that is aborted ${when} is reset with the code CANCEL, and others go on`, { skip }, async t => {
    const reset = Promise.withResolvers<number>()
    const arrived = Promise.withResolvers<void>()
    const pool = await serve(t, stream => {
      stream.resume()
      stream.once('end', () => {
        if (when === 'after its head') stream.respond({ ':status': 200 })
        arrived.resolve()
      })
      stream.once('close', () => reset.resolve(stream.rstCode))
    })
    const failed = Promise.withResolvers<Error>()
    const head = Promise.withResolvers<void>()
    let abort: (() => void) | undefined
    pool.dispatch(
      { method: 'POST', path: '/', body: 'x'.repeat(1000) },
      {
        onRequestStart: controller => {
          abort = () => controller.abort(new Error('the client has left'))
        },
        onResponseStart: () => head.resolve(),
        onResponseData() {},
        onResponseEnd() {},
        onResponseError: (_, error) => failed.resolve(error),
      },
    )
    await arrived.promise
    if (when === 'after its head') await head.promise
    abort!()
    assert.equal((await failed.promise).message, 'the client has left')
    assert.equal(await reset.promise, constants.NGHTTP2_CANCEL)
  })
