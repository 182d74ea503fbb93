/** What `sluice trace` finds without a log: refusals by the thousand leave those of others, in a bound of bytes. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ExchangeRecord, KEPT, RecentExchanges } from '../../admin/recent.ts'
import { TROUBLE_BYTES, Troubles } from '../../admin/troubles.ts'
import type { PassedOver } from '../../core/plugin.ts'
import { requestId } from '../../core/tools/ids.ts'
import { random as seeded } from '../random.ts'

const STRANGER = '@192.0.2.1'
const NOW = 1_700_000_000_000

function refusal(changes: Partial<ExchangeRecord> = {}): ExchangeRecord {
  return {
    seq: 0,
    id: requestId(),
    at: NOW,
    route: 'POST /v1/chat/completions',
    model: '',
    unknownModel: '',
    backend: '',
    organization: '',
    key: '',
    status: 401,
    outcome: 'refused',
    code: 'invalid_api_key',
    param: '',
    cause: '',
    client: '',
    durationMs: 0.4,
    ttfbMs: null,
    input: 0,
    output: 0,
    cost: 0,
    failed: [],
    passedOver: [],
    slowedMs: 0,
    taken: null,
    timeline: null,
    ...changes,
  }
}
const over = (organization: string, changes: Partial<ExchangeRecord> = {}) =>
  refusal({
    ...{ organization, key: `key_${organization}`, model: 'm', status: 429, code: 'requests_limit_exceeded' },
    ...{ cause: 'the key: 5 requests', ...changes },
  })
const failed = (organization: string, code = 'upstream_server_error') =>
  over(organization, {
    ...{ outcome: 'upstream_error', status: 502, code, cause: '' },
    failed: [{ backend: 'p/m', code: 'upstream_server_error', status: 500, ms: 3, told: { type: 'server_error' } }],
  })
const added = (troubles: Troubles, record: ExchangeRecord, tenant = record.organization || STRANGER) => {
  troubles.add(record, tenant)
  return record
}

test('a flood of one caller takes nothing from the twenty refusals of another, whoever it is', () => {
  const floods: Record<string, (i: number) => [ExchangeRecord, string]> = {
    'one stranger': () => [refusal(), STRANGER],
    'a stranger with an address for each request': i => [refusal(), `@10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`],
    'an organization over its limit': () => [over('loud'), 'loud'],
    'an organization with an unknown model each time': i => [over('loud', { unknownModel: `m-${i}` }), 'loud'],
    'an organization whose requests fail': () => [failed('loud'), 'loud'],
    'heads that are refused': () => [refusal({ code: 'route_capacity', status: 503 }), 'loud'],
  }
  for (const [name, flood] of Object.entries(floods)) {
    const troubles = new Troubles()
    const quiet = Array.from({ length: 20 }, (_, i) =>
      added(troubles, i % 2 === 0 ? over('quiet', { param: `p${i}` }) : failed('quiet')),
    )
    const customer = added(troubles, refusal(), '@198.51.100.7')
    let last: ExchangeRecord | undefined
    for (let i = 0; i < 100_000; i++) {
      const [record, tenant] = flood(i)
      troubles.add(record, tenant)
      last = record
    }
    assert.ok(troubles.bytes <= TROUBLE_BYTES, `${name}: ${troubles.bytes}`)
    for (const { id, code } of quiet) assert.equal(troubles.find(id)?.code, code, name)
    assert.equal(troubles.find(customer.id)?.code, 'invalid_api_key', name)
    assert.equal(troubles.find(last!.id)?.code, last!.code, name)
  }
})

test('whatever is sent, bytes stay within the bound, and who holds little of it is traced', () => {
  const random = seeded(20)
  const troubles = new Troubles(256 * 1024)
  const words = Array.from({ length: 40 }, (_, i) => 'w'.repeat(1 + ((i * 37) % 128)))
  const pick = <T>(of: readonly T[]) => of[Math.floor(random() * of.length)]!
  const quiet = added(troubles, over('quiet', { param: pick(words) }))
  for (let i = 0; i < 20_000; i++) {
    const organization = random() < 0.5 ? '' : `org-${Math.floor(random() ** 4 * 60)}`
    const changes = { unknownModel: pick(words), param: pick(words), at: NOW + i * 100 }
    const record = random() < 0.1 ? failed(organization) : over(organization, changes)
    added(troubles, record, organization || `@10.0.0.${Math.floor(random() * 250)}`)
    assert.ok(troubles.bytes <= 256 * 1024, `${i}: ${troubles.bytes}`)
    if (i % 20 === 0) assert.ok(troubles.find(record.id) && troubles.find(quiet.id), `${i}`)
  }
})

test('what is alike is told once, with how many there were; each of the last thousands is found by its id', () => {
  const troubles = new Troubles()
  const all = Array.from({ length: 30_000 }, (_, i) => added(troubles, over('acme', { at: NOW + i })))
  const alike = { count: 30_000, first: NOW, last: NOW + 29_999 }
  const first = troubles.find(all[0]!.id)!
  assert.deepEqual([first.durationMs, first.input, first.alike], [0.4, 0, alike])
  const later = troubles.find(all.at(-1)!.id)!
  assert.deepEqual(
    [later.id, later.organization, later.key, later.code, later.cause, later.alike],
    [all.at(-1)!.id, 'acme', 'key_acme', 'requests_limit_exceeded', all[0]!.cause, alike],
  )
  // What is one exchange's own is not said of another.
  assert.deepEqual([later.durationMs, later.input, later.cost, later.taken, later.timeline], Array(5).fill(null))
  assert.ok(all.slice(-10_000).every(({ id }) => troubles.find(id)))
  assert.equal(troubles.find(all[5000]!.id), undefined, 'its place was taken by one that is like it')
  assert.equal(troubles.find(requestId()), undefined)
  assert.ok(troubles.bytes < TROUBLE_BYTES / 4)
  // Another key, limit, model or member is another reason.
  const other = added(troubles, over('acme', { cause: 'the organization: 5 requests' }))
  assert.equal(troubles.find(other.id)!.alike, null)
})

test('a backend that was passed over is told of each, also of those that another backend served', () => {
  const troubles = new Troubles()
  const passed = (requestId: string): PassedOver => ({
    ...{ backend: 'p/m', why: 'pause', scope: 'all', code: 'capacity_exceeded', requestId, since: NOW, until: NOW + 1 },
  })
  const served = (by: string, input: number) =>
    over('acme', { ...{ status: 200, outcome: 'completed', code: '', cause: '', input }, passedOver: [passed(by)] })
  const [a, b, c] = [served('req_a', 10), served('req_a', 20), served('req_b', 30)]
  for (const record of [a, b, c]) added(troubles, record)
  const found = [a, b, c].map(({ id }) => troubles.find(id)!)
  assert.deepEqual(
    found.map(one => [one.passedOver[0]!.requestId, one.input, one.alike?.count]),
    [
      ['req_a', 10, 2],
      ['req_a', null, 2],
      ['req_b', 30, undefined],
    ],
  )
})

test('the page keeps the rows of others in a flood, too', () => {
  const recent = new RecentExchanges()
  const quiet = Array.from({ length: 20 }, () => over('quiet'))
  for (const record of quiet) recent.add(record)
  for (let i = 0; i < 5000; i++) recent.add(i % 3 === 0 ? refusal() : over('loud'))
  const rows = recent.since(0)
  assert.equal(rows.length, KEPT)
  assert.deepEqual(
    rows.slice(0, 20).map(({ id }) => id),
    quiet.map(({ id }) => id),
  )
})
