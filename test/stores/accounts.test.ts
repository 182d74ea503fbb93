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
      assert.deepEqual(await writer.change([{ id: 'acme', expected: 0, settings: '{"plan":"a"}', keys: [key(1)] }]), [
        { version: 1 },
      ])
      assert.deepEqual(await reader.find(digest(1)), {
        organization: { id: 'acme', version: 1, settings: '{"plan":"a"}' },
        key: key(1),
      })
      assert.equal(await reader.find(digest(2)), null)
      const b = { id: 'b', expected: 0, settings: '{}', keys: [key(3), key(2)] }
      const umlaut = { ...b, id: 'Acme', keys: [] }
      assert.deepEqual(await writer.change([b, umlaut]), [{ version: 2 }, { version: 3 }])
      assert.deepEqual(await reader.read('b'), { id: 'b', version: 2, settings: '{}', keys: [key(2), key(3)] })
      const ids = async (after: string, most: number) => (await reader.page(after, most)).map(({ id }) => id)
      assert.deepEqual([await ids('', 2), await ids('acme', 2), await ids('b', 2)], [['Acme', 'acme'], ['b'], []])
      assert.equal(await reader.count(), 3)
      assert.deepEqual(await reader.held(['b', 'c', 'acme']), ['b', 'acme'])
    })

    test('a change is based on a version; one that comes too late changes nothing', async t => {
      const [writer, other] = await two(t)
      await writer.change([{ id: 'acme', expected: 0, settings: '{}', keys: [key(1)] }])
      const again = { id: 'acme', expected: 0, settings: '{"plan":"b"}', keys: [key(2)] }
      assert.deepEqual(await other.change([again]), [{ refused: 'changed' }])
      assert.deepEqual(await other.change([{ ...again, expected: 7 }]), [{ refused: 'changed' }])
      const [first, second] = await Promise.all([
        writer.change([{ id: 'acme', expected: 1, keys: [key(1, 'key_1', '{"status":"revoked"}')] }]),
        other.change([{ id: 'acme', expected: 1, settings: '{"plan":"c"}', keys: [] }]),
      ])
      assert.deepEqual([...first, ...second].map(result => result.refused).sort(), ['changed', undefined])
      const found = await other.find(digest(1))
      assert.ok(found)
      assert.equal(found.organization.version, 2)
      // One of the two changes, and not a mixture.
      const expected = first[0]!.refused ? ['{"plan":"c"}', '{}'] : ['{}', '{"status":"revoked"}']
      assert.deepEqual([found.organization.settings, found.key.settings], expected)
      assert.equal(await other.find(digest(2)), null)
    })

    test('a digest belongs to one key; a key that gets another digest leaves the old one', async t => {
      const [store] = await two(t)
      await store.change([{ id: 'acme', expected: 0, settings: '{}', keys: [key(1)] }])
      const thief = { id: 'thief', expected: 0, settings: '{}', keys: [key(9), key(1, 'mine')] }
      const refused = { refused: 'digest', sha256: digest(1), organization: 'acme', key: 'key_1' }
      assert.deepEqual(await store.change([thief]), [refused])
      assert.deepEqual([await store.read('thief'), await store.find(digest(9))], [null, null])
      assert.deepEqual(await store.change([{ id: 'acme', expected: 1, keys: [key(1, 'key_2')] }]), [refused])
      assert.deepEqual(await store.change([{ id: 'acme', expected: 1, keys: [key(2, 'key_1')] }]), [{ version: 2 }])
      assert.equal(await store.find(digest(1)), null)
      assert.equal((await store.find(digest(2)))?.key.id, 'key_1')
    })

    test('another connection learns what has changed, and only that', async t => {
      const [writer, reader] = await two(t)
      const put = (id: string, expected: number) => writer.change([{ id, expected, settings: '{}', keys: [] }])
      assert.deepEqual(await reader.since(0), { version: 0, ids: [] })
      await put('a', 0)
      await put('b', 0)
      const { version, ids } = await reader.since(0)
      assert.deepEqual([version, ids?.sort()], [2, ['a', 'b']])
      assert.deepEqual(await reader.since(2), { version: 2, ids: [] })
      await put('a', 1)
      assert.deepEqual(await reader.since(2), { version: 3, ids: ['a'] })
      assert.deepEqual(await writer.since(3), { version: 3, ids: [] })
      // A gateway that knows a version which the store has lost must not believe anything that it remembers.
      assert.deepEqual(await reader.since(99), { version: 3, ids: null })
    })

    test('of very many changes only their number is told', async t => {
      const [writer, reader] = await two(t)
      const many = (from: number, count: number) =>
        writer.change(
          Array.from({ length: count }, (_, i) => ({ id: `o${from + i}`, expected: 0, settings: '{}', keys: [] })),
        )
      await many(0, 1)
      await many(1, MOST_CHANGES)
      assert.equal((await reader.since(1)).ids?.length, MOST_CHANGES)
      await many(MOST_CHANGES + 1, 1)
      assert.deepEqual(await reader.since(1), { version: MOST_CHANGES + 2, ids: null })
    })
  })
}
