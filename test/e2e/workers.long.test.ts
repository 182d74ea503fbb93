/** `server.workers`: several processes of one gateway on one port, run as an operator runs them. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import net from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { systemClock } from '../../core/tools/clock.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { openStore } from '../../stores/index.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { RedisServer, skipWithoutRedis as skip } from '../stores/redis-server.ts'
import { defaultYaml, KEY } from './harness.ts'

const MAIN = new URL('../../cli/main.ts', import.meta.url).pathname
const silent = { debug() {}, info() {}, warn() {}, error() {} }
const { NODE_TEST_CONTEXT: _, ...ENV } = process.env

interface Running {
  supervisor: ChildProcess
  text(): string
  ended: Promise<number | null>
}
function start(t: TestContext, folder: string): Running {
  const supervisor = spawn(process.execPath, [...process.execArgv, MAIN, 'start', '--config', 'gateway.yaml'], {
    cwd: folder,
    env: ENV,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let text = ''
  for (const stream of [supervisor.stdout!, supervisor.stderr!])
    stream.setEncoding('utf8').on('data', piece => {
      text += piece
    })
  const ended = new Promise<number | null>(resolve => supervisor.once('close', resolve))
  t.after(async () => {
    supervisor.kill('SIGTERM')
    supervisor.kill('SIGTERM')
    await ended
  })
  return { supervisor, text: () => text, ended }
}

/** Process ids of the workers, by their number. */
function workersOf(supervisor: ChildProcess): Map<number, number> {
  const { pid } = supervisor
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean)
  const found = new Map<number, number>()
  for (const child of children) {
    const number = /(?:^|\0)SLUICE_WORKER=(\d+)/.exec(readFileSync(`/proc/${child}/environ`, 'utf8'))
    if (number) found.set(Number(number[1]), Number(child))
  }
  return found
}

interface Answer {
  status: number
  headers: Record<string, string | string[] | undefined>
  /** Resolves to whether the reply came whole. */
  whole: Promise<boolean>
  abort(): void
}
/** On a connection of its own, so that the system hands it to any worker. */
function ask(port: number, content: string, more: object = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sending = request(
      {
        host: '127.0.0.1',
        port,
        path: '/v1/chat/completions',
        method: 'POST',
        agent: false,
        headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
      },
      response => {
        let text = ''
        response.setEncoding('utf8').on('data', piece => {
          text += piece
        })
        const whole = new Promise<boolean>(done => {
          response.once('end', () => done(/\[DONE\]|"usage"|"error"/.test(text)))
          response.once('error', () => done(false))
        })
        resolve({ status: response.statusCode!, headers: response.headers, whole, abort: () => sending.destroy() })
      },
    )
    sending.on('error', reject)
    sending.end(
      JSON.stringify({ model: 'eb1-preview', max_tokens: 500, messages: [{ role: 'user', content }], ...more }),
    )
  })
}

async function metric(admin: number, name: string, labels = ''): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${admin}/metrics`)).text()
  let sum = 0
  for (const [, value] of text.matchAll(new RegExp(`^${name}(?:\\{[^}]*${labels}[^}]*\\})? (\\S+)$`, 'gm')))
    sum += Number(value)
  return sum
}
const isReady = (admin: number) =>
  fetch(`http://127.0.0.1:${admin}/readyz`).then(
    r => r.status === 200,
    () => false,
  )

const SLOTS = 12

test('[LIM-3] [BILL-4] workers share port, limits and ledger; one that is killed is started again and leaks nothing; SIGTERM drains all', {
  skip,
}, async t => {
  const redis = await RedisServer.start()
  const simulator = await startSimulator({ port: 0 })
  const folder = mkdtempSync(join(tmpdir(), 'sluice-workers-'))
  t.after(async () => {
    await simulator.close()
    await redis.stop()
    rmSync(folder, { recursive: true, force: true })
  })
  const port = await freePort(2)
  const admin = port + 1
  writeFileSync(
    join(folder, 'gateway.yaml'),
    defaultYaml(simulator.url, {
      organization: `    limits: { concurrent_requests: ${SLOTS}, daily_spend_usd: 100.00 }`,
      server: 'workers: 3, drain: 20s',
    })
      .replace('listen: 127.0.0.1:0, admin: 127.0.0.1:0', `listen: 127.0.0.1:${port}, admin: 127.0.0.1:${admin}`)
      .replace('"sqlite::memory:"', `{ url: "${redis.url}", timeout: 5s }`),
  )
  const gateway = start(t, folder)
  await eventually(() => isReady(admin)).catch(error => {
    throw new Error(`${error.message}; the gateway said: ${gateway.text()}`)
  })
  assert.match(gateway.text(), new RegExp(`Sluice listens on http://127\\.0\\.0\\.1:${port}\n`))

  // All slots taken, over all workers: the next is denied by whichever it meets.
  const streams = await Promise.all(
    Array.from({ length: SLOTS }, () => ask(port, '[[sim: tokens 400; pace 100ms]] x', { stream: true })),
  )
  for (const { status } of streams) assert.equal(status, 200)
  const refused: string[] = []
  for (let i = 0; i < 6; i++) {
    const { status, headers } = await ask(port, 'x')
    assert.equal(status, 429)
    refused.push(`${headers['x-request-id']}`)
  }
  // Whichever it was, the one admin listener finds it.
  for (const id of refused) assert.equal((await fetch(`http://127.0.0.1:${admin}/trace?id=${id}`)).status, 200)

  // The worker with most of them is killed outright.
  assert.equal(await metric(admin, 'sluice_open_streams'), SLOTS)
  const pids = workersOf(gateway.supervisor)
  const files = (worker: number) => readdirSync(`/proc/${pids.get(worker)}/fd`).length
  const most = [...pids.keys()].sort((a, b) => files(b) - files(a))[0]!
  const pid = pids.get(most)!
  process.kill(pid, 'SIGKILL')
  await eventually(() => gateway.text().includes(`worker ${most} ended`))
  const lost = SLOTS - (await metric(admin, 'sluice_open_streams'))
  assert.ok(lost > 0)
  // The others go on; what the dead one held is given back.
  const free = async () => {
    const answer = await ask(port, 'x').catch(() => undefined)
    return answer?.status === 200 ? Number(answer.headers['x-ratelimit-remaining-concurrency']) : 0
  }
  await eventually(async () => (await free()) >= lost)
  assert.match(gateway.text(), new RegExp(`worker ${most} ended \\(SIGKILL\\); starting it again`))
  await eventually(async () => (await metric(admin, 'sluice_worker_up')) === 3)
  assert.notEqual(workersOf(gateway.supervisor).get(most), pid)

  // A request that runs when SIGTERM comes ends whole, on any worker; then the whole gateway ends with 0.
  const last = await Promise.all(
    Array.from({ length: lost }, () => ask(port, '[[sim: tokens 20; pace 100ms]] x', { stream: true })),
  )
  gateway.supervisor.kill('SIGTERM')
  assert.deepEqual(
    await Promise.all(last.map(({ whole }) => whole)),
    last.map(() => true),
  )
  for (const stream of streams) stream.abort()
  assert.equal(await gateway.ended, 0)
  for (const { whole } of streams) await whole

  const store = await openStore({
    url: redis.url,
    timeout: 5000,
    clock: systemClock,
    log: silent,
    dataDir: join(folder, 'data'),
  })
  const rows = await store.ledger.query({})
  const cells = [
    { id: 'o:conc', scope: 'org', dimension: 'concurrency', kind: 'slots', capacity: SLOTS },
    { id: 'o:day', scope: 'org', dimension: 'spend', kind: 'spend', period: 'day', capacity: 100e9 },
  ] as const
  const [slots, spend] = await store.limits.peek('acme', cells, Date.now())
  await store.close()
  assert.equal(slots!.remaining, SLOTS)
  assert.equal(
    100e9 - spend!.remaining,
    rows.reduce((sum, row) => sum + row.cost, 0),
  )
  assert.equal(rows.filter(({ outcome }) => outcome === 'lost').length, lost)
  assert.equal(new Set(rows.map(row => row.request_id)).size, rows.length)
})

test('a gateway whose workers cannot start ends with their code instead of trying for ever', { skip }, async t => {
  const redis = await RedisServer.start()
  const folder = mkdtempSync(join(tmpdir(), 'sluice-workers-'))
  const taken = net.createServer().listen(0, '127.0.0.1')
  await new Promise(resolve => taken.once('listening', resolve))
  t.after(async () => {
    taken.close()
    await redis.stop()
    rmSync(folder, { recursive: true, force: true })
  })
  const { port } = taken.address() as net.AddressInfo
  writeFileSync(
    join(folder, 'gateway.yaml'),
    defaultYaml('http://127.0.0.1:1', { server: 'workers: 2' })
      .replace('listen: 127.0.0.1:0', `listen: 127.0.0.1:${port}`)
      .replace('"sqlite::memory:"', `"${redis.url}"`),
  )
  const gateway = start(t, folder)
  assert.equal(await gateway.ended, 1)
  assert.match(gateway.text(), /cannot start: can.t listen on/)
})

test('a reload that takes a plan from accounts of the store is refused by all workers, and with `retired` applied by all', {
  skip,
}, async t => {
  const redis = await RedisServer.start()
  const simulator = await startSimulator({ port: 0 })
  const folder = mkdtempSync(join(tmpdir(), 'sluice-workers-'))
  t.after(async () => {
    await simulator.close()
    await redis.stop()
    rmSync(folder, { recursive: true, force: true })
  })
  const port = await freePort(2)
  const admin = port + 1
  const text = defaultYaml(simulator.url, { server: 'workers: 3, drain: 5s', extra: 'plans:\n  gold: { limits: {} }' })
    .replace('listen: 127.0.0.1:0, admin: 127.0.0.1:0', `listen: 127.0.0.1:${port}, admin: 127.0.0.1:${admin}`)
    .replace('"sqlite::memory:"', `{ url: "${redis.url}", timeout: 5s }`)
  const file = join(folder, 'gateway.yaml')
  writeFileSync(file, text)
  const gateway = start(t, folder)
  await eventually(() => isReady(admin))
  const { accounts, close } = await openAccounts(redis.url)
  const [made] = await accounts.change([{ id: 'gone', expected: 0, settings: '{"plan":"gold"}', keys: [] }])
  assert.equal(made!.refused, undefined)
  await close()
  await eventually(async () => (await metric(admin, 'sluice_accounts')) === 1)
  writeFileSync(file, text.replace('gold:', 'golden:'))
  await eventually(async () => (await metric(admin, 'sluice_config_reloads_total', 'result="refused"')) === 3)
  // What they print is read a moment later.
  await eventually(
    () => gateway.text().split("1 organization of the store has the plan 'gold' (gone)").length === 1 + 3,
  )
  writeFileSync(file, text.replace('plans:\n  gold:', 'retired: { plans: [gold] }\nplans:\n  golden:'))
  await eventually(async () => (await metric(admin, 'sluice_config_last_reload_ok')) === 3)
  assert.match(
    await (await fetch(`http://127.0.0.1:${admin}/metrics`)).text(),
    /^sluice_accounts_left_behind\{kind="plan",name="gold",standing="retired"\} 1$/m,
  )
})
