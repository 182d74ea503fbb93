/**
 * Where the levels of a set of cells live in Redis. Cells of one scope share a field: `o:rpm` and `o:tpd` are places in the group `o`, because their
 * last word is the standard one for what they limit. Any other id is a group of its own (`id!`), so that no two cells ever share a place.
 */
import type { Cell } from '../../core/store.ts'
import { type Level, periodIndex } from '../limits/rules.ts'

const MINUTE = 60_000
const DAY = 86_400_000

/** The places of a group, in order. Stored: only ever add at the end, and then read shorter groups too. */
const WORDS = ['rpm', 'rpd', 'tpm', 'tpd', 'itpm', 'itpd', 'otpm', 'otpd', 'conc', 'day', 'month'] as const
export const SLOTS = WORDS.length

const RATES: Record<string, string> = { requests: 'rp', tokens: 'tp', input_tokens: 'itp', output_tokens: 'otp' }

/** The standard last word of a cell's id, or '' when it limits something that has none. */
function wordOf(cell: Pick<Cell, 'kind' | 'dimension' | 'windowMs' | 'period'>): string {
  if (cell.kind === 'slots') return 'conc'
  if (cell.kind === 'spend') return cell.period!
  const rate = RATES[cell.dimension]
  if (rate === undefined) return ''
  return cell.windowMs === MINUTE ? rate + 'm' : cell.windowMs === DAY ? rate + 'd' : ''
}

/** The group of a cell, and the place of its level there: index of `used` among the group's doubles, from 1. */
export function placeOf(cell: Pick<Cell, 'id' | 'kind' | 'dimension' | 'windowMs' | 'period'>): {
  group: string
  place: number
} {
  const word = wordOf(cell)
  const slot = WORDS.indexOf(word as (typeof WORDS)[number])
  const own = slot < 0 || !cell.id.endsWith(':' + word)
  return own ? { group: cell.id + '!', place: 1 } : { group: cell.id.slice(0, -word.length - 1), place: slot * 3 + 1 }
}

const HEAD = 4
const PER_CELL = 4

/** A set of cells, compiled: group names, and the request with everything in it but time and amounts. */
export class Plan {
  readonly groups: readonly string[]
  readonly #cells: readonly Cell[]
  readonly #template: Float64Array
  /** For each cell: where its four numbers start in the request. */
  readonly #offsets: Int32Array
  /** For each cell: where its level starts in a reply, in doubles. */
  readonly #places: Int32Array

  constructor(cells: readonly Cell[]) {
    const groups: string[] = []
    const template = new Float64Array(HEAD + PER_CELL * cells.length)
    this.#offsets = new Int32Array(cells.length)
    this.#places = new Int32Array(cells.length)
    let offset = HEAD
    ;(['bucket', 'spend', 'slots'] as const).forEach((kind, order) => {
      for (let i = 0; i < cells.length; i++) {
        const cell = cells[i]!
        if (cell.kind !== kind) continue
        const { group, place } = placeOf(cell)
        let g = groups.indexOf(group)
        if (g < 0) g = groups.push(group) - 1
        const at = g * SLOTS * 3 + place
        this.#offsets[i] = offset
        this.#places[i] = at - 1
        template[offset] = at
        template[offset + 1] = cell.capacity
        template[offset + 2] = cell.windowMs ?? 0
        template[1 + order]! += 1
        offset += PER_CELL
      }
    })
    this.groups = groups
    this.#cells = cells
    this.#template = template
  }

  /** The request of the scripts. */
  request(amounts: readonly number[], now: number): Buffer {
    const numbers = this.#template.slice()
    numbers[0] = now
    for (let i = 0; i < amounts.length; i++) {
      const at = this.#offsets[i]!
      const cell = this.#cells[i]!
      if (cell.kind === 'spend') numbers[at + 2] = periodIndex(cell.period!, now)
      numbers[at + 3] = amounts[i]!
    }
    return Buffer.from(numbers.buffer)
  }

  /** Pairs of a final figure and the period charged, in the order of the request. */
  ends(finals: readonly number[], periods: readonly number[]): Buffer {
    const numbers = new Float64Array(2 * this.#cells.length)
    for (let i = 0; i < this.#cells.length; i++) {
      const at = (this.#offsets[i]! - HEAD) / 2
      numbers[at] = finals[i] ?? 0
      numbers[at + 1] = periods[i]!
    }
    return Buffer.from(numbers.buffer)
  }

  /** The cells' levels out of the groups' bytes. */
  levels(bytes: Buffer, from: number): Level[] {
    const levels = new Array<Level>(this.#cells.length)
    for (let i = 0; i < levels.length; i++) {
      const at = from + this.#places[i]! * 8
      levels[i] = { used: bytes.readDoubleLE(at), part: bytes.readDoubleLE(at + 8), at: bytes.readDoubleLE(at + 16) }
    }
    return levels
  }
}

const plans = new WeakMap<readonly Cell[], Plan>()

/** The plan of a set of cells; made once for each array. */
export function planOf(cells: readonly Cell[]): Plan {
  let plan = plans.get(cells)
  if (!plan) plans.set(cells, (plan = new Plan(cells)))
  return plan
}
