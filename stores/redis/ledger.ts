/**
 * The ledger as the Redis stream `sluice:ledger`: one entry for each row, with the fields that docs/ledger.md lists.
 */

import { Cluster, type Redis, ReplyError } from 'ioredis'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { Logger } from '../../core/plugin.ts'
import {
  type Ledger,
  type LedgerRow,
  RECENT_ROWS,
  type RowsPage,
  type RowsQuestion,
  type StatementFilter,
  type UsageFilter,
} from '../../core/ports/store.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { columnOf, LEDGER_COLUMNS, type LedgerColumn, NUMBER_COLUMNS, TEXT_COLUMNS } from '../columns.ts'
import type { ShipRetention } from '../index.ts'
import type { Entry, LedgerSink } from '../ledger.ts'
import { ROW_COLUMNS, type RowValues } from '../rows.ts'
import { answers, MOST_LOOKED_AT, placeOf } from '../rows-page.ts'
import { monthIndex } from '../usage.ts'
import type { Connection, RedisClient } from './client.ts'
import { findDrained, matches, readDrained } from './drained.ts'
import { script } from './scripts.ts'

type Filter = Parameters<Ledger['query']>[0]

const APPEND_SCRIPT = script('append')
export const STREAM = 'sluice:ledger'
/** Hash: by target, the position of the last row that was shipped to it. */
export const SHIPPED = `{${STREAM}}:shipped`
/** Keys of the sums of the stream's entries (usage.ts), in its slot: what is counted, and the months that have sums. */
export const SUMMED = `{${STREAM}}:summed`
export const MONTHS = `{${STREAM}}:usage`
/** As `MONTHS`, of the values of tags. */
export const TAGGED = `{${STREAM}}:tagged`
/**
 * With an organization's id behind it, the list of the ids of its last entries, the latest first. They are noted when an
 * entry is counted, so that those of gateways of an earlier release are noted, too.
 */
export const LAST = `{${STREAM}}:last:`
/** Hash: by organization, what its prepaid rows cost, in nano-USD. Rows that retention removes stay in it. */
export const BILLED = `{${STREAM}}:billed`
/** With a day (counted from 1970) and an organization behind it, the list of the entries of their rows. */
export const ROW_INDEX = `{${STREAM}}:rows:`
/** The id of the last entry that is in these lists. */
export const INDEXED = `{${STREAM}}:indexed`
/** One script call appends at most this many rows, which takes Redis about a millisecond. */
export const LEDGER_GROUP = 200
/** The index of a ledger that is drained to files ends after this time: its rows have left the stream long before. */
const DRAINED_INDEX_MS = 8 * 86_400_000
const DAY_MS = 86_400_000
/** So many entries of an index are read at once. */
const LOOK = 100
/** One XRANGE reads at most this many rows. */
const PAGE = 1000

/** The key of the set of ids that an instance has sent (lua/append.lua). Its tag puts it in the stream's slot. */
export function sentKey(instance: string): string {
  return `{${STREAM}}:sent:${instance}`
}

/** How long WAIT waits for a replica, ms; while one is missing, the second. */
export const REPLICA_WAIT_MS = 1000
const MISSING_WAIT_MS = 50
/** Each beat of the lease (some seconds) spends at most this long on counting what others have left uncounted, ms. */
const COUNT_MS = 100
/** Time between two looks whether Redis has a replica, while none is known, ms. */
const LOOK_MS = 5000

/** Whether Redis answered, with an error that begins with this word. */
function isReply(error: unknown, word = ''): boolean {
  const { cause } = error as Error
  return cause instanceof ReplyError && (cause as Error).message.startsWith(word)
}

export interface RedisLedgerOptions {
  client: RedisClient
  /**
   * A client of its own for what is appended, since WAIT counts what its connection has written, and keeps everything
   * else on it waiting.
   */
  writer: RedisClient
  log: Logger
  /**
   * How many replicas must have a row before it leaves the journal. `auto`: one, as soon as this process has seen one.
   */
  replicas: number | 'auto'
  clock: Clock
  instance: string
  ledgerKeep: number | null
  ship: ShipRetention | null
  /** Where rows are that have left the stream; null: nowhere. */
  drained: string | null
  /**
   * Resolves when Redis has taken the settlements of these requests. The journal forgets a row once it is delivered,
   * and recovery of its charges needs the row; so its charges must be delivered first.
   */
  settled: (ids: readonly string[]) => Promise<void>
}

export class RedisLedgerSink implements LedgerSink {
  #options: RedisLedgerOptions

  /** How many replicas must have a row. */
  #replicas: number
  #lookAt = Number.NEGATIVE_INFINITY
  #missing = false

  constructor(options: RedisLedgerOptions) {
    this.#options = options
    this.#replicas = options.replicas === 'auto' ? 0 : options.replicas
  }

  async write(entries: readonly Entry[], last: boolean): Promise<Connection> {
    await this.#options.settled(entries.map(entry => entry.id))
    return this.append(entries, this.#options.instance, last)
  }

  /**
   * Appends rows; a row that is offered again is appended once.
   * @param instance the instance whose set of sent ids is used
   * @param anew whether the set of sent ids is replaced by the ids of this call. True for a living owner, which repeats
   *   only its last offer, unless rows wait for a replica. False for the journal of a dead one, whose ids are added to
   *   the set.
   */
  async append(entries: readonly Entry[], instance: string, anew: boolean): Promise<Connection> {
    const { writer } = this.#options
    const rows: string[] = []
    for (const { kind, json } of entries) if (kind === 'o') rows.push(toFields(json))
    const connection = writer.connectionTo(STREAM)
    if (rows.length === 0) return connection
    try {
      await this.#append(writer, rows, instance, anew, connection.redis)
    } catch (error) {
      if (isReply(error, 'MOVED') && writer.redis instanceof Cluster) writer.redis.refreshSlotsCache()
      throw error
    }
    return connection
  }

  /** The arguments of append.lua that say what is kept: rows, sums, and rows that were not shipped. */
  #retention() {
    const { clock, ledgerKeep, ship, drained } = this.#options
    const index = drained === null ? (ledgerKeep ?? '') : Math.min(ledgerKeep ?? DRAINED_INDEX_MS, DRAINED_INDEX_MS)
    if (ledgerKeep === null) return { minId: '', month: '' as const, target: '', least: '', keep: '' as const, index }
    const before = (age: number) => String(Math.floor(clock.now() - age))
    const least = ship && ship.keepUnshipped !== null ? before(Math.max(ledgerKeep, ship.keepUnshipped)) : ''
    const month = monthIndex(clock.now() - ledgerKeep)
    return { minId: before(ledgerKeep), month, target: ship?.target ?? '', least, keep: Math.ceil(ledgerKeep), index }
  }

  /** @returns whether entries may be left that are not counted in the sums */
  async #append(
    client: RedisClient,
    rows: readonly string[],
    instance: string,
    anew: boolean,
    redis?: Redis,
  ): Promise<boolean> {
    const { minId, month, target, least, keep, index } = this.#retention()
    const args = [minId, anew ? '1' : '0', `[${rows.join()}]`, month, target, least, keep, index]
    const keys = [STREAM, sentKey(instance), SUMMED, MONTHS, SHIPPED, LAST, BILLED, TAGGED, INDEXED, ROW_INDEX]
    return (await client.script(APPEND_SCRIPT, keys, args, redis)) === 1
  }

  /**
   * Counts entries that no sum has yet, for at most `COUNT_MS`: those of an earlier release, and of its gateways that
   * still run.
   */
  async count(): Promise<void> {
    const { client, clock, instance } = this.#options
    const began = clock.mono()
    while (await this.#append(client, [], instance, false)) if (clock.mono() - began > COUNT_MS) return
  }

  async replicated(connection: Connection): Promise<boolean> {
    const { writer } = this.#options
    if (this.#replicas === 0) await this.#look(connection)
    let found = 0
    if (this.#replicas > 0) {
      const ms = this.#missing ? MISSING_WAIT_MS : REPLICA_WAIT_MS
      try {
        found = (await writer.call(connection.redis.call('WAIT', this.#replicas, ms))) as number
      } catch (error) {
        if (!isReply(error)) throw error
        this.#refused(error as Error)
      }
    }
    // On a connection that has written nothing, WAIT counts every replica.
    if (writer.connectionTo(STREAM) !== connection) throw new StoreUnavailable('the connection to redis was lost')
    this.#missing = found < this.#replicas
    return !this.#missing
  }

  /** Looks whether Redis has a replica, now and then. */
  async #look({ redis }: Connection): Promise<void> {
    const { writer, clock, replicas } = this.#options
    if (replicas !== 'auto' || clock.mono() < this.#lookAt) return
    this.#lookAt = clock.mono() + LOOK_MS
    try {
      const info = await writer.call(redis.info('replication'))
      if (Number(/connected_slaves:(\d+)/.exec(info)?.[1]) > 0) this.#replicas = 1
    } catch (error) {
      // A user that may not ask.
      if (!isReply(error)) throw error
    }
  }

  /** A server, or a user, that has no WAIT. */
  #refused(error: Error): void {
    const { log, replicas } = this.#options
    if (replicas !== 'auto') return
    log.warn({ error: error.message }, 'redis does not tell whether a replica has a ledger row; none is waited for')
    this.#replicas = 0
    this.#lookAt = Number.POSITIVE_INFINITY
  }

  async query(filter: Filter): Promise<LedgerRow[]> {
    const rows: LedgerRow[] = []
    for await (const page of scanRows(this.#options.client, this.#options.drained, filter))
      for (const row of page) rows.push(row)
    rows.sort((a, b) => a.time - b.time)
    return filter.limit === undefined ? rows : rows.slice(-filter.limit || rows.length)
  }
}

/**
 * Pages of matching rows, in the order in which they were appended (the order in which exchanges ended).
 * @param read called for each page with the number of rows read, including those that do not match
 * @param from the first id to read
 * @param to the last id to read
 */
export async function* scanStream(
  client: RedisClient,
  filter: UsageFilter,
  read?: (rows: number) => void,
  from = '-',
  to = '+',
): AsyncGenerator<LedgerRow[]> {
  for (;;) {
    const page = await client.call(client.redis.xrange(STREAM, from, to, 'COUNT', PAGE))
    const rows = page.map(([, fields]) => fromFields(fields)).filter(row => matches(row, filter))
    read?.(page.length)
    if (rows.length) yield rows
    if (page.length < PAGE) return
    from = '(' + page.at(-1)![0]
  }
}

/** Pages of matching rows: those of the stream as in `scanStream`, then those that have left it, from the oldest day. */
export async function* scanRows(
  client: RedisClient,
  drained: string | null,
  filter: UsageFilter,
  read?: (rows: number) => void,
  from?: string,
): AsyncGenerator<LedgerRow[]> {
  const passed = new Set<string>()
  for await (const page of scanStream(client, filter, read, from)) {
    if (drained !== null) for (const { request_id } of page) passed.add(request_id)
    yield page
  }
  if (drained !== null) yield* readDrained(drained, filter, passed, read)
}

/**
 * Rows of an organization by its lists of entries: the latest day first, and of a day what ended last. A cursor has a
 * day, and how many entries of its list are left. Rows that have left the stream are missing.
 */
export async function rowsOf(client: RedisClient, question: RowsQuestion): Promise<RowsPage> {
  const { redis } = client
  const { organization, since, until, after, limit } = question
  const [day, left] = after === null ? [] : placeOf(after)
  const first = Math.floor(since / DAY_MS)
  const last = Math.min(Math.floor((until - 1) / DAY_MS), day ?? Number.POSITIVE_INFINITY)
  const days = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => last - i)
  const lengths = await Promise.all(days.map(at => client.call(redis.llen(`${ROW_INDEX}${at}:${organization}`))))
  const rows: LedgerRow[] = []
  let looked = 0
  for (const [i, at] of days.entries()) {
    let rest = at === day ? Math.min(left!, lengths[i]!) : lengths[i]!
    while (rest > 0) {
      if (rows.length >= limit || looked >= MOST_LOOKED_AT) return { rows, next: `${at}-${rest}` }
      const ids = await client.call(
        redis.lrange(`${ROW_INDEX}${at}:${organization}`, Math.max(0, rest - LOOK), rest - 1),
      )
      const entries = await Promise.all(ids.reverse().map(id => client.call(redis.xrange(STREAM, id, id))))
      for (const [entry] of entries) {
        if (rows.length >= limit) break
        rest--
        looked++
        const row = entry && fromFields(entry[1])
        if (row && answers(row, question)) rows.push(row)
      }
    }
  }
  return { rows, next: null }
}

/** The times of a row, of its id, and of Redis may be of three clocks: they are at most so far apart. */
const CLOCKS_APART_MS = 600_000

/** The milliseconds of the id of an entry. */
const msOf = (entry: string | null): number => (entry === null ? 0 : Number(entry.split('-')[0]))

/**
 * The row of a request of an organization, by the lists of its entries: it is looked for among the `MOST_LOOKED_AT` that
 * were appended after the request came, then among those of the minutes before, then where rows are that have left the
 * stream.
 */
export async function rowOf(
  client: RedisClient,
  drained: string | null,
  organization: string,
  requestId: string,
  time: number,
): Promise<LedgerRow | null> {
  const { redis } = client
  const days = new Set([time, time - CLOCKS_APART_MS, time + CLOCKS_APART_MS].map(at => Math.floor(at / DAY_MS)))
  for (const day of days) {
    const list = `${ROW_INDEX}${day}:${organization}`
    const length = await client.call(redis.llen(list))
    /** The first entry that was appended at this time or later. */
    const placeAt = async (ms: number): Promise<number> => {
      let [low, high] = [0, length]
      while (low < high) {
        const middle = (low + high) >> 1
        if (msOf(await client.call(redis.lindex(list, middle))) < ms) low = middle + 1
        else high = middle
      }
      return low
    }
    const began = await placeAt(time)
    const before = Math.max(await placeAt(time - CLOCKS_APART_MS), began - MOST_LOOKED_AT)
    for (const [from, to] of [
      [began, Math.min(length, began + MOST_LOOKED_AT)],
      [before, began],
    ] as const) {
      for (let at = from; at < to; at += LOOK) {
        const ids = await client.call(redis.lrange(list, at, Math.min(at + LOOK, to) - 1))
        const entries = await Promise.all(ids.map(id => client.call(redis.xrange(STREAM, id, id))))
        for (const [entry] of entries) if (entry?.[1].includes(requestId)) return fromFields(entry[1])
      }
    }
  }
  if (drained === null) return null
  for (const day of days) {
    const row = await findDrained(drained, organization, requestId, day)
    if (row) return row
  }
  return null
}

/** Pages of the rows of an organization by the lists of its entries, then those that have left the stream. */
export async function* statementOf(
  client: RedisClient,
  drained: string | null,
  filter: StatementFilter,
): AsyncGenerator<LedgerRow[]> {
  const { redis } = client
  const { org, since, until } = filter
  const passed = new Set<string>()
  for (let day = Math.floor(since / DAY_MS); day * DAY_MS < until; day++) {
    for (let at = 0; ; at += LOOK) {
      const ids = await client.call(redis.lrange(`${ROW_INDEX}${day}:${org}`, at, at + LOOK - 1))
      const entries = await Promise.all(ids.map(id => client.call(redis.xrange(STREAM, id, id))))
      const rows = entries
        .flatMap(([entry]) => (entry ? [fromFields(entry[1])] : []))
        .filter(row => matches(row, filter))
      if (drained !== null) for (const { request_id } of rows) passed.add(request_id)
      if (rows.length > 0) yield rows
      if (ids.length < LOOK) break
    }
  }
  if (drained !== null) yield* readDrained(drained, filter, passed)
}

/** The latest rows of an organization, the latest first. Those that have left the stream are missing. */
export async function recentRows(client: RedisClient, organization: string): Promise<LedgerRow[]> {
  const ids = await client.call(client.redis.lrange(LAST + organization, 0, RECENT_ROWS - 1))
  const entries = await Promise.all(ids.map(id => client.call(client.redis.xrange(STREAM, id, id))))
  // Rows that retention has removed are missing.
  const rows = entries.flat().map(([, fields]) => fromFields(fields))
  return rows.sort((a, b) => b.time - a.time)
}

/** Number of all rows of the ledger. */
export async function countStream(client: RedisClient): Promise<number> {
  return client.call(client.redis.xlen(STREAM))
}

/** The values of a row as texts, in the order of LEDGER_COLUMNS. A missing value is an empty text. */
export function toColumns(row: LedgerRow): string[] {
  return LEDGER_COLUMNS.map(name => toText(columnOf(row, name)))
}

function toText(value: string | number | boolean | null | undefined): string {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return value ? '1' : '0'
  return value === null || value === undefined ? '' : String(value)
}

/** The index of each of LEDGER_COLUMNS in the values of a row. */
const PLACES = LEDGER_COLUMNS.map(name => ROW_COLUMNS.indexOf(name))

/** The fields of a stream entry, as JSON, in the form that append.lua takes. */
function toFields(row: string): string {
  const values = JSON.parse(row) as RowValues
  const fields: string[] = []
  for (let i = 0; i < PLACES.length; i++) {
    const text = toText(values[PLACES[i]!])
    if (text !== '') fields.push(LEDGER_COLUMNS[i]!, text)
  }
  const json = JSON.stringify(fields)
  // cjson refuses a lone surrogate, which would fail the whole group.
  return json.includes('\\ud') ? JSON.stringify(fields.map(field => field.toWellFormed())) : json
}

export function fromFields(fields: readonly string[]): LedgerRow {
  // `toFields` leaves out empty values. A missing text is '', and null is for the one number that may be missing.
  const row: Record<string, unknown> = { ttfb_ms: null }
  for (const name of TEXT_COLUMNS) row[name] = ''
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i] as LedgerColumn
    row[name] = NUMBER_COLUMNS.has(name) ? Number(fields[i + 1]) : fields[i + 1]
  }
  const { cache_write, estimated, ...same } = row
  return { ...same, cacheWrite: cache_write, estimated: estimated === '1' } as LedgerRow
}
