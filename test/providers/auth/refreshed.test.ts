import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AuthFault } from '../../../core/ports/auth.ts'
import { ManualClock } from '../../../core/tools/clock.ts'
import { type Fetched, Refreshed } from '../../../providers/auth/refreshed.ts'

const HOUR = 3_600_000

/** A credential whose fetches the test answers, each once. */
function held(secrets: string[] = []) {
  const clock = new ManualClock()
  const waiting: PromiseWithResolvers<Fetched<string>>[] = []
  let fetches = 0
  const credential = new Refreshed<string>('the token', secrets, clock, () => {
    fetches++
    const next = Promise.withResolvers<Fetched<string>>()
    waiting.push(next)
    return next.promise
  })
  return {
    clock,
    credential,
    fetches: () => fetches,
    /** Answers the oldest fetch that waits. */
    give: async (value: string, lifeMs: number | null = HOUR) => {
      waiting.shift()!.resolve({ value, expiresAt: lifeMs === null ? null : clock.now() + lifeMs })
      await settled()
    },
    fail: async (error: Error) => {
      waiting.shift()!.reject(error)
      await settled()
    },
  }
}

/** Lets every promise that can settle now do so. */
const settled = () => new Promise(resolve => setImmediate(resolve))

test('a thousand requests wait for one fetch, and later ones take what it gave at once', async () => {
  const { credential, fetches, give } = held()
  const all = Array.from({ length: 1000 }, () => credential.get())
  await give('one')
  assert.deepEqual(new Set(await Promise.all(all)), new Set(['one']))
  assert.equal(fetches(), 1)
  assert.equal(credential.get(), 'one')
})

test('it is fetched again ahead of its expiry, while requests use the old one', async () => {
  const { clock, credential, fetches, give } = held()
  void credential.get()
  await give('one')
  clock.advance(HOUR - 5 * 60_000 - 1)
  assert.equal(credential.get(), 'one')
  assert.equal(fetches(), 1)
  clock.advance(1)
  for (let i = 0; i < 100; i++) assert.equal(credential.get(), 'one')
  assert.equal(fetches(), 2)
  await give('two')
  assert.equal(credential.get(), 'two')
})

test('a refresh that fails ahead of the expiry harms no request, and is tried again after a pause', async () => {
  const { clock, credential, fetches, give, fail } = held()
  void credential.get()
  await give('one')
  clock.advance(HOUR - 4 * 60_000)
  assert.equal(credential.get(), 'one')
  await fail(new Error('down'))
  for (let i = 0; i < 100; i++) assert.equal(credential.get(), 'one')
  assert.equal(fetches(), 2)
  clock.advance(2000)
  assert.equal(credential.get(), 'one')
  assert.equal(fetches(), 3)
  await give('two')
  assert.equal(credential.get(), 'two')
})

test('an expired credential is not used: requests fail with one fault, and a pause spares the service', async () => {
  const { clock, credential, fetches, give, fail } = held()
  void credential.get()
  await give('one')
  clock.advance(HOUR)
  const first = Promise.resolve(credential.get())
  const caught = assert.rejects(first, (fault: unknown) => fault instanceof AuthFault && /down/.test(fault.message))
  await fail(new Error('down'))
  await caught
  for (let i = 0; i < 100; i++) await assert.rejects(Promise.resolve(credential.get()), AuthFault)
  assert.equal(fetches(), 2)
  clock.advance(2000)
  const after = credential.get()
  await give('two')
  assert.equal(await after, 'two')
})

test('a service that does not answer ends in a fault, and its late answer changes nothing', async () => {
  const { clock, credential, give } = held()
  const first = Promise.resolve(credential.get())
  const caught = assert.rejects(first, /no answer within 10 s/)
  clock.advance(10_000)
  await caught
  await give('late')
  await assert.rejects(Promise.resolve(credential.get()), /no answer/)
})

test('a credential that comes expired is a fault', async () => {
  const { credential, give } = held()
  const first = Promise.resolve(credential.get())
  const caught = assert.rejects(first, /expired already/)
  await give('old', 0)
  await caught
})

test('a short life is used nearly to its end', async () => {
  const { clock, credential, fetches, give } = held()
  void credential.get()
  await give('one', 10_000)
  clock.advance(7999)
  assert.equal(credential.get(), 'one')
  assert.equal(fetches(), 1)
  clock.advance(1)
  assert.equal(credential.get(), 'one')
  assert.equal(fetches(), 2)
  clock.advance(1000)
  assert.ok(credential.get() instanceof Promise)
})

test('a credential without an expiry is read again after 15 minutes', async () => {
  const { clock, credential, fetches, give } = held()
  void credential.get()
  await give('one', null)
  clock.advance(15 * 60_000 - 1)
  assert.equal(credential.get(), 'one')
  assert.equal(fetches(), 1)
  clock.advance(1)
  assert.equal(credential.get(), 'one')
  assert.equal(fetches(), 2)
})

test('a refusal replaces a credential, and a storm of refusals does not make a storm of fetches', async () => {
  const { clock, credential, fetches, give } = held()
  void credential.get()
  await give('one')
  credential.refused()
  assert.equal(credential.get(), 'one')
  assert.equal(fetches(), 1)
  clock.advance(30_000)
  for (let i = 0; i < 100; i++) {
    credential.refused()
    assert.equal(credential.get(), 'one')
  }
  assert.equal(fetches(), 2)
  await give('two')
  credential.refused()
  assert.equal(credential.get(), 'two')
  assert.equal(fetches(), 2)
})

test('no message holds a secret, nor more than 500 characters', async () => {
  const { credential, fail } = held(['hunter2-secret'])
  const first = Promise.resolve(credential.get())
  const caught = assert.rejects(first, (fault: Error) => {
    assert.match(fault.message, /^the token: refused \[secret\]/)
    assert.ok(fault.message.length <= 500 && !fault.message.includes('hunter2'))
    return true
  })
  await fail(new Error(`refused hunter2-secret ${'x'.repeat(1000)}`))
  await caught
})
