/**
 * The breaker as a state machine, over random sequences: when it may close a backend, and to whom, and that who finds
 * no other backend gets through once a second. How it looks from outside: test/e2e/upstreams.test.ts,
 * test/e2e/tenants-breaker.test.ts.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Breaker } from '../../plugins/upstream/breaker.ts'
import { Circuit } from '../../plugins/upstream/circuit.ts'

const OPTIONS = { failures: 5, error_rate: 0.5, window: 30_000, open_for: 15_000 }
const RUNS = { numRuns: 400, seed: 1 }
const SECOND = 1000

/** Before, five failures in a row opened it, whatever else was in the window. */
test('a circuit opens when count and rate are met, and at no other time', () => {
  const attempt = fc.record({
    after: fc.integer({ min: 0, max: 2000 }),
    times: fc.integer({ min: 1, max: 20 }),
    ok: fc.boolean(),
  })
  fc.assert(
    fc.property(fc.array(attempt, { maxLength: 60, size: 'max' }), attempts => {
      const circuit = new Circuit(OPTIONS)
      let now = 1
      let inARow = 0
      let seen: { at: number; ok: boolean }[] = []
      const since = (ms: number, ok: boolean) => seen.filter(each => each.ok === ok && each.at > now - ms).length
      for (const { after, times, ok } of attempts) {
        now += after
        for (let i = 0; i < times; i++) {
          seen.push({ at: now, ok })
          inARow = ok ? 0 : inARow + 1
          if (ok) assert.equal(circuit.succeeded(now), false)
          else {
            // The window moves in tenths, so what is in its oldest one may count or not.
            const { window } = OPTIONS
            const met = (failed: number, good: number) =>
              Math.max(failed, inARow) >= OPTIONS.failures && failed >= OPTIONS.error_rate * (failed + good)
            const may = met(since(window, false), since(window * 0.9, true))
            const must = met(since(window * 0.9, false), since(window, true))
            const opened = circuit.failed(now)
            assert.ok(may || !opened, 'opened too early')
            assert.ok(opened || !must, 'did not open')
            if (!opened) continue
            now += OPTIONS.open_for
            assert.equal(circuit.succeeded(now), true)
            seen = []
            inARow = 0
          }
        }
      }
    }),
    RUNS,
  )
})

test('it opens for a second, twice as long after each trial that fails, and never longer than open_for', () => {
  const circuit = new Circuit(OPTIONS)
  let now = 1
  for (let i = 0; i < OPTIONS.failures; i++) circuit.failed(now)
  for (const ms of [1000, 2000, 4000, 8000, 15_000, 15_000]) {
    assert.equal(circuit.outFor(now), ms)
    // Neither what was sent before it opened nor a probe makes that longer.
    circuit.failed(now)
    now += ms
    assert.ok(circuit.entered(now), 'the trial')
    circuit.failed(now)
  }
  now += 15_000
  circuit.entered(now)
  assert.ok(circuit.succeeded(now))
  for (let i = 0; i < OPTIONS.failures; i++) circuit.failed(now)
  assert.equal(circuit.outFor(now), 1000, 'anew')
})

test('failures in a row open it however long they take, and begin the slow start even where the rate is not met', () => {
  const slow = new Circuit(OPTIONS)
  // Each ends a wait of 90 s, so there is never more than one in the window.
  for (let i = 1; i < OPTIONS.failures; i++) assert.equal(slow.failed(i * 90_000), false)
  assert.equal(slow.failed(OPTIONS.failures * 90_000), true)
  const busy = new Circuit(OPTIONS)
  for (let i = 0; i < 200; i++) busy.succeeded(1000)
  for (let i = 1; i < OPTIONS.failures; i++) busy.failed(1000)
  assert.equal(busy.warm(1000, 0.99), true)
  busy.failed(1000)
  assert.equal(busy.state(1000), 'closed')
  assert.deepEqual([busy.warm(1000, 0.09), busy.warm(1000, 0.11)], [true, false])
  assert.equal(busy.warm(1000 + OPTIONS.open_for, 0.99), true)
})

test('a circuit that has closed again takes a tenth at once, all after another open_for, and in between what is between', () => {
  const circuit = new Circuit(OPTIONS)
  for (let i = 0; i < OPTIONS.failures; i++) circuit.failed(1)
  const closed = 1001
  circuit.entered(closed)
  assert.equal(circuit.succeeded(closed), true)
  for (const [after, share] of [
    [0, 0.1],
    [OPTIONS.open_for / 2, 0.55],
    [OPTIONS.open_for * 0.9, 0.91],
  ] as const) {
    const now = closed + after
    assert.deepEqual([circuit.warm(now, share - 0.01), circuit.warm(now, share + 0.01)], [true, false])
  }
  assert.equal(circuit.warm(closed + OPTIONS.open_for, 0.99), true)
})

test('a backend is slow to start for all after failures to connect, and after its own for an organization alone', () => {
  const told = (breaker: Breaker) => ['a', 'b'].map(organization => breaker.warm(5000, organization, 0.5))
  const recovered = (fails: (breaker: Breaker) => void) => {
    const breaker = new Breaker(OPTIONS)
    for (let i = 0; i < OPTIONS.failures; i++) {
      breaker.tryEnter(1000, 'a')
      fails(breaker)
    }
    assert.equal(breaker.allows(1001, 'a'), false)
    assert.ok(breaker.tryEnter(4000, 'a'), 'the trial')
    assert.ok(breaker.succeeded(4000, 'a', 4000))
    return breaker
  }
  assert.deepEqual(told(new Breaker(OPTIONS)), [true, true])
  assert.deepEqual(told(recovered(breaker => breaker.failed(1000, 'a', 'all'))), [false, false])
  assert.deepEqual(told(recovered(breaker => breaker.failed(1000, 'a', 'organization'))), [false, true])
})

// ---- a backend that is the only one ---------------------------------------------------------------------------------

const NAMES = ['a', 'b', 'c']
const ENDS = ['served', 'fault', 'unreachable', 'pause', 'refused'] as const
type End = (typeof ENDS)[number]

interface Step {
  /** Milliseconds since the one before. */
  after: number
  who: number
  end: End
  /** Milliseconds until it ends so. */
  takes: number
}

/** Sends requests as the gateway does where a model has one backend. */
class Single {
  readonly breaker = new Breaker(OPTIONS)
  now = 1
  /** By organization: when one was sent, or ended so that the backend may have been closed to it. */
  readonly moved = new Map<string, number>()
  movedLast = 1
  #running: { name: string; end: End; began: number; ends: number }[] = []

  /** @returns whether it was sent */
  send(name: string, { after, end, takes }: Omit<Step, 'who'>): boolean {
    this.#advance(after)
    if (!this.breaker.tryEnter(this.now, name) && !this.breaker.tryProbe(this.now, name)) return false
    this.#move(name)
    this.#running.push({ name, end, began: this.now, ends: this.now + takes })
    return true
  }

  #move(name: string): void {
    this.moved.set(name, this.now)
    this.movedLast = this.now
  }

  #advance(ms: number): void {
    const to = this.now + ms
    for (const each of this.#running.sort((a, b) => a.ends - b.ends)) {
      if (each.ends > to) break
      this.now = each.ends
      this.#end(each)
    }
    this.#running = this.#running.filter(each => each.ends > to)
    this.now = to
  }

  #end({ name, end, began }: { name: string; end: End; began: number }): void {
    const { breaker, now } = this
    if (end === 'served') return void breaker.succeeded(now, name, began)
    if (end !== 'unreachable') breaker.reached(now)
    if (end === 'refused') return breaker.recordNeutral(name)
    this.#move(name)
    if (end === 'unreachable') breaker.failed(now, name, 'all')
    else if (end === 'fault') breaker.failed(now, name, 'organization')
    else {
      breaker.recordNeutral(name)
      breaker.pause(now, name, 20_000, 'capacity')
    }
  }
}

const steps = (ends: readonly End[], organizations: number, longest: number) =>
  fc.array(
    fc.record<Step>({
      after: fc.integer({ min: 0, max: 500 }),
      who: fc.nat(organizations - 1),
      end: fc.constantFrom(...ends),
      takes: fc.integer({ min: 0, max: longest }),
    }),
    { minLength: 20, maxLength: 400, size: 'max' },
  )

test('who finds no other backend is refused for less than a second since the last request or its end', () => {
  for (const organizations of [1, 2, 3])
    fc.assert(
      fc.property(steps(ENDS, organizations, 5000), fc.boolean(), (all, dead) => {
        const single = new Single()
        for (const { who, ...step } of all) {
          const name = NAMES[who]!
          if (single.send(name, dead && step.end === 'served' ? { ...step, end: 'fault' } : step)) continue
          // Whether it is closed to one that has never called.
          const toAll = !single.breaker.allows(single.now, 'nobody')
          const last = toAll ? single.movedLast : (single.moved.get(name) ?? 0)
          assert.ok(single.now - last < SECOND, `${name} waits since ${single.now - last} ms`)
          const { waitMs } = single.breaker.refusal(single.now, name)
          assert.ok(waitMs >= 0 && waitMs <= 20_000)
        }
      }),
      RUNS,
    )
})

test('a dead backend gets a request a second, and one more of who has met nothing yet', () => {
  for (const [organizations, most] of [
    [1, 1],
    [3, 2],
  ] as const)
    for (const end of ['fault', 'unreachable', 'pause'] as const)
      fc.assert(
        fc.property(steps([end], organizations, 0), all => {
          const single = new Single()
          let closedAt: number | null = null
          let sent = 0
          for (const { who, ...step } of all) {
            const passed = single.send(NAMES[who]!, { ...step, after: Math.ceil(step.after / 10) })
            const closed = !single.breaker.allows(single.now, organizations === 1 ? 'a' : 'nobody')
            if (closedAt === null) {
              if (closed) closedAt = single.now
            } else if (passed) sent++
          }
          if (closedAt === null) return
          const seconds = Math.floor((single.now - closedAt) / SECOND) + 1
          assert.ok(sent <= most * seconds, `${sent} in ${seconds} s`)
        }),
        RUNS,
      )
})

test('what one organization meets never closes a backend to another one', () => {
  fc.assert(
    fc.property(steps(['fault', 'pause', 'refused', 'served'], 2, 3000), all => {
      const single = new Single()
      for (const { who, ...step } of all) {
        const sent = single.send(NAMES[who]!, who === 0 ? step : { ...step, end: 'served' })
        assert.ok(sent || who === 0, 'the other one was refused')
        assert.ok(single.breaker.allows(single.now, 'nobody'))
      }
    }),
    RUNS,
  )
})

/** It was not told, so that the dashboard said neither since when nor why an organization was refused. */
test('where it is closed to some organizations alone, it tells why since the first of them and until the last', () => {
  const breaker = new Breaker(OPTIONS)
  const meets = (now: number, organization: string, requestId: string) => {
    breaker.succeeded(now, 'well', now)
    for (let i = 0; i < OPTIONS.failures + 1; i++)
      if (breaker.failed(now, organization, 'organization'))
        breaker.leftOut(now, organization, 'organization', {
          ...{ why: 'failures', code: 'upstream_server_error', requestId, since: now },
        })
  }
  breaker.tryEnter(0, 'well')
  breaker.tryEnter(0, 'a')
  assert.deepEqual([breaker.closedTo(0), breaker.out(0)], [[], undefined])
  meets(0, 'a', 'req_a')
  meets(400, 'b', 'req_b')
  assert.deepEqual([breaker.state(500), breaker.closedTo(500)], ['closed', ['a', 'b']])
  const out = breaker.out(500)!
  assert.deepEqual([out.scope, out.reason.requestId, out.reason.since, out.forMs], ['organization', 'req_a', 0, 900])
  assert.deepEqual([breaker.closedTo(1000), breaker.out(1000)!.reason.requestId], [['b'], 'req_b'])
})

test('the longest pause that was asked for counts, for the client longer than it is kept, and the next one begins anew', () => {
  const breaker = new Breaker(OPTIONS)
  breaker.pause(1000, 'a', 90_000, 'capacity')
  breaker.pause(2000, 'a', 1000, 'capacity')
  assert.equal(breaker.refusal(4000, 'a').waitMs, 87_000)
  assert.equal(breaker.paused(4000, 'a'), 57_000)
  assert.equal(breaker.allows(61_000, 'a'), true)
  breaker.pause(62_000, 'a', 5000, 'fault')
  assert.deepEqual(breaker.refusal(63_000, 'a'), { waitMs: 4000, cause: 'fault' })
})

test('a pause is for all from the second organization on, unless another one was served since; the first is told what is left', () => {
  const breaker = new Breaker(OPTIONS)
  assert.equal(breaker.pause(1000, 'a', 40_000, 'capacity'), 'organization')
  assert.equal(breaker.allows(2000, 'b'), true)
  assert.deepEqual(breaker.refusal(2000, 'a'), { waitMs: 39_000, cause: 'capacity' })
  // It was sent before the pause, so it says nothing of it.
  breaker.succeeded(2000, 'c', 1000)
  assert.equal(breaker.pause(3000, 'b', 10_000, 'fault'), 'all')
  assert.deepEqual(breaker.refusal(3100, 'c'), { waitMs: 900, cause: 'fault' })
  assert.equal(breaker.tryProbe(4000, 'c'), true)
  assert.equal(breaker.succeeded(4200, 'c', 4000), 'all')
  assert.equal(breaker.allows(4300, 'nobody'), true)
  // Both have been disproved, for four times open_for.
  assert.equal(breaker.pause(50_000, 'a', 1000, 'capacity'), 'organization')
  assert.equal(breaker.pause(50_000, 'b', 1000, 'capacity'), 'organization')
  assert.equal(breaker.pause(50_000, 'd', 1000, 'capacity'), 'organization')
  assert.equal(breaker.allows(50_000, 'c'), true)
  assert.equal(breaker.pause(64_200, 'a', 1000, 'capacity'), 'organization')
  assert.equal(breaker.pause(64_200, 'b', 1000, 'capacity'), 'all')
})

test('who was disproved alone pauses nobody else with the next one that is not', () => {
  const breaker = new Breaker(OPTIONS)
  breaker.pause(1000, 'a', 40_000, 'capacity')
  breaker.succeeded(3000, 'c', 2000)
  assert.equal(breaker.pause(4000, 'b', 40_000, 'capacity'), 'organization')
  assert.equal(breaker.pause(5000, 'a', 40_000, 'capacity'), null, 'its pause runs, and is its own')
  assert.equal(breaker.allows(5000, 'c'), true)
  assert.equal(breaker.pause(6000, 'c', 10_000, 'capacity'), 'all', 'two that are not disproved')
  assert.equal(breaker.allows(15_999, 'd'), false)
  assert.equal(breaker.allows(16_000, 'd'), true, 'as long as both say')
})

test('while a backend is closed to all, those that keep failing leave a probe to others, and never all of them', () => {
  const breaker = new Breaker({ ...OPTIONS, failures: 4 })
  const now = 100_000
  for (const name of ['a', 'b', 'a', 'b']) {
    assert.equal(breaker.tryEnter(now, name), true)
    breaker.failed(now, name, 'organization')
  }
  for (const name of ['a', 'b', 'c']) assert.equal(breaker.tryProbe(now + 999, name), false)
  // Half-open: nor is the trial for those that failed.
  assert.equal(breaker.tryEnter(now + 1000, 'a'), false)
  assert.equal(breaker.tryProbe(now + 1000, 'a'), true)
  assert.equal(breaker.tryProbe(now + 1000, 'b'), false)
  assert.equal(breaker.tryProbe(now + 1000, 'c'), true)
  assert.equal(breaker.tryProbe(now + 1999, 'd'), false)
})

test('the first probe passes a second after the backend was closed, to whomever', () => {
  const closes: Record<string, (breaker: Breaker) => void> = {
    faults: breaker => {
      for (let i = 0; i < OPTIONS.failures; i++) breaker.failed(5000, 'a', 'organization')
    },
    'faults, the last of which closes it': breaker => {
      for (const now of [1000, 2000, 3000, 4000, 5000]) breaker.failed(now, 'a', 'organization')
    },
    'no connection': breaker => {
      for (let i = 0; i < OPTIONS.failures; i++) breaker.failed(5000, 'a', 'all')
    },
    'a pause': breaker => breaker.pause(5000, 'a', 20_000, 'capacity'),
    'a pause for all': breaker => {
      breaker.pause(5000, 'b', 20_000, 'capacity')
      breaker.pause(5000, 'c', 20_000, 'capacity')
    },
  }
  for (const [name, close] of Object.entries(closes)) {
    const breaker = new Breaker(OPTIONS)
    breaker.tryEnter(1000, 'a')
    close(breaker)
    assert.equal(breaker.tryProbe(5999, 'a'), false, name)
    assert.equal(breaker.tryProbe(6000, 'a'), true, name)
  }
})
