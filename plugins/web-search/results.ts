/**
 * Makes a provider's results safe to use, whatever it sends: only pages of the domains that the client asked for,
 * limited in number and length.
 */
import type { SearchResult, SearchTool } from '../../core/canon/conversation.ts'

/** In UTF-16 units. */
const MAX_TITLE = 300
const MAX_URL = 2048
const MAX_TEXT = 2000
/** The most results, by the client's `search_context_size`. */
const MOST: Record<'low' | 'medium' | 'high', number> = { low: 3, medium: 5, high: 10 }

/** The most results that one search gives. */
export function mostResults(tool: SearchTool): number {
  return MOST[tool.contextSize ?? 'medium']
}

/** @param found a provider's answer; it may not have the form that its type promises */
export function usableResults(found: unknown, tool: SearchTool): SearchResult[] {
  if (!Array.isArray(found)) return []
  const most = mostResults(tool)
  const kept: SearchResult[] = []
  const seen = new Set<string>()
  for (const entry of found as unknown[]) {
    if (kept.length === most) break
    const result = usable(entry)
    if (!result || seen.has(result.url) || !isWanted(result.url, tool)) continue
    seen.add(result.url)
    kept.push(result)
  }
  return kept
}

function usable(entry: unknown): SearchResult | null {
  if (typeof entry !== 'object' || entry === null) return null
  const { title, url, text, pageAge } = entry as Record<string, unknown>
  if (typeof url !== 'string' || url.length > MAX_URL || !/^https?:\/\/\S+$/i.test(url) || !URL.canParse(url))
    return null
  const result: SearchResult = {
    title: typeof title === 'string' ? cut(title, MAX_TITLE) : '',
    url: url.toWellFormed(),
  }
  if (typeof text === 'string' && text !== '') result.text = cut(text, MAX_TEXT)
  if (typeof pageAge === 'string') result.pageAge = cut(pageAge, MAX_TITLE)
  return result
}

function cut(text: string, most: number): string {
  return (text.length > most ? `${text.slice(0, most)}…` : text).toWellFormed()
}

function isWanted(url: string, { allowedDomains, blockedDomains }: SearchTool): boolean {
  const page = new URL(url)
  if (allowedDomains?.length && !allowedDomains.some(domain => isOf(page, domain))) return false
  return !blockedDomains?.some(domain => isOf(page, domain))
}

/**
 * Whether a page belongs to a domain as the APIs write it: `example.com` includes its subdomains, `example.com/docs`
 * the paths below it. A scheme in front, and a `*` at the end of a path, are ignored.
 */
export function isOf(page: URL, domain: string): boolean {
  const bare = domain
    .trim()
    .toLowerCase()
    .replace(/^https?:\/\//, '')
  const slash = bare.indexOf('/')
  const host = (slash === -1 ? bare : bare.slice(0, slash)).replace(/^\*\./, '').replace(/\.$/, '')
  if (host === '') return false
  const pageHost = page.hostname.replace(/\.$/, '')
  if (pageHost !== host && !pageHost.endsWith(`.${host}`)) return false
  const path = slash === -1 ? '' : bare.slice(slash).replace(/\*$/, '').replace(/\/$/, '')
  if (path === '') return true
  const pagePath = page.pathname.toLowerCase()
  return pagePath === path || pagePath.startsWith(`${path}/`)
}
