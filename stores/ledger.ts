/**
 * The ledger of both engines: intents and outcomes go to the local journal first, rows from there to the engine's sink in groups, off the hot path
 * (decisions 26, BILL-4). Spend charges travel with their row, so that the sink books a row and its charges in one step or not at all.
 */
import type { Clock } from '../core/clock.ts'
import { IdMap } from '../core/collections.ts'
import type { Logger } from '../core/plugin.ts'
import type { Ledger, LedgerIntent, LedgerOutcome, LedgerRow } from '../core/store.ts'
import type { Charge, Item, Journal, JournalRecord } from './journal.ts'

/** What the journal's `o` record holds. */
export type OutcomeRecord = Omit<LedgerOutcome, 'usage'> & LedgerOutcome['usage'] & { charges?: Charge[] }
/** What the journal's `s` record holds. */
export interface ChargeRecord {
  request_id: string
  organization: string
  charges: Charge[]
}

/** One thing for the sink: a row as the two JSON texts of the journal, or charges that were settled apart from their row. */
export type Entry = { id: string; intent: string; outcome: string } | { id: string; charge: string }

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

interface Opened {
  readonly id: string
  readonly json: string
  item: Item | undefined
}

interface Pending {
  entry: Entry
  items: Item[]
}

export class JournaledLedger implements Ledger {
  #options: JournaledLedgerOptions
  #group: number
  /** Intents without an outcome. */
  #open = new IdMap<Opened>()
  /** Intents, outcomes and charges of this turn of the event loop: they share one append. */
  #intents: Opened[] = []
  #outcomes: LedgerOutcome[] = []
  #charges = new IdMap<ChargeRecord>()
  /** Charges settled in a turn before their outcome's. */
  #early = new IdMap<ChargeRecord>()
  #turn: PromiseWithResolvers<undefined> | undefined
  #queue: Pending[] = []
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
    return this.#queue.length
  }

  intent(row: LedgerIntent): undefined | Promise<undefined> {
    const id = row.request_id
    if (this.#open.has(id)) throw new Error(`a second ledger intent for ${id}`)
    const opened: Opened = { id, json: JSON.stringify(row), item: undefined }
    this.#open.set(id, opened)
    if (this.#options.journal === null) return undefined
    this.#intents.push(opened)
    return this.#thisTurn().promise
  }

  outcome(row: LedgerOutcome): void {
    this.#outcomes.push(row)
    this.#thisTurn()
  }

  /** The spend of a settled request; booked with its row. */
  charge(organization: string, id: string, charges: Charge[]): void {
    this.#charges.set(id, { request_id: id, organization, charges })
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

  /** Writes what one turn of the event loop gave: its intents, then the rest, so that an outcome and its charges are both safe or both not. */
  readonly #endTurn = (): void => {
    const turn = this.#turn
    if (!turn) return
    this.#turn = undefined
    this.#writeIntents(turn)
    this.#writeOutcomes()
  }

  #writeIntents(turn: PromiseWithResolvers<undefined>): void {
    const opened = this.#intents
    if (opened.length === 0) return
    this.#intents = []
    try {
      const items = this.#options.journal!.appendAll(opened.map(({ json }) => ({ kind: 'i', json })))
      for (let i = 0; i < items.length; i++) opened[i]!.item = items[i]
      turn.resolve(undefined)
    } catch (error) {
      for (const { id } of opened) this.#open.delete(id)
      // Each exchange is refused by it; one that its client has left no longer listens.
      turn.promise.catch(() => {})
      turn.reject(error)
    }
  }

  #writeOutcomes(): void {
    if (!this.#outcomes.length && !this.#charges.size) return
    const records: JournalRecord[] = []
    const pending: Pending[] = []
    for (const row of this.#outcomes) {
      const open = this.#open.get(row.request_id)
      if (!open) {
        this.#options.log.error({ request_id: row.request_id }, 'ledger outcome without an open intent: ignored')
        continue
      }
      this.#open.delete(row.request_id)
      const json = outcomeJson(row, this.#chargesOf(row.request_id))
      records.push({ kind: 'o', json })
      pending.push({
        entry: { id: row.request_id, intent: open.json, outcome: json },
        items: open.item ? [open.item] : [],
      })
    }
    for (const [id, record] of [...this.#charges.entries()]) {
      this.#charges.delete(id)
      if (this.#open.has(id)) {
        this.#early.set(id, record)
        continue
      }
      const json = JSON.stringify(record)
      records.push({ kind: 's', json })
      pending.push({ entry: { id: record.request_id, charge: json }, items: [] })
    }
    this.#outcomes = []
    if (!records.length) return
    try {
      const items = this.#options.journal?.appendAll(records)
      if (items) for (let i = 0; i < items.length; i++) pending[i]!.items.push(items[i]!)
    } catch (error) {
      // The rows still go to the sink from memory; only a crash before that would close them as lost.
      this.#options.log.error(
        { error: (error as Error).message, rows: records.length },
        'ledger outcomes could not be journaled',
      )
    }
    for (const entry of pending) this.#queue.push(entry)
    if (this.#queue.length >= this.#group) void this.#drain()
    else this.#linger()
  }

  #chargesOf(id: string): Charge[] | undefined {
    const record = this.#charges.get(id) ?? this.#early.get(id)
    if (!record) return undefined
    if (!this.#charges.delete(id)) this.#early.delete(id)
    return record.charges
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
        await sink.write(group.map(pending => pending.entry))
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

  #delivered(group: readonly Pending[], journal: Journal | null): void {
    if (!journal) return
    if (this.#options.noteDelivered) {
      try {
        journal.note('d', JSON.stringify(group.map(pending => pending.entry.id)))
      } catch (error) {
        this.#options.log.error({ error: (error as Error).message }, 'delivered ledger rows could not be noted')
      }
    }
    for (const { items } of group) for (const item of items) journal.release(item)
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

function outcomeJson(row: LedgerOutcome, charges: Charge[] | undefined): string {
  const { usage } = row
  // Written out: what is undefined is left out of the text, and a spread costs as much as the text.
  const record: { [member in keyof Required<OutcomeRecord>]: OutcomeRecord[member] | undefined } = {
    request_id: row.request_id,
    provider: row.provider,
    outcome: row.outcome,
    cost: row.cost,
    duration_ms: row.duration_ms,
    ttfb_ms: row.ttfb_ms,
    bytes_in: row.bytes_in,
    bytes_out: row.bytes_out,
    input: usage.input,
    cached: usage.cached,
    cacheWrite: usage.cacheWrite,
    output: usage.output,
    reasoning: usage.reasoning,
    searches: usage.searches,
    estimated: usage.estimated,
    charges,
  }
  return JSON.stringify(record)
}

/**
 * What a dead instance's journal still owes: rows in the order of their intents, those without an outcome closed as `lost` with nothing
 * billed: what reached the client is not known, and a bill is never made up.
 */
export function owedEntries(
  records: readonly JournalRecord[],
  now: number,
): { entries: Entry[]; lost: number; orphans: string[] } {
  const intents = new Map<string, string>()
  const outcomes = new Map<string, string>()
  const charges: Entry[] = []
  const delivered = new Set<string>()
  for (const { kind, json } of records) {
    if (kind === 'd') for (const id of JSON.parse(json) as string[]) delivered.add(id)
    else if (kind === 'i') intents.set((JSON.parse(json) as LedgerIntent).request_id, json)
    else if (kind === 'o') outcomes.set((JSON.parse(json) as OutcomeRecord).request_id, json)
    else if (kind === 's') charges.push({ id: (JSON.parse(json) as ChargeRecord).request_id, charge: json })
  }
  const entries: Entry[] = []
  let lost = 0
  for (const [id, intent] of intents) {
    if (delivered.has(id)) continue
    let outcome = outcomes.get(id)
    if (outcome === undefined) {
      lost++
      outcome = lostOutcome(JSON.parse(intent) as LedgerIntent, now)
    }
    entries.push({ id, intent, outcome })
  }
  const orphans = [...outcomes.keys()].filter(id => !intents.has(id) && !delivered.has(id))
  return { entries: entries.concat(charges), lost, orphans }
}

function lostOutcome(intent: LedgerIntent, now: number): string {
  const row: OutcomeRecord = {
    request_id: intent.request_id,
    provider: '',
    outcome: 'lost',
    input: 0,
    cached: 0,
    cacheWrite: 0,
    output: 0,
    reasoning: 0,
    searches: 0,
    estimated: false,
    cost: 0,
    duration_ms: Math.max(0, now - intent.time),
    ttfb_ms: null,
  }
  return JSON.stringify(row)
}
