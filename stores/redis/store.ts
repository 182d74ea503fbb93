/** The shared engine: any number of processes and machines on one Redis. The ledger's journal stays local to each process (decisions 26, 27). */
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import type { Clock, Timer } from '../../core/clock.ts'
import type { Logger } from '../../core/plugin.ts'
import type { Store, StoreStats } from '../../core/store.ts'
import { type Abandoned, abandonedJournals, Journal } from '../journal.ts'
import { type ChargeRecord, JournaledLedger, owedEntries } from '../ledger.ts'
import { chargesOf, type RowValues } from '../rows.ts'
import { configuredSecret } from '../secret.ts'
import { script } from './call.ts'
import { RedisClient } from './client.ts'
import { type LayoutStep, STEPS } from './format.ts'
import { IDEMPOTENCY_LEASE_MS, RedisIdempotency } from './idempotency.ts'
import { placeOf, STARTS } from './layout.ts'
import { LEASE_TIMES, Leases, type LeaseTimes } from './lease.ts'
import { LEDGER_GROUP, RedisLedgerSink, sentKey } from './ledger.ts'
import { RedisLimits } from './limits.ts'
import { RedisRecords } from './records.ts'
import { CHARGE } from './scripts.ts'

const CHARGE_SCRIPT = script(CHARGE)
const CLOSE_MS = 5000
const RECOVER_MS = 5000

export interface RedisStoreOptions {
  url: string
  timeout: number
  instance: string
  clock: Clock
  log: Logger
  ledgerKeep: number | null
  maxRecord: number
  maxTotal: number
  dataDir: string
  /** For tests: shorter leases. */
  leaseTimes?: LeaseTimes
  idempotencyLease?: number
  /** For tests: other versions of the layout. */
  steps?: readonly LayoutStep[]
}

/**
 * Resolves also when Redis is down: then every call is StoreUnavailable until it is up, and nothing needs a restart. Rejects
 * with FormatRefused when Redis or a journal on this machine holds a format that this build does not read.
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
  readonly limits: RedisLimits
  readonly ledger: JournaledLedger
  readonly idempotency: RedisIdempotency
  readonly records: RedisRecords
  readonly leases: Leases
  #options: RedisStoreOptions
  readonly client: RedisClient
  #journal: Journal
  #sink: RedisLedgerSink
  #recovering: Timer | undefined
  #recovery: Promise<void> | undefined
  #closed = false

  constructor(options: RedisStoreOptions, client: RedisClient) {
    const { clock, log, instance, ledgerKeep } = options
    this.#options = options
    this.client = client
    this.#journal = new Journal({ dir: path.join(options.dataDir, 'journal'), instance, store: client.name, log })
    this.idempotency = new RedisIdempotency({
      client,
      maxRecord: options.maxRecord,
      maxTotal: options.maxTotal,
      leaseMs: options.idempotencyLease ?? IDEMPOTENCY_LEASE_MS,
    })
    this.leases = new Leases({
      client,
      clock,
      log,
      instance,
      times: options.leaseTimes ?? LEASE_TIMES,
      steps: options.steps ?? STEPS,
      each: () => this.idempotency.renew(),
    })
    this.limits = new RedisLimits({
      client,
      leases: this.leases,
      clock,
      log,
      onCharge: (org, id, charges) => this.ledger.charge(org, id, charges),
    })
    this.#sink = new RedisLedgerSink({
      client,
      clock,
      instance,
      ledgerKeep,
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
    this.records = new RedisRecords(client)
  }

  async start(): Promise<void> {
    // Before Redis is touched: whoever must start an older release for a journal's sake finds Redis as it was.
    const journals = this.#abandoned()
    try {
      await this.client.connect()
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
    try {
      await this.client.call(this.client.redis.ping())
    } catch (error) {
      return { ok: false, reason: (error as Error).message }
    }
    // A ping is answered also by a server that takes no writes.
    const failure = this.leases.failure
    return failure === undefined ? { ok: true } : { ok: false, reason: failure }
  }

  stats(): StoreStats {
    const { ledger } = this
    return { openRows: ledger.open, pendingRows: ledger.pending, journalSegments: this.#journal.segments }
  }

  async secret(configured: string): Promise<Uint8Array> {
    if (configured) return configuredSecret(configured)
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
    if (this.ledger.pending === 0)
      await this.client.call(this.client.redis.del(sentKey(this.#options.instance))).catch(() => {})
    this.#journal.close()
    this.client.disconnect()
  }

  /** Journals of dead processes on this machine. Throws FormatRefused. */
  #abandoned(): Abandoned[] {
    const { dataDir, log } = this.#options
    return abandonedJournals({ dir: path.join(dataDir, 'journal'), store: this.client.name, log })
  }

  /** Books what they hold; tries again until Redis takes it. */
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
        // Another release has died here since the start.
        this.#options.log.warn({ error: (error as Error).message }, 'journals could not be recovered yet')
        this.#recoverLater()
      }
    })
  }

  async #adopt(journal: Abandoned): Promise<void> {
    const { clock, log } = this.#options
    const { entries, lost } = owedEntries(journal.records, clock.now())
    for (let i = 0; i < entries.length; i += LEDGER_GROUP)
      await this.#sink.append(entries.slice(i, i + LEDGER_GROUP), journal.instance, false)
    const charged = await this.#charge(journal)
    if (journal.damaged) log.error({ instance: journal.instance, damaged: journal.damaged }, 'a journal was damaged')
    log.info({ instance: journal.instance, rows: entries.length, lost, charged }, 'ledger recovered from the journal')
    journal.done()
    await this.client.call(this.client.redis.del(sentKey(journal.instance))).catch(() => {})
  }

  /** Settlements that were journaled but may not have reached Redis: charged where the reservation still stands. */
  async #charge(journal: Abandoned): Promise<number> {
    const owed: ChargeRecord[] = []
    for (const { kind, json } of journal.records) {
      if (kind === 's') owed.push(JSON.parse(json) as ChargeRecord)
      else if (kind === 'o') {
        const row = JSON.parse(json) as RowValues
        const [request_id, , organization] = row
        const charges = chargesOf(row)
        if (charges.length) owed.push({ request_id, organization, charges })
      }
    }
    if (!owed.length) return 0
    const leases = await this.leases.of(journal.instance)
    let count = 0
    for (const lease of leases) {
      for (const org of new Set(owed.map(record => record.organization))) await this.leases.reclaim(lease, org)
      for (const { request_id, organization, charges } of owed) {
        const args = charges.flatMap(([id, period, index, amount]) => {
          const { group, place } = placeOf({ id, kind: 'spend', dimension: 'spend', period })
          return [group, STARTS[place]!, index, amount]
        })
        const { cells, reclaimed, prefix } = this.leases.keysOf(organization, lease)
        count += (await this.client.script(CHARGE_SCRIPT, [cells, reclaimed], [prefix + request_id, ...args])) as number
      }
    }
    return count
  }

  /** Limits and spend must not be thrown away under memory pressure. */
  async #checkEviction(): Promise<void> {
    try {
      const info = await this.client.call(this.client.redis.info('memory'))
      const policy = /maxmemory_policy:(\S+)/.exec(info)?.[1]
      if (policy && policy !== 'noeviction')
        this.#options.log.warn({ policy }, 'redis may evict limits and spend: set maxmemory-policy to noeviction')
    } catch {
      // Not allowed, or down: nothing to say about it.
    }
  }
}
