/** The embedded store on a disk that is slow: what has run is not refused for it, and nothing is lost. */
import assert from 'node:assert/strict'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { openStore } from '../../stores/index.ts'
import { eventually, timersOf } from '../eventually.ts'
import { DAY, intent, options, outcome, T0, temporary } from './kit.ts'

/** Holds the database's write lock, as a disk that takes its time would: commits wait until it is let go. */
function blockCommits(file: string): () => void {
  const db = new DatabaseSync(file)
  db.exec('BEGIN IMMEDIATE')
  return () => {
    db.exec('ROLLBACK')
    db.close()
  }
}

test('[RESP-3] [IDEM-1] commits slower than store.timeout: records, replies and rows arrive, and reading never waits', async t => {
  const file = path.join(temporary(), 'gateway.db')
  const store = await openStore(options(`sqlite:${file}`, { timeout: 50 }))
  t.after(() => store.close())
  const { records, idempotency, ledger } = store
  await records.put('acme', 'response', 'old', Buffer.from('old'), 60_000, T0)
  await idempotency.begin('acme', 'k', 'f', 'r1', DAY, Date.now())
  const release = blockCommits(file)
  let written = 0
  const note = () => void written++
  const putting = records.put('acme', 'response', 'new', Buffer.from('new'), DAY, T0) as Promise<void>
  const finishing = idempotency.finish(
    'acme',
    'k',
    { requestId: 'r1', status: 200, headers: [], body: Buffer.from('reply'), whole: true },
    DAY,
    Date.now(),
  ) as Promise<void>
  putting.then(note)
  finishing.then(note)
  await ledger.intent(intent('r1'))
  ledger.outcome(outcome('r1'))
  // A chain that is read renews its links at once, whatever the disk does.
  await records.touch('acme', 'response', ['old', 'new'], DAY, T0 + 59_999)
  assert.equal(Buffer.from((await records.get('acme', 'response', 'old', T0 + 60_001))!).toString(), 'old')
  assert.equal(Buffer.from((await records.get('acme', 'response', 'new', T0))!).toString(), 'new')
  await timersOf(100)
  assert.equal(written, 0)
  assert.equal((await idempotency.begin('acme', 'k', 'f', 'r2', DAY, Date.now())).state, 'replay')
  assert.deepEqual(await store.ready(), { ok: true })
  release()
  await Promise.all([putting, finishing])
  await ledger.flush()
  assert.equal((await ledger.query({})).length, 1)
  await eventually(async () => {
    const db = new DatabaseSync(file, { readOnly: true })
    const expires = db.prepare("SELECT expires FROM records WHERE id = 'old'").get()!['expires']
    db.close()
    return expires === T0 + 59_999 + DAY
  })
})

test('a disk that commits nothing for seconds shows in ready, and passes', async t => {
  const file = path.join(temporary(), 'gateway.db')
  const store = await openStore(options(`sqlite:${file}`))
  t.after(() => store.close())
  const release = blockCommits(file)
  const putting = Promise.resolve(store.records.put('acme', 'response', 'r', Buffer.from('x'), DAY, T0))
  const failed = assert.rejects(putting, /cannot write|did not commit/)
  await eventually(async () => !(await store.ready()).ok)
  assert.match((await store.ready()).reason!, /nothing has been committed for \d+ s|locked/)
  await failed
  release()
  await store.records.put('acme', 'response', 'r', Buffer.from('x'), DAY, T0)
  await eventually(async () => (await store.ready()).ok)
})
