/**
 * Money, tiers and balances on a running gateway: events as Stripe sends them (signed, twice, late, out of order,
 * forged), payments by hand, reviews and holds, and a gateway that is down meanwhile.
 */
import assert from 'node:assert/strict'
import { request as ask, createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import type { TestGateway } from '../../test/e2e/harness.ts'
import { eventually } from '../../test/eventually.ts'
import { meterUsage } from '../billing/meters.ts'
import { lookAgain } from '../billing/moves.ts'
import { bindCustomer } from '../billing/payments.ts'
import { readSpendNotices } from '../notices/spend.ts'
import { personByEmail } from '../people/persons.ts'
import { StaffGateway } from '../staff/gateway.ts'
import { openOrganization } from '../staff/organizations.ts'
import { gatewayForConsole, newKey, startConsole, type TestConsole, type Visitor } from './kit.ts'
import { deliver, StripeStandIn, signatureOf } from './stripe-stand-in.ts'

let gateway: TestGateway
let stripe: StripeStandIn
let c: TestConsole
let staff: Visitor & { id: string }
/** Of the console's clock, ms. */
let shift = 0
/** Stands before the gateway's admin listener. */
let door: Door

/** Passes requests on, unless the gateway is to be down. */
class Door {
  open = true
  /** What was refused while it was shut. */
  refused = 0
  readonly server: Server
  constructor(to: string) {
    const { hostname, port } = new URL(to)
    this.server = createServer((request, response) => {
      if (!this.open) {
        this.refused++
        request.socket.destroy()
        return
      }
      const { method, url: path, headers } = request
      const passed = ask({ hostname, port, method, path, headers }, answer => {
        response.writeHead(answer.statusCode!, answer.headers)
        answer.pipe(response)
      })
      request.pipe(passed)
    })
  }
}

before(async () => {
  gateway = await gatewayForConsole()
  stripe = await StripeStandIn.start()
  door = new Door(gateway.gateway.adminAddress!)
  await new Promise<void>(resolve => door.server.listen(0, '127.0.0.1', resolve))
  const adminAddress = `http://127.0.0.1:${(door.server.address() as AddressInfo).port}`
  c = await startConsole(
    { url: gateway.url, gateway: { adminAddress } },
    {
      yaml: `tiers: on
billers: [{ name: bank, secret: a-secret-of-the-bank }]
${stripe.yaml(', checkout: on, meters: [{ event_name: cost, value: cost }, { event_name: out, value: output }]')}`,
      now: () => Date.now() + shift,
    },
  )
  staff = await c.person('staff@example.com', { staff: true })
})
after(async () => {
  await c?.close()
  door?.server.closeAllConnections()
  door?.server.close()
  await stripe?.close()
  await gateway?.close()
})

const asStaff = () => new StaffGateway(c.config, 'test')
const organizationOf = async (id: string) => (await asStaff().organization(id)).organization
const planOf = async (id: string) => (await organizationOf(id)).plan
const becomes = (id: string, plan: string) =>
  eventually(
    async () => (await planOf(id)) === plan,
    () => planOf(id),
  )
const send = (event: unknown, sign?: (body: string) => string) => deliver(c.url, event, sign)
const paidBy = (organization: string) => ({ metadata: { organization } })
const paidFor = async (visitor: Visitor, id: string) =>
  /Paid<\/h2><span class="figure">([^<]+)</.exec((await visitor.get(`/o/${id}/billing`)).body)![1]
/** Until nothing is left to be carried out. */
const settled = () =>
  eventually(async () => (await c.console.parts.db.selectFrom('billing_work').selectAll().execute()).length === 0)

test('five dollars make a customer tier 1: the headers of the running gateway show it', async () => {
  await c.organization('five', 'free')
  const owner = await c.member('five', 'five@example.com', 'owner')
  const secret = await newKey(owner, 'five')
  const limit = async () => {
    const body = { model: 'eb1-preview', max_tokens: 1, messages: [{ role: 'user', content: 'Hi' }] }
    const reply = await gateway.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
    await reply.text()
    return [reply.status, reply.headers.get('x-ratelimit-limit-requests')]
  }
  await eventually(async () => (await limit())[0] === 429)
  const page = (await owner.get('/o/five/billing')).body
  assert.match(page, /You are at <strong>Free<\/strong>/)
  assert.match(page, /\$5\.00 more to Tier 1/)

  const { status, body } = await send(stripe.paid('pi_five', 500, paidBy('five')))
  assert.deepEqual([status, body], [200, { received: true, counted: true, repeated: false }])
  await eventually(async () => {
    const [status, requests] = await limit()
    return status === 200 && requests === '60'
  }, limit)

  const shown = (await owner.get('/o/five/billing')).body
  assert.match(shown, /You are at <strong>Tier 1<\/strong>/)
  assert.match(shown, /\$45\.00 more to Tier 2/)
  assert.match(shown, /<code>pi_five<\/code>/)
  // Everybody can see who did it, and the customer is told.
  const { entries } = await asStaff().audit({ organization: 'five' })
  assert.deepEqual([entries[0]!.actor, entries[0]!.operation], ['console:tiers', 'organization.change'])
  await eventually(() => c.mails.some(({ to, subject }) => to === 'five@example.com' && /is at Tier 1/.test(subject)))
})

test('an event that comes twice counts once, and so do two events of one payment', async () => {
  await c.organization('twice', 'free')
  const owner = await c.member('twice', 'twice@example.com', 'owner')
  const event = stripe.paid('pi_twice', 2_600, paidBy('twice'))
  const answers = await Promise.all([send(event), send(event), send(event)])
  assert.deepEqual(answers.map(({ body }) => body.repeated).sort(), [false, true, true])
  assert.equal((await send(stripe.paid('pi_twice', 2_600, paidBy('twice')))).body.repeated, false)
  await becomes('twice', 'tier1')
  assert.equal(await paidFor(owner, 'twice'), '$26.00')
})

test('what is forged, too old, or signed for other bytes changes nothing', async () => {
  await c.organization('forged', 'free')
  const owner = await c.member('forged', 'forged@example.com', 'owner')
  const event = stripe.paid('pi_forged', 100_000, paidBy('forged'))
  const now = Math.floor(Date.now() / 1000)
  for (const [what, sign] of [
    ['another secret', (body: string) => signatureOf(body, { secret: 'whsec_other' })],
    ['an hour old', (body: string) => signatureOf(body, { at: now - 3600 })],
    ['of other bytes', (body: string) => signatureOf(`${body} `)],
    ['no signature', () => ''],
    ['without its time', (body: string) => signatureOf(body).replace(/^t=\d+,/, '')],
    ['of a scheme of before', (body: string) => signatureOf(body).replace('v1=', 'v0=')],
  ] as const)
    assert.equal((await send(event, sign)).status, 400, what)
  assert.equal((await send({ ...event, id: null }, () => 'x')).status, 400)
  assert.equal(await planOf('forged'), 'free')
  assert.equal(await paidFor(owner, 'forged'), '$0.00')
  // Stripe signs anew what it sends again days later.
  assert.equal((await send({ ...event, created: now - 3 * 86_400 })).status, 200)
  await becomes('forged', 'tier3')
})

test('a refund may come before its payment, and a payment before its customer is known', async () => {
  await c.organization('order', 'free')
  const owner = await c.member('order', 'order@example.com', 'owner')
  assert.equal((await send(stripe.refunded('re_order', 'pi_order', 1_000))).body.counted, false)
  assert.equal((await send(stripe.paid('pi_order', 6_000, { customer: 'cus_order' }))).body.counted, false)
  assert.match((await staff.get('/staff/billing')).body, /cus_order/)
  const placed = await staff.post('/staff/billing/customers', { customer: 'cus_order', organization: 'order' })
  assert.equal(placed.location, '/staff/billing?done=customer-placed')
  await becomes('order', 'tier2')
  assert.equal(await paidFor(owner, 'order'), '$50.00')
  assert.ok(!(await staff.get('/staff/billing')).body.includes('cus_order'))
  // A customer that is placed once stays there.
  await bindCustomer(c.console.parts.db, 'cus_order', 'five', 0)
  assert.equal(await paidFor(owner, 'order'), '$50.00')
})

test('USD alone counts, and organizations that the console does not have are nobody’s', async () => {
  await c.organization('euro', 'free')
  const owner = await c.member('euro', 'euro@example.com', 'owner')
  const { body } = await send(stripe.paid('pi_euro', 900, { ...paidBy('euro'), currency: 'eur' }))
  assert.deepEqual(body, { received: true, counted: false, why: 'it is in EUR, and USD alone counts' })
  await settled()
  assert.equal(await planOf('euro'), 'free')
  assert.equal(await paidFor(owner, 'euro'), '$0.00')
  assert.match((await owner.get('/o/euro/billing')).body, /not counted: USD alone counts/)
  const unknown = await send(stripe.paid('pi_nobody', 900, paidBy('no-such-organization')))
  assert.equal(unknown.body.counted, false)
  const other = await send(stripe.event('customer.subscription.created', { id: 'sub_1' }))
  assert.deepEqual([other.status, other.body.counted], [200, false])
})

test('a lost dispute sets a hold by itself: the tier falls, staff is told, and it rises again when the hold is lifted', async () => {
  await c.organization('fallen', 'free')
  const owner = await c.member('fallen', 'fallen@example.com', 'owner')
  await send(stripe.paid('pi_f1', 600, paidBy('fallen')))
  await send(stripe.paid('pi_f2', 9_500, paidBy('fallen')))
  await becomes('fallen', 'tier3')
  await send(stripe.dispute('dp_1', 'pi_f2', 9_500, 'needs_response', 'charge.dispute.created'))
  await settled()
  assert.equal(await planOf('fallen'), 'tier3', 'an open dispute takes nothing')
  await send(stripe.dispute('dp_1', 'pi_f2', 9_500, 'lost'))
  await becomes('fallen', 'tier1')
  await eventually(() =>
    c.mails.some(({ to, subject }) => to === 'staff@example.com' && subject === 'A hold on fallen'),
  )
  await eventually(() =>
    c.mails.some(({ to, text }) => to === 'fallen@example.com' && /refunded or disputed/.test(text)),
  )
  assert.match((await owner.get('/o/fallen/billing')).body, /on hold/)

  // More money does not lift a hold.
  await send(stripe.paid('pi_f3', 20_000, paidBy('fallen')))
  await settled()
  assert.equal(await planOf('fallen'), 'tier1')
  const page = (await staff.get('/staff/billing')).body
  const lift = /action="(\/staff\/billing\/holds\/fallen[^"]*\/lift)"/.exec(page)![1]!
  assert.equal((await staff.post(lift)).location, '/staff/billing?done=hold-lifted')
  await becomes('fallen', 'tier3')
  assert.equal((await staff.post(lift)).status, 404)
  const money = (await staff.get('/staff/organizations/fallen/payments')).body
  for (const words of [/Counts<\/dt><dd>\$206\.00</, /Arrived<\/dt><dd>\$301\.00</, /tier3 → tier1/, /tier1 → tier3/])
    assert.match(money, words)
  const audit = (await owner.get('/o/fallen/audit')).body
  for (const words of [/plan: tier3 → tier1/, /set a hold/, /lifted the hold/]) assert.match(audit, words)
})

// Staff gave a higher tier to a customer who had paid, all of it was refunded, and nobody was told.
test('what is taken back below a tier that staff gave is told to staff once, and the tier stays', async () => {
  await c.organization('given', 'free')
  await send(stripe.paid('pi_given', 5_000, paidBy('given')))
  await becomes('given', 'tier2')
  await asStaff().change('given', () => ({ plan: 'tier3' }))
  const told = () => c.mails.filter(({ subject }) => subject === 'Payments of given were taken back')
  await send(stripe.refunded('re_given_1', 'pi_given', 4_000))
  await eventually(() => told().length === 1)
  await settled()
  assert.equal(told()[0]!.to, 'staff@example.com')
  assert.match(told()[0]!.text, /Of \$50\.00 that arrived, \$10\.00 counts: .* Tier 3 was given by staff/)
  // What is no loss is not told again, and a further loss is.
  await send(stripe.paid('pi_given_2', 100, paidBy('given')))
  await settled()
  await send(stripe.refunded('re_given_2', 'pi_given', 1_000))
  await eventually(() => told().length === 2)
  await settled()
  assert.match(told()[1]!.text, /Of \$51\.00 that arrived, \$1\.00 counts/)
  assert.equal(await planOf('given'), 'tier3')
  const { db } = c.console.parts
  assert.equal((await db.selectFrom('hold').selectAll().where('organization', '=', 'given').execute()).length, 0)
})

test('tier 4 waits for a review, which staff decides', async () => {
  await c.organization('large', 'free')
  await send(stripe.paid('pi_large', 30_000, paidBy('large')))
  await becomes('large', 'tier3')
  await eventually(() =>
    c.mails.some(({ to, subject }) => to === 'staff@example.com' && subject === 'large asks for Tier 4'),
  )
  // It asks once.
  await send(stripe.paid('pi_large2', 100, paidBy('large')))
  await settled()
  const path = (page: string, what: string) =>
    new RegExp(`action="(/staff/billing/reviews/large[^"]*/${what})"`).exec(page)![1]!
  const page = (await staff.get('/staff/billing')).body
  assert.equal(page.match(/reviews\/large[^"]*\/grant/g)!.length, 1)
  await staff.post(path(page, 'refuse'))
  await settled()
  assert.equal(await planOf('large'), 'tier3')
  assert.equal((await staff.post(path(page, 'refuse'))).status, 404)
  const again = (await staff.get('/staff/billing')).body
  assert.equal((await staff.post(path(again, 'grant'))).location, '/staff/billing?done=review-granted')
  await becomes('large', 'tier4')
  // A refund below the basis ends the review, too.
  await send(stripe.refunded('re_large', 'pi_large', 15_000))
  await becomes('large', 'tier3')
  const { db } = c.console.parts
  const reviews = await db.selectFrom('review').select('state').where('organization', '=', 'large').execute()
  assert.deepEqual(
    reviews.map(({ state }) => state),
    ['ended'],
  )
})

test('a payment by hand counts once, however often the form is sent; what is wrong is said', async () => {
  await c.organization('hand', 'free')
  const owner = await c.member('hand', 'hand@example.com', 'owner')
  await staff.get('/staff/billing')
  const form = {
    id: staff.field('id'),
    organization: 'hand',
    kind: 'settled',
    amount: '50',
    currency: 'USD',
    note: 'Transfer 17',
  }
  for (const [fields, words] of [
    [{ currency: 'EUR' }, 'Currency: USD alone counts'],
    [{ amount: '0' }, 'Amount: write an amount above 0'],
    [{ amount: '-5' }, 'Amount: an adjustment alone may be below 0'],
    [{ amount: '5.001' }, 'Amount: write an amount above 0'],
    [{ organization: 'nobody' }, 'The console has no organization with this id'],
    [{ note: ' ' }, 'Reference: write it in 1 to 200 characters'],
    [{ kind: 'gift' }, 'Choose what it is'],
  ] as const) {
    const seen = await staff.post('/staff/billing/payments', { ...form, ...fields })
    assert.equal(seen.status, 400)
    assert.ok(seen.body.includes(words), words)
  }
  for (let i = 0; i < 2; i++)
    assert.equal((await staff.post('/staff/billing/payments', form)).location, '/staff/billing?done=payment-added')
  await becomes('hand', 'tier2')
  assert.equal(await paidFor(owner, 'hand'), '$50.00')
  await staff.get('/staff/billing')
  const back = { ...form, id: staff.field('id'), kind: 'adjustment', amount: '-50', note: 'Wrong customer' }
  await staff.post('/staff/billing/payments', back)
  await becomes('hand', 'free')
  assert.match((await owner.get('/o/hand/billing')).body, /Wrong customer/)
  assert.match((await owner.get('/o/hand/audit')).body, /added a payment/)
})

test('a hold by hand keeps the plan and stops the rise', async () => {
  await c.organization('held', 'free')
  await staff.get('/staff/billing')
  assert.equal((await staff.post('/staff/billing/holds', { held: 'held', why: 'Fraud?' })).status, 303)
  await staff.get('/staff/billing')
  assert.equal((await staff.post('/staff/billing/holds', { held: 'held', why: 'Again' })).status, 400)
  await send(stripe.paid('pi_held', 500, paidBy('held')))
  await settled()
  assert.equal(await planOf('held'), 'free')
})

test('plans that are no tiers, and organizations of the file, stay as they are', async () => {
  await c.organization('contract', 'custom')
  const { db } = c.console.parts
  await db
    .insertInto('organization')
    .values({ id: 'acme', name: 'Acme', created: 0, creator: null, deleted: null })
    .execute()
  await send(stripe.paid('pi_contract', 50_000, paidBy('contract')))
  await send(stripe.paid('pi_acme', 50_000, paidBy('acme')))
  await settled()
  assert.deepEqual([await planOf('contract'), await planOf('acme')], ['custom', 'custom'])
  const owner = await c.member('contract', 'contract@example.com', 'owner')
  assert.match((await owner.get('/o/contract/billing')).body, /which is no tier/)
})

test('while the gateway is down the move waits, and is done when it is back', async () => {
  await c.organization('patient', 'free')
  const owner = await c.member('patient', 'patient@example.com', 'owner')
  door.open = false
  try {
    assert.equal((await send(stripe.paid('pi_patient', 500, paidBy('patient')))).status, 200)
    await eventually(() => door.refused > 0)
    await eventually(async () => /Not carried out yet/.test((await staff.get('/staff/billing')).body))
    assert.equal((await owner.get('/o/patient/billing')).status, 503)
  } finally {
    door.open = true
  }
  await becomes('patient', 'tier1')
  await settled()
  assert.ok(!/Not carried out yet/.test((await staff.get('/staff/billing')).body))
})

test('a move that the gateway has and the console could not note is noted, and told, once', async () => {
  await c.organization('crash', 'free')
  await c.member('crash', 'crash@example.com', 'owner')
  const { db, now } = c.console.parts
  // As a console that was killed between the gateway's answer and its note leaves it.
  await asStaff().change('crash', () => ({ plan: 'tier1' }))
  await db
    .insertInto('tier_move')
    .values({
      ...{ id: 'crash:0', organization: 'crash', from_plan: 'free', to_plan: 'tier1', because: 'paid', counted: 500 },
      ...{ created: now(), applied: null, dropped: null },
    })
    .execute()
  await send(stripe.paid('pi_crash', 500, paidBy('crash')))
  await eventually(() => c.mails.some(({ to }) => to === 'crash@example.com'))
  await settled()
  const moves = await db.selectFrom('tier_move').selectAll().where('organization', '=', 'crash').execute()
  assert.equal(moves.length, 1)
  assert.ok(moves[0]!.applied)
})

test('a payment of a prepaid organization is its credit, once, and a refund takes it back', async () => {
  const limits = { unbilled_usd_per_day: '5' }
  await asStaff().create('prepaid', { plan: 'free', billing: 'prepaid', limits })
  const { db } = c.console.parts
  const row = { id: 'prepaid', name: 'Prepaid', created: 0, creator: null, deleted: null }
  await db.insertInto('organization').values(row).execute()
  const owner = await c.member('prepaid', 'prepaid@example.com', 'owner')
  const left = async () => (await organizationOf('prepaid')).balance?.left_nano_usd ?? 0
  const holds = (usd: number) => eventually(async () => (await left()) === usd * 1e9, left)

  // The way there: a page with a link, since a form may not lead to another site.
  await owner.get('/o/prepaid/billing')
  for (const amount of ['4.99', '1000.01', 'five'])
    assert.equal((await owner.post('/o/prepaid/billing/checkout', { amount })).status, 400)
  const id = owner.field('id')
  const links = await Promise.all(
    [1, 2].map(async () => (await owner.post('/o/prepaid/billing/checkout', { amount: '20.00', id })).body),
  )
  const [first, second] = links.map(body => /href="(https:\/\/checkout\.example\.com\/c\/\d+)"/.exec(body)![1])
  assert.equal(first, second, 'one wish is one page of Stripe')
  const { body: asked } = stripe.bodies.find(({ path }) => path === '/v1/checkout/sessions')!
  assert.equal(asked.get('payment_intent_data[metadata][organization]'), 'prepaid')
  assert.equal(asked.get('line_items[0][price_data][unit_amount]'), '2000')
  const portal = await owner.get('/o/prepaid/billing/portal')
  assert.equal(portal.location, `https://billing.example.com/p/${asked.get('customer')}`)
  const customers = await db.selectFrom('customer').selectAll().where('organization', '=', 'prepaid').execute()
  assert.deepEqual(
    customers.map(({ customer }) => customer),
    [asked.get('customer')],
  )

  // Stripe tells of the payment by its customer, and by what the checkout wrote on it.
  const event = stripe.paid('pi_prepaid', 2_000, { customer: asked.get('customer') })
  await Promise.all([send(event), send(event)])
  await holds(20)
  await becomes('prepaid', 'tier1')
  await send(stripe.refunded('re_prepaid', 'pi_prepaid', 500))
  await holds(15)
  await send(stripe.refunded('re_prepaid', 'pi_prepaid', 500, 'failed', 'refund.failed'))
  // The two came within a second; whichever was later, the end of a refund that failed is that it failed.
  await holds(20)
  // What staff writes down reaches the balance, too.
  await staff.get('/staff/billing')
  const back = {
    id: staff.field('id'),
    organization: 'prepaid',
    kind: 'refund',
    amount: '2',
    currency: 'USD',
    note: 'Paid twice',
  }
  await staff.post('/staff/billing/payments', back)
  await holds(18)
  const { entries } = await asStaff().audit({ organization: 'prepaid' })
  const credits = entries.filter(({ operation }) => operation === 'organization.credit')
  assert.deepEqual(
    credits.map(({ actor }) => actor),
    Array(4).fill('console:tiers'),
  )
  const money = (await staff.get('/staff/organizations/prepaid/payments')).body
  assert.deepEqual(
    [...money.matchAll(/data-head="Amount"[^>]*>([^<]+)<\/td>\s*<td[^>]*><code>pi_prepaid<\/code>/g)]
      .map(([, usd]) => usd)
      .sort(),
    // The payment itself, and its three credits.
    ['$20.00', '$20.00', '$5.00', '−$5.00'],
  )
  assert.match((await owner.get('/o/prepaid/billing')).body, /Left of the balance<\/h2><span class="figure">\$18\.00/)
})

test('an organization that pays invoices gets no credit, and no page to pay one', async () => {
  const owner = await c.person('five@example.com')
  await owner.get('/o/five/billing')
  const seen = await owner.post('/o/five/billing/checkout', { amount: '20' })
  assert.equal(seen.status, 400)
  assert.match(seen.body, /this organization has no balance|This organization has no balance/)
  const { db } = c.console.parts
  const credits = await db.selectFrom('credit').select(['amount', 'given']).where('organization', '=', 'five').execute()
  assert.deepEqual(
    credits.map(({ amount }) => amount),
    [0],
  )
})

test('roles: billing pays, developers and viewers see nothing of it', async () => {
  const billing = await c.member('prepaid', 'pays@example.com', 'billing')
  assert.equal((await billing.get('/o/prepaid/billing')).status, 200)
  for (const role of ['developer', 'viewer'] as const) {
    const other = await c.member('prepaid', `${role}@example.com`, role)
    assert.equal((await other.get('/o/prepaid/billing')).status, 403)
    assert.equal((await other.get('/o/prepaid/billing/portal')).status, 403)
  }
})

test('another biller reports payments as Stripe does, signed with a secret of its own', async () => {
  await c.organization('banked', 'free')
  const owner = await c.member('banked', 'banked@example.com', 'owner')
  const report = async (event: Record<string, unknown>, { secret = 'a-secret-of-the-bank', name = 'bank' } = {}) => {
    const body = JSON.stringify(event)
    const answer = await fetch(`${c.url}/webhooks/billers/${name}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'sluice-signature': signatureOf(body, { secret }) },
      body,
    })
    return { status: answer.status, body: (await answer.json()) as any }
  }
  const paid = { id: 'b1', kind: 'settled', organization: 'banked', amount: 6000, currency: 'usd', note: 'Transfer 9' }
  assert.equal((await report(paid, { secret: 'a-secret-of-no-one' })).status, 400)
  assert.equal((await report(paid, { name: 'other' })).status, 400)
  assert.equal((await report(paid, { name: 'other', secret: 'none' })).status, 400)
  for (const [more, words] of [
    [{ id: 'a b' }, 'id: 1 to 64'],
    [{ kind: 'gift' }, 'kind: one of'],
    [{ amount: 1.5 }, 'amount: a whole number'],
    [{ amount: -1 }, 'amount: above 0'],
    [{ currency: 'eur' }, 'currency: usd'],
    [{ organization: 7 }, 'organization: its id'],
    [{ kind: 'refund', state: 'won' }, 'state: one of made, failed'],
    [{ kind: 'refund', state: 'made' }, 'payment: the id'],
    [{ kind: 'refund', state: 'made', payment: 'b1' }, 'object: the id of the refund'],
    [{ note: 5 }, 'note: text'],
    [{ time: 'now' }, 'time: Unix seconds'],
  ] as const) {
    const { status, body } = await report({ ...paid, ...more })
    assert.equal(status, 400)
    assert.ok(body.error.startsWith(words), body.error)
  }
  assert.equal((await report({ ...paid, organization: 'not-yet' })).status, 409)
  assert.deepEqual((await report(paid)).body, { received: true, counted: true, repeated: false })
  assert.equal((await report(paid)).body.repeated, true)
  await becomes('banked', 'tier2')
  await report({ id: 'b2', kind: 'refund', state: 'made', payment: 'b1', object: 'r1', amount: 1000, currency: 'usd' })
  await becomes('banked', 'tier2')
  await eventually(async () => (await paidFor(owner, 'banked')) === '$50.00')
})

test('a new organization that is prepaid: signed up, paid, served', async () => {
  const { db, config } = c.console.parts
  const person = await c.person('self@example.com')
  const self = (await personByEmail(db, 'self@example.com'))!
  const made = { id: 'self', name: 'Self', plan: 'free', owner: self }
  await openOrganization(db, { ...config, billing: 'prepaid' }, made, '', Date.now())
  const secret = await newKey(person, 'self')
  const ask = async () => {
    const body = { model: 'eb1-preview', max_tokens: 1, messages: [{ role: 'user', content: 'Hi' }] }
    const reply = await gateway.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
    await reply.text()
    return reply.status
  }
  await eventually(async () => (await ask()) === 429, ask)
  await send(stripe.paid('pi_self', 500, paidBy('self')))
  await eventually(async () => (await ask()) === 200, ask)
  assert.match((await person.get('/o/self/billing')).body, /Left of the balance/)
})

test('while Stripe is down the page says so, and nothing else is concerned', async () => {
  const owner = await c.person('prepaid@example.com')
  const { stripe: section } = c.console.parts.config
  const { api } = section!
  section!.api = 'http://127.0.0.1:1'
  try {
    const seen = await owner.get('/o/prepaid/billing/portal')
    assert.equal(seen.status, 502)
    assert.match(seen.body, /Stripe does not answer as it should/)
    assert.equal((await owner.get('/o/prepaid/billing')).status, 200)
  } finally {
    section!.api = api
  }
})

test('tiers that are opened look at everybody who has paid', async () => {
  const { db, config } = c.console.parts
  await c.organization('early', 'free')
  config.tiers.open = false
  await lookAgain(c.console.parts)
  await send(stripe.paid('pi_early', 500, paidBy('early')))
  await settled()
  assert.equal(await planOf('early'), 'free')
  assert.match(
    (await (await c.member('early', 'e@example.com', 'owner')).get('/o/early/billing')).body,
    /not open at the moment/,
  )
  config.tiers.open = true
  await lookAgain(c.console.parts)
  assert.ok((await db.selectFrom('billing_work').selectAll().where('organization', '=', 'early').execute()).length <= 1)
  await becomes('early', 'tier1')
  await settled()
  await lookAgain(c.console.parts)
  assert.deepEqual(await db.selectFrom('billing_work').selectAll().execute(), [])
})

test('rows of payments are never changed: the database refuses it', async () => {
  const { db } = c.console.parts
  await assert.rejects(db.updateTable('payment').set({ amount: 1 }).execute(), /added, and never changed/)
  await assert.rejects(db.deleteFrom('payment').execute(), /added, and never changed/)
})

test('use of the running gateway reaches Stripe, and a mail tells of a spend limit', async () => {
  await c.organization('metered', 'tier1')
  const owner = await c.member('metered', 'metered@example.com', 'owner')
  await asStaff().change('metered', () => ({ limits: { daily_spend_usd: '0.001' } }))
  const secret = await newKey(owner, 'metered')
  const ask = async () => {
    const body = { model: 'eb1-preview', max_tokens: 10, messages: [{ role: 'user', content: 'Hi' }] }
    const reply = await gateway.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
    await reply.text()
    return reply.status
  }
  await eventually(async () => (await ask()) === 200)
  await eventually(async () => (await ask()) === 429)
  const rows = (await gateway.ledger()).filter(row => row.organization === 'metered')
  const cost = rows.reduce((sum, row) => sum + row.cost, 0)
  assert.ok(cost > 0)

  shift = 2 * 3_600_000
  const customer = async () =>
    (await c.console.parts.db.selectFrom('customer').selectAll().where('organization', '=', 'metered').execute())[0]
      ?.customer
  await eventually(async () => {
    await meterUsage(c.console.parts)
    const known = await customer()
    return [...stripe.taken.values()].filter(event => event.customer === known).length === 2
  })
  const taken = [...stripe.taken.values()].filter(({ customer: of }) => of.startsWith('cus_'))
  const known = await customer()
  const value = (name: string) => taken.find(event => event.customer === known && event.event_name === name)!.value
  assert.equal(value('cost'), Math.round(cost / 1000))
  assert.equal(
    value('out'),
    rows.reduce((sum, row) => sum + row.output, 0),
  )

  await eventually(async () => {
    await readSpendNotices(c.console.parts)
    return c.mails.some(
      ({ to, subject }) => to === 'metered@example.com' && /100 % of the daily spend limit/.test(subject),
    )
  })
  // The table of tiers has the limits that the gateway has.
  const page = (await owner.get('/o/metered/billing')).body
  assert.match(page, /Tier 3[\s\S]*?\$1,000\.00[\s\S]*?240[\s\S]*?300,000[\s\S]*?120,000/)
})
