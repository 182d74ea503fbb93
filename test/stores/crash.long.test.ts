/**
 * `kill -9` in the middle of exchanges: afterwards the books balance (rows = admitted, slots = 0, spend = sum of rows).
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import path from 'node:path'
import { test } from 'node:test'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { Store } from '../../core/ports/store.ts'
import { openStore } from '../../stores/index.ts'
import { openRedisStore } from '../../stores/redis/store.ts'
import { eventually } from '../eventually.ts'
import {
  CRASH_CELLS,
  DAY,
  intent,
  options,
  outcome,
  redisOptions,
  spend,
  T0,
  temporary,
  usedBy,
  usedIn,
} from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const CHILD = path.join(import.meta.dirname, 'crash-child.ts')
/** More than the units that come back while a test runs. */
const REFILL = 20

/** Runs the child, kills it after some hundred exchanges at most, and returns what it was promised. */
async function runAndKill(
  url: string,
  dataDir: string,
): Promise<{ admitted: Set<string>; settled: Map<string, number> }> {
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', CHILD, url, dataDir], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = new Promise(resolve => child.once('close', resolve))
  const enough = 1 + Math.floor(Math.random() * 300)
  let text = ''
  let ended = 0
  await new Promise<void>((resolve, reject) => {
    child.once('exit', () => reject(new Error('the child ended by itself')))
    child.stdout.on('data', data => {
      text += data
      ended += String(data).split('settled ').length - 1
      if (ended >= enough) resolve()
    })
  })
  child.removeAllListeners('exit')
  child.kill('SIGKILL')
  await exited
  const admitted = new Set<string>()
  const settled = new Map<string, number>()
  for (const line of text.slice(0, text.lastIndexOf('\n')).split('\n')) {
    const [what, id, cost] = line.split(' ')
    if (what === 'admitted') admitted.add(id!)
    else if (what === 'settled') settled.set(id!, Number(cost))
  }
  assert.ok(settled.size > 0)
  return { admitted, settled }
}

async function balance(store: Store, admitted: Set<string>, settled: Map<string, number>): Promise<void> {
  await store.ledger.flush()
  const rows = await store.ledger.query({ org: 'acme' })
  const byId = new Map(rows.map(row => [row.request_id, row]))
  assert.equal(byId.size, rows.length, 'no row twice')
  for (const id of admitted) assert.ok(byId.has(id), `${id} was admitted and has a row`)
  for (const [id, cost] of settled)
    assert.deepEqual([byId.get(id)!.outcome, byId.get(id)!.cost], ['completed', cost], id)
  for (const row of rows) assert.ok(row.outcome === 'completed' || (row.outcome === 'lost' && row.cost === 0))
  assert.deepEqual(await usedIn(store), usedBy(rows), 'sums are those of the rows')
  const sum = rows.reduce((total, row) => total + row.cost, 0)
  const left = async () => (await store.limits.peek('acme', CRASH_CELLS, Date.now())).map(({ remaining }) => remaining)
  await eventually(async () => (await left())[0] === 100, left)
  // Spend is the sum of the rows.
  await eventually(
    async () => (await left())[1] === 1e15 - sum,
    async () => [await left(), sum],
  )
  // So is what was taken of the balance, which is made anew here.
  assert.equal(await store.accounts.billed('acme'), sum)
  const id = `probe ${admitted.size}`
  await store.limits.admit({ org: 'acme', id, cells: CRASH_CELLS, amounts: [1, 0, 0, 0, 0, 0], now: Date.now() })
  store.limits.settle('acme', id, [], Date.now())
  await eventually(
    async () => (await left())[5] === 1e15 - sum,
    async () => [await left(), sum],
  )
  // Rates are what the rows say, but for the refill: also of exchanges that the kill cut off.
  const tokens = rows.reduce((total, row) => total + (row.outcome === 'lost' ? 2 : row.cost % 3), 0)
  for (const [i, expected] of [rows.length, tokens, 2 * rows.length].entries()) {
    const { id, capacity } = CRASH_CELLS[2 + i]!
    const used = capacity - (await left())[2 + i]!
    assert.ok(used <= expected && used >= Math.max(0, expected - REFILL), `${id}: ${used} of ${expected}`)
  }
}

test('[BILL-4] embedded: killed again and again, each admitted exchange has one row', async () => {
  const dir = temporary()
  const url = `sqlite:${path.join(dir, 'gateway.db')}`
  const admitted = new Set<string>()
  const settled = new Map<string, number>()
  for (let round = 0; round < 4; round++) {
    const promised = await runAndKill(url, dir)
    for (const id of promised.admitted) admitted.add(id)
    for (const [id, cost] of promised.settled) settled.set(id, cost)
    const store = await openStore(options(url))
    try {
      await balance(store, admitted, settled)
    } finally {
      await store.close()
    }
  }
})

test('[BILL-4] redis: killed again and again, rows, slots and spend balance', { skip: skipWithoutRedis }, async t => {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  const dir = temporary()
  const admitted = new Set<string>()
  const settled = new Map<string, number>()
  for (let round = 0; round < 3; round++) {
    const promised = await runAndKill(server.url, dir)
    for (const id of promised.admitted) admitted.add(id)
    for (const [id, cost] of promised.settled) settled.set(id, cost)
    const store = await openRedisStore(
      redisOptions(server.url, { dataDir: dir, leaseTimes: { ttl: 60_000, every: 100 } }),
    )
    try {
      await balance(store, admitted, settled)
    } finally {
      await store.close()
    }
  }
})

test('[LIM-8] a restart does not forget the day’s and the month’s spend', async () => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const both = [spend('o:spend:day', 10_000), spend('k:key_ci:spend:month', 10_000, 'month')]
  for (let start = 0; start < 3; start++) {
    const store = await openStore(options(url))
    const now = T0 + start
    assert.deepEqual(
      (await store.limits.peek('acme', both, now)).map(state => state.remaining),
      [10_000 - start * 1000, 10_000 - start * 1000],
    )
    await store.limits.admit({ org: 'acme', id: `r${start}`, cells: both, amounts: [3000, 3000], now })
    store.ledger.intent(intent(`r${start}`))
    store.limits.settle('acme', `r${start}`, [1000, 1000], now)
    store.ledger.outcome(outcome(`r${start}`, { cost: 1000 }))
    await store.close()
  }
  const store = await openStore(options(url))
  assert.equal((await store.limits.peek('acme', both, T0 + DAY))[0]!.remaining, 10_000)
  await store.close()
})

test('charges that are settled apart from their row, before or after it, are booked once', async () => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const cell = [spend('o:spend:day', 10_000)]
  const tick = () => new Promise(resolve => setImmediate(resolve))
  const store = await openStore(options(url))
  for (const id of ['early', 'late']) {
    await store.limits.admit({ org: 'acme', id, cells: cell, amounts: [500], now: T0 })
    store.ledger.intent(intent(id))
  }
  store.limits.settle('acme', 'early', [100], T0)
  await tick()
  store.ledger.outcome(outcome('early'))
  store.ledger.outcome(outcome('late'))
  await store.ledger.flush()
  store.limits.settle('acme', 'late', [200], T0)
  await store.close()
  const again = await openStore(options(url))
  assert.equal((await again.limits.peek('acme', cell, T0))[0]!.remaining, 9700)
  await again.close()
})

test('[IDEM-3] a key whose first use died is not free before its lease ends', async () => {
  const dir = temporary()
  const url = `sqlite:${path.join(dir, 'gateway.db')}`
  const store = await openStore(options(url))
  const now = Date.now()
  await store.idempotency.begin('acme', 'running', 'f', 'r1', DAY, now)
  await store.idempotency.begin('acme', 'finished', 'f', 'r2', DAY, now)
  await store.idempotency.finish(
    'acme',
    'finished',
    { requestId: 'r2', status: 200, headers: [], body: Buffer.from('x'), whole: true },
    DAY,
    now,
  )
  // Closing with a use still running leaves its mark in the journal, as a kill does.
  await store.close()
  const again = await openStore(options(url))
  assert.equal((await again.idempotency.begin('acme', 'running', 'f', 'r3', DAY, now)).state, 'running')
  assert.equal((await again.idempotency.begin('acme', 'finished', 'f', 'r3', DAY, now)).state, 'replay')
  assert.equal((await again.idempotency.begin('acme', 'running', 'f', 'r3', DAY, now + 60_000)).state, 'first')
  await again.close()
})

test('a second gateway on the same database is refused, and no harm is done', async () => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const store = await openStore(options(url))
  await assert.rejects(
    openStore(options(url)),
    (error: Error) => error instanceof StoreUnavailable && /redis/.test(error.message),
  )
  assert.deepEqual(await store.ready(), { ok: true })
  await store.close()
  await (await openStore(options(url))).close()
})

test('a URL of no known kind says what there is', async () => {
  for (const url of ['postgres://x', 'sqlite:', 'nothing', 'redis://a,b', 'redis+sentinel://a', 'redis://h/x'])
    await assert.rejects(openStore(options(url)), StoreUnavailable, url)
})
