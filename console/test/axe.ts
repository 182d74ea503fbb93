/** What a page is held to in a browser. */
import assert from 'node:assert/strict'
import axe from 'axe-core'
import type { Page } from 'playwright-core'

/**
 * Lets a page have none of the console's scripts from now on. It is for looks without scripts: axe is one itself, and
 * does not end where there are none at all.
 */
export const withholdScripts = (page: Page): Promise<unknown> => page.route('**/assets/*.mjs*', route => route.abort())

/** What axe finds, by rule and place. */
export async function faultsOf(page: Page): Promise<string[]> {
  await page.evaluate(axe.source)
  const { violations } = (await page.evaluate('axe.run(document, { resultTypes: ["violations"] })')) as any
  return violations.flatMap(({ id, nodes }: any) =>
    nodes.map(({ target, failureSummary }: any) => `${id} ${target}: ${failureSummary}`),
  )
}

export async function fitsItsWidth(page: Page, what: string): Promise<void> {
  const [wide, seen] = (await page.evaluate('[document.documentElement.scrollWidth, innerWidth]')) as [number, number]
  assert.ok(wide <= seen, `${what} is ${wide} px wide on ${seen}`)
}

const TOUCHING = `[...document.querySelectorAll('main > * + *, form > details:not([open]) + *')].flatMap(e => {
  const before = e.previousElementSibling
  if (!e.checkVisibility() || !before.checkVisibility()) return []
  const [below, above] = [e, before].map(one => one.getBoundingClientRect())
  return below.top >= above.bottom && below.top - above.bottom < 8 ? [e.outerHTML.slice(0, 80)] : []
})`

/** What stands one after the other on a page, or after what a form can open, has room between. */
export async function nothingTouches(page: Page, what: string): Promise<void> {
  assert.deepEqual(await page.evaluate(TOUCHING), [], what)
}
