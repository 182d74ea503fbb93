/** Signing in by an OpenID provider: a stand-in that signs as one does, honest and not. */
import assert from 'node:assert/strict'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { startConsole, type TestConsole, type Visitor } from './kit.ts'

/** What the provider says of whoever comes, and what it does wrong. */
let claims: Record<string, unknown> = {}
let wrong: Record<string, unknown> = {}
/** By code: what the authorization was asked with. */
const asked = new Map<string, URLSearchParams>()

let provider: Server
let issuer: string
let c: TestConsole

before(async () => {
  const { publicKey, privateKey } = await generateKeyPair('RS256')
  const other = await generateKeyPair('RS256')
  const jwk = { ...(await exportJWK(publicKey)), kid: 'k', alg: 'RS256', use: 'sig' }
  provider = createServer(async (request, response) => {
    const url = new URL(request.url!, issuer)
    const answer = (body: unknown, status = 200) => {
      response.writeHead(status, { 'content-type': 'application/json' })
      response.end(JSON.stringify(body))
    }
    if (url.pathname === '/.well-known/openid-configuration')
      return answer({
        ...{ issuer, authorization_endpoint: `${issuer}/authorize`, token_endpoint: `${issuer}/token` },
        ...{ jwks_uri: `${issuer}/keys`, response_types_supported: ['code'], subject_types_supported: ['public'] },
        ...{ id_token_signing_alg_values_supported: ['RS256'], code_challenge_methods_supported: ['S256'] },
      })
    if (url.pathname === '/keys') return answer({ keys: [jwk] })
    if (url.pathname !== '/token') return answer({}, 404)
    const form = new URLSearchParams(await textOf(request))
    const authorization = asked.get(form.get('code')!)
    if (!authorization) return answer({ error: 'invalid_grant' }, 400)
    const token = { nonce: authorization.get('nonce'), sub: '1', ...claims, ...wrong }
    const { key = privateKey, aud = 'console', ...payload } = token as Record<string, any>
    const id_token = await new SignJWT(payload)
      .setProtectedHeader({ alg: 'RS256', kid: 'k' })
      .setIssuer(issuer)
      .setAudience(aud)
      .setIssuedAt()
      .setExpirationTime('5m')
      .sign(key === 'other' ? other.privateKey : key)
    answer({ access_token: 'x', token_type: 'Bearer', id_token })
  })
  await new Promise<void>(done => provider.listen(0, '127.0.0.1', done))
  issuer = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`
  c = await startConsole(
    { url: 'http://127.0.0.1:1', gateway: { adminAddress: 'http://127.0.0.1:1' } },
    { yaml: `openid: [{ id: corp, name: Corp, issuer: "${issuer}", client_id: console, client_secret: s }]` },
  )
  await c.person('ada@example.com')
})
after(async () => {
  await c?.close()
  provider?.close()
  provider?.closeAllConnections()
})

async function textOf(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const piece of request) text += piece
  return text
}

/** Goes to the provider, which sends the browser back. @returns the path with which it comes back */
async function authorize(visitor: Visitor, next = '/account'): Promise<string> {
  await visitor.get('/sign-in')
  const { status, location } = await visitor.get(`/sign-in/openid/corp?next=${encodeURIComponent(next)}`)
  assert.equal(status, 302)
  const url = new URL(location!)
  assert.equal(url.origin + url.pathname, `${issuer}/authorize`)
  assert.equal(url.searchParams.get('code_challenge_method'), 'S256')
  const back = new URL(url.searchParams.get('redirect_uri')!)
  assert.equal(back.origin, c.url)
  const code = `code-${asked.size}`
  asked.set(code, url.searchParams)
  return `${back.pathname}?${new URLSearchParams({ code, state: url.searchParams.get('state')!, iss: issuer })}`
}

const isSignedIn = async (visitor: Visitor) => (await visitor.get('/account')).status === 200

test('whom the provider knows is signed in, once for each time it was asked', async () => {
  claims = { email: 'Ada@Example.com', email_verified: true }
  const visitor = c.visitor()
  assert.match((await visitor.get('/sign-in')).body, /Sign in with Corp/)
  const back = await authorize(visitor)
  assert.equal((await visitor.get(back)).location, '/account')
  assert.ok(await isSignedIn(visitor))
  const replay = c.visitor()
  await replay.get('/sign-in')
  assert.equal((await replay.get(back)).status, 403)
  assert.ok(!(await isSignedIn(replay)))
})

test('an answer that was meant for another browser, and one that nobody asked for, sign in nobody', async () => {
  claims = { email: 'ada@example.com', email_verified: true }
  const back = await authorize(c.visitor())
  const victim = c.visitor()
  await victim.get('/sign-in')
  assert.equal((await victim.get(back)).status, 403)
  assert.ok(!(await isSignedIn(victim)))
  asked.set('stolen', new URLSearchParams())
  assert.equal((await victim.get('/sign-in/openid/corp/callback?code=stolen&state=x')).status, 403)
  assert.equal((await victim.get('/sign-in/openid/other')).status, 404)
})

test('what the provider does not vouch for, or did not sign, is refused', async () => {
  for (const [what, fault] of [
    ['an address that it has not verified', { email_verified: false }],
    ['an address without a word about it', { email_verified: undefined }],
    ['no address', { email: undefined }],
    ['a header in the address', { email: 'ada@example.com\r\nBcc: x@example.com' }],
    ['a nonce of another time', { nonce: 'other' }],
    ['the token of another client', { aud: 'another' }],
    ['another key', { key: 'other' }],
  ] as const) {
    claims = { email: 'ada@example.com', email_verified: true }
    wrong = fault
    const visitor = c.visitor()
    const back = await authorize(visitor)
    assert.equal((await visitor.get(back)).status, 403, what)
    assert.ok(!(await isSignedIn(visitor)), what)
  }
  wrong = {}
})

test('a stranger with an account at the provider still needs an invitation', async () => {
  claims = { email: 'stranger@example.com', email_verified: true }
  const visitor = c.visitor()
  assert.equal((await visitor.get(await authorize(visitor))).status, 403)
  assert.equal(
    await c.console.parts.db
      .selectFrom('person')
      .where('email', '=', 'stranger@example.com')
      .selectAll()
      .executeTakeFirst(),
    undefined,
  )
})
