/** What `bench:growth` calls flat, linear and worse. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fit } from '../../bench/growth/fit.ts'

const SIZES = [1, 10, 100, 1000, 10_000]
/** Points of a law, each off by some per cent up or down. */
const points = (cost: (n: number) => number, off = [0.03, -0.04, 0.02, -0.03, 0.04]) =>
  SIZES.map((n, i) => ({ n, cost: cost(n) * (1 + off[i]!) }))

test('a cost that only wavers is flat', () => {
  assert.deepEqual([fit(points(() => 100)).verdict, fit(points(() => 100)).exponent], ['flat', 0])
})

test('a fixed cost and one for each are linear, however small the second is at first', () => {
  for (const each of [0.01, 1, 100]) {
    const { verdict, exponent } = fit(points(n => 100 + each * n))
    assert.ok(exponent >= 0.9 && exponent <= 1.1, `${exponent} for ${each}`)
    assert.equal(verdict, 'linear')
  }
})

test('a square is worse than linear, also behind a fixed cost, and a root is less', () => {
  for (const law of [(n: number) => n * n, (n: number) => 100 + n * n, (n: number) => 100 + 1e-4 * n * n]) {
    assert.equal(fit(points(law)).verdict, 'worse than linear')
  }
  assert.equal(fit(points(n => 100 + n ** 1.5)).verdict, 'worse than linear')
  assert.equal(fit(points(n => 100 * Math.sqrt(n))).verdict, 'less than linear')
})
