/**
 * kill -9 in the middle of 200 streams, and right behind the last byte of a burst: after the next start the books
 * balance (BILL-4), on both engines.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { buildGateway } from '../../cli/gateway.ts'
import type { Store } from '../../core/ports/store.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { openStore } from '../../stores/index.ts'
import { eventually } from '../eventually.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { defaultYaml, KEY } from './harness.ts'
import { LeakScan } from './leak-scan.ts'

const STREAMS = 200
/** A request comes back in 43 seconds. */
const REQUESTS = 2000
const main = new URL('../../cli/main.ts', import.meta.url).pathname
const silent = { debug() {}, info() {}, warn() {}, error() {} }

/** A gateway in a process of its own, working in `folder`; resolves to its address. */
async function start(folder: string): Promise<{ process: ChildProcess; url: string }> {
  const child = spawn(process.execPath, [...process.execArgv, main, 'start', '--config', 'gateway.yaml'], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let printed = ''
  const url = await new Promise<string>((resolve, reject) => {
    child.once('exit', code => reject(new Error(`exited ${code}: ${printed}`)))
    child.stdout!.on('data', data => {
      printed += data
      const found = /http:\/\/127\.0\.0\.1:\d+/.exec(printed)
      if (found) resolve(found[0])
    })
  })
  child.removeAllListeners('exit')
  return { process: child, url }
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  const ended = new Promise<number | null>(resolve => child.once('exit', resolve))
  child.kill(signal)
  return ended
}

/** Configures a gateway on `store`, working in a new folder, and starts its upstream. */
async function prepare(t: TestContext, storeUrl: (folder: string) => string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-crash-'))
  const simulator = await startSimulator({ port: 0 })
  t.after(async () => {
    await simulator.close()
    await rm(folder, { recursive: true, force: true })
  })
  const yaml = defaultYaml(simulator.url, {
    organization: `    limits: { concurrent_requests: ${STREAMS}, daily_spend_usd: 100.00, requests_per_day: ${REQUESTS} }`,
  })
  await writeFile(
    join(folder, 'gateway.yaml'),
    yaml
      .replace('"sqlite::memory:"', `{ url: "${storeUrl(folder)}", timeout: 10s }`)
      .replace('level: info', 'level: error'),
  )
  return folder
}

/** Runs a gateway on `store`, and kills it when 5 exchanges have ended and 200 streams have begun. */
async function runAndKill(t: TestContext, storeUrl: (folder: string) => string): Promise<string> {
  const folder = await prepare(t, storeUrl)
  const first = await start(folder)
  const leaks = new LeakScan(first.url)
  const ask = (content: string) =>
    fetch(`${first.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
      body: JSON.stringify({
        model: 'eb1-preview',
        stream: true,
        max_completion_tokens: 2000,
        messages: [{ role: 'user', content }],
      }),
    })
  for (let i = 0; i < 5; i++) await (await ask('[[sim: tokens 5]] x')).text()
  const streams = await Promise.all(Array.from({ length: STREAMS }, () => ask('[[sim: tokens 1000; pace 50ms]] x')))
  assert.deepEqual([...new Set(streams.map(r => r.status))], [200])
  await Promise.all(streams.map(r => r.body!.getReader().read()))
  await end(first.process, 'SIGKILL')
  leaks.close()
  return folder
}

async function balances(store: Store): Promise<void> {
  const rows = await store.ledger.query({})
  assert.equal(rows.length, STREAMS + 5)
  assert.equal(rows.filter(r => r.outcome === 'lost').length, STREAMS)
  assert.equal(rows.filter(r => r.outcome === 'completed').length, 5)
  assert.equal(new Set(rows.map(r => r.request_id)).size, rows.length)
  const spent = rows.reduce((sum, row) => sum + row.cost, 0)
  const [slots, spend] = await left(store)
  assert.equal(slots, STREAMS)
  assert.equal(spend, 100e9 - spent)
  assert.ok(spent > 0)
  await allCounted(store, rows.length)
}

/** The limit of requests has counted each row, but for the refill: also those that a kill cut off, or came right before. */
async function allCounted(store: Store, rows: number): Promise<void> {
  const counted = REQUESTS - (await left(store))[2]!
  assert.ok(counted <= rows && counted >= rows - 12, `${counted} of ${rows} requests are counted`)
}

/** What is left of slots, of the day's spend, and of the day's requests. */
async function left(store: Store): Promise<number[]> {
  const cells = [
    { id: 'o:conc', scope: 'org', dimension: 'concurrency', kind: 'slots', capacity: STREAMS },
    { id: 'o:day', scope: 'org', dimension: 'spend', kind: 'spend', period: 'day', capacity: 100e9 },
    { id: 'o:rpd', scope: 'org', dimension: 'requests', kind: 'bucket', windowMs: 86_400_000, capacity: REQUESTS },
  ] as const
  return (await store.limits.peek('acme', cells, Date.now())).map(({ remaining }) => remaining)
}

test('[BILL-4] [LIM-4] sqlite, killed in the middle of 200 streams: rows = admitted, slots = 0, spend = the sum of the rows', async t => {
  const folder = await runAndKill(t, folder => `sqlite:${join(folder, 'gateway.db')}`)
  const gateway = await buildGateway(join(folder, 'gateway.yaml'), { log: silent, watch: false, admin: false })
  t.after(() => gateway.close())
  await gateway.store.ledger.flush()
  await balances(gateway.store)
})

test('[BILL-4] [LIM-4] redis, killed in the middle of 200 streams: the next start closes the rows, and slots and reservations come back', {
  skip: skipWithoutRedis,
}, async t => {
  const redis = await RedisServer.start()
  t.after(() => redis.stop())
  const folder = await runAndKill(t, () => redis.url)
  const second = await start(folder)
  const store = await openStore({
    url: redis.url,
    timeout: 10_000,
    clock: systemClock,
    log: silent,
    dataDir: join(folder, 'observer'),
  })
  t.after(() => store.close())
  await eventually(async () => (await left(store))[0] === STREAMS)
  await balances(store)
  assert.equal(await end(second.process, 'SIGTERM'), 0)
})

/** Rounds of the burst: few, since each starts a gateway; fifty show a loss of one reply in a thousand. */
const ROUNDS = Number(process.env['BURST_ROUNDS'] ?? 3)
const BURST = 60

/**
 * Kills a gateway right behind the last byte of 60 replies, several times.
 * @returns ids of the replies that were read whole
 */
async function bursts(folder: string): Promise<string[]> {
  const whole: string[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const { process, url } = await start(folder)
    const read = async (i: number): Promise<void> => {
      const stream = i % 3 !== 0
      const responses = i % 2 === 0
      const text = `[[sim: tokens ${5 + (i % 7)}]] x`
      const body = responses
        ? { model: 'eb1-preview', stream, input: text }
        : { model: 'eb1-preview', stream, messages: [{ role: 'user', content: text }] }
      const reply = await fetch(`${url}/v1/${responses ? 'responses' : 'chat/completions'}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
        body: JSON.stringify(body),
      })
      await reply.text()
      // A busy machine's gateway may say that it is overloaded.
      if (reply.status === 503) return read(i)
      assert.equal(reply.status, 200)
      whole.push(reply.headers.get('x-request-id')!)
    }
    try {
      await Promise.all(Array.from({ length: BURST }, (_, i) => read(i)))
    } finally {
      await end(process, 'SIGKILL')
    }
  }
  return whole
}

/** Of about 300 replies that clients had read whole, 85 had rows that said `lost` and billed nothing. */
async function allBooked(t: TestContext, store: Store, ids: readonly string[]): Promise<void> {
  const rows = await store.ledger.query({})
  const of = Map.groupBy(rows, row => row.request_id)
  const missing = ids.filter(id => !of.get(id)?.some(row => row.outcome === 'completed' && row.cost > 0))
  t.diagnostic(`${ids.length} replies read whole, ${missing.length} without their cost`)
  assert.equal(ids.length, ROUNDS * BURST)
  assert.equal(missing.length, 0)
  assert.equal(rows.length, of.size)
  await allCounted(store, rows.length)
}

test('[BILL-4] sqlite, killed right behind the last byte of a burst: each reply that was read whole has its row with its cost', async t => {
  const folder = await prepare(t, folder => `sqlite:${join(folder, 'gateway.db')}`)
  const ids = await bursts(folder)
  const gateway = await buildGateway(join(folder, 'gateway.yaml'), { log: silent, watch: false, admin: false })
  t.after(() => gateway.close())
  await gateway.store.ledger.flush()
  await allBooked(t, gateway.store, ids)
})

test('[BILL-4] redis, killed right behind the last byte of a burst: each reply that was read whole has its row with its cost', {
  skip: skipWithoutRedis,
}, async t => {
  const redis = await RedisServer.start()
  t.after(() => redis.stop())
  const folder = await prepare(t, () => redis.url)
  const ids = await bursts(folder)
  // Its start books what the last round left.
  const last = await start(folder)
  const store = await openStore({
    url: redis.url,
    timeout: 10_000,
    clock: systemClock,
    log: silent,
    dataDir: join(folder, 'observer'),
  })
  t.after(() => store.close())
  await allBooked(t, store, ids)
  assert.equal(await end(last.process, 'SIGTERM'), 0)
})
