/** What goes wrong now, and the figures of the day: what the dashboard shows first. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AccountReader } from '../../admin/accounts.ts'
import { type Ended, Incidents, sumOfImpacts, sumOfIncidents } from '../../admin/incidents.ts'
import { ledgerDay, Today } from '../../admin/today.ts'
import { UseByKey } from '../../admin/usage.ts'
import type { PassedOver } from '../../core/plugin.ts'
import type { Store, UsageSum } from '../../core/ports/store.ts'
import { startGateway } from '../e2e/harness.ts'

const exchange = (more: Partial<Ended> = {}): Ended => ({
  ...{ id: 'req_1', status: 200, outcome: 'completed', code: '', cause: '', backend: 'p/m', organization: 'acme' },
  ...{ failed: [], passedOver: [], ...more },
})
const failed = (more: Partial<Ended> = {}) =>
  exchange({
    ...{ status: 502, outcome: 'upstream_error', code: 'upstream_server_error' },
    failed: [{ backend: 'p/m' } as Ended['failed'][number]],
    ...more,
  })
const leftOut = { backend: 'p/m', why: 'failures', scope: 'all' } as PassedOver
const refused = (more: Partial<Ended> = {}) =>
  exchange({ status: 404, outcome: 'refused', code: 'model_not_found', backend: '', ...more })

test('a store that does not answer is a cause of its own, with its words', () => {
  const incidents = new Incidents()
  const told = 'the store: redis did not answer within 250 ms'
  const code = 'provider_unavailable'
  incidents.saw(exchange({ status: 503, outcome: 'upstream_error', code, backend: '', cause: told }), 1000)
  incidents.saw(failed({ status: 503, code }), 1000)
  const found = incidents.causes(2000).map(({ backend, cause, fault }) => ({ backend, cause, fault }))
  assert.deepEqual(found, [
    { backend: '', cause: told, fault: true },
    { backend: 'p/m', cause: '', fault: true },
  ])
})

test('an incident: since when, how often, whom it hits most; a fault comes before refusals', () => {
  const incidents = new Incidents()
  incidents.saw(exchange(), 500)
  for (let i = 0; i < 5; i++) incidents.saw(refused({ organization: 'typo' }), 900)
  incidents.saw(failed({ id: 'req_a' }), 1000)
  incidents.saw(failed({ id: 'req_b', organization: 'other' }), 2000)
  incidents.saw(failed({ id: 'req_c' }), 3000)
  const [fault, refusal, ...more] = incidents.causes(4000)
  assert.deepEqual(fault, {
    ...{
      code: 'upstream_server_error',
      backend: 'p/m',
      fault: true,
      status: 502,
      cause: '',
      first: 1000,
      since: 1000,
      last: 3000,
      count: 3,
    },
    ...{ lastId: 'req_c', affected: 2 },
    organizations: [
      ['acme', 2],
      ['other', 1],
    ],
  })
  assert.deepEqual(
    [refusal!.code, refusal!.fault, refusal!.count, refusal!.organizations],
    ['model_not_found', false, 5, [['typo', 5]]],
  )
  assert.deepEqual(more, [])
})

/** A gateway that shed load answered 503, and its dashboard called it healthy. */
test('what is refused because the gateway cannot serve is a fault', () => {
  const incidents = new Incidents()
  incidents.saw(refused({ status: 503, code: 'route_capacity' }), 0)
  incidents.saw(refused({ status: 429, code: 'capacity_exceeded' }), 0)
  incidents.saw(refused({ status: 429, code: 'rate_limit_exceeded' }), 0)
  assert.deepEqual(
    incidents.causes(0).map(({ code, fault }) => [code, fault]),
    [
      ['route_capacity', true],
      ['capacity_exceeded', true],
      ['rate_limit_exceeded', false],
    ],
  )
})

test('it is over after five quiet minutes; what comes later is another one', () => {
  const incidents = new Incidents()
  incidents.saw(failed(), 0)
  incidents.saw(failed(), 200_000)
  assert.equal(incidents.causes(499_999)[0]!.count, 2)
  assert.deepEqual([incidents.causes(500_000), incidents.impacts(500_000)], [[], []])
  incidents.saw(failed(), 600_000)
  incidents.saw(failed(), 900_000)
  assert.deepEqual([incidents.causes(900_000)[0]!.since, incidents.causes(900_000)[0]!.count], [900_000, 1])
})

/** One failure of another test, 2.5 minutes before an outage, stood as its beginning. */
test('since when is the first failure behind the time in which the backend served; the one before is when it was first seen', () => {
  const incidents = new Incidents()
  incidents.saw(failed(), 0)
  incidents.saw(exchange(), 100_000)
  for (const at of [150_000, 151_000, 152_000]) incidents.saw(failed(), at)
  const of = (now: number) => {
    const [{ first, since, count }] = incidents.causes(now) as [ReturnType<Incidents['causes']>[0]]
    return { first, since, count, impact: incidents.impacts(now)[0]!.since }
  }
  assert.deepEqual(of(152_000), { first: 0, since: 150_000, count: 3, impact: 150_000 })
  // It serves a part: that is one incident.
  for (let at = 160_000; at < 300_000; at += 20_000) {
    incidents.saw(exchange(), at)
    incidents.saw(failed(), at + 10_000)
  }
  assert.deepEqual(of(300_000), { first: 0, since: 150_000, count: 10, impact: 150_000 })
  // Without a success between them they are one, however long it takes.
  incidents.saw(failed(), 500_000)
  assert.equal(of(500_000).since, 150_000)
})

test('of the requests for a backend, how many got no answer since it began to fail', () => {
  const incidents = new Incidents()
  for (let i = 0; i < 9; i++) incidents.saw(exchange(), 0)
  incidents.saw(failed(), 1000)
  // Not asked and answered 503; not asked and served by another one; served by it again.
  incidents.saw(failed({ code: 'provider_unavailable', backend: '', failed: [], passedOver: [leftOut] }), 2000)
  incidents.saw(exchange({ backend: 'q/m', passedOver: [leftOut] }), 3000)
  incidents.saw(exchange(), 4000)
  incidents.saw(exchange({ backend: 'q/m' }), 4000)
  const [impact] = incidents.impacts(5000)
  assert.deepEqual(impact, {
    ...{ backend: 'p/m', since: 1000, last: 3000, all: 4, wrong: 2 },
    organizations: [['acme', 2]],
    affected: 1,
  })
  const unavailable = incidents.causes(5000).find(({ code }) => code === 'provider_unavailable')!
  assert.deepEqual([unavailable.backend, unavailable.fault], ['p/m', true])
})

test('what is kept is bounded: organizations of an incident, and incidents', () => {
  const incidents = new Incidents()
  for (let i = 0; i < 5000; i++) incidents.saw(failed({ organization: `org${i}` }), 0)
  const [one] = incidents.causes(0)
  assert.deepEqual([one!.count, one!.affected, one!.organizations.length], [5000, 1000, 10])
  for (let i = 0; i < 1000; i++) incidents.saw(refused({ code: `code${i}` }), 0)
  assert.equal(incidents.causes(0).length, 50)
  assert.ok(JSON.stringify(incidents.causes(0)).length < 50_000)
})

test('incidents of several workers are one: sums, the earliest beginning, the request of the latest', () => {
  const [a, b] = [new Incidents(), new Incidents()]
  a.saw(failed({ id: 'req_a' }), 1000)
  b.saw(failed({ id: 'req_b', organization: 'other' }), 3000)
  b.saw(failed({ id: 'req_c', organization: 'other' }), 4000)
  a.saw(refused(), 4000)
  const [fault, refusal] = sumOfIncidents([a.causes(5000), b.causes(5000)])
  assert.deepEqual(
    [fault!.since, fault!.last, fault!.count, fault!.lastId, fault!.affected, fault!.organizations[0]],
    [1000, 4000, 3, 'req_c', 2, ['other', 2]],
  )
  assert.equal(refusal!.code, 'model_not_found')
  const [impact] = sumOfImpacts([a.impacts(5000), b.impacts(5000)])
  assert.deepEqual([impact!.since, impact!.all, impact!.wrong, impact!.affected], [1000, 3, 3, 2])
})

const DAY = 86_400_000
const NOON = 20_000 * DAY + DAY / 2

test('the day begins at midnight UTC; times and refusals are counted since then, or since the start', async () => {
  const sum = { requests: 7, input: 1, output: 2, cost: 3, failed: 1 }
  const day = { ...sum, models: [], organizations: [] }
  const reads: [since: number, until: number][] = []
  const today = new Today(async (...hours) => {
    reads.push(hours)
    return day
  }, NOON)
  let mono = 0
  const ask = (now: number) => today.ask(now, () => mono)
  assert.deepEqual(today.row(NOON), {
    ...{ since: NOON - DAY / 2, ledger: null, before: null, countedSince: NOON, refused: 0, ttfb99: null },
  })
  // Counts of `Quantiles`: a hundred replies, of which two took an octave longer.
  const counts = Array.from({ length: 40 }, (_, i) => ({ 12: 98, 24: 2 })[i] ?? 0)
  today.ended(NOON, 3, counts)
  await ask(NOON)
  await ask(NOON)
  const midnight = NOON - DAY / 2
  const hour = DAY / 24
  // The day before as far as today will be when the running hour ends; and what is settled is read once an hour.
  const both = [
    [midnight, NOON + hour],
    [midnight - DAY, NOON + hour - DAY],
  ]
  assert.deepEqual(reads, both, 'the ledger is not read again at once')
  mono = 5000
  await ask(NOON)
  assert.deepEqual(reads, [...both, both[0]])
  const row = today.row(NOON)
  assert.deepEqual([row.ledger, row.refused, row.before], [day, 3, { until: NOON + hour - DAY, ledger: sum }])
  mono = 10_000
  await ask(NOON + hour)
  assert.equal(today.row(NOON + hour).before!.until, NOON + 2 * hour - DAY)
  assert.ok(Math.abs(row.ttfb99! - 0.01 * 2 ** (24.5 / 12)) < 1e-9, `${row.ttfb99}`)
  const tomorrow = NOON + DAY / 2
  assert.deepEqual(today.row(tomorrow), {
    ...{ since: tomorrow, ledger: null, before: null, countedSince: tomorrow, refused: 0, ttfb99: null },
  })
})

test('a ledger that takes long is read as much less often; one that is out is not known', async () => {
  let mono = 0
  let reads = 0
  let out = false
  const today = new Today(async () => {
    reads++
    mono += 500
    if (out) throw new Error('out')
    return { requests: 1, input: 0, output: 0, cost: 0, failed: 0, models: [], organizations: [] }
  }, NOON)
  const ask = () => today.ask(NOON, () => mono)
  await ask()
  mono = 50_999
  await ask()
  assert.equal(reads, 2, 'the day and the day before')
  out = true
  mono = 51_000
  await ask()
  assert.deepEqual([reads, today.row(NOON).ledger], [3, null])
})

test('the day by the ledger has what was booked, with what failed', async () => {
  const g = await startGateway()
  try {
    const ask = async (content: string) =>
      (await g.post('/v1/chat/completions', { model: 'eb1-preview', messages: [{ role: 'user', content }] })).text()
    await ask('hello')
    await ask('[[sim: status 500]] x')
    const rows = await g.ledger()
    const sum = (of: (row: (typeof rows)[number]) => number) => rows.reduce((all, row) => all + of(row), 0)
    const midnight = Math.floor(rows.at(-1)!.time / DAY) * DAY
    const all = {
      ...{ requests: 2, failed: 1, cost: sum(row => row.cost) },
      ...{ input: sum(row => row.input), output: sum(row => row.output) },
    }
    assert.deepEqual(await ledgerDay(g.gateway.store, midnight, midnight + DAY), {
      ...all,
      models: [{ name: 'eb1-preview', ...all }],
      organizations: [{ name: 'acme', ...all }],
    })
    assert.ok(sum(row => row.cost) > 0)
    assert.equal((await ledgerDay(g.gateway.store, midnight + DAY, midnight + 2 * DAY)).requests, 0)
  } finally {
    await g.close()
  }
})

test('models and organizations that bring most come first; of too many organizations none is told', async () => {
  const sumsOf = (organizations: number) => ({
    async *usage() {
      for (let i = 0; i < organizations; i++)
        yield [
          {
            organization: `o${i}`,
            model: `m${i % 7}`,
            requests: 1,
            input: 1,
            output: 2,
            cost: i,
            outcome: 'completed',
          },
        ] as UsageSum[]
    },
  })
  const few = await ledgerDay(sumsOf(100), 0, DAY)
  assert.deepEqual(
    few.organizations!.map(({ name }) => name),
    ['o99', 'o98', 'o97', 'o96', 'o95'],
  )
  assert.deepEqual([few.models.length, few.models[0]!.name, few.requests], [5, 'm1', 100])
  const many = await ledgerDay(sumsOf(10_001), 0, DAY)
  assert.deepEqual([many.organizations, many.models.length, many.requests], [null, 5, 10_001])
})

test('an organization and its keys agree, also while the store takes its time', async () => {
  // The organization's use was read before the store was asked, and that of its keys when the page was sent.
  const g = await startGateway()
  try {
    const use = new UseByKey()
    const acme = g.gateway.config.organizations['acme']!
    const limited = { ...acme, limits: { ...acme.limits, requests_per_minute: 5 } }
    use.add('acme', 'key_test', 1, 1, 1)
    const peek = async (_: string, cells: readonly { capacity: number }[]) => {
      use.add('acme', 'key_test', 1, 1, 1)
      return cells.map(({ capacity }) => ({ remaining: capacity, resetMs: 0 }))
    }
    const reader = new AccountReader({ limits: { peek } } as unknown as Store, use)
    const [row] = await reader.rows([limited], NOON)
    use.add('acme', 'key_test', 1, 1, 1)
    assert.deepEqual([row!.use.requests, row!.keys[0]!.use.requests], [1, 1])
  } finally {
    await g.close()
  }
})
