/**
 * The ledger of both engines. Intents and outcomes are written to the local journal first. Rows then go to the engine's
 * sink in groups, while no exchange waits for them (decisions 26, BILL-4). Spend charges travel with their row, so that
 * the sink books a row and its charges in one step or not at all.
 */

import { ZERO_USAGE } from '../core/canon/events.ts'
import type { Logger } from '../core/plugin.ts'
import type { Ledger, LedgerIntent, LedgerOutcome, LedgerRow } from '../core/ports/store.ts'
import type { Clock } from '../core/tools/clock.ts'
import { IdMap } from '../core/tools/collections.ts'
import type { Charge, Item, Journal, JournalRecord, RecordKind } from './journal.ts'
import type { LostExchange } from './limits/recovery.ts'
import { intentJson, ROW_COLUMNS, type RowValues, rowJson } from './rows.ts'

/** The JSON of the journal's `s` record. */
export interface ChargeRecord {
  request_id: string
  organization: string
  charges: readonly Charge[]
}

/** What a settled request takes from one bucket, or from the balance: the cell's id, the amount. */
export type Count = [cell: string, amount: number]

/** The JSON of the journal's `b` record. */
export interface CountRecord {
  request_id: string
  organization: string
  counts: readonly Count[]
}

/**
 * What the sink takes, in the journal's format: a row (`o`), or charges that were settled apart from their row (`s`).
 */
export interface Entry {
  readonly id: string
  readonly kind: RecordKind
  readonly json: string
}

export interface LedgerSink {
  /**
   * Stores the entries. A row that is offered several times is stored once. Rejects when the engine cannot take them
   * now; the ledger then offers the same entries again.
   * @param last true if these are the only entries that may be offered again
   * @returns the connection that was used, to pass to `replicated`: the same object as long as it is open
   */
  write(entries: readonly Entry[], last: boolean): Promise<unknown>
  /**
   * Whether a replica has all that was written through this connection; false while one is missing. Rejects when that
   * cannot be reported any more, because the connection was lost: what was written through it has to be offered again.
   * Absent: what is written is safe.
   */
  replicated?(connection: unknown): Promise<boolean>
  /** Rows in ascending order of time. With a limit: the latest rows. */
  query: Ledger['query']
}

/** What the engine of limits has to say of a turn. It is in the append that has the rows which were settled. */
export interface TurnLevels {
  /** The JSON of a record `l`; undefined when nothing was settled. */
  record(): string | undefined
  /** The journal has the record, and keeps it until the item is released. */
  written(item: Item): void
}

export interface JournaledLedgerOptions {
  /** Null for an in-memory store, which keeps nothing on disk. */
  journal: Journal | null
  sink: LedgerSink
  clock: Clock
  log: Logger
  /** At most this many entries are offered to the sink at once. Default 1000. */
  group?: number
  /**
   * Whether the ids of delivered rows are written to the journal. Needed for a sink that recognizes a repeated row only
   * for a limited time (a Redis stream).
   */
  noteDelivered?: boolean
  /** At most this many rows wait for a replica. Default 100,000. */
  unreplicated?: number
  /** Absent where the engine keeps levels itself. */
  levels?: TurnLevels
}

/** Of the row of a reply that was made and could not be sent. */
const NOT_SENT = { outcome: 'gateway_error', usage: ZERO_USAGE, cost: 0, code: 'provider_unavailable' } as const

const DEFAULT_GROUP = 1000
/**
 * Rows wait this long for other rows, unless `flush` is called. A commit costs as much as twenty rows, so groups pay.
 */
const LINGER_MS = 50
/** The first pause after a failed delivery, ms. Each further pause is twice as long, up to RETRY_MAX_MS. */
const RETRY_MS = 250
const RETRY_MAX_MS = 5000
/** While a replica is missing, it is asked for after this many ms, and with each delivery. */
const REPLICA_MS = 1000
/**
 * At most this many rows wait in the journal and in memory for a replica, some 100 MB. Above it the oldest leave, though
 * the engine has them only once.
 */
const MAX_UNREPLICATED = 100_000

/**
 * One exchange from its intent until the sink has its row; or charges that were settled apart from their row. The same
 * object is the journal's open item and the sink's entry.
 */
class PendingEntry implements Entry, Item {
  readonly id: string
  kind: RecordKind
  json: string
  /** When it began to wait for the sink, Unix ms. */
  since = 0
  segment: Item['segment'] = undefined
  place = -1
  /** The outcome, from `outcome()` until the end of the same event-loop turn. */
  outcome: LedgerOutcome | undefined = undefined
  /** The text of the intent, from `close` until the row is written. */
  intent = ''
  charges: readonly Charge[] | undefined = undefined
  /** The record `b` of the request, which is appended with its row. */
  also: JournalRecord | undefined = undefined
  /** Nothing of the reply was sent, and nothing will be when the row cannot be written. */
  unsent = false

  constructor(id: string, kind: RecordKind, json: string) {
    this.id = id
    this.kind = kind
    this.json = json
  }

  /** Makes the whole row of an intent that has an outcome. */
  close(): void {
    if (!this.outcome) return
    this.kind = 'o'
    this.intent = this.json
    this.json = rowJson(this.json, this.outcome, this.charges)
    this.charges = undefined
  }

  /** The journal has the row. */
  written(): void {
    this.outcome = undefined
    this.intent = ''
  }

  /** The journal cannot be written: of a reply that is not sent after all, nothing is billed. */
  unwritten(): void {
    if (this.unsent && this.outcome) this.json = rowJson(this.intent, { ...this.outcome, ...NOT_SENT }, undefined)
    this.written()
  }
}

export class JournaledLedger implements Ledger {
  #options: JournaledLedgerOptions
  #group: number
  /** Intents without an outcome, by request id. */
  #open = new IdMap<PendingEntry>()
  /** The intents of this event-loop turn. They share one append with `#ended`. */
  #opened: PendingEntry[] = []
  /** The rows and charges that were completed in this event-loop turn. */
  #ended: PendingEntry[] = []
  /** Settled by the append of this event-loop turn; undefined when the turn has nothing to write. */
  #turn: PromiseWithResolvers<undefined> | undefined
  /** Journaled rows and charges that the sink has not taken yet, oldest first. */
  #queue: PendingEntry[] = []
  /** Ids of delivered rows that the journal does not have as delivered yet. */
  #unnoted: string[] = []
  /** Rows and charges that the sink has taken, and no replica has yet, oldest first; through which connection. */
  #unreplicated: PendingEntry[] = []
  #connection: unknown
  /** This many at the front of the queue were offered before. */
  #offered = 0
  #replicaMissing = false
  /** The oldest rows have left the journal without a replica. */
  #overflowed = false
  #draining: Promise<void> | undefined
  #lingering: { cancel(): void } | undefined
  #failure: string | undefined
  #closed = false
  /** Ends the pause before the next try at once. */
  #hurry: (() => void) | undefined

  constructor(options: JournaledLedgerOptions) {
    this.#options = options
    this.#group = options.group ?? DEFAULT_GROUP
  }

  /** Why the last delivery failed; undefined when it succeeded. */
  get failure(): string | undefined {
    return this.#failure
  }
  /** Number of intents without an outcome. */
  get open(): number {
    return this.#open.size
  }

  /** Number of rows that the sink has not taken yet. */
  get pending(): number {
    return this.#queue.length + this.#ended.length
  }

  /** Number of rows that the sink has taken and no replica has yet. */
  get unreplicated(): number {
    return this.#unreplicated.length
  }

  /** What is to be said about rows that wait for a replica; undefined when none is missing. */
  get waiting(): string | undefined {
    if (!this.#replicaMissing || this.unreplicated === 0) return undefined
    const rows = `a replica of the store is missing; ledger rows that wait for it in the journal: ${this.unreplicated}`
    return this.#overflowed ? `${rows}; older ones have left without` : rows
  }

  /** Since when the oldest row or charge has been waiting for the sink, Unix ms; Infinity when none does. */
  get pendingSince(): number {
    return this.#queue[0]?.since ?? Number.POSITIVE_INFINITY
  }

  /**
   * Records an intent. Resolves when the journal has it, and rejects with StoreUnavailable when the journal cannot be
   * written. Undefined without a journal.
   * @throws Error when this request already has an open intent
   */
  intent(row: LedgerIntent): undefined | Promise<undefined> {
    const id = row.request_id
    const kept = new PendingEntry(id, 'i', intentJson(row))
    if (!this.#open.add(id, kept)) throw new Error(`a second ledger intent for ${id}`)
    if (this.#options.journal === null) return undefined
    this.#opened.push(kept)
    return this.#thisTurn().promise
  }

  /**
   * Completes the row of an intent. Logs an error and does nothing when there is no open intent.
   * @returns a promise of the append to the journal, where there is one
   */
  outcome(row: LedgerOutcome, unsent = false): undefined | Promise<undefined> {
    const kept = this.#open.take(row.request_id)
    if (!kept) {
      this.#options.log.error({ request_id: row.request_id }, 'ledger outcome without an open intent: ignored')
      return undefined
    }
    kept.outcome = row
    kept.unsent = unsent
    this.#ended.push(kept)
    const { promise } = this.#thisTurn()
    return this.#options.journal ? promise : undefined
  }

  /**
   * Takes the spend of a settled request. It is booked with the request's row unless that row is already in the
   * journal.
   */
  charge(organization: string, id: string, charges: readonly Charge[]): void {
    const row = this.#ended.findLast(kept => kept.id === id) ?? this.#open.get(id)
    if (row) row.charges = charges
    else {
      const record: ChargeRecord = { request_id: id, organization, charges }
      this.#ended.push(new PendingEntry(id, 's', JSON.stringify(record)))
    }
    // An open row needs this too. Its outcome may still come in this turn, and then the append must run before the
    // work that the limit engine schedules after this call.
    this.#thisTurn()
  }

  /** Takes what a settled request takes from buckets, to be booked if the engine does not get its settlement. */
  count(organization: string, id: string, counts: readonly Count[]): void {
    const also: JournalRecord = {
      kind: 'b',
      json: JSON.stringify({ request_id: id, organization, counts } satisfies CountRecord),
    }
    const row = this.#ended.findLast(kept => kept.id === id) ?? this.#open.get(id)
    if (row) row.also = also
    else this.#ended.push(new PendingEntry(id, also.kind, also.json))
    this.#thisTurn()
  }

  query(filter: Parameters<Ledger['query']>[0]): Promise<LedgerRow[]> {
    return this.#options.sink.query(filter)
  }

  /** Appends what this event-loop turn has brought so far. */
  append(): void {
    this.#thisTurn().promise.catch(() => {})
    this.#endTurn()
  }

  /** Resolves when the sink has taken all rows so far, or the ledger is closed. Waits while the sink is down. */
  async flush(): Promise<void> {
    this.#endTurn()
    while (this.#queue.length || this.#draining) {
      this.#lingering?.cancel()
      this.#lingering = undefined
      this.#hurry?.()
      await this.#drain()
      if (this.#closed) return
    }
  }

  /**
   * Tries to deliver the last rows for at most `timeoutMs`. Rows that are left stay in the journal for the next start.
   */
  async close(timeoutMs: number): Promise<void> {
    this.#endTurn()
    await Promise.race([this.flush(), new Promise(resolve => setTimeout(resolve, timeoutMs).unref())])
    this.#closed = true
    this.#lingering?.cancel()
    this.#hurry?.()
  }

  /** Schedules the append of this event-loop turn, once. */
  #thisTurn(): PromiseWithResolvers<undefined> {
    if (this.#turn) return this.#turn
    this.#turn = Promise.withResolvers<undefined>()
    setImmediate(this.#endTurn)
    return this.#turn
  }

  /**
   * Writes all records of one event-loop turn in one append: first the intents, then the completed rows. So the journal
   * has both a row and its charges, or neither.
   */
  readonly #endTurn = (): void => {
    const turn = this.#turn
    if (!turn) return
    this.#turn = undefined
    const opened = this.#opened
    const ended = this.#ended
    this.#opened = []
    this.#ended = []
    const { journal, levels } = this.#options
    const settled = journal ? levels?.record() : undefined
    if (!opened.length && !ended.length && settled === undefined) return
    for (const kept of opened) journal!.stage('i', kept.json)
    for (const kept of ended) {
      kept.close()
      journal?.stage(kept.kind, kept.json)
      if (kept.also) journal?.stage(kept.also.kind, kept.also.json)
    }
    if (settled !== undefined) journal!.stage('l', settled)
    try {
      journal?.commit()
    } catch (error) {
      this.#unwritten(opened, ended, turn, error as Error)
      return
    }
    turn.resolve(undefined)
    for (const kept of ended) kept.written()
    if (journal) {
      for (const kept of opened) journal.keep(kept)
      for (const kept of ended) journal.keep(kept)
    }
    if (settled !== undefined) {
      const item: Item = { kind: 'l', json: settled, segment: undefined, place: -1 }
      journal!.keep(item)
      levels!.written(item)
    }
    this.#offer(ended)
  }

  /** Handles a failed append: rejects the intents of the turn, and offers the completed rows from memory. */
  #unwritten(
    opened: readonly PendingEntry[],
    ended: readonly PendingEntry[],
    turn: PromiseWithResolvers<undefined>,
    error: Error,
  ): void {
    for (const { id } of opened) this.#open.delete(id)
    // Each exchange is refused because of this error. Nothing awaits the promise of an exchange whose client
    // disconnected, so the rejection must not count as unhandled.
    turn.promise.catch(() => {})
    turn.reject(error)
    const rows = ended.filter(kept => !opened.includes(kept))
    if (!rows.length) return
    // The sink still gets these rows from memory. If the process crashes before that, recovery closes them as `lost`.
    for (const kept of rows) kept.unwritten()
    this.#options.log.error({ error: error.message, rows: rows.length }, 'ledger outcomes could not be journaled')
    this.#offer(rows)
  }

  /** Queues rows for the sink, and starts a delivery when a whole group waits. */
  #offer(ended: readonly PendingEntry[]): void {
    const since = this.#options.clock.now()
    for (const kept of ended) {
      kept.since = since
      this.#queue.push(kept)
    }
    if (this.#queue.length >= this.#group) void this.#drain()
    else if (this.#queue.length) this.#linger()
  }

  #linger(ms = LINGER_MS): void {
    if (this.#lingering || this.#draining || this.#closed) return
    this.#lingering = this.#options.clock.setTimer(ms, () => {
      this.#lingering = undefined
      void this.#drain()
    })
  }

  #drain(): Promise<void> {
    this.#draining ??= this.#deliverAll().finally(() => {
      this.#draining = undefined
      if (this.#queue.length) this.#linger()
      else if (this.#unreplicated.length) this.#linger(REPLICA_MS)
    })
    return this.#draining
  }

  async #deliverAll(): Promise<void> {
    const { log } = this.#options
    let wait = RETRY_MS
    while ((this.#queue.length || this.#unreplicated.length) && !this.#closed) {
      const group = this.#queue.slice(0, this.#group)
      let safe: boolean
      try {
        if (group.length) await this.#write(group)
        safe = await this.#replicated()
      } catch (error) {
        if (this.#failure === undefined)
          log.error(
            { error: (error as Error).message, rows: this.#queue.length },
            'ledger rows cannot be delivered; they are kept',
          )
        this.#failure = (error as Error).message
        await this.#pause(wait)
        wait = Math.min(wait * 2, RETRY_MAX_MS)
        continue
      }
      if (this.#failure !== undefined) log.info({}, 'ledger rows are delivered again')
      this.#failure = undefined
      wait = RETRY_MS
      // The replica is asked again after a while, or with the next rows.
      if (!safe && !this.#queue.length) return
    }
  }

  /** Writes the first of the queue, which are this group. */
  async #write(group: readonly PendingEntry[]): Promise<void> {
    const { sink } = this.#options
    // The sink recognizes repeated rows of its last offer only. This offer makes it forget the one before, so the
    // journal must first have that one as delivered, unless rows of it may be offered again.
    this.#note()
    const last = this.#unreplicated.length === 0 && this.#offered <= group.length
    this.#offered = Math.max(this.#offered, group.length)
    const connection = await sink.write(group, last)
    this.#queue.splice(0, group.length)
    this.#offered -= group.length
    // Nobody can tell any more whether a replica has what was written through the former connection.
    if (connection !== this.#connection) this.#offerAgain()
    this.#connection = connection
    for (const kept of group) this.#unreplicated.push(kept)
  }

  /** Lets rows that are safe leave the journal. @returns whether all are; rejects when rows have to be offered again */
  async #replicated(): Promise<boolean> {
    const { sink, log, unreplicated: most = MAX_UNREPLICATED } = this.#options
    const rows = this.#unreplicated
    let safe = true
    try {
      if (sink.replicated && rows.length) safe = await sink.replicated(this.#connection)
    } catch (error) {
      this.#offerAgain()
      throw error
    }
    if (safe === this.#replicaMissing) {
      this.#replicaMissing = !safe
      if (safe) log.info({}, 'a replica has the ledger rows again')
      else log.warn({}, 'a replica of the store is missing; ledger rows wait for it in the journal')
    }
    if (safe) {
      this.#unreplicated = []
      this.#overflowed = false
      this.#delivered(rows)
    } else if (rows.length > most) {
      if (!this.#overflowed)
        log.error({ rows: rows.length }, 'too many ledger rows wait for a replica; the oldest leave the journal')
      this.#overflowed = true
      this.#delivered(rows.splice(0, rows.length - most))
    }
    return safe
  }

  /** Puts what no replica has back into the queue. */
  #offerAgain(): void {
    this.#offered += this.#unreplicated.length
    this.#queue = this.#unreplicated.concat(this.#queue)
    this.#unreplicated = []
  }

  #delivered(group: readonly PendingEntry[]): void {
    const { journal } = this.#options
    if (!journal) return
    if (this.#options.noteDelivered) {
      for (const { id } of group) this.#unnoted.push(id)
      try {
        this.#note()
      } catch (error) {
        this.#options.log.error({ error: (error as Error).message }, 'delivered ledger rows could not be noted yet')
      }
    }
    for (const kept of group) journal.release(kept)
  }

  /**
   * Writes the ids of delivered rows to the journal.
   * @throws StoreUnavailable when the journal cannot be written
   */
  #note(): void {
    if (this.#unnoted.length === 0) return
    this.#options.journal!.note('d', JSON.stringify(this.#unnoted))
    this.#unnoted = []
  }

  #pause(ms: number): Promise<void> {
    return new Promise(resolve => {
      const timer = this.#options.clock.setTimer(ms, resolve)
      this.#hurry = () => {
        timer.cancel()
        resolve()
      }
    })
  }
}

/** An exchange that became `lost`, with its request id. */
export type LostRow = LostExchange & { id: string }

/**
 * The rows and charges of a dead instance's journal that the sink may not have. Rows come in the order of their first
 * records. An intent without an outcome becomes a row with the outcome `lost`, and nothing is billed for it: nobody
 * knows what reached the client, and a bill is never estimated.
 * @param now Unix milliseconds; ends the duration of lost exchanges
 * @returns the entries for the sink; the exchanges of those that are `lost`
 */
export function owedEntries(records: readonly JournalRecord[], now: number): { entries: Entry[]; lost: LostRow[] } {
  // By request id. A row replaces its intent.
  const owed = new Map<string, Entry>()
  const charges: Entry[] = []
  const delivered = new Set<string>()
  for (const { kind, json } of records) {
    if (kind === 'd') for (const id of JSON.parse(json) as string[]) delivered.add(id)
    else if (kind === 's') charges.push({ id: (JSON.parse(json) as ChargeRecord).request_id, kind, json })
    else if (kind === 'i' || kind === 'o') {
      const [id] = JSON.parse(json) as RowValues
      if (owed.get(id)?.kind !== 'o') owed.set(id, { id, kind, json })
    }
  }
  const entries: Entry[] = []
  const lost: LostRow[] = []
  for (const entry of owed.values()) {
    if (delivered.has(entry.id)) continue
    const row = entry.kind === 'i' ? lostRow(entry, now) : entry
    entries.push(row)
    if (entry.kind === 'i') lost.push(exchangeOf(row))
  }
  return { entries: entries.concat(charges), lost }
}

/** The exchange of a row, as levels count it when the row is `lost`. */
function exchangeOf({ id, json }: Entry): LostRow {
  const row = JSON.parse(json) as RowValues
  const of = (column: (typeof ROW_COLUMNS)[number]) => row[ROW_COLUMNS.indexOf(column)]
  return {
    id,
    organization: of('organization') as string,
    key: of('key_id') as string,
    model: of('model') as string,
    time: of('time') as number,
    input: of('input_tokens') as number,
  }
}

function lostRow({ id, json }: Entry, now: number): Entry {
  const [, time] = JSON.parse(json) as RowValues
  const row: LedgerOutcome = {
    request_id: id,
    provider: '',
    outcome: 'lost',
    usage: ZERO_USAGE,
    cost: 0,
    duration_ms: Math.max(0, now - time),
    ttfb_ms: null,
  }
  return { id, kind: 'o', json: rowJson(json, row, undefined) }
}
