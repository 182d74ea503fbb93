/** What the model gets as the result of a search: the text of a tool result. */
import type { SearchResult } from '../../core/conversation.ts'
import type { SearchErrorCode } from '../../core/search.ts'

export function resultsText(query: string, results: readonly SearchResult[]): string {
  if (results.length === 0) return `No results for: ${query}`
  const lines = [`Results for: ${query}`]
  for (const [i, { title, url, text, pageAge }] of results.entries()) {
    lines.push('', `[${i + 1}] ${oneLine(title)}${pageAge ? ` (${oneLine(pageAge)})` : ''}`, url)
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
  return ERRORS[code] ?? ERRORS.unavailable
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim()
}
