/** What the dashboard's banner says of load that is shed. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Shedding, sumOfShedding } from '../../admin/shedding.ts'

const BOUNDS = { overload_delay: 200, max_concurrent_requests: 100 }

test('load that is shed: since when, why and how many, until none was for a minute', () => {
  const shedding = new Shedding()
  const row = (now: number) => shedding.row(now, BOUNDS)
  shedding.saw({ lag: 0, in_flight: 0 }, 1000)
  assert.equal(row(1000), null)
  shedding.saw({ lag: 3, in_flight: 0 }, 2000)
  shedding.saw({ lag: 3, in_flight: 0 }, 3000)
  shedding.saw({ lag: 5, in_flight: 1 }, 4000)
  // The second in which the first was refused began at 1000.
  assert.deepEqual(row(63_999), { ...BOUNDS, since: 1000, last: 4000, lag: 5, in_flight: 1 })
  assert.equal(row(64_000), null)
  shedding.saw({ lag: 5, in_flight: 1 }, 99_000)
  shedding.saw({ lag: 6, in_flight: 1 }, 100_000)
  assert.deepEqual(row(100_000), { ...BOUNDS, since: 99_000, last: 100_000, lag: 1, in_flight: 0 })
})

test('of several workers it is the sum, from the first that sheds to the last', () => {
  const row = { ...BOUNDS, since: 5, last: 7, lag: 1, in_flight: 0 }
  assert.equal(sumOfShedding([null, null]), null)
  assert.deepEqual(sumOfShedding([null, row, { ...row, since: 3, last: 6, lag: 2, in_flight: 4 }]), {
    ...BOUNDS,
    ...{ since: 3, last: 7, lag: 3, in_flight: 4 },
  })
})
