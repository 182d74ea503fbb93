/**
 * A gateway that stood still for longer than the lease of an Idempotency-Key: another one has executed the request.
 * Both ran to their end and both were billed, and a concurrency of 1 was passed. The stall is made in steps here: the
 * leases of the first gateway end, as they do when nobody renews them, while its reply is on its way.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { RedisStore } from '../../stores/redis/store.ts'
import { eventually } from '../eventually.ts'
import { redisDatabases, skipWithoutRedis as skip } from '../stores/redis-server.ts'
import { defaultYaml, ShiftedClock, startGateway, type TestGateway } from './harness.ts'

const newDatabase = redisDatabases()
const storeOf = ({ gateway }: TestGateway) => gateway.store as unknown as RedisStore
const BODY = {
  model: 'eb1-preview',
  messages: [{ role: 'user', content: '[[sim: tokens 300; pace 20ms]] x' }],
  max_tokens: 400,
}
const KEYED = { 'idempotency-key': 'order-1' }

interface Two {
  first: TestGateway
  second: TestGateway
  clock: ShiftedClock
  /** Both leases of the first gateway end, and a living one gives back what was held. */
  lapse(): Promise<void>
}
async function two(): Promise<Two> {
  const url = newDatabase()
  const clock = new ShiftedClock()
  const start = (more: object) =>
    startGateway({
      yaml: sim =>
        defaultYaml(sim, { organization: '    limits: { concurrent_requests: 1 }' }).replace(
          '"sqlite::memory:"',
          `{ url: "${url}", timeout: 20s }`,
        ),
      ...more,
    })
  const first = await start({ gateway: { clock } })
  const second = await start({})
  const lapse = async () => {
    const { client, leases } = storeOf(second)
    assert.equal(await client.redis.del('sluice:{acme}:idem:order-1'), 1)
    assert.equal(await leases.reclaim(storeOf(first).leases.id, 'acme'), 1)
  }
  return { first, second, clock, lapse }
}

/** Rows of both gateways: a lapsed execution has its row, and bills nothing. */
async function billedOnce({ first, second }: Two, outcome: string): Promise<void> {
  await first.gateway.store.ledger.flush()
  const rows = await second.ledger()
  const billed = rows.filter(row => row.cost > 0)
  assert.deepEqual(
    billed.map(row => row.outcome),
    ['completed'],
  )
  assert.deepEqual(
    rows.filter(row => row.cost === 0 && row.outcome !== 'replayed').map(row => [row.outcome, row.output]),
    [[outcome, 0]],
  )
}

for (const stream of [true, false]) {
  test(`[IDEM-3] taken over, ${stream ? 'streamed' : 'buffered'}: the first execution ends with an error as soon as it learns of it`, {
    skip,
  }, async t => {
    const both = await two()
    const { first, second, lapse } = both
    t.after(() => Promise.all([first.close(), second.close()]))
    // It stands still: it renews nothing until it wakes up, or it would take its mark back.
    const asleep = t.mock.method(storeOf(first).idempotency, 'renew', async () => {})
    const asked = first.post('/v1/chat/completions', { ...BODY, stream }, KEYED)
    if (stream) assert.equal((await asked).status, 200)
    else await eventually(() => first.gateway.store.stats!().openRows === 1)
    await lapse()
    // The key and the slot are free: the other gateway executes.
    const again = second.post('/v1/chat/completions', { ...BODY, stream }, KEYED)
    if (stream) assert.equal((await again).status, 200)
    else await eventually(() => second.gateway.store.stats!().openRows === 1)
    asleep.mock.restore()
    await storeOf(first).idempotency.renew()
    const reply = await asked
    const text = await reply.text()
    if (stream) assert.doesNotMatch(text, /\[DONE\]/)
    else assert.equal(reply.status, 409)
    assert.match(text, /idempotency_key_conflict/)
    const whole = await (await again).text()
    await billedOnce(both, stream ? 'upstream_error' : 'refused')
    const replay = await first.post('/v1/chat/completions', { ...BODY, stream }, KEYED)
    assert.equal(replay.headers.get('x-idempotent-replay'), 'true')
    assert.equal(await replay.text(), whole)
  })
}

test('[IDEM-3] taken over, and nobody has said so: the settlement is refused, and nothing of it is stored', {
  skip,
}, async t => {
  const both = await two()
  const { first, second, lapse } = both
  t.after(() => Promise.all([first.close(), second.close()]))
  // The first gateway does not learn of it by a renewal.
  t.mock.method(storeOf(first).idempotency, 'renew', async () => {})
  const asked = await first.post('/v1/chat/completions', { ...BODY, stream: true }, KEYED)
  await lapse()
  const whole = await (await second.post('/v1/chat/completions', { ...BODY, stream: true }, KEYED)).text()
  assert.match(whole, /\[DONE\]/)
  const text = await asked.text()
  assert.match(text, /idempotency_key_conflict/)
  assert.doesNotMatch(text, /\[DONE\]/)
  await billedOnce(both, 'upstream_error')
  const replay = await second.post('/v1/chat/completions', { ...BODY, stream: true }, KEYED)
  assert.equal(await replay.text(), whole)
})

test('[IDEM-3] a client that left during the stall: the execution that woke up bills nothing', { skip }, async t => {
  const both = await two()
  const { first, second, clock, lapse } = both
  t.after(() => Promise.all([first.close(), second.close()]))
  const leaving = new AbortController()
  const asked = await fetch(`${first.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer sk-test-0001-secret', ...KEYED },
    body: JSON.stringify({ ...BODY, stream: true }),
    signal: leaving.signal,
  })
  const reader = asked.body!.getReader()
  // Some output: a reply that is cut behind it is billed otherwise.
  for (let read = ''; !read.includes('content":"'); ) read += Buffer.from((await reader.read()).value!).toString()
  t.mock.method(storeOf(first).idempotency, 'renew', async () => {})
  clock.shift += 16_000
  await lapse()
  leaving.abort()
  await eventually(() => first.gateway.store.stats!().openRows === 0)
  await (await second.post('/v1/chat/completions', { ...BODY, stream: true }, KEYED)).text()
  await billedOnce(both, 'client_gone')
})

test('[IDEM-3] a mark that ran out and that nobody took is the owner’s still', { skip }, async t => {
  const both = await two()
  const { first, second } = both
  t.after(() => Promise.all([first.close(), second.close()]))
  const asked = await first.post('/v1/chat/completions', { ...BODY, stream: true }, KEYED)
  const { redis } = storeOf(second).client
  assert.equal(await redis.del('sluice:{acme}:idem:order-1'), 1)
  await storeOf(first).idempotency.renew()
  const early = await second.post('/v1/chat/completions', { ...BODY, stream: true }, KEYED)
  assert.equal(early.status, 409)
  assert.match(await asked.text(), /\[DONE\]/)
  const rows = await first.ledger()
  assert.deepEqual(
    rows.map(row => row.cost > 0),
    [true],
  )
})

test('[IDEM-3] an owner that died between its claim and its reply: running for one lease, executed after that', {
  skip,
}, async t => {
  const { first, second } = await two()
  t.after(() => Promise.all([first.close(), second.close()]))
  const [owner, other] = [storeOf(first).idempotency, storeOf(second).idempotency]
  assert.equal((await owner.begin('acme', 'k', 'f', 'r1')).state, 'first')
  assert.equal(await owner.claim('acme', 'k', 60_000), true)
  assert.equal((await other.begin('acme', 'k', 'f', 'r2')).state, 'running')
  const { redis } = storeOf(second).client
  await owner.renew()
  assert.ok((await redis.pttl('sluice:{acme}:idem:k')) > 15_000)
  await redis.hset('sluice:{acme}:idem:k', 'claimed', 1)
  assert.deepEqual(await other.begin('acme', 'k', 'f', 'r2'), { state: 'not_kept', requestId: 'r1' })
  await owner.release('acme', 'k')
})
