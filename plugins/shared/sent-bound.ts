/**
 * The last guard before a request goes to a provider: what is sent cannot be much larger than what was counted. Each
 * text of a client is counted where it is sent, and this finds the one that is not (decision 73).
 */
import {
  type Conversation,
  type DocumentPart,
  derived,
  type ImagePart,
  type Part,
} from '../../core/canon/conversation.ts'
import type { Budget } from '../../core/engine/budget.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { dialectOf } from '../../providers/index.ts'
import type { Pieces } from './verbatim.ts'

/**
 * Bytes for each token: the longest token of the vocabulary has 128, and each of its characters may be escaped. Also
 * bytes for each value of the conversation, for the names and ids around it.
 */
const EACH = 256
/** Bytes for each token where schemas are rewritten: they may be four times as long (providers/gemini). */
const EACH_REWRITTEN = 1024
/** What is the same for every request, and bounded by number and length: stop strings, names, controls. */
const REST = 64 * 1024

export const sentBudget: Budget = {
  name: 'sent_bytes',
  bound: 'bytes of a request to a provider, beside its media and private data',
  owner: 'request',
  each: `${EACH} for each token (${EACH_REWRITTEN.toLocaleString('en-US')} where schemas are written anew) and each part, and ${REST / 1024} KiB`,
  over: '500 `internal_error`: a fault of the gateway',
  seen: '`sluice_backend_oversized_requests_total`',
}

/** UTF-8 bytes for a UTF-16 unit. */
const UTF8 = 3
/** Bytes for a UTF-16 unit that is escaped as JSON, twice where JSON is in a JSON string. */
const ESCAPED = 12

/** What a request may have besides its tokens. */
interface Measure {
  /** Turns, parts, results of searches and tools. */
  values: number
  /** Bytes of images and documents, as their own rules count them. */
  media: number
  /** Whether a provider's private data is in it, which `max_replay` bounds. */
  hasPrivate: boolean
}

const measure = derived((conversation): Measure => {
  const { system, turns, tools } = conversation
  const found: Measure = { values: system.length + turns.length + 4 * tools.length, media: 0, hasPrivate: false }
  for (const { parts } of turns) {
    found.values += parts.length
    for (const part of parts) {
      if (part.type === 'image' || part.type === 'document') found.media += mediaSize(part)
      else if (part.type === 'search') found.values += part.results.length
      else if (part.type === 'result') {
        found.values += part.content.length
        for (const inner of part.content) if (inner.type !== 'text') found.media += mediaSize(inner)
      }
      if ('continuation' in part && part.continuation) found.hasPrivate = true
    }
  }
  return found
})

function mediaSize({ source }: ImagePart | DocumentPart): number {
  if (source.kind === 'data') return source.data.length
  return source.kind === 'url' ? source.url.length : ESCAPED * source.text.length
}

/** UTF-16 units of the texts of a conversation. */
const textSize = derived(({ system, turns, tools }): number => {
  let size = 0
  for (const { text } of system) size += text.length
  for (const { parts } of turns) for (const part of parts) size += textOf(part)
  for (const tool of tools) if (tool.type !== 'web_search') size += tool.description?.length ?? 0
  return size
})

function textOf(part: Part): number {
  switch (part.type) {
    case 'text':
    case 'refusal':
      return part.text.length
    case 'call':
      return part.input.length
    case 'result':
      return part.content.reduce((size, inner) => size + textOf(inner), 0)
    default:
      return 0
  }
}

/** A request as it would be sent. */
export interface Written {
  body: string | Pieces
  backend: Backend
  /** What it says. */
  said: Conversation
}

/**
 * Whether a request has more bytes than what was counted allows. For nearly every request it is decided by its length
 * and its tokens alone.
 * @param counted the conversation that was counted; results of the gateway's own searches, which it adds later, are
 * known by their size
 * @param tokens what was counted
 * @param replayBytes the bound on private data
 */
export function exceedsCounted(
  { body, backend, said }: Written,
  counted: Conversation,
  tokens: number,
  replayBytes: number,
): boolean {
  return isOver(body, EACH * tokens + REST) && isOver(body, mostBytes(said, counted, tokens, backend, replayBytes))
}

/** The most bytes that a request may have. */
function mostBytes(
  said: Conversation,
  counted: Conversation,
  tokens: number,
  backend: Backend,
  replayBytes: number,
): number {
  const { values, media, hasPrivate } = measure(said)
  const { turns, tools } = counted
  const added = said.turns === turns && said.tools === tools ? 0 : Math.max(0, textSize(said) - textSize(counted))
  return (
    (dialectOf(backend).rewritesSchemas?.(backend) ? EACH_REWRITTEN : EACH) * tokens +
    EACH * values +
    media +
    ESCAPED * added +
    (hasPrivate ? UTF8 * replayBytes : 0) +
    REST
  )
}

/** Whether a body has more bytes. Its bytes are counted only where its length does not decide. */
function isOver(body: string | Pieces, most: number): boolean {
  const pieces = typeof body === 'string' ? [body] : body
  let bytes = 0
  for (const piece of pieces) bytes += typeof piece === 'string' ? UTF8 * piece.length : piece.length
  if (bytes <= most) return false
  bytes = 0
  for (const piece of pieces) bytes += typeof piece === 'string' ? Buffer.byteLength(piece) : piece.length
  return bytes > most
}
