/**
 * The page of usage: what it asks the gateway for, and how days are divided. The chart was of the whole spend whatever
 * the sums were by, and the name of a tag changed nothing unless they were by that tag.
 */
import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import { type AdminStandIn, startAdmin } from './admin-stand-in.ts'
import { startConsole, type TestConsole, type Visitor } from './kit.ts'

const NOW = Date.UTC(2026, 10, 26, 12)
const RANGE = 'since=2026-11-01&until=2026-11-02'

/** What was used: a day, a model, USD. */
let used: [day: string, model: string, usd: number][] = []
/** Sums that the gateway puts into one answer. */
let most = 10_000

let admin: AdminStandIn
let c: TestConsole
let owner: Visitor
before(async () => {
  admin = await startAdmin(({ path, query }) => {
    if (path === 'organizations/oak/keys') return { keys: [] }
    if (path !== 'organizations/oak/usage') return { notices: [], next: '' }
    const groups = query.get('group_by')!.split(',')
    const sums = new Map<string, any>()
    for (const [day, model, usd] of used) {
      const names: Record<string, string> = { day, month: day.slice(0, 7), model, tag: `of ${model}` }
      const group = Object.fromEntries(groups.map(name => [name, names[name]]))
      const id = JSON.stringify(group)
      const sum = sums.get(id) ?? { ...group, requests: 0, input: 0, cached: 0, output: 0, cost: 0 }
      sums.set(id, { ...sum, requests: sum.requests + 1, cost: sum.cost + usd * 1e9 })
    }
    if (sums.size > most) return { error: { code: 'invalid', message: `group_by: more than ${most} groups` } }
    return { usage: [...sums.values()] }
  })
  c = await startConsole({ url: 'http://127.0.0.1:1', gateway: { adminAddress: admin.url } }, { now: () => NOW })
  const row = { id: 'oak', name: 'Oak', created: 0, creator: null, deleted: null }
  await c.console.parts.db.insertInto('organization').values(row).execute()
  owner = await c.member('oak', 'owner@example.com', 'owner')
})
after(async () => {
  await c?.close()
  await admin?.close()
})
beforeEach(() => {
  admin.asked.length = 0
  most = 10_000
  used = [
    ['2026-11-01', 'a', 3],
    ['2026-11-01', 'b', 1],
    ['2026-11-02', 'a', 2],
  ]
})

async function read(query: string, range = RANGE) {
  const { body, status } = await owner.get(`/o/oak/usage?${range}&${query}`)
  assert.equal(status, 200)
  return {
    bars: [...body.matchAll(/y="([\d.]+)"[^>]*height="([\d.]+)"><title>([^<]*)</g)].map(
      ([, top, height, words]) => `${words} from ${Number(top)} for ${Number(height)}`,
    ),
    legend: [...body.matchAll(/<\/svg> ([^<]*)<\/li>/g)].map(([, words]) => words),
    rows: [...body.matchAll(/<tr>(<td.*?)<\/tr>/gs)].map(([, cells]) =>
      [...cells!.matchAll(/<td[^>]*>([^<]*)</g)].map(([, text]) => text).join(' '),
    ),
    asked: admin.asked
      .filter(({ path }) => path.endsWith('/usage'))
      .map(({ query }) => [query.get('group_by'), query.get('tag')]),
  }
}

test('days are divided by what the sums are by, with one request', async () => {
  assert.deepEqual(await read('by=model'), {
    bars: [
      '2026-11-01, a: $3.00 from 40 for 120',
      '2026-11-01, b: $1.00 from 0 for 40',
      '2026-11-02, a: $2.00 from 80 for 80',
    ],
    legend: ['a $5.00', 'b $1.00'],
    rows: ['a 2 0 0 0 $5.00', 'b 1 0 0 0 $1.00'],
    asked: [['day,model', null]],
  })
  const byDay = await read('by=day')
  assert.deepEqual(byDay.bars, ['2026-11-01: $4.00 from 0 for 160', '2026-11-02: $2.00 from 80 for 80'])
  assert.deepEqual([byDay.legend, byDay.rows], [[], ['2026-11-02 1 0 0 0 $2.00', '2026-11-01 2 0 0 0 $4.00']])
})

test('the name of a tag is asked for whatever the sums are by', async () => {
  assert.deepEqual((await read('by=model&tag=team')).asked, [['day,model', 'team']])
  admin.asked.length = 0
  const { asked, legend } = await read('by=tag&tag=team')
  assert.deepEqual([asked, legend], [[['day,tag', 'team']], ['of a $5.00', 'of b $1.00']])
  admin.asked.length = 0
  assert.deepEqual((await read('by=tag')).asked, [['day,model', null]], 'a tag without a name is none')
})

test('of more than 92 days the bars are months; sums by day are of days whatever they are of', async () => {
  used = [
    ['2026-08-26', 'a', 1],
    ['2026-11-02', 'b', 2],
    ['2026-11-26', 'a', 3],
  ]
  const longer = 'since=2026-08-26&until=2026-11-26'
  const { bars, rows, asked } = await read('by=model', longer)
  assert.deepEqual(asked, [['month,model', null]])
  assert.deepEqual(bars, [
    '2026-08, a: $1.00 from 128 for 32',
    '2026-11, a: $3.00 from 64 for 96',
    '2026-11, b: $2.00 from 0 for 64',
  ])
  assert.deepEqual(rows, ['a 2 0 0 0 $4.00', 'b 1 0 0 0 $2.00'])
  const { body } = await owner.get(`/o/oak/usage?${longer}`)
  assert.match(body, /Spend by month from 2026-08 to 2026-11: \$6\.00, at most \$5\.00 a month/)
  assert.match(body, /most in a month \$5\.00/)
  admin.asked.length = 0
  assert.deepEqual((await read('by=day', longer)).asked, [['day', null]])
  admin.asked.length = 0
  assert.deepEqual((await read('by=model', 'since=2026-08-27&until=2026-11-26')).asked, [['day,model', null]])
})

test('five parts at most, and all others together; every part is in the table', async () => {
  used = Array.from({ length: 8 }, (_, i) => ['2026-11-01', `m${i}`, 8 - i])
  const { legend, rows, bars } = await read('by=model')
  assert.deepEqual(legend, ['m0 $8.00', 'm1 $7.00', 'm2 $6.00', 'm3 $5.00', 'm4 $4.00', '3 more $6.00'])
  assert.equal(bars.length, 6)
  assert.equal(rows.length, 8)
})

test('where days and parts are more than the gateway answers, days are not divided', async () => {
  most = 2
  const { asked, legend, rows, bars } = await read('by=model&tag=team')
  assert.deepEqual(asked, [
    ['day,model', 'team'],
    ['day', 'team'],
    ['model', 'team'],
  ])
  assert.deepEqual([legend, bars.length, rows.length], [[], 2, 2])
})
