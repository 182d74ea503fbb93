/** What plugins keep through `context.values`. test/stores/conformance.test.ts has what the stores do with it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { valuesOf } from '../../core/engine/plugin-values.ts'
import { answer, definePlugin } from '../../core/plugin.ts'
import type { Store } from '../../core/ports/store.ts'
import { ManualClock, memoryValues, runPlugin } from '../../plugins/testing.ts'

const clock = new ManualClock(1_000_000)
const DAY = 86_400_000
const secret = new Uint8Array(32).fill(7)
const bytes = (text: string) => Buffer.from(text)

/** Notes what reaches the store. */
function noting() {
  const inner = memoryValues()
  const puts: { org: string; id: string; value: Uint8Array }[] = []
  const pluginValues: Store['pluginValues'] = {
    ...inner,
    put(org, kind, id, value, ttlMs, now) {
      puts.push({ org, id, value })
      return inner.put(org, kind, id, value, ttlMs, now)
    },
  }
  const of = (plugin: string, more: { secret?: Uint8Array } = {}) =>
    valuesOf(plugin, { store: { pluginValues } as Store, clock, secret, ...more })
  return { of, puts, pluginValues }
}

test('a value is found by its plugin, organization and key alone', async () => {
  const { of } = noting()
  const values = of('mine')
  await values.put('acme', 'k', bytes('one'), DAY)
  await values.put('rival', 'k', bytes('two'), DAY)
  await values.put(null, 'k', bytes('three'), DAY)
  assert.equal(String(await of('mine').get('acme', 'k')), 'one')
  assert.equal(String(await values.get('rival', 'k')), 'two')
  assert.equal(String(await values.get(null, 'k')), 'three')
  assert.equal(await values.get('acme', 'K'), null)
  assert.equal(await of('another').get('acme', 'k'), null)
  await values.delete('acme', 'k')
  assert.deepEqual([await values.get('acme', 'k'), String(await values.get('rival', 'k'))], [null, 'two'])
  // The border between the two is not theirs to choose.
  await of('a').put('acme', 'b\0c', bytes('x'), DAY)
  assert.equal(await of('a\0b').get('acme', 'c'), null)
})

test('the store sees neither keys nor values, and another secret opens none', async () => {
  const { of, puts } = noting()
  const key = 'a prompt of a client'
  await of('mine').put('acme', key, bytes('what it was told'), DAY)
  await of('mine').put('acme', key, bytes('what it was told'), DAY)
  assert.equal(puts.length, 2)
  for (const { id, value } of puts) {
    assert.match(id, /^[\w-]{43}$/)
    assert.doesNotMatch(Buffer.from(value).toString('latin1'), /told/)
  }
  assert.notDeepEqual(puts[0]!.value, puts[1]!.value)
  assert.equal(await of('mine', { secret: new Uint8Array(32) }).get('acme', key), null)
})

test('a value that was moved to another organization in the store is not opened', async () => {
  const { of, puts, pluginValues } = noting()
  await of('mine').put('acme', 'k', bytes('one'), DAY)
  await pluginValues.put('rival', 'value', puts[0]!.id, puts[0]!.value, DAY, clock.now())
  assert.equal(await of('mine').get('rival', 'k'), null)
})

test('it ends with its time to live; what is too long or too large is refused by name', async () => {
  const { of, puts } = noting()
  const values = of('mine')
  await values.put('acme', 'k', bytes('one'), 1000.9)
  clock.advance(999)
  assert.equal(String(await values.get('acme', 'k')), 'one')
  clock.advance(1)
  assert.equal(await values.get('acme', 'k'), null)
  for (const ttl of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, 367 * DAY])
    await assert.rejects(values.put('acme', 'k', bytes('x'), ttl), { name: 'RangeError', message: /^ttlMs is / })
  const large = Buffer.alloc((1 << 20) + 1)
  await assert.rejects(values.put('acme', 'k', large, DAY), /^RangeError: the value has 1048577 bytes/)
  await assert.rejects(values.put('acme', 'k'.repeat(4097), bytes('x'), DAY), /^RangeError: the key has 4097/)
  await assert.rejects(values.get('acme', 'k'.repeat(4097)), /^RangeError: the key has 4097/)
  assert.equal(puts.length, 1)
  await values.put('acme', 'k'.repeat(4096), large.subarray(1), DAY)
})

test('a store that does not answer rejects', async () => {
  const fail = () => Promise.reject(new StoreUnavailable('it is gone'))
  const store = { pluginValues: { get: fail, put: fail, delete: fail } } as unknown as Store
  const values = valuesOf('mine', { store, clock, secret })
  for (const call of [values.get('a', 'k'), values.put('a', 'k', bytes('x'), DAY), values.delete('a', 'k')])
    await assert.rejects(call, StoreUnavailable)
})

test('runPlugin has values in memory, for one run or for several', async () => {
  const plugin = definePlugin({
    name: 'first-time',
    summary: 'Says whether it was called before.',
    create: (_, { values }) => ({
      async onRequest() {
        const before = await values.get(null, 'seen')
        await values.put(null, 'seen', bytes('yes'), DAY)
        return answer(200, { before: before !== null })
      },
    }),
  })
  const values = memoryValues()
  const before = async (options: object) => (await runPlugin(plugin, options)).json.before
  assert.deepEqual([await before({ values }), await before({ values }), await before({})], [false, true, false])
})
