/**
 * What a limit tells its caller, as pure functions over any state: advertised waits, the three places that carry them,
 * headers.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { errorMembers, GatewayError, retryHeaders, setRetryAfter, withJitter } from '../../core/canon/errors.ts'
import type { Cell, CellState } from '../../core/ports/store.ts'
import { denialHeaders, duration, limitHeaders } from '../../plugins/admission/headers.ts'
import { statesAfter } from '../../plugins/admission/left.ts'
import { admit, advance, correct, emptyLevel, stateOf } from '../../stores/limits/rules.ts'
import { bucket, DAY, everyDimension, MINUTE, T0 } from '../stores/kit.ts'

const MONTH = 31 * 86_400_000
const horizon = fc.oneof(
  fc.double({ min: 0, max: 70_000, noNaN: true }),
  fc.double({ min: 0, max: MONTH, noNaN: true }),
  fc.integer({ min: 59_990, max: 60_010 }),
)
const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })

test('[ERR-4] an advertised wait is never shorter than computed, longer by at most a quarter and 30 s, and up to 60 s stays so', () => {
  fc.assert(
    fc.property(horizon, random, (ms, r) => {
      const advertised = withJitter(ms, r)
      const computed = Math.max(1, ms)
      assert.ok(advertised >= computed)
      assert.ok(advertised - computed <= Math.min(computed / 4, 30_000) + 1e-6)
      if (computed <= 60_000) assert.ok(advertised <= 60_000)
    }),
    { numRuns: 2000 },
  )
})

test('[ERR-4] waits spread over all of their range, however long they are', () => {
  for (const ms of [1000, 60_001, 119_000, 3_600_000, MONTH])
    for (const r of [0, 0.25, 0.5, 0.999])
      assert.equal(withJitter(ms, r), Math.min(ms + r * Math.min(ms / 4, 30_000), ms <= 60_000 ? 60_000 : Infinity))
})

test('[ERR-3] [ERR-10] header, milliseconds and details agree to the digit; Retry-After is that rounded up', () => {
  fc.assert(
    fc.property(horizon, random, (ms, r) => {
      const error = new GatewayError('requests_limit_exceeded', { message: 'x', horizonMs: ms })
      setRetryAfter(error, () => r)
      // Only the first time counts: a frame that is built later says the same.
      setRetryAfter(error, () => 1 - r)
      const headers = retryHeaders(error)
      const { details } = errorMembers(error, 'req_1') as { details: { retry_after_seconds: number; retry?: string } }
      const advertised = Number(headers['retry-after-ms'])
      assert.ok(advertised >= ms && advertised <= Math.max(withJitter(ms, r) + 0.001, 60_000 * Number(ms <= 60_000)))
      if (ms <= 60_000) assert.ok(advertised <= 60_000)
      assert.equal(Math.round(details.retry_after_seconds * 1e6), Math.round(advertised * 1000))
      assert.equal(Number(headers['retry-after']), Math.max(1, Math.ceil(details.retry_after_seconds)))
      assert.equal(headers['x-should-retry'], ms > 60_000 ? 'false' : undefined)
      // Beside `retryable: true` the header alone would read as "never".
      assert.equal(details.retry, ms > 60_000 ? 'later' : undefined)
    }),
    { numRuns: 2000 },
  )
})

test('[LIM-9] of each limited dimension the cell with the least share left is shown; nothing of the others', () => {
  const all = everyDimension(1000)
  const state = fc.record({ remaining: fc.integer({ min: 0, max: 1000 }), resetMs: fc.nat({ max: 86_400_000 }) })
  fc.assert(
    fc.property(
      fc.array(fc.boolean(), { minLength: all.length, maxLength: all.length }),
      fc.array(state, { minLength: all.length, maxLength: all.length }),
      (present, states) => {
        const cells = all.filter((_, i) => present[i])
        const seen: CellState[] = states.filter((_, i) => present[i])
        const headers = new Map<string, string>()
        limitHeaders(cells, seen, headers)
        if (cells.length === 0) return assert.equal(headers.size, 0)
        assert.equal(headers.get('x-ratelimit-scope'), 'org')
        const rates = ['requests', 'tokens', 'input-tokens', 'output-tokens'].flatMap(name => [name, `${name}-day`])
        for (const name of [...rates, 'concurrency']) {
          const own = cells.flatMap((cell, i) => {
            const family = cell.dimension.replace('_', '-') + (cell.windowMs === 86_400_000 ? '-day' : '')
            return family === name ? [{ cell, ...seen[i]! }] : []
          })
          if (own.length === 0) {
            for (const part of ['limit', 'remaining', 'reset'])
              assert.equal(headers.has(`x-ratelimit-${part}-${name}`), false)
            continue
          }
          const least = Math.min(...own.map(({ cell, remaining }) => remaining / cell.capacity))
          const shown = own.find(({ cell, remaining }) => remaining / cell.capacity === least)!
          assert.equal(headers.get(`x-ratelimit-limit-${name}`), String(shown.cell.capacity))
          assert.equal(headers.get(`x-ratelimit-remaining-${name}`), String(shown.remaining))
          assert.equal(
            headers.get(`x-ratelimit-reset-${name}`),
            name === 'concurrency' ? undefined : duration(shown.resetMs),
          )
        }
        const spends = cells.some(cell => cell.dimension === 'spend')
        assert.equal(headers.has('x-ratelimit-limit-spend'), spends)
        assert.equal(headers.has('x-ratelimit-remaining-spend'), spends)
        assert.equal(headers.has('x-ratelimit-reset-spend'), false)
      },
    ),
    { numRuns: 500 },
  )
})

test('[LIM-9] a reset is whole milliseconds below a second, else whole seconds, and never early', () => {
  fc.assert(
    fc.property(fc.oneof(fc.nat({ max: 3000 }), fc.nat({ max: MONTH })), ms => {
      const [, number, unit] = /^(\d+)(ms|s)$/.exec(duration(ms))!
      const shown = Number(number) * (unit === 's' ? 1000 : 1)
      assert.ok(shown >= ms && shown - ms < (unit === 's' ? 1000 : 1))
      assert.equal(unit, ms < 1000 ? 'ms' : 's')
    }),
  )
})

test('[LIM-5] a denial tells the cell that denies; by a limit per day the tightest minute of its dimension as well', () => {
  const cells = [bucket('o:rpm', 60), bucket('k:k:rpm', 30), bucket('o:rpd', 100, DAY), bucket('k:k:rpd', 50, DAY)]
  cells.push(bucket('o:tpm', 9, MINUTE, 'tokens'))
  const states = [30, 10, 5, 0, 9].map(remaining => ({ remaining, resetMs: 500 }))
  const told = (denied: number) => {
    const headers = new Map<string, string>()
    denialHeaders(cells, states, denied, headers)
    return Object.fromEntries([...headers].filter(([name]) => !name.includes('reset')))
  }
  const minute = { 'x-ratelimit-limit-requests': '30', 'x-ratelimit-remaining-requests': '10' }
  assert.deepEqual(told(2), {
    ...minute,
    'x-ratelimit-limit-requests-day': '100',
    'x-ratelimit-remaining-requests-day': '5',
  })
  assert.deepEqual(told(1), minute)
})

// An engine settles a moment after the reply was sent; what the reply told must be what the engine then has.
test('[LIM-9] what a whole reply says is left is what its settlement leaves, to the millisecond of refill and never more', () => {
  const buckets = fc.record({
    kind: fc.constant('bucket' as const),
    capacity: fc.oneof(fc.integer({ min: 1, max: 1000 }), fc.integer({ min: 1000, max: 1e9 })),
    windowMs: fc.constantFrom(MINUTE, DAY),
  })
  const spends = fc.record({
    kind: fc.constant('spend' as const),
    capacity: fc.integer({ min: 1, max: 1e12 }),
    period: fc.constantFrom('day' as const, 'month' as const),
  })
  const places = fc.record({ kind: fc.constant('slots' as const), capacity: fc.integer({ min: 1, max: 100 }) })
  const share = fc.double({ min: 0, max: 1, noNaN: true })
  const of = (capacity: number, part: number) => Math.floor(capacity * part)
  const elapsed = fc.oneof(fc.constant(0), fc.nat({ max: 3000 }), fc.nat({ max: 3 * DAY }))
  fc.assert(
    fc.property(fc.oneof(buckets, spends, places), share, share, share, elapsed, elapsed, (shape, a, b, c, e, f) => {
      const cell = { id: 'o:x', scope: 'org', dimension: 'requests', ...shape } as Cell
      const level = emptyLevel()
      advance(cell, level, T0 - e)
      level.used = of(cell.capacity, a)
      const amount = cell.kind === 'slots' ? 1 : of(cell.capacity, b)
      const admission = admit({ org: 'a', id: 'r', cells: [cell], amounts: [amount], now: T0 }, [level])
      fc.pre(admission.admitted && amount > 0)
      const charged = level.at
      const final = cell.kind === 'slots' ? 0 : of(2 * cell.capacity, c * c)
      const [told] = statesAfter([cell], admission.states, [amount], [final], T0, T0 + f)
      advance(cell, level, T0 + f)
      correct(cell, level, amount, final, charged)
      const true_ = stateOf(cell, level)
      if (cell.kind !== 'bucket') return assert.deepEqual(told, true_)
      const perMs = cell.capacity / cell.windowMs!
      assert.ok(told!.remaining <= true_.remaining, `${told!.remaining} of ${true_.remaining}`)
      assert.ok(true_.remaining - told!.remaining <= Math.ceil(perMs), `${told!.remaining} of ${true_.remaining}`)
      assert.ok(Math.abs(told!.resetMs - true_.resetMs) <= 1, `${told!.resetMs}, ${true_.resetMs}`)
    }),
    { numRuns: 3000 },
  )
})
