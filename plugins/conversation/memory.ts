/**
 * What the gateway keeps between requests, sealed, for one organization each: retained responses (RESP-2, RESP-3) and
 * providers' private continuation data (TOOL-6).
 */

import { appendAll } from '../../core/append.ts'
import type { Clock } from '../../core/clock.ts'
import {
  type Continuation,
  type Conversation,
  LoadedTools,
  type Part,
  type TextPart,
  type Tool,
  type Turn,
  TurnList,
} from '../../core/conversation.ts'
import { FairGate } from '../../core/fair.ts'
import type { ConnectionState } from '../../core/listener.ts'
import { loopTurns } from '../../core/loop-turn.ts'
import type { MaybePromise, Store } from '../../core/store.ts'
import { handleOf } from './handles.ts'
import { sizeOfAll } from './history.ts'
import type { Sealer } from './seal.ts'

/** One retained response: the turns it added, and a link to the one it continued (decisions 29). */
interface Retained extends Added {
  previous?: string
}

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
 * Chains of more UTF-16 units are read by few requests at a time, and of one organization by fewer: opening a link
 * leaves several times its size behind, and many at once are more than is collected meanwhile. Without this the flood of
 * recalls of `npm run attack` added 615 MiB to the process, and 470 with it.
 */
const LARGE_CHAIN = 1 << 20
const largeChains = new FairGate(8, 2)

/** Reads and writes the stored responses and continuation data. */
export class Memory {
  readonly #store: Store
  readonly #sealer: Sealer
  readonly #clock: Clock
  readonly #retainMs: number
  readonly #continuationMs: number

  constructor(store: Store, sealer: Sealer, clock: Clock, retainMs: number, continuationMs: number) {
    this.#store = store
    this.#sealer = sealer
    this.#clock = clock
    this.#retainMs = retainMs
    this.#continuationMs = continuationMs
  }

  /**
   * Everything that a response and those before it added, oldest first; null when any link is unknown or expired.
   * Renews every stored link.
   * @param room UTF-16 units. When the links that were read are over it, their size is returned and no more is read,
   * because each link may be as large as a body.
   * @param take is given the bytes of each link before it is opened; it throws where the request may not hold them
   */
  async recall(
    organization: string,
    id: string,
    room: number,
    take: Take,
    local?: ConnectionMemory,
  ): Promise<Added | number | null> {
    let size = 0
    const slices = new Slices(organization)
    const links: Retained[] = []
    const ids: string[] = []
    const stored: string[] = []
    let leave: (() => void) | undefined
    try {
      for (let next: string | undefined = id; next !== undefined; next = links.at(-1)!.previous) {
        if (ids.length === MAX_LINKS || ids.includes(next)) return null
        if (size > LARGE_CHAIN) leave ??= await largeChains.enter(organization)
        let record = local?.get(organization, next, take) ?? null
        if (!record) {
          const sealed = await this.#store.records.get(organization, 'response', next, this.#clock.now())
          if (sealed) {
            take(sealed.length)
            await slices.before(sealed.length)
          }
          record = sealed && (this.#sealer.open(organization, sealed) as Retained | null)
          stored.push(next)
        }
        if (!record) return null
        size += sizeOfAll(record)
        if (size > room) return size
        ids.push(next)
        links.push(record)
      }
      if (stored.length > 0)
        await this.#store.records.touch(organization, 'response', stored, this.#retainMs, this.#clock.now())
      links.reverse()
      return {
        system: links.flatMap(link => link.system),
        turns: links.flatMap(link => link.turns),
        tools: links.flatMap(link => link.tools ?? []),
      }
    } finally {
      leave?.()
    }
  }

  retain(
    organization: string,
    id: string,
    previous: string | undefined,
    added: Added,
    local?: ConnectionMemory,
  ): MaybePromise<void> {
    const record: Retained = previous === undefined ? added : { ...added, previous }
    if (local) return local.put(organization, id, record)
    return this.#store.records.put(
      organization,
      'response',
      id,
      this.#sealer.seal(organization, record),
      this.#retainMs,
      this.#clock.now(),
    )
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
 * Puts what was kept before a request's own turns, in canonical form. Instructions stay first: they belong to this
 * request alone.
 * @throws GatewayError when the request chooses a tool that is not there
 */
export function continueFrom(stored: Added, conversation: Conversation): void {
  addTurns(stored, conversation)
  addTools(stored, conversation)
  if (conversation.lateChoice) conversation.toolChoice = conversation.lateChoice()
}

function addTurns(stored: Added, conversation: Conversation): void {
  const list = new TurnList()
  for (const turn of stored.turns) list.push(turn.role, [...turn.parts])
  for (const turn of conversation.turns) list.push(turn.role, [...turn.parts])
  const own = conversation.system.splice(conversation.instructionParts ?? 0)
  for (const texts of [stored.system, list.system, own]) appendAll(conversation.system, texts)
  conversation.turns = list.turns
}

function addTools(stored: Added, conversation: Conversation): void {
  if (!stored.tools?.length) return
  const { tools, loadedTools = 0 } = conversation
  const loaded = tools.splice(tools.length - loadedTools)
  const declared = tools.length
  const all = new LoadedTools(tools)
  all.append(stored.tools.map(tool => ({ ...tool, path: 'previous_response_id' })))
  all.append(loaded)
  conversation.loadedTools = tools.length - declared
}
