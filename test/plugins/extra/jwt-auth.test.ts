/** jwt-auth: which tokens are accepted, key rotation, and an issuer that is out, slow or too long. */
import assert from 'node:assert/strict'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, beforeEach, test } from 'node:test'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { registerPluginHooks } from '../../../config/modules.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { slot } = await import('sluice')
const { ManualClock, runPlugin } = await import('sluice/testing')
const { default: plugin } = await import('../../../plugins/extra/jwt-auth.ts')

type KeyPair = Awaited<ReturnType<typeof generateKeyPair>>
const ISSUER = 'https://login.example'
const identity = slot<any>('identity')
const NOW = 1_700_000_000

let first: KeyPair
let second: KeyPair
let published: { kid: string; key: KeyPair }[]
let answer: RequestListener | undefined
let fetches = 0
const server = createServer(async (request, response) => {
  fetches++
  if (answer) return answer(request, response)
  const keys = await Promise.all(
    published.map(async ({ kid, key }) => ({ ...(await exportJWK(key.publicKey)), kid, alg: 'ES256', use: 'sig' })),
  )
  response.end(JSON.stringify({ keys }))
})
before(async () => {
  first = await generateKeyPair('ES256')
  second = await generateKeyPair('ES256')
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
})
after(() => {
  server.closeAllConnections()
  server.close()
})
beforeEach(() => {
  published = [{ kid: 'a', key: first }]
  answer = undefined
  fetches = 0
})

const token = (claims: object = {}, key = first, kid = 'a', exp = NOW + 60) =>
  new SignJWT({ org_id: 'acme', ...claims })
    .setProtectedHeader({ alg: 'ES256', kid })
    .setIssuer(ISSUER)
    .setAudience('sluice')
    .setIssuedAt(NOW)
    .setExpirationTime(exp)
    .sign(key.privateKey)

const asked: string[] = []
async function call(authorization: string | undefined, config: object = {}) {
  const clock = new ManualClock()
  clock.advance(NOW * 1000 - clock.now())
  return runPlugin<any>(plugin, {
    clock,
    config: {
      issuer: ISSUER,
      audience: 'sluice',
      jwks: `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks`,
      ...config,
    },
    request: { headers: authorization === undefined ? {} : { authorization } },
    accounts: {
      find(organization, key) {
        asked.push(`${organization}/${key}`)
        return organization === 'acme' ? { organization: { id: organization }, key: { id: key } } : null
      },
    },
  })
}

test('organization and key come from the claims', async () => {
  const run = await call(`Bearer ${await token({ azp: 'app' })}`, { key: 'azp' })
  assert.equal(run.status, 200)
  assert.deepEqual(run.exchange.get(identity), { organization: { id: 'acme' }, key: { id: 'app' } })
  const other = await call(`bearer ${await token()}`)
  assert.equal(other.exchange.get(identity).key.id, 'jwt')
})

test('what is refused, and why', async () => {
  const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from(
    JSON.stringify({ iss: ISSUER, aud: 'sluice', org_id: 'acme', exp: NOW + 60 }),
  ).toString('base64url')}.x`
  const shared = await new SignJWT({ org_id: 'acme' })
    .setProtectedHeader({ alg: 'HS256', kid: 'a' })
    .setIssuer(ISSUER)
    .setAudience('sluice')
    .setExpirationTime(NOW + 60)
    .sign(new TextEncoder().encode(JSON.stringify(await exportJWK(first.publicKey))))
  const cases: [string | undefined, RegExp, object?][] = [
    [undefined, /No Authorization/],
    ['Basic abc', /no signed JSON Web Token/],
    [`Bearer ${'a'.repeat(9000)}.b.c`, /no signed JSON Web Token/],
    [`Bearer ${unsigned}`, /algorithm is not accepted/],
    [`Bearer ${shared}`, /algorithm is not accepted/],
    [`Bearer ${await token()}`, /algorithm is not accepted/, { algorithms: ['RS256'] }],
    [`Bearer ${await token({}, second)}`, /signature is wrong/],
    [`Bearer ${await token({}, first, 'b')}`, /no key of the issuer/],
    [`Bearer ${await token({}, first, 'a', NOW - 31)}`, /has expired/],
    [`Bearer ${await token()}`, /claim iss does not fit/, { issuer: 'https://other.example' }],
    [`Bearer ${await token()}`, /claim aud does not fit/, { audience: 'other' }],
    [`Bearer ${await token({ nbf: NOW + 31 })}`, /claim nbf does not fit/],
    [`Bearer ${await token({ org_id: 7 })}`, /claim org_id is no text/],
    [`Bearer ${await token({ azp: {} })}`, /claim azp is no text/, { key: 'azp' }],
    [`Bearer ${await token({ org_id: 'nobody' })}`, /names no organization/],
  ]
  for (const [authorization, message, config] of cases) {
    const run = await call(authorization, config)
    assert.equal(run.status, 401, String(message))
    assert.match(run.json.error.message, message)
    assert.match(run.headers.get('www-authenticate')!, /^Bearer/)
  }
  // Within the skew both are right.
  assert.equal((await call(`Bearer ${await token({}, first, 'a', NOW - 29)}`)).status, 200)
  assert.equal((await call(`Bearer ${await token({ nbf: NOW + 29 })}`)).status, 200)
})

test('an issuer that is out, redirects, answers nonsense or too much: 503, and nobody is let in', async () => {
  const long = JSON.stringify({ keys: [], more: 'x'.repeat(300_000) })
  const answers: RequestListener[] = [
    (_, response) => response.destroy(),
    (_, response) => response.writeHead(500).end('{"keys":[]}'),
    (_, response) => response.writeHead(302, { location: '/other' }).end(),
    (_, response) => response.end('nonsense'),
    (_, response) => response.end(long),
    (_, response) => void response.flushHeaders(),
  ]
  for (const [i, one] of answers.entries()) {
    answer = one
    const run = await call(`Bearer ${await token()}`, { timeout: '200ms' })
    assert.equal(run.status, 503, String(i))
    assert.match(run.json.error.message, /Retry shortly/)
  }
})

test('the key set is read once while it is believed, also for unknown keys; later a rotated key is known', async () => {
  const make = (cache: number) =>
    plugin.create(
      {
        issuer: ISSUER,
        audience: 'sluice',
        jwks: `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks`,
        algorithms: ['ES256'],
        organization: 'org_id',
        key: '',
        default_key: 'jwt',
        clock_skew: 0,
        cache,
        timeout: 5000,
      },
      { accounts: { find: () => ({}) }, clock: { now: () => NOW * 1000 }, log: { warn() {} } } as never,
    )
  let hooks = await make(600_000)
  const pass = async (authorization: string) =>
    hooks.onRequest!({ incoming: { headers: new Map([['authorization', authorization]]) }, set() {} } as never)
  for (let i = 0; i < 3; i++) assert.equal(await pass(`Bearer ${await token()}`), undefined)
  for (let i = 0; i < 3; i++)
    assert.match(JSON.stringify(await pass(`Bearer ${await token({}, first, 'b')}`)), /invalid_api_key/)
  assert.equal(fetches, 1)
  hooks = await make(0)
  fetches = 0
  // cache: 0 reads the set for each token: a rotated key is known, and the old one is not.
  assert.equal(await pass(`Bearer ${await token()}`), undefined)
  published = [{ kid: 'b', key: second }]
  assert.equal(await pass(`Bearer ${await token({}, second, 'b')}`), undefined)
  assert.match(JSON.stringify(await pass(`Bearer ${await token()}`)), /invalid_api_key/)
  assert.equal(fetches, 3)
})
