/** Makes citations and a hosted search from the grounding metadata of a reply. */
import type { SearchResult } from '../../core/canon/conversation.ts'
import type { Citation } from '../../core/canon/events.ts'
import { count, type JsonObject, list, object, string } from '../loose-json.ts'
import type { SearchEnd } from '../search-order.ts'

/** @param text the text to which the metadata's segments refer */
export function citationsOf(metadata: JsonObject, text: string): Citation[] {
  const pages = list(metadata['groundingChunks']).map(pageOf)
  const citations: Citation[] = []
  for (const support of list(metadata['groundingSupports']).map(object)) {
    const place = segmentPlace(object(support['segment']), text)
    const cited = new Set<string>()
    for (const index of list(support['groundingChunkIndices'])) {
      const page = typeof index === 'number' ? pages[index] : undefined
      if (!page || cited.has(page.url)) continue
      cited.add(page.url)
      citations.push({ ...page, ...place })
    }
  }
  return citations
}

/**
 * All searches of a reply as one, because the metadata does not say which query found which source. Undefined when
 * there was no search.
 */
export function searchOf(metadata: JsonObject): SearchEnd | undefined {
  const queries = list(metadata['webSearchQueries'])
    .map(string)
    .filter(query => query !== '')
  const results = new Map<string, SearchResult>()
  for (const chunk of list(metadata['groundingChunks'])) {
    const page = pageOf(chunk)
    if (page && !results.has(page.url)) results.set(page.url, page)
  }
  if (queries.length === 0 && results.size === 0) return undefined
  return { query: queries.join('; '), results: [...results.values()] }
}

/**
 * The API gives pages as links through this host. Such a link names the provider (GEN-7), expires, and reveals the
 * page only when it is followed.
 */
const REDIRECTS = 'vertexaisearch.cloud.google.com'
const HOST = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$/i

/**
 * The page of a chunk. For a redirect only the site is known, from `domain`, or from a title that is a host name.
 * Undefined without either.
 */
function pageOf(chunk: unknown): { title: string; url: string } | undefined {
  const web = object(object(chunk)['web'])
  const title = string(web['title'])
  const url = string(web['uri'])
  if (!URL.canParse(url)) return undefined
  const { hostname } = new URL(url)
  if (hostname !== REDIRECTS && !hostname.endsWith(`.${REDIRECTS}`)) return { title, url }
  const site = [string(web['domain']), title].map(name => name.trim()).find(name => HOST.test(name))
  return site === undefined ? undefined : { title, url: `https://${site.toLowerCase()}/` }
}

/**
 * Converts the place of a segment. Its offsets count UTF-8 bytes of the provider's part; the gateway's count UTF-16
 * units of the text block. When the text at the offsets is not the segment's own text, the block is searched for the
 * segment's text.
 */
function segmentPlace(segment: JsonObject, text: string): Pick<Citation, 'start' | 'end' | 'citedText'> {
  const cited = string(segment['text'])
  const endByte = count(segment['endIndex'])
  if (endByte !== undefined) {
    const bytes = Buffer.from(text, 'utf8')
    const start = bytes.subarray(0, count(segment['startIndex']) ?? 0).toString('utf8').length
    const end = bytes.subarray(0, endByte).toString('utf8').length
    const found = text.slice(start, end)
    if (cited === '' || found === cited) return { start, end, citedText: found }
  }
  const start = cited === '' ? -1 : text.indexOf(cited)
  if (start !== -1) return { start, end: start + cited.length, citedText: cited }
  return cited === '' ? {} : { citedText: cited }
}
