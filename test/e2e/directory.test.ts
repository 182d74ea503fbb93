/** Accounts of the store, through listening gateways: two of them on Redis, one and another process on SQLite. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { after, before, describe, type TestContext, test } from 'node:test'
import type { AccountStore } from '../../core/accounts.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { eventually } from '../eventually.ts'
import { slots, temporary } from '../stores/kit.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { defaultYaml, KEY, sha256, startGateway, type TestGateway } from './harness.ts'

let server: RedisServer | undefined
let databases = 0
before(async () => {
  if (!skipWithoutRedis) server = await RedisServer.start()
})
after(() => server?.stop())

const SECRET = 'sk-stored-0001-secret'
const CHAT = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hi' }] }
const ask = (gateway: TestGateway, secret = SECRET, body: object = CHAT) =>
  gateway.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
const status = async (gateway: TestGateway, secret?: string) => {
  const reply = await ask(gateway, secret)
  await reply.text()
  return reply.status
}

const start = (url: string, extra = '') =>
  startGateway({
    yaml: sim => defaultYaml(sim, { extra }).replace('"sqlite::memory:"', `{ url: "${url}", timeout: 5s }`),
  })

/** Changes an organization as the command line does. */
async function change(
  accounts: AccountStore,
  id: string,
  settings: object | undefined,
  keys: [secret: string, settings?: object][],
) {
  const before = await accounts.read(id)
  const [result] = await accounts.change([
    {
      id,
      expected: before?.version ?? 0,
      ...(settings && { settings: JSON.stringify(settings) }),
      keys: keys.map(([secret, own], i) => ({
        id: `key_${i}`,
        sha256: sha256(secret),
        settings: JSON.stringify(own ?? {}),
      })),
    },
  ])
  assert.equal(result!.refused, undefined)
}

const engines: [name: string, skip: string | false, url: () => string, gateways: number][] = [
  ['sqlite', false, () => `sqlite:${path.join(temporary(), 'gateway.db')}`, 1],
  ['redis', skipWithoutRedis, () => server!.url.replace(/\/0$/, `/${databases++}`), 2],
]

for (const [name, skip, newUrl, count] of engines) {
  describe(name, { skip }, () => {
    async function serve(
      t: TestContext,
      extra?: string,
    ): Promise<{ accounts: AccountStore; gateways: TestGateway[]; url: string }> {
      const url = newUrl()
      const gateways: TestGateway[] = []
      for (let i = 0; i < count; i++) gateways.push(await start(url, extra))
      const opened = await openAccounts(url)
      t.after(async () => {
        await opened.close()
        for (const gateway of gateways) await gateway.close()
      })
      return { accounts: opened.accounts, gateways, url }
    }
    const everywhere = (gateways: TestGateway[], expected: number, secret?: string) =>
      eventually(async () => {
        for (const gateway of gateways) if ((await status(gateway, secret)) !== expected) return false
        return true
      })

    test('an organization that another process makes is served, and every change of it takes effect', async t => {
      const { accounts, gateways } = await serve(t)
      for (const gateway of gateways) {
        assert.equal(await status(gateway, KEY), 200)
        assert.equal(await status(gateway), 401)
      }
      await change(accounts, 'stored', { plan: 'custom' }, [[SECRET]])
      await everywhere(gateways, 200)
      assert.equal((await gateways[0]!.ledger()).at(-1)!.organization, 'stored')
      await change(accounts, 'stored', { plan: 'custom', status: 'disabled' }, [])
      await everywhere(gateways, 401)
      await change(accounts, 'stored', { plan: 'custom' }, [])
      await everywhere(gateways, 200)
      await change(accounts, 'stored', { plan: 'custom', models: ['eb1-fast-preview'] }, [])
      await everywhere(gateways, 403)
      await change(accounts, 'stored', { plan: 'custom' }, [[SECRET, { status: 'revoked' }]])
      await everywhere(gateways, 401)
      // A new key beside the revoked one.
      await change(accounts, 'stored', undefined, [
        [SECRET, { status: 'revoked' }],
        ['sk-stored-0002-secret', { expires: '2099-01-01T00:00:00Z' }],
      ])
      await everywhere(gateways, 200, 'sk-stored-0002-secret')
      await change(accounts, 'stored', undefined, [
        [SECRET],
        ['sk-stored-0002-secret', { expires: '2020-01-01T00:00:00Z' }],
      ])
      await everywhere(gateways, 401, 'sk-stored-0002-secret')
      await everywhere(gateways, 200)
      assert.equal(await status(gateways[0]!, KEY), 200)
    })

    test('levels and slots survive a change of the account', async t => {
      const { accounts, gateways } = await serve(t)
      const settings = (concurrent_requests: number, requests_per_day: number) => ({
        plan: 'custom',
        limits: { concurrent_requests, requests_per_day },
      })
      await change(accounts, 'stored', settings(2, 1000), [[SECRET]])
      const gateway = gateways.at(-1)!
      await eventually(async () => (await status(gateway)) === 200)
      const gone = new AbortController()
      const stream = await fetch(`${gateway.url}/v1/chat/completions`, {
        method: 'POST',
        signal: gone.signal,
        headers: { authorization: `Bearer ${SECRET}`, 'content-type': 'application/json' },
        body: JSON.stringify({ ...CHAT, stream: true, messages: [{ role: 'user', content: '[[sim: stall 3]] x' }] }),
      })
      assert.equal(stream.status, 200)
      let served = 2
      await change(accounts, 'stored', settings(1, 2000), [])
      await eventually(async () => {
        const reply = await ask(gateway)
        const { error } = (await reply.json()) as any
        if (!error) served++
        else assert.equal(error.code, 'concurrency_limit_exceeded')
        return error !== undefined
      })
      gone.abort()
      await eventually(() => gateway.gateway.ingress.running.size === 0)
      await eventually(async () => {
        const levels = await gateway.gateway.store.limits.peek('stored', [slots('o:conc', 1)], Date.now())
        return levels[0]!.remaining === 1
      })
      const reply = await ask(gateway)
      await reply.text()
      assert.equal(reply.headers.get('x-ratelimit-remaining-requests'), String(2000 - served - 1))
    })

    test('[AUTH-1] an organization that stands in both places is refused', async t => {
      const { accounts, gateways } = await serve(t)
      const [gateway] = gateways
      await change(accounts, 'stored', { plan: 'custom' }, [[SECRET]])
      await eventually(async () => (await status(gateway!)) === 200)
      const text = fs.readFileSync(gateway!.file, 'utf8')
      fs.writeFileSync(gateway!.file, text.replace('  other:\n', '  stored:\n'))
      const { applied, errors } = await gateway!.gateway.reload()
      assert.equal(applied, false)
      assert.match(errors[0]!.message, /the organization stored stands in the store too/)
      assert.equal(await status(gateway!), 200)
      fs.writeFileSync(gateway!.file, text)
      // Made behind the gateway's back: the file's organization stays whose it is.
      await change(accounts, 'acme', { plan: 'custom' }, [['sk-twin-0001-secret']])
      await eventually(async () => {
        await status(gateway!, 'sk-twin-0001-secret')
        return gateway!.log.some(({ message }) => message === 'an account of the store cannot be used')
      })
      assert.deepEqual([await status(gateway!, 'sk-twin-0001-secret'), await status(gateway!, KEY)], [401, 200])
    })

    test('a plan that the file no longer has is a fault of the gateway, not of the key', async t => {
      const { accounts, gateways } = await serve(t)
      const [gateway] = gateways
      await change(accounts, 'stored', { plan: 'gone' }, [[SECRET]])
      await eventually(async () => (await status(gateway!)) === 500)
      fs.appendFileSync(gateway!.file, 'plans: { gone: {} }\n')
      assert.equal((await gateway!.gateway.reload()).applied, true)
      assert.equal(await status(gateway!), 200)
    })

    test('a flood of unknown keys reaches the store a bounded number of times', async t => {
      const { accounts, gateways } = await serve(t, 'directory: { misses: 8 }')
      const [gateway] = gateways
      await change(accounts, 'stored', { plan: 'custom' }, [[SECRET]])
      await eventually(async () => (await status(gateway!)) === 200)
      let asked = 0
      const { store } = gateway!.gateway
      const find = store.accounts.find.bind(store.accounts)
      store.accounts.find = digest => {
        asked++
        return find(digest)
      }
      const replies = await Promise.all(
        Array.from({ length: 200 }, async (_, i) => {
          const reply = await ask(gateway!, `sk-unknown-${i}-secret`)
          return [reply.status, ((await reply.json()) as any).error.code].join(' ')
        }),
      )
      const kinds = new Set(replies)
      assert.deepEqual([...kinds].sort(), ['401 invalid_api_key', '503 route_capacity'])
      assert.equal(asked, replies.filter(reply => reply.startsWith('401')).length)
      assert.ok(asked < 100, `${asked} look-ups`)
      // Whoever is known is served all the while, and the same wrong key is not looked up again.
      assert.deepEqual([await status(gateway!), await status(gateway!, KEY)], [200, 200])
    })
  })
}

test('Redis out: known keys are served from memory, an unknown one is 503 and not 401', {
  skip: skipWithoutRedis,
}, async t => {
  const own = await RedisServer.start()
  const gateway = await start(own.url)
  t.after(async () => {
    await gateway.close()
    await own.stop()
  })
  const { accounts, close } = await openAccounts(own.url)
  await change(accounts, 'stored', { plan: 'custom' }, [[SECRET]])
  await change(accounts, 'second', { plan: 'custom' }, [['sk-second-0001-secret']])
  const models = async (secret: string) =>
    (await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${secret}` } })).status
  await eventually(async () => (await models(SECRET)) === 200)
  await close()
  await own.down()
  assert.deepEqual([await models(SECRET), await models(KEY)], [200, 200])
  assert.equal(await models('sk-second-0001-secret'), 503)
  await own.up()
  // The server has lost everything, and what is remembered of it counts no more.
  await eventually(async () => (await models(SECRET)) === 401)
})
