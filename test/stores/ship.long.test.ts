/** kill -9 of a shipper and of PostgreSQL in the middle of a large backlog: no row is missing or doubled. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { openStore } from '../../stores/index.ts'
import { eventually } from '../eventually.ts'
import { DAY, intent, options, outcome, T0, temporary } from './kit.ts'
import { PostgresServer, skipWithoutPostgres } from './postgres-server.ts'

const main = new URL('../../cli/main.ts', import.meta.url).pathname
const ROWS = 40_000
const KILLS = 8

/** A database file with rows of three days, whose days are mixed. @returns its URL */
async function backlog(): Promise<string> {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const store = await openStore(options(url))
  for (let i = 0; i < ROWS; i++) {
    store.ledger.intent(intent(`r${i}`, { time: T0 + (i % 3) * DAY }))
    store.ledger.outcome(outcome(`r${i}`))
    if (i % 1000 === 0) await store.ledger.flush()
  }
  await store.close()
  return url
}

/** Ships, and calls `kill` each time when some more rows are at the target, until all are. */
async function shipUnderFire(
  url: string,
  to: string,
  rows: () => Promise<number>,
  kill: (child: ChildProcess) => unknown,
) {
  for (let kills = 0; ; kills++) {
    const child = spawn(process.execPath, [...process.execArgv, main, 'ledger', 'ship', '--store', url, '--to', to], {
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    let said = ''
    child.stderr.on('data', data => (said += data))
    const ended = new Promise<number | null>(resolve => child.once('close', resolve))
    const before = await rows()
    const more = Math.floor((Math.random() * ROWS) / KILLS)
    if (kills < KILLS) {
      await eventually(
        async () => child.exitCode !== null || (await rows()) > before + more,
        () => said,
      )
      await kill(child)
    }
    const code = await ended
    if (code === 0) return kills
    if (kills >= KILLS) assert.fail(said)
  }
}

const EXPECTED = Array.from({ length: ROWS }, (_, i) => `r${i}`)

/** The lists are too long to be printed whole. */
function same(found: readonly string[], expected: readonly string[]): void {
  assert.equal(found.length, expected.length)
  const other = found.findIndex((id, i) => id !== expected[i])
  assert.equal(found[other], expected[other])
}

test('files: a shipper that is killed again and again', async () => {
  const url = await backlog()
  const dir = temporary()
  const names = [0, 1, 2].map(day => path.join(dir, `${new Date(T0 + day * DAY).toISOString().slice(0, 10)}.ndjson`))
  const bytes = async () =>
    names.reduce((sum, name) => sum + (fs.statSync(name, { throwIfNoEntry: false })?.size ?? 0), 0)
  // A row has about 500 bytes.
  const kills = await shipUnderFire(
    url,
    `file:${dir}`,
    async () => (await bytes()) / 500,
    child => child.kill('SIGKILL'),
  )
  assert.ok(kills > 2, String(kills))
  for (const [day, name] of names.entries()) {
    const lines = fs.readFileSync(name, 'utf8').split('\n').slice(0, -1)
    same(
      lines.map(line => JSON.parse(line).request_id),
      EXPECTED.filter((_, i) => i % 3 === day),
    )
  }
})

test('PostgreSQL: a shipper, and the server, that are killed again and again', {
  skip: skipWithoutPostgres,
}, async t => {
  const url = await backlog()
  const server = await PostgresServer.start()
  t.after(() => server.stop())
  const rows = async () =>
    Number((await server.query('SELECT rows FROM sluice_ledger_source').catch(() => []))[0]?.['rows'] ?? 0)
  let both = 0
  const kills = await shipUnderFire(url, server.url(), rows, async child => {
    if (both++ % 2 === 0) return child.kill('SIGKILL')
    await server.down()
    await server.up()
  })
  assert.ok(kills > 2, String(kills))
  const shipped = await server.query('SELECT request_id AS id FROM sluice_ledger')
  same(shipped.map(row => row['id']).sort(), EXPECTED.toSorted())
  const [source] = await server.query('SELECT rows FROM sluice_ledger_source')
  assert.equal(Number(source!['rows']), ROWS)
})
