/**
 * Shipping: copies ledger rows from a store (a source) to a target outside, PostgreSQL or files, each row once.
 *
 * The target keeps the position of each source and writes it in one step with the rows, so that a crash at any moment
 * neither passes a row over nor doubles one. A position names the last row that the target has, by its place in the
 * order of commits and by its request id. A source where that row is not in that place any more (a restored backup, a
 * failover that lost rows, a table that was made anew) cannot tell what follows it. It is then read from its first row
 * again, and the target leaves out the rows that it has.
 */

import type { Logger } from '../../core/plugin.ts'
import type { LedgerRow } from '../../core/ports/store.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { columnOf, LEDGER_COLUMNS, NULLABLE_COLUMNS, TEXT_COLUMNS } from '../columns.ts'

/** What failed and what to do about it. The message holds no secret. */
export class ShipError extends Error {}

/** The row of a position is not in the source, or not in that place. */
export class PositionLost extends Error {}

/** A row as targets take it. */
export interface ShipRow {
  readonly id: string
  /** When the request came, Unix ms. */
  readonly time: number
  /** An object with all columns of docs/ledger.md; `estimated` is a boolean, and what is missing is null. */
  readonly json: string
}

export interface Page {
  readonly rows: readonly ShipRow[]
  /** The position of the last row; that of the call when there are no rows. */
  readonly position: string | null
}

/** How far a target is behind. */
export interface Lag {
  rows: number
  /** When the request of the oldest row that was not shipped came, Unix ms; null when all rows were shipped. */
  oldest: number | null
}

/** The ledger of one store. All methods throw StoreUnavailable while the engine does not answer. */
export interface ShipSource {
  /** The identity of the store, made once: 32 hex digits. */
  readonly id: string
  /**
   * The rows that were committed after a position, in the order of their commits; from the first one for null.
   * @throws PositionLost
   */
  page(after: string | null, most: number): Promise<Page>
  /** Notes in the store what a target has. Retention goes by it, and `lag`. */
  note(target: string, position: string | null): Promise<void>
  lag(target: string): Promise<Lag>
  /**
   * Removes the oldest rows up to a position, as long as more than `tail` rows are left. Only Redis has it, whose ledger
   * is in memory. It works in a Redis that is full, too.
   */
  trim?(position: string, tail: number): Promise<void>
  /**
   * Whether this process is the one that follows the ledger for this target. It saves several processes from doing the
   * same work. That no row is doubled does not depend on it: a target takes one batch at a time.
   */
  lead(target: string): Promise<boolean>
  close(): Promise<void>
}

export interface Batch extends Page {
  /** The position that the target had was lost, so these rows are from the beginning. */
  readonly again: boolean
  /** Nothing follows these rows at the moment. */
  readonly last: boolean
}

export interface ShipTarget {
  /**
   * Takes one batch: the rows and their position together, or nothing. Another process waits meanwhile. When it rejects,
   * the target must be closed.
   */
  batch(source: string, next: (after: string | null) => Promise<Batch>): Promise<Shipped>
  /** Removes rows from before this time, Unix ms. */
  expire?(before: number): Promise<void>
  close(): Promise<void>
}

export interface Shipped {
  /** How many rows the target did not have before. */
  rows: number
  position: string | null
  last: boolean
}

export function shipRow(row: LedgerRow): ShipRow {
  const values = LEDGER_COLUMNS.map(name => {
    const missing = NULLABLE_COLUMNS.has(name) ? null : TEXT_COLUMNS.has(name) ? '' : 0
    return [name, clean(columnOf(row, name) ?? missing)]
  })
  return { id: row.request_id, time: row.time, json: JSON.stringify(Object.fromEntries(values)) }
}

/** PostgreSQL takes neither NUL nor half a surrogate pair in a text. One such row would hold up all that follow. */
function clean<T>(value: T): T | string {
  return typeof value === 'string' ? value.toWellFormed().replaceAll('\0', '') : value
}

/** The target without its password: in logs, and as its name in the store. */
export function nameOfTarget(to: string): string {
  if (to.startsWith('file:')) return to
  if (!isPostgres(to)) throw new ShipError(`${to.split(':', 1)[0]}: no such target; use postgres://… or file:DIR`)
  try {
    const url = new URL(to)
    const of = url.searchParams.get('host') ?? url.host
    return `postgres://${url.username && `${url.username}@`}${of}${url.pathname}`
  } catch {
    throw new ShipError('the target is no PostgreSQL URL; expected e.g. postgres://user@host:5432/database')
  }
}

const isPostgres = (to: string): boolean => /^postgres(ql)?:\/\//.test(to)

/** @throws ShipError when the target cannot be used, also for the moment */
export async function openTarget(to: string): Promise<ShipTarget> {
  const name = nameOfTarget(to)
  if (isPostgres(to)) {
    const { openPostgres } = await import('./postgres.ts')
    return openPostgres(to, name)
  }
  const { FileTarget } = await import('./files.ts')
  return new FileTarget(to.slice('file:'.length))
}

/** @throws ShipError when the target can never be used: a wrong URL, a package that is not installed */
export async function checkTarget(to: string): Promise<void> {
  nameOfTarget(to)
  if (isPostgres(to)) await (await import('./postgres.ts')).loadPg()
}

/**
 * Opens the ledger of a store, beside a running gateway or without one: no lock, no journal.
 * @param holder names this process in the lease
 * @throws ShipError, StoreUnavailable
 */
export async function openSource(url: string, holder: string): Promise<ShipSource> {
  if (url.startsWith('sqlite:')) {
    const { openSqliteSource } = await import('../sqlite/ship.ts')
    return openSqliteSource(url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, ''))
  }
  const { openRedisSource } = await import('../redis/ship.ts')
  return openRedisSource(url, holder)
}

export interface ShipAllOptions {
  name: string
  log: Logger
  each?(rows: number): unknown
  go?(): Promise<boolean>
  tail?: number | undefined
}

/** One transaction at the target has at most this many rows, half a megabyte of JSON. */
const BATCH = 1000

/**
 * Ships until nothing is left.
 * @param each called for each batch with the number of its rows
 * @param go asked before each batch; false ends the work
 * @param tail how many of the shipped rows the source keeps; undefined: all, until retention removes them
 */
export async function shipAll(
  source: ShipSource,
  target: ShipTarget,
  { name, log, each, go, tail }: ShipAllOptions,
  most: number = BATCH,
): Promise<void> {
  const next = async (after: string | null): Promise<Batch> => {
    let page: Page
    let again = false
    try {
      page = await source.page(after, most)
    } catch (error) {
      if (!(error instanceof PositionLost)) throw error
      log.warn(
        { target: name, reason: error.message },
        'the ledger is read from its beginning; rows that the target has are left out',
      )
      page = await source.page(null, most)
      again = true
    }
    return { ...page, again, last: page.rows.length < most }
  }
  while (!go || (await go())) {
    const { rows, position, last } = await target.batch(source.id, next)
    if (tail !== undefined && position !== null) await source.trim?.(position, tail)
    await source.note(name, position).catch(error => {
      // A store that is full takes no note until enough rows have left it, and no row waits for the note.
      if (tail === undefined) throw error
    })
    await each?.(rows)
    if (last) return
  }
}

/** For metrics, readiness and the log. */
export interface ShipStatus {
  /** Rows that this process has shipped. */
  shipped: number
  /** How often shipping failed. */
  failures: number
  /** Why it fails now; null when the last try succeeded. */
  failure: string | null
  /** Whether this process ships, and not another one. */
  leading: boolean
  /** Null until the store answers. */
  lag: Lag | null
}

export interface FollowOptions {
  /** The store's URL. */
  store: string
  to: string
  /** Pause between two looks for new rows, ms. */
  interval: number
  /** Names this process in the lease. */
  holder: string
  /**
   * The rows leave the store: this one process alone ships them, `tail` of those that were shipped stay, and those at the
   * target are removed when they are older than `keep`, ms.
   */
  drain?: { tail: number; keep: number | null }
  clock: Clock
  log: Logger
  onStatus(status: ShipStatus): void
}

/** The first pause after a failure, ms. Each further one is twice as long. */
const RETRY_MS = 1000
const RETRY_MAX_MS = 60_000
/** While a backlog is shipped, the lag is looked at after this many batches. */
const LOOK_BATCHES = 20
/** While shipping fails for the same reason, the log says so again after this many ms. */
const REMIND_MS = 600_000

/** Ships new rows again and again, and tries again what failed. It never rejects. */
export class Follower {
  readonly #options: FollowOptions
  readonly #name: string
  #source: ShipSource | undefined
  #target: ShipTarget | undefined
  readonly #status: ShipStatus = { shipped: 0, failures: 0, failure: null, leading: false, lag: null }
  #loggedAt = Number.NEGATIVE_INFINITY
  #stopped = false
  #wake: (() => void) | undefined
  readonly #running: Promise<void>

  /** @throws ShipError when `to` is no target */
  constructor(options: FollowOptions) {
    this.#options = options
    this.#name = nameOfTarget(options.to)
    this.#running = this.#run()
  }

  /** Resolves when the running batch has ended. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#wake?.()
    await this.#running
  }

  async #run(): Promise<void> {
    const { interval, onStatus } = this.#options
    let retry = RETRY_MS
    while (!this.#stopped) {
      let pause = interval
      try {
        await this.#round()
        this.#recovered()
        retry = RETRY_MS
      } catch (error) {
        await this.#failed(error as Error)
        pause = retry
        retry = Math.min(2 * retry, RETRY_MAX_MS)
      }
      onStatus({ ...this.#status })
      if (!this.#stopped) await this.#pause(pause)
    }
    await this.#target?.close().catch(() => {})
    await this.#source?.close().catch(() => {})
  }

  async #round(): Promise<void> {
    const { store, to, holder, drain, clock, log, onStatus } = this.#options
    const status = this.#status
    const source = (this.#source ??= await openSource(store, holder))
    // A lease is written, which a store that is full refuses.
    const leads = async () => drain !== undefined || source.lead(this.#name)
    const lead = async () => (status.leading = !this.#stopped && (await leads()))
    const look = async () => {
      status.lag = await source.lag(this.#name)
      onStatus({ ...status })
    }
    let batches = 0
    await look()
    if (await lead()) {
      this.#target ??= await openTarget(to)
      await shipAll(source, this.#target, {
        name: this.#name,
        log,
        go: lead,
        tail: drain?.tail,
        each: async rows => {
          status.shipped += rows
          if (++batches % LOOK_BATCHES === 0) await look()
        },
      })
      if (drain && drain.keep !== null) await this.#target.expire?.(clock.now() - drain.keep)
    }
    if (!status.leading) await this.#closeTarget()
    await look()
  }

  async #failed(error: Error): Promise<void> {
    const { clock, log } = this.#options
    const status = this.#status
    const known = status.failure === error.message && clock.mono() - this.#loggedAt < REMIND_MS
    status.failures++
    status.failure = error.message
    await this.#closeTarget()
    // While the target is out, the store says what waits for it.
    status.lag = (await this.#source?.lag(this.#name).catch(() => null)) ?? status.lag
    if (known) return
    this.#loggedAt = clock.mono()
    log.error(
      { target: this.#name, error: error.message, ...behind(status.lag, clock.now()) },
      'the ledger is not shipped; it is tried again',
    )
  }

  #recovered(): void {
    const { log } = this.#options
    if (this.#status.failure !== null) log.info({ target: this.#name }, 'the ledger is shipped again')
    this.#status.failure = null
  }

  async #closeTarget(): Promise<void> {
    const target = this.#target
    this.#target = undefined
    await target?.close().catch(() => {})
  }

  #pause(ms: number): Promise<void> {
    return new Promise(resolve => {
      const timer = this.#options.clock.setTimer(ms, resolve)
      this.#wake = () => {
        timer.cancel()
        resolve()
      }
    })
  }
}

/** What the log and readiness say of a lag. */
export function behind(lag: Lag | null, now: number): { rows: number; seconds: number } {
  if (!lag || lag.oldest === null) return { rows: 0, seconds: 0 }
  return { rows: lag.rows, seconds: Math.max(0, Math.round((now - lag.oldest) / 1000)) }
}
