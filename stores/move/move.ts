/**
 * `sluice store move`: carries everything from one store to another, which must be empty. Both are set aside meanwhile,
 * so that no gateway starts on either (`MoveMark`). In order:
 *
 *   the target is marked `filling`     what an interrupted move has left there is removed
 *   the source is settled              its journals are booked, as a gateway does at its start
 *   the source is marked `moving`
 *   everything is carried in batches
 *   the target is read again           counts, sums and contents must be those that were read from the source
 *   the source is marked `moved`
 *   the target is put into use
 *
 * After a crash between any two of them, the same call is made again. It begins anew, or does the last step.
 */
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { Logger } from '../../core/plugin.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { openStore } from '../index.ts'
import { abandonedJournals } from '../journal.ts'
import { folderOf, isLocal } from '../local.ts'
import {
  type Balance,
  type Carried,
  type Drop,
  type End,
  type KeptRecord,
  type KeptReply,
  KINDS,
  type Kind,
} from './end.ts'

const HOUR_MS = 3_600_000
/** The target is read again this often when it does not agree: Redis may give a key twice while its table is resized. */
const READS = 3

export interface MoveOptions {
  /** As in `StoreOptions`. */
  from: string
  to: string
  /** `local:` only: the memory of the target's server, bytes. */
  maxMemory: number | null
  log: Logger
  /** Tells the operator what goes on. */
  tell(text: string): void
  /** How many things have been carried or read again. */
  progress(count: number): void
  /** Asks the move to stop. The source is put into use, and the target stays set aside until the next move. */
  signal?: AbortSignal
}

/** What was carried of one kind; `sum` is of what the kind adds up. */
export interface Tally {
  count: number
  sum: bigint
}
export interface Moved {
  from: string
  to: string
  /** Null: an earlier call had carried and checked everything, and this one has put the target into use. */
  carried: Record<Name, Tally> | null
  /** What was left behind on purpose. */
  dropped: Map<string, number>
}

/** What is counted and checked, and what its sum is of. */
export const NAMES = {
  organizations: 'keys',
  gone: '',
  audit: '',
  spend: 'nano-USD',
  levels: 'units',
  sums: 'nano-USD',
  ledger: 'nano-USD',
  tagged: 'nano-USD',
  credits: 'nano-USD',
  billed: 'nano-USD',
  notices: '',
  idempotency: 'bytes',
  records: 'bytes',
} as const
export type Name = keyof typeof NAMES

/**
 * Moves a store.
 * @throws StoreUnavailable with what is in the way and its cure; the source can then be used as before
 */
export async function moveStore(options: MoveOptions): Promise<Moved> {
  const { from, to, maxMemory, tell, signal } = options
  const target = await openEnd(to, maxMemory, tell, true)
  let source: End | undefined
  /** The source is marked `moving`; the target is marked `filling` and still empty. */
  let aside = false
  let empty = false
  try {
    source = await openEnd(from, null, tell, false)
    const [left, right] = [source.name, target.name]
    if (left === right) throw new StoreUnavailable(`${left} is both ends of the move; name another store`)
    const [before, found] = [await source.mark(), await target.mark()]
    if (before?.state === 'moved' && before.other === right && found?.state === 'filling') {
      await target.setMark(null)
      return { from: left, to: right, carried: null, dropped: new Map() }
    }
    if (before && (before.state !== 'moving' || before.other !== right)) throw refusal(left, before)
    if (found && (found.state !== 'filling' || found.other !== left)) throw refusal(right, found)
    const content = found ? null : await target.content()
    if (content !== null)
      throw new StoreUnavailable(
        `${content}: a store is moved into an empty one; name another store, or remove what is there`,
      )
    await target.setMark({ state: 'filling', other: left })
    if (found) await target.clear()
    empty = true

    if (before) await source.setMark(null)
    await source.close()
    source = undefined
    await settle(from, left, options)
    source = await openEnd(from, null, tell, false)
    await source.setMark({ state: 'moving', other: right })
    aside = true

    const dropped = new Map<string, number>()
    const drop: Drop = (what, count = 1) => void dropped.set(what, (dropped.get(what) ?? 0) + count)
    const now = Date.now()
    const state = await source.state()
    const secret = await source.secret()
    empty = false
    await target.begin(secret)
    const carried = await carry(source, target, now, drop, options)
    await target.finish()
    if (secret && Buffer.compare(secret, (await target.secret()) ?? Buffer.alloc(0)) !== 0)
      throw new StoreUnavailable(`${right} does not hold the secret of ${left}; nothing was changed in ${left}`)
    await verify(carried, target, now, options)
    if ((await source.state()) !== state)
      throw new StoreUnavailable(`a command has changed ${left} meanwhile; run the move again when it has ended`)

    await source.setMark({ state: 'moved', other: right })
    aside = false
    await target.setMark(null)
    return { from: left, to: right, carried: carried.total(0), dropped }
  } catch (error) {
    if (aside) await source?.setMark(null).catch(() => {})
    if (empty) await target.setMark(null).catch(() => {})
    if (signal?.aborted) throw new StoreUnavailable('stopped; nothing was changed in the source. Run it again to move')
    throw error
  } finally {
    await source?.close()
    await target.close()
  }
}

/**
 * Takes back a move that was interrupted: the source is put into use, and what is in the target is removed.
 * @throws StoreUnavailable when there is none
 */
export async function cancelMove({ from, to, maxMemory, tell }: MoveOptions): Promise<string[]> {
  const target = await openEnd(to, maxMemory, tell, true)
  let source: End | undefined
  try {
    source = await openEnd(from, null, tell, false)
    const done: string[] = []
    const [mark, filling] = [await source.mark(), await target.mark()]
    if (mark?.state === 'moved') throw refusal(source.name, mark)
    // Another source may be marked as moved already: then what is here is all there is.
    if (filling && filling.other !== source.name) throw refusal(target.name, filling)
    if (filling?.state === 'filling') {
      await target.clear()
      await target.setMark(null)
      done.push(`${target.name} is empty`)
    }
    if (mark?.state === 'moving') {
      await source.setMark(null)
      done.push(`${source.name} can be used again`)
    }
    if (done.length === 0) throw new StoreUnavailable(`no move from ${source.name} to ${target.name} was interrupted`)
    return done
  } finally {
    await source?.close()
    await target.close()
  }
}

/**
 * Carries everything.
 * @param until of sums, those of whole hours before this time alone (Unix ms)
 */
export async function carry(
  source: Pick<End, 'read'>,
  target: End,
  now: number,
  drop: Drop,
  { progress, signal }: Pick<MoveOptions, 'progress' | 'signal'>,
  until = Number.POSITIVE_INFINITY,
): Promise<Tallies> {
  const carried = new Tallies()
  let count = 0
  for (const kind of KINDS)
    for await (const batch of source.read(kind, now, drop)) {
      signal?.throwIfAborted()
      for (const item of await target.write(kind, batch.filter(isBefore(kind, until)))) carried.add(kind, item)
      progress((count += batch.length))
    }
  return carried
}

/** Whether something is no sum, or the sum of an hour before a time. */
function isBefore(kind: Kind, until: number): (item: object) => boolean {
  if (kind !== 'sums' && kind !== 'tagged') return () => true
  return item => (item as { time: number }).time < until
}

function refusal(name: string, { state, other }: { state: string; other: string }): StoreUnavailable {
  const words: Record<string, string> = {
    moved: `was moved to ${other} already, and its data is old: name another store, or remove the data`,
    moving: `is being moved to ${other}; end that move first, or take it back with --cancel`,
    filling: `is being filled from ${other} and is not complete; end that move first, or take it back with --cancel`,
  }
  return new StoreUnavailable(`${name} ${words[state]}`)
}

/**
 * @param make for a target: what is not there is made
 * @param beside gateways may run on it
 */
export async function openEnd(
  url: string,
  maxMemory: number | null,
  tell: (text: string) => void,
  make: boolean,
  beside = false,
): Promise<End> {
  if (url.startsWith('sqlite:')) return (await import('./sqlite.ts')).openSqliteEnd(url, make)
  if (isLocal(url) && !make && !existsSync(path.join(folderOf(url), 'redis')))
    throw new StoreUnavailable(`there is no local store in ${path.resolve(folderOf(url))}`)
  return (await import('./redis.ts')).openRedisEnd(url, maxMemory, tell, beside)
}

/** Starts on the source once as a gateway does, so that its tables are of this release and its journals are booked. */
async function settle(url: string, name: string, { log, tell }: MoveOptions): Promise<void> {
  const server = isLocal(url)
    ? await (await import('../local.ts')).LocalServer.start({ url, maxMemory: null, tell, beside: true })
    : undefined
  try {
    const store = await openStore({ url, timeout: 30_000, clock: systemClock, log })
    await store.close()
    if (store.engine === 'sqlite') return
    const { describe, parseRedisUrl } = await import('../redis/url.ts')
    const dir = path.join(isLocal(url) ? folderOf(url) : './data', 'journal')
    const left = abandonedJournals({ dir, store: describe(parseRedisUrl(url)), log })
    for (const journal of left) journal.leave()
    if (left.length) throw new StoreUnavailable(`the journals in ${dir} could not be booked in ${name}; try again`)
  } finally {
    await server?.stop()
  }
}

// ---- the check ------------------------------------------------------------------------------------------------------

/** Counts, sums and contents by kind, and of what expires by the hour in which it does. The order does not matter. */
export class Tallies {
  readonly #of = new Map<Name, Map<number, Tally & { content: number }>>()

  add<K extends Kind>(kind: K, item: Carried[K]): void {
    for (const [name, sum, content, expires] of entriesOf(kind, item)) {
      let hours = this.#of.get(name)
      if (!hours) this.#of.set(name, (hours = new Map()))
      const hour = expires === undefined ? Number.POSITIVE_INFINITY : Math.floor(expires / HOUR_MS)
      let tally = hours.get(hour)
      if (!tally) hours.set(hour, (tally = { count: 0, sum: 0n, content: 0 }))
      tally.count++
      tally.sum += BigInt(sum)
      const digest = createHash('sha1').update(JSON.stringify(content)).digest()
      tally.content = (tally.content + digest.readUIntBE(0, 6)) % 2 ** 48
    }
  }

  /** @param from what expires before this hour is left out */
  total(from: number): Record<Name, Tally & { content: number }> {
    const all = {} as Record<Name, Tally & { content: number }>
    for (const name of Object.keys(NAMES) as Name[]) {
      const total = { count: 0, sum: 0n, content: 0 }
      for (const [hour, { count, sum, content }] of this.#of.get(name) ?? []) {
        if (hour < from) continue
        total.count += count
        total.sum += sum
        total.content = (total.content + content) % 2 ** 48
      }
      all[name] = total
    }
    return all
  }
}

type Entry = [name: Name, sum: number, content: unknown, expires?: number]

/** What is counted of one thing. `content` leaves out what the engines keep in different ways. */
function entriesOf<K extends Kind>(kind: K, item: Carried[K]): Entry[] {
  switch (kind) {
    case 'organizations': {
      const { id, version, settings, about, leaves, keys } = item as Carried['organizations']
      const sorted = keys
        .map(key => [key.id, key.sha256, key.settings, key.about])
        .sort(([a], [b]) => (a! < b! ? -1 : 1))
      return [['organizations', keys.length, [id, version, settings, about, leaves, sorted]]]
    }
    case 'gone': {
      const { organization, key } = item as Carried['gone']
      return [['gone', 0, [organization, key]]]
    }
    case 'audit': {
      const { organization, entry } = item as Carried['audit']
      return [['audit', 0, [organization, entry]]]
    }
    case 'cells': {
      const { organization, spend, levels } = item as Carried['cells']
      return [
        ...spend.map(
          ({ cell, period, number, amount }): Entry => ['spend', amount, [organization, cell, period, number, amount]],
        ),
        // Part of a unit may be lost between buckets that share their time (cells.ts).
        ...levels.map(({ cell, used, at }): Entry => ['levels', used, [organization, cell, used, Math.round(at)]]),
      ]
    }
    case 'tagged': {
      const { cost, ...sum } = item as Carried['tagged']
      return [['tagged', cost, [cost, ...Object.entries(sum).sort(([a], [b]) => (a < b ? -1 : 1))]]]
    }
    case 'sums': {
      const { cost, ...sum } = item as Carried['sums']
      return [['sums', cost, [cost, ...Object.entries(sum).sort(([a], [b]) => (a < b ? -1 : 1))]]]
    }
    case 'ledger': {
      const row = item as Carried['ledger']
      const there = Object.entries(row).filter(([, value]) => value !== null && value !== undefined && value !== '')
      const wellFormed = there.map(([name, value]) => [name, typeof value === 'string' ? value.toWellFormed() : value])
      return [['ledger', row.cost, wellFormed.sort(([a], [b]) => (a! < b! ? -1 : 1))]]
    }
    case 'balances': {
      const { organization, billed, credits } = item as Balance
      return [
        ['billed', billed, [organization, billed]],
        ...credits.map(
          ({ id, amount, time, by, note }): Entry => ['credits', amount, [organization, id, amount, time, by, note]],
        ),
      ]
    }
    case 'notices': {
      const notice = item as Carried['notices']
      return [['notices', 0, Object.entries(notice).sort(([a], [b]) => (a < b ? -1 : 1))]]
    }
    case 'idempotency': {
      const { organization, key, fingerprint, requestId, reply, expires } = item as KeptReply
      const content = reply && [reply.status, reply.headers, digest(reply.body), reply.whole, reply.asked]
      return [['idempotency', reply?.body.length ?? 0, [organization, key, fingerprint, requestId, content], expires]]
    }
    default: {
      const { organization, kind: of, id, value, expires } = item as KeptRecord
      return [['records', value.length, [organization, of, id, digest(value)], expires]]
    }
  }
}

const digest = (bytes: Uint8Array): string => createHash('sha1').update(bytes).digest('hex')

/**
 * Reads the target again and compares it with what was carried. What expires in this hour or the next is left out: it
 * may expire meanwhile, and the time to live of Redis may be a few milliseconds off.
 * @throws StoreUnavailable
 */
export async function verify(
  carried: Tallies,
  target: End,
  now: number,
  { progress, signal }: Pick<MoveOptions, 'progress' | 'signal'>,
  until = Number.POSITIVE_INFINITY,
): Promise<void> {
  let wrong = ''
  for (let read = 0; read < READS; read++) {
    const found = new Tallies()
    let count = 0
    for (const kind of KINDS)
      for await (const batch of target.read(kind, now, () => {})) {
        signal?.throwIfAborted()
        for (const item of batch.filter(isBefore(kind, until))) found.add(kind, item)
        progress((count += batch.length))
      }
    const from = Math.floor(Date.now() / HOUR_MS) + 2 + read
    const [expected, there] = [carried.total(from), found.total(from)]
    const name = (Object.keys(NAMES) as Name[]).find(
      name => describe(expected[name]) !== describe(there[name]) || expected[name].content !== there[name].content,
    )
    if (name === undefined) return
    wrong = `${name}: ${describe(expected[name])} were read, and ${describe(there[name])} are there`
    if (describe(expected[name]) === describe(there[name])) wrong = `${name}: their contents differ`
  }
  throw new StoreUnavailable(`${target.name} does not hold what was carried (${wrong}); the source was not changed`)
}

const describe = ({ count, sum }: Tally): string => `${count} (sum ${sum})`
