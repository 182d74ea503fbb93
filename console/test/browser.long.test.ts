/** The console in a real Chromium: the first minutes by keyboard, and every page on its width, in its colours, for axe. */
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { launch, type Opened, open, skip } from '../../test/admin/browser.ts'
import type { TestGateway } from '../../test/e2e/harness.ts'
import { PAGES } from '../pages.ts'
import { beginSession } from '../people/sessions.ts'
import { faultsOf, fitsItsWidth, nothingTouches, withholdScripts } from './axe.ts'
import { firstLink } from './first-minutes.ts'
import { gatewayForConsole, startConsole, type TestConsole } from './kit.ts'
import { LOOKS, nameOf, OPPOSITES, SCRIPTED, STORIES } from './looks.ts'

/** Where `SLUICE_SCREENSHOTS=1` writes the pictures of docs/console.md. */
const SCREENSHOTS = process.env['SLUICE_SCREENSHOTS'] ? join(import.meta.dirname, '../../docs/screenshots') : undefined

const DESKTOP = LOOKS[0]!

const GET = PAGES.flatMap(({ routes }) => routes).filter(({ method, scope }) => method === 'GET' && scope !== 'machine')
/** Paths of all pages, made from the routes: a new page is in it by itself. */
const SIGNED_IN = [...GET.filter(({ scope }) => scope !== 'public').map(({ path }) => path), '/?all', '/nowhere']
const SIGNED_OUT = GET.filter(({ scope }) => scope === 'public').map(({ path }) => path)

/** Marks what a page has for a reader to use. @returns how much there is */
const REACH = `(() => {
  let count = 0
  const radios = new Set()
  for (const e of document.querySelectorAll('a[href], button, input, select, textarea, summary')) {
    if (e.disabled || e.type === 'hidden' || !e.checkVisibility()) continue
    // The keyboard reaches one of the radio buttons with a name, and the others by its arrows.
    if (e.type === 'radio' && (radios.has(e.name) || (document.querySelector('[name="' + e.name + '"]:checked') ?? e) !== e)) continue
    if (e.type === 'radio') radios.add(e.name)
    e.setAttribute('data-missed', String(count++))
  }
  return count
})()`
/** Where the focus is, and whether it can be seen; empty outside of what is marked. What was marked is so no more. */
const FOCUSED = `(() => {
  const e = document.activeElement
  const at = e?.getAttribute('data-missed')
  if (at == null) return ''
  e.removeAttribute('data-missed')
  const { outlineStyle, boxShadow } = getComputedStyle(e)
  return at + (outlineStyle !== 'none' || boxShadow !== 'none' ? ' shown' : ' hidden')
})()`

let gateway: TestGateway
let browser: Browser
before(async () => {
  if (skip) return
  gateway = await gatewayForConsole()
  browser = await launch()
  if (SCREENSHOTS) mkdirSync(SCREENSHOTS, { recursive: true })
})
after(async () => {
  await browser?.close()
  await gateway?.close()
})

let count = 0
/** A console that nobody has opened yet, with an organization of its own. */
const freshConsole = () =>
  startConsole(gateway, { yaml: `first_organization: { id: first-${++count}, name: Acme, plan: beta }` })

// With a pointer week.long.test.ts goes through them.
describe('the first minutes with the keyboard alone: from the link to a key of one’s own', { skip }, () => {
  for (const look of STORIES)
    test(nameOf(look), async () => {
      const c = await freshConsole()
      const { page, complaints, close } = await open(browser, firstLink(c.lines.join('\n')), look)
      /** Goes on with Tab until an element is focused. */
      const tabTo = async (wanted: string) => {
        for (let i = 0; i < 60; i++) {
          await page.keyboard.press('Tab')
          const name = (await page.evaluate(
            '(e => e.labels?.[0]?.textContent.trim() || e.textContent.trim())(document.activeElement)',
          )) as string
          if (name === wanted) return
        }
        assert.fail(`no Tab leads to ${wanted}`)
      }
      try {
        await tabTo('Your e-mail address')
        await page.keyboard.type('ada@example.com')
        await tabTo('Your name')
        await page.keyboard.type('Ada')
        await page.keyboard.press('Enter')
        await page.getByRole('heading', { name: 'Acme' }).waitFor()
        await tabTo('Skip to the page')
        await page.keyboard.press('Enter')
        await tabTo('Make a key')
        await page.keyboard.press('Enter')
        await page.getByRole('heading', { name: 'Make a key' }).waitFor()
        await tabTo('Label')
        await page.keyboard.type('by keyboard')
        await page.keyboard.press('Enter')
        await page.getByRole('heading', { name: 'Your new key' }).waitFor()
        if (look.javaScriptEnabled) {
          await tabTo('Copy the key')
          await tabTo('Copy the request')
        }
        await tabTo('Go to the keys')
        await page.keyboard.press('Enter')
        await page.getByRole('link', { name: 'by keyboard' }).waitFor()
        assert.deepEqual(complaints, [])
      } finally {
        await close()
        await c.close()
      }
    })
})

describe('every page', { skip }, () => {
  let c: TestConsole
  let cookie: string
  let key: string
  before(async () => {
    c = await startConsole(gateway, { yaml: 'signup: waitlist' })
    await c.organization('oak', 'tier1')
    const owner = await c.member('oak', 'owner@example.com', 'owner')
    await c.console.parts.db.updateTable('person').set({ staff: 1 }).execute()
    cookie = owner.cookies.get('sluice-session')!
    await c.member('oak', 'developer@example.com', 'developer')
    await owner.send('/o/oak/members', '/o/oak/members/invite', { email: 'invited@example.com', role: 'billing' })
    for (const label of ['production', 'CI of the mobile app']) {
      await owner.get('/o/oak/keys/new')
      key = owner.field('id')
      const seen = await owner.post('/o/oak/keys/new', { id: key, label, requests_per_minute: '30' })
      const secret = /<code id="secret">([^<]+)/.exec(seen.body)![1]!
      const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hello' }] }
      const reply = await gateway.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
      await reply.text()
    }
  })
  after(async () => {
    await c?.close()
  })

  async function pageAt(path: string, options: BrowserContextOptions, signedIn = true): Promise<Opened> {
    const opened = await open(browser, `${c.url}/healthz`, options)
    if (signedIn) await opened.page.context().addCookies([{ name: 'sluice-session', value: cookie, url: c.url }])
    await opened.page.goto(c.url + path)
    return opened
  }

  const pathOf = (path: string) =>
    path.replace(/:(\w+)/g, (_, name: string) => ({ organization: 'oak', id: 'oak', key })[name] ?? 'none')

  /** Goes to a path. @returns false where it is no page, but a file, or leads to another one */
  async function isPage(page: Page, path: string): Promise<boolean> {
    const answer = await page.context().request.get(c.url + path, { maxRedirects: 0 })
    if (answer.status() === 303 || !answer.headers()['content-type']?.startsWith('text/html')) return false
    await page.goto(c.url + path)
    return true
  }

  for (const look of OPPOSITES)
    test(`${nameOf(look)}: Tab alone leads to all that a page has to use, and shows where it is`, async () => {
      const { page, close } = await pageAt('/o/oak', look)
      try {
        let pages = 0
        for (const path of SIGNED_IN.map(pathOf)) {
          if (!(await isPage(page, path))) continue
          pages++
          const missed = (await page.evaluate(REACH)) as number
          const seen = new Set<string>()
          // A field for a date takes a Tab for each of its parts.
          for (let i = 0; i < 4 * missed + 5 && seen.size < missed; i++) {
            await page.keyboard.press('Tab')
            const at = (await page.evaluate(FOCUSED)) as string
            if (at === '') continue
            assert.match(at, / shown$/, `${path}: the focus cannot be seen`)
            seen.add(at)
          }
          assert.deepEqual(
            await page.evaluate('[...document.querySelectorAll("[data-missed]")].map(e => e.outerHTML)'),
            [],
            path,
          )
          assert.ok(seen.size > 0, path)
        }
        assert.ok(pages >= 18, String(pages))
      } finally {
        await close()
      }
    })

  for (const look of STORIES)
    test(`${nameOf(look)}: axe finds nothing, nothing is too wide`, async () => {
      const { page, complaints, close } = await pageAt('/o/oak', { ...look, javaScriptEnabled: true })
      if (!look.javaScriptEnabled) await withholdScripts(page)
      try {
        const looked = new Set<string>()
        for (const path of SIGNED_IN.map(pathOf)) {
          if (!(await isPage(page, path))) continue
          looked.add(path)
          assert.deepEqual(await faultsOf(page), [], path)
          await fitsItsWidth(page, path)
          await nothingTouches(page, path)
          const name = path.replace(/\/o\/oak\/?|[/?]/g, '') || 'overview'
          if (
            SCREENSHOTS &&
            SCRIPTED.includes(look) &&
            ['overview', 'keys', 'usage', 'limits', 'requests', 'members'].includes(name)
          )
            await page.screenshot({ path: join(SCREENSHOTS, `console-${name}-${look.viewport.width}.png`) })
        }
        await page.context().clearCookies()
        for (const path of SIGNED_OUT.map(pathOf)) {
          if (!(await isPage(page, path))) continue
          looked.add(path)
          assert.deepEqual(await faultsOf(page), [], path)
          await fitsItsWidth(page, path)
          await nothingTouches(page, path)
        }
        // Neither of these is a file or leads elsewhere.
        const some = ['/o/oak', `/o/oak/keys/${key}`, '/o/oak/usage', '/o/oak/requests', '/o/oak/billing', '/?all']
        some.push('/account', '/account/app', '/staff', '/staff/people', '/staff/organizations/oak', '/nowhere')
        some.push('/sign-in', '/waiting', '/sign-in/link/none')
        assert.deepEqual(
          some.filter(path => !looked.has(path)),
          [],
        )
        assert.deepEqual(complaints, [])
      } finally {
        await close()
      }
    })

  for (const look of STORIES)
    test(`${nameOf(look)}: the playground shows a reply, while it comes where there are scripts`, async () => {
      const { page, complaints, close } = await pageAt('/o/oak/playground', look)
      try {
        await page.getByLabel('Message').fill('[[sim: text "All is well."]] How is it?')
        await page.getByRole('button', { name: 'Send' }).click()
        await page.getByText('All is well.', { exact: true }).waitFor()
        if (look.javaScriptEnabled) await page.getByText(/^Done\. \d+ tokens in, \d+ out\.$/).waitFor()
        await fitsItsWidth(page, 'the playground with a reply')
        assert.deepEqual(complaints, [])
      } finally {
        await close()
      }
    })

  test('the playground stops when it is told to, and says what is refused', async () => {
    const { page, close } = await pageAt('/o/oak/playground', DESKTOP)
    try {
      await page.getByLabel('Message').fill('[[sim: delay 60s; tokens 2000]] slowly')
      // Three times: what was stopped keeps its place until the gateway has read it to its end.
      for (const _ of [1, 2, 3]) {
        await page.getByRole('button', { name: 'Send' }).click()
        await page.getByRole('button', { name: 'Stop' }).click()
        await page.getByText('Stopped.').waitFor()
      }
      await page.getByLabel('Model').fill('no-such-model')
      await page.getByRole('button', { name: 'Send' }).click()
      await page
        .getByText(/no-such-model/)
        .first()
        .waitFor()
    } finally {
      await close()
    }
  })

  test('the policy stops a script that got into a page', async () => {
    const { page, close } = await pageAt('/o/oak', DESKTOP)
    try {
      const blocked = page.evaluate(
        'new Promise(done => addEventListener("securitypolicyviolation", e => done(e.violatedDirective)))',
      )
      await page.evaluate('document.body.insertAdjacentHTML("beforeend", "<img src=x onerror=window.taken=1>")')
      assert.match((await blocked) as string, /script-src|img-src/)
      assert.equal(await page.evaluate('window.taken'), undefined)
    } finally {
      await close()
    }
  })

  for (const look of SCRIPTED)
    test(`${nameOf(look)}: a passkey is added, signs in without a mail, and is removed`, async () => {
      // A passkey belongs to a name, so this console is at localhost.
      const named = await startConsole(gateway, { at: 'localhost' })
      const person = await named.person('ada@example.com')
      const { page, complaints, close } = await open(browser, `${named.url}/healthz`, look)
      try {
        const devtools = await page.context().newCDPSession(page)
        await devtools.send('WebAuthn.enable')
        await devtools.send('WebAuthn.addVirtualAuthenticator', {
          options: {
            ...{ protocol: 'ctap2', transport: 'internal', hasResidentKey: true },
            ...{ hasUserVerification: true, isUserVerified: true },
          },
        })
        const value = person.cookies.get('sluice-session')!
        await page.context().addCookies([{ name: 'sluice-session', value, url: named.url }])
        await page.goto(`${named.url}/account`)
        await page.getByLabel('Name of the new passkey').fill('Laptop')
        await page.getByRole('button', { name: 'Add a passkey' }).click()
        await page.getByRole('cell', { name: 'Laptop' }).first().waitFor()
        await page.context().clearCookies()
        await page.goto(`${named.url}/sign-in?next=/account`)
        await page.getByRole('button', { name: 'Sign in with a passkey' }).click()
        await page.getByRole('heading', { name: 'Your account' }).waitFor()
        // In place of a code, where a link has been the first factor.
        await page.context().clearCookies()
        const device = { address: '127.0.0.1', agent: 'test' }
        const half = { person: person.id, means: 'link', complete: false }
        const pending = await beginSession(named.console.parts.db, half, device, Date.now())
        await page.context().addCookies([{ name: 'sluice-session', value: pending, url: named.url }])
        await page.goto(`${named.url}/sign-in/second?next=/account`)
        await page.getByRole('button', { name: 'Use a passkey' }).click()
        await page.getByRole('button', { name: 'Remove Laptop' }).click()
        await page.getByText('The passkey is removed.').waitFor()
        await page.getByRole('button', { name: 'Sign out' }).click()
        await page.getByRole('button', { name: 'Sign in with a passkey' }).click()
        await page.getByText('This passkey is not known here.').waitFor()
        assert.deepEqual(complaints, [])
      } finally {
        await close()
        await named.close()
      }
    })
})
