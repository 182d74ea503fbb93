/** axe-core on the live page and the usage page, with something of everything on them. */
import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import axe from 'axe-core'
import type { Browser, Page } from 'playwright-core'
import { startGateway, type TestGateway } from '../e2e/harness.ts'
import { launch, open, skip } from './browser.ts'
import { LIMITS, request } from './load.ts'

let g: TestGateway
let browser: Browser
before(async () => {
  if (skip) return
  g = await startGateway({ organization: LIMITS })
  browser = await launch()
  for (let i = 0; i < 10; i++) await request(g, i)
  await writeFile(g.file, (await readFile(g.file, 'utf8')).replace('price_book: test-1', 'price_bok: test-1'))
  await g.gateway.reload()
})
after(async () => {
  await browser?.close()
  await g?.close()
})

/** Has axe look at a page, wide and on a phone. */
async function clean(page: Page, what: string): Promise<void> {
  await page.evaluate(axe.source)
  for (const width of [1440, 390]) {
    await page.setViewportSize({ width, height: 844 })
    const { violations, passes } = (await page.evaluate('axe.run(document)')) as axe.AxeResults
    const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => node.html).slice(0, 3)}`)
    assert.deepEqual(found, [], `${what} at ${width}`)
    assert.ok(
      passes.some(({ id }) => id === 'color-contrast'),
      'contrast was looked at',
    )
  }
}

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing, contrast included: ${colorScheme}, wide and phone, with an alert and a timeline`, {
    skip,
  }, async () => {
    const { page, complaints, close } = await open(browser, g.gateway.adminAddress!, { colorScheme })
    await page.locator('#alerts .alert.bad').first().waitFor()
    await page.locator('#exchanges-table tbody tr').nth(2).click()
    await clean(page, 'the live page')
    assert.deepEqual(complaints, [])
    await close()
  })

  test(`axe finds nothing on the usage page: ${colorScheme}, wide and phone, with a request, a refusal and an open row`, {
    skip,
  }, async () => {
    const { page, complaints, close } = await open(browser, `${g.gateway.adminAddress}/dashboard/usage.html`, {
      colorScheme,
    })
    await page.locator('#chart svg').waitFor()
    await clean(page, 'the whole service')
    const row = (await g.ledger()).at(-1)!
    await page.evaluate(`location.hash = '#organization=acme&by=key&range=12m&request=${row.request_id}'`)
    await page.locator('#request .request').waitFor()
    await page.locator('#past tbody .open').nth(1).click()
    await page.locator('#past .detail .timeline').waitFor()
    await clean(page, 'an organization')
    await page.evaluate("location.hash = '#organization=nobody'")
    await page.locator('#notice.bad').waitFor()
    await page.fill('#find', 'abc')
    await page.press('#find', 'Enter')
    await clean(page, 'failures')
    assert.deepEqual(complaints, [])
    await close()
  })
}
