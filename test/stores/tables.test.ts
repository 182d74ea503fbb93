/** What the writer's thread makes of a group of ledger entries. */
import assert from 'node:assert/strict'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import type { Charge } from '../../stores/journal.ts'
import type { Entry } from '../../stores/ledger.ts'
import { intentJson, rowJson } from '../../stores/rows.ts'
import { prepare } from '../../stores/sqlite/schema.ts'
import { packEntries, Tables } from '../../stores/sqlite/tables.ts'
import { intent, outcome } from './kit.ts'

function open(): { db: DatabaseSync; write(entries: Entry[]): void } {
  const db = new DatabaseSync(':memory:')
  prepare(db, ':memory:')
  const tables = new Tables(db, {
    idempotencyBytes: 1e6,
    recordBytes: 1e6,
    valueBytes: 1e6,
    share: 1,
    ledgerKeep: null,
  })
  return { db, write: entries => tables.apply([{ op: 'ledger', entries: packEntries(entries) }]) }
}
const row = (id: string, charges?: Charge[]): Entry => ({
  id,
  kind: 'o',
  json: rowJson(intentJson(intent(id)), outcome(id), charges),
})
const charge = (id: string, charges: Charge[]): Entry => ({
  id,
  kind: 's',
  json: JSON.stringify({ request_id: id, organization: 'acme', charges }),
})
const spend = (db: DatabaseSync) =>
  db
    .prepare('SELECT cell, period, number, amount FROM spend ORDER BY cell, number')
    .all()
    .map(r => Object.values(r))
const ids = (db: DatabaseSync) =>
  db
    .prepare('SELECT request_id FROM ledger ORDER BY rowid')
    .all()
    .map(r => r['request_id'])

test('[BILL-4] rows offered again, alone or among new ones, are booked once, and so are their charges', () => {
  const { db, write } = open()
  const rows = Array.from({ length: 30 }, (_, i) =>
    row(`r${i}`, [
      ['o:day', 'day', 7, 1],
      ['o:month', 'month', 1, 1],
    ]),
  )
  write(rows.slice(0, 11))
  write(rows.slice(5, 30))
  write(rows)
  write([])
  assert.deepEqual(
    ids(db),
    rows.map(({ id }) => id),
  )
  assert.deepEqual(spend(db), [
    ['o:day', 'day', 7, 30],
    ['o:month', 'month', 1, 30],
  ])
})

test('charges apart from their row find it in the same group; each day has its own sum', () => {
  const { db, write } = open()
  const day = (index: number, amount: number): Charge => ['o:day', 'day', index, amount]
  write([
    row('a', [day(7, 10)]),
    row('b'),
    charge('b', [day(8, 5)]),
    charge('b', [day(8, 5)]),
    charge('a', [day(7, 10)]),
    charge('never', [day(8, 100)]),
    row('c', [day(7, 1)]),
    row('d', [day(8, 1)]),
  ])
  assert.deepEqual(ids(db), ['a', 'b', 'c', 'd'])
  assert.deepEqual(spend(db), [
    ['o:day', 'day', 7, 11],
    ['o:day', 'day', 8, 6],
  ])
})
