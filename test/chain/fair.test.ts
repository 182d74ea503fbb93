/** Waiting that is fair between owners: in a queue, for places, and for turns of the event loop. */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { test } from 'node:test'
import { ManualClock } from '../../core/tools/clock.ts'
import { FairGate, FairQueue, FairTurns, RestingTurns } from '../../core/tools/fair.ts'
import { Gate } from '../../plugins/upstream/gate.ts'

test('owners take turns, and each one’s entries come in their order', () => {
  const queue = new FairQueue<string>()
  for (const item of ['a1', 'a2', 'a3', 'a4', 'b1', 'c1', 'b2']) queue.push(item[0]!, item)
  assert.deepEqual([queue.size, queue.longest, queue.waitingOf('b')], [7, 'a', 2])
  assert.equal(queue.delete('a', 'a2'), true)
  assert.equal(queue.delete('a', 'a2'), false)
  assert.equal(queue.pop('a'), 'a4')
  const order = Array.from({ length: 6 }, () => queue.shift())
  assert.deepEqual(order, ['a1', 'b1', 'c1', 'a3', 'b2', undefined])
  assert.deepEqual([queue.size, queue.longest], [0, undefined])
})

test('a place that one owner may not take goes to the next who may', async () => {
  const gate = new FairGate(3, 2)
  const order: string[] = []
  const enter = (owner: string) =>
    gate.enter(owner).then(leave => {
      order.push(owner)
      return leave
    })
  const [first] = await Promise.all([enter('a'), enter('a')])
  const third = enter('a')
  await enter('b')
  assert.deepEqual([order.join(' '), gate.running, gate.waiting], ['a a b', 3, 1])
  const gone = new AbortController()
  const left = gate.enter('c', gone.signal)
  gone.abort(new Error('left'))
  await assert.rejects(left, /left/)
  assert.equal(gate.waiting, 1)
  first!()
  await third
  assert.deepEqual([order.join(' '), gate.running, gate.waiting], ['a a b a', 3, 0])
})

test('slices of many large bodies of one owner: another’s slice waits for one of them', async () => {
  const turns = new FairTurns()
  const order: string[] = []
  const slice = (owner: string) => turns.next(owner).then(() => order.push(owner))
  const flood = Array.from({ length: 40 }, () => slice('flood'))
  await slice('victim')
  assert.deepEqual(order, ['flood', 'victim'])
  await Promise.all(flood)
  assert.equal(order.length, 41)
})

// A signal may live as long as a connection, and the listener would hold what has gone on.
test('a caller that has its place listens to its signal no longer', async () => {
  const gate = new FairGate(1)
  const leave = await gate.enter('a')
  const { signal } = new AbortController()
  const next = gate.enter('b', signal)
  assert.equal(getEventListeners(signal, 'abort').length, 1)
  leave()
  await next
  assert.equal(getEventListeners(signal, 'abort').length, 0)
})

// Four requests of one organization, each 13 ms in one piece, were one turn of 50 ms, and the next four followed at once.
test('after long work its owner rests for as many times as long, and nobody else does', async () => {
  const clock = new ManualClock()
  const turns = new RestingTurns(new FairTurns(), clock, 2)
  const order: string[] = []
  const work = async (owner: string, ms: number) => {
    await turns.next(owner)
    // What is awaited within the turn belongs to the work.
    await Promise.resolve()
    clock.advance(ms)
    order.push(owner)
  }
  const first = work('flood', 10)
  const second = work('flood', 10)
  await first
  await work('victim', 5)
  assert.deepEqual(order, ['flood', 'victim'])
  clock.advance(14)
  await new Promise(setImmediate)
  assert.deepEqual(order, ['flood', 'victim'], '10 ms of work ask for 20 of rest, of which 19 have passed')
  clock.advance(1)
  await second
  assert.deepEqual(order, ['flood', 'victim', 'flood'])
})

// The queue was one line: who filled it had every other organization refused.
test('a full queue for connections takes its room from the organization that has most in it', () => {
  const clock = new ManualClock()
  const gate = new Gate(1, 3, 1000)
  const seen: string[] = []
  const wait = (owner: string, name: string) =>
    gate.wait(clock, owner, refused => void seen.push(`${name} ${refused?.reason ?? 'goes'}`))
  assert.equal(gate.enter(), true)
  for (const name of ['a1', 'a2', 'a3']) wait('a', name)
  assert.equal(wait('a', 'a4'), null)
  wait('b', 'b1')
  assert.equal(wait('b', 'b2'), null)
  assert.deepEqual(seen, ['a4 full', 'a3 full', 'b2 full'])
  gate.leave()
  gate.leave()
  gate.leave()
  assert.deepEqual(seen.slice(3), ['a1 goes', 'b1 goes', 'a2 goes'])
  gate.leave()
  assert.deepEqual([gate.inFlight, gate.queued, gate.refused, clock.pending], [0, 0, 3, 0])
})
