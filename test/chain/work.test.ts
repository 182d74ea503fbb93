import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Work } from '../../core/work.ts'

test('work is taken until too little is left, and then no more', () => {
  const work = new Work(10)
  assert.equal(work.take(4), true)
  assert.equal(work.take(6), true)
  assert.equal(work.left, 0)
  assert.equal(work.take(0), true, 'what costs nothing may always be done')

  const other = new Work(10)
  assert.equal(other.take(11), false)
  // Whoever draws on the same budget stops, too, although less than ten were taken.
  assert.equal(other.take(1), false)
  assert.equal(other.left, 0)
})
