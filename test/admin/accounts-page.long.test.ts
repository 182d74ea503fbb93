/** The accounts page in a real Chromium, on a real gateway with accounts in the file and in the store. */
import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import axe from 'axe-core'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { defaultYaml, KEY, sha256, startGateway, type TestGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { launch, type Opened, open, skip } from './browser.ts'
import { LIMITS } from './load.ts'

const SCREENSHOTS = join(import.meta.dirname, '../../docs/screenshots')
const READ = 'adm-read-0001'
const OPERATE = 'adm-operate-0001'
const TOKENS = `tokens: [{ name: ci, role: read, sha256: "${sha256(READ)}" }, { name: ops, role: operate, sha256: "${sha256(OPERATE)}" }]`
const MADE = { plan: 'tier1', limits: { requests_per_day: 500, daily_spend_usd: '9.50', monthly_spend_usd: '120' } }

const start = () =>
  startGateway({
    yaml: sim =>
      defaultYaml(sim, { organization: LIMITS }).replace(
        'admin: 127.0.0.1:0',
        `admin: { listen: 127.0.0.1:0, ${TOKENS} }`,
      ),
  })

let g: TestGateway
let browser: Browser
/** The secret of key_1 of customer-7. */
let secret = ''
before(async () => {
  if (skip) return
  g = await start()
  browser = await launch()
  for (let n = 1; n <= 60; n++) await api('POST', 'organizations', { id: `customer-${n}`, ...MADE })
  secret = (await api('POST', 'organizations/customer-7/keys', { id: 'key_1' })).secret
  await api('POST', 'organizations/customer-7/keys', { id: 'mobile-app' })
  for (let i = 0; i < 3; i++) await eventually(async () => (await ask(secret)) === 200)
  await g.ledger()
})
after(async () => {
  await browser?.close()
  await g?.close()
})

/** Calls the admin API beside the page. */
async function api(method: string, where: string, body?: unknown, headers: Record<string, string> = {}): Promise<any> {
  const answer = await fetch(`${g.gateway.adminAddress}/api/v1/${where}`, {
    method,
    headers: { authorization: `Bearer ${OPERATE}`, 'content-type': 'application/json', ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const json = (await answer.json()) as any
  assert.ok(answer.ok, JSON.stringify(json))
  return { ...json, etag: answer.headers.get('etag') }
}

const ask = async (key: string) => {
  const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hi' }] }
  const reply = await g.post('/v1/chat/completions', body, { authorization: `Bearer ${key}` })
  await reply.text()
  return reply.status
}

/** The page with a token, at an organization or at the list. */
async function openPage(token: string, id = '', options: BrowserContextOptions = {}, at = g): Promise<Opened> {
  const opened = await open(browser, `${at.gateway.adminAddress}/dashboard/accounts.html${id && `#/${id}`}`, options)
  await opened.page.fill('#token', token)
  await opened.page.keyboard.press('Enter')
  await opened.page.locator('#main').waitFor()
  if (id) await opened.page.locator('#account .badges').waitFor()
  return opened
}
const text = async (page: Page, where: string) => (await page.locator(where).textContent()) ?? ''
const listed = (page: Page) => page.locator('#list strong')
const keyRow = (page: Page, id: string) => page.locator('#account .key', { has: page.locator(`code:text-is("${id}")`) })
const focused = (page: Page) => page.evaluate('document.activeElement.textContent || document.activeElement.id')

test('it finds an organization by the beginning of its id, by the id, the digest and the secret of a key', {
  skip,
}, async () => {
  const { page, complaints, close } = await openPage(READ)
  const sent: string[] = []
  page.on('request', request => sent.push(request.url() + (request.postData() ?? '')))
  await page.locator('#found', { hasText: 'The first 50 accounts' }).waitFor()
  assert.equal(await listed(page).count(), 50)
  await page.click('#more')
  await page.locator('#more').waitFor({ state: 'hidden' })
  assert.equal(await listed(page).count(), 62, 'those of the file and of the store')
  assert.deepEqual((await listed(page).allTextContents()).slice(0, 3), ['acme', 'customer-1', 'customer-10'])
  const find = async (what: string, found: string[]) => {
    await page.fill('#find', what)
    await eventually(async () => (await listed(page).allTextContents()).join() === found.join())
  }
  await find('customer-5', ['customer-5', ...Array.from({ length: 10 }, (_, i) => `customer-5${i}`)])
  await find('mobile-app', ['customer-7'])
  assert.equal(await text(page, '#list small'), ' tier1 · key mobile-app · store')
  await find(sha256(KEY), ['acme'])
  await find('nobody', [])
  assert.match(await text(page, '#found'), /^Nothing is found/)
  await find(secret, ['customer-7'])
  await find('sk-not-a-key', [])
  assert.equal(await text(page, '#found'), 'Nobody has this key.')
  for (const url of sent) assert.doesNotMatch(url, /sk-/, 'a secret is not sent')
  assert.ok(sent.some(url => url.includes(sha256(secret))))
  // Enter opens what is the only one.
  await page.fill('#find', 'mobile-app')
  await page.press('#find', 'Enter')
  await page.locator('#account-title', { hasText: 'customer-7' }).waitFor()
  await page.locator('#list a[aria-current="true"]', { hasText: 'customer-7' }).waitFor()
  assert.equal(await page.title(), 'customer-7 · Accounts · Sluice')
  assert.deepEqual(complaints, [])
  await close()
})

test('it shows limits used, spend, keys, use by key and the last exchanges; markup in an answer stays text', {
  skip,
}, async () => {
  const { page, complaints, close } = await openPage(READ, 'customer-7')
  const limit = page.locator('#account .limits li', { hasText: 'requests / day' })
  await limit.locator('.figure', { hasText: '3 of 500' }).waitFor()
  assert.match(await text(page, '#account .badges'), /^active plan tier1 · in the store, version \d+$/)
  assert.match(await text(page, '#account dl'), /^today \(UTC\)\$0\.0\d+this month \(UTC\)\$0\.0\d+$/)
  assert.match((await keyRow(page, 'key_1').textContent()) ?? '', /^key_1active/)
  const used = page.locator('[aria-label="Table of use"] tbody tr')
  assert.match((await used.first().textContent()) ?? '', /^key_1eb1-preview3\d/)
  const exchanges = page.locator('[aria-label="Table of exchanges"] tbody tr')
  assert.equal(await exchanges.count(), 3)
  assert.match((await exchanges.first().textContent()) ?? '', /completedkey_1eb1-previewchat\d/)
  assert.match(await text(page, '[aria-label="Table of changes"]'), /key\.createmobile-apptoken:ops/)
  // Only of one key.
  await page.selectOption('#which-key', 'mobile-app')
  await exchanges.first().waitFor({ state: 'detached' })
  await page.selectOption('#which-key', '')
  // What has happened since comes by itself, and what was chosen stays.
  assert.equal(await ask(secret), 200)
  await g.ledger()
  await limit.locator('.figure', { hasText: '4 of 500' }).waitFor()
  await exchanges.nth(3).waitFor()
  // An id of the address is text, also where it is shown.
  await page.evaluate("location.hash = '#/' + encodeURIComponent('<img src=x onerror=alert(1)>')")
  await page.locator('#notice', { hasText: 'there is no organization <img' }).waitFor()
  assert.equal(await page.locator('#account-title img').count(), 0)
  assert.deepEqual(complaints, [])
  await close()
})

test('use by month and by day, in UTC whatever zone times are shown in; days, keys and spend agree', {
  skip,
}, async () => {
  const { page, complaints, close } = await openPage(READ, 'customer-7', { timezoneId: 'Asia/Tokyo' })
  assert.equal(await text(page, '#zone'), 'Times: Asia/Tokyo (GMT+9)')
  const used = page.locator('[aria-label="Table of use"] tbody tr')
  const days = page.locator('[aria-label="Table of days"] tbody tr')
  const cells = async (row: ReturnType<typeof used.nth>) => (await row.locator('td').allTextContents()).slice(-4)
  await days.first().waitFor()
  const day = (await days.first().locator('th').textContent())!
  assert.equal(day, new Date((await g.ledger()).at(-1)!.time).toISOString().slice(0, 10))
  assert.deepEqual([await used.count(), await days.count()], [2, 1])
  assert.match((await used.last().textContent()) ?? '', /^All keys/)
  const all = await cells(used.last())
  assert.deepEqual(all, await cells(used.first()))
  assert.deepEqual(all, await cells(days.first()))
  const spent = (await page.locator('#account dl').first().locator('dd').allTextContents()).at(-1)
  assert.equal(all.at(-1), spent, 'the limit of spend has the month that is shown')
  // A day of UTC begins in Tokyo at nine.
  assert.match(
    await text(page, '#account section:has(#which-month)'),
    /Days and months are those of UTC.* from \d{4}-\d{2}-01 09:00:00 to \d{4}-\d{2}-01 09:00:00 in Asia\/Tokyo/,
  )
  const none = page.locator('#account section:has(#which-month) p', { hasText: /^None\.$/ })
  await page.selectOption('#which-day', day)
  await page.locator('#account p', { hasText: `goes from ${day} 09:00:00` }).waitFor()
  assert.deepEqual(await cells(used.last()), all)
  await page.selectOption('#which-month', { index: 1 })
  await none.nth(1).waitFor()
  await used.first().waitFor({ state: 'detached' })
  assert.equal(await page.locator('#which-day').inputValue(), '')
  await page.selectOption('#which-month', { index: 0 })
  await used.nth(1).waitFor()
  assert.equal(await page.locator('#which-month option').count(), 12)
  // A month from now the same rows are those of the month before, which is still offered.
  const [year, month] = day.split('-').map(Number) as [number, number]
  await page.clock.setFixedTime(Date.UTC(year, month, 2, 1))
  await none.nth(1).waitFor()
  await page.selectOption('#which-month', day.slice(0, 7))
  await used.nth(1).waitFor()
  assert.deepEqual(await cells(days.first()), all)
  await page.click('#zone')
  await page.locator('#zone', { hasText: 'Times: UTC' }).waitFor()
  assert.deepEqual(complaints, [])
  await close()
})

// A customer whose balance was used up looked well: neither prepaid, nor what was left, nor a credit was on the page.
test('of a prepaid organization it shows the balance, red when nothing is left, and the last credits', {
  skip,
}, async () => {
  await api('POST', 'organizations', { id: 'payer', plan: 'tier1', billing: 'prepaid' })
  const { page, complaints, close } = await openPage(READ, 'payer')
  assert.match(await text(page, '#account .badges'), /^active plan tier1, prepaid · /)
  const balance = page.locator('#account dl').first().locator('dd').first()
  assert.equal(await balance.textContent(), '$0 of $0 left; what may cost more is refused')
  assert.equal(await balance.getAttribute('class'), 'bad')
  const credits = page.locator('[aria-label="Table of credits"] tbody tr')
  assert.equal(await credits.count(), 0)
  await api('POST', 'organizations/payer/credits', { id: 'payment-1801', amount_usd: '25.00', note: 'invoice 7' })
  await page.locator('#account dd', { hasText: '$25.00 of $25.00 left' }).waitFor()
  assert.equal(await balance.getAttribute('class'), null)
  assert.match((await credits.first().textContent()) ?? '', /\$25\.00payment-1801token:opsinvoice 7$/)
  await api('POST', 'organizations/payer/credits', { id: 'back-1801', amount_usd: '-24.991' })
  await page.locator('#account dd.bad', { hasText: '$0.009000 of $0.009000 left' }).waitFor()
  await credits.first().locator('td', { hasText: '-$24.99' }).waitFor()
  assert.equal(await credits.count(), 2)
  assert.deepEqual(complaints, [])
  await close()
  const other = await openPage(READ, 'customer-7')
  assert.deepEqual(await other.page.locator('#account dt').first().textContent(), 'today (UTC)')
  assert.equal(await other.page.locator('[aria-label="Table of credits"]:visible').count(), 0)
  await other.close()
})

test('a page says what a request may need at most: of the organization, and of a key by model', { skip }, async () => {
  await api('POST', 'organizations', { id: 'most', plan: 'tier1', limits: { max_request_usd: '0.50' } })
  const model_limits = { 'eb1-preview': { max_output_tokens: 64 } }
  await api('POST', 'organizations/most/keys', { id: 'key_1', limits: { max_input_tokens: 12_000 }, model_limits })
  const { page, complaints, close } = await openPage(READ, 'most')
  const lines = page.locator('#account .maxima:visible')
  await lines.nth(1).waitFor()
  assert.deepEqual(await lines.allTextContents(), [
    'Each request at most: $0.50',
    'Each request at most: 12K input tokens · 64 output tokens of eb1-preview',
  ])
  assert.deepEqual(complaints, [])
  await close()
})

test('who may only read sees no button that changes; an organization of the file has none either', {
  skip,
}, async () => {
  const changing = '#account button:visible'
  for (const [token, id, count] of [
    [READ, 'customer-7', 0],
    [OPERATE, 'acme', 0],
    [OPERATE, 'customer-7', 12],
  ] as const) {
    const { page, complaints, close } = await openPage(token, id)
    await page.locator('#account .key').first().waitFor()
    assert.equal(await page.locator(changing).count(), count, `${token} ${id}`)
    assert.match(await text(page, '#caller'), token === READ ? /token:ci may read; / : /token:ops may change accounts/)
    if (id === 'acme') assert.match(await text(page, '#account .alerts'), /stands in gateway\.yaml/)
    assert.deepEqual(complaints, [])
    await close()
  }
})

test('a key is made, rotated and revoked by the keyboard alone; a secret is shown once and kept nowhere', {
  skip,
}, async () => {
  const { page, complaints, close } = await openPage(OPERATE)
  const press = async (...keys: string[]) => {
    for (const key of keys) await page.keyboard.press(key)
  }
  /** Goes forward by Tab until something with this text has the focus. */
  const tabTo = async (words: string) => {
    for (let i = 0; i < 80; i++) {
      await press('Tab')
      if ((await focused(page)) === words) return
    }
    assert.fail(`Tab does not come to ${words}`)
  }
  const shownSecret = async () => {
    await page.locator('#secret').waitFor()
    const value = await page.inputValue('#secret')
    assert.match(value, /^sk-/)
    assert.match(await text(page, '#dialog'), /shown this once/)
    // Escape does not lose it.
    await press('Escape')
    assert.equal(await page.locator('#secret').count(), 1)
    await tabTo('I have stored it')
    await press('Enter')
    await page.locator('#dialog').waitFor({ state: 'hidden' })
    const everywhere = await page.evaluate(
      '[document.documentElement.outerHTML, JSON.stringify({ ...localStorage }), JSON.stringify({ ...sessionStorage }), location.href, ...[...document.querySelectorAll("input")].map(i => i.value)].join()',
    )
    assert.equal((everywhere as string).includes(value), false)
    return value
  }
  await press('/')
  assert.equal(await focused(page), 'find')
  await page.keyboard.type('customer-33')
  await press('Enter')
  await page.locator('#account .badges').waitFor()
  await page.locator('#account-title:focus').waitFor()

  await tabTo('Make a key')
  await press('Enter')
  assert.equal(await page.inputValue('#key-id:focus'), 'key_1')
  await page.keyboard.type('web')
  await press('Enter')
  const first = await shownSecret()
  await page.locator('#notice', { hasText: 'web is made.' }).waitFor()
  assert.equal(await focused(page), 'Make a key', 'the focus is where it was')
  await keyRow(page, 'web').waitFor()
  await eventually(async () => (await ask(first)) === 200)

  await tabTo('Rotate web')
  await press('Enter')
  await page.keyboard.type('web-2')
  await press('Tab')
  await page.keyboard.type('1')
  assert.equal(await page.inputValue('#grace:focus'), '1h')
  await tabTo('Rotate the key')
  await press('Enter')
  const second = await shownSecret()
  await keyRow(page, 'web').locator('.use', { hasText: 'ends 20' }).waitFor()
  await eventually(async () => (await ask(second)) === 200)
  assert.equal(await ask(first), 200)

  // Asked first; Enter is No.
  await tabTo('Revoke web')
  await press('Enter')
  assert.match(await text(page, '#dialog'), /Revoke web of customer-33\?.*cannot be undone/)
  assert.equal(await focused(page), 'Cancel')
  await press('Enter')
  await page.locator('#dialog').waitFor({ state: 'hidden' })
  assert.equal(await focused(page), 'Revoke web')
  await press('Enter', 'Tab', 'Enter')
  await page.locator('#notice', { hasText: 'web is revoked.' }).waitFor()
  await keyRow(page, 'web').locator('.badge', { hasText: 'revoked' }).waitFor()
  assert.equal(await keyRow(page, 'web').locator('button:visible').count(), 1, 'it can be deleted, and nothing else')
  assert.equal(await focused(page), 'customer-33', 'the focus is not lost with the button')
  await eventually(async () => (await ask(first)) === 401)
  assert.equal(await ask(second), 200)

  await tabTo('Change web-2')
  await press('Enter')
  assert.equal(await page.inputValue('#key-label:focus'), '')
  await page.keyboard.type('Build server')
  await page.fill('#key-limits', 'requests_per_minute: 9\nno_such_limit: 1')
  await page.locator('#dialog button[type=submit]').click()
  assert.match((await page.locator('#dialog [role=alert]:not(:empty)').textContent())!, /no_such_limit/)
  await page.fill('#key-limits', 'requests_per_minute: 9')
  await page.locator('#dialog button[type=submit]').click()
  await page.locator('#notice', { hasText: 'web-2 is changed.' }).waitFor()
  await keyRow(page, 'web-2')
    .locator('.muted', { hasText: `Build server · secret ends in ${second.slice(-4)}` })
    .waitFor()

  await tabTo('Stage web-2')
  await press('Enter')
  await page.keyboard.type('web-3')
  await press('Enter')
  const third = await shownSecret()
  await keyRow(page, 'web-3').locator('.badge', { hasText: 'staged' }).waitFor()
  await keyRow(page, 'web-3').locator('.muted', { hasText: 'Build server' }).waitFor()
  await eventually(async () => (await ask(third)) === 200)

  await tabTo('Delete web')
  await press('Enter')
  assert.equal(await focused(page), 'Cancel')
  await press('Tab', 'Enter')
  await page.locator('#notice', { hasText: 'web is deleted.' }).waitFor()
  await eventually(async () => (await page.locator('#account li.key').count()) === 2)

  const { entries } = await api('GET', 'audit?organization=customer-33')
  assert.deepEqual(
    entries.map(({ operation, by }: any) => `${operation} ${by}`),
    ['key.delete', 'key.create', 'key.change', 'key.revoke', 'key.rotate', 'key.create', 'organization.create'].map(
      operation => `${operation} token:ops`,
    ),
  )
  assert.deepEqual(complaints, [])
  await close()
})

test('an organization is made, changed, disabled, enabled and deleted', { skip }, async () => {
  const { page, complaints, close } = await openPage(OPERATE)
  const dialog = page.locator('#dialog')
  const press = async (button: string, submit?: string) => {
    await page.locator('#account button:visible, #make-organization', { hasText: button }).first().click()
    if (submit) await dialog.locator('button', { hasText: submit }).click()
  }
  const settled = () => dialog.waitFor({ state: 'hidden' })
  await page.fill('#find', 'new-')
  await page.locator('#found', { hasText: 'Nothing is found' }).waitFor()
  await press('Make an organization')
  await page.fill('#key-id', 'new-one')
  await page.fill('#org-name', 'New One Ltd')
  await page.selectOption('#org-plan', 'tier1')
  await page.fill('#org-limits', 'requests_per_day: many')
  await dialog.locator('button', { hasText: 'Make the organization' }).click()
  await page.locator('#dialog [role="alert"]', { hasText: 'requests_per_day' }).waitFor()
  await page.fill('#org-limits', 'requests_per_day: 70\ndaily_spend_usd: 9.50')
  await dialog.locator('button', { hasText: 'Make the organization' }).click()
  await settled()
  await page.locator('#account-title', { hasText: 'new-one' }).waitFor()
  await page.locator('#list strong', { hasText: 'new-one' }).waitFor()
  await page.locator('#account .badges', { hasText: 'New One Ltd · plan tier1' }).waitFor()

  await press('Change the organization')
  assert.equal(await page.inputValue('#org-limits'), 'requests_per_day: 70\ndaily_spend_usd: 9.50')
  await page.selectOption('#org-plan', 'tier2')
  await page.fill('#org-name', '')
  await page.fill('#org-metadata', 'customer: cus_17\nseller = ann')
  await page.fill('#org-limits', 'requests_per_day: 90')
  await dialog.locator('button', { hasText: 'Change the organization' }).click()
  await settled()
  await page.locator('#account .badges', { hasText: 'plan tier2' }).waitFor()
  assert.deepEqual((await api('GET', 'organizations/new-one')).settings, {
    ...{ plan: 'tier2', metadata: { customer: 'cus_17', seller: 'ann' }, limits: { requests_per_day: 90 } },
  })

  await press('Disable the organization', 'Disable new-one')
  await settled()
  await page.locator('#account .badges', { hasText: 'disabled' }).waitFor()
  await press('Enable the organization', 'Enable new-one')
  await settled()
  await page.locator('#account .badges', { hasText: 'active' }).waitFor()
  await press('Delete the organization')
  await page.selectOption('#grace', '7d')
  await dialog.locator('button', { hasText: 'Delete new-one' }).click()
  await settled()
  await page.locator('#account .alerts', { hasText: 'It is removed after' }).waitFor()
  const { leaves, status } = await api('GET', 'organizations/new-one')
  assert.deepEqual([status, Math.round((Date.parse(leaves) - Date.now()) / 86_400_000)], ['disabled', 7])
  assert.equal(await page.locator('#account button:visible', { hasText: 'Delete the organization' }).count(), 0)
  assert.deepEqual(complaints, [])
  await close()
})

test('what somebody else has changed meanwhile is shown, and not overwritten', { skip }, async () => {
  await api('POST', 'organizations/customer-34/keys', { id: 'key_1' })
  const { page, complaints, close } = await openPage(OPERATE, 'customer-34')
  await keyRow(page, 'key_1').getByRole('button', { name: 'Revoke' }).click()
  const { etag } = await api('GET', 'organizations/customer-34')
  await api('PATCH', 'organizations/customer-34', { plan: 'tier2' }, { 'if-match': etag })
  await page.locator('#dialog .danger').click()
  await page.locator('#notice.bad', { hasText: 'Somebody else has changed this organization meanwhile' }).waitFor()
  await page.locator('#account .badges', { hasText: 'plan tier2' }).waitFor()
  assert.equal((await api('GET', 'organizations/customer-34')).keys[0].status, 'active')
  // Now it goes, and what was said before is taken back.
  await keyRow(page, 'key_1').getByRole('button', { name: 'Revoke' }).click()
  await page.locator('#dialog .danger').click()
  await page.locator('#notice', { hasText: 'key_1 is revoked.' }).waitFor()
  assert.equal(await page.getAttribute('#notice', 'class'), null)
  // A fault of what was typed stays in the dialog, in the words of the API.
  await page.getByRole('button', { name: 'Make a key' }).click()
  await page.fill('#key-id', 'key_1 ß')
  await page.locator('#dialog [type="submit"]').click()
  await page.locator('#dialog [role="alert"]', { hasText: 'Nothing was changed' }).waitFor()
  await page.keyboard.press('Escape')
  await page.locator('#dialog').waitFor({ state: 'hidden' })
  assert.deepEqual(complaints, [])
  await close()
})

test('a store that is out, an answer that is lost, a token that ends, an address that is throttled: it says what to do', {
  skip,
}, async () => {
  const own = await start()
  const yaml = await readFile(own.file, 'utf8')
  const { accounts } = own.gateway.store
  const made = await fetch(`${own.gateway.adminAddress}/api/v1/organizations`, {
    method: 'POST',
    headers: { authorization: `Bearer ${OPERATE}`, 'content-type': 'application/json' },
    body: JSON.stringify({ id: 'shop', ...MADE }),
  })
  assert.equal(made.status, 201)
  const { page, complaints, close } = await openPage(OPERATE, 'shop', {}, own)
  const notice = (words: string) => page.locator('#notice', { hasText: words }).waitFor()
  const { read } = accounts
  const out = () => {
    throw new StoreUnavailable('the store is out')
  }
  accounts.read = out
  await notice('The store does not answer. Look at /readyz')
  await page.getByRole('button', { name: 'Make a key' }).click()
  await page.locator('#dialog [type="submit"]').click()
  await page.locator('#dialog [role="alert"]', { hasText: 'It is not known whether it was done' }).waitFor()
  // It comes back, and the same dialog goes on.
  accounts.read = read
  // The answer is lost: it was made, and its secret is nowhere.
  await page.route('**/keys', async route => {
    await route.fetch()
    await route.abort()
  })
  await page.locator('#dialog [type="submit"]').click()
  await page.locator('#dialog [role="alert"]', { hasText: 'The gateway does not answer' }).waitFor()
  await page.unroute('**/keys')
  await page.locator('#dialog [type="submit"]').click()
  await notice('key_1 was made before, and its secret was shown then. If nobody has it, revoke key_1 and make another.')
  await keyRow(page, 'key_1').waitFor()

  await writeFile(own.file, yaml.replace(sha256(OPERATE), sha256('adm-next')))
  assert.equal((await own.gateway.reload()).applied, true)
  await page.locator('#login-fault', { hasText: 'The token is not valid, or not any more' }).waitFor()
  assert.equal(await page.locator('#main').isVisible(), false)
  await page.fill('#token', 'adm-next')
  await page.keyboard.press('Enter')
  // The page is where it was.
  await keyRow(page, 'key_1').waitFor()

  await page.getByRole('button', { name: 'Other token' }).click()
  await eventually(async () => {
    const headers = { authorization: 'Bearer wrong' }
    return (await fetch(`${own.gateway.adminAddress}/api/v1/caller`, { headers })).status === 429
  })
  await page.fill('#token', 'adm-next')
  await page.keyboard.press('Enter')
  await page.locator('#login-fault', { hasText: 'Wait a minute, then try again' }).waitFor()
  assert.deepEqual(complaints, [])
  await close()
  await own.close()
})

test('without any token it reads, and says why nothing can be changed', { skip }, async () => {
  const own = await startGateway()
  const { page, complaints, close } = await open(browser, `${own.gateway.adminAddress}/dashboard/accounts.html#/acme`)
  await page.locator('#account .key').waitFor()
  assert.match(
    await text(page, '#caller'),
    /^no token: you may read; accounts are changed with a token of the role operate/,
  )
  assert.equal(await page.locator('#other-token').isVisible(), false)
  assert.deepEqual(complaints, [])
  await close()
  await own.close()
})

for (const colorScheme of ['light', 'dark'] as const) {
  test(`axe finds nothing, contrast included: ${colorScheme}, at 1600 and 390 px, with dialogs and failures`, {
    skip,
  }, async () => {
    const { page, complaints, close } = await open(browser, `${g.gateway.adminAddress}/dashboard/accounts.html`, {
      colorScheme,
    })
    await page.evaluate(axe.source)
    const clean = async (what: string) => {
      for (const width of [1600, 390]) {
        await page.setViewportSize({ width, height: 844 })
        const { violations, passes } = (await page.evaluate('axe.run(document)')) as axe.AxeResults
        const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => node.html).slice(0, 3)}`)
        assert.deepEqual(found, [], `${what} at ${width}`)
        assert.ok(passes.some(({ id }) => id === 'color-contrast'))
        assert.ok(
          (await page.evaluate('document.documentElement.scrollWidth <= innerWidth')) as boolean,
          `${what} at ${width} scrolls sideways`,
        )
      }
    }
    await page.locator('#login').waitFor()
    await clean('the form for the token')
    await page.fill('#token', OPERATE)
    await page.keyboard.press('Enter')
    await page.locator('#list li').first().waitFor()
    await clean('the list')
    await api('POST', 'organizations/customer-35/keys', { id: 'key_0' }).catch(() => {})
    for (const id of ['acme', 'customer-7', 'customer-35']) {
      await page.evaluate(`location.hash = '#/${id}'`)
      await page.locator('#account-title', { hasText: id }).waitFor()
      await page.locator('#account .key').first().waitFor()
      await clean(id)
    }
    const button = (name: string) => page.getByRole('button', { name }).first().click()
    await button('Make a key')
    await clean('making a key')
    await page.fill('#key-id', `axe-${colorScheme}`)
    await page.keyboard.press('Enter')
    await page.locator('#secret').waitFor()
    await clean('the secret')
    await button('I have stored it')
    await keyRow(page, `axe-${colorScheme}`).waitFor()
    await button('Rotate')
    await clean('rotating')
    await button('Cancel')
    await button('Revoke')
    await clean('revoking')
    await button('Cancel')
    await page.evaluate("location.hash = '#/nobody'")
    await page.locator('#notice.bad').waitFor()
    await clean('a failure')
    assert.deepEqual(complaints, [])
    await close()
  })
}

test('a phone of 390 px: the list or one organization, with everything that a person needs in view', {
  skip,
}, async () => {
  const { page, close } = await openPage(OPERATE, '', {
    viewport: { width: 390, height: 844 },
    isMobile: true,
    hasTouch: true,
  })
  await page.fill('#find', 'customer-7')
  await page.locator('#list a', { hasText: 'customer-7' }).tap()
  await page.locator('#account .badges').waitFor()
  await page.locator('[aria-label="Table of exchanges"] tbody tr').first().waitFor()
  assert.equal(await page.locator('#find').isVisible(), false)
  const wide = await page.evaluate(`[...document.querySelectorAll('#account .scroll, #account .card, #account li')]
    .filter(node => node.checkVisibility() && (node.scrollWidth > node.clientWidth + 1 || node.getBoundingClientRect().right > 391))
    .map(node => node.className + ' ' + node.getAttribute('aria-label') + ' ' + node.scrollWidth)`)
  assert.deepEqual(wide, [])
  await page.getByRole('button', { name: 'Revoke' }).first().tap()
  const dialog = (await page.locator('#dialog').boundingBox())!
  assert.ok(dialog.x >= 0 && dialog.x + dialog.width <= 390)
  await page.getByRole('button', { name: 'Cancel' }).tap()
  await page.getByRole('link', { name: 'All accounts' }).tap()
  await page.locator('#find').waitFor()
  await close()
})

test('screenshots', {
  skip: skip || (process.env['UPDATE_SCREENSHOTS'] ? false : 'npm run screenshots writes docs/screenshots'),
}, async () => {
  await mkdir(SCREENSHOTS, { recursive: true })
  for (let i = 0; i < 8; i++) await ask(secret)
  await g.ledger()
  const { etag } = await api('GET', 'organizations/customer-7')
  await api('PATCH', 'organizations/customer-7', { limits: { max_request_usd: '0.50' } }, { 'if-match': etag })
  const { page, close } = await openPage(OPERATE, 'customer-7', {
    viewport: { width: 1280, height: 1010 },
    colorScheme: 'light',
  })
  await page.fill('#find', 'customer-')
  await page.locator('#found', { hasText: 'customer-' }).waitFor()
  await page.locator('[aria-label="Table of exchanges"] tbody tr').nth(8).waitFor()
  const shoot = (name: string) => page.screenshot({ path: join(SCREENSHOTS, name) })
  await shoot('accounts-light.png')
  await page.emulateMedia({ colorScheme: 'dark' })
  await page.getByRole('button', { name: 'Revoke' }).first().click()
  await shoot('accounts-dark.png')
  await page.getByRole('button', { name: 'Cancel' }).click()
  await page.setViewportSize({ width: 390, height: 844 })
  await shoot('accounts-phone.png')
  await close()
})
