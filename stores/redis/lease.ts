/**
 * The lease under which this process holds slots and reservations. The process renews it while it lives. When a lease
 * has expired, any living process gives back what was held under it, within 15 s of the death of its owner. A process
 * that was only suspended finds its lease declared dead and takes a new one, so its old reservations are not given back
 * twice.
 *
 *   {sluice:leases}:held       set of the ids of leases under which something may be held
 *   {sluice:leases}:dead       set of the ids of dead leases whose reservations are being given back
 *   {sluice:leases}:id:<id>    expires with the lease; value: the layout version that its process knows (format.ts)
 *   {sluice:leases}:balances   the generation of balances (lua/balance_begin.lua)
 *   sluice:orgs:<id>           set of the organizations in which it may hold something; written before a reservation,
 *                              and left when nothing has been held in one for some minutes
 *
 * After an outage of Redis, a process gives the others time to renew their leases before it declares any lease dead.
 */

import { StoreRefused, StoreUnavailable } from '../../core/canon/errors.ts'
import type { Logger } from '../../core/plugin.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import { markOf } from '../format.ts'
import type { Script } from './call.ts'
import { type RedisClient, tagOf } from './client.ts'
import { bringUpToDate, FORMAT, HELD, type LayoutStep, LEASE_PREFIX } from './format.ts'
import type { Identity } from './identity.ts'
import { userNames } from './layout.ts'
import type { OrgKeys, UserKeys } from './plan.ts'
import { script } from './scripts.ts'

export interface LeaseTimes {
  /** How long a lease lives without renewal, ms. */
  ttl: number
  /** Time between two renewals, and between two searches for dead leases, ms. */
  every: number
}
/** Reservations of a dead process are given back within 9 + 3 = 12 s. A blocked event loop of 5 s does no harm. */
export const LEASE_TIMES: LeaseTimes = { ttl: 9000, every: 3000 }

/** One call unregisters at most this many organizations. */
const UNREGISTER_GROUP = 500
/** One call gives back at most this many reservations, which takes Redis some milliseconds. */
const RECLAIM_GROUP = 200

const SCRIPTS = {
  take: script('lease_take'),
  renew: script('lease_renew'),
  bury: script('lease_bury'),
  reclaim: script('reclaim'),
  begin: script('balance_begin'),
}
const DEAD = '{sluice:leases}:dead'
const BALANCES = '{sluice:leases}:balances'
const keyOf = (id: string) => LEASE_PREFIX + id

export class Leases {
  /** Why the last renewal failed; undefined when it succeeded. */
  failure: string | undefined = 'not connected yet'
  #client: RedisClient
  #clock: Clock
  #log: Logger
  #times: LeaseTimes
  #base: string
  #steps: readonly LayoutStep[]
  #identity: Identity
  /** Set while this build cannot use the data in Redis, or Redis refuses the configured user. */
  #refused: StoreRefused | undefined
  /** How many leases this process has taken. */
  #epoch = 0
  /** The id of the present lease; '' before the first. */
  #id = ''
  #generation = 0
  /** When the present lease was last renewed (monotonic ms); -∞ when it must be renewed before the next reservation. */
  #renewedAt = Number.NEGATIVE_INFINITY
  /** Organizations that are registered under the present lease; a promise while the registration is being sent. */
  #orgs = new Map<string, Promise<void> | true>()
  /** Organizations that are not used any more and still registered in Redis. */
  #forgotten = new Set<string>()
  #unregistering: Promise<unknown> | undefined
  /** The keys under the present lease, by organization; also for organizations that are not registered. */
  #orgKeys = new Map<string, OrgKeys>()
  /** The same of end users, by organization and key. */
  #userKeys = new Map<string, Map<string, UserKeys>>()
  #taking: Promise<void> | undefined
  /** Whether a renewal has succeeded. */
  #started = false
  #beating: Promise<void> | undefined
  /** The renewal under way. */
  #renewing: Promise<boolean> | undefined
  /** `start` has ended: from then on nobody but the log learns of a refusal. */
  #opened = false
  /** No lease is declared dead before this time (monotonic ms). */
  #reapAfter = Number.NEGATIVE_INFINITY
  #timer: Timer | undefined
  #closed = false
  #each: () => Promise<void>

  /** `each` is called after every renewal; it renews the idempotency marks. */
  constructor(options: {
    client: RedisClient
    clock: Clock
    log: Logger
    instance: string
    times: LeaseTimes
    steps: readonly LayoutStep[]
    identity: Identity
    each: () => Promise<void>
  }) {
    this.#client = options.client
    this.#clock = options.clock
    this.#log = options.log
    this.#base = options.instance
    this.#times = options.times
    this.#steps = options.steps
    this.#identity = options.identity
    this.#each = options.each
    // A server that restarted may have lost the lease. So the lease is renewed, or a new one taken, before the next
    // reservation.
    this.#client.onClose = () => {
      this.#renewedAt = Number.NEGATIVE_INFINITY
    }
    this.#client.onReady = () => {
      if (this.#opened && !this.#closed && this.failure !== undefined) void this.#beat()
    }
  }

  /**
   * Takes the lease and begins to renew it. Resolves also when Redis is down.
   * @throws StoreRefused when this build cannot use the data in Redis (FormatRefused), or Redis refuses the user
   */
  async start(): Promise<void> {
    await this.#beat()
    this.#opened = true
    if (this.#refused) throw this.#refused
  }

  /**
   * Resolves once this process has had a lease, so that this build can use the data in Redis.
   * @throws StoreUnavailable while Redis does not answer
   * @throws StoreRefused as `start`
   */
  async started(): Promise<void> {
    if (this.#started) return
    await this.#beat()
    if (!this.#started) throw this.#refused ?? new StoreUnavailable(this.failure!)
  }

  /** Why this process gets no lease; undefined when it has one. After a failure it asks once more. */
  async check(): Promise<string | undefined> {
    if (this.failure !== undefined && this.#opened && !this.#closed) await this.#renewed()
    return this.failure
  }

  /** Why no lease can be had however long one waits: none was ever given, or Redis refuses this process. */
  get refusal(): string | undefined {
    return this.#started ? this.#refused?.message : this.failure
  }

  /** The present lease id. */
  get id(): string {
    return this.#id
  }

  /**
   * Whether a reservation may be taken in this organization now: the lease is valid and the organization registered.
   */
  covers(org: string): boolean {
    return this.#orgs.get(org) === true && this.#clock.mono() - this.#renewedAt < this.#times.ttl
  }

  /** Makes `covers` true, or rejects with StoreUnavailable. */
  async cover(org: string): Promise<void> {
    // The lease was not renewed for its whole life (the process was suspended, or Redis was down). It may be declared
    // dead already.
    if (this.#clock.mono() - this.#renewedAt >= this.#times.ttl) await (this.#taking ?? this.#renew())
    const known = this.#orgs.get(org)
    if (known === true) return
    if (known) return known
    const id = this.#id
    this.#forgotten.delete(org)
    const registering = this.#register(id, org).then(
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
    // In the meantime this process has taken a new lease, under which the organization is not registered.
    if (this.#id !== id) await this.cover(org)
  }

  async #register(id: string, org: string): Promise<void> {
    // Otherwise it could be taken out of the set behind its registration.
    if (this.#unregistering) await this.#unregistering
    await this.#client.call(this.#client.redis.sadd(`sluice:orgs:${id}`, org))
  }

  /** The keys of an organization's cells, and of its reservations under a lease. */
  keysOf(org: string, lease = this.#id): OrgKeys {
    const known = lease === this.#id ? this.#orgKeys.get(org) : undefined
    if (known) return known
    const tag = tagOf(org)
    const keys = {
      cells: `sluice:${tag}:limits`,
      reclaimed: `sluice:${tag}:reclaimed:${lease}`,
      prefix: `@${lease}/`,
      generation: this.#generation,
    }
    if (lease === this.#id) this.#orgKeys.set(org, keys)
    return keys
  }

  /** The keys of the end users of a key, and of their parts of its reservations under a lease. */
  userKeysOf(org: string, key: string, lease = this.#id): UserKeys {
    const known = lease === this.#id ? this.#userKeys.get(org)?.get(key) : undefined
    if (known) return known
    const { reclaimed, prefix } = this.keysOf(org, lease)
    const keys = { ...userNames(tagOf(org), key), reclaimed: `${reclaimed}:${key}`, prefix, generation: 0 }
    if (lease !== this.#id) return keys
    let ofOrg = this.#userKeys.get(org)
    if (!ofOrg) this.#userKeys.set(org, (ofOrg = new Map()))
    ofOrg.set(key, keys)
    return keys
  }

  /** Whether this process has admitted end users of an organization since it last forgot it. */
  knowsUsers(org: string): boolean {
    return this.#userKeys.has(org)
  }

  /** The hashes that may have reservations of an organization: its own, and those of the end users of its keys. */
  async hashesOf(org: string, lease = this.#id): Promise<OrgKeys[]> {
    const keys = await this.#client.call(this.#client.redis.smembers(`sluice:${tagOf(org)}:users`))
    return [this.keysOf(org, lease), ...keys.map(key => this.userKeysOf(org, key, lease))]
  }

  /** The marks of all reservations in a hash. */
  async marks({ cells }: OrgKeys): Promise<string[]> {
    const fields = await this.#client.call(this.#client.redis.hkeys(cells))
    return fields.filter(field => field.startsWith('@'))
  }

  /** Deletes the levels of an organization, and of the end users of its keys. */
  async clear(org: string): Promise<void> {
    const hashes = await this.hashesOf(org, '')
    const names = hashes.flatMap(keys => ('order' in keys ? [keys.cells, keys.order as string] : [keys.cells]))
    await this.#client.call(this.#client.redis.unlink(...names, `sluice:${tagOf(org)}:users`))
  }

  /** Organizations registered under the present lease. */
  organizations(): string[] {
    return [...this.#orgs.keys()]
  }

  /** Organizations that were forgotten and are still registered in Redis. */
  forgotten(): ReadonlySet<string> {
    return this.#forgotten
  }

  /**
   * Forgets an organization in which nothing is held: its next use registers it again. It stays registered in Redis,
   * because an admission may be on its way, until `unregister`.
   */
  forget(org: string): void {
    this.#orgs.delete(org)
    this.#orgKeys.delete(org)
    this.#userKeys.delete(org)
    this.#forgotten.add(org)
  }

  /** Takes forgotten organizations in which nothing is held out of Redis, except those that are in use again. */
  async unregister(orgs: readonly string[]): Promise<void> {
    for (let i = 0; i < orgs.length; i += UNREGISTER_GROUP) {
      const id = this.#id
      const group = orgs.slice(i, i + UNREGISTER_GROUP).filter(org => this.#forgotten.has(org))
      if (group.length === 0) continue
      const removing = this.#client.call(this.#client.redis.srem(`sluice:orgs:${id}`, ...group))
      this.#unregistering = removing.catch(() => {})
      await removing.finally(() => {
        this.#unregistering = undefined
      })
      if (this.#id !== id) return
      for (const org of group) {
        this.#forgotten.delete(org)
        if (this.#orgs.has(org)) continue
        this.#orgKeys.delete(org)
        this.#userKeys.delete(org)
      }
    }
  }

  /** The ids of the leases of an instance that Redis still knows, and that of its first lease. */
  async of(instance: string): Promise<string[]> {
    const { redis } = this.#client
    const known = [
      ...(await this.#client.call(redis.smembers(HELD))),
      ...(await this.#client.call(redis.smembers(DEAD))),
    ]
    return [instance, ...known.filter(id => id.startsWith(instance + '.'))]
  }

  /**
   * Ends the lease.
   * @param empty whether nothing is held under it any more; then it is removed from all sets. Otherwise another process
   *   will declare it dead and give back what it holds.
   */
  async close(empty: boolean): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    // A renewal on its way, which a cluster may redirect, would come behind the end and bring the lease back.
    await this.#beating
    if (!this.#id) return
    const { redis } = this.#client
    const end = async () => {
      if (empty) {
        await this.#client.call(redis.srem(HELD, this.#id))
        await this.#client.call(redis.del(`sluice:orgs:${this.#id}`))
      }
      await this.#client.call(redis.del(keyOf(this.#id)))
    }
    try {
      await this.#client.persist(end)
    } catch {
      // The lease expires by itself.
    }
  }

  /**
   * Gives back what a dead lease holds in one organization. It may be called again.
   * @returns how many reservations were given back
   */
  async reclaim(lease: string, org: string): Promise<number> {
    let count = 0
    for (const keys of await this.hashesOf(org, lease)) {
      const { cells, reclaimed, prefix } = keys
      const marks = (await this.marks(keys)).filter(mark => mark.startsWith(prefix))
      for (let i = 0; i < marks.length; i += RECLAIM_GROUP) {
        const group = marks.slice(i, i + RECLAIM_GROUP)
        const given = (await this.#client.script(SCRIPTS.reclaim, [cells, reclaimed], group)) as number
        // A user's part belongs to a reservation that is counted already.
        if (!('order' in keys)) count += given
      }
    }
    return count
  }

  /**
   * Those of these marks whose lease nobody knows any more: a release that knows no end users has given back what was held
   * under it, but for their parts.
   */
  async orphans(marks: readonly string[]): Promise<string[]> {
    if (marks.length === 0) return []
    const { redis } = this.#client
    const [held, dead] = await Promise.all([redis.smembers(HELD), redis.smembers(DEAD)].map(p => this.#client.call(p)))
    const known = new Set([...held!, ...dead!])
    return marks.filter(mark => !known.has(mark.slice(1, mark.lastIndexOf('/'))))
  }

  /** Takes a new lease. Simultaneous calls share one attempt. */
  #take(): Promise<void> {
    return (this.#taking ??= this.#takeOnce().finally(() => {
      this.#taking = undefined
    }))
  }

  async #takeOnce(): Promise<void> {
    const id = this.#epoch === 0 ? this.#base : `${this.#base}.${this.#epoch}`
    // The mark is checked for every lease, because the server may have lost its data in the meantime.
    // A gateway that serves goes on when the server beside it loses its data: it knows what to serve, and says so.
    if (this.#epoch === 0) await this.#identity.check()
    await bringUpToDate(this.#client, this.#steps)
    await this.#identity.note()
    const at = this.#clock.mono()
    if (!(await this.#put(SCRIPTS.take, id))) throw new StoreUnavailable('the layout of redis has just been changed')
    // A process that was only suspended may have rows that Redis has not got yet: it begins no generation.
    const begins = [LEASE_PREFIX, id, this.#epoch === 0 ? '1' : '0']
    this.#generation = (await this.#client.script(SCRIPTS.begin, [HELD, BALANCES], begins)) as number
    if (this.#epoch > 0) this.#log.warn({ lease: id }, 'the lease had run out; what was held under it is given back')
    this.#epoch++
    this.#id = id
    this.#orgs.clear()
    this.#forgotten.clear()
    this.#orgKeys.clear()
    this.#userKeys.clear()
    this.#renewedAt = at
  }

  /** Renews the lease, or takes a new one if it has been declared dead. */
  async #renew(): Promise<void> {
    if (this.#id === '') return this.#take()
    const at = this.#clock.mono()
    if (await this.#put(SCRIPTS.renew, this.#id)) this.#renewedAt = at
    else await this.#take()
  }

  /** Runs lease_take.lua or lease_renew.lua. @returns whether Redis accepted the lease */
  async #put(which: Script, id: string): Promise<boolean> {
    const keys = [HELD, keyOf(id), FORMAT]
    return (await this.#client.script(which, keys, [id, this.#times.ttl, markOf(this.#steps).version])) === 1
  }

  /** Renews the lease, gives back what dead leases hold, and schedules the next call. Never rejects. */
  #beat(): Promise<void> {
    return (this.#beating ??= this.#beatOnce().finally(() => {
      this.#beating = undefined
    }))
  }

  async #beatOnce(): Promise<void> {
    this.#timer?.cancel()
    if (await this.#renewed())
      try {
        await this.#each()
        if (this.#clock.mono() >= this.#reapAfter) await this.#reap()
      } catch (error) {
        this.#fail(error)
      }
    if (!this.#closed) this.#timer = this.#clock.setTimer(this.#times.every, () => void this.#beat())
  }

  /** Renews the lease, once for all who ask meanwhile. @returns whether this process has one now. Never rejects */
  #renewed(): Promise<boolean> {
    return (this.#renewing ??= this.#renewOnce().finally(() => {
      this.#renewing = undefined
    }))
  }

  async #renewOnce(): Promise<boolean> {
    try {
      await this.#renew()
    } catch (error) {
      this.#fail(error)
      return false
    }
    if (this.failure !== undefined && this.#started) this.#reapAfter = this.#clock.mono() + this.#times.ttl
    this.#started = true
    this.failure = undefined
    this.#refused = undefined
    return true
  }

  #fail(error: unknown): void {
    this.failure = (error as Error).message
    const refused = error instanceof StoreRefused ? error : undefined
    // `start` throws it. Later, this log line is how the operator learns of it.
    if (refused && !this.#refused && this.#opened) this.#log.error({ error: refused.message }, 'the store is refused')
    this.#refused = refused
  }

  /** Declares expired leases dead, and gives back what dead leases hold. */
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
