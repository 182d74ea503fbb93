/** The rule of compaction: what stays before a capsule, and what a usage has besides that of a compaction. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { aroundCapsule, keptTurns, lastCapsule, standIn, withCapsule } from '../../core/canon/compaction.ts'
import type { Part, TextPart, Turn } from '../../core/canon/conversation.ts'
import { workOf } from '../../core/canon/conversation.ts'
import { lessCompaction, ZERO_USAGE } from '../../core/canon/events.ts'
import { ReplyRecorder } from '../../core/canon/recorder.ts'
import { plainConversation } from '../../plugins/testing.ts'

const text = (words: string): TextPart => ({ type: 'text', text: words })
const capsule = (words: string): TextPart => ({ ...text(words), capsule: { sealed: words, path: '' } })
const user = (...parts: Part[]): Turn => ({ role: 'user', parts })
const model = (words: string): Turn => ({ role: 'assistant', parts: [text(words)] })
const system = (words: string): Turn => ({ role: 'system', parts: [text(words)] })

test('the last capsule is found, and what is on both sides of it', () => {
  const turns = [
    user(text('a'), capsule('1'), text('b')),
    model('c'),
    user(text('d'), capsule('2'), text('e')),
    model('f'),
  ]
  const place = lastCapsule(turns)!
  assert.equal(place.text.text, '2')
  assert.deepEqual(aroundCapsule(turns, place), {
    before: [turns[0], turns[1], user(text('d'))],
    after: [user(text('e')), turns[3]],
  })
  assert.equal(lastCapsule([user(text('a')), { role: 'assistant', parts: [capsule('x')] }]), undefined)
})

test('system text stays, and messages of the user where they are kept: the newest, up to a length', () => {
  const turns = [user(text('1234')), system('s'), model('b'), user(capsule('x'), text('56')), user(capsule('y'))]
  assert.deepEqual(keptTurns(turns, 'nothing'), [system('s')])
  assert.deepEqual(keptTurns(turns, 'user'), [user(text('1234')), system('s'), user(text('56'))])
  assert.deepEqual(keptTurns(turns, 'user', 6), [user(text('1234')), system('s'), user(text('56'))])
  assert.deepEqual(keptTurns(turns, 'user', 5), [system('s'), user(text('56'))])
  assert.deepEqual(keptTurns([user(text('1'), text('23'), text('4'))], 'user', 3), [user(text('23'), text('4'))])
  // A text that is too long ends it: an older one without those after it would be out of place.
  assert.deepEqual(keptTurns([user(text('1')), model('b'), user(text('456'))], 'user', 2), [])
})

test('a compacted conversation is in canonical form, and draws on the budget of the one that it was', () => {
  const whole = plainConversation({ system: [text('be kind')], sealed: true })
  const work = workOf(whole)
  const made = withCapsule(whole, [system('s'), user(text('a')), user()], text('sum'), [user(), model('b')])
  assert.deepEqual([made.system, made.sealed], [[text('be kind'), text('s')], undefined])
  assert.deepEqual(made.turns, [user(text('a'), text('sum')), model('b')])
  assert.equal(workOf(made), work)
})

test('the model reads a summary as one, and is told to go on', () => {
  assert.match(standIn('it was so'), /replaced by this summary.*Go on.*<summary>\nit was so\n<\/summary>$/s)
})

test('a usage less its compaction is that of the answer', () => {
  const compaction = { ...ZERO_USAGE, input: 5, cached: 1, cacheWrite: 2, output: 3, reasoning: 1 }
  const usage = {
    input: 9,
    cached: 3,
    cacheWrite: 3,
    output: 10,
    reasoning: 4,
    searches: 1,
    estimated: true,
    compaction,
  }
  assert.deepEqual(lessCompaction(usage), {
    ...{ input: 4, cached: 2, cacheWrite: 1, output: 7, reasoning: 3 },
    ...{ searches: 1, estimated: true },
  })
  assert.deepEqual(lessCompaction(compaction), compaction)
})

test('a recorded reply has its compaction beside its turn', () => {
  const recorder = new ReplyRecorder()
  const event = { type: 'compaction', id: 'i', summary: 's', sealed: 'x', keeps: 'nothing', kept: [], most: 1 } as const
  const compaction = { ...event, tokens: 2, reasoning: 0, usage: {}, estimated: false, asked: 0, next: null }
  recorder.push(compaction)
  assert.equal(recorder.turn(), null)
  recorder.push({ type: 'text', text: 'a' })
  assert.deepEqual([recorder.compaction, recorder.turn()], [compaction, model('a')])
})
