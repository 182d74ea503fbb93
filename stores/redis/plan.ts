/** A set of cells made ready for the scripts: what is the same for each exchange is worked out once. */
import type { Cell } from '../../core/store.ts'
import { emptyLevel, type Level, periodIndex } from '../limits/rules.ts'
import { CallTemplate, type ScriptCall, script } from './call.ts'
import { DAY_PLACE, FINALS, GROUP_DOUBLES, HEAD, NONE, PLACE_DOUBLES, PLACES, placeOf, STARTS } from './layout.ts'
import { ADMIT, SETTLE } from './scripts.ts'

const ADMIT_SCRIPT = script(ADMIT)
const SETTLE_SCRIPT = script(SETTLE)

/** Where an organization's cells are, and its reservations under a lease. The same object as long as both are the same. */
export interface Holding {
  /** The organization's hash: groups of levels, and reservations under their marks. */
  readonly cells: string
  /** Marks of the lease that RECLAIM took: a set, and there only when the lease has been declared dead. */
  readonly reclaimed: string
  /** A reservation's mark is this and its request id. No group's name begins like it. */
  readonly prefix: string
}

/** A set of cells, compiled: its groups, and the calls with everything in them but times and amounts. */
export class Plan {
  readonly groups: readonly string[]
  readonly #cells: readonly Cell[]
  /** For each cell, its number among all places of all groups. */
  readonly #places: Int32Array
  /** For each cell: where in a reply's doubles its level starts, and its group. */
  readonly #starts: Int32Array
  readonly #ats: Int32Array
  readonly #request: Float64Array
  #holding: Holding | undefined
  #admission!: CallTemplate
  #settlement!: CallTemplate
  /** The groups of the last reply, as numbers and as bytes, and the levels taken out of them. */
  readonly #numbers: Float64Array
  readonly #bytes: Buffer
  readonly #levels: Level[]

  constructor(cells: readonly Cell[]) {
    const groups: string[] = []
    const places = cells.map(cell => {
      const { group, place } = placeOf(cell)
      let g = groups.indexOf(group)
      if (g < 0) g = groups.push(group) - 1
      return g * PLACES.length + place
    })
    const request = new Float64Array(HEAD + PLACE_DOUBLES * PLACES.length * groups.length)
    request[HEAD - 1] = groups.length
    for (let i = HEAD; i < request.length; i += PLACE_DOUBLES) request[i] = NONE
    for (let i = 0; i < cells.length; i++) request[HEAD + PLACE_DOUBLES * places[i]!] = cells[i]!.capacity
    this.groups = groups
    this.#cells = cells
    this.#places = Int32Array.from(places)
    this.#ats = Int32Array.from(places, place => Math.floor(place / PLACES.length) * GROUP_DOUBLES)
    this.#starts = Int32Array.from(places, (place, i) => this.#ats[i]! + STARTS[place % PLACES.length]!)
    this.#request = request
    this.#numbers = new Float64Array(groups.length * GROUP_DOUBLES)
    this.#bytes = Buffer.from(this.#numbers.buffer)
    this.#levels = cells.map(emptyLevel)
  }

  admission(holding: Holding, id: string, amounts: readonly number[], now: number): ScriptCall {
    this.#use(holding)
    const call = this.#admission.make(holding.prefix + id)
    this.#fill(call.bytes, this.#admission.numbers, amounts, now)
    return call
  }

  /** `periods`: of spend cells, the period charged. */
  settlement(
    holding: Holding,
    id: string,
    amounts: readonly number[],
    finals: readonly number[],
    periods: readonly number[],
    now: number,
  ): ScriptCall {
    this.#use(holding)
    const call = this.#settlement.make(holding.prefix + id)
    const { bytes } = call
    const { numbers } = this.#settlement
    this.#fill(bytes, numbers, amounts, now)
    const from = numbers + 8 * this.#request.length
    for (let i = 0; i < this.#cells.length; i++) {
      const place = this.#places[i]! % PLACES.length
      const at = from + (8 * FINALS * (this.#places[i]! - place)) / PLACES.length
      bytes.writeDoubleLE(finals[i] ?? 0, at + 8 * place)
      if (place >= DAY_PLACE) bytes.writeDoubleLE(periods[i]!, at + 8 * (PLACES.length + place - DAY_PLACE))
    }
    return call
  }

  /** The cells' levels out of the groups' bytes; good until the next call. */
  levels(bytes: Buffer, from: number): readonly Level[] {
    bytes.copy(this.#bytes, 0, from)
    const numbers = this.#numbers
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

  #use(holding: Holding): void {
    if (this.#holding === holding) return
    const { cells, reclaimed } = holding
    const request = Buffer.from(this.#request.buffer)
    const names = Buffer.from(this.groups.join('\0'))
    const finals = Buffer.alloc(8 * FINALS * this.groups.length)
    this.#admission = new CallTemplate(ADMIT_SCRIPT, [cells], Buffer.concat([request, names]), this.groups)
    this.#settlement = new CallTemplate(
      SETTLE_SCRIPT,
      [cells, reclaimed],
      Buffer.concat([request, finals]),
      this.groups,
    )
    this.#holding = holding
  }

  #fill(bytes: Buffer, at: number, amounts: readonly number[], now: number): void {
    bytes.writeDoubleLE(now, at)
    bytes.writeDoubleLE(periodIndex('day', now), at + 8)
    bytes.writeDoubleLE(periodIndex('month', now), at + 16)
    const first = at + 8 * (HEAD + 1)
    for (let i = 0; i < amounts.length; i++)
      bytes.writeDoubleLE(amounts[i]!, first + 8 * PLACE_DOUBLES * this.#places[i]!)
  }
}

const plans = new WeakMap<readonly Cell[], Plan>()

/** The plan of a set of cells; made once for each array. */
export function planOf(cells: readonly Cell[]): Plan {
  let plan = plans.get(cells)
  if (!plan) plans.set(cells, (plan = new Plan(cells)))
  return plan
}
