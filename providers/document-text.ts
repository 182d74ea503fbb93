/** Text forms of content that a dialect cannot carry otherwise (wire.md F.3, F.8). */
import type { DocumentPart, ResultPart, SearchPart } from '../core/canon/conversation.ts'
import { resultsOf } from '../core/ports/search.ts'

/**
 * A line before a document with its title and context, for dialects that have no members for them; '' when the client
 * gave neither.
 */
export function documentLine(document: DocumentPart): string {
  const parts = []
  if (document.title) parts.push(document.title)
  if (document.context) parts.push(document.context)
  return parts.length === 0 ? '' : `[document: ${oneLine(parts.join('; '))}]`
}

/** A text document after its title line. */
export function documentText(document: DocumentPart, text: string): string {
  const line = documentLine(document)
  return line === '' ? text : `${line}\n${text}`
}

/** A hosted search as text, for a model that did not run it. */
export function searchText(search: SearchPart): string {
  const lines = [`[web search: ${oneLine(search.query)}]`]
  if (search.errorCode !== undefined) lines.push('The search failed.')
  for (const result of resultsOf(search)) {
    lines.push(`- ${oneLine(result.title)} ${result.url}`)
    if (result.text) lines.push(`  ${oneLine(result.text)}`)
  }
  return lines.join('\n')
}

/** System text in the middle of a conversation, for models that accept it only inside a user message. */
export function systemTag(text: string): string {
  return `<system>\n${text}\n</system>`
}

/** The prefix of a failed tool's result, in dialects that have no member for failure. */
export const TOOL_ERROR = '[tool error]\n'

/** All text of a result, each part on a new line. Media parts are left out. */
export function resultText(result: ResultPart): string {
  const texts = []
  for (const part of result.content) {
    if (part.type === 'text') texts.push(part.text)
    else if (part.type === 'document' && part.source.kind === 'text') texts.push(documentText(part, part.source.text))
  }
  return texts.join('\n')
}

function oneLine(text: string): string {
  return text.replaceAll('\n', ' ')
}
