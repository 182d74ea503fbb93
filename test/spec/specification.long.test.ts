/** The sentences of the specification that only a real clock shows: up to 90 s each. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { tryRows } from './kit/run.ts'
import { ROWS } from './rows.ts'

const rows = ROWS.filter(row => row.long)

test('the sentences that need a real clock', async t => {
  for (const { row, fault } of await tryRows(rows, false)) {
    await t.test(`${row.id}, ${row.at}: ${row.says}`, () => assert.equal(fault, undefined))
  }
})
