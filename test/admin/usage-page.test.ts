/** What the usage page makes of its address and of sums, without a browser. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { requestId, requestIdTime } from '../../core/tools/ids.ts'

// The page's own modules: types for them would be more to keep than they are.
const part = (name: string): Promise<any> => import(String(new URL(`../../admin/dashboard/${name}`, import.meta.url)))
const { barsOf, GROUPS, hashOf, MEASURES, OUTCOMES, queryOf, RANGES, rangeOf, stateOf, stepOf, timeOf } =
  await part('usage-state.mjs')
const { linesOf, marginOf, nanoOf, partsOf, readUsage, sorted } = await part('usage-sums.mjs')
const { csv } = await part('csv.mjs')

const NOW = Date.UTC(2026, 10, 29, 15, 30)
const texts = fc.oneof(fc.string(), fc.constantFrom('sk-live-0001', ' SK-x', 'acme', 'key_1', 'desk-1'))
const oneOf = (list: readonly (readonly string[])[]) =>
  fc.oneof(fc.constantFrom(...list.map(([name]) => name!)), fc.string())
const days = fc.oneof(fc.constantFrom('2026-11-01', '2026-02-30', '2025-01-01', '2027-01-01'), fc.string())
const addresses = fc
  .record({
    range: oneOf(RANGES),
    by: oneOf(GROUPS),
    show: oneOf(MEASURES),
    ...{
      from: days,
      to: days,
      organization: texts,
      key: texts,
      code: texts,
      outcome: fc.constantFrom(...OUTCOMES, 'x'),
    },
    request: fc.oneof(texts, fc.constant('req_VcMdoSGQbOOGWvmTqLPNSXi3')),
  })
  .map(parts => `#${new URLSearchParams(parts as Record<string, string>)}`)

test('whatever an address says, it is read as something that can be shown, and written again as the same', () => {
  fc.assert(
    fc.property(addresses, address => {
      const state = stateOf(address)
      const again = hashOf(state)
      assert.deepEqual(stateOf(again), state)
      assert.doesNotMatch(again, /[=]\s*sk-/i, 'what looks like a key is not in an address')
      const { since, until } = rangeOf(state, NOW)
      assert.ok(since <= until && until <= '2026-11-29', `${since} ${until}`)
      const query = queryOf({ since, until })
      assert.ok(Date.parse(query.until) - Date.parse(query.since) <= 366 * 86_400_000)
    }),
  )
  assert.equal(hashOf(stateOf('')), '#')
  assert.equal(
    hashOf(stateOf('#by=key&range=12m&organization=desk-1&outcome=completed')),
    '#range=12m&by=key&organization=desk-1&outcome=completed',
  )
})

test('ranges are UTC days up to today; more than 92 days are months', () => {
  const range = (hash: string) => rangeOf(stateOf(hash), NOW)
  assert.deepEqual(range('#range=today'), { since: '2026-11-29', until: '2026-11-29' })
  assert.deepEqual(range('#range=7d'), { since: '2026-11-23', until: '2026-11-29' })
  assert.deepEqual(range(''), { since: '2026-10-31', until: '2026-11-29' })
  assert.deepEqual(range('#range=month'), { since: '2026-11-01', until: '2026-11-29' })
  assert.deepEqual(range('#range=12m'), { since: '2025-12-01', until: '2026-11-29' })
  assert.deepEqual(range('#from=2026-01-30&to=2026-03-01'), { since: '2026-01-30', until: '2026-03-01' })
  assert.deepEqual(range('#from=2024-01-01&to=2026-11-29'), { since: '2025-11-29', until: '2026-11-29' }, 'a year')
  assert.equal(stepOf(range('#from=2026-08-30&to=2026-11-29')), 'day')
  assert.equal(stepOf(range('#from=2026-08-29&to=2026-11-29')), 'month')
  assert.deepEqual(barsOf(range('#from=2026-01-30&to=2026-02-02'), 'day'), [
    ...['2026-01-30', '2026-01-31', '2026-02-01', '2026-02-02'],
  ])
  assert.equal(barsOf(range('#range=12m'), 'month').length, 12)
})

test('the time of a request id is that which the gateway gave it', () => {
  for (let i = 0; i < 50; i++) {
    const id = requestId()
    assert.equal(timeOf(id), requestIdTime(id))
  }
})

const line = (names: Record<string, string>, cost_usd: string, more: object = {}) => ({
  ...names,
  ...{ requests: 2, input: 10, cached: 4, cache_write: 1, output: 5, reasoning: 2, searches: 0 },
  ...{ cost_usd, provider_cost_usd: '0.10', costed: 2, ...more },
})

/** The admin API, as far as the page asks it: lines by `group_by`, and a refusal for those that are left out. */
const api = (answers: Record<string, object[]>) => {
  const asked: string[] = []
  const ask = async (path: string) => {
    const groups = new URLSearchParams(path.slice(path.indexOf('?'))).get('group_by')!
    asked.push(`${path.slice(0, path.indexOf('?'))} ${groups}`)
    const usage = answers[groups]
    if (usage) return { usage }
    const message = 'group_by: more than 10000 groups; ask for less time, or group by less'
    throw Object.assign(new Error(message), { status: 400, code: 'invalid' })
  }
  return { ask, asked }
}

test('sums of a group are those of its bars, and the whole is that of all', async () => {
  const { ask, asked } = api({
    'day,model': [
      line({ day: '2026-11-01', model: 'a' }, '1.25'),
      line({ day: '2026-11-01', model: 'b' }, '4.00'),
      line({ day: '2026-11-03', model: 'a' }, '0.000000001', { costed: 1 }),
    ],
  })
  const read = await readUsage(ask, stateOf('#by=model&organization=a%2Fb'), NOW)
  assert.deepEqual(asked, ['organizations/a%2Fb/usage day,model'])
  assert.deepEqual(
    sorted(read.sums, 'model').map(({ name, cost, requests }: any) => [name, cost, requests]),
    [
      ['b', 4e9, 2],
      ['a', 1_250_000_001, 4],
    ],
  )
  assert.deepEqual([read.total.cost, read.total.requests, read.total.costed], [5_250_000_001, 6, 5])
  assert.equal(marginOf(read.sums.find(({ name }: any) => name === 'b')), 3.9e9)
  assert.equal(marginOf(read.total), null, 'not known of all requests')
  assert.equal(nanoOf('123456.000000001'), 123456000000001)
})

test('by day a year is drawn by month, and its table has days, the last first', async () => {
  const { ask, asked } = api({
    day: [
      line({ day: '2026-01-01' }, '1.00'),
      line({ day: '2026-01-31' }, '2.00'),
      line({ day: '2026-03-01' }, '4.00'),
    ],
  })
  const read = await readUsage(ask, stateOf('#by=day&range=12m'), NOW)
  assert.deepEqual(asked, ['usage day'])
  assert.deepEqual(
    read.bars.map(({ time, cost }: any) => [time, cost]),
    [
      ['2026-01', 3e9],
      ['2026-03', 4e9],
    ],
  )
  assert.deepEqual(
    sorted(read.sums, 'day').map(({ name }: any) => name),
    ['2026-03-01', '2026-01-31', '2026-01-01'],
  )
})

test('of too many groups the bars are undivided, of still more there is no table; other refusals are told', async () => {
  const day = [line({ day: '2026-11-01' }, '7.00')]
  const one = api({ day, organization: [line({ organization: 'acme' }, '7.00')] })
  const read = await readUsage(one.ask, stateOf(''), NOW)
  assert.deepEqual(one.asked, ['usage day,organization', 'usage day', 'usage organization'])
  assert.deepEqual(
    [read.bars, read.sums].map(sums => sums.map(({ name }: any) => name)),
    [[''], ['acme']],
  )
  const none = await readUsage(api({ day }).ask, stateOf(''), NOW)
  assert.equal(none.sums, null)
  assert.equal(none.total.cost, 7e9)
  await assert.rejects(readUsage(api({}).ask, stateOf(''), NOW), { status: 400 })
  const absent = Object.assign(new Error('there is no organization x'), { status: 404 })
  await assert.rejects(
    readUsage(() => Promise.reject(absent), stateOf('#organization=x'), NOW),
    absent,
  )
})

test('bars have the five largest of the whole time and all others together; what is not known has no value', () => {
  const sum = (time: string, name: string, cost: number) => ({ time, name, cost, requests: 1, input: 1, output: 1 })
  const bars = [...'abcdefg'].flatMap((name, i) => [sum('2026-11-01', name, 10 + i), sum('2026-11-03', name, 1)])
  const parts = partsOf(bars, 'cost')
  assert.deepEqual(
    parts.map(({ name, total }: any) => [name, total]),
    [...[...'gfedc'].map((name, i) => [name, 17 - i]), ['2 more', 23]],
  )
  assert.deepEqual([...parts.at(-1).byTime.keys()], ['2026-11-01', '2026-11-03'])
  assert.equal(parts[0].byTime.has('2026-11-02'), false)
  assert.deepEqual(partsOf(bars, 'tokens')[0].total, 4)
  assert.equal(partsOf(bars.slice(0, 12), 'cost').length, 6, 'one more than five is named')
})

test('a CSV file has every group, exact, and no formula', async () => {
  const many = Array.from({ length: 150 }, (_, i) => line({ day: '2026-11-01', model: `m${i}` }, '0.000000007'))
  const odd = line({ day: '2026-11-02', model: '=HYPERLINK("x")' }, '-0.50', { provider_cost_usd: '0.00', costed: 0 })
  const { ask } = api({ 'day,model': [...many, odd] })
  const text: string = csv(...linesOf(await readUsage(ask, stateOf('#by=model'), NOW)))
  const lines = text.split('\r\n')
  assert.equal(lines.length, 153)
  assert.equal(
    lines[0],
    'day,model,requests,input,cached,cache_write,output,reasoning,costed,cost_usd,provider_cost_usd,margin_usd',
  )
  assert.equal(lines[1], '2026-11-01,m0,2,10,4,1,5,2,2,0.000000007,0.10,-0.099999993')
  assert.equal(lines[151], `2026-11-02,"'=HYPERLINK(""x"")",2,10,4,1,5,2,0,-0.50,,`)
  for (const begin of ['=1+1', '+1+1', '-1+1', '@x', '\tx', '\rx'])
    assert.match(csv(['a'], [[begin]]), /^a\r\n"?'/, JSON.stringify(begin))
  assert.equal(csv(['a'], [['x,y', 'l\nm', -1, null]]), 'a\r\n"x,y","l\nm",-1,\r\n')
})
