/**
 * The lease under which this process holds slots and reservations. It is renewed while the process lives; when it has run out, any living process gives
 * back what was held under it, within 15 s of the death. A process that was only asleep finds its lease gone and goes on under a new one, so
 * its old reservations can never be given back twice.
 *
 *   {sluice:leases}:held       set of lease ids that may hold something
 *   {sluice:leases}:dead       those found dead, being given back
 *   {sluice:leases}:id:<id>    lives as long as the lease; the version of the layout that its process knows (format.ts)
 *   sluice:orgs:<id>           organizations in which it may hold something; written before the first reservation
 *
 * After an outage a process leaves others the time to renew before it declares anyone dead.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import type { Logger } from '../../core/plugin.ts'
import { StoreUnavailable } from '../../core/store.ts'
import { FormatRefused, markOf } from '../format.ts'
import { type Script, script } from './call.ts'
import { type RedisClient, tagOf } from './client.ts'
import { bringUpToDate, FORMAT, HELD, type LayoutStep, LEASE_PREFIX } from './format.ts'
import type { OrgKeys } from './plan.ts'
import { LEASE_BURY, LEASE_RENEW, LEASE_TAKE, RECLAIM } from './scripts.ts'

export interface LeaseTimes {
  /** Life of an unrenewed lease, ms. */
  ttl: number
  /** Between two renewals, and two looks for dead leases, ms. */
  every: number
}
/** 9 s + 3 s: given back within 12 s, and a stall of the event loop of 5 s does no harm. */
export const LEASE_TIMES: LeaseTimes = { ttl: 9000, every: 3000 }

/** Reservations given back per call: some milliseconds of Redis's time. */
const RECLAIM_GROUP = 200

const SCRIPTS = {
  take: script(LEASE_TAKE),
  renew: script(LEASE_RENEW),
  bury: script(LEASE_BURY),
  reclaim: script(RECLAIM),
}
const DEAD = '{sluice:leases}:dead'
const keyOf = (id: string) => LEASE_PREFIX + id

export class Leases {
  /** Why the last renewal failed; undefined while all is well. */
  failure: string | undefined = 'not connected yet'
  #client: RedisClient
  #clock: Clock
  #log: Logger
  #times: LeaseTimes
  #base: string
  #steps: readonly LayoutStep[]
  /** This build may not use the data that is there. */
  #refused: FormatRefused | undefined
  #epoch = 0
  #id = ''
  #renewedAt = Number.NEGATIVE_INFINITY
  /** Organizations registered under the present lease; the promise while that is on its way. */
  #orgs = new Map<string, Promise<void> | true>()
  /** Of the same organizations, and others that were asked about, under the present lease. */
  #orgKeys = new Map<string, OrgKeys>()
  #taking: Promise<void> | undefined
  #started = false
  #reapAfter = Number.NEGATIVE_INFINITY
  #timer: Timer | undefined
  #closed = false
  #each: () => Promise<void>

  /** `each` runs after every renewal: marks that live under the same lease are renewed there. */
  constructor(options: {
    client: RedisClient
    clock: Clock
    log: Logger
    instance: string
    times: LeaseTimes
    steps: readonly LayoutStep[]
    each: () => Promise<void>
  }) {
    this.#client = options.client
    this.#clock = options.clock
    this.#log = options.log
    this.#base = options.instance
    this.#times = options.times
    this.#steps = options.steps
    this.#each = options.each
    // A server that restarted may have forgotten the lease: before the next reservation it is renewed, or a new one taken.
    this.#client.onClose = () => {
      this.#renewedAt = Number.NEGATIVE_INFINITY
    }
  }

  /** Resolves also when Redis is down. Rejects with FormatRefused. */
  async start(): Promise<void> {
    await this.#beat()
    if (this.#refused) throw this.#refused
  }

  /** The present lease id. */
  get id(): string {
    return this.#id
  }

  /** True when a reservation may be taken in this organization right now, without waiting. */
  covers(org: string): boolean {
    return this.#orgs.get(org) === true && this.#clock.mono() - this.#renewedAt < this.#times.ttl
  }

  /** Makes `covers` true, or rejects with StoreUnavailable. */
  async cover(org: string): Promise<void> {
    // Not renewed for a whole life: it may have been reclaimed already (a long sleep, an outage).
    if (this.#clock.mono() - this.#renewedAt >= this.#times.ttl) await (this.#taking ?? this.#renew())
    const known = this.#orgs.get(org)
    if (known === true) return
    if (known) return known
    const id = this.#id
    const registering = this.#client.call(this.#client.redis.sadd(`sluice:orgs:${id}`, org)).then(
      () => {
        if (this.#id === id) this.#orgs.set(org, true)
      },
      error => {
        if (this.#id === id) this.#orgs.delete(org)
        throw error
      },
    )
    this.#orgs.set(org, registering)
    await registering
    // The lease changed hands meanwhile.
    if (this.#id !== id) await this.cover(org)
  }

  /** Where an organization's cells and its reservations under a lease are. */
  keysOf(org: string, lease = this.#id): OrgKeys {
    const known = lease === this.#id ? this.#orgKeys.get(org) : undefined
    if (known) return known
    const tag = tagOf(org)
    const keys = {
      cells: `sluice:${tag}:limits`,
      reclaimed: `sluice:${tag}:reclaimed:${lease}`,
      prefix: `@${lease}/`,
    }
    if (lease === this.#id) this.#orgKeys.set(org, keys)
    return keys
  }

  /** Marks of what is held in an organization under a lease. */
  async marks(org: string, lease = this.#id): Promise<string[]> {
    const { cells, prefix } = this.keysOf(org, lease)
    const fields = await this.#client.call(this.#client.redis.hkeys(cells))
    return fields.filter(field => field.startsWith(prefix))
  }

  /** Organizations registered under the present lease. */
  organizations(): string[] {
    return [...this.#orgs.keys()]
  }

  /** The leases that an instance is known to have had. */
  async of(instance: string): Promise<string[]> {
    const { redis } = this.#client
    const known = [
      ...(await this.#client.call(redis.smembers(HELD))),
      ...(await this.#client.call(redis.smembers(DEAD))),
    ]
    return [instance, ...known.filter(id => id.startsWith(instance + '.'))]
  }

  /** Ends the lease; with `empty`, nothing is held under it any more and its traces go. */
  async close(empty: boolean): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    if (!this.#id) return
    const { redis } = this.#client
    try {
      if (empty) {
        await this.#client.call(redis.srem(HELD, this.#id))
        await this.#client.call(redis.del(`sluice:orgs:${this.#id}`))
      }
      await this.#client.call(redis.del(keyOf(this.#id)))
    } catch {
      // It runs out by itself.
    }
  }

  /** Gives back what a dead lease holds in one organization. Twice does no harm. */
  async reclaim(lease: string, org: string): Promise<number> {
    const { cells, reclaimed } = this.keysOf(org, lease)
    const marks = await this.marks(org, lease)
    let count = 0
    for (let i = 0; i < marks.length; i += RECLAIM_GROUP)
      count += (await this.#client.script(
        SCRIPTS.reclaim,
        [cells, reclaimed],
        marks.slice(i, i + RECLAIM_GROUP),
      )) as number
    return count
  }

  /** A new lease. */
  #take(): Promise<void> {
    return (this.#taking ??= this.#takeOnce().finally(() => {
      this.#taking = undefined
    }))
  }

  async #takeOnce(): Promise<void> {
    const id = this.#epoch === 0 ? this.#base : `${this.#base}.${this.#epoch}`
    // Also for a server that has forgotten everything meanwhile.
    await bringUpToDate(this.#client, this.#steps)
    const at = this.#clock.mono()
    if (!(await this.#put(SCRIPTS.take, id))) throw new StoreUnavailable('the layout of redis has just been changed')
    if (this.#epoch > 0) this.#log.warn({ lease: id }, 'the lease had run out; what was held under it is given back')
    this.#epoch++
    this.#id = id
    this.#orgs.clear()
    this.#orgKeys.clear()
    this.#renewedAt = at
  }

  /** Renews the lease, or takes a new one if it has been declared dead. */
  async #renew(): Promise<void> {
    if (this.#id === '') return this.#take()
    const at = this.#clock.mono()
    if (await this.#put(SCRIPTS.renew, this.#id)) this.#renewedAt = at
    else await this.#take()
  }

  async #put(which: Script, id: string): Promise<boolean> {
    const keys = [HELD, keyOf(id), FORMAT]
    return (await this.#client.script(which, keys, [id, this.#times.ttl, markOf(this.#steps).version])) === 1
  }

  async #beat(): Promise<void> {
    try {
      await this.#renew()
      if (this.failure !== undefined && this.#started) this.#reapAfter = this.#clock.mono() + this.#times.ttl
      this.#started = true
      this.failure = undefined
      this.#refused = undefined
      await this.#each()
      if (this.#clock.mono() >= this.#reapAfter) await this.#reap()
    } catch (error) {
      this.failure = (error as Error).message
      const refused = error instanceof FormatRefused ? error : undefined
      // At the start it is thrown; while the process serves, this is where the operator learns of it.
      if (refused && !this.#refused && this.#started)
        this.#log.error({ error: refused.message }, 'the store is refused')
      this.#refused = refused
    }
    if (!this.#closed) this.#timer = this.#clock.setTimer(this.#times.every, () => void this.#beat())
  }

  async #reap(): Promise<void> {
    const { redis } = this.#client
    for (const lease of await this.#client.call(redis.smembers(HELD))) {
      if (lease !== this.#id) await this.#client.script(SCRIPTS.bury, [HELD, DEAD, keyOf(lease)], [lease])
    }
    for (const lease of await this.#client.call(redis.smembers(DEAD))) {
      let count = 0
      for (const org of await this.#client.call(redis.smembers(`sluice:orgs:${lease}`)))
        count += await this.reclaim(lease, org)
      await this.#client.call(redis.del(`sluice:orgs:${lease}`))
      await this.#client.call(redis.srem(DEAD, lease))
      if (count)
        this.#log.warn({ lease, reservations: count }, 'slots and reservations of a dead instance were given back')
    }
  }
}
