import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { KeyConfig, OrganizationConfig } from '../../config/types.ts'
import { isLimit } from '../../core/ports/store.ts'
import { cellsFor, scaledDown, scaleFactor } from '../../plugins/admission/cells.ts'

const organization = {
  limits: { requests_per_minute: 1000, concurrent_requests: 3, daily_spend_usd: 5e9, requests_per_day: 0 },
  model_limits: {},
} as unknown as OrganizationConfig
const key = { id: 'k', limits: {}, model_limits: {} } as unknown as KeyConfig

test('[LIM-10] under load rates and concurrency shrink to a tenth; spend does not, and what is closed stays closed', () => {
  const set = cellsFor(organization, key, null)
  const capacities = (factor: number) =>
    Object.fromEntries(
      scaledDown(set, factor)
        .filter(isLimit)
        .map(cell => [cell.id, cell.capacity]),
    )
  assert.deepEqual(capacities(0.5), { 'o:rpm': 500, 'o:rpd': 0, 'o:conc': 1, 'o:ubpd': 5e8, 'o:day': 5e9 })
  assert.deepEqual(capacities(0.1), { 'o:rpm': 100, 'o:rpd': 0, 'o:conc': 1, 'o:ubpd': 5e8, 'o:day': 5e9 })
})

// Each request had a list of its own: the plans of limits, headers and Redis, cached by the list, were made anew just
// when there was no time.
test('[LIM-10] requests at one load share one list of cells, and all loads make few', () => {
  const set = cellsFor(organization, key, null)
  const lists = new Set<unknown>()
  const factors: number[] = []
  for (let running = 0; running <= 10_000; running++) {
    const factor = scaleFactor(running / 10_000, 0.8)
    factors.push(factor)
    if (factor < 1) lists.add(scaledDown(set, factor))
  }
  assert.ok(lists.size <= 18, String(lists.size))
  assert.ok(factors.every((factor, i) => i === 0 || factor <= factors[i - 1]!))
  assert.deepEqual([factors[8000], factors[8001], factors[9000], factors[10_000]], [1, 0.95, 0.55, 0.1])
})

test('[LIM-1] what may be left unbilled is a tenth of the daily spend limit, else of a thirtieth of the monthly one', () => {
  const unbilled = (limits: object, keyLimits: object = {}) =>
    cellsFor(
      { limits, model_limits: { m: { daily_spend_usd: 7e9 } } } as unknown as OrganizationConfig,
      { ...key, limits: keyLimits } as KeyConfig,
      null,
    )
      .cells.filter(cell => cell.dimension === 'unbilled')
      .map(cell => [cell.id, cell.capacity, cell.kind, cell.windowMs])
  const day = 86_400_000
  assert.deepEqual(unbilled({}), [])
  assert.deepEqual(unbilled({ daily_spend_usd: null, monthly_spend_usd: null, unbilled_usd_per_day: null }), [])
  assert.deepEqual(unbilled({ daily_spend_usd: 3e9 }), [['o:ubpd', 3e8, 'bucket', day]])
  assert.deepEqual(unbilled({ monthly_spend_usd: 3e11 }), [['o:ubpd', 1e9, 'bucket', day]])
  assert.deepEqual(unbilled({ daily_spend_usd: 3e9, monthly_spend_usd: 3e11 }), [['o:ubpd', 3e8, 'bucket', day]])
  assert.deepEqual(unbilled({ daily_spend_usd: 3e9, unbilled_usd_per_day: 9e9 }), [['o:ubpd', 9e9, 'bucket', day]])
  assert.deepEqual(unbilled({ unbilled_usd_per_day: 5e9 }, { daily_spend_usd: 1e9 }), [
    ['o:ubpd', 5e9, 'bucket', day],
    ['k:k:ubpd', 1e8, 'bucket', day],
  ])
  // 0.00 has room for the reservations of those who stay, and for nothing that a prompt costs.
  assert.deepEqual(unbilled({ daily_spend_usd: 3e9, unbilled_usd_per_day: 0 }), [['o:ubpd', 10_000, 'bucket', day]])
})

// A cap that a reload brought began at zero: spend was booked only where a cap stood.
test('[LIM-8] spend of organization and key is booked by day and month, whether or not a cap stands', () => {
  const spendOf = (limits: object) =>
    cellsFor({ limits, model_limits: {} } as unknown as OrganizationConfig, key, 'm')
      .cells.filter(cell => cell.kind === 'spend')
      .map(cell => [cell.id, cell.capacity])
  const rest = ['o:month', 'k:k:day', 'k:k:month'].map(id => [id, Number.POSITIVE_INFINITY])
  assert.deepEqual(spendOf({}), [['o:day', Number.POSITIVE_INFINITY], ...rest])
  assert.deepEqual(spendOf({ daily_spend_usd: 5 }), [['o:day', 5], ...rest])
})
