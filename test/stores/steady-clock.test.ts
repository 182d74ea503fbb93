/** Three days forth and back emptied the day's spend and filled every bucket. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { ManualClock, SteadyClock } from '../../core/tools/clock.ts'
import { advance, type Level } from '../../stores/limits/rules.ts'
import { bucket, DAY, MINUTE, T0 } from './kit.ts'

/** A machine whose wall clock can be set wrong. */
class Machine extends ManualClock {
  wrong = 0
  override now(): number {
    return super.now() + this.wrong
  }
  override mono(): number {
    return super.now() - T0 + 0.25
  }
}

const step = fc.record({
  wrong: fc.oneof(fc.constant(0), fc.integer({ min: -400 * DAY, max: 400 * DAY }), fc.constant(3 * DAY)),
  /** Below the time after which a step is believed. */
  stands: fc.integer({ min: 0, max: 29 * MINUTE }),
  right: fc.integer({ min: 0, max: 120 * MINUTE }),
})

test('steps that are taken back leave no trace: time is what it would be without them, and so are levels', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 10 }), steps => {
      const machine = new Machine(T0)
      const clock = new SteadyClock(machine)
      const cell = bucket('o:rpd', 1000, DAY)
      const level: Level = { used: 1000, part: 0, at: T0 }
      let right = T0
      const pass = (ms: number) => {
        machine.advance(ms)
        right += ms
        const now = clock.now()
        assert.ok(Math.abs(now - right) <= 2000, String(now - right))
        advance(cell, level, now)
        // One unit in 86.4 s: two seconds complete one more at most.
        assert.ok(level.used === 0 || Math.abs(1000 - level.used - (right - T0) / 86_400) <= 2)
      }
      for (const { wrong, stands, right: after } of steps) {
        machine.wrong = wrong
        pass(0)
        pass(stands)
        machine.wrong = 0
        pass(after)
      }
      assert.equal(clock.now(), right)
    }),
  )
})

test('small differences are followed at once; a step that stands half an hour is followed then', () => {
  const machine = new Machine(T0)
  const clock = new SteadyClock(machine)
  machine.wrong = 1500
  assert.equal(clock.now(), T0 + 1500)
  machine.wrong = 3 * DAY
  assert.equal(clock.now(), T0 + 1500)
  machine.advance(30 * MINUTE - 1)
  assert.equal(clock.now(), T0 + 1500 + 30 * MINUTE - 1)
  machine.advance(1)
  assert.equal(clock.now(), T0 + 3 * DAY + 30 * MINUTE)
  assert.ok(Number.isInteger(clock.now()))
})
