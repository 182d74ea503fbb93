import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { DIALECTS } from '../kit/gateways.ts'
import { SURFACES } from '../kit/reply.ts'
import { type Row, section } from '../kit/row.ts'
import type { World } from '../kit/world.ts'

/** A request on every endpoint. */
const everyEndpoint = async (w: World, headers: Record<string, string | undefined>) => [
  await w.ask('responses', { headers }),
  await w.ask('chat', { headers }),
  await w.ask('messages', { headers }),
  await w.count({ headers }),
  await w.get('/models', { headers }),
]

const refused = (code: string, says: string, authorization: string | undefined): Row => ({
  at: `rule 3, table: ${code}`,
  says,
  async check(w) {
    for (const reply of await everyEndpoint(w, { authorization })) {
      assert.deepEqual([reply.status, reply.code], [401, code], String(reply))
      assert.match(reply.header('www-authenticate') ?? '', /^Bearer/)
      assert.equal(reply.error.type, 'authentication_error')
      if (code !== 'invalid_api_key') continue
      const hint = reply.error.details.key_hint
      assert.ok(hint && !hint.includes('wrong-key-secret'), hint)
    }
    return `401 ${code}, WWW-Authenticate: Bearer, authentication_error on five endpoints`
  },
})

export const authentication = section('Authentication', 'auth', [
  {
    at: 'rule 1',
    says: 'every endpoint takes Authorization: Bearer',
    async check(w) {
      for (const { status } of await everyEndpoint(w, {})) assert.equal(status, 200)
      for (const { status } of await everyEndpoint(w, { authorization: undefined })) assert.equal(status, 401)
      return 'five endpoints'
    },
  },
  {
    at: 'rule 1',
    says: 'credentials of the console are no API keys',
    async check(w) {
      for (const reply of await everyEndpoint(w, { authorization: 'Bearer sk-operator' }))
        assert.equal(reply.code, 'invalid_api_key')
      return 'the operator’s token is 401 on five endpoints'
    },
  },
  {
    at: 'rule 1',
    says: 'keys are created in the web console',
    beyond: 'the console is another listener; test/admin tries it in a browser',
  },
  {
    at: 'rule 2',
    says: 'a key inherits the plan of its organization',
    account: { plan: 'tier1' },
    async check(w) {
      const reply = await w.well('chat')
      assert.equal(reply.header('x-ratelimit-limit-requests'), '60')
      return '60 requests a minute of tier 1'
    },
  },
  {
    at: 'rule 2',
    says: 'a key may be narrower',
    account: { plan: 'tier1', key: { limits: { requests_per_minute: 2 } } },
    async check(w) {
      assert.equal((await w.well('chat')).header('x-ratelimit-limit-requests'), '2')
      return '2 of 60'
    },
  },
  {
    at: 'rule 2',
    says: 'a key never raises the limits of its organization',
    account: { limits: { requests_per_minute: 1 }, key: { limits: { requests_per_minute: 100 } } },
    async check(w) {
      assert.equal((await w.well('chat')).header('x-ratelimit-limit-requests'), '1')
      assert.equal((await w.ask('chat')).code, 'requests_limit_exceeded')
      return 'one request, although the key says 100'
    },
  },
  {
    at: 'rule 2',
    says: 'a key may be limited to models',
    account: { key: { models: ['eb1-fast-preview'] } },
    async check(w) {
      for (const surface of SURFACES) {
        assert.deepEqual((await w.ask(surface)).code, 'model_not_available')
        await w.well(surface, { model: 'eb1-fast-preview' })
      }
      return '403 model_not_available for any other'
    },
  },
  {
    at: 'rule 2',
    says: 'the plan caps how many keys are active',
    gateway: 'quickstart',
    async check(w) {
      // The plan beta takes ten; the file has one.
      for (let i = 0; i < 9; i++) assert.equal((await w.run('key', 'new', 'demo')).code, 0)
      const { code, err, out } = await w.run('key', 'new', 'demo')
      assert.notEqual(code, 0)
      assert.match(err + out, /active/)
      return (err + out).trim().split('\n')[0]!
    },
  },
  refused('missing_authorization', 'no Authorization header', undefined),
  refused('bearer_scheme_required', 'another scheme than Bearer', 'Basic c2s6'),
  refused('invalid_api_key', 'a key that is not valid; key_hint is redacted', 'Bearer sk-wrong-key-secret-0001'),
  {
    at: 'rule 3',
    says: 'an empty Bearer is told as what it is',
    async check(w) {
      const reply = await w.ask('chat', { headers: { authorization: 'Bearer ' } })
      assert.equal(reply.status, 401)
      assert.doesNotMatch(reply.error.message, /does not use the Bearer scheme/)
      assert.match(reply.error.message, /empty|no key/i)
      return `${reply.code}: ${reply.error.message}`
    },
  },
  {
    at: 'rule 4',
    says: 'the provider’s refusal of the credential is 502 upstream_auth_error',
    check: w =>
      w.everywhere(async (surface, model, stream) => {
        const reply = await w.ask(surface, { model, stream, say: '[[sim: error auth after 0]]' })
        assert.deepEqual([reply.status, reply.code], [502, 'upstream_auth_error'], String(reply))
      }),
  },
  {
    at: 'rule 4',
    says: 'and the caller’s key stays valid',
    async check(w) {
      await w.ask('chat', { say: '[[sim: error auth after 0]]' })
      await w.pass(60)
      for (const model of Object.values(DIALECTS)) await w.well('chat', { model })
      return 'the next requests are served'
    },
  },
  {
    at: 'rule 5',
    says: 'a key is created, staged to replace another, and revoked',
    gateway: 'compose',
    async check(w) {
      const made = async (...args: string[]) => {
        const { out, err, code } = await w.run('key', ...args, '--json')
        assert.equal(code, 0, err)
        return JSON.parse(out)
      }
      const keyed = (key: string) => w.ask('chat', { as: key })
      const { secret, key: id } = await made('new', 'demo')
      await w.gateway.reload()
      assert.equal((await keyed(secret)).status, 200)
      const { secret: next } = await made('stage', 'demo', id)
      await w.gateway.reload()
      for (const key of [secret, next]) assert.equal((await keyed(key)).status, 200)
      await made('revoke', 'demo', id)
      await w.gateway.reload()
      assert.equal((await keyed(secret)).code, 'invalid_api_key')
      assert.equal((await keyed(next)).status, 200)
      assert.ok(!readFileSync(w.gateway.file, 'utf8').includes(secret))
      return 'both work until the first is revoked; the file has digests alone'
    },
  },
  {
    at: 'rule 5',
    says: 'a key can be deleted',
    gateway: 'compose',
    async check(w) {
      const { code, err } = await w.run('key', 'delete', 'demo', 'key_demo')
      assert.equal(code, 0, err)
      return 'sluice key delete'
    },
  },
])
