import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { periodIndex, periodStart } from '../../core/canon/limits.ts'
import type { Cell } from '../../core/ports/store.ts'
import {
  admit,
  advance,
  correct,
  emptyLevel,
  fits,
  type Level,
  msUntilFits,
  stateOf,
} from '../../stores/limits/rules.ts'
import { bucket, DAY, MINUTE, slots, spend, T0 } from './kit.ts'

const level = (used: number, at = T0, part = 0): Level => ({ used, part, at })
const anyWindow = fc.constantFrom(MINUTE, DAY)
const anyCapacity = fc.oneof(
  fc.integer({ min: 1, max: 50 }),
  fc.integer({ min: 1, max: 1e7 }),
  fc.integer({ min: 1, max: 1e13 }),
)

test('[LIM-1] a bucket starts full, holds N and refills N per window, continuously', () => {
  const cell = bucket('o:rpm', 60)
  const l = level(0)
  const take = (now: number) => admit({ org: 'a', id: 'r', cells: [cell], amounts: [1], now }, [l])
  for (let i = 0; i < 60; i++) assert.equal(take(T0).admitted, true)
  const denied = take(T0)
  assert.deepEqual(denied, { admitted: false, denied: 0, horizonMs: 1000, states: [{ remaining: 0, resetMs: MINUTE }] })
  assert.equal(take(T0 + 999).admitted, false)
  assert.equal(take(T0 + 1000).admitted, true)
  assert.equal(take(T0 + 1000).admitted, false)
})

test('refill is the same in one step as in many, and equal to exact fractions', () => {
  fc.assert(
    fc.property(
      anyCapacity,
      anyWindow,
      fc.nat({ max: 1e13 }),
      fc.array(fc.nat({ max: 3 * DAY }), { minLength: 1, maxLength: 8 }),
      (capacity, windowMs, used, steps) => {
        const cell = bucket('o:x', capacity, windowMs)
        const stepped = level(used)
        let now = T0
        for (const step of steps) advance(cell, stepped, (now += step))
        const once = level(used)
        advance(cell, once, now)
        // In windowMs-ths of a unit, with integers of any size.
        const exact = BigInt(used) * BigInt(windowMs) - BigInt(now - T0) * BigInt(capacity)
        const expected = exact <= 0n ? 0n : exact
        for (const l of [stepped, once]) {
          assert.ok(Number.isSafeInteger(l.used) && Number.isSafeInteger(l.part) && l.part >= 0 && l.part < windowMs)
          assert.equal(BigInt(l.used) * BigInt(windowMs) - BigInt(l.part), expected)
        }
      },
    ),
    { numRuns: 500 },
  )
})

test('[ERR-4] a bucket’s wait is exact: the amount fits after it and not a millisecond before', () => {
  fc.assert(
    fc.property(anyCapacity, anyWindow, fc.nat(), fc.nat(), fc.nat(), (capacity, windowMs, u, a, p) => {
      const cell = bucket('o:x', capacity, windowMs)
      const amount = 1 + (a % capacity)
      const used = capacity - amount + 1 + (u % capacity)
      const l = level(used, T0, p % windowMs)
      assert.equal(fits(cell, l, amount), false)
      const ms = msUntilFits(cell, l, amount, T0)
      assert.ok(Number.isInteger(ms) && ms >= 1)
      const before = { ...l }
      advance(cell, before, T0 + ms - 1)
      assert.equal(ms > 1 && fits(cell, before, amount), false)
      const after = { ...l }
      advance(cell, after, T0 + ms)
      assert.equal(fits(cell, after, amount), true)
    }),
    { numRuns: 500 },
  )
})

test('[LIM-9] a bucket is full again after its reset', () => {
  fc.assert(
    fc.property(anyCapacity, anyWindow, fc.nat(), (capacity, windowMs, u) => {
      const used = 1 + (u % (100 * capacity))
      const cell = bucket('o:x', capacity, windowMs)
      const l = level(used)
      const { resetMs, remaining } = stateOf(cell, l)
      assert.equal(remaining, Math.max(0, capacity - used))
      advance(cell, l, T0 + resetMs + 1)
      assert.equal(l.used, 0)
    }),
  )
})

test('what is above the whole capacity never fits and waits at least a window', () => {
  const cell = bucket('o:tpm', 100)
  assert.equal(msUntilFits(cell, level(0), 101, T0), MINUTE)
  assert.equal(msUntilFits(bucket('o:rpm', 0), level(0), 1, T0), MINUTE)
  const admission = admit({ org: 'a', id: 'r', cells: [cell], amounts: [101], now: T0 }, [level(0)])
  assert.equal(admission.admitted, false)
})

// A window was as long as the wait of a request above the capacity, however deep the bucket was in debt: for hours a
// client was told to come back after a minute.
test('[ERR-4] what is above the capacity of a bucket in debt waits until that is full', () => {
  const cell = bucket('o:tpm', 100)
  assert.equal(msUntilFits(cell, level(350), 101, T0), 3.5 * MINUTE)
  assert.equal(
    msUntilFits(cell, level(350, T0, MINUTE / 2), 101, T0),
    3.5 * MINUTE - 300,
    'half a unit is refilled already',
  )
  assert.equal(msUntilFits(cell, level(99), 101, T0), MINUTE)
  assert.equal(msUntilFits(bucket('o:rpm', 0), level(350), 1, T0), MINUTE)
})

test('[LIM-8] the wait of spend is until the next UTC day or the first of the next UTC month', () => {
  const at = (text: string) => Date.parse(text)
  const wait = (period: 'day' | 'month', now: number) => {
    const cell = spend('o:spend', 100, period)
    const l = level(100, periodIndex(period, now))
    return now + msUntilFits(cell, l, 1, now)
  }
  assert.equal(wait('day', at('2026-11-21T10:00:00Z')), at('2026-11-22T00:00:00Z'))
  assert.equal(wait('day', at('2026-12-31T23:59:59.999Z')), at('2027-01-01T00:00:00Z'))
  assert.equal(wait('month', at('2026-11-21T10:00:00Z')), at('2026-12-01T00:00:00Z'))
  assert.equal(wait('month', at('2026-12-31T23:59:59.999Z')), at('2027-01-01T00:00:00Z'))
  assert.equal(wait('month', at('2028-02-29T12:00:00Z')), at('2028-03-01T00:00:00Z'))
})

test('periods are consecutive and hold their instants', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 4102444800000 }),
      fc.constantFrom('day' as const, 'month' as const),
      (now, period) => {
        const index = periodIndex(period, now)
        assert.ok(periodStart(period, index) <= now && now < periodStart(period, index + 1))
        assert.equal(periodIndex(period, periodStart(period, index + 1)), index + 1)
        assert.equal(periodIndex(period, periodStart(period, index + 1) - 1), index)
      },
    ),
  )
})

test('a spend level ends with its period; a clock that is behind keeps the newer one', () => {
  const cell = spend('o:spend', 100)
  const l = level(70, periodIndex('day', T0))
  advance(cell, l, T0 - DAY)
  assert.equal(l.used, 70)
  advance(cell, l, T0 + DAY)
  assert.deepEqual([l.used, l.at], [0, periodIndex('day', T0 + DAY)])
  // Three days back and forth emptied the day's spend.
  const there = level(70, periodIndex('day', T0))
  for (const days of [-3, 0, -30, 0]) advance(cell, there, T0 + days * DAY)
  assert.deepEqual([there.used, there.at], [70, periodIndex('day', T0)])
  // Written by a clock that was weeks ahead and has been corrected.
  const ahead = level(70, periodIndex('day', T0) + 40)
  advance(cell, ahead, T0)
  assert.deepEqual([ahead.used, ahead.at], [70, periodIndex('day', T0)])
})

test('a clock that steps back refills nothing, and a level from the far future recovers', () => {
  const cell = bucket('o:rpm', 60)
  const l = level(60)
  advance(cell, l, T0 - 30_000)
  assert.deepEqual(l, level(60))
  advance(cell, l, T0 + 1000)
  assert.equal(l.used, 59)
  const stray = level(60, T0 + 400 * DAY)
  advance(cell, stray, T0)
  advance(cell, stray, T0 + 1000)
  assert.equal(stray.used, 59)
})

test('[LIM-2] a denial consumes nothing, and names the cell with the longest horizon', () => {
  const cells = [
    bucket('o:rpm', 10),
    slots('o:concurrency', 1),
    bucket('o:tpd', 1000, DAY, 'tokens'),
    spend('o:spend', 50),
  ]
  const levels = [level(10), level(1), level(900), level(0, periodIndex('day', T0))]
  const admission = admit({ org: 'a', id: 'r', cells, amounts: [1, 1, 200, 1], now: T0 }, levels)
  assert.equal(admission.admitted, false)
  assert.equal(!admission.admitted && admission.denied, 2)
  assert.equal(!admission.admitted && admission.horizonMs, 8_640_000)
  assert.deepEqual(
    levels.map(l => l.used),
    [10, 1, 900, 0],
  )
})

test('[LIM-4] settlement corrects to the final figure; use beyond the reserve becomes debt', () => {
  const cell = bucket('o:tpm', 100, MINUTE, 'tokens')
  const l = level(80)
  correct(cell, l, 50, 20, 0)
  assert.equal(l.used, 50)
  correct(cell, l, 50, 160, 0)
  assert.equal(l.used, 160)
  assert.equal(stateOf(cell, l).remaining, 0)
  assert.equal(fits(cell, l, 1), false)
  // What already flowed back is not given back twice.
  const drained = level(10)
  correct(cell, drained, 50, 0, 0)
  assert.equal(drained.used, 0)
  const slot = slots('o:concurrency', 5)
  const held = level(3)
  correct(slot, held, 1, 1, 0)
  assert.equal(held.used, 2)
  const money = spend('o:spend', 100)
  const today = level(40, 20_000)
  correct(money, today, 30, 5, 20_000)
  assert.equal(today.used, 15)
  correct(money, today, 30, 5, 19_999)
  assert.equal(today.used, 15)
})

test('a 0.00 cap denies exposure above zero and passes what is free (decisions 21)', () => {
  const cell = spend('o:spend', 0)
  const l = level(0, periodIndex('day', T0))
  assert.equal(fits(cell, l, 0), true)
  assert.equal(fits(cell, l, 1), false)
  // Over its cap by a settlement: free requests still pass.
  assert.equal(fits(cell, level(5, l.at), 0), true)
})

test('a capacity that shrinks and grows again neither loses nor invents what was used', () => {
  const wide = bucket('o:rpm', 100)
  const narrow = bucket('o:rpm', 10)
  const l = level(20)
  advance(narrow, l, T0)
  assert.equal(fits(narrow, l, 1), false)
  assert.equal(stateOf(narrow, l).remaining, 0)
  advance(wide, l, T0)
  assert.equal(stateOf(wide, l).remaining, 80)
})

test('over any span, no more than N plus the refill of that span is admitted', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 20 }),
      fc.array(fc.tuple(fc.nat({ max: 20_000 }), fc.integer({ min: 1, max: 5 })), { maxLength: 60 }),
      (capacity, steps) => {
        const cell: Cell = bucket('o:rpm', capacity)
        const l = emptyLevel()
        l.at = T0
        let now = T0
        let taken = 0
        for (const [wait, amount] of steps) {
          now += wait
          if (admit({ org: 'a', id: 'r', cells: [cell], amounts: [amount], now }, [l]).admitted) taken += amount
          assert.ok(taken * MINUTE <= capacity * MINUTE + (now - T0) * capacity)
        }
      },
    ),
  )
})
