import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { ManualClock, systemClock } from '../../core/clock.ts'
import { StoreUnavailable } from '../../core/store.ts'
import { abandonedJournals, Journal, type JournalOptions, readSegment } from '../../stores/journal.ts'
import { JournaledLedger, owedEntries } from '../../stores/ledger.ts'
import { intent, outcome, recordingLog, T0, temporary } from './kit.ts'

const journalOptions = (dir: string, more: Partial<JournalOptions> = {}): JournalOptions => ({
  dir,
  instance: 'one',
  store: 'sqlite',
  log: recordingLog(),
  ...more,
})
const abandoned = (dir: string, store = 'sqlite') => abandonedJournals({ dir, store, log: recordingLog() })
const segmentFiles = (dir: string, instance = 'one') =>
  fs
    .readdirSync(path.join(dir, instance))
    .filter(name => name.endsWith('.log'))
    .sort()
    .map(name => path.join(dir, instance, name))

test('records come back in order; a journal with nothing open leaves nothing', () => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir))
  const item = journal.append('i', '{"request_id":"a"}')
  journal.appendAll([
    { kind: 'o', json: '{"request_id":"a","text":"é\\n\\u0000"}' },
    { kind: 's', json: '{}' },
  ])
  journal.close()
  const [found] = abandoned(dir)
  assert.deepEqual(found!.records.map(({ kind, json }) => `${kind} ${json}`).slice(1), [
    'i {"request_id":"a"}',
    'o {"request_id":"a","text":"é\\n\\u0000"}',
    's {}',
  ])
  found!.done()
  assert.deepEqual(abandoned(dir), [])
  const clean = new Journal(journalOptions(dir, { instance: 'two' }))
  clean.release(clean.append('i', '{}'))
  clean.close()
  assert.equal(fs.existsSync(path.join(dir, 'two')), false)
  assert.ok(item)
})

test('a living owner’s journal is never touched, nor one that feeds another store', () => {
  const dir = temporary()
  const living = new Journal(journalOptions(dir))
  living.append('i', '{}')
  assert.deepEqual(abandoned(dir), [])
  assert.throws(() => new Journal(journalOptions(dir)), StoreUnavailable)
  living.close()
  assert.deepEqual(abandoned(dir, 'redis://elsewhere:6379/0'), [])
  const [mine] = abandoned(dir)
  // Taken over: nobody else may have it now.
  assert.deepEqual(abandoned(dir), [])
  mine!.leave()
  assert.equal(abandoned(dir).length, 1)
})

test('an end torn at any byte loses at most the record that was being written', () => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir))
  for (const id of ['a', 'b', 'c']) journal.append('i', JSON.stringify({ request_id: id }))
  journal.close()
  const [file] = segmentFiles(dir)
  const whole = fs.readFileSync(file!)
  const lastLine = whole.lastIndexOf(10, whole.length - 2) + 1
  for (let length = lastLine; length <= whole.length; length++) {
    fs.writeFileSync(file!, whole.subarray(0, length))
    const { records, damaged } = readSegment(file!)
    assert.deepEqual(damaged, [])
    // Without its line feed alone, the record is whole.
    assert.equal(records.length, length >= whole.length - 1 ? 4 : 3)
  }
  fs.writeFileSync(file!, Buffer.concat([whole, Buffer.alloc(500)]))
  assert.equal(readSegment(file!).records.length, 4)
})

test('a flipped bit in any byte is found; no record is invented', () => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir))
  for (const id of ['a', 'b', 'c']) journal.append('i', JSON.stringify({ request_id: id, cost: 12345 }))
  journal.close()
  const [file] = segmentFiles(dir)
  const whole = fs.readFileSync(file!)
  const good = new Set(readSegment(file!).records.map(({ json }) => json))
  for (let at = 0; at < whole.length; at++) {
    for (const bit of [1, 8, 128]) {
      const bytes = Buffer.from(whole)
      bytes[at]! ^= bit
      fs.writeFileSync(file!, bytes)
      const { records, damaged } = readSegment(file!)
      assert.ok(records.every(({ json }) => good.has(json)))
      // A line feed that is gone at the very end is a torn end; anywhere else it shows.
      if (at < whole.length - 1) assert.ok(damaged.length > 0 && records.length < 4, `byte ${at}`)
    }
  }
  const log = recordingLog()
  fs.writeFileSync(file!, whole.with(20, whole[20]! ^ 1))
  const [found] = abandonedJournals({ dir, store: 'sqlite', log })
  assert.equal(found!.damaged, 1)
  assert.equal(log.lines.filter(({ level }) => level === 'error').length, 1)
  found!.done()
  assert.equal(fs.readdirSync(path.join(dir, 'damaged')).length, 1)
})

test('segments go when nothing in them is open; a few long exchanges hold none back', () => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir, { segmentBytes: 2000 }))
  const long = journal.append('i', JSON.stringify({ request_id: 'long' }))
  for (let i = 0; i < 500; i++) journal.release(journal.append('i', JSON.stringify({ request_id: `r${i}` })))
  assert.ok(journal.segments <= 5, `${journal.segments} segments`)
  assert.equal(segmentFiles(dir).length, journal.segments)
  journal.close()
  const [found] = abandoned(dir)
  assert.equal(new Set(found!.records.filter(({ kind }) => kind === 'i').map(({ json }) => json)).has(long.json), true)
})

test('a full disk refuses the intent, leaves no half record, and passes', async t => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir))
  const ledger = new JournaledLedger({
    journal,
    sink: { write: () => Promise.resolve(), query: () => Promise.resolve([]) },
    clock: systemClock,
    log: recordingLog(),
  })
  await ledger.intent(intent('a'))
  const write = fs.writeSync
  let broken: 'full' | 'short' | undefined = 'full'
  t.mock.method(fs, 'writeSync', ((fd: number, bytes: Buffer) => {
    if (broken === undefined) return write(fd, bytes)
    if (broken === 'short') return write(fd, bytes.subarray(0, 10))
    throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
  }) as typeof fs.writeSync)
  await assert.rejects(ledger.intent(intent('b'))!, StoreUnavailable)
  assert.match(journal.failure!, /ENOSPC/)
  broken = 'short'
  await assert.rejects(ledger.intent(intent('c'))!, StoreUnavailable)
  broken = undefined
  await ledger.intent(intent('d'))
  assert.equal(journal.failure, undefined)
  assert.equal(ledger.open, 2)
  journal.close()
  const [found] = abandoned(dir)
  assert.equal(found!.damaged, 0)
  assert.deepEqual(
    found!.records.slice(1).map(({ json }) => (JSON.parse(json) as { request_id: string }).request_id),
    ['a', 'd'],
  )
})

test('[BILL-4] what a dead process left open is closed as lost, and nothing is owed twice', () => {
  const records = [
    { kind: 'i' as const, json: JSON.stringify(intent('done')) },
    { kind: 'i' as const, json: JSON.stringify(intent('open', { time: T0 })) },
    { kind: 'i' as const, json: JSON.stringify(intent('delivered')) },
    { kind: 'o' as const, json: JSON.stringify({ ...outcome('done'), usage: undefined }) },
    { kind: 'o' as const, json: JSON.stringify({ ...outcome('delivered'), usage: undefined }) },
    { kind: 'o' as const, json: JSON.stringify({ ...outcome('orphan'), usage: undefined }) },
    { kind: 'd' as const, json: '["delivered"]' },
    // Carried over into a newer segment.
    { kind: 'i' as const, json: JSON.stringify(intent('open', { time: T0 })) },
  ]
  const { entries, lost, orphans } = owedEntries(records, T0 + 5000)
  assert.deepEqual(
    entries.map(({ id }) => id),
    ['done', 'open'],
  )
  assert.equal(lost, 1)
  assert.deepEqual(orphans, ['orphan'])
  const open = entries[1] as { outcome: string }
  const closed = JSON.parse(open.outcome) as Record<string, unknown>
  assert.deepEqual([closed['outcome'], closed['cost'], closed['output'], closed['duration_ms']], ['lost', 0, 0, 5000])
})

test('rows that the sink cannot take are kept and offered again, in order', async () => {
  let down = true
  const taken: string[] = []
  const sink = {
    write: (entries: readonly { id: string }[]) => {
      if (down) return Promise.reject(new StoreUnavailable('down'))
      for (const { id } of entries) taken.push(id)
      return Promise.resolve()
    },
    query: () => Promise.resolve([]),
  }
  const log = recordingLog()
  const clock = new ManualClock()
  const ledger = new JournaledLedger({ journal: null, sink, clock, log })
  for (const id of ['a', 'b', 'c']) {
    ledger.intent(intent(id))
    ledger.outcome(outcome(id))
  }
  const flushing = ledger.flush()
  await new Promise(resolve => setImmediate(resolve))
  assert.equal(ledger.failure, 'down')
  assert.deepEqual(taken, [])
  clock.advance(300)
  await new Promise(resolve => setImmediate(resolve))
  assert.deepEqual(taken, [])
  down = false
  clock.advance(5000)
  await flushing
  assert.deepEqual(taken, ['a', 'b', 'c'])
  assert.equal(ledger.failure, undefined)
  assert.equal(log.lines.filter(({ level }) => level === 'error').length, 1)
})
