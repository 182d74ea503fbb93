/** The workers of one gateway behind one admin address: figures, readiness, pages, admin API and reload. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { hash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { startSimulator } from '../../providers/simulator/server.ts'
import { parse, value } from '../admin/exposition.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { skipWithoutRedis as skip } from '../stores/redis-server.ts'
import { defaultYaml, KEY } from './harness.ts'

const MAIN = new URL('../../cli/main.ts', import.meta.url).pathname
const { NODE_TEST_CONTEXT: _, ...ENV } = process.env
const TOKENS = { operate: 'operate-token-of-the-test', read: 'read-token-of-the-test' }

let simulator: Awaited<ReturnType<typeof startSimulator>>
let gateway: ChildProcess
let ended: Promise<unknown>
let port: number
let folder: string
let text = ''
/** Requests that were answered, and those with 200. */
let asked = 0
let answered = 0
let lastId = ''

function writeConfig(tokens: readonly (keyof typeof TOKENS)[], more = ''): void {
  const named = tokens.map(role => `{ name: ${role}, role: ${role}, sha256: ${hash('sha256', TOKENS[role])} }`)
  const yaml = defaultYaml(simulator.url, { server: 'workers: 2, drain: 60s', extra: `ledger: { keep: 30d }\n${more}` })
    .replace(
      'listen: 127.0.0.1:0, admin: 127.0.0.1:0',
      `listen: 127.0.0.1:${port}, admin: { listen: 127.0.0.1:${port + 1}, tokens: [${named.join(', ')}] }`,
    )
    .replace('"sqlite::memory:"', '{ url: local, timeout: 5s, max_memory: 100MiB }')
  writeFileSync(join(folder, 'gateway.yaml'), yaml)
}

before(async () => {
  if (skip) return
  simulator = await startSimulator({ port: 0 })
  folder = mkdtempSync(join(tmpdir(), 'sluice-one-'))
  port = await freePort(2)
  writeConfig(['operate', 'read'])
  gateway = spawn(process.execPath, [...process.execArgv, MAIN, 'start', '--config', 'gateway.yaml', '--no-watch'], {
    cwd: folder,
    env: ENV,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  for (const stream of [gateway.stdout!, gateway.stderr!])
    stream.setEncoding('utf8').on('data', piece => {
      text += piece
    })
  ended = new Promise(resolve => gateway.once('close', resolve))
  await eventually(async () => (await ready()).startsWith('ready')).catch(error => {
    throw new Error(`${error.message}; the gateway said: ${text}`)
  })
})

after(async () => {
  if (skip) return
  gateway.kill('SIGTERM')
  await ended
  await simulator.close()
  rmSync(folder, { recursive: true, force: true })
})

const admin = (path: string, init: RequestInit = {}, token = TOKENS.operate) =>
  fetch(`http://127.0.0.1:${port + 1}${path}`, {
    ...init,
    headers: { authorization: `Bearer ${token}`, ...init.headers },
  })
const ready = (query = '') =>
  admin(`/readyz${query}`).then(
    answer => answer.text(),
    () => '',
  )
const metrics = async () => parse(await (await admin('/metrics')).text())

/** Each on a connection of its own, so that the system hands it to any worker. */
async function ask(key = KEY): Promise<number> {
  const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}`, connection: 'close' },
    body: JSON.stringify({ model: 'eb1-preview', max_tokens: 20, messages: [{ role: 'user', content: 'x' }] }),
  })
  await answer.text()
  asked++
  if (answer.status === 200) answered++
  lastId = answer.headers.get('x-request-id')!
  return answer.status
}
const many = (count: number, key = KEY) => Promise.all(Array.from({ length: count }, () => ask(key)))

async function exchanges(): Promise<number> {
  const family = (await metrics()).get('sluice_exchanges_total')
  return family?.samples.reduce((sum, sample) => sum + sample.value, 0) ?? 0
}

/** Process id of a worker. */
function pidOf(worker: number): number | undefined {
  const children = readFileSync(`/proc/${gateway.pid}/task/${gateway.pid}/children`, 'utf8').trim().split(' ')
  return children.map(Number).find(child => {
    try {
      return readFileSync(`/proc/${child}/environ`, 'utf8').includes(`SLUICE_WORKER=${worker}\0`)
    } catch {
      return false
    }
  })
}

/** The first snapshot of a dashboard that is opened now, with the second one's figures. */
async function snapshots(count: number): Promise<any[]> {
  const closing = new AbortController()
  const response = await admin('/feed', { signal: closing.signal })
  const found: any[] = []
  let read = ''
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    read += piece
    for (let end = read.indexOf('\n\n'); end >= 0; end = read.indexOf('\n\n')) {
      found.push(JSON.parse(read.slice('data: '.length, end)))
      read = read.slice(end + 2)
    }
    if (found.length >= count) break
  }
  closing.abort()
  return found
}

test('counters and histograms of both workers add up; what belongs to one process has its label', {
  skip,
}, async () => {
  assert.deepEqual([...new Set(await many(40))], [200])
  await eventually(async () => (await exchanges()) === answered)
  const families = await metrics()
  const route = { route: 'POST /v1/chat/completions' }
  const durations = families.get('sluice_exchange_duration_seconds')!
  assert.equal(
    durations.samples.find(sample => sample.name.endsWith('_count') && sample.labels['route'] === route.route)?.value,
    answered,
  )
  for (const worker of ['1', '2']) {
    assert.equal(value(families, 'sluice_worker_up', { worker }), 1)
    assert.equal(value(families, 'sluice_info', { worker }), 1)
    assert.ok(value(families, 'process_resident_memory_bytes', { worker })! > 0)
    assert.ok(value(families, 'sluice_event_loop_delay_seconds', { worker, quantile: '0.99' }) !== undefined)
    // Each has served.
    assert.ok(value(families, 'sluice_backend_error_rate', { worker }) !== undefined)
  }
  assert.match(text, new RegExp(`dashboard +http://127\\.0\\.0\\.1:${port + 1}/\n`))
  await assert.rejects(fetch(`http://127.0.0.1:${port + 2}/healthz`), 'no worker has a port of its own')
})

test('the dashboard shows the exchanges, the use and the backends of both workers', { skip }, async () => {
  // A worker that is slow to answer is missing in a snapshot, and there in a later one.
  let first: any
  const attempts = () => first.backends.reduce((sum: number, backend: any) => sum + backend.attemptsTotal, 0)
  await eventually(
    async () => {
      ;[first] = await snapshots(1)
      return first.recent.length === answered && attempts() === answered
    },
    () => [answered, first.recent.length, attempts()],
  )
  assert.equal(first.gateway.workers, 2)
  assert.equal(first.gateway.address, `http://127.0.0.1:${port}`)
  assert.equal(new Set(first.recent.map((record: any) => record.seq)).size, answered)
  assert.equal(first.accounts.rows[0].use.requests, answered)
  assert.equal(first.accounts.rows[0].keys[0].use.requests, answered)
  assert.equal(first.ready.ok, true)
  // What ends while the page is open comes once, whichever worker it met.
  const following = snapshots(4)
  await many(20)
  const later = await following
  const ids = later.flatMap(({ recent }) => recent).map(({ id }) => id)
  assert.equal(new Set(ids).size, ids.length)
  // They are counted when they have ended, a moment after their replies.
  await eventually(async () => (await exchanges()) === answered)
  assert.equal((await admin(`/trace?id=${lastId}`)).status, 200)
  assert.equal((await admin('/trace?id=req_nothing')).status, 404)
  const { rows } = (await (await admin('/accounts?find=ACM')).json()) as any
  assert.equal(rows[0].use.requests, answered)
  const history = await (await admin('/history')).arrayBuffer()
  assert.ok(history.byteLength > 0)
})

test('the admin API and POST /route work through any worker', { skip }, async () => {
  const headers = { 'content-type': 'application/json' }
  const post = (path: string, body: object, token?: string) =>
    admin(path, { method: 'POST', headers, body: JSON.stringify(body) }, token)
  assert.equal((await post('/api/v1/organizations', { id: 'beta', plan: 'tier1' }, TOKENS.read)).status, 403)
  assert.equal((await admin('/api/v1/caller', {}, 'wrong')).status, 401)
  const made = await post('/api/v1/organizations', { id: 'beta', plan: 'custom' })
  assert.equal(made.status, 201, await made.clone().text())
  const { secret } = (await (await post('/api/v1/organizations/beta/keys', { id: 'key_1' })).json()) as any
  // The other worker learns of a new key within a second, as another gateway does.
  await eventually(async () => (await many(10, secret)).every(status => status === 200))
  const shown = await admin('/api/v1/organizations/beta')
  assert.equal(shown.headers.get('etag') === null, false)
  const large = await post('/api/v1/organizations', { id: 'x'.repeat(2 << 20) })
  assert.equal(large.status, 413)
  const route = await post('/route?org=acme', { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }] })
  assert.equal(route.status, 200, await route.clone().text())
  await eventually(async () =>
    ((await (await admin('/accounts')).json()) as any).rows.some(({ id }: any) => id === 'beta'),
  )
})

test('a worker that hangs is named, and no sum falls; one that is killed comes back', { skip }, async () => {
  await eventually(async () => (await exchanges()) === asked)
  const hung = pidOf(1)!
  process.kill(hung, 'SIGSTOP')
  try {
    const families = await metrics()
    assert.deepEqual(
      ['1', '2'].map(worker => value(families, 'sluice_worker_up', { worker })),
      [0, 1],
    )
    assert.equal(await exchanges(), asked)
    assert.equal(await ready(), 'not ready: worker 1: does not answer\n')
    assert.equal(await ready('?exclude=store'), 'not ready: worker 1: does not answer\n')
    assert.equal((await admin('/api/v1/organizations')).status, 200, 'the other one answers')
  } finally {
    process.kill(hung, 'SIGCONT')
  }
  await eventually(async () => (await ready()) === 'ready\n')

  process.kill(hung, 'SIGKILL')
  await eventually(() => text.includes('worker 1 ended (SIGKILL)'))
  // The other takes all connections.
  assert.equal(await ready(), 'ready\nworker 1: starting\n')
  assert.equal(await exchanges(), asked)
  await many(5)
  await eventually(async () => (await ready()) === 'ready\n')
  await many(20)
  await eventually(async () => (await exchanges()) === asked)
  assert.equal(value(await metrics(), 'sluice_worker_starts_total', { worker: '1' }), 2)
})

test('SIGTERM drains all: not ready at once, and nothing is left', { skip }, async () => {
  const pids = [pidOf(1)!, pidOf(2)!]
  const stream = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
    body: JSON.stringify({
      model: 'eb1-preview',
      stream: true,
      messages: [{ role: 'user', content: '[[sim: tokens 15; pace 100ms]] x' }],
    }),
  })
  gateway.kill('SIGTERM')
  await eventually(async () => (await ready()) === 'not ready: draining\n')
  assert.match(await stream.text(), /\[DONE\]/)
  assert.equal(await ended, 0)
  for (const pid of pids) assert.throws(() => process.kill(pid, 0), { code: 'ESRCH' })
})
