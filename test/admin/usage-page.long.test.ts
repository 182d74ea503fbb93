/** The usage page in a real Chromium, on a real gateway whose ledger has more than a year. */
import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import axe from 'axe-core'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import type { LedgerOutcome } from '../../core/ports/store.ts'
import { requestId } from '../../core/tools/ids.ts'
import { defaultYaml, KEY, sha256, startGateway, type TestGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { DAY, intent, outcome } from '../stores/kit.ts'
import { launch, type Opened, open, skip } from './browser.ts'
import { LIMITS, request } from './load.ts'

const SCREENSHOTS = join(import.meta.dirname, '../../docs/screenshots')
const READ = 'adm-read-0001'
const OPERATE = 'adm-operate-0001'
const BOUND = 'adm-bound-0001'
const TOKENS = `tokens: [
  { name: ci, role: read, sha256: "${sha256(READ)}" },
  { name: ops, role: operate, sha256: "${sha256(OPERATE)}" },
  { name: keys, role: operate, actions: [keys], sha256: "${sha256(BOUND)}" }]`
const MODELS = ['eb1-preview', 'eb1-efficient-preview', 'eb1-fast-preview', 'eb1-frontier-preview', 'eb1-delta-preview']
/** Two more than have colours of their own. */
const CUSTOMERS = ['acme', 'other', 'shop', 'bank', 'lab', 'post', 'farm']

let g: TestGateway
let browser: Browser
const now = Date.now()
const dayOf = (time: number) => new Date(time).toISOString().slice(0, 10)

before(async () => {
  if (skip) return
  g = await startGateway({
    yaml: sim =>
      defaultYaml(sim, { organization: LIMITS }).replace(
        'admin: 127.0.0.1:0',
        `admin: { listen: 127.0.0.1:0, ${TOKENS} }`,
      ),
  })
  browser = await launch()
  for (const id of CUSTOMERS.slice(2)) await api('organizations', { id, plan: id === 'shop' ? 'tier1' : 'tier2' })
  // A year and a month, each day but one a week: what nobody used is not drawn.
  for (let back = 1; back < 400; back++)
    if (back % 7 !== 3)
      for (const [i, organization] of CUSTOMERS.entries())
        await book(now - back * DAY, {
          ...{ organization, key_id: i === 0 ? '=cmd()' : 'key_1', model: MODELS[(back + i) % MODELS.length]! },
          cost: Math.round(4e8 * (CUSTOMERS.length - i) * (1.5 + Math.sin(back / 9 + i))),
        })
  for (let i = 0; i < 70; i++) await request(g, i)
  await g.ledger()
})
after(async () => {
  await browser?.close()
  await g?.close()
})

async function api(where: string, body?: unknown): Promise<any> {
  const answer = await fetch(`${g.gateway.adminAddress}/api/v1/${where}`, {
    headers: { authorization: `Bearer ${OPERATE}`, 'content-type': 'application/json' },
    ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
  })
  const json = (await answer.json()) as any
  assert.ok(answer.ok, JSON.stringify(json))
  return json
}

/** A row of the ledger at any time, as if there had been a request. */
async function book(time: number, { cost, ...more }: Parameters<typeof intent>[1] & { cost: number }, ended = {}) {
  const id = requestId()
  await g.gateway.store.ledger.intent(intent(id, { time, ...more }))
  const { usage } = outcome('')
  g.gateway.store.ledger.outcome(
    outcome(id, {
      ...{ cost, provider_model: 'sim-large', provider_cost: Math.round(cost * 0.6) },
      ...{ usage: { ...usage, input: Math.round(cost / 1e5), output: Math.round(cost / 1e6) }, ...ended },
    } as Partial<LedgerOutcome>),
  )
  return id
}

/** The page with a token, at what its address asks for. */
async function openPage(hash = '', options: BrowserContextOptions = {}, token = READ): Promise<Opened> {
  const opened = await open(browser, `${g.gateway.adminAddress}/dashboard/usage.html${hash}`, options)
  await opened.page.fill('#token', token)
  await opened.page.keyboard.press('Enter')
  await opened.page.locator('#main').waitFor()
  return opened
}
const drawn = (page: Page) => page.locator('#usage-note', { hasText: /Days .*of UTC/ }).waitFor()

test('screenshots', { skip }, async () => {
  for (const colorScheme of ['light', 'dark'] as const)
    for (const width of [1440, 390]) {
      const { page, complaints, close } = await openPage('', { colorScheme, viewport: { width, height: 900 } })
      const shoot = (name: string) =>
        page.screenshot({ path: `/tmp/shots/${name}-${colorScheme}-${width}.png`, fullPage: true })
      await drawn(page)
      await shoot('all')
      await page.evaluate("location.hash = '#range=12m&by=model&organization=acme'")
      await page.locator('#past tbody tr').nth(40).waitFor()
      await drawn(page)
      await page.locator('#past tbody tr .open').nth(3).click()
      await page.locator('#past .detail .timeline').waitFor()
      await shoot('one')
      const { exchanges } = await api('organizations/acme/exchanges')
      await page.evaluate(`location.hash = '#request=${exchanges[0].request_id}'`)
      await page.locator('#request .request').waitFor()
      await shoot('request')
      console.log(
        colorScheme,
        width,
        complaints,
        await page.evaluate('[document.documentElement.scrollWidth, innerWidth]'),
      )
      await close()
    }
})
