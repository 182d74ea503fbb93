/** Prompt cache markers (`cache_control`). The API accepts at most four in a request. */
import { type JsonObject, object } from '../loose-json.ts'

const MOST = 4

/** Gives out the cache markers of one request. */
export class CacheMarkers {
  #left = MOST

  /** True once a marker of the client is in the request. */
  get used(): boolean {
    return this.#left < MOST
  }

  /** The member for a client's marker; undefined when there is no marker, or when four are used already. */
  marker(cache: { ttl?: string } | undefined): JsonObject | undefined {
    if (!cache || this.#left === 0) return undefined
    this.#left--
    // `ttl` is the only option of the published API; options such as `scope` are additions of some clients.
    return cache.ttl === '1h' || cache.ttl === '5m' ? { type: 'ephemeral', ttl: cache.ttl } : { type: 'ephemeral' }
  }
}

/** A token has seldom more than four characters, so this counts too few tokens rather than too many. */
const CHARACTERS_A_TOKEN = 4
/** What one page of a PDF costs at least (Anthropic's page on PDF support). */
const PAGE_TOKENS = 1500

/**
 * The blocks that may carry a marker: not thinking, and not the blocks of a hosted search, which are stored objects
 * that go back unchanged.
 */
const MARKABLE: ReadonlySet<unknown> = new Set(['text', 'image', 'document', 'tool_use', 'tool_result'])

/** The parts of a request in the order of the prompt. */
export interface PromptParts {
  tools: JsonObject[]
  system: JsonObject[]
  messages: { role: string; content: JsonObject[] }[]
}

/**
 * Marks what later requests of the same client can read from the cache, for clients whose API has no markers. At most
 * four markers are set:
 *
 * - after the tools and after the system text, which other conversations share too;
 * - once the assistant has spoken, at the end of the conversation, which the next request repeats; and where the
 *   request before ended. The API looks for a stored prefix at most 20 blocks before a marker, and a turn can have more.
 *
 * A conversation that the assistant has no part in yet may be the only request, and its end would be written for
 * nothing.
 * @param minimum prefixes of fewer tokens than this are not cached by the model, and are not marked
 */
export function markPrefixes({ tools, system, messages }: PromptParts, minimum: number): void {
  const enough = minimum * CHARACTERS_A_TOKEN
  let size = 0
  for (const blocks of [tools, system]) {
    size += sizeOf(blocks, enough - size)
    if (size >= enough) mark(blocks.at(-1))
  }

  const last = messages.findLastIndex(message => message.role !== 'system' && markable(message.content) !== undefined)
  const reply = messages.findLastIndex(({ role }, index) => role === 'assistant' && index <= last)
  if (reply === -1) return
  const before = messages.findLastIndex(({ role }, index) => role === 'user' && index < reply)
  for (const [index, { content }] of messages.entries()) {
    size += sizeOf(content, enough - size)
    if (size >= enough && (index === last || index === before)) mark(markable(content))
  }
}

/** The last block of a message that may carry a marker. */
function markable(content: readonly JsonObject[]): JsonObject | undefined {
  return content.findLast(block => MARKABLE.has(block['type']))
}

function mark(block: JsonObject | undefined): void {
  if (block) block['cache_control'] = { type: 'ephemeral' }
}

/**
 * The characters of all texts and names in a JSON value, at least up to `enough`: what comes after that many need not
 * be looked at. Images count nothing, since only their pixels tell their tokens, and a PDF counts one page.
 */
function sizeOf(value: unknown, enough: number): number {
  let size = 0
  // A list instead of recursion: the nesting of a tool's schema is the client's.
  const open = [value]
  while (open.length > 0 && size < enough) {
    const next = open.pop()
    if (typeof next === 'string') size += next.length
    else if (Array.isArray(next)) for (let i = next.length - 1; i >= 0; i--) open.push(next[i])
    else if (typeof next === 'object' && next !== null) {
      const media = next as JsonObject
      const source = object(media['source'])['type']
      if (source === 'base64' || source === 'url') {
        if (media['type'] === 'document') size += PAGE_TOKENS * CHARACTERS_A_TOKEN
        continue
      }
      for (const [name, inner] of Object.entries(next)) {
        if (inner === undefined) continue
        size += name.length
        open.push(inner)
      }
    }
  }
  return size
}
