/** axe-core on the dashboard, with something of everything on it. */
import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import axe from 'axe-core'
import type { Browser } from 'playwright-core'
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

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing, contrast included: ${colorScheme}, wide and phone, with an alert and a timeline`, {
    skip,
  }, async () => {
    const { page, complaints, close } = await open(browser, g.gateway.adminAddress!, { colorScheme })
    await page.locator('#alerts .alert.bad').first().waitFor()
    await page.locator('#exchanges-table tbody tr').nth(2).click()
    for (const width of [1440, 390]) {
      await page.setViewportSize({ width, height: 844 })
      await page.evaluate(axe.source)
      const { violations, passes } = (await page.evaluate('axe.run(document)')) as axe.AxeResults
      assert.deepEqual(
        violations.map(
          ({ id, nodes }) =>
            `${id}: ${nodes
              .map(node => node.html)
              .slice(0, 3)
              .join(' ')}`,
        ),
        [],
      )
      assert.ok(
        passes.some(({ id }) => id === 'color-contrast'),
        'contrast was looked at',
      )
    }
    assert.deepEqual(complaints, [])
    await close()
  })
}
