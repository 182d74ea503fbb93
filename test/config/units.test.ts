import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { parseOptions } from '../../config/options.ts'
import { didYouMean, nearest } from '../../config/suggest.ts'
import {
  isLoopback,
  parseDecimal,
  parseDuration,
  parseListen,
  parsePrice,
  parseSize,
  parseUsd,
} from '../../config/units.ts'
import type { Plugin } from '../../core/plugin.ts'
import { catalog } from './catalog.ts'

test('durations and sizes', () => {
  const good: [string, number][] = [
    ['250ms', 250],
    ['60s', 60_000],
    ['1.5s', 1500],
    ['5m', 300_000],
    ['24h', 86_400_000],
    ['30d', 2_592_000_000],
    ['0', 0],
  ]
  for (const [text, ms] of good) assert.equal(parseDuration(text), ms, text)
  for (const text of ['', '5', '5 s', '-5s', '5S', 's', '1e3s', '.5s', '5s5m', '999999999999d'])
    assert.equal(parseDuration(text), null, text)
  const sizes: [string, number][] = [
    ['512B', 512],
    ['64KiB', 65_536],
    ['1.5MiB', 1_572_864],
    ['1GiB', 1024 ** 3],
    ['0', 0],
  ]
  for (const [text, bytes] of sizes) assert.equal(parseSize(text), bytes, text)
  for (const text of ['64', '64KB', '64kib', '-1B', '9999999999TiB']) assert.equal(parseSize(text), null, text)
})

test('money is exact: whole cents up to a million dollars, by digits', () => {
  assert.equal(parseUsd('1000000.00'), 1_000_000_000_000_000)
  assert.equal(parseUsd(0.29), 290_000_000)
  assert.equal(parseUsd(1e-7), 100)
  assert.equal(parseUsd('0.0000000001'), null, 'ten decimals')
  assert.equal(parseUsd('9007200'), null, 'over 2^53 nano-USD')
  assert.equal(parsePrice(1.25), 1_250_000)
  assert.equal(parsePrice('0.000001'), 1)
  for (const bad of ['-1', 'a', '', '1,5', 'NaN', '1e400', '0x10']) assert.equal(parseDecimal(bad, 6), null, bad)
  assert.equal(parseDecimal('0e-400', 6), 0)
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 100_000_000 }), cents => {
      const text = `${Math.floor(cents / 100)}.${String(cents % 100).padStart(2, '0')}`
      assert.equal(parseUsd(text), cents * 10_000_000)
      // As YAML hands it over: a double.
      assert.equal(parseUsd(Number(text)), cents * 10_000_000)
    }),
  )
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 999_999_999 }), micro => {
      const text = `${Math.floor(micro / 1e6)}.${String(micro % 1e6).padStart(6, '0')}`
      assert.equal(parsePrice(Number(text)), micro)
    }),
  )
})

test('addresses', () => {
  assert.deepEqual(parseListen('127.0.0.1:8080'), { host: '127.0.0.1', port: 8080 })
  assert.deepEqual(parseListen('[::1]:0'), { host: '::1', port: 0 })
  assert.deepEqual(parseListen(':80'), { host: '0.0.0.0', port: 80 })
  assert.deepEqual(parseListen('gateway.local:80'), { host: 'gateway.local', port: 80 })
  for (const bad of ['8080', '::1:80', 'a:b', 'a:65536', 'http://a:80', 'a b:80'])
    assert.equal(parseListen(bad), null, bad)
  assert.ok(isLoopback('127.1.2.3') && isLoopback('localhost') && isLoopback('::1'))
  assert.ok(!isLoopback('0.0.0.0') && !isLoopback('127.evil.example'))
})

test('suggestions: near words only', () => {
  assert.equal(nearest('tokenestimate', ['auth', 'token-estimate']), 'token-estimate')
  assert.equal(nearest('auht', ['auth', 'models']), 'auth')
  assert.equal(nearest('zebra', ['auth', 'models']), null)
  assert.equal(didYouMean('x', []), '')
})

test('parseOptions fills defaults, takes whole numbers as milliseconds and bytes, and tells every fault', () => {
  const plugin = (name: string) => catalog.get(name) as Plugin
  assert.deepEqual(parseOptions(plugin('idempotency'), { keep: 5, max_record: '2KiB' }), {
    keep: 5,
    max_record: 2048,
    max_total: 1024 ** 3,
  })
  assert.deepEqual(parseOptions(plugin('routing')), {})
  assert.throws(
    () => parseOptions(plugin('idempotency'), { kep: 5, max_record: 'x' }),
    /idempotency has no key 'kep'.*\n?.*max_record/s,
  )
  const input = { breaker: {} }
  parseOptions(plugin('upstream'), input)
  assert.deepEqual(input, { breaker: {} }, 'the input is left alone')
})
