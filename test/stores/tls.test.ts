/** rediss:// against a real server with certificates of our own: who is not who he says he is gets nothing. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import type { Store } from '../../core/ports/store.ts'
import { openStore } from '../../stores/index.ts'
import { type Certificates, hasOpenssl, makeCertificates } from '../faults/certificates.ts'
import { freePort } from '../ports.ts'
import { bucket, intent, options, outcome, T0, temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const skip = skipWithoutRedis || (hasOpenssl() ? false : 'openssl is not installed')
let certificates: Certificates
const servers: RedisServer[] = []

/** A server that speaks TLS on a port of its own, with a pair of `certificates`. */
async function startTls(pair: { cert: Buffer; key: Buffer }, clients: 'yes' | 'no'): Promise<number> {
  const port = await freePort()
  const at = (name: string) => join(certificates.folder, `redis-${port}-${name}.pem`)
  writeFileSync(at('cert'), pair.cert)
  writeFileSync(at('key'), pair.key)
  const tls = { 'tls-port': port, 'tls-cert-file': at('cert'), 'tls-key-file': at('key') }
  const args = Object.entries({ ...tls, 'tls-ca-cert-file': certificates.ca, 'tls-auth-clients': clients })
  servers.push(await RedisServer.start(args.flatMap(([name, value]) => [`--${name}`, String(value)])))
  return port
}

before(() => {
  if (!skip) certificates = makeCertificates()
})
after(async () => {
  for (const server of servers) await server.stop()
  certificates?.remove()
})

async function use(url: string, check: (store: Store) => Promise<void>): Promise<void> {
  const store = await openStore(options(url, { dataDir: temporary(), timeout: 5000 }))
  try {
    await check(store)
  } finally {
    await store.close()
  }
}
const works = (url: string) =>
  use(url, async store => {
    assert.deepEqual(await store.ready(), { ok: true })
    const asked = { org: 'acme', id: `r-${url.length}`, cells: [bucket('o:rpm', 100)], amounts: [1], now: T0 }
    assert.equal((await store.limits.admit(asked)).admitted, true)
    await store.ledger.intent(intent(asked.id))
    store.ledger.outcome(outcome(asked.id))
    await store.ledger.flush()
    assert.equal((await store.ledger.query({})).filter(row => row.request_id === asked.id).length, 1)
  })
const isRefused = (url: string, why: RegExp) =>
  use(url, async store => {
    const { ok, reason } = await store.ready()
    assert.equal(ok, false)
    assert.match(reason!, why)
  })

test('rediss:// with a certificate authority of our own', { skip }, async () => {
  const port = await startTls(certificates.server, 'no')
  const ca = `ca=${encodeURIComponent(certificates.ca)}`
  await works(`rediss://localhost:${port}?${ca}`)
  await works(`rediss://127.0.0.1:${port}/1?${ca}`)
  await isRefused(`rediss://localhost:${port}`, /not reachable: .*(certificate|issuer)/)
  await isRefused(`redis://localhost:${port}`, /not reachable|did not answer|failed/)
})

test('a server with another host’s certificate is not talked to', { skip }, async () => {
  const port = await startTls(certificates.elsewhere, 'no')
  await isRefused(
    `rediss://localhost:${port}?ca=${encodeURIComponent(certificates.ca)}`,
    /not reachable: .*altnames|not reachable: .*Host/,
  )
})

test('a server that asks for a client certificate', { skip }, async () => {
  const port = await startTls(certificates.server, 'yes')
  const { ca, client } = certificates
  const own = `ca=${encodeURIComponent(ca)}&cert=${encodeURIComponent(client.cert)}&key=${encodeURIComponent(client.key)}`
  await works(`rediss://localhost:${port}?${own}`)
  await isRefused(`rediss://localhost:${port}?ca=${encodeURIComponent(ca)}`, /not reachable|failed/)
})
