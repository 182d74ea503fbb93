/**
 * The first minutes and a week in the life of a customer, in a real Chromium. `npm run console` prints a link; whoever
 * opens it makes a key, reads a streamed reply, and invites a customer, who does the same. Then the week: an agent that
 * meets its limit, the next day, paid, tier 2, the key replaced, a member who comes and leaves, the account deleted.
 * The clocks of gateway and console go on by a day between the days, and every page is looked at on its width.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import OpenAI from 'openai'
import type { Page } from 'playwright-core'
import { launch, open, skip } from '../../test/admin/browser.ts'
import { ShiftedClock } from '../../test/e2e/harness.ts'
import { eventually } from '../../test/eventually.ts'
import { freePort } from '../../test/ports.ts'
import { sendNotices } from '../notices/outbox.ts'
import { readSpendNotices } from '../notices/spend.ts'
import { fitsItsWidth } from './axe.ts'
import { begin, firstLink, makeKey, signInByMail, streamOf } from './first-minutes.ts'
import { consoleYaml, gatewayForConsole, startConsole } from './kit.ts'
import { type Look, nameOf, STORIES } from './looks.ts'
import { runConsole } from './program.ts'
import { deliver, StripeStandIn, signatureOf } from './stripe-stand-in.ts'

const DAY = 86_400_000
/** What a console does by itself, another one does not before that. */
const AFTER_LEASES_MS = 600_000
const ADA = 'ada@example.com'
const BEN = 'ben@example.com'

for (const look of STORIES)
  test(`from the printed link to the end of a week: ${nameOf(look)}`, { skip }, t => week(t, look))

async function week(t: TestContext, look: Look): Promise<void> {
  const clock = new ShiftedClock()
  const gateway = await gatewayForConsole({ clock })
  t.after(() => gateway.close())
  const stripe = await StripeStandIn.start()
  t.after(() => stripe.close())
  const browser = await launch()
  t.after(() => browser.close())
  const folder = mkdtempSync(join(tmpdir(), 'sluice-week-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  // Tier 1 was given, and not paid for: it stays until what counts is the basis of another one.
  const yaml = `first_organization: { id: maple, name: Maple, plan: beta }\nplan: tier1\ntiers: on\n${stripe.yaml()}`
  const database = `sqlite:${join(folder, 'console.db')}`
  const fits = (page: Page, what: string) => fitsItsWidth(page, what)

  // The first minutes: what an operator types, and what it prints.
  const file = join(folder, 'console.yaml')
  writeFileSync(file, consoleYaml(gateway, { url, database, yaml }))
  const program = runConsole('--config', file)
  t.after(() => program.child.kill('SIGKILL'))
  await eventually(() => program.said().includes(`console on ${url}`), program.said, 300_000)
  const operator = await open(browser, firstLink(program.said()), look)
  await begin(operator.page, 'olga@example.com', 'Olga')
  await operator.page.getByRole('heading', { name: 'Maple' }).waitFor()
  await streamOf((await makeKey(operator.page, 'my laptop')).example)
  await operator.page.getByRole('link', { name: 'Go to the keys' }).click()
  await operator.page.getByRole('link', { name: 'my laptop' }).waitFor()
  await operator.page.goto(`${url}/staff/people`)
  await operator.page.getByLabel('Address', { exact: true }).fill(ADA)
  await operator.page.getByRole('button', { name: 'Invite', exact: true }).click()
  await operator.page.getByText('The invitation is on its way.').waitFor()
  assert.deepEqual(operator.complaints, [])
  await operator.close()

  // The customer's: invited, an organization, a key, a streamed reply. Without a mail server, mails are printed.
  const printed = (subject: string) => async () => {
    const title = `mail to ${ADA}: ${subject}`
    await eventually(() => program.said().includes(title), program.said)
    return program.said().slice(program.said().indexOf(title))
  }
  const ada = await open(browser, /http\S+/.exec(await printed('You are invited to')())![0], look)
  const { page } = ada
  await signInByMail(page, ADA, printed('Sign in to'))
  await page.getByLabel('Its name').fill('Birch')
  await page.getByRole('button', { name: 'Open it' }).click()
  await page.getByText('Your organization is ready.').waitFor()
  await fits(page, 'the overview')
  const home = new URL(page.url()).pathname
  const id = home.split('/').at(-1)!
  const { secret: first, example } = await makeKey(page, 'agent')
  await streamOf(example)
  // A request that names no length holds more than this while it runs, so the limit comes after the first reply.
  await page.getByRole('link', { name: 'Go to the keys' }).click()
  await page.getByRole('link', { name: 'agent' }).click()
  await page.getByText('Models and limits', { exact: true }).click()
  await page.getByLabel('Spend a day, USD').fill('0.01')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByText('The key is changed.').waitFor()

  // The week needs a console whose clock a test moves. It takes over, and Ada stays signed in.
  program.child.kill('SIGTERM')
  assert.equal(await program.ended, 0, program.said())
  clock.shift += AFTER_LEASES_MS
  const c = await startConsole(gateway, { yaml, database, port, now: () => clock.now() })
  t.after(() => c.close())

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
  const askAndSignIn = (page: Page, email: string) => {
    const from = c.mails.length
    return signInByMail(page, email, async () => (await mailTo(email, /^Sign in to/, from)).text)
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

  // Monday. Its agent meets the limit; on the next day it works again, and meets it again. Each day has its mail.
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
