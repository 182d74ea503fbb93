/**
 * Redis stalls behind the proxies of deploy/ (docs/deploy.md, "When Redis stalls"): its process is stopped, so that
 * connections stay open and nothing is answered. All gateways meet that at once, and a balancer that takes them out of
 * service has nobody left.
 */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { KEY } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { behindHaproxy, behindNginx, twoGateways, withoutHaproxy, withoutNginx } from './fleet.ts'

/** Its limits are asked of Redis. */
const LIMITED = KEY
/** It has none. */
const FREE = 'sk-other-0001-secret'

interface Answer {
  status: number
  retryAfter: string | null
  text: string
}

async function ask(port: number, key: string): Promise<Answer> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'eb1-preview', messages: [{ role: 'user', content: 'hi' }] }),
  })
  return { status: response.status, retryAfter: response.headers.get('retry-after'), text: await response.text() }
}

async function fleet(t: TestContext) {
  const redis = await RedisServer.start()
  t.after(() => redis.stop())
  const { gateways } = await twoGateways(t, {
    store: JSON.stringify(redis.url),
    organization: '    limits: { requests_per_minute: 1000000 }',
  })
  return { redis, gateways }
}

/** Refused in the way of the API, with a time to wait, as long as the store does not answer. */
async function refused(port: number): Promise<void> {
  const answer = await ask(port, LIMITED)
  assert.equal(answer.status, 503, answer.text)
  assert.ok(Number(answer.retryAfter) > 0, 'Retry-After')
  assert.equal(typeof JSON.parse(answer.text).error.message, 'string')
}

/** Stops Redis, looks at both kinds of requests, and lets it go on. @returns how many are refused after that */
async function stall(port: number, redis: RedisServer, during: () => Promise<void>): Promise<number> {
  redis.freeze()
  for (let i = 0; i < 4; i++) {
    await refused(port)
    assert.equal((await ask(port, FREE)).status, 200)
  }
  await during()
  redis.thaw()
  let refusals = -1
  await eventually(async () => {
    refusals++
    return (await ask(port, LIMITED)).status === 200
  })
  return refusals
}

test('behind HAProxy: what needs no store is served, the rest is told when to retry, and Redis is back for clients when it is back', {
  skip: withoutHaproxy || skipWithoutRedis,
}, async t => {
  const { redis, gateways } = await fleet(t)
  const { port, said, states } = await behindHaproxy(t, gateways)
  // A short stall takes no gateway out of service.
  const short = await stall(port, redis, async () => {
    for (const gateway of gateways) assert.match((await gateway.readyz()).text, /^ready\nthe store is slow: /)
    assert.equal(await states(), 'UP,UP')
  })
  // A long one takes both, and then both serve what they can.
  const long = await stall(port, redis, async () => {
    await eventually(async () => (await states()) === 'DOWN,DOWN', said)
    assert.equal(await states('without_store'), 'UP,UP')
    for (const gateway of gateways) assert.equal((await gateway.readyz()).status, 503)
    await refused(port)
    assert.equal((await ask(port, FREE)).status, 200)
  })
  await eventually(async () => (await states()) === 'UP,UP', said)
  await eventually(async () => (await ask(port, LIMITED)).status === 200)
  t.diagnostic(`requests that were refused after the end of the stall: ${short} (short), ${long} (long)`)
})

test('behind nginx: the same', { skip: withoutNginx || skipWithoutRedis }, async t => {
  const { redis, gateways } = await fleet(t)
  const { port } = await behindNginx(t, gateways)
  await eventually(() =>
    ask(port, LIMITED).then(
      ({ status }) => status === 200,
      () => false,
    ),
  )
  const after = await stall(port, redis, async () => {})
  t.diagnostic(`requests that were refused after the end of the stall: ${after}`)
  // Without a gateway, nginx answers in the same way.
  for (const gateway of gateways) await gateway.stop('SIGKILL')
  await refused(port)
})
