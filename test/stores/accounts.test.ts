/** Accounts of the store: one suite for both engines, with two connections, as two processes have them. */
import assert from 'node:assert/strict'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, type TestContext, test } from 'node:test'
import {
  type AccountStore,
  type AuditBounds,
  type AuditNote,
  MOST_CHANGES,
  unknownNote,
} from '../../core/ports/accounts.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { RedisAccounts } from '../../stores/redis/accounts.ts'
import { RedisClient } from '../../stores/redis/client.ts'
import { FORMAT } from '../../stores/redis/format.ts'
import { USERS } from '../../stores/sqlite/accounts.ts'
import { prepare, STEPS } from '../../stores/sqlite/schema.ts'
import { Tables } from '../../stores/sqlite/tables.ts'
import { random } from '../random.ts'
import { recordingLog, T0, temporary } from './kit.ts'
import { engines, redisDatabases, skipWithoutRedis } from './redis-server.ts'

const newDatabase = redisDatabases()

const digest = (n: number) => n.toString(16).padStart(64, '0')
/** The versions of changes that were all made. */
const versions = async (results: ReturnType<AccountStore['change']>): Promise<number[]> =>
  (await results).map(result => {
    assert.equal(result.refused, undefined)
    return (result as { version: number }).version
  })
const key = (n: number, id = `key_${n}`, settings = '{}') => ({ id, sha256: digest(n), settings })

for (const [name, skip, url] of engines()) {
  describe(name, { skip }, () => {
    /** Two connections to one empty store. */
    async function two(t: TestContext): Promise<[AccountStore, AccountStore]> {
      const at = url()
      const opened = [await openAccounts(at), await openAccounts(at)]
      t.after(() => Promise.all(opened.map(one => one.close())))
      return [opened[0]!.accounts, opened[1]!.accounts]
    }

    test('an organization and its keys are found by digest, read by id and listed in order', async t => {
      const [writer, reader] = await two(t)
      assert.equal(await reader.find(digest(1)), null)
      assert.equal(await reader.read('acme'), null)
      const [acme] = await versions(
        writer.change([{ id: 'acme', expected: 0, settings: '{"plan":"a"}', keys: [key(1)] }]),
      )
      assert.deepEqual(await reader.find(digest(1)), {
        organization: { id: 'acme', version: acme, settings: '{"plan":"a"}' },
        key: key(1),
      })
      assert.equal(await reader.find(digest(2)), null)
      const b = { id: 'b', expected: 0, settings: '{}', keys: [key(3), key(2)] }
      const umlaut = { ...b, id: 'Acme', keys: [] }
      const [second, third] = await versions(writer.change([b, umlaut]))
      assert.ok(acme! < second! && second! < third!)
      assert.deepEqual(await reader.read('b'), { id: 'b', version: second, settings: '{}', keys: [key(2), key(3)] })
      const ids = async (after: string, most: number) => (await reader.page(after, most)).map(({ id }) => id)
      assert.deepEqual([await ids('', 2), await ids('acme', 2), await ids('b', 2)], [['Acme', 'acme'], ['b'], []])
      assert.equal(await reader.count(), 3)
      assert.deepEqual(await reader.held(['b', 'c', 'acme']), ['b', 'acme'])
    })

    test('organizations are found by the id of a key, in pages', async t => {
      const [writer, reader] = await two(t)
      const ids = async (id: string, after = '', most = 10) =>
        (await reader.withKey(id, after, most)).map(({ id }) => id).join()
      assert.equal(await ids('key_1'), '')
      let next = 0
      const make = (id: string, ...keys: string[]) => ({
        ...{ id, expected: 0, settings: '{}' },
        keys: keys.map(own => key(++next, own)),
      })
      await versions(writer.change([make('b', 'key_1', 'key_10'), make('a/1', 'key_1'), make('c', 'key'), make('Z')]))
      assert.deepEqual(
        [await ids('key_1'), await ids('key_10'), await ids('key'), await ids('ke')],
        ['a/1,b', 'b', 'c', ''],
      )
      assert.deepEqual(
        [await ids('key_1', '', 1), await ids('key_1', 'a/1', 1), await ids('key_1', 'b')],
        ['a/1', 'b', ''],
      )
      assert.deepEqual((await reader.withKey('key', '', 1))[0], await reader.read('c'))
      // A key that gets another digest, and one that comes later.
      const { version } = (await reader.read('c'))!
      await versions(writer.change([{ id: 'c', expected: version, keys: [key(91, 'key'), key(92, 'key_1')] }]))
      assert.deepEqual([await ids('key'), await ids('key_1')], ['c', 'a/1,b,c'])
    })

    // What a reload asks. A count that a change leaves behind would keep a plan for ever, or let one go that is in use.
    test('plans and models are counted by who names them: an organization once, with its keys', async t => {
      const [writer, reader] = await two(t)
      assert.deepEqual(await reader.names(), [])
      const chance = random(7)
      const pick = <T>(of: readonly T[]): T => of[Math.floor(chance() * of.length)]!
      const some = () => ['fast', 'smart', 'smart:latest', 'a b', '{x}'].filter(() => chance() < 0.4)
      const rights = () => ({
        ...(chance() < 0.6 && { models: chance() < 0.2 ? 'all' : some() }),
        ...(chance() < 0.4 && { model_limits: Object.fromEntries(some().map(name => [name, {}])) }),
      })
      const model = new Map<string, { settings: any; keys: Map<string, any>; version: number }>()
      let digests = 0
      for (let i = 0; i < 300; i++) {
        const id = `o${Math.floor(chance() * 12)}`
        const known = model.get(id) ?? { settings: {}, keys: new Map(), version: 0 }
        const settings =
          known.version === 0 || chance() < 0.5 ? { plan: pick(['gold', 'silver', 'a b']), ...rights() } : undefined
        const keys = ['k1', 'k2', 'k3']
          .filter(() => chance() < 0.3)
          .map(own => {
            const of = { ...rights(), ...(chance() < 0.3 && { status: 'revoked' }) }
            known.keys.set(own, of)
            return key(++digests, own, JSON.stringify(of))
          })
        if (settings) known.settings = settings
        const change = { id, expected: known.version, keys, ...(settings && { settings: JSON.stringify(settings) }) }
        known.version = (await versions(writer.change([change])))[0]!
        model.set(id, known)
      }
      const expected = new Map<string, string[]>()
      for (const [id, { settings, keys }] of [...model].sort(([a], [b]) => (a < b ? -1 : 1))) {
        const alive = [...keys.values()].filter(({ status }) => status !== 'revoked')
        const models = [settings, ...alive].flatMap(({ models, model_limits = {} }) => [
          ...(Array.isArray(models) ? models : []),
          ...Object.keys(model_limits),
        ])
        for (const name of new Set([`plan:${settings.plan}`, ...models.map(name => `model:${name}`)]))
          expected.set(name, [...(expected.get(name) ?? []), id])
      }
      const counted = (await reader.names()).map(({ kind, name, organizations }) => [`${kind}:${name}`, organizations])
      const sizes = [...expected].map(([name, ids]) => [name, ids.length])
      assert.deepEqual(counted.sort(), sizes.sort())
      for (const [name, ids] of expected) {
        const [, kind, own] = /^(plan|model):(.*)$/.exec(name)!
        const found = await reader.users(kind as 'plan', ['none', own!], 3)
        assert.deepEqual(found, [{ kind, name: own, organizations: ids.length, ids: ids.slice(0, 3) }])
      }
    })

    test('a change is based on a version; one that comes too late changes nothing', async t => {
      const [writer, other] = await two(t)
      const [made] = await versions(writer.change([{ id: 'acme', expected: 0, settings: '{}', keys: [key(1)] }]))
      const again = { id: 'acme', expected: 0, settings: '{"plan":"b"}', keys: [key(2)] }
      assert.deepEqual(await other.change([again]), [{ refused: 'changed' }])
      assert.deepEqual(await other.change([{ ...again, expected: 7 }]), [{ refused: 'changed' }])
      const [first, second] = await Promise.all([
        writer.change([{ id: 'acme', expected: made!, keys: [key(1, 'key_1', '{"status":"revoked"}')] }]),
        other.change([{ id: 'acme', expected: made!, settings: '{"plan":"c"}', keys: [] }]),
      ])
      assert.deepEqual([...first, ...second].map(result => result.refused).sort(), ['changed', undefined])
      const found = await other.find(digest(1))
      assert.ok(found)
      assert.equal(
        found.organization.version,
        first[0]!.refused ? (second[0] as any).version : (first[0] as any).version,
      )
      // One of the two changes, and not a mixture.
      const expected = first[0]!.refused ? ['{"plan":"c"}', '{}'] : ['{}', '{"status":"revoked"}']
      assert.deepEqual([found.organization.settings, found.key.settings], expected)
      assert.equal(await other.find(digest(2)), null)
    })

    test('a digest belongs to one key; a key that gets another digest leaves the old one', async t => {
      const [store] = await two(t)
      const [made] = await versions(store.change([{ id: 'acme', expected: 0, settings: '{}', keys: [key(1)] }]))
      const thief = { id: 'thief', expected: 0, settings: '{}', keys: [key(9), key(1, 'mine')] }
      const refused = { refused: 'digest', sha256: digest(1), organization: 'acme', key: 'key_1' }
      assert.deepEqual(await store.change([thief]), [refused])
      assert.deepEqual([await store.read('thief'), await store.find(digest(9))], [null, null])
      assert.deepEqual(await store.change([{ id: 'acme', expected: made!, keys: [key(1, 'key_2')] }]), [refused])
      await versions(store.change([{ id: 'acme', expected: made!, keys: [key(2, 'key_1')] }]))
      assert.equal(await store.find(digest(1)), null)
      assert.equal((await store.find(digest(2)))?.key.id, 'key_1')
    })

    test('a change and its entry in the audit come together; pages go from the latest to the first', async t => {
      const [store, reader] = await two(t)
      const note = (n: number): AuditNote => ({
        time: T0 + n,
        by: 'cli:root',
        address: '',
        operation: `o${n}`,
        key: '',
        before: n === 0 ? null : { plan: `p${n - 1}` },
        after: { plan: `p${n}` },
      })
      let version = 0
      for (let n = 0; n < 5; n++) {
        const change = { id: 'acme', expected: version, settings: `{"plan":"p${n}"}`, keys: [key(1)], audit: note(n) }
        version = (await versions(store.change([change])))[0]!
      }
      const late = { id: 'acme', expected: 1, settings: '{"plan":"late"}', keys: [], audit: note(9) }
      const thief = { id: 'thief', expected: 0, settings: '{}', keys: [key(1)], audit: note(9) }
      assert.deepEqual(
        (await store.change([late, thief])).map(({ refused }) => refused),
        ['changed', 'digest'],
      )
      await versions(store.change([{ id: 'b', expected: 0, settings: '{}', keys: [] }]))
      await store.note({ ...note(7), operation: 'refused' })
      const all = await reader.audit({ before: '', most: 3 })
      assert.deepEqual(
        all.entries.map(({ operation, organization }) => [operation, organization]),
        [
          ['refused', ''],
          ['change', 'b'],
          ['o4', 'acme'],
        ],
      )
      const rest = await reader.audit({ before: all.next!, most: 10 })
      assert.deepEqual(
        rest.entries.map(({ id: _, ...entry }) => entry),
        [3, 2, 1, 0].map(n => ({ organization: 'acme', ...note(n) })),
      )
      assert.equal(rest.next, null)
      const own = await reader.audit({ organization: 'acme', before: '', most: 2 })
      assert.deepEqual(
        own.entries.map(({ operation }) => operation),
        ['o4', 'o3'],
      )
      const more = await reader.audit({ organization: 'acme', before: own.next!, most: 9 })
      assert.deepEqual([more.entries.map(({ operation }) => operation), more.next], [['o2', 'o1', 'o0'], null])
    })

    test('a gateway keeps the audit within its bounds of number and time', async () => {
      const at = url()
      const opened = await openAccounts(at)
      for (let n = 0; n < 5; n++) await opened.accounts.note({ ...unknownNote(T0 + n), operation: `o${n}` })
      await opened.close()
      const left = async (audit: AuditBounds, now: number) => {
        if (name === 'sqlite') {
          const db = new DatabaseSync(at.slice('sqlite:'.length))
          const caps = { idempotencyBytes: 1e6, recordBytes: 1e6, valueBytes: 1e6, share: 1, ledgerKeep: null, audit }
          new Tables(db, caps).apply([{ op: 'sweep', now }])
          db.close()
        } else {
          const client = new RedisClient({ url: at, timeout: 1000, log: recordingLog() })
          await client.connect()
          await new RedisAccounts(client).trim(audit, now)
          client.disconnect()
        }
        const again = await openAccounts(at)
        const { entries } = await again.accounts.audit({ before: '', most: 10 })
        await again.close()
        return entries.map(({ operation }) => operation)
      }
      assert.deepEqual(await left({ keep: 1e12, most: 3 }, T0 + 10), ['o4', 'o3', 'o2'])
      // Redis goes by its own time of the entry, which is far from T0.
      assert.deepEqual(await left({ keep: 1000, most: 3 }, 4e12), [])
    })

    test('another connection learns what has changed, and only that', async t => {
      const [writer, reader] = await two(t)
      const put = async (id: string, expected: number) =>
        (await versions(writer.change([{ id, expected, settings: '{}', keys: [] }])))[0]!
      assert.deepEqual(await reader.since(0), { version: 0, ids: [] })
      const a = await put('a', 0)
      const b = await put('b', 0)
      const { version, ids } = await reader.since(0)
      assert.deepEqual([version, ids?.sort()], [b, ['a', 'b']])
      assert.deepEqual(await reader.since(b), { version: b, ids: [] })
      const again = await put('a', a)
      assert.deepEqual(await reader.since(b), { version: again, ids: ['a'] })
      assert.deepEqual(await writer.since(again), { version: again, ids: [] })
      // A gateway that knows a version which the store has lost must not believe anything that it remembers.
      assert.deepEqual(await reader.since(again + 99), { version: again, ids: null })
    })

    test('of very many changes only their number is told', async t => {
      const [writer, reader] = await two(t)
      const many = (from: number, count: number) =>
        writer.change(
          Array.from({ length: count }, (_, i) => ({ id: `o${from + i}`, expected: 0, settings: '{}', keys: [] })),
        )
      const [first] = await versions(many(0, 1))
      await many(1, MOST_CHANGES)
      assert.equal((await reader.since(first!)).ids?.length, MOST_CHANGES)
      const [last] = await versions(many(MOST_CHANGES + 1, 1))
      assert.deepEqual(await reader.since(first!), { version: last, ids: null })
    })
  })
}

test('sqlite: the id of a key is looked up in an index', async () => {
  const file = path.join(temporary(), 'gateway.db')
  const { accounts, close } = await openAccounts(`sqlite:${file}`)
  await accounts.withKey('key_1', '', 1)
  await close()
  const db = new DatabaseSync(file)
  const plan = db.prepare(
    `EXPLAIN QUERY PLAN SELECT 1 FROM keys k CROSS JOIN organizations o ON o.id = k.organization
     WHERE k.id = ? AND k.organization > ? ORDER BY k.organization LIMIT ?`,
  )
  const steps = plan.all('key_1', '', 1).map(({ detail }) => detail as string)
  db.close()
  assert.match(steps[0]!, /^SEARCH k USING COVERING INDEX keys_id \(id=\? AND organization>\?\)/)
  assert.equal(steps.length, 2, `no sorting: ${steps}`)
})

test('redis: keys that a gateway of an earlier release makes are found, too', { skip: skipWithoutRedis }, async t => {
  const url = newDatabase()
  const client = new RedisClient({ url, timeout: 10_000, log: recordingLog() })
  await client.connect()
  t.after(() => client.disconnect())
  const accounts = new RedisAccounts(client)
  const [keys, state] = ['{sluice:accounts}:keys', '{sluice:accounts}:keyed']
  const make = (from: number, count: number) =>
    accounts.change(
      Array.from({ length: count }, (_, i) => {
        const n = from + i
        return { id: `o${String(n).padStart(5, '0')}`, expected: 0, settings: '{}', keys: [key(n, 'key_1')] }
      }),
    )
  const found = async () => (await accounts.withKey('key_1', '', 2000)).length
  const indexed = () => client.redis.zcard(keys)
  // All of it was made by a release that has no such set.
  await make(1, 500)
  await client.redis.del(keys, state)
  assert.ok((await found()) < 500, 'one look does not go through everything')
  await accounts.index()
  assert.equal(await found(), 500)
  // Beside a gateway of that release: its changes neither add to the set nor move the state.
  const before = await client.redis.hgetall(state)
  await make(1001, 3)
  await client.redis.del(state)
  await client.redis.hset(state, before)
  for (const id of ['o01001', 'o01002', 'o01003']) await client.redis.zrem(keys, `key_1 ${id}`)
  assert.equal(await indexed(), 500)
  assert.equal(await found(), 503)
  // It made more changes than are remembered.
  await make(2001, 2)
  await client.redis.hset(state, before)
  await client.redis.zrem(keys, 'key_1 o02001', 'key_1 o02002')
  await client.redis.xtrim('{sluice:accounts}:changes', 'MAXLEN', 1)
  await accounts.index()
  assert.equal(await found(), 505)
  assert.equal((await client.redis.hgetall(state))['v'], await client.redis.get('{sluice:accounts}:version'))
})

test('sqlite: who names a plan is looked up in an index, however many there are', async () => {
  const file = path.join(temporary(), 'gateway.db')
  const { accounts, close } = await openAccounts(`sqlite:${file}`)
  await accounts.users('plan', ['gold'], 1)
  await close()
  const db = new DatabaseSync(file)
  const steps = db.prepare(`EXPLAIN QUERY PLAN ${USERS}`).all('plan', 'gold', 5)
  db.close()
  assert.deepEqual(
    steps.map(({ detail }) => detail),
    ['SEARCH account_names USING PRIMARY KEY (kind=? AND name=?)'],
    'no sorting',
  )
})

test('sqlite: a database of the release before gets the index, and a command of that release keeps it right', () => {
  const file = path.join(temporary(), 'gateway.db')
  const db = new DatabaseSync(file)
  prepare(db, file, STEPS.slice(0, 7))
  const put = db.prepare('INSERT INTO organizations (id, version, settings) VALUES (?, ?, ?)')
  const add = db.prepare('INSERT INTO keys (sha256, organization, id, settings) VALUES (?, ?, ?, ?)')
  put.run('acme', 1, '{"plan":"gold","models":["fast","smart"],"model_limits":{"smart":{}}}')
  add.run(Buffer.from(digest(1), 'hex'), 'acme', 'key_1', '{"models":["smart"]}')
  add.run(Buffer.from(digest(2), 'hex'), 'acme', 'key_2', '{"models":["old"],"status":"revoked"}')
  put.run('b', 2, '{"plan":"gold"}')
  put.run('odd', 3, 'no JSON')
  prepare(db, file)
  const counts = () =>
    db
      .prepare("SELECT kind || ' ' || name || ' ' || organizations AS text FROM account_counts ORDER BY 1")
      .all()
      .map(({ text }) => text)
  assert.deepEqual(counts(), ['model fast 1', 'model smart 1', 'plan gold 2'])
  // As that release writes.
  db.exec(`UPDATE organizations SET version = 4, settings = '{"plan":"silver"}' WHERE id = 'acme'`)
  assert.deepEqual(counts(), ['model smart 1', 'plan gold 1', 'plan silver 1'])
  db.exec(`INSERT INTO keys (sha256, organization, id, settings) VALUES (x'01', 'acme', 'key_1', '{}')
    ON CONFLICT (organization, id) DO UPDATE SET sha256 = excluded.sha256, settings = excluded.settings`)
  assert.deepEqual(counts(), ['plan gold 1', 'plan silver 1'])
  db.exec("DELETE FROM organizations WHERE id = 'b'")
  assert.deepEqual(counts(), ['plan silver 1'])
  db.close()
})

describe('redis: names', { skip: skipWithoutRedis }, () => {
  const TAG = '{sluice:accounts}:'
  async function opened(t: TestContext): Promise<{ client: RedisClient; accounts: RedisAccounts; url: string }> {
    const url = newDatabase()
    const client = new RedisClient({ url, timeout: 10_000, log: recordingLog() })
    await client.connect()
    t.after(() => client.disconnect())
    return { client, accounts: new RedisAccounts(client), url }
  }
  /** As a gateway of the release before changes an organization: it leaves out the index. */
  async function asBefore({ redis }: RedisClient, id: string, settings: object, keys: [string, object][] = []) {
    const version = Number((await redis.get(`${TAG}version`)) ?? 1_000_000) + 1
    await redis.set(`${TAG}version`, version)
    const fields = keys.flatMap(([key, own], i) => [`k:${key}`, digest(version * 10 + i) + JSON.stringify(own)])
    await redis.hset(`${TAG}org:${id}`, 'v', version, 's', JSON.stringify(settings), ...fields)
    await redis.zadd(`${TAG}ids`, 0, id)
    await redis.xadd(`${TAG}changes`, `${version}-0`, 'o', id)
  }
  const counts = async (accounts: RedisAccounts) =>
    (await accounts.names()).map(({ kind, name, organizations }) => `${kind} ${name} ${organizations}`).sort()

  test('data of the release before gets the index when it is brought up to date', async t => {
    const { client, accounts, url } = await opened(t)
    for (let i = 0; i < 500; i++)
      await asBefore(client, `o${i}`, { plan: i % 5 === 0 ? 'gold' : 'silver' }, [['key_1', { models: ['fast'] }]])
    await (await openAccounts(url)).close()
    assert.deepEqual(await client.redis.hmget(FORMAT, 'version', 'min_reader'), ['3', '1'])
    assert.equal(await client.redis.zcard(`${TAG}used:plan:gold`), 100)
    assert.deepEqual(await counts(accounts), ['model fast 500', 'plan gold 100', 'plan silver 400'])
  })

  // A gateway that was not replaced yet writes an account and not the index. The count would be wrong for ever.
  test('what a gateway of the release before changes is counted at the next look', async t => {
    const { client, accounts } = await opened(t)
    await accounts.change([
      { id: 'acme', expected: 0, settings: '{"plan":"gold","models":["fast"]}', keys: [] },
      { id: 'b', expected: 0, settings: '{"plan":"gold"}', keys: [] },
    ])
    assert.deepEqual(await counts(accounts), ['model fast 1', 'plan gold 2'])
    await asBefore(client, 'acme', { plan: 'silver' })
    await asBefore(client, 'new', { plan: 'silver' }, [['key_1', { models: ['smart'] }]])
    // Both kinds of gateways by turns, on the same organization, too.
    const { version } = (await accounts.read('acme'))!
    await accounts.change([{ id: 'acme', expected: version, settings: '{"plan":"bronze"}', keys: [] }])
    assert.deepEqual(await counts(accounts), ['model smart 1', 'plan bronze 1', 'plan gold 1', 'plan silver 1'])
    assert.deepEqual(await accounts.users('plan', ['gold'], 9), [
      { kind: 'plan', name: 'gold', organizations: 1, ids: ['b'] },
    ])
    // It made more changes than are remembered.
    await asBefore(client, 'b', { plan: 'silver' })
    await asBefore(client, 'b', { plan: 'bronze' })
    await client.redis.xtrim(`${TAG}changes`, 'MAXLEN', 1)
    assert.deepEqual(await counts(accounts), ['model smart 1', 'plan bronze 2', 'plan silver 1'])
    const [state, latest] = [await client.redis.hgetall(`${TAG}named`), await client.redis.get(`${TAG}version`)]
    assert.deepEqual({ ...state }, { v: latest })
  })

  test('an index that is not complete is not believed', async t => {
    const { client, accounts } = await opened(t)
    const ids = Array.from({ length: 21_000 }, (_, i) => `o${String(i).padStart(5, '0')}`)
    for (let i = 0; i < ids.length; i += 1000)
      await client.redis.zadd(`${TAG}ids`, ...ids.slice(i, i + 1000).flatMap(id => [0, id]))
    await asBefore(client, 'o20999', { plan: 'gold' })
    await assert.rejects(accounts.users('plan', ['gold'], 1), /index .* is being built/)
    await accounts.index()
    assert.deepEqual((await accounts.users('plan', ['gold'], 1))[0]?.ids, ['o20999'])
  })

  test('who names a plan costs as many commands with three accounts as with thousands', async t => {
    const { client, accounts } = await opened(t)
    const add = async (from: number, count: number) => {
      const of = (n: number) => ({ id: `o${n}`, expected: 0, settings: '{"plan":"gold"}', keys: [] })
      await accounts.change(Array.from({ length: count }, (_, i) => of(from + i)))
    }
    const commands = async () => {
      const info = await client.redis.info('commandstats')
      return [...info.matchAll(/cmdstat_(?!info|client|ping)\S+?:calls=(\d+)/g)].reduce(
        (sum, [, n]) => sum + Number(n),
        0,
      )
    }
    const cost = async () => {
      const before = await commands()
      const [gold] = await accounts.users('plan', ['gold'], 3)
      return [gold!.organizations, (await commands()) - before]
    }
    await add(0, 3)
    await cost() // loads the scripts
    const [few, first] = await cost()
    await add(3, 4000)
    const [many, second] = await cost()
    assert.deepEqual([few, many, second], [3, 4003, first])
    assert.ok(second! < 12, `${second}`)
  })
})
