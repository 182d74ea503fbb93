/**
 * The notices of the first page. It had none: who did not read mail saw neither that a key ends, nor a hold, nor that a
 * spend limit of a key is used up.
 */
import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import type { Key, Limit, Organization } from '../gateway.ts'
import type { Role } from '../people/roles.ts'
import { type AdminStandIn, startAdmin } from './admin-stand-in.ts'
import { startConsole, type TestConsole } from './kit.ts'

const DAY = 86_400_000
const NOW = Date.UTC(2026, 10, 26, 12)

let admin: AdminStandIn
let c: TestConsole
let oak: Organization
before(async () => {
  admin = await startAdmin(({ path }) => {
    if (path === 'organizations/oak') return oak
    if (path === 'organizations/oak/usage') return { usage: [] }
    return path === 'notices' ? { notices: [], next: '' } : null
  })
  const gateway = { url: 'http://127.0.0.1:1', gateway: { adminAddress: admin.url } }
  c = await startConsole(gateway, { now: () => NOW, yaml: 'tiers: on' })
  const row = { id: 'oak', name: 'Oak', created: 0, creator: null, deleted: null }
  await c.console.parts.db.insertInto('organization').values(row).execute()
})
after(async () => {
  await c?.close()
  await admin?.close()
})
beforeEach(() => {
  admin.asked.length = 0
  oak = {
    ...{ id: 'oak', place: 'store', version: 1, plan: 'tier2', status: 'active', name: 'Oak', leaves: null },
    ...{ faults: [], billing: null, limits: [], spend_usd: { day: '0', month: '0' }, balance: null, keys: [] },
  }
})

const spend = (used: number, more: Partial<Limit> = {}): Limit => ({
  ...{ dimension: 'spend', per: 'month', capacity: 100e9, used: used * 1e9 },
  ...{ capacity_usd: '100', used_usd: String(used) },
  ...more,
})

/** @param days from its making to its end, and from now to its end */
const key = (id: string, days: { life: number; left: number } | null, more: Partial<Key> = {}): Key => ({
  ...{ id, status: 'active', models: 'all', capabilities: 'all', streaming: true, label: null, hint: null },
  ...{ creator: null, last_used: null, settings: null },
  expires: days && new Date(NOW + days.left * DAY).toISOString(),
  created: days && new Date(NOW + (days.left - days.life) * DAY).toISOString(),
  ...more,
})

/** The notices that somebody of a role reads, as plain text. */
async function read(role: Role): Promise<string[]> {
  const { body, status } = await (await c.member('oak', `${role}@example.com`, role)).get('/o/oak')
  assert.equal(status, 200)
  const section = /<h2>Notices<\/h2>(.*?)<\/section>/s.exec(body)?.[1] ?? ''
  return [...section.matchAll(/<p class="alert (\w+)">(.*?)<\/p>/gs)].map(
    ([, kind, words]) =>
      `${kind}: ${words!
        .replace(/<[^>]+>/g, '')
        .replace(/\s+/g, ' ')
        .trim()}`,
  )
}

test('where nothing is to be told there are no notices', async () => {
  oak.limits = [spend(49), { dimension: 'requests', per: 'minute', capacity: 10, used: 10 }]
  oak.keys = [
    key('key_for_good', null),
    key('key_later', { life: 90, left: 8 }),
    key('key_short', { life: 3, left: 2 }),
    key('key_revoked', { life: 90, left: 3 }, { status: 'revoked', limits: [spend(100)] }),
  ]
  const owner = await c.member('oak', 'owner@example.com', 'owner')
  assert.doesNotMatch((await owner.get('/o/oak')).body, /Notices/)
})

test('spend limits at 50, 80 and 100 %, of the organization and of keys', async () => {
  oak.limits = [spend(50), spend(99.5, { per: 'day' }), spend(120, { model: 'eb1-preview' })]
  oak.keys = [key('key_ci', null, { label: 'CI <b>', limits: [spend(80)] })]
  const refused = 'requests are refused until the month is over, in UTC, or the limit is higher'
  assert.deepEqual(await read('viewer'), [
    'warn: 50 % of the monthly spend limit of the organization is spent, $50.00 of $100.00. Limits',
    'warn: 80 % of the daily spend limit of the organization is spent, $99.50 of $100.00. Limits',
    `bad: 100 % of the monthly spend limit of the organization on eb1-preview is spent, $120.00 of $100.00: ${refused}. Limits`,
    'warn: 80 % of the monthly spend limit of the key CI &lt;b&gt; is spent, $80.00 of $100.00. Limits',
  ])
})

test('keys that end soon, the next first, to who sees keys; one request for all of them', async () => {
  oak.keys = [
    ...Array.from({ length: 5 }, (_, i) => key(`key_${i}`, { life: 90, left: 6 })),
    key('key_a/b', { life: 90, left: 0.5 }),
    key('key_old', { life: 90, left: -1 }),
  ]
  const [first, ...others] = await read('developer')
  assert.equal(first, 'bad: The key key_a/b ends at 2026-11-27 00:00 UTC. Requests with it are refused then.')
  assert.equal(others.length, 5)
  assert.match(others.at(-1)!, /^warn: 1 more key ends within a week/)
  assert.equal(admin.asked.filter(({ path }) => path.startsWith('organizations/')).length, 2)
  assert.deepEqual(await read('billing'), [])
})

test('a hold, to who sees billing, and where there are tiers', async () => {
  const hold = { id: 'h1', organization: 'oak', why: 'staff', note: 'private words', person: null } as const
  const { db } = c.console.parts
  await db
    .insertInto('hold')
    .values({ ...hold, created: NOW, ended: null, ender: null })
    .execute()
  assert.deepEqual(await read('billing'), [
    'bad: A hold stands: the tier does not rise until we have lifted it. Billing',
  ])
  assert.deepEqual(await read('developer'), [])
  oak.plan = 'beta'
  assert.deepEqual(await read('billing'), [])
  oak.plan = 'tier2'
  await db.updateTable('hold').set({ ended: NOW }).execute()
  assert.deepEqual(await read('billing'), [])
})
