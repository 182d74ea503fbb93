/**
 * What the lists of keys and requests make of the gateway's answers. The hour of a last use was shown as a minute, which
 * was before the key was made; equal requests had different costs without a reason.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { type AdminStandIn, startAdmin } from './admin-stand-in.ts'
import { startConsole, type TestConsole, type Visitor } from './kit.ts'

const NOW = Date.UTC(2026, 10, 29, 11, 51)

const key = (id: string, last_used: string | null) => ({
  ...{ id, status: 'active', expires: null, models: 'all', capabilities: 'all', streaming: true, label: null },
  ...{ hint: null, creator: null, created: '2026-11-29T11:50:00.000Z', last_used, settings: null },
})
const keys = [
  key('key_now', '2026-11-29T11:00:00.000Z'),
  key('key_late', '2026-11-28T23:00:00.000Z'),
  key('key_never', null),
]
const row = (request_id: string, cached: number, cost_usd: string) => ({
  ...{ request_id, time: NOW, key_id: 'key_now', model: 'eb1-preview', outcome: 'completed', code: '' },
  ...{ input: 2007, cached, output: 3, cost_usd, duration_ms: 5 },
})

let admin: AdminStandIn
let c: TestConsole
let owner: Visitor
before(async () => {
  admin = await startAdmin(({ path }) => {
    if (path === 'organizations/oak/keys') return { keys }
    if (path === 'organizations/oak/rows') return { rows: [row('a', 1024, '0.01'), row('b', 0, '0.02')], next: null }
    return keys.find(({ id }) => path === `organizations/oak/keys/${id}`) ?? { notices: [], next: '' }
  })
  c = await startConsole({ url: 'http://127.0.0.1:1', gateway: { adminAddress: admin.url } }, { now: () => NOW })
  const oak = { id: 'oak', name: 'Oak', created: 0, creator: null, deleted: null }
  await c.console.parts.db.insertInto('organization').values(oak).execute()
  owner = await c.member('oak', 'owner@example.com', 'owner')
})
after(async () => {
  await c?.close()
  await admin?.close()
})

/** The cells of a column, as plain text. */
async function column(path: string, head: string): Promise<string[]> {
  const { body, status } = await owner.get(path)
  assert.equal(status, 200)
  return [...body.matchAll(/<td data-head="([^"]+)"[^>]*>(.*?)<\/td>/gs)]
    .filter(([, name]) => name === head)
    .map(([, , cell]) => cell!.replace(/<[^>]+>/g, ''))
}

test('the last use of a key is told as the hour that the gateway knows', async () => {
  assert.deepEqual(await column('/o/oak/keys', 'Last used (UTC)'), [
    '2026-11-29, 11:00 to 12:00',
    '2026-11-28, 23:00 to 24:00',
    'never',
  ])
  const words = async (id: string) =>
    /<dt>Last used<\/dt><dd>(.*?)<\/dd>/.exec((await owner.get(`/o/oak/keys/${id}`)).body)![1]!.replace(/<[^>]+>/g, '')
  assert.equal(await words('key_now'), '2026-11-29, 11:00 to 12:00 UTC')
  assert.equal(await words('key_never'), 'never')
})

test('a request says how much of its input was cached, where any was', async () => {
  assert.deepEqual(await column('/o/oak/requests', 'Input'), ['2,007 (1,024 cached)', '2,007'])
})
