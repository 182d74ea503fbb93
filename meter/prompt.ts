/**
 * The rule by which the prompt tokens of a conversation are counted (METER-1, METER-3, CNT-1). Any change here changes
 * bills. The golden files in `test/meter/golden/` fix the rule, and docs/metering.md explains it to customers.
 *
 * Only content counts, so that the same conversation has the same count on every surface, in every call and on every
 * machine. Not counted are ids, paths, cache markers, the surface, the model, stop strings, sampling, tool choice, and
 * data that is stored for a provider (continuations, handles).
 *
 *   prompt     3 + the system text, the turns and the tools
 *   system     3 once if there is any system text, + its text
 *   turn       3 + its parts
 *   text       its tokens; each part is counted separately; a refusal counts like a text
 *   image      `image_tokens`, or what its pixels count if that is more (media-size.ts)
 *   document   `document_tokens`, or if that is more: for a text document its tokens, for a PDF what its bytes count;
 *              + title and context
 *   call       3 + name (and namespace) + input, in the form in which it is sent (core/canon/arguments.ts): that of a
 *   function
 *              as compact JSON with numbers as they came if it is valid JSON, because a surface that carries arguments
 *              as an object (Messages) does not keep their white space; otherwise unchanged. The input of a custom tool
 *              counts unchanged, but a text with control characters as JSON writes them
 *   result     3 + its parts, counted as above; a string is one text part
 *   reasoning  its summary, if the client sends it with a handle. Without a handle it cannot be sent to a provider,
 *              so it counts nothing
 *   search     3 + query and each result's title, URL, age and text
 *   tool       7 + name (and namespace), description and
 *                function, native   its schema as compact JSON, members in the order received
 *                custom             its grammar's syntax and definition
 *                web_search         domains, and the user's location as compact JSON; its name is `web_search`
 *   output     structured output: 7 + the description and the schema as compact JSON. Its name does not count, since
 *              only some surfaces have one
 */
import { argumentsOf } from '../core/canon/arguments.ts'
import type { Conversation, DocumentPart, ImagePart, Part, TextPart, Tool } from '../core/canon/conversation.ts'
import { resultsOf } from '../core/ports/search.ts'
import type { KnownPrompt } from './known-prompt.ts'
import { imageTokens, pdfTokens } from './media-size.ts'

/**
 * The tokens that one image counts, and the fewest that one document counts: options of `token-estimate` in
 * gateway.yaml.
 */
export interface MediaMinimums {
  image_tokens: number
  document_tokens: number
}

const REPLY = 3
const MESSAGE = 3
const CALL = 3
const RESULT = 3
const SEARCH = 3
const TOOL = 7

/** What the rule counts in a conversation: texts, and things that count without being text. */
export class PromptContent {
  /** The sum of the constants of the rule, in tokens. */
  fixed = 0
  /** Per image: what it counts by its size. */
  readonly images: number[] = []
  /** The same per document that is not text. */
  readonly documents: number[] = []
  readonly texts: string[] = []
  /** Indexes in `texts` of text documents. Each counts at least `document_tokens`. */
  readonly textDocuments: number[] = []
  /** Number of UTF-16 units of all `texts`. */
  size = 0

  /** The tokens of the prompt. `counts` has the tokens of each of `texts`, in the same order. */
  total(counts: ArrayLike<number>, media: MediaMinimums): number {
    let total = this.fixed
    for (const tokens of this.images) total += Math.max(media.image_tokens, tokens)
    for (const tokens of this.documents) total += Math.max(media.document_tokens, tokens)
    for (let i = 0; i < counts.length; i++) total += counts[i]!
    for (const i of this.textDocuments) total += Math.max(0, media.document_tokens - counts[i]!)
    return total
  }

  add(text: string | undefined): void {
    if (text === undefined || text === '') return
    this.texts.push(text)
    this.size += text.length
  }
}

/** Applies the rule to a conversation. @param known of its last turn */
export function contentOf(conversation: Conversation, known?: KnownPrompt): PromptContent {
  const content = new PromptContent()
  content.fixed = REPLY
  if (conversation.system.length > 0) {
    content.fixed += MESSAGE
    for (const part of conversation.system) content.add(part.text)
  }
  // Tools come before turns, because they are the same in each request of a conversation. The cache of counts looks up
  // rows of texts (count-prompt.ts), and a row that begins at another text is a new row.
  known?.schemas.begin()
  for (const tool of conversation.tools) addTool(content, tool, known)
  const { output } = conversation
  if (output) {
    content.fixed += TOOL
    content.add(output.description)
    if (output.schema) content.add(JSON.stringify(output.schema))
  }
  for (const turn of conversation.turns) {
    content.fixed += MESSAGE
    for (const part of turn.parts) addPart(content, part)
  }
  return content
}

function addPart(content: PromptContent, part: Part): void {
  switch (part.type) {
    case 'text':
    case 'image':
    case 'document':
      return addContent(content, part)
    case 'refusal':
      return content.add(part.text)
    case 'call':
      content.fixed += CALL
      content.add(part.name)
      content.add(part.namespace)
      return content.add(part.kind === 'custom' ? escaped(part.input) : argumentsOf(part))
    case 'result':
      content.fixed += RESULT
      for (const inner of part.content) addContent(content, inner)
      return
    case 'reasoning':
      if (part.handle !== undefined) for (const text of part.summary) content.add(text)
      return
    case 'search':
      content.fixed += SEARCH
      content.add(escaped(part.query))
      // As the model will read them: stored results take the place of what the client replays (decision 48).
      for (const result of resultsOf(part)) {
        content.add(result.title)
        content.add(result.url)
        content.add(result.text)
        content.add(result.pageAge ?? undefined)
      }
  }
}

/**
 * Text that some dialects write into JSON which itself is in a string. A control character takes six characters
 * there, so a text with one counts as JSON writes it. Line breaks, tabs and quotation marks take two; they count as they
 * stand, alike for dialects that send them so.
 */
function escaped(text: string): string {
  return /(?![\t\n\r])\p{Cc}/u.test(text) ? JSON.stringify(text).slice(1, -1) : text
}

function addContent(content: PromptContent, part: TextPart | ImagePart | DocumentPart): void {
  if (part.type === 'text') content.add(part.text)
  else if (part.type === 'image') content.images.push(imageTokens(part.source))
  else {
    const { source } = part
    if (source.kind !== 'text') content.documents.push(pdfTokens(source))
    else if (source.text === '') content.documents.push(0)
    else {
      content.textDocuments.push(content.texts.length)
      content.add(source.text)
    }
    content.add(part.title)
    content.add(part.context)
  }
}

function addTool(content: PromptContent, tool: Tool, known: KnownPrompt | undefined): void {
  content.fixed += TOOL
  if (tool.type === 'web_search') {
    content.add('web_search')
    for (const domain of tool.allowedDomains ?? []) content.add(domain)
    for (const domain of tool.blockedDomains ?? []) content.add(domain)
    if (tool.userLocation) content.add(JSON.stringify(tool.userLocation))
    return
  }
  content.add(tool.name)
  content.add(tool.description)
  if (tool.type !== 'native') content.add(tool.namespace)
  if (tool.type !== 'custom') content.add(schemaText(tool.parameters, known))
  else if (tool.grammar) {
    content.add(tool.grammar.syntax)
    content.add(tool.grammar.definition)
  }
}

function schemaText(schema: object, known: KnownPrompt | undefined): string {
  const text = known?.schemas.find(schema) ?? JSON.stringify(schema)
  known?.schemas.add(schema, text)
  return text
}
