/** What people do in the first minutes, in a browser: the printed link, a sign-in by mail, a key, a streamed reply. */
import assert from 'node:assert/strict'
import type { Page } from 'playwright-core'
import { fitsItsWidth } from './axe.ts'

/** The link to become the first member of staff, of what a console has printed. */
export const firstLink = (said: string): string => /http\S+\/first\/\S+/.exec(said)![0]

/** On the page of the first link. */
export async function begin(page: Page, email: string, name: string): Promise<void> {
  await page.getByLabel('Your e-mail address').fill(email)
  await page.getByLabel('Your name').fill(name)
  await page.getByRole('button', { name: 'Begin' }).click()
}

/** On the page of the sign-in. @param mailed waits for the mail with the link. @returns when the link is used */
export async function signInByMail(page: Page, email: string, mailed: () => Promise<string>): Promise<void> {
  await page.getByLabel('Your e-mail address').fill(email)
  await page.getByRole('button', { name: 'Send me a link' }).click()
  await page.getByRole('heading', { name: 'Look into the terminal' }).waitFor()
  await page.goto(/http\S+/.exec(await mailed())![0])
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
}

/** On the overview of an organization. @returns the key's secret, and the request that the page shows */
export async function makeKey(page: Page, label: string) {
  await page.getByRole('link', { name: 'Make a key' }).first().click()
  await page.getByLabel('Label').fill(label)
  await page.getByRole('button', { name: 'Make the key' }).click()
  await page.getByRole('heading', { name: 'Your new key' }).waitFor()
  await fitsItsWidth(page, 'the page of the secret')
  const [secret, example] = await Promise.all(
    ['#secret', '#example'].map(async place => (await page.locator(place).textContent())!),
  )
  return { secret: secret!, example: example! }
}

/** Sends the request that the page of a key shows, and reads the reply to its end. */
export async function streamOf(example: string): Promise<void> {
  const [, url] = /curl -N (\S+)/.exec(example)!
  const headers = Object.fromEntries(
    [...example.matchAll(/-H '([^:]+): ([^']+)'/g)].map(([, name, value]) => [name, value]),
  )
  const [, body] = /-d '(.*)'$/s.exec(example.trim())!
  const reply = await fetch(url!, { method: 'POST', headers: headers as Record<string, string>, body: body! })
  assert.equal(reply.status, 200)
  assert.match(reply.headers.get('content-type')!, /text\/event-stream/)
  assert.match(await reply.text(), /data: \[DONE\]/)
}
