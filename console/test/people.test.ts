/** People, sessions, links, members and codes on both databases: the same suite on SQLite and on a real PostgreSQL. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { sql } from 'kysely'
import { PostgresServer, skipWithoutPostgres } from '../../test/stores/postgres-server.ts'
import { openDatabase } from '../db/database.ts'
import { MIGRATIONS } from '../db/migrations.ts'
import type { Database } from '../db/tables.ts'
import { mayTry } from '../people/attempts.ts'
import { newChallenge, useChallenge } from '../people/challenges.ts'
import { emailOf, nameOf } from '../people/email.ts'
import { note } from '../people/events.ts'
import { newLink, peekLink, useLink } from '../people/links.ts'
import {
  addMember,
  endInvitation,
  invitationsOf,
  invite,
  LastOwner,
  membershipsOf,
  membersOf,
  openInvitations,
  setRole,
} from '../people/memberships.ts'
import { deletePerson, ensurePerson, maySignUp, personByEmail } from '../people/persons.ts'
import { beginSession, completeSession, endSessions, findSession, sessionsOf } from '../people/sessions.ts'
import { sweep } from '../people/sweep.ts'
import { codeOf, newRecoveryCodes, newTotpSecret, stepOf, takeCode, takeRecoveryCode } from '../people/totp.ts'

const HOUR = 3_600_000
const LIFE = { idle: HOUR, life: 10 * HOUR }
const DEVICE = { address: '192.0.2.1', agent: 'test' }
const T0 = 1_800_000_000_000

const valuesIn = (rows: unknown, column: string) => (rows as Record<string, unknown>[]).map(row => row[column])

const ENGINES = [
  { name: 'SQLite', skip: false, start: async () => ({ url: () => 'sqlite:', stop: async () => {} }) },
  {
    name: 'PostgreSQL',
    skip: skipWithoutPostgres,
    start: async () => {
      const server = await PostgresServer.start()
      return { url: () => server.url(), stop: () => server.stop() }
    },
  },
]

for (const { name, skip, start } of ENGINES)
  describe(name, { skip }, () => {
    let stop: () => Promise<void>
    let url: string
    let db: Database
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-console-'))
    before(async () => {
      const engine = await start()
      stop = engine.stop
      url = engine.url()
      if (url === 'sqlite:') url = `sqlite:${path.join(folder, 'data/console.db')}`
      db = await openDatabase(url)
    })
    after(async () => {
      await db?.destroy()
      await stop?.()
      fs.rmSync(folder, { recursive: true, force: true })
    })
    /** Where another database of this engine is. */
    const address = (name: string) =>
      url.startsWith('sqlite:')
        ? `sqlite:${path.join(folder, `${name}.db`)}`
        : Object.assign(new URL(url), { pathname: name }).href
    /** Makes an empty one, where opening does not. */
    async function empty(name: string): Promise<string> {
      if (!url.startsWith('sqlite:')) await sql`CREATE DATABASE ${sql.id(name)}`.execute(db)
      return address(name)
    }
    let count = 0
    const person = () => ensurePerson(db, { email: `p${++count}@example.com` }, T0)
    async function organization(): Promise<string> {
      const id = `org-${++count}`
      await db.insertInto('organization').values({ id, name: id, created: T0, creator: null, deleted: null }).execute()
      return id
    }

    test('what is stored outlives the process, and several consoles may open it at the same time', async () => {
      const { id } = await person()
      const others = await Promise.all([openDatabase(url), openDatabase(url)])
      for (const other of others) {
        assert.equal((await personByEmail(other, `p${count}@example.com`))!.id, id)
        await other.destroy()
      }
    })

    test('a database of a later release is refused with the cure', async () => {
      await db
        .insertInto('console_migration' as any)
        .values({ name: '9999-later', timestamp: new Date(T0).toISOString() } as any)
        .execute()
      await assert.rejects(openDatabase(url), /made by a later release of the console; start that release/)
      await db
        .deleteFrom('console_migration' as any)
        .where('name' as any, '=', '9999-later')
        .execute()
      const made = await db
        .selectFrom('console_migration' as any)
        .selectAll()
        .execute()
      assert.equal(made.length, Object.keys(MIGRATIONS).length)
    })

    test('a filled database of each earlier release is brought up to this one, and keeps its rows', async () => {
      const all = Object.entries(MIGRATIONS)
      for (let count = 1; count < all.length; count++) {
        const of = all[count - 1]![0]
        const old = await openDatabase(await empty(of), Object.fromEntries(all.slice(0, count)))
        const tables = (await old.introspection.getTables()).filter(({ name }) => !name.startsWith('console_migration'))
        assert.ok(tables.length >= 11, of)
        // One row in each, with a value in every column that tells table and column.
        for (const { name, columns } of tables) {
          const row = columns.map(({ name: column, dataType }, i) => [
            column,
            /int/i.test(dataType) ? T0 + i : `${name} ${column}`,
          ])
          await old
            .insertInto(name as any)
            .values(Object.fromEntries(row))
            .execute()
        }
        const rowsOf = async (db: Database) => {
          const rows: Record<string, unknown> = {}
          for (const { name } of tables)
            rows[name] = await db
              .selectFrom(name as any)
              .selectAll()
              .execute()
          return rows
        }
        const was = await rowsOf(old)
        await old.destroy()
        const now = await openDatabase(address(of))
        try {
          const kept = await rowsOf(now)
          for (const { name, columns } of tables)
            for (const column of columns.map(({ name }) => name))
              assert.deepEqual(valuesIn(kept[name], column), valuesIn(was[name], column), `${of}: ${name}.${column}`)
          assert.equal((await personByEmail(now, 'person email'))!.id, 'person id')
          await ensurePerson(now, { email: 'new@example.com' }, T0)
          const names = (await now.introspection.getTables()).map(({ name }) => name)
          const fresh = (await db.introspection.getTables()).map(({ name }) => name)
          assert.deepEqual(names.sort(), fresh.sort(), `${of}: the tables of a new database`)
        } finally {
          await now.destroy()
        }
      }
    })

    test('a person is an address: two at the same time are one', async () => {
      const email = 'twice@example.com'
      const [a, b] = await Promise.all([ensurePerson(db, { email }, T0), ensurePerson(db, { email }, T0)])
      assert.equal(a.id, b.id)
    })

    test('a session is idle for an hour at most, and lives ten', async () => {
      const { id } = await person()
      const secret = await beginSession(db, { person: id, means: 'link', complete: true }, DEVICE, T0)
      assert.equal((await findSession(db, secret, LIFE, T0 + HOUR - 1))!.who.id, id)
      for (let at = 1; at < 20; at++) assert.ok(await findSession(db, secret, LIFE, T0 + (at * HOUR) / 2), String(at))
      assert.equal(await findSession(db, secret, LIFE, T0 + 10 * HOUR), null)
      const idle = await beginSession(db, { person: id, means: 'link', complete: true }, DEVICE, T0)
      assert.equal(await findSession(db, idle, LIFE, T0 + HOUR), null)
      assert.equal(await findSession(db, `${secret.slice(0, -1)}!`, LIFE, T0), null)
      const stored = await db.selectFrom('session').selectAll().where('person', '=', id).execute()
      assert.ok(!JSON.stringify(stored).includes(secret), 'the database has no secret')
    })

    test('the second factor gives a session another secret; sessions end one by one or all but one', async () => {
      const { id } = await person()
      const first = await beginSession(db, { person: id, means: 'link', complete: false }, DEVICE, T0)
      const pending = (await findSession(db, first, LIFE, T0))!
      assert.equal(pending.complete, 0)
      const second = await completeSession(db, pending)
      assert.equal(await findSession(db, first, LIFE, T0), null)
      const whole = (await findSession(db, second, LIFE, T0))!
      assert.equal(whole.complete, 1)
      const other = await beginSession(db, { person: id, means: 'link', complete: true }, DEVICE, T0)
      const stranger = await person()
      assert.equal(await endSessions(db, stranger.id, { id: whole.id }), 0, 'nobody ends the session of another')
      assert.equal((await sessionsOf(db, id, LIFE, T0)).length, 2)
      assert.equal(await endSessions(db, id, { not: whole.id }), 1)
      assert.equal(await findSession(db, other, LIFE, T0), null)
      assert.equal(await endSessions(db, id, { id: whole.id }), 1)
      assert.equal(await findSession(db, second, LIFE, T0), null)
    })

    test('a link works once, also when it is used many times at once, and for ten minutes', async () => {
      const link = { purpose: 'sign-in', email: 'x@example.com', person: null, next: '/' } as const
      const secret = await newLink(db, link, T0)
      for (let i = 0; i < 3; i++) assert.equal((await peekLink(db, secret, T0))!.email, 'x@example.com')
      const used = await Promise.all(Array.from({ length: 8 }, () => useLink(db, secret, T0)))
      assert.equal(used.filter(Boolean).length, 1)
      const old = await newLink(db, link, T0)
      assert.equal(await useLink(db, old, T0 + 600_000), null)
      assert.ok(await useLink(db, old, T0 + 599_999))
    })

    test('a challenge is answered once, by whom it was made for and for what', async () => {
      const { id } = await person()
      const secret = await newChallenge(db, { purpose: 'register', person: id, content: { a: 1 } }, T0)
      assert.equal(await useChallenge(db, secret, { purpose: 'register', person: null }, T0), null)
      assert.equal(await useChallenge(db, secret, { purpose: 'second', person: id }, T0), null)
      assert.deepEqual(await useChallenge(db, secret, { purpose: 'register', person: id }, T0), { a: 1 })
      assert.equal(await useChallenge(db, secret, { purpose: 'register', person: id }, T0), null)
    })

    test('attempts are counted together, and the window begins anew', async () => {
      const tries = () =>
        Promise.all(Array.from({ length: 10 }, () => mayTry(db, 'name', { most: 4, per: 60_000 }, T0)))
      assert.equal((await tries()).filter(Boolean).length, 4)
      assert.ok(!(await mayTry(db, 'name', { most: 4, per: 60_000 }, T0 + 1)))
      assert.ok(await mayTry(db, 'name', { most: 4, per: 60_000 }, T0 + 60_000))
      assert.ok(await mayTry(db, 'another', { most: 4, per: 60_000 }, T0))
    })

    test('an organization keeps an owner, also when two leave at the same time', async () => {
      const [id, a, b] = [await organization(), await person(), await person()]
      for (const { id: who } of [a, b]) await addMember(db, id, who, 'owner', T0)
      const left = await Promise.allSettled([setRole(db, id, a.id, null), setRole(db, id, b.id, 'viewer')])
      const failed = left.filter(({ status }) => status === 'rejected') as PromiseRejectedResult[]
      assert.equal(failed.length, 1)
      assert.ok(failed[0]!.reason instanceof LastOwner)
      assert.equal((await membersOf(db, id)).filter(({ role }) => role === 'owner').length, 1)
      assert.equal(await setRole(db, id, (await person()).id, 'viewer'), false)
    })

    test('an invitation is for an address and an organization, one is open at a time, and it ends once', async () => {
      const [id, owner] = [await organization(), await person()]
      const email = `invited${count}@example.com`
      const invitation = { email, organization: id, inviter: owner.id }
      assert.ok(!(await maySignUp(db, email, 'invite', T0)))
      await invite(db, { ...invitation, role: 'viewer' }, T0)
      await invite(db, { ...invitation, role: 'developer' }, T0 + 1)
      await invite(db, { ...invitation, organization: null, role: 'owner' }, T0)
      assert.ok(await maySignUp(db, email, 'invite', T0 + 1))
      const all = await invitationsOf(db, email, T0 + 1)
      assert.deepEqual(all.map(({ role, organization }) => [role, organization]).sort(), [
        ['developer', id],
        ['owner', null],
      ])
      const [open] = await openInvitations(db, id, T0 + 1)
      const other = await organization()
      assert.equal(await endInvitation(db, open!.id, { organization: other }, T0), null)
      assert.equal(await endInvitation(db, open!.id, { organization: null }, T0), null)
      assert.equal(await endInvitation(db, open!.id, { email: 'somebody@example.com' }, T0), null)
      const ended = await Promise.all([1, 2, 3].map(() => endInvitation(db, open!.id, { email }, T0 + 2)))
      assert.equal(ended.filter(Boolean).length, 1)
      assert.deepEqual(await openInvitations(db, id, T0 + 8 * 24 * HOUR), [])
      assert.ok(!(await maySignUp(db, email, 'invite', T0 + 8 * 24 * HOUR)))
    })

    test('an open sign-up waits for the first member of staff', async () => {
      const anyone = 'anyone@example.com'
      assert.equal(await maySignUp(db, anyone, 'open', T0), false)
      const { id } = await person()
      await db.updateTable('person').set({ staff: 1 }).where('id', '=', id).execute()
      assert.equal(await maySignUp(db, anyone, 'open', T0), true)
    })

    test('a code of the app works once, and so does a recovery code', async () => {
      const { id, email } = await person()
      const totp = newTotpSecret()
      await db.updateTable('person').set({ totp }).where('id', '=', id).execute()
      const who = (await personByEmail(db, email))!
      const code = codeOf(totp, stepOf(T0))
      const taken = await Promise.all([1, 2, 3].map(() => takeCode(db, who, code, T0)))
      assert.equal(taken.filter(Boolean).length, 1)
      assert.ok(!(await takeCode(db, who, codeOf(totp, stepOf(T0) - 1), T0)), 'an earlier one is over, too')
      assert.ok(!(await takeCode(db, who, codeOf(totp, stepOf(T0) + 2), T0)), 'two steps ahead is no clock')
      assert.ok(await takeCode(db, who, codeOf(totp, stepOf(T0) + 1), T0))
      const codes = await newRecoveryCodes(db, id)
      assert.equal(new Set(codes).size, 10)
      assert.ok(!(await takeRecoveryCode(db, await person(), codes[0]!)))
      assert.ok(await takeRecoveryCode(db, who, codes[0]!.toUpperCase().replace('-', ' ')))
      assert.ok(!(await takeRecoveryCode(db, who, codes[0]!)))
      const fresh = await newRecoveryCodes(db, id)
      assert.ok(!(await takeRecoveryCode(db, who, codes[1]!)), 'new codes replace the old ones')
      assert.ok(await takeRecoveryCode(db, who, fresh[1]!))
    })

    test('a deleted person leaves nothing but what they did, without a name', async () => {
      const who = await person()
      const id = await organization()
      await addMember(db, id, who.id, 'viewer', T0)
      await beginSession(db, { person: who.id, means: 'link', complete: true }, DEVICE, T0)
      await newLink(db, { purpose: 'sign-in', email: who.email, person: null, next: '/' }, T0)
      await newRecoveryCodes(db, who.id)
      await note(db, { organization: id, person: who.id, action: 'member.join', detail: who.email, ...DEVICE, now: T0 })
      await deletePerson(db, who, T0)
      const left: string[] = []
      for (const table of Object.keys(await tables(db))) {
        const rows = await db
          .selectFrom(table as any)
          .selectAll()
          .execute()
        if (JSON.stringify(rows).includes(who.email)) left.push(table)
      }
      assert.deepEqual(left, [])
      assert.deepEqual(await membershipsOf(db, who.id), [])
      const events = await db.selectFrom('event').selectAll().where('person', '=', who.id).execute()
      assert.deepEqual(events.map(({ action, address }) => [action, address]).sort(), [
        ['account.delete', ''],
        ['member.join', ''],
        ['member.leave', ''],
      ])
    })

    test('of the last two owners who delete their accounts at the same time one stays, with all that is theirs', async () => {
      const [a, b] = [await person(), await person()]
      const all = [await organization(), await organization()]
      for (const id of all) for (const { id: who } of [a, b]) await addMember(db, id, who, 'owner', T0)
      const left = await Promise.allSettled([a, b].map(who => deletePerson(db, who, T0)))
      const [fault, ...more] = left.filter(({ status }) => status === 'rejected') as PromiseRejectedResult[]
      assert.ok(fault!.reason instanceof LastOwner && more.length === 0)
      const stays = left[0]!.status === 'rejected' ? a : b
      assert.deepEqual((await membershipsOf(db, stays.id)).map(({ id }) => id).sort(), all.sort())
      assert.ok(await personByEmail(db, stays.email))
    })

    test('what is over is swept away, and what is not stays', async () => {
      const who = await person()
      const secret = await beginSession(db, { person: who.id, means: 'link', complete: true }, DEVICE, T0)
      const link = await newLink(db, { purpose: 'sign-in', email: who.email, person: null, next: '/' }, T0)
      await sweep(db, LIFE, T0 + 1)
      assert.ok(await findSession(db, secret, LIFE, T0 + 1))
      assert.ok(await peekLink(db, link, T0 + 1))
      await sweep(db, LIFE, T0 + 500 * 24 * HOUR)
      for (const table of ['session', 'link', 'challenge', 'attempt', 'invitation', 'event'] as const)
        assert.deepEqual(await db.selectFrom(table).selectAll().execute(), [], table)
      assert.ok(await personByEmail(db, who.email))
    })
  })

/** Every table of the console, by a look at its columns. */
async function tables(db: Database): Promise<Record<string, true>> {
  const all = await db.introspection.getTables()
  return Object.fromEntries(all.filter(({ name }) => !name.startsWith('console_')).map(({ name }) => [name, true]))
}

test('an address of mail has nothing that means something in a header', () => {
  assert.equal(emailOf('  Ada@Example.COM '), 'ada@example.com')
  for (const wrong of [
    '',
    'ada',
    'ada@',
    '@example.com',
    'ada@example.com\r\nBcc: eve@example.com',
    'ada@example.com, eve@example.com',
    '"a"@example.com',
    'ada <eve@example.com>',
    'ada@exa mple.com',
    'a\u0000b@example.com',
    `${'a'.repeat(65)}@example.com`,
    'ada@пример.com',
    null,
    5,
  ])
    assert.equal(emailOf(wrong), null, String(wrong))
  assert.equal(nameOf(' Ada\r\nBcc: eve\u202e '), 'Ada Bcc: eve')
  assert.equal(nameOf('a'.repeat(81)), null)
})

test('codes are those of RFC 6238', () => {
  // The secret of its appendix B, in base32; the codes have eight digits there, of which these are the last six.
  const secret = 'GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ'
  for (const [second, code] of [
    [59, '287082'],
    [1_111_111_109, '081804'],
    [1_111_111_111, '050471'],
    [1_234_567_890, '005924'],
    [2_000_000_000, '279037'],
    [20_000_000_000, '353130'],
  ] as const)
    assert.equal(codeOf(secret, stepOf(second * 1000)), code)
})
