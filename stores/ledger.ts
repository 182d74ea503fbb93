/**
 * The ledger of both engines: intents and outcomes go to the local journal first, rows from there to the engine's sink in groups, off the hot path
 * (decisions 26, BILL-4). Spend charges travel with their row, so that the sink books a row and its charges in one step or not at all.
 */
import type { Clock } from '../core/clock.ts'
import { IdMap } from '../core/collections.ts'
import { ZERO_USAGE } from '../core/events.ts'
import type { Logger } from '../core/plugin.ts'
import type { Ledger, LedgerIntent, LedgerOutcome, LedgerRow } from '../core/store.ts'
import type { Charge, Item, Journal, JournalRecord, RecordKind } from './journal.ts'
import { intentJson, type RowValues, rowJson } from './rows.ts'

/** What the journal's `s` record holds. */
export interface ChargeRecord {
  request_id: string
  organization: string
  charges: readonly Charge[]
}

/** One thing for the sink, as the journal has it: a row (`o`), or charges that were settled apart from their row (`s`). */
export interface Entry {
  readonly id: string
  readonly kind: RecordKind
  readonly json: string
}

export interface LedgerSink {
  /** Stores the entries, each row once however often it is offered. Rejects when it cannot now; the same entries are offered again. */
  write(entries: readonly Entry[]): Promise<void>
  /** Rows in time order; with a limit, the latest. */
  query: Ledger['query']
}

export interface JournaledLedgerOptions {
  /** Null: nothing is kept on disk (an in-memory store). */
  journal: Journal | null
  sink: LedgerSink
  clock: Clock
  log: Logger
  /** Entries offered to the sink at once. Default 1000. */
  group?: number
  /** Note delivered ids in the journal: for a sink that cannot itself tell a row it has forever (a stream). */
  noteDelivered?: boolean
}

const DEFAULT_GROUP = 1000
/** Rows wait so long for company, unless someone flushes: a commit costs as much as twenty rows. */
const LINGER_MS = 50
const RETRY_MS = 250
const RETRY_MAX_MS = 5000

/** An exchange from its intent until the sink has its row, or charges on their own: what the journal keeps open is what the sink is given. */
class Kept implements Entry, Item {
  readonly id: string
  kind: RecordKind
  json: string
  segment: Item['segment'] = undefined
  place = -1
  /** Until the end of its turn. */
  outcome: LedgerOutcome | undefined = undefined
  charges: readonly Charge[] | undefined = undefined

  constructor(id: string, kind: RecordKind, json: string) {
    this.id = id
    this.kind = kind
    this.json = json
  }

  /** With its outcome an intent becomes a row. */
  close(): void {
    if (!this.outcome) return
    this.kind = 'o'
    this.json = rowJson(this.json, this.outcome, this.charges)
    this.outcome = undefined
    this.charges = undefined
  }
}

export class JournaledLedger implements Ledger {
  #options: JournaledLedgerOptions
  #group: number
  /** Intents without an outcome. */
  #open = new IdMap<Kept>()
  /** Intents of this turn of the event loop, and what ended in it: they share one append. */
  #opened: Kept[] = []
  #ended: Kept[] = []
  #turn: PromiseWithResolvers<undefined> | undefined
  #queue: Kept[] = []
  /** Delivered, and the journal does not say so yet. */
  #unnoted: string[] = []
  #draining: Promise<void> | undefined
  #lingering: { cancel(): void } | undefined
  #failure: string | undefined
  #closed = false
  /** Ends the wait before the next try. */
  #hurry: (() => void) | undefined

  constructor(options: JournaledLedgerOptions) {
    this.#options = options
    this.#group = options.group ?? DEFAULT_GROUP
  }

  /** Why rows cannot be delivered at present; undefined while all is well. */
  get failure(): string | undefined {
    return this.#failure
  }
  /** Intents without an outcome so far. */
  get open(): number {
    return this.#open.size
  }

  /** Rows that the sink has not taken yet. */
  get pending(): number {
    return this.#queue.length + this.#ended.length
  }

  intent(row: LedgerIntent): undefined | Promise<undefined> {
    const id = row.request_id
    const kept = new Kept(id, 'i', intentJson(row))
    if (!this.#open.add(id, kept)) throw new Error(`a second ledger intent for ${id}`)
    if (this.#options.journal === null) return undefined
    this.#opened.push(kept)
    return this.#thisTurn().promise
  }

  outcome(row: LedgerOutcome): void {
    const kept = this.#open.take(row.request_id)
    if (!kept) {
      this.#options.log.error({ request_id: row.request_id }, 'ledger outcome without an open intent: ignored')
      return
    }
    kept.outcome = row
    this.#ended.push(kept)
    this.#thisTurn()
  }

  /** The spend of a settled request; booked with its row where that has not left yet. */
  charge(organization: string, id: string, charges: readonly Charge[]): void {
    const row = this.#ended.findLast(kept => kept.id === id) ?? this.#open.get(id)
    if (row) row.charges = charges
    else {
      const record: ChargeRecord = { request_id: id, organization, charges }
      this.#ended.push(new Kept(id, 's', JSON.stringify(record)))
    }
    // Of an open row too: its outcome may come yet in this turn, and what the limiter schedules now must come after the append.
    this.#thisTurn()
  }

  query(filter: Parameters<Ledger['query']>[0]): Promise<LedgerRow[]> {
    return this.#options.sink.query(filter)
  }

  /** Resolves when everything given so far is in the sink. Waits while the sink is down. */
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

  /** One last try to deliver within `timeoutMs`; what is left stays in the journal for the next start. */
  async close(timeoutMs: number): Promise<void> {
    this.#endTurn()
    await Promise.race([this.flush(), new Promise(resolve => setTimeout(resolve, timeoutMs).unref())])
    this.#closed = true
    this.#lingering?.cancel()
    this.#hurry?.()
  }

  #thisTurn(): PromiseWithResolvers<undefined> {
    if (this.#turn) return this.#turn
    this.#turn = Promise.withResolvers<undefined>()
    setImmediate(this.#endTurn)
    return this.#turn
  }

  /** Writes what one turn of the event loop gave in one append: its intents, then what ended, so that a row and its charges are both safe or both not. */
  readonly #endTurn = (): void => {
    const turn = this.#turn
    if (!turn) return
    this.#turn = undefined
    const opened = this.#opened
    const ended = this.#ended
    this.#opened = []
    this.#ended = []
    if (!opened.length && !ended.length) return
    const { journal } = this.#options
    for (const kept of opened) journal!.stage('i', kept.json)
    for (const kept of ended) {
      kept.close()
      journal?.stage(kept.kind, kept.json)
    }
    try {
      journal?.commit()
    } catch (error) {
      this.#unwritten(opened, ended, turn, error as Error)
      return
    }
    turn.resolve(undefined)
    if (journal) {
      for (const kept of opened) journal.keep(kept)
      for (const kept of ended) journal.keep(kept)
    }
    this.#offer(ended)
  }

  #unwritten(
    opened: readonly Kept[],
    ended: readonly Kept[],
    turn: PromiseWithResolvers<undefined>,
    error: Error,
  ): void {
    for (const { id } of opened) this.#open.delete(id)
    // Each exchange is refused by it; one that its client has left no longer listens.
    turn.promise.catch(() => {})
    turn.reject(error)
    const rows = ended.filter(kept => !opened.includes(kept))
    if (!rows.length) return
    // They still go to the sink from memory; only a crash before that would close them as lost.
    this.#options.log.error({ error: error.message, rows: rows.length }, 'ledger outcomes could not be journaled')
    this.#offer(rows)
  }

  #offer(ended: readonly Kept[]): void {
    for (const kept of ended) this.#queue.push(kept)
    if (this.#queue.length >= this.#group) void this.#drain()
    else if (this.#queue.length) this.#linger()
  }

  #linger(): void {
    if (this.#lingering || this.#draining || this.#closed) return
    this.#lingering = this.#options.clock.setTimer(LINGER_MS, () => {
      this.#lingering = undefined
      void this.#drain()
    })
  }

  #drain(): Promise<void> {
    this.#draining ??= this.#deliverAll().finally(() => {
      this.#draining = undefined
      if (this.#queue.length) this.#linger()
    })
    return this.#draining
  }

  async #deliverAll(): Promise<void> {
    const { sink, journal, log } = this.#options
    let wait = RETRY_MS
    while (this.#queue.length && !this.#closed) {
      const group = this.#queue.slice(0, this.#group)
      try {
        // The sink knows its last offer apart, and forgets the one before with this one.
        this.#note()
        await sink.write(group)
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
      this.#queue.splice(0, group.length)
      this.#delivered(group, journal)
    }
  }

  #delivered(group: readonly Kept[], journal: Journal | null): void {
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

  /** Throws StoreUnavailable (disk full). */
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

/**
 * What a dead instance's journal still owes: rows in the order of their first records, those without an outcome closed as `lost` with nothing
 * billed: what reached the client is not known, and a bill is never made up.
 */
export function owedEntries(records: readonly JournalRecord[], now: number): { entries: Entry[]; lost: number } {
  /** By request id; a row takes the place of its intent. */
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
  let lost = 0
  for (const entry of owed.values()) {
    if (delivered.has(entry.id)) continue
    if (entry.kind === 'i') lost++
    entries.push(entry.kind === 'i' ? lostRow(entry, now) : entry)
  }
  return { entries: entries.concat(charges), lost }
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
