/** kill -9 in the middle of 200 streams: after the next start the books balance (BILL-4), on both engines. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { buildGateway } from '../../cli/gateway.ts'
import { systemClock } from '../../core/clock.ts'
import type { Store } from '../../core/store.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { openStore } from '../../stores/index.ts'
import { eventually } from '../eventually.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { defaultYaml, KEY } from './harness.ts'
import { LeakScan } from './leak-scan.ts'

const STREAMS = 200
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

/** Runs a gateway on `store`, and kills it when 5 exchanges have ended and 200 streams have begun. */
async function runAndKill(t: TestContext, storeUrl: (folder: string) => string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-crash-'))
  const simulator = await startSimulator({ port: 0 })
  t.after(async () => {
    await simulator.close()
    await rm(folder, { recursive: true, force: true })
  })
  const yaml = defaultYaml(simulator.url, {
    organization: `    limits: { concurrent_requests: ${STREAMS}, daily_spend_usd: 100.00 }`,
  })
  await writeFile(
    join(folder, 'gateway.yaml'),
    yaml
      .replace('"sqlite::memory:"', `{ url: "${storeUrl(folder)}", timeout: 10s }`)
      .replace('level: info', 'level: error'),
  )
  const first = await start(folder)
  const leaks = new LeakScan(first.url)
  const ask = (content: string) =>
    fetch(`${first.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
      body: JSON.stringify({ model: 'eb1-preview', stream: true, messages: [{ role: 'user', content }] }),
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
}

/** What is left of slots and of the day's spend. */
async function left(store: Store): Promise<number[]> {
  const cells = [
    { id: 'o:conc', scope: 'org', dimension: 'concurrency', kind: 'slots', capacity: STREAMS },
    { id: 'o:day', scope: 'org', dimension: 'spend', kind: 'spend', period: 'day', capacity: 100e9 },
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
