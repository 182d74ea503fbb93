/** The embedded engine: one process, one database file, limits in memory. */
import { randomBytes } from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { Logger } from '../../core/plugin.ts'
import type {
  LedgerRow,
  RowsPage,
  RowsQuestion,
  StatementFilter,
  Store,
  StoreSize,
  StoreStats,
  UsageFilter,
  UsageSum,
} from '../../core/ports/store.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import { type Abandoned, abandonedJournals, acquire, Journal } from '../journal.ts'
import { removeLeft } from '../leaving.ts'
import { JournaledLedger, owedEntries } from '../ledger.ts'
import { MemoryLimits } from '../limits/memory.ts'
import { holdsLocal } from '../local.ts'
import { configuredSecret } from '../secret.ts'
import { WriteProbe } from '../write-probe.ts'
import { SqliteAccounts } from './accounts.ts'
import { type RunningKey, SqliteIdempotency } from './idempotency.ts'
import { recentRows, rowOf, rowsOf, SqliteLedgerSink, scanUsage, statementOf } from './ledger.ts'
import { LevelSaver, levelsBefore, positionOf, SettledLevels, usersBefore } from './levels.ts'
import { SqliteNotices } from './notices.ts'
import { checkLog, noteOpened } from './opened.ts'
import { SqliteRecords } from './records.ts'
import { makePrivate, prepare } from './schema.ts'
import { type Caps, packEntries, Tables } from './tables.ts'
import { InlineWriter, ThreadWriter, type Writer } from './writer.ts'

/** A check of readiness waits this long for a commit. */
const PROBE_WAIT_MS = 500
/** Time between two sweeps, which delete expired data. */
const SWEEP_MS = 30_000
/** Closing waits this long for the last ledger rows to be delivered. */
const CLOSE_MS = 5000

export interface SqliteStoreOptions {
  /** File path, or `:memory:` (for tests: nothing is kept on disk). */
  file: string
  instance: string
  clock: Clock
  log: Logger
  caps: Caps
  maxRecord: number
}

/**
 * Opens the embedded store, and books what dead processes left in its journals.
 * @throws StoreUnavailable when the file cannot be opened, or another process uses it
 * @throws FormatRefused (a StoreUnavailable) when the database or a journal has a format that this build does not read
 */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<Store> {
  const { file } = options
  const inMemory = file === ':memory:'
  if (!inMemory) fs.mkdirSync(path.dirname(path.resolve(file)), { recursive: true, mode: 0o700 })
  const folder = path.dirname(path.resolve(file))
  if (!inMemory && !fs.existsSync(file) && holdsLocal(folder))
    throw new StoreUnavailable(
      `${folder} holds the data of a local store, and ${file} would begin without its accounts, spend and ledger: \`sluice store move --from local:${folder}\` carries everything; or keep store: local, or name a file in another folder to begin empty`,
    )
  // Limits are kept in the memory of one process, so a second process on the same file would double every limit.
  const lock = inMemory ? undefined : acquire(file + '.lock')
  if (lock === null)
    throw new StoreUnavailable(
      `${file} is in use by another gateway; one process may use an sqlite store, several need redis`,
    )
  try {
    return await open(options, inMemory, lock)
  } catch (error) {
    lock?.close()
    if (error instanceof StoreUnavailable) throw error
    throw new StoreUnavailable(`cannot open ${file}: ${(error as Error).message}`, error)
  }
}

async function open(options: SqliteStoreOptions, inMemory: boolean, lock: DatabaseSync | undefined): Promise<Store> {
  const { file, caps, clock, log, instance, maxRecord } = options
  const dir = file + '.journal'
  // Journals are checked before the database is changed. If a journal needs an older release, that release finds the
  // database as it left it.
  const abandoned = inMemory ? [] : abandonedJournals({ dir, store: 'sqlite', log })
  let reader: DatabaseSync | undefined
  let writer: Writer | undefined
  try {
    if (!inMemory) makePrivate(file)
    if (lock) checkLog(file, lock)
    reader = new DatabaseSync(file)
    prepare(reader, file)
    if (lock) noteOpened(reader, lock)
    const secret = storedSecret(reader)
    writer = inMemory ? new InlineWriter(reader, caps) : new ThreadWriter(file, caps, new Tables(reader, caps).kept())
    const sink = new SqliteLedgerSink(reader, writer)
    const running = await recover(abandoned, writer, clock, log)
    const journal = inMemory ? null : new Journal({ dir, instance, store: 'sqlite', log })
    const settled: SettledLevels | undefined =
      journal === null ? undefined : new SettledLevels({ limits: () => limits, journal, position: positionOf(reader) })
    const ledger = new JournaledLedger({ journal, sink, clock, log, ...(settled && { levels: settled }) })
    const limits: MemoryLimits = new MemoryLimits({
      clock,
      spent: spentBefore(reader),
      billed: org => accounts.billed(org),
      ...(!inMemory && {
        levelBefore: levelsBefore(reader, clock, () => limits.evictedUntil),
        usersBefore: usersBefore(reader),
      }),
      chargesSince: () => ledger.pendingSince,
      onCharge: (org, id, charges) => ledger.charge(org, id, charges),
    })
    const accounts = new SqliteAccounts(reader)
    const levels = new LevelSaver({ limits, writer, clock, ledger, settled })
    const idempotency = new SqliteIdempotency({ reader, writer, journal, maxRecord })
    idempotency.restore(running, clock.now())
    const records = new SqliteRecords({ reader, writer, table: 'records' })
    const pluginValues = new SqliteRecords<'value'>({ reader, writer, table: 'plugin_values' })
    return new SqliteStore({
      file,
      secret,
      writer,
      reader,
      journal,
      ledger,
      limits,
      levels,
      idempotency,
      records,
      pluginValues,
      accounts,
      clock,
      lock,
    })
  } catch (error) {
    for (const journal of abandoned) journal.leave()
    await writer?.close()
    reader?.close()
    throw error
  }
}

interface Parts {
  file: string
  secret: Uint8Array
  writer: Writer
  reader: DatabaseSync
  journal: Journal | null
  ledger: JournaledLedger
  limits: MemoryLimits
  levels: LevelSaver
  idempotency: SqliteIdempotency
  records: SqliteRecords
  pluginValues: SqliteRecords<'value'>
  accounts: SqliteAccounts
  clock: Clock
  lock: DatabaseSync | undefined
}

class SqliteStore implements Store {
  readonly engine = 'sqlite'
  readonly remote = false
  readonly limits: MemoryLimits
  readonly ledger: JournaledLedger
  readonly idempotency: SqliteIdempotency
  readonly records: SqliteRecords
  readonly pluginValues: SqliteRecords<'value'>
  readonly accounts: SqliteAccounts
  readonly notices: SqliteNotices
  #parts: Parts
  #sweeping: Timer | undefined
  #sweepRuns = false
  readonly #probe: WriteProbe
  #closed = false

  constructor(parts: Parts) {
    this.#parts = parts
    this.limits = parts.limits
    this.ledger = parts.ledger
    this.idempotency = parts.idempotency
    this.records = parts.records
    this.pluginValues = parts.pluginValues
    this.accounts = parts.accounts
    this.notices = new SqliteNotices(parts.reader)
    const { clock, writer } = parts
    this.#probe = new WriteProbe(clock, () => writer.write({ op: 'probe', now: clock.now() }), PROBE_WAIT_MS)
    this.#schedule()
  }

  async ready(): Promise<{ ok: boolean; reason?: string }> {
    if (this.#closed) return { ok: false, reason: 'the store is closed' }
    const reason = this.#parts.journal?.failure ?? this.ledger.failure ?? this.#parts.writer.failure
    if (reason !== undefined) return { ok: false, reason }
    const trouble = await this.#probe.check()
    return trouble === undefined ? { ok: true } : { ok: false, reason: trouble.reason }
  }

  usage(filter: UsageFilter): AsyncIterable<UsageSum[]> {
    return scanUsage(this.#parts.reader, filter)
  }

  recent(organization: string): Promise<LedgerRow[]> {
    return readable(recentRows(this.#parts.reader, organization))
  }

  rows(question: RowsQuestion): Promise<RowsPage> {
    return readable(rowsOf(this.#parts.reader, question))
  }

  row(organization: string, requestId: string): Promise<LedgerRow | null> {
    return readable(rowOf(this.#parts.reader, organization, requestId))
  }

  statement(filter: StatementFilter): AsyncIterable<LedgerRow[]> {
    return readablePages(statementOf(this.#parts.reader, filter))
  }

  stats(): StoreStats {
    const { ledger, journal, writer } = this.#parts
    const { open, pending, unreplicated } = ledger
    const journalSegments = journal?.segments ?? 0
    return { openRows: open, pendingRows: pending, unreplicatedRows: unreplicated, journalSegments, kept: writer.kept }
  }

  async size(): Promise<StoreSize> {
    const { file, reader } = this.#parts
    if (file === ':memory:') {
      const pragma = (name: string) => Number(Object.values(reader.prepare(`PRAGMA ${name}`).get()!)[0])
      return { used: pragma('page_count') * pragma('page_size'), limit: os.totalmem() }
    }
    const sizes = [file, `${file}-wal`].map(name =>
      fs.promises.stat(name).then(
        ({ size }) => size,
        () => 0,
      ),
    )
    const used = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
    const { bavail, bsize } = await fs.promises.statfs(path.dirname(file))
    return { used, limit: used + bavail * bsize }
  }

  async secret(configured: string): Promise<Uint8Array> {
    return configured ? configuredSecret(configured) : this.#parts.secret
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#sweeping?.cancel()
    this.limits.close()
    await this.ledger.close(CLOSE_MS)
    await this.#parts.levels.close()
    await this.#parts.writer.close()
    this.#parts.journal?.close()
    this.#parts.reader.close()
    this.#parts.lock?.close()
  }

  #schedule(): void {
    const { clock } = this.#parts
    this.#sweeping = clock.setTimer(SWEEP_MS, () => {
      this.idempotency.sweep(clock.now())
      // `ready` reports a failure, and the next sweep tries again.
      this.#sweep().catch(() => {})
      this.#schedule()
    })
  }

  async #forget(organization: string): Promise<void> {
    while (!this.#closed && (await this.#parts.writer.remove(organization))) await setImmediate()
  }

  /** Deletes all that has expired, slice by slice. Writes that come meanwhile go between two slices, or with one. */
  async #sweep(): Promise<void> {
    const { clock, writer } = this.#parts
    if (this.#sweepRuns) return
    this.#sweepRuns = true
    try {
      while (!this.#closed && (await writer.sweep(clock.now()))) await setImmediate()
      if (!this.#closed) await removeLeft(this.accounts, organization => this.#forget(organization), clock.now())
    } finally {
      this.#sweepRuns = false
    }
  }
}

/** Books the rows and the levels of dead processes' journals. @returns the idempotency keys whose first use was running */
async function recover(
  abandoned: readonly Abandoned[],
  writer: Writer,
  clock: Clock,
  log: Logger,
): Promise<RunningKey[]> {
  const running: RunningKey[] = []
  for (const journal of abandoned) {
    const { entries, lost } = owedEntries(journal.records, clock.now())
    const levels: string[] = []
    for (const { kind, json } of journal.records) {
      if (kind === 'k') running.push(JSON.parse(json) as RunningKey)
      else if (kind === 'l') levels.push(json)
    }
    if (entries.length || levels.length)
      await writer.write({
        op: 'recover',
        entries: packEntries(entries),
        levels: `[${levels.join()}]`,
        lost,
      })
    if (journal.damaged) log.error({ instance: journal.instance, damaged: journal.damaged }, 'a journal was damaged')
    log.info(
      { instance: journal.instance, rows: entries.length, lost: lost.length },
      'ledger recovered from the journal',
    )
    journal.done()
  }
  return running
}

/** Returns a function that reads from the database how much a cell spent in a period, in nano-USD. */
function spentBefore(db: DatabaseSync): (org: string, cell: string, period: number) => number {
  const select = db.prepare('SELECT amount FROM spend WHERE organization = ? AND cell = ? AND number = ?')
  return (org, cell, period) => (select.get(org, cell, period)?.['amount'] as number | undefined) ?? 0
}

/** The gateway's secret of 32 random bytes. It is made and stored when the database has none. */
function storedSecret(db: DatabaseSync): Uint8Array {
  db.prepare("INSERT OR IGNORE INTO meta (name, value) VALUES ('secret', ?)").run(randomBytes(32))
  return db.prepare("SELECT value FROM meta WHERE name = 'secret'").get()!['value'] as Uint8Array
}

async function readable<T>(rows: Promise<T>): Promise<T> {
  try {
    return await rows
  } catch (error) {
    throw unreadable(error)
  }
}

async function* readablePages<T>(pages: AsyncIterable<T>): AsyncGenerator<T> {
  try {
    yield* pages
  } catch (error) {
    throw unreadable(error)
  }
}

const unreadable = (error: unknown) =>
  new StoreUnavailable(`the store cannot read the ledger: ${(error as Error).message}`, error)
