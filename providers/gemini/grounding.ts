/** Grounding metadata of a reply to citations and a hosted search. */
import type { Citation } from '../../core/events.ts'
import { count, type JsonObject, list, object, string } from '../loose-json.ts'
import type { SearchEnd } from '../search-order.ts'

/** @param text the text that the metadata's segments point into */
export function citationsOf(metadata: JsonObject, text: string): Citation[] {
  const chunks = list(metadata['groundingChunks']).map(chunk => object(object(chunk)['web']))
  const citations: Citation[] = []
  for (const support of list(metadata['groundingSupports']).map(object)) {
    const place = segmentPlace(object(support['segment']), text)
    for (const index of list(support['groundingChunkIndices'])) {
      const chunk = typeof index === 'number' ? chunks[index] : undefined
      const url = string(chunk?.['uri'])
      if (url !== '') citations.push({ url, title: string(chunk?.['title']), ...place })
    }
  }
  return citations
}

/** The searches of a reply, as one: the sources are not told apart by query. Undefined when there was none. */
export function searchOf(metadata: JsonObject): SearchEnd | undefined {
  const queries = list(metadata['webSearchQueries'])
    .map(string)
    .filter(query => query !== '')
  const results = []
  for (const chunk of list(metadata['groundingChunks'])) {
    const web = object(object(chunk)['web'])
    const url = string(web['uri'])
    if (url !== '') results.push({ title: string(web['title']), url })
  }
  return queries.length === 0 && results.length === 0 ? undefined : { query: queries.join('; '), results }
}

/** A segment's offsets count UTF-8 bytes of its part; ours count UTF-16 units of the block. The segment's own text decides where they differ. */
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
