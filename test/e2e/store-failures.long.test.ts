/**
 * The store slow, full, restarted, failing over, its scripts forgotten: what clients see, and that nothing needs a
 * restart afterwards.
 */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { eventually } from '../eventually.ts'
import { RedisServer, skipWithoutRedis as skip, startFailoverSet } from '../stores/redis-server.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const SLOTS = 20

/** @param timeout far longer than Redis takes on a busy machine, unless the test is about it */
async function gatewayOn(t: TestContext, url: string, timeout = '10s'): Promise<TestGateway> {
  const gateway = await startGateway({
    yaml: sim =>
      defaultYaml(sim, {
        organization: `    limits: { concurrent_requests: ${SLOTS}, daily_spend_usd: 100.00 }`,
        store: `{ url: "${url}", timeout: ${timeout} }`,
      }),
  })
  t.after(() => gateway.close())
  return gateway
}
async function ownRedis(t: TestContext, ...args: string[]): Promise<RedisServer> {
  const redis = await RedisServer.start(args)
  t.after(() => redis.stop())
  return redis
}

const ask = (content = 'x', more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content }],
  max_tokens: 400,
  ...more,
})
/** A stream that has begun, and goes on for some seconds. */
async function stream(g: TestGateway): Promise<() => Promise<void>> {
  const response = await g.post('/v1/chat/completions', ask('[[sim: tokens 60; pace 50ms]] x', { stream: true }))
  assert.equal(response.status, 200)
  const text = response.text()
  return async () => assert.match(await text, /data: \[DONE\]/, 'a stream that ran goes on')
}
const readyz = async (g: TestGateway) => {
  const response = await fetch(`${g.gateway.adminAddress}/readyz`)
  return { status: response.status, text: await response.text() }
}

/**
 * Asks on every surface until the store is felt missing; then checks what clients are told. A valid key is never 401.
 */
async function isRefused(g: TestGateway): Promise<void> {
  const asked: [string, object][] = [
    ['/v1/chat/completions', ask()],
    ['/v1/messages', ask()],
    ['/v1/responses', { model: 'eb1-preview', input: 'x', max_output_tokens: 400 }],
  ]
  for (const [path, body] of asked) {
    await eventually(async () => {
      const response = await g.post(path, body)
      const text = await response.text()
      if (response.status === 200) return false
      assert.equal(response.status, 503, text)
      const { error } = JSON.parse(text)
      assert.equal(error.code, 'provider_unavailable')
      const wait = Number(response.headers.get('retry-after'))
      assert.ok(wait >= 5 && wait <= 15, String(wait))
      assert.equal(response.headers.get('x-ratelimit-limit-concurrency'), null)
      return true
    })
  }
  await eventually(async () => (await readyz(g)).status === 503)
}

/**
 * Serves again by itself; meanwhile nothing but 200 and 503. Then all slots are free, and the rows are what was spent.
 */
async function recovers(g: TestGateway, fresh = false): Promise<void> {
  let free = 0
  await eventually(async () => {
    const response = await g.post('/v1/chat/completions', ask())
    await response.text()
    assert.ok([200, 503].includes(response.status), String(response.status))
    free = response.status === 200 ? Number(response.headers.get('x-ratelimit-remaining-concurrency')) : 0
    return free === SLOTS
  })
  await eventually(async () => (await readyz(g)).status === 200)
  const rows = await g.ledger()
  assert.equal(new Set(rows.map(row => row.request_id)).size, rows.length)
  assert.ok(rows.every(row => row.outcome !== 'lost'))
  if (fresh) return
  const cell = { id: 'o:day', scope: 'org', dimension: 'spend', kind: 'spend', period: 'day', capacity: 100e9 } as const
  const spent = rows.reduce((sum, row) => sum + row.cost, 0)
  await eventually(
    async () => (await g.gateway.store.limits.peek('acme', [cell], Date.now()))[0]!.remaining === 100e9 - spent,
  )
}

test('[AUTH-1] [ERR-6] Redis slow: 503 within the budget, streams go on, settlements arrive later', {
  skip,
}, async t => {
  const redis = await ownRedis(t)
  const g = await gatewayOn(t, redis.url, '1s')
  const goesOn = await stream(g)
  redis.freeze()
  await isRefused(g)
  assert.match((await readyz(g)).text, /did not answer within 1000 ms|not reachable: no answer for 5 s/)
  await goesOn()
  redis.thaw()
  await recovers(g)
})

// Log, alert and docs said that requests are refused while Redis is down. Those that need nothing of it never were.
test('Redis down: an organization without limits is served, and what needs Redis is refused', { skip }, async t => {
  const redis = await ownRedis(t)
  const g = await startGateway({
    yaml: sim =>
      defaultYaml(sim, { store: `{ url: "${redis.url}", timeout: 10s }` }).replace(/plan: \w+/, 'plan: custom'),
  })
  t.after(() => g.close())
  await redis.stop()
  await eventually(async () => (await readyz(g)).status === 503)
  const status = async (path: string, body: object, headers: Record<string, string> = {}) => {
    const response = await g.post(path, body, headers)
    await response.text()
    return response.status
  }
  assert.equal(await status('/v1/chat/completions', ask()), 200)
  const plain = { model: 'eb1-preview', input: 'x', max_output_tokens: 400 }
  assert.equal(await status('/v1/responses', { ...plain, store: false }), 200)
  assert.equal(await status('/v1/responses', plain), 503)
  assert.equal(await status('/v1/responses', { ...plain, store: false, previous_response_id: 'resp_1' }), 503)
  assert.equal(await status('/v1/chat/completions', ask(), { 'idempotency-key': 'k1' }), 503)
  assert.ok(g.log.some(line => line.message.includes('requests that need it are refused')))
})

test('[AUTH-1] [ERR-6] Redis full: writes are refused, and /readyz says why', { skip }, async t => {
  const redis = await ownRedis(t)
  const g = await gatewayOn(t, redis.url)
  const goesOn = await stream(g)
  await redis.command('CONFIG', 'SET', 'maxmemory', '1')
  await isRefused(g)
  assert.match((await readyz(g)).text, /OOM/)
  await goesOn()
  await redis.command('CONFIG', 'SET', 'maxmemory', '0')
  await recovers(g)
})

test('[AUTH-1] [ERR-6] Redis restarted with nothing in it: the gateway goes on, and no settlement of what was forgotten makes a limit wider', {
  skip,
}, async t => {
  const redis = await ownRedis(t)
  const g = await gatewayOn(t, redis.url)
  const goesOn = await stream(g)
  await redis.down()
  await isRefused(g)
  assert.match((await readyz(g)).text, /not reachable/)
  await redis.up()
  await goesOn()
  await recovers(g, true)
})

/** The last event left all the same: the client saw a completed response, and could not continue it. */
test('[RESP-3] [ERR-8] a stream whose response cannot be retained does not end as completed', { skip }, async t => {
  const redis = await ownRedis(t)
  const g = await gatewayOn(t, redis.url)
  const response = await g.post('/v1/responses', {
    model: 'eb1-preview',
    input: '[[sim: tokens 20; pace 150ms]] x',
    max_output_tokens: 400,
    stream: true,
  })
  assert.equal(response.status, 200)
  const text = response.text()
  await redis.down()
  const events = [...(await text).matchAll(/^event: (.*)$/gm)].map(match => match[1])
  assert.ok(events.includes('response.output_text.delta'), 'what passed before has left')
  assert.deepEqual(events.slice(-2), ['error', 'response.failed'])
  assert.match(await text, /"code":"provider_unavailable"/)
  await redis.up()
  await recovers(g, true)
  const [row] = await g.ledger()
  assert.ok(row!.cost > 0, 'what was delivered is billed')
})

test('[AUTH-1] Redis forgets its scripts (SCRIPT FLUSH) under load: nobody notices', { skip }, async t => {
  const redis = await ownRedis(t)
  const g = await gatewayOn(t, redis.url)
  const statuses: number[] = []
  const goesOn = await stream(g)
  const load = Array.from({ length: 8 }, async () => {
    for (let i = 0; i < 15; i++) {
      const response = await g.post('/v1/chat/completions', ask())
      await response.text()
      statuses.push(response.status)
    }
  })
  let loaded = false
  const over = Promise.all(load).then(() => (loaded = true))
  while (!loaded) await redis.command('SCRIPT', 'FLUSH')
  await over
  assert.deepEqual([...new Set(statuses)], [200])
  await goesOn()
  await recovers(g)
})

test('[AUTH-1] [ERR-6] Redis fails over to its replica: 503 until a sentinel has a new master, then on with the same limits', {
  skip,
}, async t => {
  const set = await startFailoverSet()
  t.after(() => set.stop())
  const g = await gatewayOn(t, set.url)
  assert.equal((await g.post('/v1/chat/completions', ask())).status, 200)
  const goesOn = await stream(g)
  await set.replicated()
  await set.master.down()
  await isRefused(g)
  await goesOn()
  await recovers(g)
})
