/** How many pieces one turn of the event loop takes: nothing but closing a connection ends its read on `uws`. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { enterTurn, TurnPieces } from '../../http/uws/turn.ts'

/** Counts pieces until one is too many. */
function until(connection: TurnPieces, most: number, weight?: number): number {
  for (let i = 1; i <= most; i++) if (connection.overrun(weight)) return i
  return Number.POSITIVE_INFINITY
}
const turn = () => new Promise(resolve => setImmediate(resolve))

test('one connection may bring all that a turn takes, others then their own part', async () => {
  enterTurn()
  const [flood, other, small] = [new TurnPieces(), new TurnPieces(), new TurnPieces()]
  assert.equal(until(flood, 100_000), 10_001)
  assert.equal(until(other, 100_000), 501)
  assert.equal(until(small, 500), Number.POSITIVE_INFINITY)
  await turn()
  enterTurn()
  assert.equal(until(other, 10_000), Number.POSITIVE_INFINITY, 'another turn begins anew')
  await turn()
})

test('what costs more counts for more', async () => {
  enterTurn()
  assert.equal(until(new TurnPieces(), 100_000, 8), 1251)
  await turn()
})
