/** Reads the system text, messages and content blocks of a Messages body (wire.md B.3). */

import {
  type CallPart,
  type DocumentPart,
  type ImagePart,
  type Part,
  type ResultPart,
  type SearchPart,
  type SearchResult,
  type TextPart,
  type Turn,
  TurnList,
} from '../../core/canon/conversation.ts'
import { appendAll } from '../../core/tools/append.ts'
import { describe, fault } from '../check.ts'
import { documentData, httpsSource, imageData } from '../media.ts'
import { isObject, listOf, stringOf } from '../unchecked.ts'
import type { CacheMarker, Reading } from './reading.ts'
import type { Block, Message, MessagesBody, Source } from './schema.ts'

/** A handle of this gateway, as opposed to a provider's own signature (wire.md F.7). */
const GATEWAY_HANDLE = /^[a-z]+_eba1_[A-Za-z0-9_-]+$/

/** The beginning of the system block in which Claude Code sends its own billing data (wire.md H). */
const BILLING_HEADER = 'x-anthropic-billing-header:'

/** Reads the turns of one body. */
export class BlockReader {
  readonly turns = new TurnList()
  /** Whether the turns have a compaction. */
  sealed = false
  readonly #reading: Reading
  /** Hosted searches by id. The block with a search's results comes later in the message. */
  readonly #searches = new Map<string, SearchPart>()

  constructor(reading: Reading) {
    this.#reading = reading
  }

  /** Reads the top-level `system`. */
  system(system: MessagesBody['system']): void {
    this.turns.push('system', this.#system(system))
  }

  #system(system: MessagesBody['system']): TextPart[] {
    if (typeof system === 'string') return [textPart(system)]
    const parts: TextPart[] = []
    const blocks = listOf(system)
    for (let i = 0; i < blocks.length; i++) {
      const block = blocks[i]
      if (!isObject(block)) continue
      const part = this.#text(block, `system[${i}]`)
      if (part.text.startsWith(BILLING_HEADER)) part.meteredOnly = true
      parts.push(part)
    }
    return parts
  }

  /** Reads one entry of `messages`. */
  message(message: Message, path: string): void {
    if (typeof message === 'string') this.turns.push('user', [textPart(message)])
    if (!isObject(message)) return
    const role = message.role === 'assistant' || message.role === 'system' ? message.role : 'user'
    const content = message.content
    if (typeof content === 'string') {
      this.turns.push(role, [textPart(content)])
      return
    }
    let results: ResultPart[] = []
    let parts: Part[] = []
    let compacted = false
    const blocks = listOf(content)
    for (let j = 0; j < blocks.length; j++) {
      const block = blocks[j]
      if (!isObject(block)) continue
      const at = `${path}.content[${j}]`
      if (block.type !== 'compaction') {
        this.#block(block, at, parts, results)
        continue
      }
      compacted = true
      const capsule = this.#capsule(block, at)
      if (!capsule) continue
      this.#turns(role, parts, results)
      this.turns.push('user', [capsule])
      ;[parts, results] = [[], []]
    }
    if (compacted) this.#turns(role, parts, results)
    else if (!this.#turns(role, parts, results)) this.turns.push(role, parts)
  }

  /** Results come first, wherever they stand in the message: they are a turn of their own (wire.md B.6). */
  #turns(role: Turn['role'], parts: Part[], results: ResultPart[]): boolean {
    if (results.length > 0) this.turns.push('tool', results)
    if (parts.length > 0) this.turns.push(role, parts)
    return parts.length > 0 || results.length > 0
  }

  /** The summary of a compaction; undefined for one that failed, which stands for nothing. */
  #capsule(block: Block, path: string): TextPart | undefined {
    const content = stringOf(block.content)
    const sealed = stringOf(block.encrypted_content) ?? ''
    if (content === undefined && sealed === '') return undefined
    this.sealed = true
    const at = { sealed, path: `${path}.encrypted_content` }
    const part: TextPart =
      sealed === ''
        ? { ...textPart(content!), capsule: { ...at, keeps: 'nothing' } }
        : { ...textPart(''), capsule: { ...at, ...(content !== undefined && { claimed: content }) } }
    return this.#marked(part, block, path)
  }

  #block(block: Block, path: string, parts: Part[], results: ResultPart[]): void {
    switch (block.type) {
      case 'tool_use':
        parts.push(this.#call(block, path))
        return
      case 'tool_result':
        results.push(this.#result(block, path))
        return
      case 'thinking':
        this.#thinking(block.signature, stringOf(block.thinking) ?? '', parts)
        return
      case 'redacted_thinking':
        this.#thinking(block.data, '', parts)
        return
      case 'server_tool_use':
        this.#reading.cache(block, path)
        if (block.name === 'web_search') parts.push(this.#search(block))
        else if (!this.#reading.strict) parts.push(textPart(jsonOf(block, path, false)))
        return
      case 'web_search_tool_result':
        this.#reading.cache(block, path)
        this.#searchResult(block, parts)
        return
      default:
        this.#medium(block, path, parts)
    }
  }

  /** Reads a block that may also stand inside a tool result. */
  #medium(block: Block, path: string, parts: Part[]): void {
    switch (block.type) {
      case 'text':
        parts.push(this.#text(block, path))
        return
      case 'image':
        parts.push(this.#image(block, path))
        return
      case 'document':
        this.#document(block, path, parts)
        return
      case 'search_result':
        parts.push(this.#marked(textPart(searchResultText(block)), block, path))
        return
      case 'tool_reference':
        parts.push(this.#marked(textPart(`[tool: ${stringOf(block.tool_name) ?? ''}]`), block, path))
        return
      default:
        // Only count_tokens gets here, with a body that the endpoint would refuse: the text that is there is counted.
        parts.push(textPart(stringOf(block.text) ?? jsonOf(block, path, false)))
    }
  }

  #text(block: Block, path: string): TextPart {
    return this.#marked(textPart(stringOf(block.text) ?? ''), block, path)
  }

  /** Puts the cache marker of a block on its part. */
  #marked<P extends TextPart | ImagePart | DocumentPart>(part: P, block: Block, path: string): P {
    const cache = this.#reading.cache(block, path)
    if (cache) part.cache = cache
    return part
  }

  #image(block: Block, path: string): ImagePart {
    const source: Source = isObject(block.source) ? block.source : {}
    return this.#marked({ type: 'image', source: this.#imageSource(source, `${path}.source`), path }, block, path)
  }

  #imageSource(source: Source, path: string): ImagePart['source'] {
    if (source.type === 'base64') {
      const mediaType = stringOf(source.media_type) ?? ''
      const data = stringOf(source.data) ?? ''
      if (this.#reading.strict) return imageData(mediaType, data, `${path}.media_type`, `${path}.data`)
      return { kind: 'data', mediaType, data }
    }
    return this.#url(source, path)
  }

  #url(source: Source, path: string): ImagePart['source'] {
    const url = stringOf(source.url) ?? ''
    return this.#reading.strict ? httpsSource(url, `${path}.url`) : { kind: 'url', url }
  }

  #document(block: Block, path: string, parts: Part[]): void {
    const source: Source = isObject(block.source) ? block.source : {}
    const at = `${path}.source`
    const images: ImagePart[] = []
    const part: DocumentPart = { type: 'document', source: { kind: 'text', text: '' }, path }
    const data = stringOf(source.data) ?? ''
    switch (source.type) {
      case 'base64': {
        const mediaType = stringOf(source.media_type) ?? ''
        part.source = this.#reading.strict
          ? documentData(mediaType, data, `${at}.data`)
          : { kind: 'data', mediaType, data }
        break
      }
      case 'text':
        part.source = { kind: 'text', text: data }
        break
      case 'content':
        part.source = { kind: 'text', text: this.#documentText(source.content, `${at}.content`, images) }
        break
      default:
        part.source = this.#url(source, at)
    }
    const title = stringOf(block.title)
    if (title) part.title = title
    const context = stringOf(block.context)
    if (context) part.context = context
    parts.push(this.#marked(part, block, path))
    appendAll(parts, images)
  }

  /** The text of a document that is given as blocks. Its images become separate parts after it. */
  #documentText(content: Source['content'], path: string, images: ImagePart[]): string {
    if (typeof content === 'string') return content
    const texts: string[] = []
    const blocks = listOf(content)
    for (let k = 0; k < blocks.length; k++) {
      const block = blocks[k]
      if (!isObject(block)) continue
      if (block.type === 'image') images.push(this.#image(block, `${path}[${k}]`))
      else texts.push(this.#text(block, `${path}[${k}]`).text)
    }
    return texts.join('\n')
  }

  #call(block: Block, path: string): CallPart {
    this.#reading.cache(block, path)
    return {
      type: 'call',
      id: stringOf(block.id) ?? '',
      kind: 'function',
      name: stringOf(block.name) ?? '',
      input: jsonOf(block.input ?? {}, `${path}.input`, this.#reading.strict),
      path,
    }
  }

  #result(block: Block, path: string): ResultPart {
    const content: ResultPart['content'] = []
    if (typeof block.content === 'string') content.push(textPart(block.content))
    else {
      const inner = listOf(block.content)
      for (let k = 0; k < inner.length; k++) {
        const entry = inner[k]
        if (isObject(entry)) this.#medium(entry, `${path}.content[${k}]`, content as Part[])
      }
    }
    const cache = this.#reading.cache(block, path)
    if (cache) markLast(content, cache)
    const part: ResultPart = {
      type: 'result',
      callId: stringOf(block.tool_use_id) ?? '',
      kind: 'function',
      content,
      path,
    }
    if (block.is_error === true) part.isError = true
    return part
  }

  /**
   * Replayed thinking is dropped (MSG-6), unless its token is a handle of this gateway: only then private data is
   * stored for it.
   */
  #thinking(token: unknown, summary: string, parts: Part[]): void {
    if (typeof token !== 'string' || !GATEWAY_HANDLE.test(token)) return
    parts.push({ type: 'reasoning', summary: summary === '' ? [] : [summary], handle: token })
  }

  #search(block: Block): SearchPart {
    const id = stringOf(block.id) ?? ''
    const input = isObject(block.input) ? block.input : {}
    const part: SearchPart = { type: 'search', id, query: stringOf(input.query) ?? '', results: [] }
    this.#searches.set(id, part)
    return part
  }

  #searchResult(block: Block, parts: Part[]): void {
    const id = stringOf(block.tool_use_id) ?? ''
    let part = this.#searches.get(id)
    if (!part) {
      part = { type: 'search', id, query: '', results: [] }
      parts.push(part)
    }
    const content = block.content
    if (isObject(content)) part.errorCode = stringOf(content.error_code) ?? 'unavailable'
    for (const entry of listOf(content)) if (isObject(entry)) part.results.push(searchResult(entry))
  }

  /** Applies the top-level marker, which stands for a marker on the last block (automatic caching). */
  markLast(cache: CacheMarker): void {
    markLast(this.turns.turns.at(-1)?.parts ?? this.turns.system, cache)
  }
}

/**
 * Marks the last part, or the last part inside it when it is a result. A part that cannot carry a marker, or has one,
 * is left alone.
 */
function markLast(parts: Part[], cache: CacheMarker): void {
  const last = parts.at(-1)
  if (last === undefined) return
  if (last.type === 'result') markLast(last.content, cache)
  else if ((last.type === 'text' || last.type === 'image' || last.type === 'document') && !last.cache)
    last.cache = cache
}

function searchResult(entry: Block): SearchResult {
  const result: SearchResult = { title: stringOf(entry.title) ?? '', url: stringOf(entry.url) ?? '' }
  if (typeof entry.page_age === 'string') result.pageAge = entry.page_age
  const token = entry.encrypted_content
  if (typeof token === 'string' && GATEWAY_HANDLE.test(token)) result.handle = token
  return result
}

/** What the client found, as text after a line with its title and source (wire.md B.3). */
function searchResultText(block: Block): string {
  const texts = listOf(block.content).map(inner => (isObject(inner) ? (stringOf(inner.text) ?? '') : ''))
  const head = [stringOf(block.title), stringOf(block.source)].filter(text => text)
  if (head.length > 0) texts.unshift(`[search result: ${head.join('; ').replaceAll('\n', ' ')}]`)
  return texts.join('\n')
}

/**
 * The value as JSON text.
 * @throws GatewayError content_limit_exceeded when a strict reading finds it nested too deeply to be written
 */
function jsonOf(value: unknown, path: string, strict: boolean): string {
  try {
    return JSON.stringify(value)
  } catch {
    if (!strict) return '{}'
    throw fault(
      'content_limit_exceeded',
      path,
      w => `${w} is nested deeper than this service can carry. Send ${describe(value)} with fewer levels.`,
      'max_depth',
    )
  }
}

const textPart = (text: string): TextPart => ({ type: 'text', text })
