import assert from 'node:assert/strict'
import { test } from 'node:test'
import { workOf } from '../../core/canon/conversation.ts'
import { REQUEST_WORK, Work } from '../../core/canon/work.ts'
import { conversationOf } from '../providers/dialect-kit.ts'

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

test('all copies of a conversation draw on the budget of the first one', () => {
  const asked = conversationOf()
  const work = workOf(asked)
  assert.equal(work.left, REQUEST_WORK)
  // As for an attempt, a search round, structured output by a tool, a mask.
  const copy = { ...asked, turns: [...asked.turns], maxOutputTokens: 5 }
  assert.equal(workOf({ ...copy }), work)
  assert.notEqual(workOf(conversationOf()), work, 'another request has its own')
})
