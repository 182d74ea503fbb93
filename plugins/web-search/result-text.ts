/** What the model gets as the result of a search: the text of a tool result. */
import type { SearchResult } from '../../core/canon/conversation.ts'
import type { SearchErrorCode } from '../../core/ports/search.ts'

/** The query is not repeated: it is in the call, and what a client replays counts once. */
export function resultsText(results: readonly SearchResult[]): string {
  if (results.length === 0) return 'The search found nothing.'
  const lines: string[] = []
  for (const [i, { title, url, text, pageAge }] of results.entries()) {
    if (i > 0) lines.push('')
    lines.push(`[${i + 1}] ${oneLine(title)}${pageAge ? ` (${oneLine(pageAge)})` : ''}`, url)
    if (text) lines.push(text)
  }
  return lines.join('\n')
}

const ERRORS: Record<SearchErrorCode, string> = {
  unavailable: 'The search could not be made. Answer without it, and say so.',
  too_many_requests: 'Too many searches are made at present. Answer without this one, and say so.',
  max_uses_exceeded: 'No more searches are allowed for this request. Answer with what is known.',
  invalid_tool_input: 'The search had no query. Give it as {"query": "…"}.',
  query_too_long: 'The query is too long. Use a few words.',
}

/** @param code may be any word, because replayed searches carry what a client sent */
export function errorText(code: SearchErrorCode): string {
  return Object.hasOwn(ERRORS, code) ? ERRORS[code] : ERRORS.unavailable
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim()
}
