/**
 * A week in the life of a customer, in a real Chromium: invited, a key, an agent that meets its limit, the next day,
 * paid, tier 2, the key replaced, a member who comes and leaves, the account deleted. The clocks of gateway and console
 * go on by a day between the days, and every page is looked at on both widths.
 */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import OpenAI from 'openai'
import type { BrowserContextOptions, Page } from 'playwright-core'
import { launch, open, skip } from '../../test/admin/browser.ts'
import { ShiftedClock } from '../../test/e2e/harness.ts'
import { eventually } from '../../test/eventually.ts'
import { sendNotices } from '../notices/outbox.ts'
import { readSpendNotices } from '../notices/spend.ts'
import { fitsItsWidth } from './axe.ts'
import { gatewayForConsole, startConsole } from './kit.ts'
import { deliver, StripeStandIn, signatureOf } from './stripe-stand-in.ts'

const DAY = 86_400_000
const ADA = 'ada@example.com'
const BEN = 'ben@example.com'

for (const [how, look] of [
  ['light, with scripts', { colorScheme: 'light' }],
  ['dark, without scripts', { colorScheme: 'dark', javaScriptEnabled: false }],
] as const)
  test(`a week in the life of a customer: ${how}`, { skip }, t => week(t, look))

async function week(t: TestContext, look: BrowserContextOptions): Promise<void> {
  const clock = new ShiftedClock()
  const gateway = await gatewayForConsole({ clock })
  t.after(() => gateway.close())
  const stripe = await StripeStandIn.start()
  t.after(() => stripe.close())
  const c = await startConsole(gateway, {
    now: () => clock.now(),
    // Tier 1 was given, and not paid for: it stays until what counts is the basis of another one.
    yaml: `plan: tier1\ntiers: on\n${stripe.yaml()}`,
  })
  t.after(() => c.close())
  const browser = await launch()
  t.after(() => browser.close())
  const staff = await c.person('staff@example.com', { staff: true })

  /** Waits for a mail. @returns the latest of this subject */
  const mailTo = async (email: string, subject: RegExp, from = 0) => {
    const found = () => c.mails.slice(from).findLast(mail => mail.to === email && subject.test(mail.subject))
    await eventually(
      async () => {
        await readSpendNotices(c.console.parts)
        await sendNotices(c.console.parts)
        return found() !== undefined
      },
      () => c.mails.slice(from).map(({ to, subject }) => `${to}: ${subject}`),
    )
    return found()!
  }
  /** A browser of somebody who signs in by the link of a mail. */
  const signIn = async (email: string) => {
    const opened = await open(browser, `${c.url}/sign-in`, look)
    await askAndSignIn(opened.page, email)
    return opened
  }
  const askAndSignIn = async (page: Page, email: string) => {
    const from = c.mails.length
    await page.getByLabel('Your address').fill(email)
    await page.getByRole('button', { name: 'Send me a link' }).click()
    await page.getByRole('heading', { name: 'Look into your mail' }).waitFor()
    const { text } = await mailTo(email, /^Sign in to/, from)
    await page.goto(/http\S+/.exec(text)![0])
    await page.getByRole('button', { name: 'Sign in', exact: true }).click()
  }
  const fits = async (page: Page, what: string) => {
    for (const width of [390, 1440]) {
      await page.setViewportSize({ width, height: 900 })
      await fitsItsWidth(page, what)
    }
  }
  /** An agent that works on until it is refused. @returns how many replies it got, and the refusal */
  const work = async (secret: string) => {
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: secret, maxRetries: 0 })
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: '[[sim: tokens 90]] Go on.' }]
    for (let replies = 0; replies < 50; replies++) {
      try {
        const body = { model: 'eb1-preview', max_completion_tokens: 100, messages }
        const { choices } = await client.chat.completions.create(body)
        messages.push(choices[0]!.message, { role: 'user', content: '[[sim: tokens 90]] Go on.' })
      } catch (error) {
        return { replies, refusal: error as InstanceType<typeof OpenAI.APIError> }
      }
    }
    assert.fail('the limit has refused nothing')
  }
  const worksNow = async (secret: string) =>
    (await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${secret}` } })).status
  const secretOn = async (page: Page) => (await page.locator('#secret').textContent())!

  // Monday: invited, an organization, a key.
  await staff.send('/staff/people', '/staff/invite', { email: ADA })
  await mailTo(ADA, /^You are invited to/)
  const ada = await signIn(ADA)
  const { page } = ada
  await page.getByLabel('Its name').fill('Birch')
  await page.getByRole('button', { name: 'Open it' }).click()
  await page.getByText('Your organization is ready.').waitFor()
  await fits(page, 'the overview')
  const home = new URL(page.url()).pathname
  const id = home.split('/').at(-1)!
  await page.getByRole('link', { name: 'Make a key' }).first().click()
  await page.getByLabel('Label').fill('agent')
  await page.getByText('Models and limits').click()
  await page.getByLabel('Spend a day, USD').fill('0.01')
  await page.getByRole('button', { name: 'Make the key' }).click()
  await page.getByRole('heading', { name: 'Your new key' }).waitFor()
  await fits(page, 'the page of the secret')
  const first = await secretOn(page)
  await eventually(async () => (await worksNow(first)) === 200)

  // Its agent meets the limit; on the next day it works again, and meets it again. Each day has its mail.
  for (const day of ['Monday', 'Tuesday']) {
    const from = c.mails.length
    const { replies, refusal } = await work(first)
    assert.ok(replies > 3, `${day}: ${replies} replies`)
    assert.equal(refusal.status, 429, day)
    const { text } = await mailTo(ADA, /100 % of the daily spend limit/, from)
    assert.ok(text.includes(`for the day ${new Date(clock.now()).toISOString().slice(0, 10)}`), text)
    await page.goto(`${c.url}${home}/keys`)
    await page.getByRole('link', { name: 'agent' }).click()
    await page.getByRole('heading', { name: 'Its limits now' }).waitFor()
    await fits(page, 'the page of a key at its limit')
    await page.goto(`${c.url}${home}/requests`)
    await page.getByRole('cell', { name: 'eb1-preview' }).first().waitFor()
    await fits(page, 'requests')
    clock.shift += DAY
  }

  // Wednesday: fifty dollars arrive.
  const at = Math.floor(clock.now() / 1000)
  const paid = stripe.paid('pi_week', 5000, { metadata: { organization: id } })
  const answer = await deliver(c.url, { ...paid, created: at }, body => signatureOf(body, { at }))
  assert.equal(answer.status, 200, JSON.stringify(answer.body))
  await mailTo(ADA, /is at Tier 2/)
  await page.goto(`${c.url}${home}/billing`)
  await page.getByText('You are at Tier 2').waitFor()
  await fits(page, 'billing')

  // Thursday: the key is replaced at once.
  clock.shift += DAY
  await page.goto(`${c.url}${home}/keys`)
  await page.getByRole('link', { name: 'agent' }).click()
  await page.getByLabel('The old key ends').selectOption('0')
  await page.getByRole('button', { name: 'Make the new key' }).click()
  await page.getByText('The old one has ended.').waitFor()
  const second = await secretOn(page)
  await eventually(async () => (await worksNow(first)) === 401 && (await worksNow(second)) === 200)

  // Friday: a colleague comes, and leaves.
  clock.shift += DAY
  await page.goto(`${c.url}${home}/members`)
  await page.getByLabel('Address', { exact: true }).fill(BEN)
  await page.getByLabel('Role', { exact: true }).selectOption('developer')
  await page.getByRole('button', { name: 'Invite' }).click()
  await page.getByText('The invitation is on its way.').waitFor()
  await fits(page, 'members')
  const ben = await signIn(BEN)
  await ben.page.getByRole('button', { name: 'Accept' }).click()
  await ben.page.getByRole('heading', { name: 'Birch' }).waitFor()
  await page.reload()
  await page.getByText(BEN).first().waitFor()
  await ben.page.goto(`${c.url}${home}/members`)
  await ben.page.getByText('Leave the organization').click()
  await ben.page.getByRole('button', { name: 'Leave', exact: true }).click()
  await eventually(async () => (await ben.page.goto(`${c.url}${home}`))!.status() === 404)
  assert.deepEqual(ben.complaints, [])
  await ben.close()

  // Sunday: the organization, then the account. Who signed in on Monday has to sign in anew.
  clock.shift += 2 * DAY
  await page.goto(`${c.url}/account`)
  await page.getByRole('button', { name: 'Sign out' }).click()
  await askAndSignIn(page, ADA)
  const deleteAccount = async () => {
    await page.goto(`${c.url}/account`)
    await page.getByText('Delete my account').click()
    await page.getByRole('button', { name: 'Delete it' }).click()
  }
  await deleteAccount()
  await page.getByText('You are the last owner of Birch').waitFor()
  await page.goto(`${c.url}${home}/members`)
  await page.locator('summary', { hasText: 'Delete the organization' }).click()
  await page.getByRole('button', { name: 'Delete the organization' }).click()
  await eventually(async () => (await worksNow(second)) === 401)
  await deleteAccount()
  await page.getByRole('heading', { name: 'Sign in' }).waitFor()
  const { db } = c.console.parts
  assert.equal(await db.selectFrom('person').selectAll().where('email', '=', ADA).executeTakeFirst(), undefined)
  assert.deepEqual(ada.complaints, [])
  await ada.close()
}
