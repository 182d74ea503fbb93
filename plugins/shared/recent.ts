/**
 * Recent conversations: what the process has read of the last bodies, and of the stored responses that requests
 * continue, so that the next turn of a conversation costs what is new in it. A turn of an agent repeats nearly all bytes
 * of the one before, or names the response that it continues. What is kept is used only where bytes, texts or values are
 * compared and found the same, and of a stored response only while the store has it; whether something is kept changes
 * what a request costs, and nothing else.
 *
 * Organizations share nothing. Bytes are bounded for each of them and for the process; what was used longest ago goes
 * first.
 */
import type { GatewayConfig } from '../../config/types.ts'
import { type Budget, counter, setting } from '../../core/engine/budget.ts'
import type { SharedState } from '../../core/plugin.ts'
import { InOrder } from '../../core/tools/in-order.ts'
import { JsonOutline } from '../../core/tools/json-outline.ts'
import { KnownPrompt } from '../../meter/index.ts'
import { JsonAgain, sameJson } from './json-again.ts'
import { recentKey } from './state.ts'
import type { Verbatim } from './verbatim.ts'

/** The bounds, for the process and for each organization: `platform.recent_conversations` of gateway.yaml. */
export type RecentBounds = GatewayConfig['platform']['recent_conversations']

export const recentBudget: Budget = {
  name: 'recent_conversations',
  bound: 'bytes of recent conversations, whose next turn then costs what is new in it',
  owner: 'tenant',
  each: setting('platform.recent_conversations.organization_bytes'),
  all: setting('platform.recent_conversations.bytes'),
  over: 'nothing: what was used longest ago is given up, and its next turn is read whole',
  figures: ({ shared }) => ({ used: recentOf(shared).bytes }),
  metrics: [
    counter(
      'sluice_recent_shared_bytes_total',
      'Bytes of request bodies that were not read, because the last turn of their conversation had them.',
      ({ shared }) => recentOf(shared).sharedBytes,
    ),
  ],
}

/** A smaller body is read at once. */
const LEAST_BYTES = 8 * 1024
/** A larger body, or a chain of larger records, is not kept: four of them would take the default bound of an organization. */
const MOST_BYTES = 4 * 1024 * 1024
/** The clients of a conversation that has been silent for so long have most often left. */
const IDLE_MS = 10 * 60_000
/**
 * What is kept of a body, in bytes for each of its bytes: the body itself, and its values. Most strings take a byte for
 * each character, and those with other letters than Latin ones take two. Tools, which are about half of an agent's body,
 * are kept as replies of Responses repeat them, too.
 */
const TIMES = 3.5
/** Memory of a mark: its entry in a Map. */
const MARK_BYTES = 64
/** Memory of a link of a chain, beside what it holds. */
const LINK_BYTES = 512

/**
 * A body is found by eight bytes of it in each stretch. The first ones are short: where tools and system text stand
 * behind the messages, two turns have the first message alone in common at first.
 */
const STRETCH = 1024
const SHORT_STRETCH = 128
const SHORT_STRETCHES = 16
/** Bodies of one client begin alike: a conversation is known from this mark on. */
const FIRST_MARK = 2
/**
 * A body that repeats all but this many bytes of the one before is the next turn of its conversation, and takes its
 * place. One that leaves more of it belongs to a conversation that began alike.
 */
const LOST_BYTES = 16 * 1024

/** What is kept for one organization. */
interface Owner {
  readonly organization: string
  /** The conversations of each kind by the marks of their bodies. */
  readonly kinds: Map<string, Map<number, RecentConversation>>
  /** Chains by the id of their last response. */
  readonly chains: Map<string, RecentChain>
  /** In the order of their last use. */
  readonly all: Set<Kept>
  bytes: number
}

/** What is kept, and given up when there is no more room or when it has not been used for long. */
interface Kept {
  readonly owner: Owner
  /** When it was used last, in monotonic milliseconds. */
  usedAt: number
  /** Nobody finds it any more, and it counts no bytes. */
  giveUp(): void
}

/** The body of a turn, and what it holds. `outline`: undefined before it is wanted, null when there is none. */
interface Turn {
  readonly body: Uint8Array
  readonly value: Record<string, unknown>
  outline: JsonOutline | null | undefined
}

/** A recent conversation: its last body, and what was made of it. */
export class RecentConversation implements Kept {
  readonly #owner: Owner
  readonly #byMark: Map<number, RecentConversation>
  /** Adds to what all hold; null once the conversation is given up. */
  #add: ((bytes: number) => void) | null
  #last: Turn | undefined
  #marks: Int32Array = NO_MARKS
  #held = 0
  #writing: JsonAgain | undefined
  readonly #ids = new InOrder<string, string>()
  #beginning: { value: unknown; made: string } | undefined
  #prompt: KnownPrompt | undefined
  usedAt = 0

  constructor(owner: Owner, byMark: Map<number, RecentConversation>, add: (bytes: number) => void) {
    this.#owner = owner
    this.#byMark = byMark
    this.#add = add
  }

  get owner(): Owner {
    return this.#owner
  }

  /** Whether nothing is kept of it but its marks. */
  get isNew(): boolean {
    return this.#last === undefined
  }

  /** What was counted of it. */
  get prompt(): KnownPrompt {
    return (this.#prompt ??= new KnownPrompt())
  }

  /** The outline of the last body; null when none is kept, and when it has none. It is made when it is first wanted. */
  get outline(): JsonOutline | null {
    const last = this.#last
    if (last === undefined) return null
    if (last.outline === undefined) last.outline = JsonOutline.of(last.body, last.value) ?? null
    return last.outline
  }

  /**
   * Writes a body that goes to a backend.
   * @returns the JSON, to be given to `marks.pieces`
   */
  write(body: object, marks: Verbatim): string {
    this.#ids.begin()
    this.#writing ??= new JsonAgain()
    const json = this.#writing.write(body, pieces => marks.insert(pieces))
    this.#count()
    return json
  }

  /** What `make` makes of a value that goes to a backend, as the beginning of the prompt; the value must not be changed. */
  beginning(value: unknown, make: (value: unknown) => string): string {
    const known = this.#beginning
    if (known && sameJson(known.value, value)) return known.made
    const made = make(value)
    this.#beginning = { value, made }
    return made
  }

  /** What `make` makes of the id of a call. */
  upstreamId(id: string, make: (id: string) => string): string {
    const made = this.#ids.find(id) ?? make(id)
    this.#ids.add(id, made)
    return made
  }

  /** The marks are those of the conversation's last body from now on; without `last` nothing else is kept of it. */
  renew(marks: Int32Array, last: Turn | undefined): void {
    this.#last = last
    const old = this.#marks
    let same = 0
    while (same < old.length && same < marks.length && old[same] === marks[same]) same++
    this.#forget(same)
    for (let i = same; i < marks.length; i++) this.#byMark.set(marks[i]!, this)
    this.#marks = marks
    this.#count()
  }

  #count(): void {
    const last = this.#last ? TIMES * this.#last.body.buffer.byteLength : 0
    const held = MARK_BYTES * this.#marks.length + last + (this.#writing?.bytes ?? 0)
    this.#add?.(held - this.#held)
    this.#held = held
  }

  giveUp(): void {
    this.#forget(0)
    this.#marks = NO_MARKS
    this.#add?.(-this.#held)
    this.#add = null
  }

  #forget(from: number): void {
    for (let i = from; i < this.#marks.length; i++) {
      const mark = this.#marks[i]!
      if (this.#byMark.get(mark) === this) this.#byMark.delete(mark)
    }
  }
}

const NO_MARKS = new Int32Array(0)

/** A stored response as it was read from its record, or as its record was written. It must not be changed. */
export interface KeptLink {
  readonly id: string
  /** Bytes of its record. */
  readonly recordBytes: number
}

/** A stored response and those before it, oldest first. */
class RecentChain implements Kept {
  readonly owner: Owner
  readonly links: readonly KeptLink[]
  readonly #bytes: number
  readonly #add: (bytes: number) => void
  usedAt: number

  constructor(owner: Owner, links: readonly KeptLink[], bytes: number, add: (bytes: number) => void, now: number) {
    this.owner = owner
    this.links = links
    this.#bytes = bytes
    this.#add = add
    this.usedAt = now
    add(bytes)
    owner.chains.set(this.#id, this)
  }

  get #id(): string {
    return this.links.at(-1)!.id
  }

  giveUp(): void {
    this.owner.chains.delete(this.#id)
    this.#add(-this.#bytes)
  }
}

/** A body of which a recent conversation may be the beginning. */
export interface Sought {
  readonly organization: string
  readonly kind: string
  readonly marks: Int32Array
  /** The conversation that has most of the body's marks. Only its bytes tell what it shares with the body. */
  readonly found: RecentConversation | undefined
}

/** The recent conversations of a process. */
export class RecentConversations {
  /** In the order of their last use. */
  readonly #all = new Set<Kept>()
  readonly #owners = new Map<string, Owner>()
  #bytes = 0
  /** Bytes that were taken over from the turn before, so far. */
  sharedBytes = 0
  /** Whether load is shed. Then no further conversation is kept; the next turn of one that is costs less than others. */
  pressed: () => boolean = () => false

  /** What is held of the bound. */
  get bytes(): number {
    return this.#bytes
  }

  /**
   * @param kind what else must be the same: the surface, and how its bodies are checked
   * @returns undefined for a body that is not kept either
   */
  seek(organization: string, kind: string, body: Uint8Array): Sought | undefined {
    if (body.length < LEAST_BYTES || body.length > MOST_BYTES) return undefined
    const marks = marksOf(body)
    const byMark = this.#owners.get(organization)?.kinds.get(kind)
    let found: RecentConversation | undefined
    if (byMark) for (let i = marks.length - 1; i >= FIRST_MARK && !found; i--) found = byMark.get(marks[i]!)
    return { organization, kind, marks, found }
  }

  /**
   * Keeps a body that was accepted. Of the first body of a conversation only the marks are kept: most requests are the
   * only one of their conversation, and what is kept of them costs time and memory.
   * @param outline of the body, where it was made from that of `sought.found`
   * @returns the conversation of which it is the last body; undefined when the body is not kept
   */
  keep(
    { organization, kind, marks, found }: Sought,
    body: Uint8Array,
    value: Record<string, unknown>,
    outline: JsonOutline | undefined,
    bounds: RecentBounds,
    now: number,
  ): RecentConversation | undefined {
    const isNew = found?.isNew ?? true
    if (isNew && this.pressed()) return undefined
    let conversation: RecentConversation
    if (found && (isNew || (outline && outline.lost <= LOST_BYTES)) && this.#all.delete(found)) {
      conversation = found
      found.owner.all.delete(found)
    } else {
      const owner = this.#ownerOf(organization)
      let byMark = owner.kinds.get(kind)
      if (!byMark) owner.kinds.set(kind, (byMark = new Map()))
      conversation = new RecentConversation(owner, byMark, this.#counterOf(owner))
    }
    this.sharedBytes += outline?.shared ?? 0
    conversation.usedAt = now
    conversation.renew(marks, found && { body, value, outline })
    this.#used(conversation, bounds, now)
    return found && conversation
  }

  /** A response and those before it, oldest first; undefined where they are not kept. The store may have lost them. */
  chain(organization: string, id: string): readonly KeptLink[] | undefined {
    return this.#owners.get(organization)?.chains.get(id)?.links
  }

  /**
   * Keeps a chain in place of that which ends with the link before the last. Chains are kept from the first response
   * that was continued on: most responses never are.
   */
  keepChain(organization: string, links: readonly KeptLink[], bounds: RecentBounds, now: number): void {
    const before = this.#owners.get(organization)?.chains.get(links.at(-2)!.id)
    if (!before && this.pressed()) return
    if (before) this.#giveUp(before)
    const recordBytes = links.reduce((sum, link) => sum + link.recordBytes, 0)
    if (recordBytes > MOST_BYTES) return
    const owner = this.#ownerOf(organization)
    const bytes = TIMES * recordBytes + LINK_BYTES * links.length
    this.#used(new RecentChain(owner, links, bytes, this.#counterOf(owner), now), bounds, now)
  }

  /** The store does not have all of the chain that ends with this response any more. */
  giveUpChain(organization: string, id: string): void {
    const chain = this.#owners.get(organization)?.chains.get(id)
    if (chain) this.#giveUp(chain)
  }

  /** The function that counts what an organization holds. */
  #counterOf(owner: Owner): (bytes: number) => void {
    return bytes => {
      owner.bytes += bytes
      this.#bytes += bytes
    }
  }

  #used(kept: Kept, bounds: RecentBounds, now: number): void {
    this.#all.add(kept)
    kept.owner.all.add(kept)
    this.#makeRoom(kept.owner, bounds, now)
  }

  #ownerOf(organization: string): Owner {
    let owner = this.#owners.get(organization)
    if (!owner) {
      owner = { organization, kinds: new Map(), chains: new Map(), all: new Set(), bytes: 0 }
      this.#owners.set(organization, owner)
    }
    return owner
  }

  #makeRoom(owner: Owner, bounds: RecentBounds, now: number): void {
    for (const oldest of this.#all) {
      if (this.#bytes <= bounds.bytes && now - oldest.usedAt < IDLE_MS) break
      this.#giveUp(oldest)
    }
    for (const oldest of owner.all) {
      if (owner.bytes <= bounds.organization_bytes) break
      this.#giveUp(oldest)
    }
  }

  /** Gives up everything. */
  clear(): void {
    for (const kept of this.#all) this.#giveUp(kept)
  }

  #giveUp(kept: Kept): void {
    const { owner } = kept
    this.#all.delete(kept)
    owner.all.delete(kept)
    kept.giveUp()
    if (owner.all.size === 0) this.#owners.delete(owner.organization)
  }
}

/** The conversations of the process. */
export function recentOf(shared: SharedState): RecentConversations {
  return shared.use(recentKey, () => new RecentConversations())
}

/**
 * One mark for each stretch of a body: a hash of the bytes sampled up to there. Two bodies with the same beginning have
 * the same marks at first. Others may have them too, since few bytes are sampled.
 */
function marksOf(body: Uint8Array): Int32Array {
  const { buffer, byteOffset, length } = body
  const view = new DataView(buffer, byteOffset, length)
  const long = Math.floor((length - SAMPLE - SHORT_STRETCHES * SHORT_STRETCH) / STRETCH)
  const marks = new Int32Array(SHORT_STRETCHES + long + 1)
  let hash = 0
  for (let i = 0, at = 0; i < marks.length; i++, at += i <= SHORT_STRETCHES ? SHORT_STRETCH : STRETCH) {
    hash = Math.imul(hash ^ view.getInt32(at, true), 0x85ebca6b)
    hash = Math.imul(hash ^ (hash >>> 15) ^ view.getInt32(at + 4, true), 0xc2b2ae35)
    hash ^= hash >>> 13
    marks[i] = hash
  }
  return marks
}
/** Bytes of a stretch that are sampled. */
const SAMPLE = 8
