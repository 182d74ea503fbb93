/** `store: local`: the gateway starts, minds and ends a redis-server of its own, run as an operator runs it. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { LedgerRow } from '../../core/ports/store.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { openStore } from '../../stores/index.ts'
import { findServer, LocalServer } from '../../stores/local.ts'
import { RedisClient } from '../../stores/redis/client.ts'
import { DRAIN_TAIL } from '../../stores/redis/drained.ts'
import { STREAM } from '../../stores/redis/ledger.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { skipWithoutRedis as skip } from '../stores/redis-server.ts'
import { defaultYaml, KEY } from './harness.ts'

const MAIN = new URL('../../cli/main.ts', import.meta.url).pathname
const silent = { debug() {}, info() {}, warn() {}, error() {} }
const { NODE_TEST_CONTEXT: _, ...ENV } = process.env

/** XTRIM removes whole nodes of the stream, which have this many entries. */
const NODE = 100
/** Appends copies of the last row to the stream. */
const COPY_LAST = `
local fields = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1][2]
local id
for i = 1, #fields, 2 do if fields[i] == 'request_id' then id = i + 1 end end
for n = 1, ARGV[1] do
  fields[id] = 'copy-' .. n
  redis.call('XADD', KEYS[1], '*', unpack(fields))
end`

interface Running {
  process: ChildProcess
  text(): string
  ended: Promise<number | null>
}
function start(t: TestContext, folder: string): Running {
  const child = spawn(process.execPath, [...process.execArgv, MAIN, 'start', '--config', 'gateway.yaml'], {
    cwd: folder,
    env: ENV,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let text = ''
  for (const stream of [child.stdout!, child.stderr!])
    stream.setEncoding('utf8').on('data', piece => {
      text += piece
    })
  const ended = new Promise<number | null>(resolve => child.once('exit', resolve))
  t.after(async () => {
    child.kill('SIGTERM')
    await ended
  })
  return { process: child, text: () => text, ended }
}

const pidOf = (data: string) => Number(readFileSync(join(data, 'redis', 'pid'), 'utf8'))
const childrenOf = (pid: number) =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number)
const lives = (pid: number) => existsSync(`/proc/${pid}/exe`)

test('[LIM-3] [BILL-4] store: local serves several workers; killed servers and gateways lose no row and leave no server behind', {
  skip,
}, async t => {
  const simulator = await startSimulator({ port: 0 })
  const folder = mkdtempSync(join(tmpdir(), 'sluice-local-'))
  const data = join(folder, 'data')
  t.after(async () => {
    await simulator.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const port = await freePort(2)
  writeFileSync(
    join(folder, 'gateway.yaml'),
    defaultYaml(simulator.url, {
      organization: '    limits: { daily_spend_usd: 100.00 }',
      server: 'workers: 2, drain: 20s',
      extra: 'ledger: { keep: 30d }',
    })
      .replace('listen: 127.0.0.1:0, admin: 127.0.0.1:0', `listen: 127.0.0.1:${port}, admin: 127.0.0.1:${port + 1}`)
      .replace('"sqlite::memory:"', '{ url: local, timeout: 5s, max_memory: 100MiB }'),
  )
  const status = () =>
    fetch(`http://127.0.0.1:${port + 1}/readyz`).then(
      answer => answer.status,
      () => null,
    )
  const ready = (gateway: Running) =>
    eventually(async () => (await status()) === 200).catch(error => {
      throw new Error(`${error.message}; the gateway said: ${gateway.text()}`)
    })
  const served: string[] = []
  const ask = async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}`, connection: 'close' },
      body: JSON.stringify({ model: 'eb1-preview', max_tokens: 20, messages: [{ role: 'user', content: 'x' }] }),
    })
    await answer.text()
    if (answer.status === 200) served.push(answer.headers.get('x-request-id')!)
    return answer.status
  }

  const first = start(t, folder)
  await ready(first)
  const server = pidOf(data)
  assert.ok(lives(server))
  assert.equal(statSync(join(data, 'redis')).mode & 0o777, 0o700)
  assert.equal(statSync(join(data, 'redis', 'socket')).mode & 0o777, 0o700)
  for (let i = 0; i < 10; i++) assert.equal(await ask(), 200)

  // A second gateway on the folder is refused, and harms nothing.
  const second = start(t, folder)
  assert.equal(await second.ended, 1)
  assert.match(second.text(), /the store in .*data is in use by another gateway/)
  assert.equal(pidOf(data), server)

  // The server is killed under the gateway.
  process.kill(server, 'SIGKILL')
  await eventually(() => pidOf(data) !== server)
  await ready(first)
  assert.match(first.text(), /ended \(SIGKILL\).*starting it again/)
  // A worker that has not connected again yet refuses.
  const before = served.length
  await eventually(async () => {
    await ask()
    return served.length >= before + 5
  })

  // The gateway is killed; its server stays behind, and the next start ends it.
  const orphan = pidOf(data)
  const workers = childrenOf(first.process.pid!).filter(pid => pid !== orphan)
  assert.equal(workers.length, 2)
  first.process.kill('SIGKILL')
  await first.ended
  await eventually(() => !workers.some(lives))
  assert.ok(lives(orphan))
  const third = start(t, folder)
  await eventually(() => !lives(orphan))
  await ready(third)
  assert.match(third.text(), /ending the store's server \d+, which a killed gateway has left/)
  await eventually(async () => (await ask()) === 200)

  // Its ledger goes to files without a word in gateway.yaml.
  const shipped = join(data, 'ledger')
  await eventually(() => existsSync(shipped) && readdirSync(shipped).some(name => name.endsWith('.ndjson')))
  // What is over DRAIN_TAIL leaves the memory of its server.
  const url = `local:${data}`
  const client = new RedisClient({ url, timeout: 60_000, log: silent })
  await client.connect()
  t.after(() => client.disconnect())
  await client.call(client.redis.eval(COPY_LAST, 1, STREAM, DRAIN_TAIL + 10 * NODE))
  await eventually(async () => (await client.call(client.redis.xlen(STREAM))) < DRAIN_TAIL + NODE)

  // An orderly stop leaves no server, and the data is there at the next start.
  const last = pidOf(data)
  third.process.kill('SIGTERM')
  assert.equal(await third.ended, 0)
  assert.ok(!lives(last))
  const local = await LocalServer.start({ url, maxMemory: null, tell() {} })
  const store = await openStore({ url, timeout: 5000, clock: systemClock, log: silent })
  t.after(async () => {
    await store.close()
    await local.stop()
  })
  // The server may still be loading the rows, and refuses calls until it has.
  let all: LedgerRow[] = []
  await eventually(async () => {
    try {
      all = await store.ledger.query({})
      return true
    } catch (error) {
      if (error instanceof StoreUnavailable) return false
      throw error
    }
  })
  const isCopy = ({ request_id }: { request_id: string }) => request_id.startsWith('copy-')
  assert.equal(all.filter(isCopy).length, DRAIN_TAIL + 10 * NODE)
  const rows = all.filter(row => !isCopy(row))
  const ids = rows.filter(({ outcome }) => outcome === 'completed').map(({ request_id }) => request_id)
  assert.deepEqual(ids.toSorted(), served.toSorted(), 'each reply has one row')
})

test('a local store that is full refuses writes, says so in readiness, and keeps what it has', { skip }, async t => {
  const data = mkdtempSync(join(tmpdir(), 'sluice-local-'))
  const url = `local:${data}`
  const local = await LocalServer.start({ url, maxMemory: 4 << 20, tell() {} })
  const store = await openStore({ url, timeout: 5000, clock: systemClock, log: silent, maxMemory: 4 << 20 })
  t.after(async () => {
    await store.close()
    await local.stop()
    rmSync(data, { recursive: true, force: true })
  })
  await store.secret('')
  const client = new RedisClient({ url, timeout: 5000, log: silent })
  await client.connect()
  t.after(() => client.disconnect())
  // Redis refuses a write when it is above its limit already, and gives back the buffer of a large one: so smaller and
  // smaller ones fill what is left.
  for (const bytes of [100_000, 10_000, 1000, 100])
    await assert.rejects(async () => {
      for (let i = 0; i < 1000; i++) await client.call(client.redis.set(`fill:${bytes}:${i}`, 'x'.repeat(bytes)))
    }, /maxmemory/)
  assert.equal(await client.call(client.redis.exists('sluice:secret')), 1)
  const { ok, reason } = await store.ready()
  assert.equal(ok, false)
  assert.match(reason!, /maxmemory/)
})

test('a missing program and a path that is too long for a socket are refused in words', { skip }, async () => {
  assert.throws(() => findServer('/nowhere'), /none on the PATH; install one \(apt-get install redis-server/)
  const long = join(tmpdir(), 'x'.repeat(100))
  await assert.rejects(LocalServer.start({ url: `local:${long}`, maxMemory: null, tell() {} }), /too long for a socket/)
})

test('a store does not begin empty beside the data of the other engine', { skip }, async t => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-local-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const open = (url: string) => openStore({ url, timeout: 5000, clock: systemClock, log: silent })
  const startIn = (data: string) => LocalServer.start({ url: `local:${data}`, maxMemory: null, tell() {} })

  const [a, b] = [join(folder, 'a'), join(folder, 'b')]
  await (await open(`sqlite:${a}/gateway.db`)).close()
  await assert.rejects(startIn(a), /holds the data of an SQLite store, gateway\.db/)
  await (await open(`sqlite:${a}/gateway.db`)).close()

  await (await startIn(b)).stop()
  await assert.rejects(open(`sqlite:${b}/gateway.db`), /holds the data of a local store/)
  await (await startIn(b)).stop()
})
