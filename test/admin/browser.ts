/** A real Chromium (Debian's package chromium-headless-shell, or another) for tests of pages. */
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { findProgram, PACKAGES } from '../ensure-deps.ts'

const program = findProgram(PACKAGES['chromium-headless-shell']!)

/** For `test(name, { skip }, …)`: why these tests can't run here, or false. */
export const skip =
  program === undefined ? 'chromium is not installed: apt-get install -y chromium-headless-shell' : false
if (skip) console.error(`! tests of pages are skipped: ${skip}`)

export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: program!,
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  })
}

export interface Opened {
  page: Page
  /** What the page complained of: errors, refused by its policy, requests to anywhere else. */
  complaints: string[]
  close(): Promise<void>
}

/** A page of its own profile at `url`; it must ask nobody but that origin. */
export async function open(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Opened> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options })
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('pageerror', error => complaints.push(`error: ${error.message}`))
  page.on('console', message => {
    // A status that the page handles is not its error.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      complaints.push(message.text())
  })
  const { origin } = new URL(url)
  page.on('request', request => {
    if (new URL(request.url()).origin !== origin) complaints.push(`asked ${request.url()}`)
  })
  await page.goto(url)
  return { page, complaints, close: () => context.close() }
}
