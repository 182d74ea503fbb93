/** Text forms of what a dialect can't carry as it is (wire.md F.3, F.8). */
import type { DocumentPart, ResultPart, SearchPart } from '../core/conversation.ts'
import { resultsOf } from '../core/search.ts'

/** One line in front of a document that names it, where the dialect has no members for that; '' when the client gave neither. */
export function documentLine(document: DocumentPart): string {
  const parts = []
  if (document.title) parts.push(document.title)
  if (document.context) parts.push(document.context)
  return parts.length === 0 ? '' : `[document: ${oneLine(parts.join('; '))}]`
}

/** A text document with its title line. */
export function documentText(document: DocumentPart, text: string): string {
  const line = documentLine(document)
  return line === '' ? text : `${line}\n${text}`
}

/** A hosted search as context, for a model that did not run it. */
export function searchText(search: SearchPart): string {
  const lines = [`[web search: ${oneLine(search.query)}]`]
  if (search.errorCode !== undefined) lines.push('The search failed.')
  for (const result of resultsOf(search)) {
    lines.push(`- ${oneLine(result.title)} ${result.url}`)
    if (result.text) lines.push(`  ${oneLine(result.text)}`)
  }
  return lines.join('\n')
}

/** System text in the middle of a conversation, for models that take it only as a user's. */
export function systemTag(text: string): string {
  return `<system>\n${text}\n</system>`
}

/** Prefix of a failed tool's result where the dialect has no member for it. */
export const TOOL_ERROR = '[tool error]\n'

/** All text of a result, one part a line; media parts are left out. */
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
