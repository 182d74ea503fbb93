/**
 * The dashboard's files, read once and served from memory. The page loads nothing from elsewhere, and the content
 * security policy makes the browser enforce that.
 */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

export interface Page {
  type: string
  body: Buffer
}

export const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const TYPES: Record<string, string> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  mjs: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}

const FILES = [
  'index.html',
  'accounts.html',
  'usage.html',
  'tokens.css',
  'style.css',
  'icon.svg',
  'app.mjs',
  'account-page.mjs',
  'account-view.mjs',
  'accounts.mjs',
  'api.mjs',
  'backends.mjs',
  'chains.mjs',
  'charts.mjs',
  'csv.mjs',
  'dialog.mjs',
  'dom.mjs',
  'exchanges.mjs',
  'feed.mjs',
  'format.mjs',
  'history.mjs',
  'key-dialogs.mjs',
  'login.mjs',
  'organization-dialogs.mjs',
  'outcomes.mjs',
  'overview.mjs',
  'past-requests.mjs',
  'period.mjs',
  'request-view.mjs',
  'state.mjs',
  'theme.mjs',
  'timeline.mjs',
  'usage-chart.mjs',
  'usage-page.mjs',
  'usage-state.mjs',
  'usage-sums.mjs',
]

/** The files by request path: `/` and `/dashboard/…`. */
export function dashboardPages(): ReadonlyMap<string, Page> {
  const pages = new Map<string, Page>()
  const folder = join(import.meta.dirname, 'dashboard')
  for (const name of FILES) pages.set(`/dashboard/${name}`, page(join(folder, name)))
  pages.set('/', pages.get('/dashboard/index.html')!)
  const uplot = dirname(createRequire(import.meta.url).resolve('uplot/package.json'))
  pages.set('/dashboard/uplot.mjs', { type: TYPES['mjs']!, body: readFileSync(join(uplot, 'dist/uPlot.esm.js')) })
  pages.set('/dashboard/uplot.css', page(join(uplot, 'dist/uPlot.min.css')))
  return pages
}

function page(file: string): Page {
  return { type: TYPES[file.slice(file.lastIndexOf('.') + 1)]!, body: readFileSync(file) }
}
