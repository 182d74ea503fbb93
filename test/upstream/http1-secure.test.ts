/** What TLS adds to the HTTP/1.1 client: whom it trusts, what it says in the hello, sessions, and how links end. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import net, { type AddressInfo, type LookupFunction, type Socket } from 'node:net'
import { join } from 'node:path'
import { after, type TestContext, test } from 'node:test'
import tls, { type TLSSocket, type TlsOptions } from 'node:tls'
import { type ClientOptions, Http1Client } from '../../plugins/upstream/http1/client.ts'
import { hasOpenssl, makeCertificates } from '../faults/certificates.ts'

const skip = hasOpenssl() ? false : 'SKIPPED: there is no openssl here to make certificates with'
const pki = skip ? undefined! : makeCertificates()
after(() => pki?.remove())

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
const ca = () => pki.server.ca.toString()

interface Seen {
  port: number
  sockets: TLSSocket[]
  /** Whether each connection resumed a session. */
  resumed: boolean[]
  requests: number
}

/** A TLS server that answers each request in this way. */
async function serve(
  context: TestContext,
  options: TlsOptions = {},
  answer: (socket: TLSSocket) => void = socket => void socket.write(OK),
): Promise<Seen> {
  const raws = new Set<Socket>()
  const seen: Seen = { port: 0, sockets: [], resumed: [], requests: 0 }
  const server = tls.createServer({ ...pki.server, ALPNProtocols: ['h2', 'http/1.1'], ...options }, socket => {
    seen.sockets.push(socket)
    seen.resumed.push(socket.isSessionReused())
    socket.on('error', () => {})
    socket.on('data', () => {
      seen.requests++
      answer(socket)
    })
  })
  server.on('tlsClientError', () => {})
  server.on('connection', raw => raws.add(raw))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  context.after(() => {
    for (const raw of raws) raw.destroy()
    server.close()
  })
  seen.port = (server.address() as AddressInfo).port
  return seen
}

function clientOf(context: TestContext, port: number, options: Partial<ClientOptions> = {}, host = 'localhost') {
  const client = new Http1Client({
    origin: `https://${host}:${port}`,
    connectTimeoutMs: 10_000,
    keepAliveMs: 4000,
    ...options,
  })
  context.after(() => client.close())
  return client
}

/** The body, or the code of the error; `unsent` when nothing of the request was sent. */
function ask(client: Http1Client): Promise<string> {
  return new Promise(resolve => {
    let body = ''
    let sent = false
    client.dispatch(
      { path: '/', method: 'POST', headers: {}, body: '{}' },
      {
        onRequestStart: () => void (sent = true),
        onResponseData: (_, chunk) => void (body += chunk.toString()),
        onResponseEnd: () => resolve(body),
        onResponseError: (_, error) =>
          resolve(`${sent ? 'sent' : 'unsent'} ${(error as NodeJS.ErrnoException).code ?? error.message}`),
      },
    )
  })
}

test('the certificate: trusted by its authority alone, for the host of the URL, within its time', { skip }, async c => {
  const at = (name: string) => join(pki.folder, name)
  const csr = ['x509', '-req', '-in', at('server.csr'), '-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial']
  execFileSync('openssl', [...csr, '-days', '-1', '-extfile', at('server.ext'), '-out', at('old.pem')], {
    stdio: 'ignore',
  })
  const expired = { cert: readFileSync(at('old.pem')), key: pki.server.key }
  const cases: [string, TlsOptions, Partial<ClientOptions>, string, string][] = [
    ['a name', {}, { tls: { ca: ca() } }, 'localhost', 'ok'],
    ['an address', {}, { tls: { ca: ca() } }, '127.0.0.1', 'ok'],
    ['an unknown authority', {}, {}, 'localhost', 'unsent SELF_SIGNED_CERT_IN_CHAIN'],
    ['self-signed', pki.selfSigned, { tls: { ca: ca() } }, 'localhost', 'unsent DEPTH_ZERO_SELF_SIGNED_CERT'],
    ['another name', pki.elsewhere, { tls: { ca: ca() } }, 'localhost', 'unsent ERR_TLS_CERT_ALTNAME_INVALID'],
    ['a name for an address', pki.elsewhere, { tls: { ca: ca() } }, '127.0.0.1', 'unsent ERR_TLS_CERT_ALTNAME_INVALID'],
    ['expired', expired, { tls: { ca: ca() } }, 'localhost', 'unsent CERT_HAS_EXPIRED'],
  ]
  for (const [name, options, more, host, want] of cases) {
    const server = await serve(c, options)
    const client = clientOf(c, server.port, more, host)
    assert.equal(await ask(client), want, name)
    assert.equal(server.requests, want === 'ok' ? 1 : 0, name)
    assert.equal(client.connections, want === 'ok' ? 1 : 0, name)
  }
})

test('the client certificate: shown where it is set; without it nothing is answered', { skip }, async c => {
  const server = await serve(c, { requestCert: true, rejectUnauthorized: true })
  const [cert, key] = [readFileSync(pki.client.cert, 'utf8'), readFileSync(pki.client.key, 'utf8')]
  assert.equal(await ask(clientOf(c, server.port, { tls: { ca: ca(), cert, key } })), 'ok')
  assert.equal(server.sockets[0]!.getPeerCertificate().subject.CN, 'gateway')
  assert.match(await ask(clientOf(c, server.port, { tls: { ca: ca() } })), /^(un)?sent /)
  assert.equal(server.requests, 1)
  assert.throws(
    () => clientOf(c, server.port, { tls: { cert, key: pki.server.key.toString() } }),
    /key values mismatch/,
  )
})

test('the hello names the host and HTTP/1.1 alone; an IP address is not named', { skip }, async c => {
  const server = await serve(c)
  assert.equal(await ask(clientOf(c, server.port, { tls: { ca: ca() } })), 'ok')
  assert.equal(await ask(clientOf(c, server.port, { tls: { ca: ca() } }, '127.0.0.1')), 'ok')
  assert.deepEqual(
    server.sockets.map(({ servername, alpnProtocol }) => [servername, alpnProtocol]),
    [
      ['localhost', 'http/1.1'],
      [false, 'http/1.1'],
    ],
  )
  const h2 = await serve(c, { ALPNProtocols: ['h2'] })
  assert.equal(
    await ask(clientOf(c, h2.port, { tls: { ca: ca() } })),
    'unsent ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL',
  )
})

/** A name of two addresses: a socket that turns to the second one is set up anew, TLS and read buffer too. */
test('a name whose first address refuses is reached at its second', { skip }, async c => {
  const server = await serve(c)
  const lookup: LookupFunction = (_, __, done) =>
    done(null, [
      { address: '::1', family: 6 },
      { address: '127.0.0.1', family: 4 },
    ])
  const client = clientOf(c, server.port, { tls: { ca: ca() }, lookup })
  assert.deepEqual([await ask(client), await ask(client), server.sockets.length], ['ok', 'ok', 1])
  assert.equal(server.sockets[0]!.servername, 'localhost')
})

test('the handshake counts in the connect timeout', { skip }, async c => {
  const server = net.createServer(socket => void socket.on('error', () => {}).resume())
  await once(server.listen(0, '127.0.0.1'), 'listening')
  c.after(() => server.close())
  const client = clientOf(c, (server.address() as AddressInfo).port, { connectTimeoutMs: 50 })
  assert.equal(await ask(client), 'unsent UND_ERR_CONNECT_TIMEOUT')
})

// ---- sessions -------------------------------------------------------------------------------------------------------

for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
  test(`${version}: the next connection resumes the session; after an hour the certificate is checked again`, {
    skip,
  }, async c => {
    let now = 0
    // Each reply ends its connection.
    const server = await serve(c, { maxVersion: version, minVersion: version }, socket =>
      socket.end(OK.replace('\r\n\r\n', '\r\nconnection: close\r\n\r\n')),
    )
    const client = clientOf(c, server.port, { tls: { ca: ca() }, now: () => now })
    for (const at of [0, 1, 2, 3_599_999, 3_600_002]) {
      now = at
      assert.equal(await ask(client), 'ok')
    }
    assert.deepEqual(server.resumed, [false, true, true, true, false])
    // Another client knows nothing of these sessions, and has its own idea of whom to trust.
    assert.equal(await ask(clientOf(c, server.port)), 'unsent SELF_SIGNED_CERT_IN_CHAIN')
  })
}

test('connections that are opened at once resume the session too', { skip }, async c => {
  const server = await serve(c)
  const client = clientOf(c, server.port, { tls: { ca: ca() } })
  await ask(client)
  await Promise.all([ask(client), ask(client), ask(client), ask(client)])
  assert.deepEqual(server.resumed, [false, true, true, true])
})

// ---- how links end --------------------------------------------------------------------------------------------------

/** A new handshake could bring another certificate, whose names nobody would check. */
test('TLS 1.2: a renegotiation is refused', { skip }, async c => {
  let refused: Promise<Error | null> | undefined
  const server = await serve(c, { maxVersion: 'TLSv1.2' }, socket => {
    refused = new Promise(resolve => {
      socket.once('error', resolve)
      socket.renegotiate({}, error => resolve(error))
    })
  })
  const client = clientOf(c, server.port, { tls: { ca: ca() } })
  assert.match(await ask(client), /^sent /)
  assert.match(String(await refused), /renegotiation/)
})

test('an idle connection whose server says that it ends, or is cut, is not used', { skip }, async c => {
  for (const end of [(socket: TLSSocket) => socket.end(), (socket: TLSSocket) => socket.destroy()]) {
    const server = await serve(c)
    const client = clientOf(c, server.port, { tls: { ca: ca() } })
    assert.equal(await ask(client), 'ok')
    end(server.sockets[0]!)
    assert.equal(await ask(client), 'ok')
    assert.equal(server.sockets.length, 2)
  }
})

test('a body that is cut is an error, whether TLS was ended or not', { skip }, async c => {
  for (const end of [(socket: TLSSocket) => socket.end(), (socket: TLSSocket) => socket.destroySoon()]) {
    const server = await serve(c, {}, socket => {
      socket.write(OK.slice(0, -1))
      end(socket)
    })
    assert.equal(await ask(clientOf(c, server.port, { tls: { ca: ca() } })), 'sent UND_ERR_SOCKET')
  }
})
