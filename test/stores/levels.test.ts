/**
 * Levels of buckets on SQLite after a kill: to the last admission, they are what the rows of the ledger say. They were
 * saved up to a second after an exchange, so that whoever made the gateway crash got a second of each limit back.
 */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import fc from 'fast-check'
import { cellPrefix, countedOfLost } from '../../core/canon/limits.ts'
import type { Store } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import type { Journal } from '../../stores/journal.ts'
import { MemoryLimits } from '../../stores/limits/memory.ts'
import { type LevelRow, recoverLevels, type SettledRecord } from '../../stores/limits/recovery.ts'
import { SettledLevels } from '../../stores/sqlite/levels.ts'
import { eventually } from '../eventually.ts'
import { bucket, DAY, intent, MINUTE, options, outcome, slots, spend, T0, temporary } from './kit.ts'

/** One unit comes back in 432 s, so none does while a test moves the clock by some saves. */
const CELLS = [
  bucket('o:rpd', 200, DAY),
  bucket('k:key_ci:rpd', 200, DAY),
  bucket('o:tpd', 200, DAY, 'tokens'),
  bucket('o:m:eb1-preview:itpd', 200, DAY, 'input_tokens'),
  bucket('o:otpd', 200, DAY, 'output_tokens'),
  bucket('o:ubpd', 200, DAY, 'unbilled'),
  slots('o:conc', 1000),
  spend('o:day', 1_000_000),
]
const PROMPT = 2
/** Parallel to the cells: what an exchange counts that a crash cut off. */
const LOST = [1, 1, PROMPT, PROMPT, 0, 0, 0, 0]
const SAVE_MS = 750

/** The files as they are: what a kill would leave. @returns the copy of the database */
function killed(file: string): string {
  const copy = path.join(temporary(), 'gateway.db')
  for (const end of ['', '-wal']) if (fs.existsSync(file + end)) fs.copyFileSync(file + end, copy + end)
  fs.cpSync(file + '.journal', copy + '.journal', { recursive: true })
  return copy
}

const used = async (store: Store, now: number) =>
  (await store.limits.peek('acme', CELLS, now)).map(({ remaining }, i) => CELLS[i]!.capacity - remaining)
const tick = () => new Promise<void>(resolve => setImmediate(resolve))

type Step = ['admit', number] | ['settle', number] | ['turn'] | ['save', boolean] | ['book'] | ['kill']

test('[LIM-1] [LIM-4] after any kill, levels are those of the rows', () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.oneof(
          { weight: 4, arbitrary: fc.tuple(fc.constant('admit' as const), fc.integer({ min: 1, max: 9 })) },
          { weight: 4, arbitrary: fc.tuple(fc.constant('settle' as const), fc.nat(12)) },
          { weight: 3, arbitrary: fc.constant(['turn'] as ['turn']) },
          { weight: 3, arbitrary: fc.tuple(fc.constant('save' as const), fc.boolean()) },
          { weight: 1, arbitrary: fc.constant(['book'] as ['book']) },
          { weight: 2, arbitrary: fc.constant(['kill'] as ['kill']) },
        ),
        { minLength: 4, maxLength: 24 },
      ),
      async (steps: Step[]) => {
        const clock = new ManualClock(T0)
        let file = path.join(temporary(), 'gateway.db')
        const stores: Store[] = []
        const open = async () => {
          const opened = await openStore(options(`sqlite:${file}`, { clock }))
          stores.push(opened)
          return opened
        }
        /** What each exchange that was settled came to. */
        const finals = new Map<string, number[]>()
        let running: string[] = []
        let next = 0
        const compare = async (store: Store) => {
          const sums = CELLS.map(() => 0)
          for (const row of await store.ledger.query({})) {
            const counted = row.outcome === 'lost' ? LOST : finals.get(row.request_id)!
            for (const [i, amount] of counted.entries()) sums[i]! += amount
          }
          assert.deepEqual(await used(store, clock.now()), sums)
        }
        try {
          let store = await open()
          for (const [what, figure] of [...steps, ['kill'], ['kill']] as Step[]) {
            const now = clock.now()
            if (what === 'admit') {
              const id = `r${next++}`
              const reserved = figure as number
              const amounts = [1, 1, reserved, reserved, reserved, 1, 1, 1000]
              if (!(await store.limits.admit({ org: 'acme', id, cells: CELLS, amounts, now })).admitted) continue
              void store.ledger.intent(intent(id, { time: now, input_tokens: PROMPT }))
              running.push(id)
            } else if (what === 'settle' && running.length > 0) {
              const id = running.splice((figure as number) % running.length, 1)[0]!
              const n = figure as number
              finals.set(id, [1, 1, n, PROMPT, n + 1, 5 * n, 0, 10 * n])
              void store.ledger.outcome(outcome(id, { cost: 10 * n }))
              store.limits.settle('acme', id, finals.get(id)!, now)
            } else if (what === 'turn') await tick()
            else if (what === 'save') {
              clock.advance(SAVE_MS)
              // A save that is under way keeps the next one waiting.
              if (figure)
                await eventually(() => {
                  const saved = (store.limits as MemoryLimits).changes === 0
                  if (!saved) clock.advance(SAVE_MS)
                  return saved
                })
            } else if (what === 'book') await store.ledger.flush()
            else if (what === 'kill') {
              file = killed(file)
              store = await open()
              running = []
              await compare(store)
            }
          }
        } finally {
          for (const store of stores) await store.close()
        }
      },
    ),
    { numRuns: 25 },
  ))

/** The journal has records for as long as its files stay; the table may have them long since. */
test('a record that the table has, or that is repeated, counts nothing again', () => {
  const row = (used: number, at = T0): LevelRow => ['acme', 'o:tpd', used, 0, at, T0 + DAY, 1000, DAY]
  const records: SettledRecord[] = [
    [4, row(40)],
    [3, row(30)],
    [4, row(40)],
    [2, row(20)],
  ]
  assert.deepEqual(
    recoverLevels(() => row(30), 3, records, []),
    { rows: [row(40)], position: 4 },
  )
  assert.deepEqual(
    recoverLevels(() => row(40), 4, records, []),
    { rows: [], position: 4 },
  )
})

test('an exchange that a crash cut off counts a request and its prompt, on a level refilled up to its time', () => {
  const lost = { organization: 'acme', key: 'k', model: 'm', time: T0 + 30_000, input: 100 }
  const stored = (organization: string, cell: string): LevelRow | undefined =>
    cell === 'o:tpm' ? [organization, cell, 500, 0, T0, T0 + MINUTE, 600, MINUTE] : undefined
  const { rows } = recoverLevels(stored, 0, [], [lost])
  const level = (cell: string) => rows.find(row => row[1] === cell)?.slice(2, 6)
  assert.deepEqual(level('o:tpm'), [300, 0, T0 + 30_000, T0 + 90_000])
  assert.deepEqual(level('k:k:m:m:itpm'), [100, 0, T0 + 30_000, T0 + 90_000])
  assert.deepEqual(level('k:k:rpd'), [1, 0, T0 + 30_000, T0 + 30_000 + DAY])
  assert.equal(level('o:otpm'), undefined)
  // One that is full again by then, and one of a release that noted no capacity.
  const twice = (at: number, expires: number) =>
    recoverLevels((org, cell) => [org, cell, 7, 0, at, expires, null, null], 0, [], [lost, lost]).rows.find(
      row => row[1] === 'o:rpm',
    )!
  assert.deepEqual(twice(T0 - DAY, T0).slice(2, 5), [2, 0, T0 + 30_000])
  assert.deepEqual(twice(T0, T0 + MINUTE).slice(2, 5), [9, 0, T0 + 30_000])
})

test('what a lost exchange counts: requests and prompt, wherever its account may have a limit', () => {
  const counts = countedOfLost('k', 'm', 5)
  assert.deepEqual(new Set(counts.map(({ cell }) => cell.slice(0, cell.lastIndexOf(':') + 1))).size, 4)
  assert.ok(counts.some(({ cell, amount }) => cell === `${cellPrefix('k', 'm')}itpd` && amount === 5))
  assert.ok(counts.some(({ cell, amount }) => cell === `${cellPrefix(null, null)}rpm` && amount === 1))
  assert.ok(!counts.some(({ cell }) => /ot|ubpd|conc|day$/.test(cell)))
  assert.ok(countedOfLost('k', '', 5).every(({ cell }) => !cell.includes('m:')))
})

/** A record that left the journal before the table has its levels would be missing after a kill. */
test('a record is released when the table has all levels up to it, and not before', () => {
  const released: string[] = []
  const journal = { release: ({ json }: { json: string }) => void released.push(json) } as unknown as Journal
  const clock = new ManualClock(T0)
  const limits = new MemoryLimits({ clock, levelBefore: () => undefined })
  const settled = new SettledLevels({ limits: () => limits, journal, position: 7 })
  const settle = (id: string) => {
    limits.admit({ org: 'acme', id, cells: CELLS, amounts: CELLS.map(() => 1), now: T0 })
    limits.settle('acme', id, LOST, T0)
    const json = settled.record()!
    // The journal could not be written: the next record has this, too.
    assert.equal(settled.record(), json)
    settled.written({ kind: 'l', json, segment: undefined, place: -1 })
    return json
  }
  const [first, second, third] = [settle('a'), settle('b'), settle('c')]
  assert.deepEqual(
    [first, second, third].map(json => (JSON.parse(json) as SettledRecord)[0]),
    [8, 9, 10],
  )
  assert.equal(settled.record(), undefined)
  settled.saved(7)
  assert.deepEqual(released, [])
  settled.saved(9)
  assert.deepEqual(released, [first, second])
  settled.saved(10)
  assert.deepEqual(released, [first, second, third])
})

/** The files of 0.1.0 have levels and no position, and no capacity. */
test('levels of a release before are taken as they are', async () => {
  const file = path.join(temporary(), 'gateway.db')
  const clock = new ManualClock(T0)
  await (await openStore(options(`sqlite:${file}`, { clock }))).close()
  const db = new DatabaseSync(file)
  db.prepare('INSERT INTO levels (organization, cell, used, part, at, expires) VALUES (?, ?, ?, ?, ?, ?)').run(
    ...['acme', 'o:rpd', 40, 0, T0, T0 + DAY],
  )
  db.close()
  const store = await openStore(options(`sqlite:${file}`, { clock }))
  assert.equal((await used(store, T0))[0], 40)
  await store.close()
})

/** A record keeps its file of the journal. Were it kept for good, the journal would grow without end. */
test('a record leaves the journal once the table has its levels', async () => {
  const file = path.join(temporary(), 'gateway.db')
  const clock = new ManualClock(T0)
  const store = await openStore(options(`sqlite:${file}`, { clock }))
  const amounts = [1, 1, 1, 1, 1, 1, 1, 1]
  await store.limits.admit({ org: 'acme', id: 'a', cells: CELLS, amounts, now: T0 })
  void store.ledger.intent(intent('a'))
  void store.ledger.outcome(outcome('a'))
  store.limits.settle('acme', 'a', amounts, T0)
  await store.ledger.flush()
  const folder = path.join(file + '.journal', fs.readdirSync(file + '.journal')[0]!)
  clock.advance(SAVE_MS)
  const position = () => {
    const db = new DatabaseSync(file, { readOnly: true })
    const row = db.prepare("SELECT CAST(value AS TEXT) AS value FROM meta WHERE name = 'levels'").get()
    db.close()
    return row?.['value']
  }
  await eventually(() => position() === '1')
  await store.close()
  assert.equal(fs.existsSync(folder), false, 'a journal in which nothing is open goes with its process')
})
