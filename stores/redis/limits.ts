/**
 * The shared limit engine. Each admission is one script call. The settlements of one event-loop turn share a call when
 * they have the same cells. The script returns the levels, and this module computes states and denials from them.
 */

import { StoreUnavailable } from '../../core/canon/errors.ts'
import { USERS_KEPT, userCellId, userOfCell } from '../../core/canon/limits.ts'
import type { Logger } from '../../core/plugin.ts'
import {
  type Admission,
  type AdmitRequest,
  type Cell,
  type CellState,
  type Denial,
  isLimit,
  type LimitEngine,
  type UserRequest,
} from '../../core/ports/store.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import { DenseSet, IdMap, type Placed } from '../../core/tools/collections.ts'
import type { Charge } from '../journal.ts'
import type { Count } from '../ledger.ts'
import { advance, denial, deniedBy, type Level, stateOf } from '../limits/rules.ts'
import type { RedisClient } from './client.ts'
import { BALANCE, GROUP_BYTES, placeOf } from './layout.ts'
import type { Leases } from './lease.ts'
import { type OrgKeys, type Plan, planOf, planOfUser, type Settlement, type UserKeys } from './plan.ts'
import { script } from './scripts.ts'

const RECLAIM_SCRIPT = script('reclaim')
const GIVE_UP_SCRIPT = script('give_up')
const BUILD_SCRIPT = script('balance_build')
/** So often one admission builds a balance: another process may have begun a new generation meanwhile. */
const BUILDS = 3
/** A group that is not stored yet. */
const NO_GROUP = Buffer.alloc(GROUP_BYTES)
/** The first pause after a failed delivery, ms. Each further pause is twice as long, up to RETRY_MAX_MS. */
const RETRY_MS = 100
const RETRY_MAX_MS = 2000
/** One call delivers at most this many settlements, which takes Redis at most a millisecond. */
const DELIVERY_GROUP = 100
/**
 * The time between two audits. An audit looks for reservations of this process in Redis that the process does not know.
 * A reservation found by two audits in a row is given back.
 */
const AUDIT_MS = 60_000

interface Reservation {
  readonly keys: OrgKeys
  readonly cells: readonly Cell[]
  readonly amounts: readonly number[]
  /** For spend cells, the index of the period in which they were charged; parallel to `cells`. */
  readonly periods: readonly number[]
  /** The part that is in the hash of the key's end users. The cells have the ids of what was taken from. */
  readonly user?: Omit<Reservation, 'user'> & { readonly keys: UserKeys; readonly shared: readonly Cell[] }
}

/** What must be delivered to Redis: a settlement, or the end of an admission whose answer was lost. */
interface Delivery extends Settlement, Placed {
  /** Undefined for an admission whose answer was lost. */
  readonly plan: Plan | undefined
  readonly keys: OrgKeys
  /** Of an admission whose answer was lost: where it may have taken more. */
  readonly users?: UserKeys | undefined
}
/** The settlement part of a delivery that settles nothing. */
const NOTHING = { amounts: [], finals: [], periods: [], now: 0 }

export interface RedisLimitsOptions {
  client: RedisClient
  leases: Leases
  clock: Clock
  log: Logger
  onCharge: (org: string, id: string, charges: Charge[]) => void
  onCount: (org: string, id: string, counts: Count[]) => void
  /** What the prepaid rows of an organization cost, in nano-USD: those that are in Redis. */
  billed: (org: string) => Promise<number>
  /** So many end users of a key are kept; for tests. */
  usersKept?: number
}

export class RedisLimits implements LimitEngine {
  #options: RedisLimitsOptions
  /** Reservations that are not settled, by organization and request id. */
  #reservations = new Map<string, IdMap<Reservation>>()
  /**
   * Deliveries that Redis has not taken yet. There are never more than running exchanges: while Redis is down, nothing
   * new is admitted.
   */
  #deliveries = new DenseSet<Delivery>()
  /** Those of `#deliveries` that were added in this event-loop turn. */
  #turn: Delivery[] = []
  /** Set from a failed delivery until a retry succeeds. */
  #retrying: Timer | undefined
  #retryMs = RETRY_MS
  #delivering = false
  /** Admissions that were given up and may have left a mark in Redis (`nameOf`). */
  #givenUp = new Set<string>()
  #waiters: (() => void)[] = []
  #audit: Timer | undefined
  /** Reservations that only Redis knew at the last audit (`nameOf`). */
  #suspects = new Set<string>()
  /**
   * Organizations in which nothing was held at the last audit. After a second such audit they are forgotten, and after
   * a third they are not registered in Redis any more.
   */
  #idle = new Set<string>()
  #closed = false

  constructor(options: RedisLimitsOptions) {
    this.#options = options
    this.#scheduleAudit()
  }

  async admit(request: AdmitRequest): Promise<Admission> {
    const { cells, user } = request
    if (user) return this.#admit(request)
    if (cells.length === 0) return { admitted: true, states: [] }
    if (cells.some(isLimit)) return this.#admit(request)
    // Without a limit nothing needs an answer of Redis: while it is down, the spend is in the ledger alone.
    const unbooked = {
      admitted: true as const,
      states: cells.map(({ capacity }) => ({ remaining: capacity, resetMs: 0 })),
    }
    if (this.#options.leases.failure !== undefined) return unbooked
    return this.#admit(request).catch(() => unbooked)
  }

  async #admit(request: AdmitRequest, builds = 0): Promise<Admission> {
    const { client, leases } = this.#options
    const { org, id, cells, amounts, now, user } = request
    if (!leases.covers(org)) await leases.cover(org)
    const keys = leases.keysOf(org)
    const users = user && leases.userKeysOf(org, userOfCell(user.cells[0]!.id)!.key)
    const plan = user ? planOfUser(cells, user.cells) : planOf(cells)
    let reply: Buffer
    try {
      const call =
        user && users
          ? plan.admission(keys, id, [...amounts, ...user.amounts], now, {
              keys: users,
              name: user.name,
              most: this.#options.usersKept ?? USERS_KEPT,
            })
          : plan.admission(keys, id, amounts, now)
      reply = (await client.send(call)) as Buffer
    } catch (error) {
      // Redis may have admitted the request, although its answer did not arrive. So it is given back when Redis
      // answers.
      this.#givenUp.add(nameOf(org, id))
      this.#deliver({ id, plan: undefined, keys, users, ...NOTHING, place: -1 })
      throw error
    }
    // Redis answers again. Settlements that it has not got yet keep slots and reservations occupied, so they go at
    // once.
    if (this.#retrying) this.#hurry()
    if (reply[0] === 50) {
      if (builds === BUILDS) throw new StoreUnavailable(`the balance of ${org} is built again and again`)
      await this.buildBalance(org)
      return this.#admit(request, builds + 1)
    }
    const levels = plan.levels(reply, 1)
    const states = statesOf(cells, levels, now)
    if (reply[0] === 49 || reply[0] === 51) {
      const periods = levels.map(level => level.at)
      const reservation =
        user && users
          ? ofUser({ keys, cells, amounts, periods }, user, users, reply[0] === 51)
          : { keys, cells, amounts, periods }
      // `add` does nothing for a repeated request id: the first reservation stays.
      this.#of(org).add(id, reservation)
      return { admitted: true, states }
    }
    if (user) {
      const own = levels.slice(cells.length)
      const theirs = statesOf(user.cells, own, now)
      const [account, his] = [denial(cells, levels, amounts, now), denial(user.cells, own, user.amounts, now)]
      if (account || his) return deniedBy(account, his, states, () => theirs)
    }
    const denied = denial(cells, levels, amounts, now)
    if (!denied) throw new StoreUnavailable('redis denied an admission that the rules allow')
    return { admitted: false, ...denied, states }
  }

  /** Builds what is taken of a balance, of its rows and reservations. */
  async buildBalance(org: string): Promise<void> {
    const { client, leases, billed } = this.#options
    const { cells, generation } = leases.keysOf(org)
    await client.script(BUILD_SCRIPT, [cells], [BALANCE.group, await billed(org), generation])
  }

  settle(org: string, id: string, finals: readonly number[], now: number, ofUser?: readonly number[]): void {
    const reservation = this.#reservations.get(org)?.take(id)
    if (!reservation) return
    const charges: Charge[] = []
    const counts: Count[] = []
    const { keys, cells, amounts, periods, user } = reservation
    book(reservation, finals, charges, counts)
    if (user && ofUser) book(user, ofUser, charges, counts)
    if (charges.length) this.#options.onCharge(org, id, charges)
    if (counts.length) this.#options.onCount(org, id, counts)
    this.#deliver({ id, plan: planOf(cells), keys, amounts, finals, periods, now, place: -1 })
    if (!user) return
    const { shared, ...part } = user
    this.#deliver({ ...part, id, plan: planOf(shared), finals: ofUser ?? [], now, place: -1 })
  }

  async wouldDeny({ org, cells, amounts, now }: Omit<AdmitRequest, 'id' | 'user'>): Promise<Denial | null> {
    const levels = await this.#read(org, cells)
    const states = statesOf(cells, levels, now)
    const denied = denial(cells, levels, amounts, now)
    return denied && { admitted: false, ...denied, states }
  }

  async peek(org: string, cells: readonly Cell[], now: number): Promise<CellState[]> {
    return statesOf(cells, await this.#read(org, cells), now)
  }

  async #read(org: string, cells: readonly Cell[]): Promise<readonly Level[]> {
    if (cells.length === 0) return []
    const { client, leases } = this.#options
    const plan = planOf(cells)
    const found = await client.call(client.redis.hmgetBuffer(leases.keysOf(org).cells, ...plan.groups))
    return plan.levels(Buffer.concat(found.map(group => group ?? NO_GROUP)), 0)
  }

  /** Resolves when Redis has taken the settlements of these requests, or the engine is closed. */
  async delivered(ids: readonly string[]): Promise<void> {
    const awaited = new Set(ids)
    while (!this.#closed && this.#leaving().some(id => awaited.has(id)))
      await new Promise<void>(resolve => this.#waiters.push(resolve))
  }

  /** The request ids of deliveries that Redis has not taken yet. */
  #leaving(): string[] {
    return Array.from(this.#deliveries, ({ id }) => id)
  }

  /** Number of deliveries that Redis has not taken yet. */
  get undelivered(): number {
    return this.#deliveries.size
  }
  /** Number of reservations that are not settled. */
  get open(): number {
    let open = 0
    for (const reservations of this.#reservations.values()) open += reservations.size
    return open
  }
  /** Whether this process holds nothing in Redis any more. */
  get clean(): boolean {
    return this.open === 0 && this.undelivered === 0 && this.#givenUp.size === 0
  }

  close(): void {
    this.#closed = true
    this.#retrying?.cancel()
    this.#audit?.cancel()
    this.#wake()
  }

  #of(org: string): IdMap<Reservation> {
    let reservations = this.#reservations.get(org)
    if (!reservations) this.#reservations.set(org, (reservations = new IdMap()))
    return reservations
  }

  #deliver(delivery: Delivery): void {
    this.#deliveries.add(delivery)
    if (this.#turn.push(delivery) === 1) setImmediate(this.#endTurn)
  }

  /**
   * Sends the deliveries of this event-loop turn after the ledger has written the journal records of the same turn. The
   * second setImmediate ensures this order, because `onCharge` may have scheduled the append after the first settlement
   * scheduled this. So a process that is killed in between leaves one of two states: the journal has the charges and
   * the next start delivers them; or it has not, the row becomes `lost` and the reservation is given back. While
   * earlier deliveries are being retried, these wait for the retry.
   */
  readonly #endTurn = (): void => {
    const turn = this.#turn
    this.#turn = []
    setImmediate(() => {
      if (!this.#retrying) void this.#sendAll(turn)
    })
  }

  /** One call for each set of cells. @returns whether Redis took them all */
  async #sendAll(deliveries: readonly Delivery[]): Promise<boolean> {
    const calls: Promise<boolean>[] = []
    for (const [plan, ofPlan] of Map.groupBy(deliveries, delivery => delivery.plan))
      for (const [keys, group] of Map.groupBy(ofPlan, delivery => delivery.keys))
        for (let i = 0; i < group.length; i += DELIVERY_GROUP)
          calls.push(this.#send(plan, keys, group.slice(i, i + DELIVERY_GROUP)))
    return (await Promise.all(calls)).every(Boolean)
  }

  async #send(plan: Plan | undefined, keys: OrgKeys, group: readonly Delivery[]): Promise<boolean> {
    const { client } = this.#options
    try {
      if (plan) await client.send(plan.settlement(keys, group))
      else
        await client.script(
          GIVE_UP_SCRIPT,
          [keys.cells],
          group.map(({ id }) => keys.prefix + id),
        )
      // The mark that the call above has left in the other hash keeps an admission out that comes only now.
      for (const { id, users } of group)
        if (users) await client.script(RECLAIM_SCRIPT, [users.cells], [users.prefix + id])
    } catch {
      if (!this.#closed) this.#retryLater()
      return false
    }
    for (const delivery of group) this.#deliveries.delete(delivery)
    this.#wake()
    return true
  }

  #retryLater(): void {
    this.#retrying ??= this.#options.clock.setTimer(this.#retryMs, () => void this.#retryAll())
  }

  #hurry(): void {
    if (this.#delivering) return
    this.#retrying?.cancel()
    void this.#retryAll()
  }

  async #retryAll(): Promise<void> {
    this.#delivering = true
    this.#retryMs = Math.min(this.#retryMs * 2, RETRY_MAX_MS)
    const [first] = this.#deliveries
    // Tries one delivery first. The others follow only when it succeeds.
    const up = !first || (await this.#sendAll([first]))
    this.#delivering = false
    this.#retrying = undefined
    if (!up) {
      if (!this.#closed) this.#retryLater()
      return
    }
    this.#retryMs = RETRY_MS
    const waiting = [...this.#deliveries]
    if (waiting.length > 1) this.#options.log.info({ settlements: waiting.length }, 'delivering kept settlements')
    for (let i = 0; i < waiting.length; i += DELIVERY_GROUP) await this.#sendAll(waiting.slice(i, i + DELIVERY_GROUP))
  }

  #wake(): void {
    const waiters = this.#waiters
    this.#waiters = []
    for (const resolve of waiters) resolve()
  }

  /**
   * Compares the reservations of this process in Redis with those that the process knows. Those that only Redis knew at
   * two audits in a row are given back: marks of given-up admissions, and stray reservations of unknown origin.
   * @returns how many reservations were given back
   */
  async audit(): Promise<number> {
    const { client, leases } = this.#options
    const seen = new Set<string>()
    const idle = new Set<string>()
    const unused: string[] = []
    let strays = 0
    for (const org of [...leases.organizations(), ...leases.forgotten()]) {
      let held = false
      for (const keys of leases.knowsUsers(org) ? await leases.hashesOf(org) : [leases.keysOf(org)]) {
        const { cells, prefix } = keys
        const all = await leases.marks(keys)
        const marks = all.filter(mark => mark.startsWith(prefix))
        const leaving = new Set(this.#leaving())
        for (const mark of marks) {
          const id = mark.slice(prefix.length)
          const name = nameOf(org, id)
          if (this.#reservations.get(org)?.has(id) || leaving.has(id)) continue
          if (this.#suspects.has(name)) {
            strays += (await client.script(RECLAIM_SCRIPT, [cells], [mark])) as number
            this.#givenUp.delete(name)
          } else seen.add(name)
        }
        if ('order' in keys) {
          const orphans = await leases.orphans(all.filter(mark => !mark.startsWith(prefix)))
          if (orphans.length) strays += (await client.script(RECLAIM_SCRIPT, [cells], orphans)) as number
        }
        held ||= marks.length > 0
      }
      if (held || this.#reservations.get(org)?.size) continue
      this.#reservations.delete(org)
      if (leases.forgotten().has(org)) unused.push(org)
      else if (this.#idle.has(org)) leases.forget(org)
      else idle.add(org)
    }
    this.#suspects = seen
    this.#idle = idle
    await leases.unregister(unused)
    return strays
  }

  #scheduleAudit(): void {
    this.#audit = this.#options.clock.setTimer(AUDIT_MS, () => {
      this.audit()
        .then(
          strays => strays && this.#options.log.warn({ reservations: strays }, 'stray reservations were given back'),
          () => {},
        )
        .finally(() => {
          if (!this.#closed) this.#scheduleAudit()
        })
    })
  }
}

/** Brings the levels up to `now`. @returns their states, parallel to the cells */
function statesOf(cells: readonly Cell[], levels: readonly Level[], now: number): CellState[] {
  const states = new Array<CellState>(cells.length)
  for (let i = 0; i < states.length; i++) {
    advance(cells[i]!, levels[i]!, now)
    states[i] = stateOf(cells[i]!, levels[i]!)
  }
  return states
}

/** What a settlement takes, for the journal. */
function book(
  { cells, periods }: Pick<Reservation, 'cells' | 'periods'>,
  finals: readonly number[],
  charges: Charge[],
  counts: Count[],
): void {
  for (let i = 0; i < cells.length; i++) {
    const cell = cells[i]!
    const final = finals[i] ?? 0
    if (final <= 0) continue
    if (cell.kind === 'spend') charges.push([cell.id, cell.period!, periods[i]!, final])
    else if (cell.kind === 'bucket' || cell.kind === 'balance') counts.push([cell.id, final])
  }
}

/** Adds what is taken from the group of an end user to a reservation. `periods` are of all cells, his last. */
function ofUser(
  account: Reservation,
  { name, cells, amounts }: UserRequest,
  users: UserKeys,
  isShared: boolean,
): Reservation {
  const own = isShared ? cells : cells.map(cell => ({ ...cell, id: userCellId(cell.id, name) }))
  const { group } = placeOf(own[0]!)
  const periods = account.periods.slice(account.cells.length)
  return { ...account, user: { keys: { ...users, group }, cells: own, shared: cells, amounts, periods } }
}

const nameOf = (org: string, id: string) => org + '\n' + id
