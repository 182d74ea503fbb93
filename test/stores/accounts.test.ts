/** Accounts of the store: one suite for both engines, with two connections, as two processes have them. */
import assert from 'node:assert/strict'
import path from 'node:path'
import { after, before, describe, type TestContext, test } from 'node:test'
import { type AccountStore, MOST_CHANGES } from '../../core/accounts.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

let server: RedisServer | undefined
let databases = 0
before(async () => {
  if (!skipWithoutRedis) server = await RedisServer.start()
})
after(() => server?.stop())

const urls: [name: string, skip: string | false, url: () => string][] = [
  ['sqlite', false, () => `sqlite:${path.join(temporary(), 'gateway.db')}`],
  ['redis', skipWithoutRedis, () => server!.url.replace(/\/0$/, `/${databases++}`)],
]

const digest = (n: number) => n.toString(16).padStart(64, '0')
/** The versions of changes that were all made. */
const versions = async (results: ReturnType<AccountStore['change']>): Promise<number[]> =>
  (await results).map(result => {
    assert.equal(result.refused, undefined)
    return (result as { version: number }).version
  })
const key = (n: number, id = `key_${n}`, settings = '{}') => ({ id, sha256: digest(n), settings })

for (const [name, skip, url] of urls) {
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
