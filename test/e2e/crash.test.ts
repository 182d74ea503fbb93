/** kill -9 in the middle of 200 streams: after the next start the books balance (BILL-4). */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { buildGateway } from '../../cli/gateway.ts'
import { startSimulator } from '../../simulator/server.ts'
import { defaultYaml, KEY } from './harness.ts'

const STREAMS = 200
const main = new URL('../../cli/main.ts', import.meta.url).pathname
const silent = { debug() {}, info() {}, warn() {}, error() {} }

/** A gateway in a process of its own; resolves to its address. */
async function start(file: string): Promise<{ process: ChildProcess; url: string }> {
  const child = spawn(process.execPath, [...process.execArgv, main, 'start', '--config', file], {
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
  return { process: child, url }
}

test('[BILL-4] [LIM-4] killed in the middle of 200 streams: rows = admitted, slots = 0, spend = the sum of the rows', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-crash-'))
  const simulator = await startSimulator({ port: 0 })
  const file = join(folder, 'gateway.yaml')
  const yaml = defaultYaml(simulator.url, {
    organization: `    limits: { concurrent_requests: ${STREAMS}, daily_spend_usd: 100.00 }`,
  })
  await writeFile(
    file,
    yaml.replace('"sqlite::memory:"', `sqlite:${join(folder, 'gateway.db')}`).replace('level: info', 'level: warn'),
  )
  try {
    const first = await start(file)
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
    first.process.removeAllListeners('exit')
    const dead = new Promise(resolve => first.process.once('exit', resolve))
    first.process.kill('SIGKILL')
    await dead

    const gateway = await buildGateway(file, { log: silent, watch: false, admin: false })
    try {
      await gateway.store.ledger.flush()
      const rows = await gateway.store.ledger.query({})
      assert.equal(rows.length, STREAMS + 5)
      assert.equal(rows.filter(r => r.outcome === 'lost').length, STREAMS)
      assert.equal(rows.filter(r => r.outcome === 'completed').length, 5)
      assert.equal(new Set(rows.map(r => r.request_id)).size, rows.length)
      const spent = rows.reduce((sum, row) => sum + row.cost, 0)
      const cells = [
        { id: 'o:conc', scope: 'org', dimension: 'concurrency', kind: 'slots', capacity: STREAMS },
        { id: 'o:day', scope: 'org', dimension: 'spend', kind: 'spend', period: 'day', capacity: 100e9 },
      ] as const
      const [slots, spend] = await gateway.store.limits.peek('acme', cells, Date.now())
      assert.equal(slots!.remaining, STREAMS)
      assert.equal(spend!.remaining, 100e9 - spent)
      assert.ok(spent > 0)
    } finally {
      await gateway.close()
    }
  } finally {
    await simulator.close()
    await rm(folder, { recursive: true, force: true })
  }
})
