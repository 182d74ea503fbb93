/** Accounts of the store, through listening gateways: two of them on Redis, one and another process on SQLite. */
import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs'
import path from 'node:path'
import { describe, type TestContext, test } from 'node:test'
import { promisify } from 'node:util'
import { buildGateway } from '../../cli/gateway.ts'
import type { AccountStore } from '../../core/ports/accounts.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { eventually } from '../eventually.ts'
import { recordingLog, slots, temporary } from '../stores/kit.ts'
import { engines, RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { defaultYaml, KEY, sha256, startGateway, type TestGateway } from './harness.ts'

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
    yaml: sim => defaultYaml(sim, { extra, store: `{ url: "${url}", timeout: 5s }` }),
  })

/** Whether the gateway has noticed that its store has organizations. */
async function noticed({ gateway }: TestGateway): Promise<boolean> {
  const metrics = await (await fetch(`${gateway.adminAddress}/metrics`)).text()
  return /sluice_directory_lookups_total\{result="unknown"\} [1-9]/.test(metrics)
}

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

for (const [name, skip, newUrl] of engines()) {
  const count = name === 'redis' ? 2 : 1

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
      assert.equal(reply.headers.get('x-ratelimit-remaining-requests-day'), String(2000 - served - 1))
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

    test('commands of another process beside running gateways: made, rotated, disabled', async t => {
      const { gateways } = await serve(t)
      const { file } = gateways[0]!
      const sluice = async (...args: string[]) => {
        const launcher = path.join(import.meta.dirname, '../../bin/sluice.mjs')
        const { stdout } = await promisify(execFile)(process.execPath, [launcher, ...args, '--config', file])
        return stdout.trim()
      }
      const secret = JSON.parse(await sluice('org', 'create', 'stored', 'plan=custom', '--key', '--json')).secret
      await everywhere(gateways, 200, secret)
      const next = await sluice('key', 'rotate', 'stored', 'key_1', '--grace', '1h')
      await everywhere(gateways, 200, next)
      assert.equal(await status(gateways[0]!, secret), 200)
      await sluice('org', 'disable', 'stored')
      for (const key of [secret, next]) await everywhere(gateways, 401, key)
    })

    test('an import that is killed leaves whole organizations, and goes on when it is run again', async t => {
      const { accounts, gateways } = await serve(t)
      const lines = path.join(temporary(), 'accounts.ndjson')
      const count = 20_000
      fs.writeFileSync(
        lines,
        Array.from({ length: count }, (_, i) => {
          const keys = [0, 1].map(k => ({ id: `key_${k}`, sha256: sha256(`${i}-${k}`) }))
          return `${JSON.stringify({ id: `o${i}`, plan: 'custom', keys })}\n`
        }).join(''),
      )
      const launcher = path.join(import.meta.dirname, '../../bin/sluice.mjs')
      const args = [launcher, 'org', 'import', lines, '--config', gateways[0]!.file]
      // A group of its own: the launcher may run the gateway in a child.
      const child = spawn(process.execPath, args, { stdio: 'ignore', detached: true })
      const over = once(child, 'close')
      await eventually(async () => (await accounts.count()) > 0)
      process.kill(-child.pid!, 'SIGKILL')
      await over
      const taken = await accounts.count()
      assert.ok(taken > 0 && taken < count, `${taken}`)
      for (const { keys } of await accounts.page('', 500)) assert.equal(keys.length, 2)
      // The gateway has served all the while, and knows what has come.
      const { id } = (await accounts.page('', 1))[0]!
      await everywhere(gateways, 200, `${id.slice(1)}-1`)
      const { stdout } = await promisify(execFile)(process.execPath, [...args, '--json'])
      const { created, unchanged, refused } = JSON.parse(stdout)
      assert.deepEqual([created + unchanged, refused], [count, 0])
      // Redis may have taken some of what the killed process had sent only after they were counted.
      assert.ok(unchanged >= taken, `${unchanged} of ${taken}`)
      await everywhere(gateways, 200, `${count - 1}-0`)
    })

    test('a body waits while its key is looked up, and only one look-up is made for it', async t => {
      const { accounts, gateways } = await serve(t)
      const [gateway] = gateways
      await change(accounts, 'stored', { plan: 'custom' }, [[SECRET]])
      await eventually(async () => (await accounts.count()) === 1)
      const { store } = gateway!.gateway
      await eventually(async () => (await status(gateway!, 'sk-noticed-0001')) === 401 && (await noticed(gateway!)))
      const find = store.accounts.find.bind(store.accounts)
      const { promise, resolve } = Promise.withResolvers<void>()
      let asked = 0
      store.accounts.find = digest => {
        asked++
        return promise.then(() => find(digest))
      }
      const long = { ...CHAT, messages: [{ role: 'user', content: 'word '.repeat(400_000) }] }
      const replies = [CHAT, long, CHAT].map(body => ask(gateway!, SECRET, body))
      await eventually(() => gateway!.gateway.ingress.running.size === 3)
      resolve()
      // The long one is read, and refused for its length: 400,000 words are more than the model takes.
      const statuses = (await Promise.all(replies)).map(reply => reply.status)
      assert.deepEqual([asked, statuses], [1, [200, 400, 200]])
    })

    test('a plan that the file does not have is a fault of the gateway, not of the key', async t => {
      const { accounts, gateways } = await serve(t)
      const [gateway] = gateways
      await change(accounts, 'stored', { plan: 'gone' }, [[SECRET]])
      await eventually(async () => (await status(gateway!)) === 503)
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

test('a start with an organization in both places is refused, and names it', async () => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const { accounts, close } = await openAccounts(url)
  await change(accounts, 'acme', { plan: 'custom' }, [[SECRET]])
  await close()
  const file = path.join(temporary(), 'gateway.yaml')
  fs.writeFileSync(file, defaultYaml('http://127.0.0.1:9', { store: `"${url}"` }))
  const log = recordingLog()
  await assert.rejects(buildGateway(file, { log, watch: false }), /the organization acme stands in the store too/)
})

test('[AUTH-5] in the file, too: a disabled organization, and a key that has an end', async t => {
  const gateway = await startGateway()
  t.after(() => gateway.close())
  const text = fs.readFileSync(gateway.file, 'utf8')
  const after = async (from: string, to: string) => {
    fs.writeFileSync(gateway.file, text.replace(from, to))
    assert.deepEqual(await gateway.gateway.reload(), { applied: true, errors: [] })
    return status(gateway, KEY)
  }
  assert.equal(await after('plan: custom', 'plan: custom\n    status: disabled'), 401)
  assert.equal(await after('status: active }', 'status: active, expires: 2020-01-01T00:00:00Z }'), 401)
  assert.equal(await after('status: active }', 'status: active, expires: 2099-01-01T00:00:00+02:00 }'), 200)
})

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
