/** Tiers and what counts, as pure functions: the table of the specification, and rules that hold for every history. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { countOf, type Payment } from '../billing/payments.ts'
import { lostBelowGiven, nextTier, type Standing, TIERS, verdictOf } from '../billing/tiers.ts'
import { ConfigFault, parseConfig } from '../config.ts'

const standing = (more: Partial<Standing>): Standing => ({
  ...{ arrived: more.counted ?? 0, counted: 0, held: false, granted: [], plan: 'free' },
  ...more,
})
const goes = (more: Partial<Standing>) => verdictOf(TIERS, standing(more))

test('the table is that of the specification', () => {
  assert.deepEqual(
    TIERS.map(({ plan, basis, activation }) => [plan, basis / 100, activation]),
    [
      ['free', 0, 'automatic'],
      ['tier1', 5, 'automatic'],
      ['tier2', 50, 'automatic'],
      ['tier3', 100, 'automatic'],
      ['tier4', 250, 'capacity review'],
      ['tier5', 1000, 'manual review'],
    ],
  )
})

test('what is paid moves it up, and reviews where the table has them', () => {
  for (const [counted, plan, review] of [
    [499, 'free', null],
    [500, 'tier1', null],
    [4_999, 'tier1', null],
    [5_000, 'tier2', null],
    [10_000, 'tier3', null],
    [24_999, 'tier3', null],
    [25_000, 'tier3', 'tier4'],
    [200_000, 'tier3', 'tier4'],
  ] as const) {
    const verdict = goes({ counted })
    assert.deepEqual([verdict.plan, verdict.review], [plan, review], String(counted))
    assert.equal(verdict.because, plan === 'free' ? null : 'paid')
  }
  const granted = goes({ counted: 100_000, plan: 'tier3', granted: ['tier4'] })
  assert.deepEqual(granted, { plan: 'tier4', because: 'review', hold: false, review: 'tier5' })
  assert.equal(goes({ counted: 100_000, plan: 'tier3', granted: ['tier4', 'tier5'] }).plan, 'tier5')
  // A yes to a tier is none to those below it.
  assert.equal(goes({ counted: 100_000, plan: 'tier3', granted: ['tier5'] }).plan, 'tier3')
})

test('what falls below its basis is held; what was given, or is no tier, stays', () => {
  const fell = goes({ arrived: 10_000, counted: 500, plan: 'tier3' })
  assert.deepEqual(fell, { plan: 'tier1', because: 'fell', hold: true, review: null })
  assert.equal(goes({ arrived: 500, counted: -500, plan: 'tier1' }).plan, 'free')
  assert.equal(goes({ arrived: 100_000, counted: 30_000, plan: 'tier5', granted: ['tier5'] }).plan, 'tier4')
  assert.deepEqual(goes({ arrived: 500, counted: 500, plan: 'tier3' }).because, null, 'given by staff')
  assert.equal(goes({ counted: 100_000, plan: 'beta' }).plan, 'beta')
  assert.equal(goes({ counted: 100_000, held: true }).plan, 'free')
})

test('what is lost below a tier that was given', () => {
  const lost = (arrived: number, counted: number, plan: string) =>
    lostBelowGiven(TIERS, standing({ arrived, counted, plan }))
  assert.equal(lost(5_000, 0, 'tier3'), true)
  assert.equal(lost(9_999, 4_999, 'tier3'), true)
  assert.equal(lost(500, -500, 'tier5'), true)
  assert.equal(lost(9_999, 5_000, 'tier3'), false, 'it would be at tier 2 all the same')
  assert.equal(lost(5_000, 5_000, 'tier3'), false)
  assert.equal(lost(0, 0, 'tier3'), false)
  assert.equal(lost(10_000, 0, 'tier3'), false, 'it was paid for, and falls')
  assert.equal(lost(5_000, 0, 'beta'), false)
  assert.equal(lost(0, -500, 'free'), false)
})

test('what is missing to the next tier', () => {
  assert.equal(nextTier(TIERS, 'free', 120)!.missing, 380)
  assert.deepEqual([nextTier(TIERS, 'tier3', 90_000)!.missing, nextTier(TIERS, 'tier3', 0)!.tier.plan], [0, 'tier4'])
  assert.equal(nextTier(TIERS, 'tier5', 0), null)
  assert.equal(nextTier(TIERS, 'beta', 0), null)
})

// ---- properties -----------------------------------------------------------------------------------------------------

const PLANS = [...TIERS.map(({ plan }) => plan), 'beta']
const anyStanding: fc.Arbitrary<Standing> = fc
  .record({
    counted: fc.integer({ min: -20_000, max: 150_000 }),
    lost: fc.integer({ min: 0, max: 150_000 }),
    held: fc.boolean(),
    granted: fc.subarray(['tier4', 'tier5']),
    plan: fc.constantFrom(...PLANS),
  })
  .map(({ lost, ...one }) => ({ ...one, arrived: Math.max(0, one.counted + lost) }))

const at = (plan: string) => TIERS.findIndex(tier => tier.plan === plan)

test('property: carrying a verdict out changes nothing more', () => {
  fc.assert(
    fc.property(anyStanding, now => {
      const { plan, hold } = verdictOf(TIERS, now)
      const granted = hold ? [] : now.granted
      const then = verdictOf(TIERS, { ...now, plan, granted, held: now.held || hold })
      assert.deepEqual([then.plan, then.because, then.hold], [plan, null, false])
    }),
  )
})

test('property: it rises by what counts and by reviews alone, and falls with a hold alone', () => {
  fc.assert(
    fc.property(anyStanding, now => {
      const verdict = verdictOf(TIERS, now)
      const [from, to] = [at(now.plan), at(verdict.plan)]
      if (from < 0) return assert.equal(verdict.plan, now.plan)
      assert.equal(verdict.because !== null, from !== to)
      assert.equal(verdict.hold, to < from)
      assert.ok(TIERS[to]!.basis <= Math.max(0, now.counted) || to === from)
      for (let i = from + 1; i <= to; i++) {
        const { plan, activation, basis } = TIERS[i]!
        assert.ok(!now.held && basis <= now.counted && (activation === 'automatic' || now.granted.includes(plan)))
      }
      // Nothing that is open to it is kept back.
      const above = TIERS[to + 1]
      if (above && !now.held && !verdict.hold && now.counted >= above.basis) assert.equal(verdict.review, above.plan)
    }),
  )
})

test('property: more money never means a lower tier', () => {
  fc.assert(
    fc.property(anyStanding, fc.integer({ min: 0, max: 50_000 }), (now, more) => {
      const richer = { ...now, counted: now.counted + more, arrived: now.arrived + more }
      // What was lost before is what fell: more payments do not make a fall of it that was none.
      if (now.arrived < (TIERS[at(now.plan)]?.basis ?? 0)) return
      assert.ok(at(verdictOf(TIERS, richer).plan) >= at(verdictOf(TIERS, now).plan))
    }),
  )
})

const row = (one: Partial<Payment> & Pick<Payment, 'id' | 'kind' | 'object' | 'amount'>): Payment => ({
  ...{ provider: 'stripe', state: '', organization: 'acme', customer: null, payment: null, currency: 'usd' },
  ...{ time: 0, received: 0, person: null, note: '' },
  ...one,
})
const paid = (n: number, amount: number, more: Partial<Payment> = {}) =>
  row({ id: `e${n}`, kind: 'settled', object: `pi_${n}`, payment: `pi_${n}`, amount, ...more })
const taken = (
  kind: 'refund' | 'dispute',
  state: Payment['state'],
  n: number,
  amount: number,
  more: Partial<Payment> = {},
) => row({ id: `${kind}${state}${n}`, kind, state, object: `${kind}_${n}`, payment: `pi_${n}`, amount, ...more })

test('what counts is settled minus refunds and lost disputes', () => {
  const count = (...rows: Payment[]) => [countOf(rows).arrived, countOf(rows).counted]
  assert.deepEqual(count(paid(1, 500), paid(2, 700)), [1200, 1200])
  assert.deepEqual(count(paid(1, 500), taken('refund', 'made', 1, 200)), [500, 300])
  assert.deepEqual(
    count(paid(1, 500), taken('refund', 'made', 1, 200), taken('refund', 'failed', 1, 200, { time: 9 })),
    [500, 500],
  )
  assert.deepEqual(count(paid(1, 500), taken('dispute', 'open', 1, 500)), [500, 500])
  assert.deepEqual(count(paid(1, 500), taken('dispute', 'lost', 1, 500)), [500, 0])
  assert.deepEqual(
    count(paid(1, 500), taken('dispute', 'lost', 1, 500), taken('dispute', 'won', 1, 500, { time: 9 })),
    [500, 500],
  )
  // A refund and a lost dispute of one payment take no more than it was.
  assert.deepEqual(
    count(paid(1, 500), paid(2, 700), taken('dispute', 'lost', 1, 500), taken('refund', 'made', 1, 500)),
    [1200, 700],
  )
  assert.deepEqual(count(paid(1, 500), row({ id: 'a', kind: 'adjustment', object: 'a', amount: -100 })), [500, 400])
  assert.deepEqual(count(row({ id: 'a', kind: 'adjustment', object: 'a', amount: 900 })), [900, 900])
  assert.deepEqual(count(row({ id: 'r', kind: 'refund', state: 'made', object: 'r', amount: 300 })), [0, -300])
  assert.deepEqual(count(paid(1, 500, { currency: 'eur' }), paid(2, 700)), [700, 700])
  // Stripe may tell of one payment by two events.
  assert.deepEqual(count(paid(1, 500), paid(1, 500, { id: 'other' })), [500, 500])
})

test('property: neither the order of events nor repetition changes what counts', () => {
  const event = fc.oneof(
    fc
      .tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 }))
      .map(([n, time]) => paid(n, n * 1000, { time })),
    fc
      .tuple(
        fc.constantFrom(
          ...([
            ['refund', 'made'],
            ['refund', 'failed'],
            ['dispute', 'open'],
            ['dispute', 'won'],
            ['dispute', 'lost'],
          ] as const),
        ),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 4 }),
      )
      .map(([[kind, state], n, time]) => taken(kind, state, n, n * 400, { time, id: `${kind}${state}${n}${time}` })),
  )
  const shuffled = fc.uniqueArray(event, { maxLength: 20, selector: ({ id, time }) => `${id} ${time}` }).chain(rows =>
    fc.tuple(
      fc.constant(rows),
      fc
        .shuffledSubarray(rows, { minLength: rows.length })
        .chain(order => fc.subarray(order).map(twice => [...order, ...twice])),
    ),
  )
  fc.assert(
    fc.property(shuffled, ([rows, others]) => {
      const [a, b] = [countOf(rows), countOf(others)]
      assert.deepEqual([a.arrived, a.counted, [...a.parts].sort()], [b.arrived, b.counted, [...b.parts].sort()])
      assert.ok([...a.parts.values()].every(left => left >= 0))
      assert.ok(a.counted <= a.arrived)
    }),
  )
})

// ---- console.yaml ---------------------------------------------------------------------------------------------------

const GATEWAY = 'gateway: { token_file: ./t }\n'
const read = (more: string) => parseConfig(`${GATEWAY}${more}`, 'console.yaml')

test('tiers are off unless the file says otherwise, and its table replaces ours', () => {
  assert.deepEqual(read('').tiers, { open: false, table: TIERS })
  assert.deepEqual(read('tiers: on').tiers, { open: true, table: TIERS })
  assert.deepEqual(read('tiers: off').tiers, { open: false, table: TIERS })
  const big = '{ plan: b, name: Big, basis_usd: 12.50, activation: manual review }'
  const { open, table } = read(`tiers: { open: on, table: [{ plan: a, basis_usd: 0 }, ${big}] }`).tiers
  assert.equal(open, true)
  assert.deepEqual(table, [
    { plan: 'a', name: 'a', basis: 0, activation: 'automatic' },
    { plan: 'b', name: 'Big', basis: 1250, activation: 'manual review' },
  ])
})

test('what is wrong with tiers and stripe, where, and what to write', () => {
  const table = (...tiers: string[]) => `tiers: { table: [{ plan: a, basis_usd: 0 }, ${tiers.join(', ')}] }`
  for (const [source, words] of [
    ['tiers: maybe', '2:8  tiers is "maybe"; write one of on, off, or a mapping with open and table'],
    ['tiers: { table: [] }', '2:17  tiers.table is empty; write at least one tier'],
    ['tiers: { table: [{ plan: a, basis_usd: 5 }] }', '2:40  tiers.table.0.basis_usd is 5.00; write 0'],
    [table('{ plan: b, basis_usd: 0 }'), 'tiers.table.1.basis_usd is 0.00; write more than the tier before it'],
    [table('{ plan: a, basis_usd: 5 }'), 'tiers.table.1.plan is "a" a second time; write another plan'],
    [table('{ plan: b, basis_usd: 1.234 }'), 'tiers.table.1.basis_usd is 1.234; write an amount in USD such as 25.00'],
    [
      table('{ plan: b, basis_usd: 1, activation: manual review }', '{ plan: c, basis_usd: 2 }'),
      'tiers.table.2 is automatic behind a tier with a review',
    ],
    ['stripe: { key: 12345 }', '2:16  stripe.key is 12345; write a secret or restricted key of Stripe: sk_… or rk_…'],
    ['stripe: { key: sk_1, webhook_secrets: [x] }', 'stripe.webhook_secrets.0 is "x"; write the signing secret'],
    [
      'stripe: { key: sk_1, meters: [{ event_name: a, value: all }] }',
      'stripe.meters.0.value is "all"; write one of cost,',
    ],
  ] as const) {
    assert.throws(
      () => read(source),
      (error: unknown) => {
        assert.ok(error instanceof ConfigFault)
        assert.ok(error.message.includes(words), `${source}: ${error.message}`)
        return true
      },
    )
  }
})
