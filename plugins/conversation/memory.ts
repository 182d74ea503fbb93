/**
 * What the gateway keeps between requests, sealed, for one organization each: retained responses (RESP-2, RESP-3) and
 * providers' private continuation data (TOOL-6).
 */

import {
  type Continuation,
  type Conversation,
  LoadedTools,
  type Part,
  type TextPart,
  type Tool,
  type Turn,
  TurnList,
  workOf,
} from '../../core/canon/conversation.ts'
import type { Budget } from '../../core/engine/budget.ts'
import { loopTurns } from '../../core/engine/loop-turn.ts'
import type { ConnectionState } from '../../core/ports/listener.ts'
import type { MaybePromise, Store } from '../../core/ports/store.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { FairGate } from '../../core/tools/fair.ts'
import type { Sealer } from '../../core/tools/sealer.ts'
import type { Asked } from '../model-access/asked.ts'
import type { KeptLink, RecentBounds, RecentConversations } from '../shared/recent.ts'
import { handleOf } from './handles.ts'
import { sizeOfAll } from './history.ts'

/** One retained response: the turns it added, and a link to the one it continued (decisions 29). */
export interface Retained extends Added {
  previous?: string
  /**
   * Unix milliseconds from which it is not known by its id any more. Its record lives longer where a later response
   * that is retained continues it. Absent on a connection, and in a record of 0.1.0.
   */
  ends?: number
  /** How many of `turns` were the request's input; the reply is behind them. Absent in a record of 0.1.0. */
  inputs?: number
  /** What its request asked for; absent in a record of 0.1.0. */
  asked?: Asked
}

/** A response and those before it. */
export interface Recalled extends Added {
  asked: Asked[]
  /** The ids of those whose records do not say what they asked for. */
  unknown: string[]
  /** Those that are in the store, oldest first. */
  stored: readonly Link[]
  /** When the response itself ends; undefined where its record does not say. */
  ends: number | undefined
  /** Whether a connection has some of them. */
  local: boolean
}

/** A link of a chain. Requests that continue it share the record: it is not changed. */
export class Link implements KeptLink {
  readonly id: string
  readonly recordBytes: number
  /** Until when its record is there at least, as far as this process knows, Unix ms. */
  until: number
  /** The record, or its JSON until somebody reads it. */
  #record: Retained | string
  #size: number | undefined

  constructor(id: string, recordBytes: number, record: Retained | string, until: number) {
    this.id = id
    this.recordBytes = recordBytes
    this.until = until
    this.#record = record
  }

  get record(): Retained {
    if (typeof this.#record === 'string') this.#record = JSON.parse(this.#record) as Retained
    return this.#record
  }

  /** UTF-16 units of what it adds to a conversation. */
  get size(): number {
    return (this.#size ??= sizeOfAll(this.record))
  }
}

/** Where a process keeps the chains that it has read, and how much of them; null: nowhere. */
export type KeptChains = { all: RecentConversations; bounds: RecentBounds } | null

/** What `recall` found of a response that cannot be continued. */
export interface Gone {
  /** The id that is not known: the response's own, or one before it. */
  gone: string
}

/** What a response that is retained needs of those before it. */
export type Links = Pick<Recalled, 'stored' | 'ends' | 'local'>

/** What one exchange added to its conversation. */
export interface Added {
  /** System text of the input, without `instructions`. */
  system: TextPart[]
  turns: Turn[]
  /** Tools that its items loaded. Tools of the member `tools` belong to one request and are not kept. */
  tools?: Tool[]
}

/**
 * Counts bytes that a request holds from now on.
 * @throws GatewayError where it may not hold them
 */
export type Take = (bytes: number) => void

/** The request for which a chain is read. */
export interface Reader {
  readonly take: Take
  /** Calls a function when the request is no longer in preparation. */
  onLeave(release: () => void): void
}

/** The most that one connection keeps, in UTF-16 units of JSON text; the oldest responses go first. */
const CONNECTION_BYTES = 16 * 1024 * 1024

/**
 * Responses that must not be stored, kept while the connection on which they were made is open: over a WebSocket, a
 * response with `store: false` can be continued too. Kept as text, so that no exchange shares objects with another.
 */
export class ConnectionMemory {
  static readonly #key = Symbol('responses')
  readonly #records = new Map<string, string>()
  #bytes = 0

  static of(connection: ConnectionState): ConnectionMemory {
    let memory = connection.get(ConnectionMemory.#key) as ConnectionMemory | undefined
    if (!memory) connection.set(ConnectionMemory.#key, (memory = new ConnectionMemory()))
    return memory
  }

  get(organization: string, id: string, take: Take): Retained | null {
    const record = this.#records.get(`${organization} ${id}`)
    if (record === undefined) return null
    take(record.length)
    return JSON.parse(record) as Retained
  }

  put(organization: string, id: string, retained: Retained): void {
    const record = JSON.stringify(retained)
    this.#records.set(`${organization} ${id}`, record)
    this.#bytes += record.length
    for (const [oldest, { length }] of this.#records) {
      if (this.#bytes <= CONNECTION_BYTES) break
      this.#records.delete(oldest)
      this.#bytes -= length
    }
  }
}

/** A longer chain of responses is taken for unknown, because each link costs a read. */
const MAX_LINKS = 1000

/**
 * Chains of more UTF-16 units are in preparation for few requests at a time, and for fewer of one organization: opening
 * and counting a link leaves several times its size behind, and many at once are more than is collected meanwhile. The
 * flood of recalls of `npm run attack` added 600 to 680 MiB to the process when a request gave its place back after it
 * had read, and adds 100 to 300 now that it keeps it until it is admitted or refused.
 */
const LARGE_CHAIN = 1 << 20

export const recallBudget = {
  name: 'large_recalls',
  bound: 'stored conversations of more than 1 MiB that are being read and counted',
  owner: 'tenant',
  each: 2,
  all: 8,
  over: 'nothing: the next waits',
  figures: () => ({ used: largeChains.running, waiting: largeChains.waiting }),
} as const satisfies Budget
export const largeChains = new FairGate(recallBudget.all, recallBudget.each)

/** For so long the record of a chain outlives the response that continues it, at most, in milliseconds. */
const RENEWED_AHEAD = 5 * 60_000

/** Reads and writes the stored responses and continuation data. */
export class Memory {
  readonly #store: Store
  readonly #sealer: Sealer
  readonly #clock: Clock
  readonly #retainMs: number
  readonly #continuationMs: number
  readonly #kept: KeptChains

  constructor(
    store: Store,
    sealer: Sealer,
    clock: Clock,
    retainMs: number,
    continuationMs: number,
    kept: KeptChains = null,
  ) {
    this.#store = store
    this.#sealer = sealer
    this.#clock = clock
    this.#retainMs = retainMs
    this.#continuationMs = continuationMs
    this.#kept = kept
  }

  /**
   * Everything that a response and those before it added, oldest first. It renews nothing.
   * @param room UTF-16 units. When the links that were read are over it, their size is returned and no more is read,
   * because each link may be as large as a body.
   * @param reader is given the bytes of each link before it is opened, and keeps the place that a large chain takes
   */
  async recall(
    organization: string,
    id: string,
    room: number,
    reader: Reader,
    local?: ConnectionMemory,
  ): Promise<Recalled | Gone | number> {
    let size = 0
    const slices = new Slices(organization)
    const kept = await this.#keptChain(organization, id)
    const links: Link[] = []
    let large = false
    for (let next: string | undefined = id; next !== undefined; next = links.at(-1)!.record.previous) {
      if (links.length === MAX_LINKS || links.some(link => link.id === next)) return { gone: id }
      if (size > LARGE_CHAIN && !large) {
        large = true
        reader.onLeave(await largeChains.enter(organization))
      }
      let link = kept?.at(-1 - links.length)
      if (link) reader.take(link.recordBytes)
      else {
        const record = local?.get(organization, next, reader.take)
        link = record ? new Link(next, 0, record, 0) : await this.#read(organization, next, reader, slices)
      }
      if (!link || (next === id && hasEnded(link.record, this.#clock.now()))) return { gone: next }
      size += link.size
      if (size > room) return size
      links.push(link)
    }
    links.reverse()
    const records = links.map(link => link.record)
    const stored = links.filter(link => link.recordBytes > 0)
    return {
      system: records.flatMap(record => record.system),
      turns: records.flatMap(record => record.turns),
      tools: records.flatMap(record => record.tools ?? []),
      asked: records.flatMap(record => record.asked ?? []),
      unknown: links.filter(link => link.record.asked === undefined).map(link => link.id),
      stored,
      ends: records.at(-1)!.ends,
      local: stored.length < links.length,
    }
  }

  /** A chain that the process has kept, while the store has each of its links. */
  async #keptChain(organization: string, id: string): Promise<readonly Link[] | undefined> {
    const chain = this.#kept?.all.chain(organization, id) as readonly Link[] | undefined
    if (!chain) return undefined
    const now = this.#clock.now()
    const ids = chain.map(link => link.id)
    if (chain.every(link => link.until > now) && (await this.#store.records.hasAll(organization, 'response', ids)))
      return chain
    this.#kept!.all.giveUpChain(organization, id)
    return undefined
  }

  async #read(organization: string, id: string, reader: Reader, slices: Slices): Promise<Link | undefined> {
    const sealed = await this.#store.records.get(organization, 'response', id, this.#clock.now())
    if (!sealed) return undefined
    reader.take(sealed.length)
    await slices.before(sealed.length)
    const record = this.#sealer.open(organization, sealed) as Retained | null
    return record ? new Link(id, sealed.length, record, record.ends ?? 0) : undefined
  }

  /**
   * @param links what it continues: these live as long as this response then, because it cannot be continued without
   * them
   */
  retain(
    organization: string,
    id: string,
    added: Omit<Retained, 'ends'>,
    links: Links | undefined,
    local?: ConnectionMemory,
  ): MaybePromise<void> {
    if (local) return local.put(organization, id, added)
    const now = this.#clock.now()
    const ends = now + this.#retainMs
    const json = JSON.stringify({ ...added, ends } satisfies Retained)
    const sealed = this.#sealer.sealJson(organization, json)
    let renewed: MaybePromise<void> | undefined
    if (added.previous !== undefined && links) {
      renewed = this.#renew(organization, links.stored, ends, now)
      if (this.#kept && !links.local) {
        const chain = [...links.stored, new Link(id, sealed.length, json, ends)]
        this.#kept.all.keepChain(organization, chain, this.#kept.bounds, this.#clock.mono())
      }
    }
    const saved = this.#store.records.put(organization, 'response', id, sealed, this.#retainMs, now)
    if (!(saved instanceof Promise) && !(renewed instanceof Promise)) return
    return Promise.all([saved, renewed]).then(() => {})
  }

  /**
   * Lets the records of a chain live until the response that continues them ends, and somewhat longer, so that the next
   * turns of an agent need not renew them again.
   */
  #renew(organization: string, chain: readonly Link[], ends: number, now: number): MaybePromise<void> {
    const due = chain.filter(link => link.until < ends)
    if (due.length === 0) return
    const ttlMs = this.#retainMs + Math.min(RENEWED_AHEAD, Math.ceil(this.#retainMs / 16))
    const mark = () => {
      for (const link of due) link.until = now + ttlMs
    }
    const ids = due.map(link => link.id)
    const touched = this.#store.records.touch(organization, 'response', ids, ttlMs, now)
    return touched instanceof Promise ? touched.then(mark) : mark()
  }

  /** Deletes a retained response, if it exists. */
  forget(organization: string, id: string): MaybePromise<void> {
    return this.#store.records.delete(organization, 'response', id)
  }

  keep(organization: string, handle: string, continuation: Continuation): MaybePromise<void> {
    const sealed = this.#sealer.seal(organization, continuation)
    return this.#store.records.put(
      organization,
      'continuation',
      handle,
      sealed,
      this.#continuationMs,
      this.#clock.now(),
    )
  }

  /**
   * Fills `continuation` of replayed calls, reasoning and searches. A part without a record stays plain history
   * (wire.md F.7). Each handle is read once, a slice of them at a time.
   * @param room bytes that the stored data may have; more than that is not read
   * @param take as for `recall`
   * @returns the bytes that were found once they are over `room`, else undefined
   */
  restore(
    organization: string,
    conversation: Conversation,
    room: number,
    take: Take,
  ): undefined | Promise<number | undefined> {
    const parts = new Map<string, StoredPart>()
    for (const turn of conversation.turns) {
      if (turn.role !== 'assistant') continue
      for (const part of turn.parts) {
        const handle = handleOf(part)
        if (handle !== undefined && !parts.has(handle)) parts.set(handle, part as StoredPart)
      }
    }
    return parts.size === 0 ? undefined : this.#fill(organization, parts, room, take)
  }

  async #fill(
    organization: string,
    parts: Map<string, StoredPart>,
    room: number,
    take: Take,
  ): Promise<number | undefined> {
    const handles = [...parts.keys()]
    const slices = new Slices(organization)
    let size = 0
    for (let i = 0; i < handles.length; i += READ_AT_ONCE) {
      if (i > 0) await slices.next()
      const some = handles.slice(i, i + READ_AT_ONCE)
      const found = await this.#store.records.getMany(organization, 'continuation', some, this.#clock.now())
      for (const [n, sealed] of found.entries()) {
        if (!sealed) continue
        if ((size += sealed.length) > room) return size
        take(sealed.length)
        await slices.before(sealed.length)
        const data = this.#sealer.open(organization, sealed) as Continuation | null
        if (data) parts.get(some[n]!)!.continuation = data
      }
    }
    return undefined
  }
}

/** Whether a response is no longer known by its id. */
export function hasEnded({ ends }: Retained, now: number): boolean {
  return ends !== undefined && ends <= now
}

type StoredPart = Part & { continuation?: Continuation }

/** Handles that are read at once: on SQLite under 1 ms, and on Redis one command whose reply stays small. */
const READ_AT_ONCE = 64
/** Sealed bytes that are opened in one event-loop turn: some 2 ms. */
const SLICE_BYTES = 256 * 1024

/** Cuts the work of opening records into slices, so that other requests run in between. */
class Slices {
  readonly #owner: string
  #bytes = 0

  constructor(owner: string) {
    this.#owner = owner
  }

  /** Waits for the next event-loop turn when this one has had its share. A first record is never waited for. */
  async before(bytes: number): Promise<void> {
    if (this.#bytes > 0 && this.#bytes + bytes > SLICE_BYTES) await this.next()
    this.#bytes += bytes
  }

  next(): Promise<void> {
    this.#bytes = 0
    return loopTurns.next(this.#owner)
  }
}

/**
 * The conversation with what was kept before its own turns, in canonical form. Instructions stay first: they belong to
 * this request alone.
 * @throws GatewayError when the request chooses a tool that is not there
 */
export function continueFrom(stored: Added, conversation: Conversation): Conversation {
  const list = new TurnList()
  for (const turn of stored.turns) list.push(turn.role, turn.parts.map(ownPart))
  for (const turn of conversation.turns) list.push(turn.role, [...turn.parts])
  const instructions = conversation.instructionParts ?? 0
  const whole: Conversation = {
    ...conversation,
    work: workOf(conversation),
    system: [
      ...conversation.system.slice(0, instructions),
      ...stored.system,
      ...list.system,
      ...conversation.system.slice(instructions),
    ],
    turns: list.turns,
    ...toolsOf(stored, conversation),
  }
  if (conversation.lateChoice) whole.toolChoice = conversation.lateChoice(whole.tools)
  return whole
}

/** `restore` adds a provider's data to some parts, and those of a chain are shared. */
function ownPart(part: Part): Part {
  return handleOf(part) === undefined ? part : { ...part }
}

function toolsOf(stored: Added, conversation: Conversation): undefined | Pick<Conversation, 'tools' | 'loadedTools'> {
  if (!stored.tools?.length) return undefined
  const declared = conversation.tools.length - (conversation.loadedTools ?? 0)
  const tools = conversation.tools.slice(0, declared)
  const all = new LoadedTools(tools)
  all.append(stored.tools.map(tool => ({ ...tool, path: 'previous_response_id' })))
  all.append(conversation.tools.slice(declared))
  return { tools, loadedTools: tools.length - declared }
}
