import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { ManualClock, systemClock } from '../../core/tools/clock.ts'
import type { LedgerColumn } from '../../stores/columns.ts'
import { openStore } from '../../stores/index.ts'
import { abandonedJournals, type Charge, Journal, type JournalOptions, readSegment } from '../../stores/journal.ts'
import { JournaledLedger, type LedgerSink, owedEntries } from '../../stores/ledger.ts'
import { chargesOf, intentJson, ROW_COLUMNS, type RowValues, rowJson, rowOfNext } from '../../stores/rows.ts'
import { intent, options, outcome, recordingLog, T0, temporary } from './kit.ts'

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

/**
 * A process that looked for abandoned journals opened and closed its own lock file, by which the kernel dropped its
 * lock. The next process to start took the journal of the living one, and its rows were lost.
 */
test('a process that looks for abandoned journals keeps the lock of its own', () => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir))
  assert.equal(abandoned(dir).length, 0)
  const module = new URL('../../stores/journal.ts', import.meta.url).href
  const taken = `import { acquire } from '${module}'; console.log(acquire('${path.join(dir, 'one', 'lock')}') !== null)`
  const other = execFileSync(process.execPath, ['--input-type=module', '-e', taken], { encoding: 'utf8' })
  assert.equal(other, 'false\n')
  journal.close()
})

/** Two workers that started together: one took the lock file that the other had made and not locked yet. */
test('the journal of a process that is starting is left alone', () => {
  const dir = temporary()
  fs.mkdirSync(path.join(dir, 'starting'))
  fs.writeFileSync(path.join(dir, 'starting', 'lock'), '')
  assert.equal(abandoned(dir).length, 0)
  new Journal(journalOptions(dir, { instance: 'starting' })).close()
})

test('records come back in order; a journal with nothing open leaves nothing', () => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir))
  const item = journal.append('i', '["a"]')
  journal.stage('o', '["a","é\\n\\u0000"]')
  journal.stage('s', '{}')
  journal.commit()
  journal.close()
  const [found] = abandoned(dir)
  assert.deepEqual(
    found!.records.map(({ kind, json }) => `${kind} ${json}`),
    ['i ["a"]', 'o ["a","é\\n\\u0000"]', 's {}'],
  )
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

test('a row takes the place of its intent: the intent’s segment goes, the row stays until it is released', () => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir, { segmentBytes: 200 }))
  const fill = () => journal.release(journal.append('i', JSON.stringify(['x'.repeat(300)])))
  const item = journal.append('i', '["a"]')
  const [first] = segmentFiles(dir)
  fill()
  fill()
  assert.ok(fs.existsSync(first!))
  journal.stage('o', (item.json = '["a",1]'))
  item.kind = 'o'
  // What the request takes from buckets goes where its row goes.
  item.also = { kind: 'b', json: '["a",2]' }
  journal.stage('b', item.also.json)
  journal.commit()
  journal.keep(item)
  assert.equal(fs.existsSync(first!), false)
  for (let i = 0; i < 20; i++) fill()
  journal.close()
  const [found] = abandoned(dir)
  assert.deepEqual(
    new Set(found!.records.filter(({ json }) => json.startsWith('["a"')).map(({ kind, json }) => kind + json)),
    new Set(['o["a",1]', 'b["a",2]']),
  )
  found!.leave()
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
  t.mock.method(fs, 'writeSync', ((fd: number, bytes: Buffer, offset: number, length: number) => {
    if (broken === undefined) return write(fd, bytes, offset, length)
    if (broken === 'short') return write(fd, bytes, offset, 10)
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
    found!.records.map(({ json }) => (JSON.parse(json) as RowValues)[0]),
    ['a', 'd'],
  )
})

const opened = (id: string) => ({ kind: 'i' as const, json: intentJson(intent(id)) })
const ended = (id: string) => ({ kind: 'o' as const, json: rowJson(intentJson(intent(id)), outcome(id), undefined) })
const member = (json: string, name: LedgerColumn) => (JSON.parse(json) as RowValues)[ROW_COLUMNS.indexOf(name)]

test('[BILL-4] what a dead process left open is closed as lost, and nothing is owed twice', () => {
  const records = [
    opened('done'),
    opened('open'),
    opened('delivered'),
    ended('done'),
    ended('delivered'),
    // Its intent went with an older segment.
    ended('alone'),
    { kind: 'd' as const, json: '["delivered"]' },
    // Carried over into a newer segment.
    opened('open'),
    ended('alone'),
  ]
  const { entries, lost } = owedEntries(records, T0 + 5000)
  assert.deepEqual(
    entries.map(({ id, json }) => [id, member(json, 'outcome'), member(json, 'cost')]),
    [
      ['done', 'completed', 425_000],
      ['open', 'lost', 0],
      ['alone', 'completed', 425_000],
    ],
  )
  assert.equal(lost.length, 1)
  const { json } = entries[1]!
  assert.deepEqual(
    [member(json, 'output'), member(json, 'duration_ms'), member(json, 'model')],
    [0, 5000, 'eb1-preview'],
  )
})

test('a journal of another version is refused, and stays', async () => {
  const file = path.join(temporary(), 'gateway.db')
  const dir = file + '.journal'
  const journal = new Journal(journalOptions(dir))
  journal.append('h', '{"version":1,"instance":"one","store":"sqlite"}')
  journal.append('i', '{"request_id":"a"}')
  journal.close()
  const before = fs.readFileSync(segmentFiles(dir)[0]!)
  for (let start = 0; start < 2; start++)
    await assert.rejects(
      openStore(options(`sqlite:${file}`)),
      (error: Error) =>
        error instanceof StoreUnavailable &&
        /the journal .*one has format version 1, and this release of Sluice reads 2 to 4: start/.test(error.message),
    )
  assert.deepEqual(fs.readFileSync(segmentFiles(dir)[0]!), before)
})

test('a turn is one append: intents, then rows; on a full disk its intents are refused and its rows go to the sink all the same', async t => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir))
  const taken: string[] = []
  const sink: LedgerSink = {
    write: entries => Promise.resolve(entries.forEach(({ id, kind }) => void taken.push(`${kind} ${id}`))),
    query: () => Promise.resolve([]),
  }
  const log = recordingLog()
  const ledger = new JournaledLedger({ journal, sink, clock: systemClock, log })
  const write = fs.writeSync
  let writes = 0
  let full = false
  t.mock.method(fs, 'writeSync', ((...args: [number, Buffer, number, number]) => {
    writes++
    if (full) throw new Error('ENOSPC')
    return write(...args)
  }) as typeof fs.writeSync)
  await Promise.all(['a', 'b'].map(id => ledger.intent(intent(id))))
  ledger.outcome(outcome('a'))
  await ledger.intent(intent('c'))
  assert.equal(writes, 2)
  full = true
  ledger.outcome(outcome('b'))
  const refused = ledger.intent(intent('d'))
  ledger.outcome(outcome('d'))
  await assert.rejects(refused!, StoreUnavailable)
  full = false
  await ledger.flush()
  assert.deepEqual(taken, ['o a', 'o b'])
  assert.deepEqual([ledger.open, ledger.pending], [1, 0])
  assert.equal(log.lines.length, 1)
  journal.close()
  const [found] = abandoned(dir)
  assert.deepEqual(
    found!.records.map(({ kind, json }) => `${kind} ${(JSON.parse(json) as RowValues)[0]}`),
    ['i a', 'i b', 'i c', 'o a'],
  )
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

test('rows wait for a replica in the journal, a bounded number of them; a lost connection offers them again', async () => {
  const dir = temporary()
  const journal = new Journal(journalOptions(dir))
  const log = recordingLog()
  const clock = new ManualClock()
  let connection = {}
  let present = false
  const taken: [string, boolean][] = []
  const sink: LedgerSink = {
    async write(entries, last) {
      for (const { id } of entries) taken.push([id, last])
      return connection
    },
    async replicated(of) {
      if (of !== connection) throw new StoreUnavailable('lost')
      return present
    },
    query: async () => [],
  }
  const ledger = new JournaledLedger({ journal, sink, clock, log, group: 2, noteDelivered: true, unreplicated: 3 })
  const book = async (...ids: string[]) => {
    for (const id of ids) void ledger.intent(intent(id))
    for (const id of ids) void ledger.outcome(outcome(id))
    await ledger.flush()
  }
  // What the next start would book. (Its own lock keeps the journal from others.)
  const owed = () =>
    owedEntries(
      segmentFiles(dir).flatMap(file => readSegment(file).records),
      T0,
    ).entries.map(e => e.id)

  await book('a', 'b')
  // While rows wait, the sink is never told to forget what it was offered.
  await book('c')
  assert.deepEqual(taken.splice(0), [
    ['a', true],
    ['b', true],
    ['c', false],
  ])
  assert.equal(ledger.unreplicated, 3)
  assert.match(ledger.waiting!, /in the journal: 3$/)
  assert.deepEqual(owed(), ['a', 'b', 'c'])

  // One more than may wait: the oldest goes.
  await book('d')
  assert.equal(ledger.unreplicated, 3)
  assert.match(ledger.waiting!, /: 3; older ones have left without$/)
  assert.equal(log.lines.filter(({ level }) => level === 'error').length, 1)

  taken.length = 0
  connection = {}
  await book('e')
  const again = taken.map(([id]) => id)
  assert.deepEqual(again, ['e', 'b', 'c', 'd'])
  assert.ok(taken.every(([, last]) => !last))

  present = true
  clock.advance(1000)
  await ledger.flush()
  assert.equal(ledger.unreplicated, 0)
  assert.equal(ledger.waiting, undefined)
  await book('f')
  assert.deepEqual(taken.at(-1), ['f', true])
  assert.deepEqual(
    log.lines.map(({ level }) => level),
    ['warn', 'error', 'info'],
  )
  journal.close()
  assert.deepEqual(fs.readdirSync(dir), [])
})

test('an outcome that cannot be written rejects; what was not sent because of it is billed nothing', async t => {
  const taken: string[] = []
  const sink: LedgerSink = {
    write: entries => Promise.resolve(entries.forEach(({ json }) => void taken.push(json))),
    query: () => Promise.resolve([]),
  }
  const journal = new Journal(journalOptions(temporary()))
  t.after(() => journal.close())
  const ledger = new JournaledLedger({ journal, sink, clock: systemClock, log: recordingLog() })
  await Promise.all(['buffered', 'streamed', 'after'].map(id => ledger.intent(intent(id))))
  const write = t.mock.method(fs, 'writeSync', () => {
    throw new Error('ENOSPC')
  })
  const charges: Charge[] = [['o:day', 'day', 1, 7]]
  const told = [
    ledger.outcome(outcome('buffered', { cost: 7 }), true),
    ledger.outcome(outcome('streamed', { cost: 7 })),
  ]
  ledger.charge('acme', 'buffered', charges)
  ledger.charge('acme', 'streamed', charges)
  for (const promise of told) await assert.rejects(promise!, StoreUnavailable)
  write.mock.restore()
  await ledger.outcome(outcome('after', { cost: 7 }), true)
  await ledger.flush()
  const rows = taken.map(json => JSON.parse(json) as RowValues)
  const [at, cost] = [ROW_COLUMNS.indexOf('outcome'), ROW_COLUMNS.indexOf('cost')]
  assert.deepEqual(
    rows.map(row => [row[0], row[at], row[cost], chargesOf(row).length]),
    [
      ['buffered', 'gateway_error', 0, 0],
      ['streamed', 'completed', 7, 1],
      ['after', 'completed', 7, 0],
    ],
  )
})

test('a row of an earlier version keeps its columns and its charges', () => {
  const now = JSON.parse(
    rowJson(intentJson(intent('a')), outcome('a', { tags: '{"t":"x"}', code: 'c', body_digest: 'd' }), [
      ['o:day', 'day', 1, 7],
      ['o:month', 'month', 2, 8],
    ]),
  ) as RowValues
  const charges = now.slice(ROW_COLUMNS.length)
  const before = (columns: number) => JSON.stringify([...now.slice(0, columns), ...charges])
  const value = (json: string, name: LedgerColumn) => member(json, name)
  const third = rowOfNext(2, before(23))
  assert.deepEqual([value(third, 'cost'), value(third, 'tags'), value(third, 'rounds')], [425_000, '', null])
  assert.equal(JSON.parse(third).length, 41 + charges.length)
  for (const json of [rowOfNext(3, third), rowOfNext(3, before(41))]) {
    assert.deepEqual(chargesOf(JSON.parse(json)), [
      ['o:day', 'day', 1, 7],
      ['o:month', 'month', 2, 8],
    ])
    assert.equal(value(json, 'body_digest'), '')
    assert.equal(value(json, 'cost'), 425_000)
  }
  assert.deepEqual(
    [value(rowOfNext(3, before(41)), 'tags'), value(rowOfNext(3, before(41)), 'code')],
    ['{"t":"x"}', 'c'],
  )
})
