/** Usage by the APIs: for any grouping it is the sum of the rows, and what a key sees is a part of what its operator sees. */
import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import fc from 'fast-check'
import { type ApiRequest, type ApiSources, answerApi } from '../../admin/api.ts'
import type { LedgerOutcome, LedgerRow } from '../../core/ports/store.ts'
import { ownUsage } from '../../plugins/own-usage.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { ManualClock, MemoryIncoming, runPlugin } from '../../plugins/testing.ts'
import { caller, memoryStore } from '../plugins/kit.ts'
import { intent, outcome } from '../stores/kit.ts'

const HOUR = 3_600_000
const BEGIN = Date.UTC(2026, 10, 29)
const NOW = Date.UTC(2026, 11, 2, 5, 30)
const ORGANIZATIONS = { acme: 'tier1', other: 'tier2' }

const booked = fc.array(
  fc.record({
    time: fc.integer({ min: BEGIN, max: NOW }),
    organization: fc.constantFrom('acme', 'other'),
    key_id: fc.constantFrom('key_ci', 'key_2'),
    model: fc.constantFrom('eb1-preview', 'eb1-fast'),
    cost: fc.nat(),
    input: fc.nat(),
    provider_model: fc.constantFrom('sim-large', ''),
    provider_cost: fc.option(fc.nat(), { nil: undefined }),
    team: fc.constantFrom('', 'blue', 'a, "b"'),
  }),
  { maxLength: 25 },
)
/** What names the group of a row; written once more here, from docs/ledger.md. */
const NAMES: Record<string, (row: LedgerRow) => string> = {
  organization: row => row.organization,
  key: row => row.key_id,
  model: row => row.model,
  provider: row => row.provider,
  backend: row => (row.provider_model ? `${row.provider}/${row.provider_model}` : row.provider),
  surface: row => row.surface,
  outcome: row => row.outcome,
  hour: row => `${new Date(row.time).toISOString().slice(0, 13)}:00Z`,
  day: row => new Date(row.time).toISOString().slice(0, 10),
  month: row => new Date(row.time).toISOString().slice(0, 7),
  plan: row => ORGANIZATIONS[row.organization as 'acme'],
  tag: row => JSON.parse(row.tags!)['team'],
}
const OWN = ['hour', 'day', 'month', 'model', 'key']
const TAGGED = ['organization', 'key', 'model', 'hour', 'day', 'month', 'plan', 'tag']
/** A whole hour, or a moment in one. */
const moments = fc.option(
  fc.integer({ min: 0, max: 90 }).chain(hour => fc.constantFrom(BEGIN + hour * HOUR, BEGIN + hour * HOUR + 1_234_567)),
  { nil: undefined },
)
const asked = fc.record({
  groups: fc
    .constantFrom(false, true)
    .chain(tagged =>
      fc
        .shuffledSubarray(tagged ? TAGGED : Object.keys(NAMES).filter(name => name !== 'tag'), { minLength: 1 })
        .map(names => ({ tagged, names })),
    ),
  org: fc.constantFrom(undefined, 'acme'),
  since: moments,
  until: moments,
  wide: fc.boolean(),
})

interface Totals {
  requests: number
  input: number
  cost: number
}
/** By the names of the group. */
function summed(rows: readonly LedgerRow[], groups: readonly string[]): Map<string, Totals> {
  const sums = new Map<string, Totals>()
  for (const row of rows) {
    const name = JSON.stringify(groups.map(group => NAMES[group]!(row)))
    const { requests, input, cost } = sums.get(name) ?? { requests: 0, input: 0, cost: 0 }
    sums.set(name, { requests: requests + 1, input: input + row.input, cost: cost + row.cost })
  }
  return sums
}
const byName = (sums: Map<string, Totals>) => [...sums].sort(([a], [b]) => (a < b ? -1 : 1))

test('for any grouping and range, usage by the admin API and by GET /v1/usage is the sum of the rows', async () => {
  const run = async (rows: typeof booked extends fc.Arbitrary<infer T> ? T : never, question: Question) => {
    const clock = new ManualClock(NOW)
    const store = await memoryStore(clock)
    for (const [i, { time, organization, key_id, model, team, input, ...more }] of rows.entries()) {
      await store.ledger.intent(intent(`r${i}`, { time, organization, key_id, model }))
      const { usage } = outcome('')
      const ended: Partial<LedgerOutcome> = { ...more, usage: { ...usage, input } }
      if (more.provider_cost === undefined) delete ended.provider_cost
      if (team !== '') ended.tags = JSON.stringify({ team })
      store.ledger.outcome(outcome(`r${i}`, ended))
    }
    await store.ledger.flush()
    const all = await store.ledger.query({})
    assert.equal(all.length, rows.length)
    const { groups, org, since, until, wide } = question
    const text = (time: number | undefined) => (time === undefined ? null : new Date(time).toISOString())
    const query = (names: readonly string[]) =>
      new URLSearchParams(
        Object.entries({
          group_by: names.join(),
          since: text(since),
          until: text(until),
          tag: groups.tagged ? 'team' : null,
        }).filter((entry): entry is [string, string] => entry[1] !== null),
      )
    const wanted = (from: number, to: number) =>
      all.filter(
        row =>
          row.time >= from &&
          row.time < to &&
          (org === undefined || row.organization === org) &&
          (!groups.tagged || (row.tags ?? '') !== ''),
      )
    const from = since ?? Date.UTC(2026, 11, 1)

    const organizations = Object.fromEntries(Object.entries(ORGANIZATIONS).map(([id, plan]) => [id, { id, plan }]))
    const sources = { store, config: () => ({ organizations }), now: () => NOW } as unknown as ApiSources
    const request = Object.assign(Readable.from([]), { method: 'GET', headers: {} }) as unknown as ApiRequest
    const operator = { by: 'token:x', address: '', role: 'read', actsFor: 'optional', actions: null } as const
    const path = `/api/v1/${org === undefined ? '' : `organizations/${org}/`}usage`
    const answer = await answerApi(sources, operator, request, path, query(groups.names))
    assert.equal(answer.status, 200, JSON.stringify(answer.body))
    const { usage } = answer.body as { usage: (Totals & Record<string, string>)[] }
    // Of several organizations, keys are told apart: their first keys have one id.
    const names =
      org === undefined && groups.names.includes('key') ? [...new Set(['organization', ...groups.names])] : groups.names
    const expected = summed(wanted(from, until ?? Math.ceil(NOW / HOUR) * HOUR), names)
    assert.deepEqual(
      usage
        .map(({ requests, input, cost, ...sum }) => [
          JSON.stringify(names.map(name => sum[name])),
          { requests, input, cost },
        ])
        .sort(([a], [b]) => (a! < b! ? -1 : 1)),
      byName(expected),
    )

    const own = groups.names.filter(name => OWN.includes(name) || name === 'tag')
    if (own.length === 0) return
    const seen = await runPlugin(ownUsage, {
      store,
      clock,
      request: new MemoryIncoming({ method: 'GET', path: '/v1/usage', query: `${query(own)}` }),
      slots: [[identity, caller({ id: 'acme' }, { usage: wide ? 'organization' : 'key' })]],
    })
    assert.equal(seen.status, 200, JSON.stringify(seen.json))
    const [first, end] = [Math.floor(from / HOUR) * HOUR, Math.ceil((until ?? NOW) / HOUR) * HOUR]
    const mine = wanted(first, end).filter(row => row.organization === 'acme' && (wide || row.key_id === 'key_ci'))
    assert.deepEqual(
      seen.json.data
        .map((sum: any) => [
          JSON.stringify(own.map(name => sum[name])),
          { requests: sum.requests, input: sum.input_tokens, cost: sum.cost_nano_usd },
        ])
        .sort(([a]: [string], [b]: [string]) => (a < b ? -1 : 1)),
      byName(summed(mine, own)),
    )
  }
  type Question = typeof asked extends fc.Arbitrary<infer T> ? T : never
  await fc.assert(fc.asyncProperty(booked, asked, run), { numRuns: 60 })
})
