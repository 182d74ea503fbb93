/**
 * Answers a request with the reply to the same one of the same organization, for as long as `keep` says.
 *
 *   - routing
 *   - response-cache: { share: 0, keep: 1h }
 *   - admission
 *
 * Two requests are the same when nothing differs that a model could see or that shapes its reply. Whether the client
 * streams makes no difference, and neither do ids of calls, which are new in each reply. Replies are kept in memory, by
 * each process for itself, or in the store for all gateways on it.
 */
import { createHash } from 'node:crypto'
import {
  answerCall,
  type Call,
  type Conversation,
  definePlugin,
  EventRecorder,
  LARGEST_VALUE,
  type Logger,
  type PluginValues,
  Relay,
  type StreamEvent,
  slot,
} from 'sluice'

type Turn = Conversation['turns'][number]
type Part = Turn['parts'][number]

interface Options {
  share: number
  keep: number
  kept_in: 'process' | 'store'
  max_bytes: number
  each: number
  max_reply: number
  max_request: number
}

const identity = slot<{ organization: { id: string } }>('identity')
/** What the header says: the age of the reply in milliseconds, or null where it is a new one. */
const found = slot<number | null>('response-cache.found')

/** What a reply takes beside its events: its key, its places in two maps. */
const ENTRY_BYTES = 512

export default definePlugin<Options>({
  name: 'response-cache',
  summary: 'Answers a request with the reply to the same one of the same organization, without a backend.',
  config: {
    type: 'object',
    additionalProperties: false,
    required: ['share'],
    properties: {
      share: {
        type: 'number',
        minimum: 0,
        maximum: 1,
        description: "The share of the model's price at which a kept reply is billed: 0 is free.",
      },
      keep: { type: 'string', format: 'duration', default: '1h', description: 'How long a reply is kept.' },
      kept_in: {
        type: 'string',
        enum: ['process', 'store'],
        default: 'process',
        description: 'Where replies are kept. In the store all gateways on it share them, and its bounds hold.',
      },
      max_bytes: {
        type: 'string',
        format: 'size',
        default: '64MiB',
        description: 'Most bytes of all replies in the process.',
      },
      each: {
        type: 'string',
        format: 'size',
        default: '8MiB',
        description: 'Most bytes of the replies of one organization in the process.',
      },
      max_reply: {
        type: 'string',
        format: 'size',
        default: '256KiB',
        description: 'Most characters of a reply that is kept.',
      },
      max_request: {
        type: 'string',
        format: 'size',
        default: '512KiB',
        description: 'Most characters of a request that is looked for. A longer one goes to a backend.',
      },
    },
  },
  needs: [identity],
  mayProvide: [found],
  layers: ['call'],
  aboveTerminal: true,
  // A dry run looks in no store.
  dryRun: options => ({ ...options, kept_in: 'process' }),
  check: ({ kept_in: place, each, max_bytes: all, max_reply: reply }) => {
    if (place === 'store')
      return reply > LARGEST_VALUE ? [`max_reply is above 1 MiB, the most of one value of the store`] : []
    return [
      ...(each > all ? [`each is above max_bytes: no organization can have more than all have`] : []),
      ...(reply > each ? [`max_reply is above each: such a reply would never be kept`] : []),
    ]
  },
  create(options, { clock, values, log }) {
    const {
      share,
      keep,
      kept_in: place,
      max_bytes: maxBytes,
      each,
      max_reply: maxReply,
      max_request: maxRequest,
    } = options
    const replies = place === 'store' ? new StoredReplies(values, keep, log) : new Replies(keep, maxBytes, each)
    return {
      callLayer: next => (call, sink) => {
        const wish = call.facts.incoming.headers.get('cache-control') ?? ''
        if (/\bno-store\b/i.test(wish)) return next(call, sink)
        const key = keyOf(call, maxRequest)
        if (key === null) return next(call, sink)
        const owner = call.facts.get(identity).organization.id
        const answer = (kept: Kept | undefined) => {
          call.facts.set(found, kept ? Math.max(0, clock.now() - kept.at) : null)
          if (kept) return answerCall(call, sink, JSON.parse(kept.events.toString()), { by: 'response-cache', share })
          const record = new EventRecorder(sink, maxReply, events => {
            if (events && isWhole(events))
              replies.keep(owner, key, { events: Buffer.from(JSON.stringify(events)), at: clock.now() })
          })
          return next(call, record)
        }
        const kept = /\bno-cache\b/i.test(wish) ? undefined : replies.find(owner, key, clock.now())
        return kept instanceof Promise ? new Relay().makeAfter(kept, sink, answer) : answer(kept)
      },
      onResponseHead(x, head) {
        const age = x.peek(found)
        if (age === undefined) return undefined
        head.headers.set('x-sluice-cache', age === null ? 'miss' : `hit, age_s=${Math.floor(age / 1000)}`)
        return undefined
      },
    }
  },
})

/** A reply that was cut by a cap, or refused, is asked for again. */
function isWhole(events: readonly StreamEvent[]): boolean {
  const last = events.at(-1)
  return last?.type === 'finish' && ['stop', 'stop_sequence', 'tool_calls'].includes(last.reason)
}

interface Kept {
  /** JSON of the events. */
  readonly events: Buffer
  /** When the reply ended, Unix milliseconds. */
  readonly at: number
}

const sizeOf = ({ events }: Kept): number => events.length + ENTRY_BYTES

interface Owned {
  readonly replies: Map<string, Kept>
  bytes: number
}

/**
 * Replies by organization, each bounded in bytes. Both maps have what was used longest ago first. An organization that
 * is above its bound forgets its own oldest reply; where all together are above theirs, the one that asked longest ago
 * does.
 */
class Replies {
  readonly #owners = new Map<string, Owned>()
  readonly #keepMs: number
  readonly #most: number
  readonly #each: number
  #bytes = 0

  constructor(keepMs: number, most: number, each: number) {
    this.#keepMs = keepMs
    this.#most = most
    this.#each = each
  }

  find(owner: string, key: string, now: number): Kept | undefined {
    const owned = this.#owners.get(owner)
    const kept = owned?.replies.get(key)
    if (!owned || !kept) return undefined
    this.#forget(owner, owned, key)
    if (now - kept.at >= this.#keepMs) return undefined
    this.#put(owner, owned, key, kept)
    return kept
  }

  keep(owner: string, key: string, kept: Kept): void {
    const owned = this.#owners.get(owner) ?? { replies: new Map(), bytes: 0 }
    const size = sizeOf(kept)
    if (size > this.#each) return
    this.#forget(owner, owned, key)
    while (owned.bytes + size > this.#each) this.#forgetOldest(owner, owned)
    while (this.#bytes + size > this.#most) this.#forgetOldest(...this.#owners.entries().next().value!)
    this.#put(owner, owned, key, kept)
  }

  #put(owner: string, owned: Owned, key: string, kept: Kept): void {
    const size = sizeOf(kept)
    owned.replies.set(key, kept)
    owned.bytes += size
    this.#bytes += size
    this.#owners.delete(owner)
    this.#owners.set(owner, owned)
  }

  #forgetOldest(owner: string, owned: Owned): void {
    this.#forget(owner, owned, owned.replies.keys().next().value!)
  }

  #forget(owner: string, owned: Owned, key: string): void {
    const kept = owned.replies.get(key)
    if (!kept) return
    const size = sizeOf(kept)
    owned.replies.delete(key)
    owned.bytes -= size
    this.#bytes -= size
    if (owned.replies.size === 0) this.#owners.delete(owner)
  }
}

/** In a value: when the reply ended, a line feed, the events. */
const LINE = 10

/** Replies in the store. Where it does not answer, there are none. */
class StoredReplies {
  readonly #values: PluginValues
  readonly #keepMs: number
  readonly #log: Logger

  constructor(values: PluginValues, keepMs: number, log: Logger) {
    this.#values = values
    this.#keepMs = keepMs
    this.#log = log
  }

  async find(owner: string, key: string): Promise<Kept | undefined> {
    try {
      const value = await this.#values.get(owner, key)
      if (!value) return undefined
      const bytes = Buffer.from(value.buffer, value.byteOffset, value.length)
      const end = bytes.indexOf(LINE)
      return { at: Number(bytes.toString('latin1', 0, end)), events: bytes.subarray(end + 1) }
    } catch (error) {
      this.#log.warn({ err: error }, 'no reply could be looked for')
      return undefined
    }
  }

  keep(owner: string, key: string, { at, events }: Kept): void {
    const value = Buffer.concat([Buffer.from(`${at}\n`), events])
    this.#values
      .put(owner, key, value, this.#keepMs)
      .catch(error => this.#log.warn({ err: error }, 'a reply could not be kept'))
  }
}

/**
 * @returns a digest of what the reply depends on; null where it depends on more than the request (a search, a file
 * behind a URL), where there is none to keep, or where it is longer than `most` characters
 */
function keyOf({ asked, input }: Call, most: number): string | null {
  // A token has a character at least.
  if (input > most || asked.turns.length === 0 || asked.compaction || asked.generate === false) return null
  if (asked.tools.some(({ type }) => type === 'web_search')) return null
  const text = new RequestText(most).of(asked)
  return text === null ? null : createHash('sha256').update(text).digest('base64')
}

/** Writes a request as text, so that two texts are the same only where the requests are. */
class RequestText {
  #left: number
  /** Ids of calls and searches by the order in which they come. */
  readonly #ids = new Map<string, number>()

  constructor(most: number) {
    this.#left = most
  }

  of(asked: Conversation): string | null {
    const { surface, model, system, turns, tools, output, sampling, reasoning, verbosity } = asked
    const { toolChoice, parallelToolCalls, maxOutputTokens, maxSearches } = asked
    const words = system.map(part => this.#part(part))
    const said = turns.map(turn => this.#turn(turn))
    const format = output && { ...output, path: undefined }
    const shape = [surface, model, format, sampling, reasoning, verbosity, toolChoice, parallelToolCalls]
    const bounds = [maxOutputTokens, maxSearches]
    const declared = tools.map(tool => ({ ...tool, path: undefined, cache: undefined }))
    return this.#left < 0 ? null : JSON.stringify([shape, bounds, declared, words, said])
  }

  #turn({ role, parts }: Turn): unknown {
    return [role, parts.map(part => this.#part(part))]
  }

  #id(id: string): number {
    let number = this.#ids.get(id)
    if (number === undefined) this.#ids.set(id, (number = this.#ids.size))
    return number
  }

  #text(text: string): string {
    this.#left -= text.length
    return text
  }

  #part(part: Part): unknown {
    switch (part.type) {
      case 'text':
        // What is not sent makes no difference.
        return part.meteredOnly ? null : this.#text(part.text)
      case 'refusal':
        return [part.type, this.#text(part.text)]
      case 'image':
      case 'document': {
        const { path: _, cache: __, source, ...rest } = part
        // What is behind a URL may be another thing the next time.
        if (source.kind === 'url') this.#left = -1
        else this.#text(source.kind === 'data' ? source.data : source.text)
        return { ...rest, source }
      }
      case 'call':
        return [
          part.type,
          this.#id(part.id),
          part.kind,
          part.namespace,
          part.name,
          this.#text(part.input),
          part.continuation,
        ]
      case 'result': {
        const content = part.content.map(each => this.#part(each))
        return [part.type, this.#id(part.callId), part.kind, part.isError, content]
      }
      case 'reasoning':
        return [part.type, part.summary.map(each => this.#text(each)), part.continuation]
      case 'search':
        return [
          part.type,
          this.#id(part.id),
          part.query,
          part.results.map(({ handle: _, ...result }) => result),
          part.errorCode,
        ]
    }
  }
}
