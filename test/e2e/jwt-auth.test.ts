/** jwt-auth in a listening gateway, on both listeners, with an issuer that publishes and rotates its keys. */
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { LISTENERS } from '../listeners.ts'
import { defaultYaml, startGateway } from './harness.ts'

type KeyPair = Awaited<ReturnType<typeof generateKeyPair>>
const ISSUER = 'https://login.example'

let first: KeyPair
let second: KeyPair
let published: { kid: string; key: KeyPair }[] = []
let out = false
const issuer = createServer(async (_, response) => {
  if (out) return void response.writeHead(500).end()
  const keys = await Promise.all(
    published.map(async ({ kid, key }) => ({ ...(await exportJWK(key.publicKey)), kid, alg: 'ES256', use: 'sig' })),
  )
  response.end(JSON.stringify({ keys }))
})
before(async () => {
  first = await generateKeyPair('ES256')
  second = await generateKeyPair('ES256')
  await new Promise<void>(resolve => issuer.listen(0, '127.0.0.1', resolve))
})
after(() => {
  issuer.closeAllConnections()
  issuer.close()
})

interface Form {
  kid?: string
  key?: KeyPair
  audience?: string
  expires?: string
  organization?: string
}
const token = ({ kid = 'a', key = first, audience = 'sluice', expires = '10m', organization = 'acme' }: Form = {}) =>
  new SignJWT({ org_id: organization })
    .setProtectedHeader({ alg: 'ES256', kid })
    .setIssuer(ISSUER)
    .setAudience(audience)
    .setIssuedAt()
    .setExpirationTime(expires)
    .sign(key.privateKey)

for (const listener of LISTENERS) {
  test(`jwt-auth on ${listener}: who is served, wrong and expired tokens, rotated keys, an issuer that is out`, async t => {
    published = [{ kid: 'a', key: first }]
    out = false
    const jwks = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}/keys`
    // With `cache: 0s` the key set is read for each token, so a rotation needs no waiting.
    const entry = `jwt-auth: { issuer: "${ISSUER}", audience: sluice, jwks: "${jwks}", default_key: key_test, cache: 0s }`
    const tenants: unknown[] = []
    const g = await startGateway({
      yaml: url => defaultYaml(url).replace('completions: [auth,', `completions: [{ ${entry} },`),
      gateway: {
        listener,
        around: (plugin, hooks) => {
          if (plugin.name !== 'validation') return hooks
          const beforeBody: typeof hooks.beforeBody = x => {
            tenants.push(x.incoming.tenant)
            return hooks.beforeBody!(x)
          }
          return { ...hooks, beforeBody }
        },
      },
    })
    t.after(() => g.close())
    const ask = async (given: string) => {
      const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'hello' }] }
      const answer = await g.post('/v1/chat/completions', body, { authorization: `Bearer ${given}` })
      return { status: answer.status, text: await answer.text(), challenge: answer.headers.get('www-authenticate') }
    }
    const refused = async (given: string, why: RegExp) => {
      const { status, text, challenge } = await ask(given)
      assert.equal(status, 401, text)
      assert.match(text, why)
      assert.match(challenge!, /invalid_token/)
      assert.ok(!text.includes(given))
    }

    const valid = await token()
    const served = await ask(valid)
    assert.equal(served.status, 200, served.text)
    assert.equal((await ask(valid)).status, 200)
    // Once it was checked, the token stands for its organization before it is checked again.
    assert.deepEqual(tenants, ['@127.0.0.1', 'acme'])
    await refused(await token({ audience: 'another' }), /aud does not fit/)
    await refused(await token({ expires: '-10m' }), /expired/)
    await refused(await token({ key: second }), /signature is wrong/)
    await refused(await token({ kid: 'b', key: second }), /no key of the issuer/)
    await refused(await token({ organization: 'nobody' }), /names no organization/)

    published = [{ kid: 'b', key: second }]
    assert.equal((await ask(await token({ kid: 'b', key: second }))).status, 200)
    await refused(await token(), /no key of the issuer/)

    out = true
    assert.equal((await ask(await token({ kid: 'b', key: second }))).status, 503)

    const rows = await g.ledger()
    assert.deepEqual(
      rows.map(({ organization, key_id, outcome }) => [organization, key_id, outcome]),
      Array.from({ length: 3 }, () => ['acme', 'key_test', 'completed']),
    )
  })
}
