/**
 * What went wrong or met a backend in trouble, for whoever is asked about one request later. Exchanges that differ in
 * nothing that explains them are one entry with a count and their request ids; so a flood costs an id for each request.
 *
 * Bytes are bounded for the process, and shared by callers: who holds most gives up what it used longest ago. A caller
 * that holds less than half of an equal share loses nothing, whatever others send.
 */
import type { Budget } from '../core/engine/budget.ts'
import { addressOf } from '../core/engine/tenant.ts'
import type { SharedState } from '../core/plugin.ts'
import { requestIdTime } from '../core/tools/ids.ts'
import type { ExchangeRecord } from './recent.ts'

/** Bytes of a process. */
export const TROUBLE_BYTES = 4 * 1024 * 1024
/** Memory of an entry beside its texts, of a caller beside its entries, and of a list of ids beside those. */
const ENTRY_BYTES = 768
const CALLER_BYTES = 1024
const IDS_BYTES = 256
/** Of a request id: `req_` and 24 letters or digits. */
const ID_BYTES = 28
/** So many ids an entry has room for at first. */
const LEAST_IDS = 8
/** So many entries of clients without an account are told apart by address, of each error code. */
const MOST_CLIENTS = 256
/** What nobody has met for so long makes room for ids, milliseconds. */
const IDLE_MS = 60_000
/** The ids of one entry take at most this part of an equal share. */
const IDS_PART = 8

export const troublesBudget: Budget = {
  name: 'troubles',
  bound: 'bytes of what is known of refusals, failures and backends passed over, for `sluice trace`',
  owner: 'tenant',
  each: 'where all is used, half of an equal share is safe from others',
  all: '4 MiB',
  over: 'nothing: who holds most loses what is oldest; of clients without an account, each error code counts as one',
  figures: ({ shared }) => ({ used: troublesOf(shared).bytes }),
}

export function troublesOf(shared: SharedState): Troubles {
  return shared.use('troubles', () => new Troubles())
}

/** How many exchanges were alike, and when the first and the last of them arrived, in Unix milliseconds. */
export interface Alike {
  count: number
  first: number
  last: number
}

/** What is known of one exchange. Of one that is among others alike: what they have in common, and null for the rest. */
export type Traced = Omit<ExchangeRecord, Own | 'seq' | 'taken'> &
  Pick<{ [Name in keyof ExchangeRecord]: ExchangeRecord[Name] | null }, Own> & { taken: unknown; alike: Alike | null }

/** Members that differ among exchanges that are alike. */
type Own = 'durationMs' | 'ttfbMs' | 'input' | 'output' | 'cost' | 'slowedMs' | 'timeline'

interface Entry {
  readonly owner: Owner
  readonly key: string
  /** That of the first exchange, less what `nested` has. */
  readonly record: ExchangeRecord
  readonly client: string
  /** Its members that are objects, as JSON: nothing is held through them, and their bytes are known. '' for none. */
  readonly nested: string
  /** Whether a look at the members of `record` tells what is alike. */
  readonly plain: boolean
  count: number
  /** When the last one arrived, Unix milliseconds. */
  last: number
  /** Request ids of those after the first; null while there is none. */
  ids: Ids | null
  /** Whether it was met again since its turn to go came last. */
  again: boolean
  bytes: number
}

interface Owner {
  /** Where it is kept, and under which name. */
  readonly among: Map<string, Owner>
  readonly name: string
  /** By what is alike, in the order in which they go: one that was met again meanwhile goes to the end instead. */
  readonly entries: Map<string, Entry>
  /** The one that was met last: in a flood the next is like it. */
  newest: Entry | undefined
  bytes: number
}

export class Troubles {
  readonly #bound: number
  readonly #organizations = new Map<string, Owner>()
  /** Clients whose organization is not known, by the error that they get: one with many addresses is no more than that. */
  readonly #clients = new Map<string, Owner>()
  /** Owners by the binary logarithm of their bytes: the heaviest are found without a look at all. */
  readonly #ranks = Array.from({ length: 32 }, () => new Set<Owner>())
  #bytes = 0

  constructor(bound = TROUBLE_BYTES) {
    this.#bound = bound
  }

  get bytes(): number {
    return this.#bytes
  }

  /** @param tenant whose request it was (core/engine/tenant.ts) */
  add(record: ExchangeRecord, tenant: string): void {
    const organization = record.organization || (tenant.charCodeAt(0) === AT ? '' : tenant)
    let client = organization === '' ? tenant : ''
    const owner =
      organization === ''
        ? this.#owner(this.#clients, record.code || record.outcome)
        : this.#owner(this.#organizations, organization)
    let entry = owner.newest
    if (!entry || !isAlike(entry, record, client)) {
      // An attempt that failed has words and times of its own.
      let key = record.failed.length > 0 ? record.id : alikeKey(record, client)
      entry = owner.entries.get(key)
      const crowded = client !== '' && record.failed.length === 0 && owner.entries.size >= MOST_CLIENTS
      if (!entry && crowded && !this.#madeRoom(owner, record.at)) {
        // Those of very many addresses are alike: else a flood from them would cost an entry for each request.
        key = alikeKey(record, (client = ''))
        entry = owner.entries.get(key)
      }
      if (!entry) {
        this.#begin(owner, key, client, record)
        while (this.#bytes > this.#bound) this.#giveUp()
        return
      }
      owner.newest = entry
    }
    entry.again = true
    entry.count++
    if (record.at > entry.last) entry.last = record.at
    this.#note(entry, record.id)
    while (this.#bytes > this.#bound) this.#giveUp()
  }

  /** What is known of the exchange with this request id. */
  find(id: string): Traced | undefined {
    const at = requestIdTime(id)
    if (at === undefined) return undefined
    for (const owners of [this.#organizations, this.#clients])
      for (const { entries } of owners.values())
        for (const { record, client, nested, count, last, ids } of entries.values()) {
          const first = record.id === id
          if (!first && !ids?.has(id)) continue
          const { seq: _, ...whole } = record
          return {
            ...whole,
            ...(nested && JSON.parse(nested)),
            client: addressOf(client),
            ...(!first && { id, at, ...UNKNOWN }),
            alike: count > 1 ? { count, first: record.at, last } : null,
          }
        }
    return undefined
  }

  #owner(among: Map<string, Owner>, name: string): Owner {
    const known = among.get(name)
    if (known) return known
    const owner: Owner = { among, name, entries: new Map(), newest: undefined, bytes: 0 }
    among.set(name, owner)
    this.#ranks[0]!.add(owner)
    this.#weigh(owner, CALLER_BYTES)
    return owner
  }

  #begin(owner: Owner, key: string, client: string, record: ExchangeRecord): void {
    const { failed, passedOver, taken, timeline } = record
    const plain = failed.length === 0 && passedOver.length === 0
    const nested = plain && !taken && !timeline ? '' : JSON.stringify({ failed, passedOver, taken, timeline })
    const [unknownModel, param] = [copied(record.unknownModel), copied(record.param)]
    const kept = { ...record, unknownModel, param, failed: NONE, passedOver: NONE, taken: null, timeline: null }
    const what = { owner, key: copied(key), client, nested, plain, record: kept }
    const entry: Entry = { ...what, count: 1, last: record.at, ids: null, again: false, bytes: 0 }
    owner.entries.set(entry.key, (owner.newest = entry))
    this.#grow(
      entry,
      ENTRY_BYTES + bytesOf(key) + bytesOf(nested) + unknownModel.length + param.length + record.cause.length,
    )
  }

  #note(entry: Entry, id: string): void {
    const { ids } = entry
    if (!ids) {
      entry.ids = new Ids(LEAST_IDS)
      this.#grow(entry, entry.ids.bytes)
    } else if (ids.isFull && this.#mayGrow(entry, ids)) {
      entry.ids = ids.resized(ids.most * 2)
      this.#grow(entry, entry.ids.bytes - ids.bytes)
    }
    entry.ids!.add(id)
  }

  /** Whether the next to go is one that nobody meets any more; else it has its turn again after all others. */
  #madeRoom({ entries }: Owner, now: number): boolean {
    const [entry] = entries.values()
    const idle = now - entry!.last > IDLE_MS
    if (idle) this.#drop(entry!)
    else {
      entries.delete(entry!.key)
      entries.set(entry!.key, entry!)
    }
    return idle
  }

  /** More ids of one entry take free room, that of a heavier caller, or that of what nobody meets any more. */
  #mayGrow({ owner, last }: Entry, { bytes }: Ids): boolean {
    const owners = this.#organizations.size + this.#clients.size
    if (bytes * 2 * IDS_PART > this.#bound / owners) return false
    if (this.#bytes + bytes <= this.#bound) return true
    const heaviest = this.#heaviest
    if (rankOf(owner.bytes + bytes) < rankOf(heaviest.bytes)) return true
    const [oldest] = heaviest.entries.values()
    return last - oldest!.last > IDLE_MS
  }

  /** Within a factor of two. */
  get #heaviest(): Owner {
    let rank = this.#ranks.length - 1
    while (this.#ranks[rank]!.size === 0) rank--
    const [owner] = this.#ranks[rank]!
    return owner!
  }

  /** Of the heaviest caller, the next that nobody met again loses half of its ids, and when these are few, goes. */
  #giveUp(): void {
    const owner = this.#heaviest
    const { entries } = owner
    let [entry] = entries.values()
    while (entry!.again) {
      entry!.again = false
      entries.delete(entry!.key)
      entries.set(entry!.key, entry!)
      ;[entry] = entries.values()
    }
    this.#lessen(entry!)
  }

  #lessen(entry: Entry): void {
    const { ids } = entry
    if (!ids || ids.most <= LEAST_IDS) return this.#drop(entry)
    const fewer = ids.resized(ids.most / 2)
    entry.ids = fewer
    this.#grow(entry, fewer.bytes - ids.bytes)
  }

  #drop(entry: Entry): void {
    const { owner, key } = entry
    owner.entries.delete(key)
    if (owner.newest === entry) owner.newest = undefined
    this.#weigh(owner, -entry.bytes)
    if (owner.entries.size > 0) return
    this.#weigh(owner, -owner.bytes)
    this.#ranks[0]!.delete(owner)
    owner.among.delete(owner.name)
  }

  #grow(entry: Entry, bytes: number): void {
    entry.bytes += bytes
    this.#weigh(entry.owner, bytes)
  }

  #weigh(owner: Owner, bytes: number): void {
    const before = rankOf(owner.bytes)
    this.#bytes += bytes
    owner.bytes += bytes
    const after = rankOf(owner.bytes)
    if (after === before) return
    this.#ranks[before]!.delete(owner)
    this.#ranks[after]!.add(owner)
  }
}

const rankOf = (bytes: number) => 31 - Math.clz32(bytes | 1)

/** In place of what is known of the first of those alike alone. */
const UNKNOWN = {
  durationMs: null,
  ttfbMs: null,
  input: null,
  output: null,
  cost: null,
  slowedMs: null,
  taken: null,
  timeline: null,
} satisfies Record<Own | 'taken', null>

const NONE: readonly never[] = []
/** What an address begins with where it is a tenant. */
const AT = 0x40

/** Whether nothing sets these two apart. */
function isAlike({ record: a, plain, client }: Entry, b: ExchangeRecord, of: string): boolean {
  return (
    a.code === b.code &&
    a.route === b.route &&
    client === of &&
    a.key === b.key &&
    a.model === b.model &&
    a.status === b.status &&
    a.outcome === b.outcome &&
    a.param === b.param &&
    a.unknownModel === b.unknownModel &&
    a.backend === b.backend &&
    a.cause === b.cause &&
    plain &&
    b.failed.length === 0 &&
    b.passedOver.length === 0
  )
}

/** The same as text: by it what is alike is found among the entries of a caller. */
function alikeKey(record: ExchangeRecord, client: string): string {
  const { route, model, unknownModel, backend, key, status, outcome, code, param, cause, passedOver } = record
  let text = `${route}\n${code}\n${client}${key}`
  if (model || unknownModel || backend || param || outcome !== 'refused')
    text += `\n${model}\n${unknownModel}\n${backend}\n${param}\n${outcome}`
  text += `\n${status}${cause}`
  for (const { backend: other, why, scope, requestId } of passedOver) text += `\n${other} ${why} ${scope} ${requestId}`
  return text
}

/** In memory of its own: a piece of a text would keep the whole text, which may be a request's body. */
const copied = (text: string) => (text === '' ? '' : Buffer.from(text).toString())

/** Texts of Latin letters take a byte for each, others two. */
function bytesOf(text: string): number {
  return Buffer.byteLength(text) === text.length ? text.length : 2 * text.length
}

/** The newest request ids, up to a number, one after the other in bytes. */
class Ids {
  readonly most: number
  readonly #bytes: Buffer
  /** How many were added; those above `most` took the places of the oldest. */
  #added = 0

  constructor(most: number) {
    this.most = most
    this.#bytes = Buffer.allocUnsafeSlow(most * ID_BYTES)
  }

  get bytes(): number {
    return this.#bytes.length + IDS_BYTES
  }
  get size(): number {
    return Math.min(this.#added, this.most)
  }
  /** Whether it has just been filled, or has gone round once more. */
  get isFull(): boolean {
    return this.#added > 0 && this.#added % this.most === 0
  }

  add(id: string): void {
    this.#bytes.write(id, (this.#added++ % this.most) * ID_BYTES, ID_BYTES, 'latin1')
  }

  has(id: string): boolean {
    // No id holds `req_` but at its beginning, so that none is found across two of them.
    return this.#bytes.subarray(0, this.size * ID_BYTES).includes(id, 0, 'latin1')
  }

  /** The same ids with room for more, or the newest of them in room for fewer. */
  resized(most: number): Ids {
    const other = new Ids(most)
    const kept = Math.min(this.size, most)
    for (let i = this.#added - kept; i < this.#added; i++) {
      const from = (i % this.most) * ID_BYTES
      this.#bytes.copy(other.#bytes, (other.#added++ % most) * ID_BYTES, from, from + ID_BYTES)
    }
    return other
  }
}
