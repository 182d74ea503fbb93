/** A key and an organization through the admin API from their making to their end, on both engines. */
import assert from 'node:assert/strict'
import path from 'node:path'
import { after, before, describe, type TestContext, test } from 'node:test'
import { defaultYaml, sha256, startGateway, type TestGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { temporary } from '../stores/kit.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'

const OPERATE = 'adm-operate-0002'

let server: RedisServer | undefined
let databases = 0
before(async () => {
  if (!skipWithoutRedis) server = await RedisServer.start()
})
after(() => server?.stop())

interface Got {
  status: number
  body: any
}

for (const [name, skip, newUrl] of [
  ['sqlite', false, () => `sqlite:${path.join(temporary(), 'gateway.db')}`],
  ['redis', skipWithoutRedis, () => server!.url.replace(/\/0$/, `/${databases++}`)],
] as const) {
  describe(name, { skip }, () => {
    async function serve(t: TestContext) {
      const tokens = `tokens: [{ name: ops, role: operate, sha256: "${sha256(OPERATE)}" }]`
      const g = await startGateway({
        yaml: sim =>
          defaultYaml(sim)
            .replace('admin: 127.0.0.1:0', `admin: { listen: 127.0.0.1:0, ${tokens} }`)
            .replace('"sqlite::memory:"', `{ url: "${newUrl()}", timeout: 5s }`),
      })
      t.after(() => g.close())
      const call = async (method: string, where: string, body?: unknown, headers: object = {}): Promise<Got> => {
        const answer = await fetch(`${g.gateway.adminAddress}/api/v1/${where}`, {
          method,
          headers: {
            authorization: `Bearer ${OPERATE}`,
            ...(body !== undefined && { 'content-type': 'application/json' }),
            ...headers,
          },
          ...(body !== undefined && { body: JSON.stringify(body) }),
        })
        return { status: answer.status, body: await answer.json() }
      }
      return { g, call }
    }

    const ask = async (t: TestGateway, secret: string) => {
      const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hi' }] }
      const reply = await t.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
      await reply.text()
      return reply.status
    }

    test('a key is made, shown, changed, replaced and deleted', async t => {
      const { g, call } = await serve(t)
      await call('POST', 'organizations', { id: 'acme2', plan: 'tier1' })
      const here = 'organizations/acme2/keys'
      const own = { label: 'CI server', models: ['eb1-preview'], limits: { requests_per_day: 5 } }
      const made = await call('POST', here, { id: 'k1', ...own }, { 'sluice-actor': 'user:42' })
      assert.equal(made.status, 201)
      const { secret } = made.body
      const shown = (await call('GET', `${here}/k1`)).body
      assert.deepEqual(
        [shown.label, shown.hint, shown.creator, shown.last_used, shown.models],
        ['CI server', secret.slice(-4), 'user:42', null, ['eb1-preview']],
      )
      assert.match(shown.created, /^2\d{3}-.*Z$/)
      assert.deepEqual(shown.settings.limits, { requests_per_day: 5 })
      const limit = (key: any) => key.limits.find((one: any) => one.dimension === 'requests' && one.per === 'day')
      assert.equal(limit(shown).capacity, 5)
      await eventually(async () => (await ask(g, secret)) === 200)
      await g.ledger()

      const patch = { label: null, limits: { requests_per_day: 1 }, expires: '2999-01-01T00:00:00Z' }
      assert.equal((await call('PATCH', `${here}/k1`, patch)).status, 200)
      const changed = (await call('GET', `${here}/k1`)).body
      assert.deepEqual([changed.label, limit(changed).capacity, changed.expires], [null, 1, '2999-01-01T00:00:00.000Z'])
      // What was used stays used, and the narrower limit holds within a second.
      await eventually(async () => (await ask(g, secret)) === 429)
      for (const member of ['status', 'sha256', 'hint', 'creator', 'created', 'id']) {
        const refused = await call('PATCH', `${here}/k1`, { [member]: 'x' })
        assert.deepEqual([refused.status, refused.body.error.message], [400, `${member}: is not taken here`])
      }
      assert.equal((await call('PATCH', `${here}/none`, { label: 'x' })).status, 404)
      assert.match((await call('PATCH', `${here}/k1`, { label: '' })).body.error.message, /must not be empty/)

      // A replacement has what the key may do, and neither its secret nor its end.
      const rotated = await call('POST', `${here}/k1/rotate`, { id: 'k2', grace: '1h' })
      const k2 = (await call('GET', `${here}/k2`)).body
      assert.deepEqual(
        [k2.models, limit(k2).capacity, k2.expires, k2.creator, k2.hint],
        [['eb1-preview'], 1, null, 'token:ops', rotated.body.secret.slice(-4)],
      )

      const deleted = await call('DELETE', `${here}/k1`)
      assert.deepEqual([deleted.status, deleted.body.deleted], [200, true])
      assert.equal((await call('DELETE', `${here}/k1`)).status, 404)
      await eventually(async () => (await ask(g, secret)) === 401)
      assert.deepEqual(
        (await call('GET', here)).body.keys.map((key: any) => key.id),
        ['k2'],
      )
      const again = await call('POST', here, { id: 'k1' })
      assert.deepEqual([again.status, again.body.error.code], [409, 'deleted'])
      assert.match(again.body.error.message, /not given again/)

      const { entries } = (await call('GET', 'audit?organization=acme2')).body
      assert.deepEqual(entries.map(({ operation, key, actor }: any) => [operation, key, actor]).reverse(), [
        ['organization.create', '', undefined],
        ['key.create', 'k1', 'user:42'],
        ['key.change', 'k1', undefined],
        ['key.rotate', 'k2', undefined],
        ['key.delete', 'k1', undefined],
      ])
      assert.deepEqual([Object.keys(entries[0].before.keys), entries[0].after.keys], [['k1'], {}])
    })

    test('the last use of a key is told by the hour', async t => {
      const { g, call } = await serve(t)
      await call('POST', 'organizations', { id: 'acme2', plan: 'tier1' })
      const { secret } = (await call('POST', 'organizations/acme2/keys', { id: 'k1' })).body
      await eventually(async () => (await ask(g, secret)) === 200)
      const [row] = await g.ledger()
      // Asked for the first time now: an answer is kept for a minute.
      const { last_used } = (await call('GET', 'organizations/acme2/keys/k1')).body
      assert.equal(last_used, new Date(Math.floor(row!.time / 3_600_000) * 3_600_000).toISOString())
    })

    test('an organization has a name and texts, is deleted with a grace, and can be taken back in it', async t => {
      const { g, call } = await serve(t)
      const made = { id: 'acme2', plan: 'tier1', name: 'Acme', metadata: { stripe: 'cus_1' } }
      const { body } = await call('POST', 'organizations', made)
      const shown = (await call('GET', 'organizations/acme2')).body
      assert.deepEqual([shown.name, shown.metadata, shown.leaves], ['Acme', { stripe: 'cus_1' }, null])
      const many = Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`m${i}`, 'x']))
      const change = (patch: object, version = body.version) =>
        call('PATCH', 'organizations/acme2', patch, { 'if-match': `"${version}"` })
      for (const [patch, why] of [
        [{ metadata: many }, /metadata must NOT have more than 32/],
        [{ metadata: { 'a b': 'x' } }, /metadata/],
        [{ metadata: { a: 'x'.repeat(513) } }, /512/],
        [{ name: 'x'.repeat(201) }, /200/],
      ] as const) {
        const refused = await change(patch)
        assert.equal(refused.status, 400)
        assert.match(refused.body.error.message, why)
      }
      const { secret } = (await call('POST', 'organizations/acme2/keys', { id: 'k1' })).body
      await eventually(async () => (await ask(g, secret)) === 200)
      const gone = await call('DELETE', 'organizations/acme2?grace=7d')
      assert.equal(gone.body.status, 'disabled')
      const days = (Date.parse(gone.body.leaves) - Date.now()) / 86_400_000
      assert.ok(days > 6.9 && days <= 7)
      assert.equal((await call('DELETE', 'organizations/acme2?grace=1d')).body.leaves, gone.body.leaves)
      await eventually(async () => (await ask(g, secret)) === 401)
      assert.equal((await change({ status: 'active' }, gone.body.version)).status, 200)
      assert.equal((await call('GET', 'organizations/acme2')).body.leaves, null)
      await eventually(async () => (await ask(g, secret)) === 200)
      assert.equal((await call('DELETE', 'organizations/acme2?grace=soon')).status, 400)
      assert.equal((await call('DELETE', 'organizations/acme')).body.error.code, 'in_file')
    })
  })
}
