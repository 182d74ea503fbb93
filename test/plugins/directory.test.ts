/** The directory's cache: what it keeps, what it forgets, how often it asks. The store is a map in memory. */
import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { test } from 'node:test'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { createSharedState } from '../../core/engine/shared-state.ts'
import { GatewayError } from '../../core/plugin.ts'
import type { AccountStore, StoredAccount } from '../../core/ports/accounts.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { Accounts, accountsOf, Directory } from '../../plugins/shared/directory.ts'
import { eventually } from '../eventually.ts'
import { caller, gatewayOf } from './kit.ts'

const digest = (secret: string) => hash('sha256', secret, 'hex')
const client = { remoteAddress: '192.0.2.1' }
const plan = {
  models: 'all',
  capabilities: 'all',
  streaming: true,
  active_keys: null,
  limits: {},
  model_limits: {},
} as const

class FakeStore {
  readonly accounts = new Map<string, StoredAccount>()
  version = 0
  asked = 0
  /** Organizations that changed, by version. */
  readonly changes = new Map<number, string>()
  /** Set to answer later. */
  pending: Promise<void> | undefined
  down = false

  put(secret: string, organization: string, settings: object = {}, key: object = {}): void {
    this.changes.set(++this.version, organization)
    this.accounts.set(digest(secret), {
      organization: {
        id: organization,
        version: this.version,
        settings: JSON.stringify({ plan: 'plain', ...settings }),
      },
      key: { id: 'key_1', sha256: digest(secret), settings: JSON.stringify(key) },
    })
  }

  find(sha256: string): StoredAccount | null | Promise<StoredAccount | null> {
    this.asked++
    if (this.down) throw new StoreUnavailable('the store is out')
    const found = this.accounts.get(sha256) ?? null
    return this.pending ? this.pending.then(() => found) : found
  }
  read(id: string) {
    this.asked++
    if (this.down) throw new StoreUnavailable('the store is out')
    const accounts = [...this.accounts.values()].filter(({ organization }) => organization.id === id)
    return accounts.length === 0 ? null : { ...accounts[0]!.organization, keys: accounts.map(({ key }) => key) }
  }
  since(version: number) {
    if (this.down) throw new StoreUnavailable('the store is out')
    const ids = [...this.changes].filter(([changed]) => changed > version).map(([, id]) => id)
    return { version: this.version, ids: version > this.version ? null : ids }
  }
}

async function house(bounds = { cache: 100, misses: 1000 }, config = {}) {
  const store = new FakeStore()
  const clock = new ManualClock()
  const faults: object[] = []
  const warnings: object[] = []
  const log = {
    debug() {},
    info() {},
    warn: (fields: object) => void warnings.push(fields),
    error: (fields: object) => void faults.push(fields),
  }
  const directory = new Directory()
  const generation = (more = {}) =>
    new Accounts(
      directory,
      gatewayOf({ plans: { plain: plan as any }, organizations: {}, models: {}, ...config, ...more }) as any,
    )
  const accounts = generation()
  store.put('sk-first', 'first')
  await directory.open({ store: store as unknown as AccountStore, clock, log }, bounds)
  /** A look for changes. It is made at once, since the store answers at once. */
  const follow = async () => {
    clock.advance(300)
    await Promise.resolve()
  }
  const who = (secret: string, of = accounts, address = client) => {
    const found = of.find(secret, address, clock.now())
    assert.ok(!(found instanceof Promise))
    return found?.organization.id ?? null
  }
  return { store, clock, directory, accounts, generation, follow, who, faults, warnings }
}

test('a key is looked up once, and again after a change of its organization only', async () => {
  const { store, follow, who } = await house()
  store.put('sk-other', 'other')
  await follow()
  for (let i = 0; i < 3; i++) assert.deepEqual([who('sk-first'), who('sk-other')], ['first', 'other'])
  assert.equal(store.asked, 2)
  store.put('sk-first', 'first', { status: 'disabled' })
  assert.equal(who('sk-first'), 'first')
  await follow()
  for (let i = 0; i < 3; i++) assert.deepEqual([who('sk-first'), who('sk-other')], [null, 'other'])
  assert.equal(store.asked, 3)
})

test('a store without organizations is not asked at all', async () => {
  const { directory, generation } = await house()
  const empty = new Directory()
  const store = new FakeStore()
  const clock = new ManualClock()
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  await empty.open({ store: store as unknown as AccountStore, clock, log }, { cache: 1, misses: 1 })
  for (let i = 0; i < 50; i++) assert.equal(empty.find(digest(`${i}`), client, generation()), null)
  assert.equal(store.asked, 0)
  store.put('sk-new', 'new')
  clock.advance(300)
  await eventually(() => !empty.empty)
  assert.ok(empty.find(digest('sk-new'), client, generation()))
  for (const one of [empty, directory]) one.close()
})

test('the cache is bounded, and keeps what is used', async () => {
  const { store, directory, follow, who } = await house({ cache: 10, misses: 1000 })
  for (let i = 0; i < 200; i++) store.put(`sk-${i}`, `org${i}`)
  await follow()
  who('sk-0')
  for (let i = 1; i < 200; i++) {
    who('sk-0')
    assert.equal(who(`sk-${i}`), `org${i}`)
    assert.ok(directory.stats.cached <= 10)
  }
  const before = store.asked
  who('sk-0')
  assert.equal(store.asked, before)
  // One that was evicted is asked for again, also by a chain that remembers its secret.
  assert.equal(who('sk-5'), 'org5')
  assert.equal(store.asked, before + 1)
  directory.resize({ cache: 2, misses: 1000 })
  assert.equal(directory.stats.cached, 2)
})

test('look-ups of one key share one, and requests that wait get the same identity', async () => {
  const { store, accounts, clock } = await house()
  const { promise, resolve } = Promise.withResolvers<void>()
  store.pending = promise
  const waiting = Array.from({ length: 50 }, () => accounts.find('sk-first', client, clock.now()))
  resolve()
  const found = await Promise.all(waiting)
  assert.equal(store.asked, 1)
  assert.ok(found.every(identity => identity !== null && identity === found[0]))
})

/** An answer that was on its way while the key was revoked must not be kept: it would be served until the next change. */
test('what was read before a change that was noticed meanwhile is not kept', async () => {
  const { store, accounts, clock, follow, who } = await house()
  const { promise, resolve } = Promise.withResolvers<void>()
  store.pending = promise
  const early = accounts.find('sk-first', client, clock.now())
  store.put('sk-first', 'first', {}, { status: 'revoked' })
  await follow()
  const joined = accounts.find('sk-first', client, clock.now())
  resolve()
  assert.equal((await early)?.organization.id, 'first')
  await joined
  store.pending = undefined
  assert.equal(who('sk-first'), null)
})

test('keys that do not exist cost a bounded number of look-ups a second, and a share of them by address', async () => {
  const { store, clock, accounts, directory, who } = await house({ cache: 100, misses: 20 })
  const tries = (address: string, from: number) => {
    let refused = 0
    for (let i = from; i < from + 100; i++) {
      try {
        assert.equal(accounts.find(`sk-wrong-${i}`, { remoteAddress: address }, clock.now()), null)
      } catch (error) {
        assert.ok(error instanceof GatewayError && error.code === 'route_capacity')
        refused++
      }
    }
    return refused
  }
  assert.equal(tries('a', 0), 95)
  assert.equal(store.asked, 5)
  // Another client's key is found all the while, and costs nothing of it.
  assert.equal(who('sk-first', accounts, { remoteAddress: 'b' }), 'first')
  for (const address of ['b', 'c', 'd', 'e', 'f']) tries(address, 1000 * address.charCodeAt(0))
  assert.equal(store.asked, 21)
  assert.deepEqual([directory.stats.unknown, directory.stats.found], [20, 1])
  clock.advance(1000)
  // What is known not to exist is not asked for again.
  assert.equal(tries('a', 0), 90)
  assert.equal(store.asked, 26)
})

test('a network of 64 bits counts as one address', async () => {
  const { accounts, clock, store } = await house({ cache: 100, misses: 20 })
  const wrong = (address: string, i: number) => accounts.find(`sk-wrong-${i}`, { remoteAddress: address }, clock.now())
  for (let i = 0; i < 5; i++) assert.equal(wrong(`2001:db8::${i + 1}`, i), null)
  assert.throws(() => wrong('2001:db8::ffff', 5), /Too many keys/)
  assert.equal(wrong('2001:db8:0:1::1', 5), null)
  assert.equal(store.asked, 6)
})

test('whose a credential is: known of keys in memory that work, and nothing is asked or counted', async () => {
  const settings = { plan: 'plain', status: 'active' }
  const key = (id: string, secret: string, more = {}) => ({ id, sha256: digest(secret), status: 'active', ...more })
  const inFile = { id: 'inside', ...settings, keys: [key('a', 'sk-file'), key('b', 'sk-old', { expires: 5_000 })] }
  const organizations = { inside: inFile }
  const { store, accounts, clock, follow, who, directory } = await house(undefined, { organizations })
  const known = (...secrets: string[]) => secrets.map(secret => accounts.known(secret, clock.now()))
  const now = clock.now()
  assert.deepEqual([accounts.known('sk-old', 4_999), accounts.known('sk-old', 5_000)], ['inside', undefined])
  assert.deepEqual(known('sk-file', 'sk-first', 'sk-wrong', '', 'no key'), ['inside', ...Array(4)])
  assert.deepEqual([store.asked, directory.stats.refused, clock.now()], [0, 0, now])
  assert.equal(who('sk-first'), 'first')
  assert.deepEqual(known('sk-first'), ['first'])
  store.put('sk-first', 'first', {}, { status: 'revoked' })
  await follow()
  assert.deepEqual(known('sk-first'), [undefined])
  assert.equal(who('sk-first'), null)
  assert.deepEqual(known('sk-first'), [undefined])
})

test('a busy tenant with a thousand keys of its own is not refused by that', async () => {
  const { store, follow, who, directory } = await house({ cache: 5000, misses: 1000 })
  for (let i = 0; i < 3000; i++) store.put(`sk-${i}`, `org${i % 7}`)
  await follow()
  for (let i = 0; i < 3000; i++) assert.equal(who(`sk-${i}`), `org${i % 7}`)
  assert.equal(directory.stats.refused, 0)
})

test('a store that is out serves what is in memory, and what changed meanwhile counts when it is back', async () => {
  const { store, follow, who } = await house()
  who('sk-first')
  store.put('sk-late', 'late')
  await follow()
  store.down = true
  store.put('sk-first', 'first', {}, { status: 'revoked' })
  await follow()
  assert.equal(who('sk-first'), 'first')
  assert.throws(() => who('sk-late'), StoreUnavailable)
  store.down = false
  await follow()
  assert.deepEqual([who('sk-first'), who('sk-late')], [null, 'late'])
  // It has lost what it had: an older state, from a backup.
  store.version = 1
  store.accounts.clear()
  await follow()
  assert.equal(who('sk-late'), null)
})

test('a reload asks for nothing: accounts follow from the new plans and models', async () => {
  const { store, who, generation, warnings } = await house()
  who('sk-first')
  const next = generation({ plans: { plain: { ...plan, streaming: false } } })
  const identity = next.find('sk-first', client, 0)
  assert.ok(identity && !(identity instanceof Promise))
  assert.equal(identity.organization.streaming, false)
  assert.equal(next.find('sk-first', client, 0), identity)
  const without = generation({ plans: {} })
  for (let i = 0; i < 5; i++)
    assert.throws(() => without.find('sk-first', client, 0), /cannot be served as it is set up/)
  assert.equal(warnings.length, 1, 'one a minute')
  const twin = generation({ organizations: { first: caller({ id: 'first' }).organization } })
  assert.equal(twin.find('sk-first', client, 0), null)
  assert.equal(store.asked, 1)
})

test('a key that has an end works until then, also where it is remembered', async () => {
  const { store, clock, follow, who } = await house()
  store.put('sk-ends', 'ends', {}, { expires: new Date(clock.now() + 60_000).toISOString() })
  await follow()
  assert.equal(who('sk-ends'), 'ends')
  clock.advance(59_000)
  assert.equal(who('sk-ends'), 'ends')
  clock.advance(1000)
  assert.equal(who('sk-ends'), null)
})

test('all chains of a configuration share its accounts; a section that changed makes new ones', () => {
  const shared = createSharedState()
  const config = gatewayOf({ plans: {}, organizations: {}, models: {} }) as any
  const accounts = accountsOf(shared, config)
  assert.equal(accountsOf(shared, { ...config }), accounts)
  for (const section of ['organizations', 'plans', 'models'])
    assert.notEqual(accountsOf(shared, { ...config, [section]: {} }), accounts, section)
})

test('an account is found by its names: of the file and of the store, also after its secret was replaced', async () => {
  const { organization, key } = caller({ id: 'filed' }, { id: 'key_f', sha256: digest('sk-filed') })
  const file = {
    organizations: {
      filed: { ...organization, keys: [key, { ...key, id: 'gone', sha256: digest('sk-gone'), status: 'revoked' }] },
    },
  }
  const { store, accounts, follow, clock } = await house(undefined, file)
  const named = async (organization: string, key: string) => {
    const found = await accounts.named(organization, key, client, clock.now())
    return found && `${found.organization.id}/${found.key.id}`
  }
  assert.equal(await named('filed', 'key_f'), 'filed/key_f')
  assert.deepEqual([await named('filed', 'gone'), await named('filed', 'key_1')], [null, null])
  assert.equal(store.asked, 0)
  for (let i = 0; i < 3; i++) assert.equal(await named('first', 'key_1'), 'first/key_1')
  assert.equal(store.asked, 2, 'the organization, and the key')
  assert.deepEqual([await named('first', 'key_2'), await named('constructor', 'key_1')], [null, null])

  store.accounts.delete(digest('sk-first'))
  store.put('sk-replaced', 'first')
  await follow()
  assert.equal(await named('first', 'key_1'), 'first/key_1')
  store.put('sk-replaced', 'first', { status: 'disabled' })
  await follow()
  assert.equal(await named('first', 'key_1'), null)
  store.down = true
  await assert.rejects(named('second', 'key_1'), StoreUnavailable)
})

test('names that belong to nobody are bounded as keys are', async () => {
  const { accounts, store } = await house({ cache: 100, misses: 8 })
  const outcomes: unknown[] = []
  for (let i = 0; i < 20; i++)
    outcomes.push(await Promise.resolve(accounts.named('first', `no_${i}`, client, 0)).catch(error => error.code))
  assert.deepEqual(new Set(outcomes), new Set([null, 'route_capacity']))
  assert.equal(store.asked, 2)
})

// A raise that outlived its end would be a limit that nobody holds.
test('a raise of an account ends when it says so, in the file and in the store, without a change', async () => {
  const until = new Date(1_700_000_000_000 + 5000).toISOString()
  const raises = [{ until, limits: { requests_per_minute: 50 }, model_limits: {} }]
  const filed = {
    ...caller({
      id: 'filed',
      limits: { requests_per_minute: 10 },
      raises: [{ ...raises[0], until: Date.parse(until) }],
    } as never),
  }
  const key = { ...filed.key, sha256: digest('sk-filed'), expires: null }
  const organizations = { filed: { ...filed.organization, status: 'active', keys: [key] } }
  const { store, clock, accounts, follow } = await house(undefined, { organizations })
  store.put('sk-stored', 'stored', { limits: { requests_per_minute: 10 }, raises })
  await follow()
  const limitOf = (secret: string) => {
    const found = accounts.find(secret, client, clock.now())
    assert.ok(found && !(found instanceof Promise))
    return [found.organization.limits.requests_per_minute, found] as const
  }
  for (const secret of ['sk-filed', 'sk-stored']) {
    const [limit, first] = limitOf(secret)
    assert.equal(limit, 50)
    assert.equal(limitOf(secret)[1], first, 'one identity while the raise holds')
  }
  const asked = store.asked
  clock.advance(4600)
  assert.equal(limitOf('sk-filed')[0], 50)
  clock.advance(200)
  for (const secret of ['sk-filed', 'sk-stored']) assert.equal(limitOf(secret)[0], 10)
  assert.equal(store.asked, asked)
})
