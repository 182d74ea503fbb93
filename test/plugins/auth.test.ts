/** `auth`: who calls. Reads the head alone, so that a stranger's body is never awaited. */
import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { test } from 'node:test'
import { auth } from '../../plugins/auth.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { runPlugin } from '../../plugins/testing.ts'
import { caller, gatewayOf, reading, text } from './kit.ts'

const SECRETS = { active: 'sk-acme-active-0001', staged: 'sk-acme-staged-0002', revoked: 'sk-acme-gone-0003' } as const
const keys = Object.entries(SECRETS).map(
  ([status, secret]) =>
    caller({}, { id: `key_${status}`, status: status as 'active', sha256: hash('sha256', secret, 'hex') }).key,
)
/** Its digest is known, but bytes like these may have been altered on the way in. */
const ODD = 'sk-acme-schlüssel-0004'
keys.push(caller({}, { id: 'key_odd', sha256: hash('sha256', ODD, 'hex') }).key)
const { organization } = caller({ keys })
const gateway = gatewayOf({ organizations: { acme: organization } })

const ask = (headers: Record<string, string>, config = {}, surface = reading('chat')) =>
  runPlugin(auth, { gateway, config, surface, request: { headers }, events: [text('hi')] })

for (const status of ['active', 'staged'] as const) {
  test(`[AUTH-1] [AUTH-5] an ${status} key: its organization and itself are known to the plugins below`, async () => {
    const run = await ask({ authorization: `Bearer ${SECRETS[status]}` })
    assert.equal(run.status, 200)
    const { organization, key } = run.exchange.get(identity)
    assert.deepEqual([organization.id, key.id], ['acme', `key_${status}`])
  })
}

for (const [what, authorization] of [
  ['the scheme in any case', `bEaReR ${SECRETS.active}`],
  ['spaces around the key', `Bearer   ${SECRETS.active}  `],
] as const) {
  test(`[AUTH-1] accepted: ${what}`, async () => assert.equal((await ask({ authorization })).status, 200))
}

const REFUSED: [what: string, headers: Record<string, string>, code: string][] = [
  ['no header at all', {}, 'missing_authorization'],
  ['x-api-key, without the option', { 'x-api-key': SECRETS.active }, 'missing_authorization'],
  ['another scheme', { authorization: `Basic ${SECRETS.active}` }, 'bearer_scheme_required'],
  ['the bare key', { authorization: SECRETS.active }, 'bearer_scheme_required'],
  ['an empty header', { authorization: '' }, 'bearer_scheme_required'],
  ['a scheme and nothing behind it', { authorization: 'Bearer ' }, 'invalid_api_key'],
  // As it arrives: HTTP trims the space of an empty key.
  ['the scheme alone', { authorization: 'bearer' }, 'invalid_api_key'],
  ['a word that begins like the scheme', { authorization: 'Bearers' }, 'bearer_scheme_required'],
  ['an unknown key', { authorization: 'Bearer sk-acme-unknown-9999' }, 'invalid_api_key'],
  ['a revoked key', { authorization: `Bearer ${SECRETS.revoked}` }, 'invalid_api_key'],
  ['a key in another case', { authorization: `Bearer ${SECRETS.active.toUpperCase()}` }, 'invalid_api_key'],
  ['a key and more', { authorization: `Bearer ${SECRETS.active}%00` }, 'invalid_api_key'],
  ['a digest instead of a key', { authorization: `Bearer ${keys[0]!.sha256}` }, 'invalid_api_key'],
  ['a key of bytes that no key has', { authorization: `Bearer ${ODD}` }, 'invalid_api_key'],
  ['257 characters', { authorization: `Bearer ${'k'.repeat(257)}` }, 'invalid_api_key'],
]
for (const [what, headers, code] of REFUSED) {
  test(`[AUTH-2] refused with 401 ${code} and a challenge: ${what}`, async () => {
    const run = await ask(headers)
    assert.deepEqual([run.status, run.json.error.code], [401, code])
    assert.equal(run.headers.get('www-authenticate'), 'Bearer')
    assert.equal(run.exchange.peek(identity), undefined)
    assert.equal(run.settlement.outcome, 'refused')
  })
}

for (const [sent, hint] of [
  ['sk-acme-unknown-9999', 'sk-***9999'],
  ['short-key', '***'],
  ['a long key with spaces in it', '***'],
] as const) {
  test(`[AUTH-3] a refused key is never repeated; its owner knows it by '${hint}'`, async () => {
    const { json } = await ask({ authorization: `Bearer ${sent}` })
    assert.equal(json.error.details.key_hint, hint)
    assert.ok(json.error.message.includes(hint))
    assert.ok(!JSON.stringify(json).includes(sent))
  })
}

test('[AUTH-2] x_api_key: the key may stand in x-api-key, on Messages alone, where there is no Authorization', async () => {
  const config = { x_api_key: true }
  const sent = { 'x-api-key': SECRETS.active }
  assert.equal((await ask(sent, config, reading('messages'))).status, 200)
  assert.equal((await ask(sent, config, reading('chat'))).json.error.code, 'missing_authorization')
  const both = await ask({ ...sent, authorization: 'Bearer sk-acme-unknown-9999' }, config, reading('messages'))
  assert.equal(both.json.error.code, 'invalid_api_key', 'Authorization decides')
})

test('who sends x-api-key to a gateway that does not take it is told what to set instead', async () => {
  const { json } = await ask({ 'x-api-key': SECRETS.active }, {}, reading('messages'))
  assert.match(json.error.message, /x-api-key is not accepted here: send "Authorization: Bearer <API_KEY>"/)
})

// It said "create one in the console". There is none: keys are made by whoever has the configuration.
test('a key that is not valid is sent to the people who make keys', async () => {
  const { json } = await ask({ authorization: 'Bearer sk-acme-unknown-9999' })
  assert.match(json.error.message, /ask whoever runs this gateway for a new one/)
})

// It said "does not use the Bearer scheme", which led away from the usual cause: a variable without a value.
test('who sends Bearer without a key is told that the key is missing', async () => {
  const { json } = await ask({ authorization: 'Bearer' })
  assert.match(json.error.message, /no API key behind "Bearer". Is the variable that holds the key empty\?/)
  assert.equal(json.error.details.key_hint, '***')
})
