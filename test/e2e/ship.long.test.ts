/**
 * kill -9 of the gateway (with the thread that ships), of shippers beside it, and of PostgreSQL, in turn and under
 * traffic: afterwards each row of the ledger is once in PostgreSQL and once in the files.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { startSimulator } from '../../providers/simulator/server.ts'
import { openStore } from '../../stores/index.ts'
import { sluice } from '../cli/capture.ts'
import { eventually } from '../eventually.ts'
import { options } from '../stores/kit.ts'
import { PostgresServer, skipWithoutPostgres } from '../stores/postgres-server.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { defaultYaml, KEY } from './harness.ts'

const main = new URL('../../cli/main.ts', import.meta.url).pathname
/** Rounds of kills. Each kills every victim once. */
const ROUNDS = 3
const CLIENTS = 4

/** A process of `sluice`, started again after each kill. */
class Victim {
  readonly #args: readonly string[]
  readonly #folder: string
  readonly #up: RegExp
  #child: ChildProcess | undefined
  /** What `up` found. */
  said = ''

  constructor(folder: string, up: RegExp, ...args: string[]) {
    this.#folder = folder
    this.#args = args
    this.#up = up
  }

  async start(): Promise<void> {
    const child = spawn(process.execPath, [...process.execArgv, main, ...this.#args], {
      cwd: this.#folder,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#child = child
    let printed = ''
    await new Promise<void>((resolve, reject) => {
      child.once('exit', code => reject(new Error(`${this.#args.join(' ')} ended with ${code}: ${printed}`)))
      const hear = (data: Buffer) => {
        printed += data
        const found = this.#up.exec(printed)
        if (!found) return
        this.said = found[0]
        resolve()
      }
      child.stdout!.on('data', hear)
      child.stderr!.on('data', hear)
    })
    child.removeAllListeners('exit')
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child!
    const ended = new Promise(resolve => child.once('exit', resolve))
    if (child.exitCode === null && child.signalCode === null) child.kill(signal)
    else return
    await ended
  }
}

async function killedInTurn(t: TestContext, storeOf: (folder: string) => string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-ship-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const simulator = await startSimulator({ port: 0 })
  t.after(() => simulator.close())
  const postgres = await PostgresServer.start()
  t.after(() => postgres.stop())
  const store = storeOf(folder)
  const to = postgres.url()
  const files = join(folder, 'shipped')
  writeFileSync(
    join(folder, 'gateway.yaml'),
    defaultYaml(simulator.url, {
      extra: `ledger: { ship: { to: "${to}", interval: 1s } }`,
      store: `{ url: "${store}", timeout: 10s }`,
    }).replace('level: info', 'level: error'),
  )
  const follow = (target: string) =>
    new Victim(folder, /following the ledger/, 'ledger', 'ship', '--follow', '--interval', '1s', '--to', target)
  const gateway = new Victim(folder, /http:\/\/127\.0\.0\.1:\d+/, 'start', '--config', 'gateway.yaml')
  const victims = [gateway, follow(to), follow(`file:${files}`)]
  t.after(() => Promise.all(victims.map(victim => victim.end('SIGKILL').catch(() => {}))))
  await gateway.start()

  /** The ids of replies that were read whole. */
  const answered = new Set<string>()
  let stopped = false
  const client = async () => {
    while (!stopped) {
      try {
        const response = await fetch(`${gateway.said}/v1/chat/completions`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
          body: JSON.stringify({ model: 'eb1-preview', messages: [{ role: 'user', content: '[[sim: tokens 3]] x' }] }),
        })
        await response.text()
        if (response.status === 200) answered.add(response.headers.get('x-request-id')!)
      } catch {
        // The gateway was killed.
        await new Promise(resolve => setImmediate(resolve))
      }
    }
  }
  const clients = Array.from({ length: CLIENTS }, client)
  const traffic = async (count: number) => {
    const before = answered.size
    await eventually(() => answered.size >= before + count)
  }
  await traffic(20)
  await Promise.all(victims.slice(1).map(victim => victim.start()))
  for (let round = 0; round < ROUNDS; round++) {
    for (const victim of victims) {
      await traffic(30 + Math.floor(Math.random() * 60))
      await victim.end('SIGKILL')
      await victim.start()
    }
    await traffic(30 + Math.floor(Math.random() * 60))
    await postgres.down()
    await traffic(30)
    await postgres.up()
  }
  await traffic(30)
  stopped = true
  await Promise.all(clients)
  await Promise.all(victims.map(victim => victim.end('SIGKILL')))

  // Books what the killed gateway had in its journal.
  const last = await openStore({ ...options(store), dataDir: join(folder, 'data') })
  await last.ledger.flush()
  const booked = (await last.ledger.query({})).map(row => row.request_id).sort()
  await last.close()
  for (const target of [to, `file:${files}`]) {
    const { code, err } = await sluice('ledger', 'ship', '--store', store, '--to', target)
    assert.deepEqual([code, err], [0, ''])
  }
  const inPostgres = (await postgres.query('SELECT request_id AS id FROM sluice_ledger')).map(
    row => row['id'] as string,
  )
  const inFiles = readdirSync(files)
    .filter(name => name.endsWith('.ndjson'))
    .flatMap(name => readFileSync(join(files, name), 'utf8').split('\n').slice(0, -1))
    .map(line => JSON.parse(line).request_id as string)
  assert.deepEqual(inPostgres.sort(), booked)
  assert.deepEqual(inFiles.sort(), booked)
  assert.equal(new Set(booked).size, booked.length)
  for (const id of answered) assert.ok(booked.includes(id), id)
  assert.ok(booked.length > ROUNDS * 100, String(booked.length))
}

test('sqlite: killed in turn, no row is missing or doubled', { skip: skipWithoutPostgres }, t =>
  killedInTurn(t, folder => `sqlite:${join(folder, 'gateway.db')}`),
)

test('redis: killed in turn, no row is missing or doubled', {
  skip: skipWithoutPostgres || skipWithoutRedis,
}, async t => {
  const redis = await RedisServer.start()
  t.after(() => redis.stop())
  await killedInTurn(t, () => redis.url)
})
