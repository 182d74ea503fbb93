import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  alwaysCosts,
  type CostRates,
  cost,
  costAt,
  exposure,
  formatUsd,
  outputWithin,
  type Price,
  priceUsed,
  shareOf,
} from '../../core/canon/money.ts'

const price = { input: 1_250_000, output: 10_000_000 }

test('[BILL-1] input and cache writes at the input rate, cached at a tenth, output at the output rate', () => {
  assert.equal(cost({ input: 1_000_000, cached: 0, output: 0 }, price), 1_250_000_000)
  assert.equal(cost({ input: 1_000_000, cached: 1_000_000, output: 0 }, price), 125_000_000)
  assert.equal(cost({ input: 0, cached: 0, output: 1_000_000 }, price), 10_000_000_000)
  assert.equal(cost({ input: 120, cached: 20, output: 30 }, price), 100 * 1250 + 20 * 125 + 30 * 10_000)
  assert.equal(exposure(10, 20, price), 10 * 1250 + 20 * 10_000)
})

test('a cost is rounded once, half up', () => {
  assert.equal(cost({ input: 1, cached: 0, output: 0 }, { input: 1499, output: 0 }), 1)
  assert.equal(cost({ input: 1, cached: 0, output: 0 }, { input: 1500, output: 0 }), 2)
  assert.equal(cost({ input: 1, cached: 1, output: 0 }, { input: 4999, output: 0 }), 0)
  assert.equal(cost({ input: 1, cached: 1, output: 0 }, { input: 5000, output: 0 }), 1)
})

test('a cost equals exact arithmetic for any counts and prices', () => {
  const count = fc.oneof(fc.nat({ max: 1_000_000 }), fc.nat({ max: 1e12 }))
  fc.assert(
    fc.property(count, count, count, fc.nat({ max: 1e9 }), fc.nat({ max: 1e9 }), (a, b, output, inRate, outRate) => {
      const input = Math.max(a, b)
      const cached = Math.min(a, b)
      const deci =
        (BigInt(input - cached) * 10n + BigInt(cached)) * BigInt(inRate) + BigInt(output) * 10n * BigInt(outRate)
      const exact = (deci + 5000n) / 10_000n
      const expected = exact > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(exact)
      assert.equal(cost({ input, cached, output }, { input: inRate, output: outRate }), expected)
    }),
    { numRuns: 1000 },
  )
})

test('counts that are no counts never credit and never make NaN', () => {
  for (const bad of [Number.NaN, -5, Number.NEGATIVE_INFINITY])
    assert.equal(cost({ input: bad, cached: bad, output: bad }, price), 0)
  assert.equal(cost({ input: 10, cached: 50, output: 0 }, price), cost({ input: 10, cached: 10, output: 0 }, price))
  assert.equal(cost({ input: 1.9, cached: 0, output: 0 }, price), 1250)
  assert.equal(cost({ input: Number.POSITIVE_INFINITY, cached: 0, output: 0 }, price), Number.MAX_SAFE_INTEGER)
})

const costRates: CostRates = {
  ...{ input: 1_000_000, cached: 100_000, cache_write: 1_250_000, cache_write_1h: 2_000_000, output: 8_000_000 },
  ...{ search: 10_000_000, tiers: { flex: 0.5, priority: 2 } },
}
const charged = { requests: 1, prompt: 100, cached: 20, cacheWrite: 30, cacheWriteHour: 10, output: 5, searches: 1 }

test('a provider charges each part at its own rate, by the tier that served; a search is not multiplied', () => {
  const tokens = 50_000 + 2_000 + 25_000 + 20_000 + 40_000
  assert.equal(costAt(costRates, charged), tokens + 10_000_000)
  assert.equal(costAt(costRates, { ...charged, tier: 'flex' }), tokens / 2 + 10_000_000)
  assert.equal(costAt(costRates, { ...charged, tier: 'priority' }), 2 * tokens + 10_000_000)
  // A name of every object is no tier.
  for (const tier of ['default', 'constructor'])
    assert.equal(costAt(costRates, { ...charged, tier }), tokens + 10_000_000)
})

test('a provider charges the whole request at the step of its prompt; several requests share theirs equally', () => {
  const dear = {
    input: 3_000_000,
    cached: 300_000,
    cache_write: 3_000_000,
    cache_write_1h: 4_000_000,
    output: 9_000_000,
  }
  const stepped: CostRates = { ...costRates, steps: [{ above: 99, ...dear }] }
  assert.equal(costAt(stepped, charged), costAt({ ...costRates, ...dear }, charged))
  assert.equal(costAt(stepped, { ...charged, prompt: 99 }), costAt(costRates, { ...charged, prompt: 99 }))
  assert.equal(
    costAt(stepped, { ...charged, prompt: 198, requests: 2 }),
    costAt(costRates, { ...charged, prompt: 198 }),
  )
  assert.notEqual(
    costAt(stepped, { ...charged, prompt: 200, requests: 2 }),
    costAt(costRates, { ...charged, prompt: 200 }),
  )
})

test('what a provider reports never makes a cost negative, NaN or too large, and parts are no more than the whole', () => {
  const count = fc.oneof(fc.nat(), fc.integer(), fc.double(), fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY))
  fc.assert(
    fc.property(
      count,
      count,
      count,
      count,
      count,
      count,
      (prompt, cached, cacheWrite, cacheWriteHour, output, searches) => {
        const nano = costAt(costRates, { requests: 1, prompt, cached, cacheWrite, cacheWriteHour, output, searches })
        assert.ok(nano >= 0 && nano <= Number.MAX_SAFE_INTEGER && Number.isInteger(nano), `${nano}`)
      },
    ),
    { numRuns: 2000 },
  )
  assert.equal(
    costAt(costRates, { ...charged, cached: 900, cacheWrite: 900 }),
    costAt(costRates, { ...charged, cached: 100, cacheWrite: 0, cacheWriteHour: 0 }),
  )
})

test('a million settlements are exact to the cent, and beyond', () => {
  let seed = 42
  const random = () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648
  let sum = 0
  let exact = 0n
  for (let i = 0; i < 1_000_000; i++) {
    const usage = { input: Math.floor(random() * 20_000), cached: 0, output: Math.floor(random() * 2000) }
    usage.cached = Math.floor(random() * usage.input)
    sum += cost(usage, price)
    exact += BigInt(cost(usage, price))
  }
  assert.equal(BigInt(sum), exact)
  assert.ok(Number.isSafeInteger(sum))
})

test('amounts print exactly, cut to six decimals', () => {
  assert.equal(formatUsd(0), '0.00')
  assert.equal(formatUsd(500_000_000_000), '500.00')
  assert.equal(formatUsd(12_345_678_901), '12.345678')
  assert.equal(formatUsd(999), '0.00')
  assert.equal(formatUsd(1000), '0.000001')
  assert.equal(formatUsd(999, 9), '0.000000999')
  assert.equal(formatUsd(-1_500_000_000), '-1.50')
  assert.equal(formatUsd(1_000_000_000_000_000), '1000000.00')
})

const rates = {
  input: fc.nat({ max: 1e7 }),
  output: fc.nat({ max: 1e7 }),
  cached: fc.option(fc.nat({ max: 1e7 }), { nil: undefined }),
  cache_write: fc.option(fc.nat({ max: 1e7 }), { nil: undefined }),
}
const anyPrice = fc
  .tuple(
    fc.record(rates),
    fc.uniqueArray(fc.record({ above: fc.integer({ min: 1, max: 2000 }), ...rates }), {
      selector: step => step.above,
      maxLength: 4,
    }),
  )
  .map(([own, steps]) => {
    const defined = <T extends object>(of: T) =>
      Object.fromEntries(Object.entries(of).filter(([, value]) => value !== undefined)) as T
    return { ...defined(own), steps: steps.map(defined).sort((a, b) => a.above - b.above) } as unknown as Price
  })

test('a cost has the step that the prompt passes, and rates of its own for what a cache read and wrote', () => {
  const tokens = fc.nat({ max: 3000 })
  fc.assert(
    fc.property(anyPrice, tokens, tokens, tokens, tokens, (price, input, cached, cacheWrite, output) => {
      const passed = price.steps!.filter(({ above }) => input > above).at(-1)
      const own = passed ?? price
      const read = Math.min(cached, input)
      const written = Math.min(cacheWrite, input - read)
      const deci =
        (input - read - written) * own.input * 10 +
        read * (own.cached === undefined ? own.input : own.cached * 10) +
        written * (own.cache_write ?? own.input) * 10 +
        output * own.output * 10
      assert.equal(cost({ input, cached, cacheWrite, output }, price), Math.round(deci / 10_000))
      assert.equal(priceUsed(price, input), passed ? `model>${passed.above}` : 'model')
      assert.equal(
        priceUsed({ ...price, list: 'plan:gold' }, input),
        passed ? `plan:gold>${passed.above}` : 'plan:gold',
      )
    }),
    { numRuns: 2000 },
  )
})

test('a share of a price has its rates, and says so on the row; it never costs more', () => {
  const long = { input: 2_000_000, output: 8_000_000, cache_write: 2_500_000 }
  const price = {
    input: 1_250_000,
    output: 10_000_000,
    cached: 130_001,
    list: 'plan:gold',
    steps: [{ above: 9, ...long }],
  }
  assert.deepEqual(shareOf(price, 0.1), {
    ...{ input: 125_000, output: 1_000_000, cached: 13_000, list: 'plan:gold', share: 0.1 },
    steps: [{ above: 9, input: 200_000, output: 800_000, cache_write: 250_000 }],
  })
  assert.deepEqual(
    [9, 10].map(input => priceUsed(shareOf(price, 0.1), input)),
    ['plan:gold*0.1', 'plan:gold>9*0.1'],
  )
  assert.deepEqual(shareOf({ input: 3, output: 5 }, 0.5), { input: 2, output: 3, share: 0.5 })
  const tokens = fc.nat({ max: 3000 })
  fc.assert(
    fc.property(fc.double({ min: 0, max: 1, noNaN: true }), tokens, tokens, tokens, (share, input, cached, output) => {
      const used = { input, cached, cacheWrite: 0, output }
      assert.ok(cost(used, shareOf(price, share)) <= cost(used, price))
      assert.equal(cost(used, shareOf(price, 0)), 0)
      assert.equal(cost(used, shareOf(price, 1)), cost(used, price))
    }),
  )
})

// What is reserved covers the bill, however the provider's cache behaves: else a cap of spend could be passed.
test('exposure is never below a cost of the same tokens, and outputWithin is its inverse', () => {
  const tokens = fc.nat({ max: 3000 })
  fc.assert(
    fc.property(anyPrice, tokens, tokens, tokens, tokens, (price, input, cached, cacheWrite, output) => {
      const most = exposure(input, output, price)
      assert.ok(cost({ input, cached, cacheWrite, output }, price) <= most)
      // Less may be billed than is sent, and a lower step may be the dearer one.
      assert.ok(cost({ input: Math.min(input, cached), cached: 0, cacheWrite, output }, price) <= most)
      const within = outputWithin(most, input, price)
      if (Number.isFinite(within)) assert.ok(exposure(input, within, price) <= most + 1)
      if (alwaysCosts(price) && input > 2000 && output > 2000) assert.ok(most > 0)
    }),
    { numRuns: 2000 },
  )
})
