/** Prepares a set of cells for the scripts: everything that is the same for each exchange is computed once. */
import { periodIndex } from '../../core/canon/limits.ts'
import type { Cell } from '../../core/ports/store.ts'
import { emptyLevel, type Level } from '../limits/rules.ts'
import { CallTemplate, type ScriptCall } from './call.ts'
import {
  ASKED_GENERATION,
  DAY_PLACE,
  FINALS,
  GROUP_DOUBLES,
  HEAD,
  NONE,
  PLACE_DOUBLES,
  PLACES,
  placeOf,
  STARTS,
  usersKeep,
} from './layout.ts'
import { script } from './scripts.ts'

const ADMIT_SCRIPT = script('admit')
const ADMIT_WITH_BALANCE = script('admit', 'balance')
const ADMIT_USER = script('admit', 'user')
const ADMIT_USER_WITH_BALANCE = script('admit', 'balance', 'user')
const SETTLE_SCRIPT = script('settle')

/**
 * The keys of an organization's cells, and of its reservations under one lease. Callers pass the same object as long as
 * organization and lease are the same.
 */
export interface OrgKeys {
  /** The organization's hash: groups of levels, and reservations under their marks. */
  readonly cells: string
  /**
   * The set of the lease's marks that reclaim.lua has given back. It exists only when the lease has been declared dead.
   */
  readonly reclaimed: string
  /** A reservation's mark is this prefix and the request id. No name of a group begins with it. */
  readonly prefix: string
  /** Of balances. */
  readonly generation: number
}

/** The keys of the end users of one key. `cells` is the hash of their groups, and has their parts of reservations. */
export interface UserKeys extends OrgKeys {
  /** The names, by last use. */
  readonly order: string
  /** The set of the keys that have users. */
  readonly all: string
  /** The group of one reservation, in place of that of the cells. */
  readonly group?: string
}

/** The end of a reservation. The three arrays are parallel to the cells. */
export interface Settlement {
  /** The request id. */
  readonly id: string
  /** What was reserved. */
  readonly amounts: readonly number[]
  /** What was used. */
  readonly finals: readonly number[]
  /** For spend cells, the index of the period in which they were charged. */
  readonly periods: readonly number[]
  readonly now: number
}

/** A buffer that is reused for every call: doubles, which are filled in each time, followed by constant bytes. */
class Block {
  readonly numbers: Float64Array
  readonly bytes: Buffer
  constructor(numbers: number, rest = Buffer.alloc(0)) {
    const buffer = new ArrayBuffer(8 * numbers + rest.length)
    this.numbers = new Float64Array(buffer, 0, numbers)
    this.bytes = Buffer.from(buffer)
    rest.copy(this.bytes, 8 * numbers)
  }
}

/** An end user in a call of admit.lua. */
export interface UserArguments {
  readonly keys: UserKeys
  readonly name: string
  /** So many are kept. */
  readonly most: number
}

/** A prepared set of cells: the groups, and templates of the calls that lack only times, amounts and marks. */
export class Plan {
  readonly groups: readonly string[]
  readonly #cells: readonly Cell[]
  readonly #balance: boolean
  /** Whether the last group is that of end users, and for how long it is kept, ms. */
  readonly #users: boolean
  readonly #keep: string
  /** For each cell, the index of its capacity in the doubles of a request. Its amount is the next double. */
  readonly #capacities: Int32Array
  /** For each cell, the index of its final figure in the doubles of a settlement. */
  readonly #finals: Int32Array
  /** For each spend cell, the index of the charged period in the doubles of a settlement. */
  readonly #periods: Int32Array
  /** For each cell, the index of its level in the doubles of a reply. */
  readonly #starts: Int32Array
  /** For each cell, the index of its group's `at` in the doubles of a reply. */
  readonly #ats: Int32Array
  readonly #request: Block
  readonly #settled: Block
  #keys: OrgKeys | undefined
  #userKeys: UserKeys | undefined
  #admission!: CallTemplate
  #settlement!: CallTemplate
  /** The groups of the last reply, and the levels that `levels` read from them. */
  readonly #reply: Block
  readonly #levels: Level[]

  /** @param ofUsers the shared cells of end users; only for admissions */
  constructor(ofAccount: readonly Cell[], ofUsers: readonly Cell[] = []) {
    const cells = [...ofAccount, ...ofUsers]
    // admit.lua finds the balance in the last group, and users behind it.
    const rank = ({ kind }: Cell, i: number) => (i >= ofAccount.length ? 2 : Number(kind === 'balance'))
    const placed = cells.map((cell, i) => ({ ...placeOf(cell), last: rank(cell, i) }))
    this.#balance = placed.some(({ last }) => last === 1)
    this.#users = ofUsers.length > 0
    this.#keep = this.#users ? String(usersKeep(ofUsers)) : ''
    const groups = [...new Set(placed.toSorted((a, b) => a.last - b.last).map(({ group }) => group))]
    const places = placed.map(({ group, place }) => ({ g: groups.indexOf(group), place }))
    const length = HEAD + PLACE_DOUBLES * PLACES.length * groups.length
    this.groups = groups
    this.#cells = cells
    this.#capacities = Int32Array.from(places, ({ g, place }) => HEAD + PLACE_DOUBLES * (g * PLACES.length + place))
    this.#finals = Int32Array.from(places, ({ g, place }) => length + g * FINALS + place)
    this.#periods = Int32Array.from(places, ({ g, place }) => length + g * FINALS + PLACES.length + place - DAY_PLACE)
    this.#ats = Int32Array.from(places, ({ g }) => g * GROUP_DOUBLES)
    this.#starts = Int32Array.from(places, ({ g, place }) => g * GROUP_DOUBLES + STARTS[place]!)
    this.#request = new Block(length, Buffer.from(groups.join('\0')))
    const { numbers } = this.#request
    numbers[HEAD - 1] = groups.length
    for (let i = HEAD; i < length; i += PLACE_DOUBLES) numbers[i] = NONE
    cells.forEach((cell, i) => {
      numbers[this.#capacities[i]!] = cell.capacity
    })
    this.#settled = new Block(length + FINALS * groups.length)
    this.#settled.numbers.set(numbers)
    this.#reply = new Block(groups.length * GROUP_DOUBLES)
    this.#levels = cells.map(emptyLevel)
  }

  /** The call of admit.lua for one request. `amounts` are parallel to the cells, those of end users last. */
  admission(keys: OrgKeys, id: string, amounts: readonly number[], now: number, user?: UserArguments): ScriptCall {
    if (this.#keys !== keys || this.#userKeys !== user?.keys) this.#use(keys, user?.keys)
    return this.#admission.make(
      [keys.prefix + id],
      () => this.#fillRequest(this.#request.numbers, amounts, now),
      user && [user.name, String(user.most), this.#keep],
    )
  }

  /** One call of settle.lua for several settlements. */
  settlement(keys: OrgKeys | UserKeys, settlements: readonly Settlement[]): ScriptCall {
    if (this.#keys !== keys) this.#use(keys, undefined)
    return this.#settlement.make(
      settlements.map(({ id }) => keys.prefix + id),
      index => {
        const { numbers } = this.#settled
        const { amounts, finals, periods, now } = settlements[index]!
        this.#fillRequest(numbers, amounts, now)
        for (let i = 0; i < this.#cells.length; i++) {
          // Nothing of a slot stays taken, whatever the figure.
          numbers[this.#finals[i]!] = this.#cells[i]!.kind === 'slots' ? 0 : (finals[i] ?? 0)
          if (this.#cells[i]!.kind === 'spend') numbers[this.#periods[i]!] = periods[i]!
        }
      },
    )
  }

  /**
   * Reads the levels of the cells from the bytes of the groups. The result is valid until the next call.
   * @param from offset of the first group in `bytes`
   */
  levels(bytes: Buffer, from: number): readonly Level[] {
    bytes.copy(this.#reply.bytes, 0, from)
    const { numbers } = this.#reply
    const levels = this.#levels
    for (let i = 0; i < levels.length; i++) {
      const level = levels[i]!
      const start = this.#starts[i]!
      level.used = numbers[start]!
      const { kind } = this.#cells[i]!
      if (kind === 'spend') level.at = numbers[start + 1]!
      else if (kind === 'bucket') {
        const part = numbers[start + 1]!
        level.part = Math.max(0, part)
        level.at = numbers[this.#ats[i]!]! + Math.min(0, part)
      }
    }
    return levels
  }

  /** Makes the templates of the calls for these keys. */
  #use(keys: OrgKeys | UserKeys, userKeys: UserKeys | undefined): void {
    const { cells, reclaimed, generation } = keys
    const groups = 'group' in keys && keys.group !== undefined ? [keys.group] : this.groups
    let admit = this.#users ? ADMIT_USER : ADMIT_SCRIPT
    if (this.#balance) {
      admit = this.#users ? ADMIT_USER_WITH_BALANCE : ADMIT_WITH_BALANCE
      const before = groups.length - (this.#users ? 2 : 1)
      const at = HEAD + PLACE_DOUBLES * PLACES.length * before + ASKED_GENERATION
      for (const { numbers } of [this.#request, this.#settled]) numbers[at] = generation
    }
    const hashes = userKeys ? [cells, userKeys.cells, userKeys.order, userKeys.all] : [cells]
    this.#admission = new CallTemplate(admit, hashes, groups, this.#request.bytes)
    const args = [String(groups.length), ...groups]
    this.#settlement = new CallTemplate(SETTLE_SCRIPT, [cells, reclaimed], args, this.#settled.bytes)
    this.#keys = keys
    this.#userKeys = userKeys
  }

  /** Fills in the times and amounts of a request. */
  #fillRequest(numbers: Float64Array, amounts: readonly number[], now: number): void {
    numbers[0] = now
    numbers[1] = periodIndex('day', now)
    numbers[2] = periodIndex('month', now)
    for (let i = 0; i < amounts.length; i++) numbers[this.#capacities[i]! + 1] = amounts[i]!
  }
}

const plans = new WeakMap<readonly Cell[], Plan>()

/** The plan of a set of cells. It is made once for each array object. */
export function planOf(cells: readonly Cell[]): Plan {
  let plan = plans.get(cells)
  if (!plan) plans.set(cells, (plan = new Plan(cells)))
  return plan
}

const plansOfUsers = new WeakMap<readonly Cell[], WeakMap<readonly Cell[], Plan>>()

/** The plan of an admission of an end user: of the cells of the account and of those of its users. */
export function planOfUser(cells: readonly Cell[], ofUsers: readonly Cell[]): Plan {
  let plans = plansOfUsers.get(cells)
  if (!plans) plansOfUsers.set(cells, (plans = new WeakMap()))
  let plan = plans.get(ofUsers)
  if (!plan) plans.set(ofUsers, (plan = new Plan(cells, ofUsers)))
  return plan
}
