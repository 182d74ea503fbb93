/** The connection of a reply: when it is kept for the next request, and when it is closed. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Dispatcher } from 'undici'
import { ManualClock } from '../../plugins/testing.ts'
import { ReplyConnection } from '../../plugins/translation/reply-connection.ts'

/** A connection on which the request was sent, and what was done to it. */
function open() {
  const done: string[] = []
  const controller = {
    aborted: false,
    pause: () => void done.push('pause'),
    resume: () => void done.push('resume'),
    abort() {
      this.aborted = true
      done.push('abort')
    },
  }
  const connection = new ReplyConnection()
  const begin = () => connection.begun(controller as unknown as Dispatcher.DispatchController)
  return { connection, begin, done, clock: new ManualClock() }
}
function begun() {
  const one = open()
  one.begin()
  return one
}

// Without the bound a provider that goes on after its last event keeps the connection, and what it sends is read for a
// second, however much that is.
test('1024 bytes may follow the last event, in one piece or several; one more closes the connection', () => {
  for (const pieces of [[1024], [1000, 24], [0, 1024, 0]]) {
    const { connection, done, clock } = begun()
    connection.whole()
    connection.release(clock)
    for (const bytes of pieces) connection.ignored(bytes)
    assert.deepEqual(done, [], String(pieces))
    connection.ignored(1)
    assert.deepEqual(done, ['abort'], String(pieces))
    assert.equal(clock.pending, 0)
  }
})

test('bytes that nobody reads before the last event close nothing', () => {
  const { connection, done } = begun()
  connection.ignored(1_000_000)
  assert.deepEqual(done, [])
  connection.whole()
  connection.ignored(1024)
  assert.deepEqual(done, [])
})

test('a whole reply has a second to end: then its connection is kept, and else it is closed', () => {
  const kept = begun()
  kept.connection.whole()
  kept.connection.release(kept.clock)
  kept.clock.advance(999)
  kept.connection.ended()
  kept.clock.advance(10_000)
  assert.deepEqual([kept.done, kept.clock.pending], [[], 0])

  const late = begun()
  late.connection.whole()
  late.connection.release(late.clock)
  late.clock.advance(999)
  assert.deepEqual(late.done, [])
  late.clock.advance(1)
  assert.deepEqual(late.done, ['abort'])
})

test('a reply that is not whole is closed at once, and one that has ended is not', () => {
  const cut = begun()
  cut.connection.release(cut.clock)
  cut.connection.abort()
  assert.deepEqual([cut.done, cut.clock.pending], [['abort'], 0])

  const over = begun()
  over.connection.ended()
  over.connection.release(over.clock)
  assert.deepEqual(over.done, [])
})

test('the rest of a whole reply is read although its reader had paused', () => {
  const { connection, done, clock } = begun()
  connection.pause()
  connection.whole()
  connection.release(clock)
  assert.deepEqual(done, ['pause', 'resume'])
})

test('a pause, a stall and an abort from before the connection hold once it is there', () => {
  const paused = open()
  paused.connection.pause()
  assert.deepEqual([paused.connection.paused, paused.connection.used, paused.done], [true, false, []])
  paused.begin()
  assert.deepEqual([paused.connection.used, paused.done], [true, ['pause']])
  // A stall ends, and the reader has still paused.
  paused.connection.stall()
  paused.connection.unstall()
  assert.deepEqual(paused.done, ['pause', 'pause'])
  paused.connection.resume()
  assert.deepEqual([paused.connection.paused, paused.done], [false, ['pause', 'pause', 'resume']])

  const aborted = open()
  aborted.connection.abort()
  aborted.begin()
  assert.deepEqual(aborted.done, ['abort'])
})

test('a request that was lost with its connection begins anew on another one; one that was answered does not', () => {
  const { connection, begin, done } = begun()
  connection.lost()
  assert.equal(connection.used, false)
  connection.stall()
  assert.deepEqual(done, [])
  begin()
  connection.whole()
  connection.lost()
  assert.equal(connection.used, true)
})
