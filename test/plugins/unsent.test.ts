/** The bytes of admitted requests that no provider has taken and answered yet: who waits, whose turn is next, who is refused. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ManualClock } from '../../core/tools/clock.ts'
import { Unsent, UnsentRequest } from '../../plugins/shared/unsent.ts'

const BOUNDS = { unsent_bytes: 1000, organization_unsent_bytes: 300, unsent_wait: 10_000 }

function setUp() {
  const clock = new ManualClock()
  const ledger = new Unsent()
  const order: string[] = []
  const enter = (owner: string, bytes: number, signal = new AbortController().signal) => {
    const entered = ledger.enter(owner, bytes, BOUNDS, clock, () => signal)
    if (!(entered instanceof Promise)) order.push(owner)
    return Promise.resolve(entered).then(held => {
      if (typeof held === 'function' && entered instanceof Promise) order.push(`${owner} later`)
      return held
    })
  }
  const held = async (owner: string, bytes: number) => {
    const release = await enter(owner, bytes)
    assert.ok(typeof release === 'function', JSON.stringify(release))
    return release
  }
  return { clock, ledger, order, enter, held }
}

test('an organization at its bound waits until it holds less, in its order, and others do not', async () => {
  const { ledger, order, held } = setUp()
  const first = await held('a', 200)
  const second = await held('a', 200)
  const third = held('a', 10)
  const fourth = held('a', 10)
  await held('b', 200)
  assert.deepEqual([order.join(), ledger.bytes, ledger.waiting], ['a,a,b', 600, 2])
  first()
  first()
  await third
  await fourth
  assert.deepEqual([order.slice(3), ledger.bytes, ledger.waiting], [['a later', 'a later'], 420, 0])
  second()
  assert.equal(ledger.bytes, 220)
})

test('at the bound of the process whoever is below its share goes on; whoever holds nothing always may', async () => {
  const { ledger, enter, held, order } = setUp()
  const [first] = [await held('a', 260), await held('b', 260), await held('c', 260), await held('d', 260)]
  assert.equal(ledger.bytes, 1040)
  const waits = enter('a', 1)
  await held('e', 100)
  // A fifth of 1,000 is 200.
  await held('e', 50)
  assert.deepEqual([order.join(), ledger.waiting], ['a,b,c,d,e,e', 1])
  first()
  assert.ok(typeof (await waits) === 'function')
})

test('a request that waits in vain is 503 route_capacity; one whose client has left gives up its turn', async () => {
  const { clock, ledger, enter, held } = setUp()
  const release = await held('a', 300)
  const gone = new AbortController()
  const left = enter('a', 10, gone.signal)
  const late = enter('a', 10)
  gone.abort()
  await left
  assert.deepEqual([ledger.waiting, ledger.refused], [1, 0])
  clock.advance(10_000)
  const refused = await late
  assert.ok(typeof refused !== 'function' && refused.kind === 'error')
  assert.deepEqual([refused.error.code, ledger.refused, ledger.waiting], ['route_capacity', 1, 0])
  release()
  assert.deepEqual([ledger.bytes, clock.pending], [0, 0])
})

test('a request gives its bytes back when it is answered and no connection writes it any more', () => {
  const given: string[] = []
  const request = (name: string) => new UnsentRequest(() => void given.push(name))
  const short = request('short')
  short.answered()
  const early = request('early')
  const [first, second] = [early.writing(), early.writing()]
  first()
  early.answered()
  assert.deepEqual(given, ['short'])
  second()
  assert.deepEqual(given, ['short', 'early'])
  const late = request('late')
  late.writing()()
  assert.deepEqual(given, ['short', 'early'])
  late.answered()
  assert.deepEqual(given, ['short', 'early', 'late'])
})
