/** The usage page in a real Chromium, on a real gateway whose ledger has more than a year. */
import assert from 'node:assert/strict'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { StoreUnavailable } from '../../core/canon/errors.ts'
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
      defaultYaml(sim, { organization: LIMITS })
        .replaceAll(/model: (sim-\w+) \}/g, 'model: $1, cost: { input: 0.60, output: 5.00 } }')
        .replace('admin: 127.0.0.1:0', `admin: { listen: 127.0.0.1:0, ${TOKENS} }`),
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
  // What its provider charges for it is not known.
  const unknown = { outcome: 'upstream_error', code: 'upstream_timeout', provider_cost: undefined }
  await book(now - 2 * DAY, { organization: 'acme', key_id: 'key_test', cost: 0 }, unknown)
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

const rows = (page: Page) => page.locator('[aria-label="Table of past requests"] > table > tbody > tr')
const sums = (page: Page) => page.locator('[aria-label="Table of sums"] tbody tr')
const cells = async (page: Page, row: number) =>
  (await sums(page).nth(row).locator('th, td').allTextContents()).join('|')
const label = async (page: Page) => (await page.locator('#chart svg').getAttribute('aria-label')) ?? ''
/** The left edges of the bars, of which there may be several parts. */
const bars = async (page: Page) =>
  new Set(await page.locator('#chart rect').evaluateAll(all => all.map(one => one.getAttribute('x')))).size
const goTo = async (page: Page, hash: string) => {
  await page.evaluate(`location.hash = ${JSON.stringify(hash)}`)
  await drawn(page)
}
const hash = (page: Page) => new URL(page.url()).hash
const saved = async (page: Page, button: string) => {
  const [file] = await Promise.all([page.waitForEvent('download'), page.click(button)])
  return { name: file.suggestedFilename(), lines: (await readFile(await file.path(), 'utf8')).split('\r\n') }
}
/** What the admin API says of the page's usual thirty days. */
const month = () => new URLSearchParams({ since: dayOf(now - 29 * DAY), until: dayOf(now + DAY) })

test('thirty days of the whole service: bars where there was use, the five largest and others, sums with a total', {
  skip,
}, async () => {
  const { page, complaints, close } = await openPage()
  await drawn(page)
  const { usage } = await api(`usage?${month()}&group_by=day`)
  assert.ok(usage.length < 30, 'on some days nobody was there')
  assert.equal(await bars(page), usage.length)
  const legend = (await page.locator('#chart li').allTextContents()).map(text => text.split(' $')[0])
  assert.deepEqual([legend.length, legend[0], legend.at(-1)], [6, 'acme', '2 more'])
  assert.match(
    await label(page),
    /^Cost by day from \d{4}-\d\d-\d\d to \d{4}-\d\d-\d\d: \$\d+, at most .* a day; acme \$/,
  )
  assert.equal(await sums(page).count(), CUSTOMERS.length + 1)
  const requests = usage.reduce((all: number, sum: any) => all + sum.requests, 0)
  assert.match(await cells(page, CUSTOMERS.length), new RegExp(`^All\\|${requests}\\|.*\\|≥ \\$\\d+\\|≤ \\$\\d+$`))
  assert.match(await cells(page, 1), /^other\|.*\|\$[\d.]+\|\$[\d.]+$/, 'of whom the provider answered all')
  const costs = (await sums(page).locator('td:nth-child(6)').allTextContents()).slice(0, -1)
  const amounts = costs.map(text => Number(text.replace(/[$,]/g, '')))
  assert.deepEqual(
    amounts,
    [...amounts].sort((x, y) => y - x),
  )
  // The values of the day under the pointer; of one without use there are none.
  const box = (await page.locator('#chart svg').boundingBox())!
  const point = (day: number) => page.mouse.move(box.x + (box.width * (day + 0.5)) / 30, box.y + 20)
  const used = new Set(usage.map((sum: any) => sum.day))
  const free = Array.from({ length: 30 }, (_, i) => dayOf(now - (29 - i) * DAY)).findIndex(day => !used.has(day))
  await point(free)
  await page.locator('#chart figcaption p', { hasText: /^\d{4}-\d\d-\d\d Cost –$/ }).waitFor()
  await point(28)
  await page.locator('#chart figcaption p', { hasText: `${dayOf(now - DAY)} Cost $` }).waitFor()
  assert.deepEqual(complaints, [])
  await close()
})

test('what is shown stands in the address: choices, Back, and an address that somebody kept', { skip }, async () => {
  const { page, complaints, close } = await openPage()
  await drawn(page)
  assert.equal(hash(page), '')
  await page.locator('#measures span', { hasText: 'Requests' }).click()
  await page.waitForURL(/#show=requests$/)
  await drawn(page)
  assert.match(await label(page), /^Requests by day/)
  await page.locator('#ranges span', { hasText: '12 months' }).click()
  await page.waitForURL(/#range=12m&show=requests$/)
  // More than 92 days fall to months.
  await page.locator('#chart svg[aria-label^="Requests by month from"]').waitFor()
  assert.equal(await bars(page), 12)
  await page.selectOption('#by', 'plan')
  await page.waitForURL(/by=plan/)
  await page.locator('[aria-label="Table of sums"] th', { hasText: /^tier2$/ }).waitFor()
  assert.deepEqual(
    await page.locator('#by option').allTextContents(),
    ['organization', 'plan', 'model', 'backend', 'surface', 'outcome', 'day'],
    'sums of all are not made by key',
  )
  await page.goBack()
  await page.locator('[aria-label="Table of sums"] th', { hasText: /^acme$/ }).waitFor()
  await page.goBack()
  await page.locator('#chart svg[aria-label^="Requests by day from"]').waitFor()
  assert.equal(await page.locator('#ranges input:checked').inputValue(), '30d')
  // A name leads to the use of that organization alone.
  await page.locator('[aria-label="Table of sums"] a', { hasText: 'shop' }).click()
  await page.waitForURL(/#show=requests&organization=shop$/)
  await drawn(page)
  assert.equal(await page.title(), 'shop · Usage · Sluice')
  assert.equal(await page.locator('#by').inputValue(), 'model')
  assert.equal(await page.locator('#by option[value="key"]').count(), 1)
  await page.fill('#from', dayOf(now - 40 * DAY))
  await page.fill('#to', dayOf(now - 20 * DAY))
  await page.fill('#organization', 'bank')
  await page.locator('#asked button').click()
  await page.waitForURL(new RegExp(`from=${dayOf(now - 40 * DAY)}&to=${dayOf(now - 20 * DAY)}.*organization=bank`))
  await page.reload()
  await drawn(page)
  assert.equal(await page.locator('#from').inputValue(), dayOf(now - 40 * DAY))
  assert.equal(await page.locator('#organization').inputValue(), 'bank')
  await page.fill('#organization', 'nobody')
  await page.locator('#asked button').click()
  await page.locator('#notice', { hasText: 'there is no organization nobody' }).waitFor()
  await page.goBack()
  await drawn(page)
  await page.locator('#notice', { hasText: /^$/ }).waitFor({ state: 'attached' })
  assert.deepEqual(complaints, [])
  await close()
})

test('CSV: every line of the gateway, and no formula', { skip }, async () => {
  const { page, complaints, close } = await openPage('#organization=acme&by=key')
  await drawn(page)
  const { usage } = await api(`organizations/acme/usage?${month()}&group_by=day,key`)
  const { name, lines } = await saved(page, '#usage-csv')
  assert.equal(name, `sluice-usage-acme-${dayOf(now - 29 * DAY)}-${dayOf(now)}.csv`)
  assert.equal(lines.length, usage.length + 2, 'the heads, and an end of the last line')
  assert.match(lines[0]!, /^day,key,requests,/)
  for (const sum of usage)
    assert.ok(
      lines.some(line => line.startsWith(`${sum.day},${sum.key === '=cmd()' ? "'=cmd()" : sum.key},${sum.requests},`)),
      JSON.stringify(sum),
    )
  await rows(page).first().waitFor()
  const requests = await saved(page, '#past-csv')
  assert.equal(requests.lines.length, 52)
  assert.match(requests.lines[1]!, /^\d{4}-.*Z,req_\w+,acme,key_test,/)
  assert.deepEqual(complaints, [])
  await close()
})

test('requests of an organization: a page at a time, by key, outcome and code; one opens with its cause', {
  skip,
}, async () => {
  const { page, complaints, close } = await openPage('#organization=acme&range=today')
  await rows(page).nth(49).waitFor()
  assert.equal(await rows(page).count(), 50)
  const ledger = (await g.ledger()).filter(
    ({ organization, time }) => organization === 'acme' && dayOf(time) === dayOf(now),
  )
  assert.ok(ledger.length > 50 && ledger.length < 100)
  await page.click('#past-more')
  await rows(page)
    .nth(ledger.length - 1)
    .waitFor()
  assert.match((await page.locator('#past-note').textContent())!, new RegExp(`^${ledger.length} in all\\.`))
  assert.equal(await page.locator('#past-more').isVisible(), false)
  assert.match(
    (await page.evaluate('document.activeElement.textContent')) as string,
    /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/,
  )
  const ids = await rows(page).locator('td:last-child code').allTextContents()
  assert.deepEqual(ids, [...new Set(ids)])
  // What is drawn above changes, and the rows stay.
  await page.locator('#measures span', { hasText: 'Tokens' }).click()
  await page.locator('#chart svg[aria-label^="Tokens by day"]').waitFor()
  assert.equal(await rows(page).count(), ledger.length)
  // Failures alone, and what they were.
  await page.selectOption('#past-outcome', 'upstream_error')
  await page.locator('#past-asked button').click()
  await page.waitForURL(/outcome=upstream_error/)
  const failed = ledger.filter(row => row.outcome === 'upstream_error')
  await eventually(async () => (await rows(page).count()) === failed.length)
  await page.fill('#past-code', failed[0]!.code!)
  await page.locator('#past-asked button').click()
  await page.waitForURL(/code=/)
  await rows(page).first().click()
  const detail = page.locator('#past tr.detail')
  await detail.locator('dd', { hasText: 'it answered 500' }).first().waitFor()
  await detail.locator('section', { hasText: 'By the ledger' }).waitFor()
  await page.keyboard.press('Enter')
  await rows(page).first().locator('.open').click()
  await detail.waitFor({ state: 'detached' })
  // Of a key that made none today there are none.
  await page.selectOption('#past-outcome', '')
  await page.fill('#past-code', '')
  await page.fill('#past-key', '=cmd()')
  await page.locator('#past-asked button').click()
  await page.locator('#past-note', { hasText: 'None in this time.' }).waitFor()
  // Of another time there are, and the gateway has them in memory no more.
  await page.locator('#ranges span', { hasText: '7 days' }).click()
  await rows(page).first().click()
  await detail.locator('p', { hasText: 'The gateway has it in memory no more.' }).waitFor()
  await detail.locator('dd', { hasText: 'acme / =cmd()' }).waitFor()
  await detail.locator('code', { hasText: 'npx sluice trace req_' }).waitFor()
  assert.deepEqual(complaints, [])
  await close()
})

test('one request is found by its id, whoever it is of: in memory, in the ledger alone, or nowhere', {
  skip,
}, async () => {
  const { page, complaints, close } = await openPage()
  await drawn(page)
  const box = page.locator('#request')
  const find = async (id: string) => {
    await page.keyboard.press('Escape')
    await page.locator('#usage-title').focus()
    await page.keyboard.press('/')
    await page.keyboard.press('Control+A')
    await page.keyboard.type(id)
    await page.keyboard.press('Enter')
  }
  // A refusal before admission has no row, and the memory knows it.
  const refused = await g.post('/v1/chat/completions', { model: 'gpt-9', messages: [{ role: 'user', content: 'x' }] })
  await find(refused.headers.get('x-request-id')!)
  await box.locator('dd', { hasText: 'gpt-9, which is not offered' }).waitFor()
  const served = await g.post('/v1/chat/completions', {
    model: 'eb1-preview',
    messages: [{ role: 'user', content: 'x' }],
  })
  await served.text()
  await g.ledger()
  await find(served.headers.get('x-request-id')!)
  await box.locator('dd', { hasText: 'acme / key_test' }).waitFor()
  await box.locator('section', { hasText: 'By the ledger' }).waitFor()
  assert.match(hash(page), /^#request=req_\w{24}$/)
  assert.match(await page.title(), /^req_\w{24} · Usage/)
  // Another gateway served it: this one has its row.
  const id = await book(Date.now(), { organization: 'farm', key_id: 'key_9', cost: 5e9, model: 'eb1-preview' })
  await g.ledger()
  await find(id)
  await box.locator('p', { hasText: 'in memory no more' }).waitFor()
  await box.locator('dd', { hasText: 'farm / key_9' }).waitFor()
  await box.locator('dd', { hasText: '$5.00' }).waitFor()
  // It is found, too, where another organization is chosen.
  await goTo(page, `#request=${id}&organization=shop`)
  await page.reload()
  await box.locator('dd', { hasText: 'farm / key_9' }).waitFor()
  const nobody = requestId()
  await find(nobody)
  await page
    .locator('#found', { hasText: `Nothing is known of ${nobody}. It was made at ${dayOf(now).slice(0, 4)}` })
    .waitFor()
  await box.locator('code', { hasText: `npx sluice trace ${nobody}` }).waitFor()
  // The live page, which knows what is in memory alone, leads here.
  await page.goto(`${g.gateway.adminAddress}/#/${id}`)
  await page.locator('#exchanges-note a', { hasText: 'The usage page' }).click()
  await box.locator('dd', { hasText: 'farm / key_9' }).waitFor()
  assert.deepEqual(complaints, [])
  await close()
})

test('the accounts page leads to one request, and to longer times', { skip }, async () => {
  const { page, complaints, close } = await open(browser, `${g.gateway.adminAddress}/dashboard/accounts.html#/acme`)
  await page.fill('#token', READ)
  await page.keyboard.press('Enter')
  const link = page.locator('[aria-label="Table of exchanges"] tbody a').first()
  const id = (await link.textContent())!
  assert.equal(
    await page.locator('#account a', { hasText: 'Longer times' }).getAttribute('href'),
    '/dashboard/usage.html#organization=acme',
  )
  await link.click()
  await page.waitForURL(new RegExp(`/dashboard/usage.html#request=${id}&organization=acme$`))
  // The token of the tab is good for both pages.
  await page.locator('#request dd', { hasText: id }).first().waitFor()
  await rows(page).first().waitFor()
  assert.deepEqual(complaints, [])
  await close()
})

test('keys go neither into the address nor to the gateway; markup stays text', { skip }, async () => {
  const { page, complaints, close } = await openPage(`#organization=${KEY}&request=${KEY}`)
  const sent: string[] = []
  page.on('request', asked => sent.push(asked.url() + (asked.postData() ?? '')))
  await drawn(page)
  assert.equal(hash(page), '')
  await page.fill('#find', KEY)
  await page.press('#find', 'Enter')
  await page.locator('#found', { hasText: 'Keys are not sent' }).waitFor()
  await page.fill('#find', 'abc')
  await page.press('#find', 'Enter')
  await page.locator('#found', { hasText: 'That is no request id' }).waitFor()
  await page.fill('#organization', KEY)
  await page.press('#organization', 'Enter')
  await page.locator('#asked-fault', { hasText: 'Keys are not sent' }).waitFor()
  await goTo(page, '#organization=acme')
  await page.fill('#past-key', KEY)
  await page.press('#past-key', 'Enter')
  await page.locator('#past-fault', { hasText: 'Keys are not sent' }).waitFor()
  assert.doesNotMatch(page.url(), /sk-/)
  for (const url of sent) assert.doesNotMatch(url, /sk-/)
  const markup = '<img src=x onerror=alert(1)>'
  await book(Date.now(), { organization: 'post', key_id: markup, model: markup, cost: 1 }, { code: markup })
  await g.ledger()
  await goTo(page, '#organization=post&range=today')
  await page.locator('[aria-label="Table of sums"] th', { hasText: markup }).waitFor()
  await rows(page).first().click()
  await page.locator('#past .detail dd', { hasText: markup }).first().waitFor()
  assert.equal(await page.locator('main img').count(), 0)
  assert.deepEqual(complaints, [])
  await close()
})

test('a token that is bound to something else is told what it may not read', { skip }, async () => {
  const { page, complaints, close } = await openPage('', {}, BOUND)
  await page.locator('#usage-note', { hasText: 'This token may not read it: this needs usage;' }).waitFor()
  const { exchanges } = await api('organizations/acme/exchanges')
  await page.evaluate(`location.hash = '#organization=acme&request=${exchanges[0].request_id}'`)
  await page.locator('#past-note', { hasText: 'This token may not read it' }).waitFor()
  await page
    .locator('#found', { hasText: 'may not read what the gateway has in memory. This token may not read its row' })
    .waitFor()
  assert.equal(await page.locator('#usage-csv').isDisabled(), true)
  // Another token reads it.
  await page.click('#other-token')
  await page.fill('#token', READ)
  await page.keyboard.press('Enter')
  await drawn(page)
  await rows(page).first().waitFor()
  await page.locator('#request dd', { hasText: 'acme / key_test' }).waitFor()
  assert.deepEqual(complaints, [])
  await close()
})

test('without any token it reads; a store that is out is asked again', { skip }, async () => {
  const own = await startGateway()
  const { page, complaints, close } = await open(browser, `${own.gateway.adminAddress}/dashboard/usage.html`)
  await page.locator('#caller', { hasText: 'no token: you may read' }).waitFor()
  await page.locator('#chart', { hasText: 'Nothing was used in this time.' }).waitFor()
  const { store } = own.gateway
  const { usage } = store
  store.usage = () => {
    throw new StoreUnavailable('the store is out')
  }
  await page.getByRole('button', { name: 'Show' }).click()
  await page.locator('#notice', { hasText: 'The store does not answer' }).waitFor()
  store.usage = usage
  await page.locator('#notice', { hasText: /^$/ }).waitFor({ state: 'attached' })
  await drawn(page)
  assert.deepEqual(complaints, [])
  await close()
  await own.close()
})

test('of very many organizations the bars are undivided, and a file has all of the table', { skip }, async () => {
  // 30 days of 340 are more groups than the gateway puts into one answer.
  const own = await startGateway()
  const { store } = own.gateway
  for (let back = 0; back < 30; back++)
    for (let i = 0; i < 340; i++) {
      const id = requestId()
      await store.ledger.intent(intent(id, { time: now - back * DAY, organization: `customer-${i}` }))
      store.ledger.outcome(outcome(id, { cost: 1e6 + i }))
    }
  await store.ledger.flush()
  const { page, complaints, close } = await open(browser, `${own.gateway.adminAddress}/dashboard/usage.html`)
  await page.locator('#usage-note', { hasText: 'too many for bars that are divided by organization' }).waitFor()
  assert.match((await page.locator('#usage-note').textContent())!, /^240 more rows: the CSV file has all\./)
  assert.equal(await page.locator('#chart li').count(), 0)
  assert.equal(await bars(page), 30)
  assert.equal(await sums(page).count(), 101)
  assert.match(await cells(page, 0), /^customer-339\|30\|/)
  assert.match(await cells(page, 100), /^All\|10\.2K\|/)
  const { lines } = await saved(page, '#usage-csv')
  assert.equal(lines.length, 342)
  // A week of them is divided.
  await page.locator('#ranges span', { hasText: '7 days' }).click()
  await page.locator('#chart li', { hasText: '335 more' }).waitFor()
  assert.deepEqual(complaints, [])
  await close()
  await own.close()
})

test('a phone of 390 px has everything in view', { skip }, async () => {
  const { page, close } = await openPage('#organization=acme&range=12m', {
    viewport: { width: 390, height: 844 },
    isMobile: true,
    hasTouch: true,
  })
  await rows(page).nth(49).waitFor()
  await drawn(page)
  await rows(page).nth(3).locator('.open').tap()
  await page.locator('#past .detail .timeline').waitFor()
  const wide =
    await page.evaluate(`[...document.querySelectorAll('#main .scroll, #main .card, #main form, #main fieldset')]
    .filter(node => node.checkVisibility() && (node.scrollWidth > node.clientWidth + 1 || node.getBoundingClientRect().right > 391))
    .map(node => node.className + ' ' + node.id + ' ' + node.getAttribute('aria-label') + ' ' + node.scrollWidth)`)
  assert.deepEqual(wide, [])
  assert.ok((await page.evaluate('document.documentElement.scrollWidth <= innerWidth')) as boolean)
  await close()
})

test('screenshots', {
  skip: skip || (process.env['UPDATE_SCREENSHOTS'] ? false : 'npm run screenshots writes docs/screenshots'),
}, async () => {
  await mkdir(SCREENSHOTS, { recursive: true })
  const { page, close } = await openPage('', { viewport: { width: 1280, height: 1010 }, colorScheme: 'light' })
  await drawn(page)
  const shoot = (name: string) => page.screenshot({ path: join(SCREENSHOTS, name) })
  await shoot('usage-light.png')
  await page.emulateMedia({ colorScheme: 'dark' })
  await goTo(page, '#organization=acme&range=12m&by=model')
  await rows(page).nth(49).waitFor()
  await shoot('usage-dark.png')
  await page.setViewportSize({ width: 390, height: 844 })
  await shoot('usage-phone.png')
  await close()
})
