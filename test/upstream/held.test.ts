/**
 * Requests that find no backend while a trial runs: until when they are held, how they follow it, and what a backend that
 * is still sick gets of them.
 *
 * Before, all but the trial were refused for as long as its reply took: of twenty requests that came at once, a minute
 * after four seconds of faults, nineteen were 503 although the backend was well.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { ManualClock } from '../../core/tools/clock.ts'
import { Breaker } from '../../plugins/upstream/breaker.ts'
import { HELD_MS, Held, MAX_HELD } from '../../plugins/upstream/held.ts'

const OPTIONS = { failures: 5, error_rate: 0.5, window: 30_000, open_for: 15_000 }
const RUNS = { numRuns: 50, seed: 1 }

/** How a request ends at the backend, and when: milliseconds from when it is sent. */
interface Answer {
  well: boolean
  takes: number
  /** When the head of a stream of 200 comes. */
  head?: number
}
type Fate = 'running' | 'held' | 'served' | 'failed' | 'refused' | 'waited'

/** Sends requests as the gateway does where a model has one backend, with nothing else around it. */
class Bench {
  readonly clock = new ManualClock(1)
  readonly breaker = new Breaker(OPTIONS)
  readonly held = new Held(this.breaker)
  answer: Answer = { well: true, takes: 0 }
  /** When each was sent. */
  readonly sent: number[] = []
  inFlight = 0
  mostInFlight = 0

  ask(owner = 'a'): { fate: Fate; took: number } {
    const one = { fate: 'running' as Fate, took: 0 }
    const { clock, breaker, held } = this
    const began = clock.mono()
    const until = began + HELD_MS
    const end = (fate: Fate) => {
      one.fate = fate
      one.took = clock.mono() - began
    }
    const next = () => {
      const now = clock.mono()
      if (breaker.tryEnter(now, owner) || breaker.tryProbe(now, owner)) return send()
      if (!breaker.awaits(now, owner)) return end('refused')
      one.fate = 'held'
      held.wait(clock, owner, until - now, refused => (refused ? end('waited') : next()))
    }
    const send = () => {
      one.fate = 'running'
      const sent = clock.mono()
      this.sent.push(sent)
      this.mostInFlight = Math.max(this.mostInFlight, ++this.inFlight)
      const { well, takes, head } = this.answer
      if (head !== undefined)
        clock.setTimer(head, () => {
          breaker.headCame(owner, sent)
          held.told(clock.mono(), true)
        })
      clock.setTimer(takes, () => {
        this.inFlight--
        const now = clock.mono()
        end(well ? 'served' : 'failed')
        if (well) breaker.succeeded(now, owner, sent)
        else breaker.failed(now, owner, 'organization', sent, head !== undefined)
        held.told(now, well)
      })
    }
    next()
    return one
  }

  /** Faults close it; then it is quiet for this long. */
  close(quiet: number, answer: Answer = { well: false, takes: 50 }): void {
    this.answer = answer
    for (let i = 0; i < OPTIONS.failures; i++) {
      this.ask()
      this.clock.advance(answer.takes)
    }
    assert.equal(this.breaker.allows(this.clock.mono(), 'a'), false)
    this.clock.advance(quiet)
    this.sent.length = 0
    this.mostInFlight = 0
  }
}
const fates = (all: readonly { fate: Fate }[]) => {
  const counts: Partial<Record<Fate, number>> = {}
  for (const { fate } of all) counts[fate] = (counts[fate] ?? 0) + 1
  return counts
}
const burst = (b: Bench, n: number, owner = 'a') => Array.from({ length: n }, () => b.ask(owner))

test('of a burst behind an old fault all are served: one is the trial, and the others follow it in growing numbers', () => {
  for (const quiet of [60_000, 270_000]) {
    const b = new Bench()
    b.close(quiet)
    b.answer = { well: true, takes: 100 }
    const all = burst(b, 20)
    assert.deepEqual(fates(all), { running: 1, held: 19 })
    b.clock.advance(100)
    assert.ok(b.inFlight > 0 && b.inFlight < 5, `${b.inFlight} follow`)
    b.clock.advance(900)
    assert.deepEqual(fates(all), { served: 20 })
    assert.ok(b.mostInFlight < 20, `${b.mostInFlight} at once`)
    assert.deepEqual([b.held.size, b.held.inVain, b.clock.pending], [0, 0, 0])
  }
})

test('a burst at a backend that is still sick costs one request, and is refused with its fault', () => {
  const b = new Bench()
  b.close(60_000)
  b.answer = { well: false, takes: 50 }
  const all = burst(b, 20)
  b.clock.advance(50)
  assert.deepEqual([fates(all), b.sent.length], [{ failed: 1, refused: 19 }, 1])
})

test('the head of a stream of 200 lets the others follow, unless the faults came after such a head', () => {
  const answer = { well: true, takes: 8000, head: 100 }
  const b = new Bench()
  b.close(60_000)
  b.answer = answer
  const all = burst(b, 20)
  b.clock.advance(1000)
  assert.deepEqual([fates(all), b.sent.length], [{ running: 20 }, 20], 'before any of them is answered')
  assert.equal(b.breaker.allows(b.clock.mono(), 'nobody'), true)
  const late = new Bench()
  late.close(60_000, { well: false, takes: 200, head: 100 })
  late.answer = answer
  burst(late, 20)
  late.clock.advance(900)
  assert.equal(late.sent.length, 1)
})

test('a trial that runs for longer than any fault took lets more follow, each second twice as many; faults of silence do not', () => {
  const b = new Bench()
  b.close(60_000)
  b.answer = { well: true, takes: 60_000 }
  const all = burst(b, 20)
  const sent: number[] = []
  for (let s = 0; s < 5; s++) {
    b.clock.advance(1000)
    sent.push(b.sent.length)
  }
  // Whoever is held is looked at ten times a second, so it may be one less.
  assert.deepEqual(sent, [2, 4, 7, 13, 20])
  assert.deepEqual(fates(all), { running: 20 }, 'nobody waits for the first reply')
  const silent = new Bench()
  silent.close(60_000, { well: false, takes: 60_000 })
  silent.answer = { well: true, takes: 60_000 }
  const waiting = burst(silent, 20)
  silent.clock.advance(HELD_MS)
  assert.deepEqual(fates(waiting), { running: 10, waited: 10 }, 'one a second')
})

test('one that fails takes back what the others had: they follow a second apart again', () => {
  const b = new Bench()
  b.close(60_000)
  b.answer = { well: true, takes: 30_000 }
  b.ask()
  b.clock.advance(3500)
  assert.equal(b.breaker.tryProbe(b.clock.mono(), 'a'), true)
  b.clock.advance(300)
  assert.equal(b.breaker.tryProbe(b.clock.mono(), 'a'), true, 'eight a second by now')
  b.breaker.failed(b.clock.mono(), 'a', 'organization', b.clock.mono() - 100)
  assert.equal(b.breaker.awaits(b.clock.mono(), 'a'), false)
  b.clock.advance(699)
  assert.equal(b.breaker.tryProbe(b.clock.mono(), 'a'), false)
  b.clock.advance(301)
  assert.equal(b.breaker.tryProbe(b.clock.mono(), 'a'), true)
})

test('a trial whose client leaves is followed by one that is held, or all learn that they are refused', () => {
  const b = new Bench()
  b.close(20_000)
  const now = b.clock.mono()
  assert.equal(b.breaker.tryEnter(now, 'a'), true)
  b.answer = { well: true, takes: 100 }
  const all = burst(b, 3)
  assert.deepEqual(fates(all), { held: 3 })
  b.clock.advance(10)
  b.breaker.recordNeutral('a', now)
  b.held.told(b.clock.mono(), false)
  assert.deepEqual(fates(all), { running: 1, held: 2 })
})

test('what one organization waits for holds nobody else, and in a full line who has most gives room', () => {
  const b = new Bench()
  b.close(60_000)
  b.answer = { well: true, takes: 2000 }
  const all = burst(b, MAX_HELD + 3)
  assert.deepEqual(fates(all), { running: 1, held: MAX_HELD, waited: 2 })
  assert.equal(b.ask('b').fate, 'running', 'it is open to others')
})

test('a request from before a trial says nothing about it', () => {
  const b = new Bench()
  b.close(60_000)
  const before = b.clock.mono() - 1
  b.answer = { well: true, takes: 1000 }
  b.ask()
  b.breaker.headCame('a', before)
  b.breaker.failed(b.clock.mono(), 'a', 'organization', before)
  b.breaker.recordNeutral('a', before)
  assert.equal(b.breaker.awaits(b.clock.mono(), 'a'), true)
  assert.equal(b.ask().fate, 'held')
})

const load = (most: number) =>
  fc.array(fc.record({ after: fc.integer({ min: 0, max: 300 }), n: fc.integer({ min: 1, max: 30 }), who: fc.nat(2) }), {
    minLength: 20,
    maxLength: most,
  })

test('a sick backend gets one request a second and organization, however many wait, whatever its faults look like', () => {
  const fault = fc.oneof(
    fc.record({ well: fc.constant(false), takes: fc.integer({ min: 0, max: 900 }) }),
    fc.record({ well: fc.constant(false), takes: fc.constant(800), head: fc.constant(10) }),
  )
  fc.assert(
    fc.property(load(100), fault, (steps, answer) => {
      const b = new Bench()
      b.close(0, answer)
      for (const who of ['b', 'c'])
        while (b.breaker.allows(b.clock.mono(), who)) b.breaker.failed(b.clock.mono(), who, 'all')
      for (const { after, n, who } of steps) {
        burst(b, n, ['a', 'b', 'c'][who]!)
        b.clock.advance(after)
      }
      for (const [i, at] of b.sent.entries())
        assert.ok(b.sent.filter((other, j) => j >= i && other < at + 1000).length <= 3, `from ${at} on`)
    }),
    RUNS,
  )
})

test('nobody is refused while a backend is well and has answered a trial; and all that are held come to an end', () => {
  fc.assert(
    fc.property(
      load(60),
      fc.integer({ min: 0, max: 9000 }),
      fc.integer({ min: 1, max: 20_000 }),
      (steps, takes, quiet) => {
        const b = new Bench()
        b.close(quiet)
        b.answer = { well: true, takes }
        let answered = false
        const all: { fate: Fate; took: number }[] = []
        for (const { after, n } of steps) {
          const before = answered
          const some = burst(b, n)
          if (before) assert.deepEqual(fates(some).refused, undefined)
          all.push(...some)
          b.clock.advance(after)
          answered ||= all.some(({ fate }) => fate === 'served')
        }
        b.clock.advance(60_000)
        const { refused = 0, served = 0, waited = 0 } = fates(all)
        assert.equal(refused + served + waited, all.length)
        assert.equal(b.clock.pending, 0)
        assert.equal(waited, 0, 'before the longest wait')
        for (const { fate, took } of all) if (fate === 'served') assert.ok(took <= takes + HELD_MS)
      },
    ),
    RUNS,
  )
})
