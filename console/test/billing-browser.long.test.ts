/**
 * Billing in a real Chromium: every part of its pages, on its width and in its colours, for axe; paying, and what staff
 * does, by keyboard.
 */
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import type { Browser } from 'playwright-core'
import { launch, open, skip } from '../../test/admin/browser.ts'
import type { TestGateway } from '../../test/e2e/harness.ts'
import { eventually } from '../../test/eventually.ts'
import { setHold } from '../billing/moves.ts'
import { recordPayment } from '../billing/payments.ts'
import type { MeteredTable, PaymentTable } from '../db/tables.ts'
import { StaffGateway } from '../staff/gateway.ts'
import { faultsOf, fitsItsWidth, withholdScripts } from './axe.ts'
import { gatewayForConsole, startConsole, type TestConsole, type Visitor } from './kit.ts'
import { LOOKS, nameOf, STORIES } from './looks.ts'
import { StripeStandIn } from './stripe-stand-in.ts'

/** Where `SLUICE_SCREENSHOTS=1` writes the pictures of docs/console-billing.md. */
const SCREENSHOTS = process.env['SLUICE_SCREENSHOTS'] ? join(import.meta.dirname, '../../docs/screenshots') : undefined

let gateway: TestGateway
let stripe: StripeStandIn
let c: TestConsole
let browser: Browser
let person: Visitor & { id: string }
before(async () => {
  if (skip) return
  gateway = await gatewayForConsole()
  stripe = await StripeStandIn.start()
  c = await startConsole(gateway, { yaml: `tiers: on\n${stripe.yaml(', checkout: on')}` })
  browser = await launch()
  if (SCREENSHOTS) mkdirSync(SCREENSHOTS, { recursive: true })
  person = await c.person('ada@example.com', { staff: true })
  await fill()
})
after(async () => {
  await browser?.close()
  await c?.close()
  await stripe?.close()
  await gateway?.close()
})

/** Something in every part of the pages. */
async function fill(): Promise<void> {
  const { db, now } = c.console.parts
  await c.organization('held', 'tier1')
  await c.member('held', 'ada@example.com', 'owner')
  await addPrepaid('oak', 'Oak')
  await setHold(db, { organization: 'held', note: 'Several cards in one hour', person: person.id }, now())
  const row = (id: string, more: Partial<PaymentTable>): PaymentTable => ({
    ...{
      id,
      provider: 'stripe',
      kind: 'settled',
      state: '',
      organization: 'oak',
      customer: null,
      payment: id,
      object: id,
    },
    ...{ amount: 2500, currency: 'usd', time: now(), received: now(), person: null, note: '' },
    ...more,
  })
  await recordPayment(db, row('pi_3PqX1aB2', {}))
  await recordPayment(
    db,
    row('re_3PqX9', { kind: 'refund', state: 'made', organization: null, payment: 'pi_3PqX1aB2', amount: 500 }),
  )
  await recordPayment(
    db,
    row('dp_1PqX7', { kind: 'dispute', state: 'open', organization: null, payment: 'pi_3PqX1aB2' }),
  )
  await recordPayment(db, row('pi_3PqEUR', { currency: 'eur' }))
  await recordPayment(
    db,
    row('hand_1', { provider: 'hand', kind: 'adjustment', payment: null, amount: -120, note: 'Wrong transfer' }),
  )
  await recordPayment(db, row('pi_nobody', { organization: null, customer: 'cus_Q9nobody' }))
  for (const one of [review('large'), { ...review('larger'), state: 'refused' as const }])
    await db
      .insertInto('review')
      .values({ ...one, created: now() })
      .execute()
  await db
    .insertInto('billing_work')
    .values({
      organization: 'later',
      stamp: 'x',
      due: now() + 1e9,
      claimed: 0,
      attempts: 3,
      fault: 'the gateway does not answer',
    })
    .execute()
  const metered: Omit<MeteredTable, 'id' | 'tried' | 'fault' | 'dropped'> = {
    ...{ organization: 'oak', customer: 'cus_1', model: 'eb1-preview', hour: now() - 1e8, event_name: 'cost' },
    ...{ amount: 5, total: 5, created: 0, due: now() + 1e9, sent: null },
  }
  await db
    .insertInto('metered')
    .values([
      { id: 'sluice_1', ...metered, tried: now() - 2e8, fault: 'timeout', dropped: null },
      { id: 'sluice_2', ...metered, tried: null, fault: 'No active meter found', dropped: null },
      { id: 'sluice_3', ...metered, tried: null, fault: 'No such customer: cus_1', dropped: now() },
    ])
    .execute()
}

/** An organization with a balance, whose owner Ada is. */
async function addPrepaid(id: string, name = id): Promise<void> {
  const limits = { unbilled_usd_per_day: '5' }
  await new StaffGateway(c.config, 'test').create(id, { plan: 'tier1', billing: 'prepaid', limits, name })
  const row = { id, name, created: 0, creator: null, deleted: null }
  await c.console.parts.db.insertInto('organization').values(row).execute()
  await c.member(id, 'ada@example.com', 'owner')
}

const review = (organization: string) => ({
  ...{ id: `${organization}:0`, organization, plan: 'tier4', state: 'open' as const, decided: null, person: null },
})

async function pageAt(path: string, options: Parameters<typeof open>[2]) {
  const opened = await open(browser, `${c.url}/healthz`, options)
  const cookie = { name: 'sluice-session', value: person.cookies.get('sluice-session')!, url: c.url }
  await opened.page.context().addCookies([cookie])
  await opened.page.goto(c.url + path)
  return opened
}

for (const look of STORIES)
  test(`${nameOf(look)}: axe finds nothing, and nothing is wider than the screen`, { skip }, async () => {
    const { page, complaints, close } = await pageAt('/o/oak/billing', { ...look, javaScriptEnabled: true })
    if (!look.javaScriptEnabled) await withholdScripts(page)
    try {
      for (const [name, path] of [
        ['billing', '/o/oak/billing'],
        ['billing-held', '/o/held/billing'],
        ['staff-billing', '/staff/billing'],
        ['staff-payments', '/staff/organizations/oak/payments'],
      ] as const) {
        await page.goto(c.url + path)
        assert.deepEqual(await faultsOf(page), [], path)
        await fitsItsWidth(page, path)
        if (SCREENSHOTS && ['billing', 'staff-billing'].includes(name) && look === LOOKS[0])
          await page.screenshot({ path: join(SCREENSHOTS, `console-${name}-1440.png`), fullPage: true })
      }
      assert.deepEqual(complaints, [])
    } finally {
      await close()
    }
  })

for (const [i, look] of STORIES.entries())
  test(`${nameOf(look)}: a customer pays, and staff grants a tier and writes a payment down, by keyboard`, {
    skip,
  }, async () => {
    const { db, now } = c.console.parts
    const [payer, large] = [`payer-${i}`, `large-${i}`]
    await addPrepaid(payer)
    await db
      .insertInto('review')
      .values({ ...review(large), created: now() })
      .execute()
    const { page, complaints, close } = await pageAt(`/o/${payer}/billing`, look)
    try {
      await page.getByLabel('Amount, USD').fill('30')
      await page.keyboard.press('Enter')
      const link = page.getByRole('link', { name: 'Go to Stripe' })
      await link.waitFor()
      assert.match((await link.getAttribute('href'))!, /^https:\/\/checkout\.example\.com\//)
      await page.goto(`${c.url}/staff/billing`)
      await page.getByRole('button', { name: `Grant Tier 4 for ${large}`, exact: true }).press('Enter')
      await page.getByText('The tier is granted.').waitFor()
      await page.getByLabel('Organization', { exact: true }).last().fill(payer)
      await page.getByLabel('Amount', { exact: true }).fill('100.50')
      await page.getByLabel('Reference', { exact: true }).fill('Transfer 4711')
      await page.keyboard.press('Enter')
      await page.getByText('The payment is added.').waitFor()
      await page.goto(`${c.url}/o/${payer}/billing`)
      await page.getByText('Transfer 4711').waitFor()
      await eventually(async () => {
        await page.goto(`${c.url}/o/${payer}/billing`)
        return /You are at <strong>Tier 3/.test(await page.content())
      })
      assert.deepEqual(complaints, [])
    } finally {
      await close()
    }
  })
