/** The life of organizations and keys in the store, on both engines: what is ignored, what is removed, what stays. */
import assert from 'node:assert/strict'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import type { AccountStore, ChangeResult } from '../../core/ports/accounts.ts'
import { lastUses, type Store } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { openStore } from '../../stores/index.ts'
import { removeLeft } from '../../stores/leaving.ts'
import { moveStore } from '../../stores/move/move.ts'
import { RedisStore } from '../../stores/redis/store.ts'
import { eventually } from '../eventually.ts'
import { bucket, DAY, intent, options, outcome, recordingLog, slots, spend, T0, temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

let server: RedisServer | undefined
let databases = 0
before(async () => {
  if (!skipWithoutRedis) server = await RedisServer.start()
})
after(() => server?.stop())

const digest = (n: number) => n.toString(16).padStart(64, '0')
const key = (n: number, id: string, settings = '{}', about?: string) => ({
  ...{ id, sha256: digest(n), settings },
  ...(about !== undefined && { about }),
})
const one = async (results: ReturnType<AccountStore['change']>): Promise<ChangeResult> => (await results)[0]!
const made = async (results: ReturnType<AccountStore['change']>): Promise<number> => {
  const result = await one(results)
  assert.equal(result.refused, undefined)
  return (result as { version: number }).version
}

const engines = [
  ['sqlite', false, () => `sqlite:${path.join(temporary(), 'gateway.db')}`],
  ['redis', skipWithoutRedis, () => server!.url.replace(/\/0$/, `/${databases++}`)],
] as const

for (const [name, skip, url] of engines) {
  describe(name, { skip }, () => {
    test('what the gateway ignores is read with an organization, never with a key that is looked up', async t => {
      const opened = await openAccounts(url())
      t.after(() => opened.close())
      const { accounts } = opened
      const first = { id: 'acme', expected: 0, settings: '{"plan":"a"}', about: '{"name":"Acme"}' }
      let version = await made(
        accounts.change([{ ...first, keys: [key(1, 'k1', '{}', '{"label":"CI"}'), key(2, 'k2')] }]),
      )
      const whole = { version, id: 'acme', settings: first.settings, about: first.about }
      assert.deepEqual(await accounts.read('acme'), {
        ...whole,
        keys: [key(1, 'k1', '{}', '{"label":"CI"}'), key(2, 'k2')],
      })
      assert.deepEqual(await accounts.find(digest(1)), {
        organization: { id: 'acme', version, settings: first.settings },
        key: key(1, 'k1'),
      })
      assert.deepEqual((await accounts.page('', 5))[0], await accounts.read('acme'))
      assert.deepEqual((await accounts.withKey('k1', '', 5))[0], await accounts.read('acme'))
      // A change that says nothing about it leaves it.
      version = await made(
        accounts.change([{ id: 'acme', expected: version, keys: [key(1, 'k1', '{"models":["m"]}')] }]),
      )
      const [k1] = (await accounts.read('acme'))!.keys
      assert.deepEqual([k1!.settings, k1!.about], ['{"models":["m"]}', '{"label":"CI"}'])
      version = await made(accounts.change([{ id: 'acme', expected: version, about: '{}', keys: [] }]))
      assert.equal((await accounts.read('acme'))!.about, '{}')
    })

    test('a key that is removed is nowhere, and its id is never given again', async t => {
      const opened = await openAccounts(url())
      t.after(() => opened.close())
      const { accounts } = opened
      const both = [key(1, 'k1', '{"models":["fast"]}', '{"label":"CI"}'), key(2, 'k2')]
      let version = await made(accounts.change([{ id: 'acme', expected: 0, settings: '{"plan":"a"}', keys: both }]))
      const before = version
      version = await made(accounts.change([{ id: 'acme', expected: version, keys: [], removed: ['k1', 'none'] }]))
      assert.equal(await accounts.find(digest(1)), null)
      assert.deepEqual((await accounts.read('acme'))!.keys, [both[1]])
      assert.deepEqual(await accounts.withKey('k1', '', 5), [])
      assert.deepEqual(await accounts.users('model', ['fast'], 5), [])
      assert.deepEqual(await accounts.since(before), { version, ids: ['acme'] })
      const again = { id: 'acme', expected: version, keys: [key(3, 'k1')] }
      assert.deepEqual(await one(accounts.change([again])), { refused: 'gone', key: 'k1' })
      // What never was can be made; in another organization the id is free.
      version = await made(accounts.change([{ id: 'acme', expected: version, keys: [key(4, 'none')] }]))
      await made(accounts.change([{ id: 'b', expected: 0, settings: '{}', keys: [key(5, 'k1')] }]))
    })

    test('an organization that is removed is nowhere, and its id is never given again', async t => {
      const opened = await openAccounts(url())
      t.after(() => opened.close())
      const { accounts } = opened
      const make = (id: string, n: number, expected = 0) => ({
        ...{ id, expected, settings: '{"plan":"gold"}', about: '{"name":"N"}', keys: [key(n, 'k')] },
      })
      const a = await made(accounts.change([make('a', 1)]))
      const b = await made(accounts.change([make('b', 2)]))
      // The latest change is the one that goes: a version must not come twice.
      const removed = await made(accounts.change([{ id: 'b', expected: b, remove: true, keys: [] }]))
      assert.ok(removed > b)
      assert.deepEqual(await accounts.since(b), { version: removed, ids: ['b'] })
      assert.deepEqual([await accounts.read('b'), await accounts.find(digest(2))], [null, null])
      assert.deepEqual(await accounts.held(['a', 'b']), ['a'])
      assert.equal(await accounts.count(), 1)
      assert.deepEqual(await accounts.names(), [{ kind: 'plan', name: 'gold', organizations: 1 }])
      assert.deepEqual(await one(accounts.change([make('b', 3)])), { refused: 'gone', key: '' })
      const next = await made(accounts.change([{ id: 'a', expected: a, settings: '{}', keys: [] }]))
      assert.ok(next > removed)
      const { entries } = await accounts.audit({ organization: 'b', before: '', most: 9 })
      assert.equal(entries.length, 2)
    })

    async function fill(store: Store, org: string, now: number): Promise<void> {
      const cells = [bucket('o:rpd', 100, DAY), spend('o:day', 1e12)]
      const ofUsers = [bucket('k:k:u:rpd', 100, DAY), slots('k:k:u:conc', 9)].map(cell => ({
        ...cell,
        scope: 'user' as const,
      }))
      const user = { name: 'ann', cells: ofUsers, amounts: [1, 1] }
      const admitted = await store.limits.admit({ org, id: `${org}-1`, cells, amounts: [1, 1000], now, user })
      assert.equal(admitted.admitted, true)
      await store.ledger.intent(intent(`${org}-1`, { organization: org, billing: 'prepaid' }))
      store.limits.settle(org, `${org}-1`, [1, 425_000], now, [1, 0])
      await store.ledger.outcome(outcome(`${org}-1`))
      await store.records.put(org, 'response', 'r1', Buffer.from('secret'), DAY, now)
      await store.pluginValues.put(org, 'value', 'v1', Buffer.from('secret'), DAY, now)
      assert.equal((await store.idempotency.begin(org, 'idem', 'f', 'q1', DAY, now)).state, 'first')
      const reply = { requestId: 'q1', status: 200, headers: [], body: Buffer.from('hello'), whole: true }
      await store.idempotency.finish(org, 'idem', reply, DAY, now)
      await store.ledger.flush()
    }

    test('what has left goes with its data after the grace; rows, credits and audit stay, and others keep all', async t => {
      const clock = new ManualClock(Date.now())
      const now = clock.now()
      const store = await openStore(options(url(), { dataDir: temporary(), clock }))
      t.after(() => store.close())
      const { accounts } = store
      const versions = new Map<string, number>()
      for (const [n, id] of ['goes', 'back', 'stays'].entries()) {
        const settings = JSON.stringify({ plan: 'a', status: id === 'stays' ? 'active' : 'disabled' })
        const leaves = id === 'stays' ? {} : { leaves: now + 1000 }
        versions.set(
          id,
          await made(accounts.change([{ id, expected: 0, settings, ...leaves, keys: [key(n + 1, 'k')] }])),
        )
        await fill(store, id, now)
      }
      const credit = { id: 'p1', amount: 5e9, time: now, by: 'cli', note: '' }
      const paid = { id: 'goes', expected: versions.get('goes')!, keys: [], credit }
      await made(accounts.change([paid]))
      const billed = await accounts.billed('goes')
      assert.ok(billed > 0)
      assert.equal((await accounts.read('goes'))!.leaves, now + 1000)
      // As an earlier release enables it.
      const back = { id: 'back', expected: versions.get('back')!, settings: '{"plan":"a","status":"active"}', keys: [] }
      await made(accounts.change([back]))
      const forgotten: string[] = []
      const sweep = (now: number) =>
        removeLeft(
          accounts,
          async org => {
            forgotten.push(org)
          },
          now,
        )
      await sweep(now + 999)
      assert.deepEqual([forgotten, await accounts.count()], [[], 3])
      // The store itself does it, in its sweeps and beats.
      await eventually(async () => {
        clock.advance(30_000)
        return (await accounts.count()) === 2
      })
      assert.equal(await accounts.read('goes'), null)
      const cells = [bucket('o:rpd', 100, DAY), spend('o:day', 1e12)]
      for (const [id, used] of [
        ['goes', 0],
        ['stays', 1],
        ['back', 1],
      ] as const) {
        const record = await store.records.get(id, 'response', 'r1', now)
        assert.equal(record !== null, used === 1, id)
        assert.equal((await store.pluginValues.get(id, 'value', 'v1', now)) !== null, used === 1, id)
        const state = (await store.idempotency.begin(id, 'idem', 'f', 'q2', DAY, now)).state
        assert.equal(state, used === 1 ? 'replay' : 'first', id)
      }
      // SQLite's levels are in this process's memory, too, until it forgets idle organizations.
      if (store instanceof RedisStore) {
        assert.equal((await store.limits.peek('goes', cells, now))[0]!.remaining, 100)
        assert.deepEqual(await store.client.redis.keys('sluice:{goes}:[uo]*'), [])
        assert.equal((await store.client.redis.keys('sluice:{stays}:users*')).length, 2)
      }
      const rows = await store.ledger.query({})
      assert.deepEqual(rows.map(row => row.organization).sort(), ['back', 'goes', 'stays'])
      assert.deepEqual([await accounts.credits('goes'), await accounts.billed('goes')], [[credit], billed])
      const audit = await accounts.audit({ organization: 'goes', before: '', most: 9 })
      assert.deepEqual(
        audit.entries.map(({ operation, by }) => `${operation} ${by}`),
        ['organization.remove gateway', 'change unknown', 'change unknown'],
      )
      assert.equal((await accounts.read('back'))!.leaves, undefined)
    })

    test('the last use of a key is the last hour in which a row has it', async t => {
      const store = await openStore(options(url(), { dataDir: temporary() }))
      t.after(() => store.close())
      const hour = 3_600_000
      const times: [key: string, time: number][] = [
        ['k1', T0 - 30 * DAY],
        ['k1', T0 - 3 * DAY + 5],
        ['k2', T0 + 10],
        ['k3', T0 - 390 * DAY],
      ]
      for (const [n, [key_id, time]] of times.entries()) {
        await store.ledger.intent(intent(`r${n}`, { key_id, time }))
        await store.ledger.outcome(outcome(`r${n}`))
      }
      await store.ledger.intent(intent('foreign', { organization: 'other', key_id: 'k4', time: T0 }))
      await store.ledger.outcome(outcome('foreign'))
      await store.ledger.flush()
      const found = await lastUses(f => store.usage(f), 'acme', ['k1', 'k2', 'k3', 'k4'], T0 + 100)
      const at = (time: number) => Math.floor(time / hour) * hour
      assert.deepEqual(Object.fromEntries(found), {
        k1: at(T0 - 3 * DAY + 5),
        k2: at(T0 + 10),
        k3: at(T0 - 390 * DAY),
      })
    })
  })
}

test('a move carries names, what leaves, and the ids that are not given again, both ways', {
  skip: skipWithoutRedis,
}, async () => {
  const [from, there] = [engines[0][2](), engines[1][2]()]
  const back = engines[0][2]()
  const { accounts, close } = await openAccounts(from)
  const about = '{"label":"CI"}'
  const a = { id: 'a', expected: 0, settings: '{"plan":"a","status":"disabled"}', about: '{"name":"A"}', leaves: T0 }
  const version = await made(accounts.change([{ ...a, keys: [key(1, 'k1', '{}', about), key(2, 'k2')] }]))
  await made(accounts.change([{ id: 'a', expected: version, keys: [], removed: ['k2'] }]))
  const b = await made(accounts.change([{ id: 'b', expected: 0, settings: '{}', keys: [] }]))
  await made(accounts.change([{ id: 'b', expected: b, remove: true, keys: [] }]))
  // What the gateway at the start of a move would remove is not what this test is about.
  const seen = (await accounts.read('a'))!
  await made(accounts.change([{ id: 'a', expected: seen.version, leaves: Date.now() + DAY, keys: [] }]))
  const expected = (await accounts.read('a'))!
  await close()
  const common = { maxMemory: null, log: recordingLog(), tell() {}, progress() {} }
  for (const [source, target] of [
    [from, there],
    [there, back],
  ] as const) {
    await moveStore({ ...common, from: source, to: target })
    const moved = await openAccounts(target)
    assert.deepEqual(await moved.accounts.read('a'), expected)
    const gone = async (id: string, expected: number, keys: ReturnType<typeof key>[]) =>
      (await one(moved.accounts.change([{ id, expected, settings: '{}', keys }]))).refused
    assert.equal(await gone('b', 0, []), 'gone')
    assert.equal(await gone('a', expected.version, [key(9, 'k2')]), 'gone')
    await moved.close()
  }
})
