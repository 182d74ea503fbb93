/**
 * The shared engine: any number of processes on any number of machines use one Redis. Each process keeps its own local
 * journal of the ledger (decisions 26, 27).
 */
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { COUNTED, countedOfLost, userOfCell } from '../../core/canon/limits.ts'
import type { Logger } from '../../core/plugin.ts'
import type { AuditBounds } from '../../core/ports/accounts.ts'
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
import type { ShipRetention } from '../index.ts'
import { type Abandoned, abandonedJournals, Journal } from '../journal.ts'
import { removeLeft } from '../leaving.ts'
import { type ChargeRecord, type CountRecord, JournaledLedger, type LostRow, owedEntries } from '../ledger.ts'
import { levelPlace } from '../move/cells.ts'
import { chargesOf, ROW_COLUMNS, type RowValues } from '../rows.ts'
import { configuredSecret } from '../secret.ts'
import { WriteProbe } from '../write-probe.ts'
import { RedisAccounts } from './accounts.ts'
import { type Connection, RedisClient } from './client.ts'
import { drainOf } from './drained.ts'
import { type LayoutStep, STEPS } from './format.ts'
import { IDEMPOTENCY_LEASE_MS, RedisIdempotency } from './idempotency.ts'
import { Identity } from './identity.ts'
import { BALANCE, placeOf, STARTS } from './layout.ts'
import { LEASE_TIMES, Leases, type LeaseTimes } from './lease.ts'
import {
  LEDGER_GROUP,
  REPLICA_WAIT_MS,
  RedisLedgerSink,
  recentRows,
  rowOf,
  rowsOf,
  sentKey,
  statementOf,
} from './ledger.ts'
import { RedisLimits } from './limits.ts'
import { RedisNotices } from './notices.ts'
import type { OrgKeys } from './plan.ts'
import { RECORDS, RedisRecords, VALUES } from './records.ts'
import { BUCKET, script } from './scripts.ts'
import type { Shares } from './shares.ts'
import { scanUsage } from './usage.ts'

const CHARGE_SCRIPT = script('charge')

/** What one request of a dead instance's journal takes from spend and from buckets. */
interface Owed {
  organization: string
  charges: ChargeRecord['charges']
  counts: CountRecord['counts']
}
/** Closing waits this long for the last ledger rows to be delivered. */
const CLOSE_MS = 5000
/** The pause before the next try to recover a journal. */
const RECOVER_MS = 5000
/** How long the key lives that readiness writes. */
const PROBE_MS = 60_000

export interface RedisStoreOptions {
  url: string
  timeout: number
  instance: string
  clock: Clock
  log: Logger
  ledgerKeep: number | null
  /** Which rows are kept for longer, because they were not shipped. Null or absent: none. */
  ship?: ShipRetention | null
  /** Undefined: the audit is kept whole. */
  audit?: AuditBounds
  maxRecord: number
  maxTotal: number
  /** All retained responses and continuation data together take at most this many bytes. */
  maxRecords: number
  /** All values of plugins together take at most this many bytes. */
  maxValues: number
  /** How many replicas must have a ledger row before it leaves the journal. `auto`: one, once one was seen. */
  replicas: number | 'auto'
  /** The part of `maxTotal`, of `maxRecords` and of `maxValues` that one organization may have. */
  share: number
  dataDir: string
  /** The folder beside the configuration that remembers which data was there, too. */
  configDir?: string | undefined
  /** For tests: shorter leases. */
  leaseTimes?: LeaseTimes
  /** For tests: life of an idempotency mark, ms. */
  idempotencyLease?: number
  /** For tests: other versions of the layout. */
  steps?: readonly LayoutStep[]
}

/**
 * Opens the shared store. It resolves also when Redis is down: every call then fails with StoreUnavailable until Redis
 * is up, and no restart is needed.
 * @throws FormatRefused when Redis or a journal on this machine has a format that this build does not read
 */
export async function openRedisStore(options: RedisStoreOptions): Promise<RedisStore> {
  const client = new RedisClient(options)
  let store: RedisStore | undefined
  try {
    store = new RedisStore(options, client)
    await store.start()
    return store
  } catch (error) {
    await store?.close()
    client.disconnect()
    throw error
  }
}

export class RedisStore implements Store {
  readonly engine = 'redis'
  readonly remote = true
  readonly limits: RedisLimits
  readonly ledger: JournaledLedger
  readonly idempotency: RedisIdempotency
  readonly records: RedisRecords
  readonly pluginValues: RedisRecords<'value'>
  readonly accounts: RedisAccounts
  readonly notices: RedisNotices
  readonly leases: Leases
  #options: RedisStoreOptions
  readonly client: RedisClient
  /** The ledger's own connection. */
  readonly #writer: RedisClient
  #journal: Journal
  #sink: RedisLedgerSink
  /** Where rows are that have left the stream; null: nowhere. */
  readonly #drained: string | null
  readonly #probe: WriteProbe
  #recovering: Timer | undefined
  #recovery: Promise<void> | undefined
  #closed = false

  constructor(options: RedisStoreOptions, client: RedisClient) {
    const { clock, log, instance, ledgerKeep } = options
    this.#options = options
    this.#drained = drainOf(options.url)
    this.client = client
    this.#journal = new Journal({ dir: path.join(options.dataDir, 'journal'), instance, store: client.name, log })
    this.idempotency = new RedisIdempotency({
      client,
      maxRecord: options.maxRecord,
      maxTotal: options.maxTotal,
      share: options.share,
      leaseMs: options.idempotencyLease ?? IDEMPOTENCY_LEASE_MS,
      clock,
    })
    const { maxRecords, maxValues, share } = options
    this.records = new RedisRecords(RECORDS, { client, maxTotal: maxRecords, share })
    this.pluginValues = new RedisRecords(VALUES, { client, maxTotal: maxValues, share })
    this.leases = new Leases({
      client,
      clock,
      log,
      instance,
      times: options.leaseTimes ?? LEASE_TIMES,
      steps: options.steps ?? STEPS,
      identity: new Identity(
        client,
        [...(options.configDir === undefined ? [] : [options.configDir]), options.dataDir],
        log,
      ),
      each: async () => {
        await this.idempotency.renew()
        // What fails is done by the next beat: a full Redis must not keep what dead processes hold.
        for (const { shares } of this.#retained) await shares.beat().catch(() => {})
        await this.#sink.count().catch(() => {})
        await this.accounts.index().catch(() => {})
        await removeLeft(this.accounts, org => this.#forget(org), clock.now()).catch(() => {})
        if (options.audit) await this.accounts.trim(options.audit, clock.now()).catch(() => {})
      },
    })
    this.limits = new RedisLimits({
      client,
      leases: this.leases,
      clock,
      log,
      onCharge: (org, id, charges) => this.ledger.charge(org, id, charges),
      onCount: (org, id, counts) => this.ledger.count(org, id, counts),
      billed: org => this.accounts.billed(org),
    })
    // The state of Redis is logged once, by the other client.
    const quiet = { debug() {}, info() {}, warn() {}, error() {} }
    this.#writer = new RedisClient({ url: options.url, timeout: options.timeout + REPLICA_WAIT_MS, log: quiet })
    this.#sink = new RedisLedgerSink({
      client,
      writer: this.#writer,
      log,
      replicas: options.replicas,
      clock,
      instance,
      ledgerKeep,
      ship: options.ship ?? null,
      drained: this.#drained,
      settled: ids => this.limits.delivered(ids),
    })
    this.ledger = new JournaledLedger({
      journal: this.#journal,
      sink: this.#sink,
      clock,
      log,
      group: LEDGER_GROUP,
      noteDelivered: true,
    })
    this.accounts = new RedisAccounts(client)
    this.notices = new RedisNotices(client)
    this.#probe = new WriteProbe(clock, () => client.call(client.redis.set('sluice:probe', instance, 'PX', PROBE_MS)))
  }

  async start(): Promise<void> {
    // Journals are checked before Redis is changed. If a journal needs an older release, that release finds Redis as it
    // left it.
    const journals = this.#abandoned()
    try {
      await Promise.all([this.client.connect(), this.#writer.connect()])
      await this.leases.start()
    } catch (error) {
      for (const journal of journals) journal.leave()
      throw error
    }
    await this.#checkEviction()
    this.#recovery = this.#recover(journals)
    await this.#recovery
  }

  async ready(): Promise<{ ok: boolean; reason?: string }> {
    if (this.#closed) return { ok: false, reason: 'the store is closed' }
    const reason = this.#journal.failure
    if (reason !== undefined) return { ok: false, reason }
    // Not a ping: a server that is full, or a replica, answers that too.
    const trouble = await this.#probe.check()
    if (trouble && !trouble.slow) return { ok: false, reason: trouble.reason }
    const failure = trouble ? this.leases.refusal : await this.leases.check()
    if (failure !== undefined) return { ok: false, reason: failure }
    // All gateways on this store meet the same stall: a balancer that took them out would have nobody left to answer.
    if (trouble) return { ok: true, reason: `the store is slow: ${trouble.reason}` }
    const { waiting } = this.ledger
    return waiting === undefined ? { ok: true } : { ok: true, reason: waiting }
  }

  usage(filter: UsageFilter): AsyncIterable<UsageSum[]> {
    return scanUsage(this.client, this.#drained, filter)
  }

  recent(organization: string): Promise<LedgerRow[]> {
    return recentRows(this.client, organization)
  }

  rows(question: RowsQuestion): Promise<RowsPage> {
    return rowsOf(this.client, question)
  }

  row(organization: string, requestId: string, time: number): Promise<LedgerRow | null> {
    return rowOf(this.client, this.#drained, organization, requestId, time)
  }

  statement(filter: StatementFilter): AsyncIterable<LedgerRow[]> {
    return statementOf(this.client, this.#drained, filter)
  }

  /** Undefined where the user of the connection may not call INFO. */
  async size(): Promise<StoreSize | undefined> {
    const { used_memory: used, maxmemory, total_system_memory } = await this.#memory()
    return used === undefined
      ? undefined
      : { used: Number(used), limit: Number(maxmemory) || Number(total_system_memory) }
  }

  stats(): StoreStats {
    const { ledger, records, idempotency, pluginValues } = this
    const kept = {
      records: records.shares.stats,
      idempotency: idempotency.shares.stats,
      plugin_values: pluginValues.shares.stats,
    }
    const { open, pending, unreplicated } = ledger
    const journalSegments = this.#journal.segments
    return { openRows: open, pendingRows: pending, unreplicatedRows: unreplicated, journalSegments, kept }
  }

  async secret(configured: string): Promise<Uint8Array> {
    if (configured) return configuredSecret(configured)
    // Nothing is written to data that this build cannot use.
    await this.leases.started()
    await this.client.call(this.client.redis.set('sluice:secret', randomBytes(32).toString('base64'), 'NX'))
    return Buffer.from((await this.client.call(this.client.redis.get('sluice:secret')))!, 'base64')
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#recovering?.cancel()
    await this.#recovery
    await this.ledger.close(CLOSE_MS)
    this.limits.close()
    await this.leases.close(this.limits.clean)
    if (this.ledger.pending === 0 && this.ledger.unreplicated === 0)
      await this.client.call(this.client.redis.del(sentKey(this.#options.instance))).catch(() => {})
    this.#journal.close()
    this.client.disconnect()
    this.#writer.disconnect()
  }

  get #retained(): readonly { readonly shares: Shares }[] {
    return [this.idempotency, this.records, this.pluginValues]
  }

  async #forget(org: string): Promise<void> {
    for (const { shares } of this.#retained) await shares.clear(org)
    await this.leases.clear(org)
  }

  /**
   * Takes over the journals of dead processes on this machine.
   * @throws FormatRefused when this build does not read one of them
   */
  #abandoned(): Abandoned[] {
    const { dataDir, log } = this.#options
    return abandonedJournals({ dir: path.join(dataDir, 'journal'), store: this.client.name, log })
  }

  /** Books the rows and charges of the journals. A journal that Redis does not take now is tried again later. */
  async #recover(journals: readonly Abandoned[]): Promise<void> {
    const { log } = this.#options
    let left = false
    for (const journal of journals) {
      try {
        await this.#adopt(journal)
      } catch (error) {
        left = true
        journal.leave()
        log.warn(
          { instance: journal.instance, error: (error as Error).message },
          'a journal could not be recovered yet',
        )
      }
    }
    if (left) this.#recoverLater()
  }

  #recoverLater(): void {
    if (this.#closed) return
    this.#recovering = this.#options.clock.setTimer(RECOVER_MS, () => {
      try {
        this.#recovery = this.#recover(this.#abandoned())
      } catch (error) {
        // A process of another release has died on this machine since the start.
        this.#options.log.warn({ error: (error as Error).message }, 'journals could not be recovered yet')
        this.#recoverLater()
      }
    })
  }

  async #adopt(journal: Abandoned): Promise<void> {
    const { clock, log } = this.#options
    const { entries, lost } = owedEntries(journal.records, clock.now())
    let connection: Connection | undefined
    for (let i = 0; i < entries.length; i += LEDGER_GROUP) {
      const last = connection
      connection = await this.#sink.append(entries.slice(i, i + LEDGER_GROUP), journal.instance, false)
      if (last && last !== connection) throw new StoreUnavailable('the connection to redis was lost')
    }
    if (connection && !(await this.#sink.replicated(connection)))
      throw new StoreUnavailable('a replica of the store is missing')
    const charged = await this.#charge(journal, lost)
    // Balances that were built since this process died lack its rows.
    const billing = ROW_COLUMNS.indexOf('billing')
    const rows = entries.filter(({ kind }) => kind === 'o').map(({ json }) => JSON.parse(json) as RowValues)
    const prepaid = new Set(rows.filter(row => row[billing] === 'prepaid').map(([, , organization]) => organization))
    for (const org of prepaid) await this.limits.buildBalance(org)
    if (journal.damaged) log.error({ instance: journal.instance, damaged: journal.damaged }, 'a journal was damaged')
    log.info(
      { instance: journal.instance, rows: entries.length, lost: lost.length, charged },
      'ledger recovered from the journal',
    )
    journal.done()
    await this.client.call(this.client.redis.del(sentKey(journal.instance))).catch(() => {})
  }

  /**
   * Books what a dead instance's journal has of settlements that may not have reached Redis, and what exchanges count that
   * were cut off: only those whose reservation was still in Redis, and so was never settled.
   * @param lost the exchanges that were cut off
   * @returns how many requests were charged
   */
  async #charge(journal: Abandoned, lost: readonly LostRow[]): Promise<number> {
    const byId = new Map<string, Owed>()
    const of = (id: string, organization: string) => {
      let owed = byId.get(id)
      if (!owed) byId.set(id, (owed = { organization, charges: [], counts: [] }))
      return owed
    }
    for (const { kind, json } of journal.records) {
      if (kind === 's') {
        const { request_id, organization, charges } = JSON.parse(json) as ChargeRecord
        of(request_id, organization).charges = charges
      } else if (kind === 'b') {
        const { request_id, organization, counts } = JSON.parse(json) as CountRecord
        of(request_id, organization).counts = counts
      } else if (kind === 'o') {
        const row = JSON.parse(json) as RowValues
        const charges = chargesOf(row)
        if (charges.length) of(row[0], row[2]).charges = charges
      }
    }
    for (const { id, organization, key, model, input } of lost)
      of(id, organization).counts = countedOfLost(key, model, input).map(({ cell, amount }) => [cell, amount])
    if (byId.size === 0) return 0
    const leases = await this.leases.of(journal.instance)
    let count = 0
    for (const lease of leases) {
      const organizations = new Set(Array.from(byId.values(), ({ organization }) => organization))
      for (const org of organizations) await this.leases.reclaim(lease, org)
      for (const [request_id, { organization, charges, counts }] of byId) {
        const account: (string | number)[] = []
        const users = new Map<string, (string | number)[]>()
        const argsOf = (id: string) => {
          const key = userOfCell(id)?.key
          if (key === undefined) return account
          const known = users.get(key)
          if (known) return known
          const args: (string | number)[] = []
          users.set(key, args)
          return args
        }
        for (const [id, period, index, amount] of charges) {
          const { group, place } = placeOf({ id, kind: 'spend', dimension: 'spend', period })
          argsOf(id).push(group, STARTS[place]!, index, amount)
        }
        for (const [id, amount] of counts) {
          const place = id === COUNTED.balance.given ? BALANCE : levelPlace(id)
          if (place) argsOf(id).push(place.group, STARTS[place.place]!, BUCKET, amount)
        }
        const charge = async ({ cells, reclaimed, prefix }: OrgKeys, args: (string | number)[]) =>
          (await this.client.script(CHARGE_SCRIPT, [cells, reclaimed], [prefix + request_id, ...args])) as number
        count += await charge(this.leases.keysOf(organization, lease), account)
        for (const [key, args] of users) await charge(this.leases.userKeysOf(organization, key, lease), args)
      }
    }
    return count
  }

  /** What Redis says of its memory, by the words of INFO. */
  async #memory(): Promise<
    Partial<Record<'used_memory' | 'maxmemory' | 'maxmemory_policy' | 'total_system_memory', string>>
  > {
    const info = await this.client.call(this.client.redis.info('memory'))
    return Object.fromEntries(Array.from(info.matchAll(/^(\w+):(\S+)/gm), ([, word, value]) => [word!, value!]))
  }

  /**
   * Warns when Redis is configured to evict keys when memory is short, because limits and spend must not be evicted;
   * and when it has less memory than what may be retained.
   */
  async #checkEviction(): Promise<void> {
    const { log, maxTotal, maxRecords, maxValues } = this.#options
    try {
      const memory = await this.#memory()
      const policy = memory.maxmemory_policy
      if (policy && policy !== 'noeviction')
        log.warn({ policy }, 'redis may evict limits and spend: set maxmemory-policy to noeviction')
      const maxmemory = Number(memory.maxmemory)
      if (maxmemory > 0 && maxmemory < maxTotal + maxRecords + maxValues)
        log.warn(
          { maxmemory, max_records: maxRecords, max_plugin_values: maxValues, max_total: maxTotal },
          'redis would be full, and refuse everyone, before store.max_records, store.max_plugin_values and max_total of idempotency are reached',
        )
    } catch {
      // INFO is not allowed, or Redis is down: the policy is unknown, so there is no warning.
    }
  }
}
