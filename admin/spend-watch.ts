/**
 * Finds out when organizations and keys have spent 50, 80 and 100 % of a spend limit, and posts each such notice once.
 * Of thresholds that are crossed at once, as when a limit is lowered below what was spent, the highest is the news.
 *
 * Exchanges only note whose spend has changed. Some seconds later the limits of these are looked at. What a limit counts
 * has reservations of running requests in it, which are often far above what comes of them, so a threshold that seems
 * to be crossed is held against the ledger's sums before anybody is notified.
 */
import { periodIndex, periodStart } from '../core/canon/limits.ts'
import type { Logger } from '../core/plugin.ts'
import { type Cell, NOTICED_PERCENT, type Notice, type Store } from '../core/ports/store.ts'
import type { Clock, Timer } from '../core/tools/clock.ts'
import { cellsFor } from '../plugins/admission/cells.ts'
import type { Identity } from '../plugins/shared/slots.ts'

/** From here on a request that does not fit means that a limit is used up: it refuses long before nothing is left. */
const NEARLY = 80
const WATCH_MS = 5000
/** So many limits are remembered; of more, those that were noticed first are forgotten, and looked up again. */
const MOST_REMEMBERED = 50_000

/** Exchanges of one caller, model and day, and whether a spend limit refused one of them. */
interface Seen {
  caller: Identity
  /** '' for none. */
  model: string
  /** When the first of them began, as in its row, Unix ms: the day may be over when they are looked at. */
  at: number
  /** When the last of them ended, Unix ms. */
  ended: number
  refused: boolean
}

export class SpendWatch {
  readonly #store: () => Store | undefined
  readonly #clock: Clock
  readonly #log: Logger
  /**
   * By caller, in which `auth` has one object for a key: the days and models whose limits are to be looked at. What a
   * day leaves to be looked at after midnight must not stand for what the next day brings.
   */
  readonly #changed = new Map<Identity, Map<string, Seen>>()
  readonly #cells = new WeakMap<Identity, Map<string, readonly Cell[]>>()
  /** By organization and cell: the period, and the highest threshold that was noticed of this limit. */
  readonly #noticed = new Map<string, { cell: Cell; number: number; limit: number; percent: number }>()
  readonly #posted = new Map<number, number>(NOTICED_PERCENT.map(percent => [percent, 0]))
  #timer: Timer | undefined
  #closed = false

  constructor(sources: { store: () => Store | undefined; clock: Clock; log: Logger }) {
    this.#store = sources.store
    this.#clock = sources.clock
    this.#log = sources.log
  }

  /** Notices that this process has posted, by percent. */
  get posted(): ReadonlyMap<number, number> {
    return this.#posted
  }

  /** How many limits are used up now, as far as this process knows. */
  atCap(scope: Cell['scope']): number {
    const now = this.#clock.now()
    let count = 0
    for (const { cell, number, percent } of this.#noticed.values())
      if (percent === 100 && cell.scope === scope && number === periodIndex(cell.period!, now)) count++
    return count
  }

  /**
   * An exchange of this caller has ended, and something was billed for it, or a spend limit refused it.
   * @param began Unix ms; the ledger books it in this day and month
   */
  saw(caller: Identity, model: string, refused: boolean, began: number): void {
    this.#note({ caller, model, at: began, ended: this.#clock.now(), refused })
  }

  #note(one: Seen): void {
    const { caller, model, at, ended, refused } = one
    if (this.#cellsOf(caller, model).length === 0) return
    let changed = this.#changed.get(caller)
    if (!changed) this.#changed.set(caller, (changed = new Map()))
    const name = `${periodIndex('day', at)}\n${model}`
    const seen = changed.get(name)
    if (!seen) changed.set(name, one)
    else {
      seen.refused ||= refused
      seen.ended = Math.max(seen.ended, ended)
    }
    this.#timer ??= this.#clock.setTimer(WATCH_MS, () => {
      this.#timer = undefined
      void this.look()
    })
  }

  /** Looks at the limits of those whose spend has changed. Resolves when all that was found is posted. */
  async look(): Promise<void> {
    const store = this.#store()
    const seen = [...this.#changed.values()].flatMap(changed => [...changed.values()])
    this.#changed.clear()
    if (!store) return
    for (const one of seen) {
      if (this.#closed) return
      try {
        if (!(await this.#lookAt(store, one))) this.#again(one)
      } catch (error) {
        this.#log.warn({ error: (error as Error).message }, 'spend limits cannot be looked at; it is tried again')
        this.#again(one)
      }
    }
  }

  #again(seen: Seen): void {
    if (!this.#closed) this.#note(seen)
  }

  close(): void {
    this.#closed = true
    this.#timer?.cancel()
  }

  #cellsOf(caller: Identity, model: string): readonly Cell[] {
    let byModel = this.#cells.get(caller)
    if (!byModel) this.#cells.set(caller, (byModel = new Map()))
    let cells = byModel.get(model)
    if (!cells) {
      const { spendCells } = cellsFor(caller.organization, caller.key, model || null)
      // A balance has no period in which a notice is given once.
      cells = spendCells.filter(cell => cell.kind === 'spend' && cell.capacity > 0)
      byModel.set(model, cells)
    }
    return cells
  }

  /** @returns false when a limit seems to be crossed and the ledger does not say so: it may, in a while */
  async #lookAt(store: Store, { caller, model, at, ended, refused }: Seen): Promise<boolean> {
    const cells = this.#cellsOf(caller, model)
    const now = this.#clock.now()
    const states = await store.limits.peek(caller.organization.id, cells, now)
    let settled = true
    for (const [i, cell] of cells.entries()) {
      const number = periodIndex(cell.period!, at)
      const over = number !== periodIndex(cell.period!, now)
      const percentOf = (spent: number) => {
        const percent = (100 * spent) / cell.capacity
        return refused && percent >= NEARLY ? 100 : percent
      }
      const name = `${caller.organization.id}\n${cell.id}`
      const known = this.#noticed.get(name)
      const before = known?.number === number && known.limit === cell.capacity ? known.percent : 0
      const crossed = (spent: number) => NOTICED_PERCENT.findLast(one => one > before && one <= percentOf(spent))
      if (!over && crossed(cell.capacity - states[i]!.remaining) === undefined) continue
      const spent = await spentBy(store, caller, cell, number)
      const percent = crossed(spent)
      if (percent === undefined) {
        // Of a period that is over no level tells what is to come: the last rows are booked some milliseconds later.
        settled &&= over && now - ended >= WATCH_MS
        continue
      }
      const notice: Notice = {
        time: now,
        organization: caller.organization.id,
        key: cell.scope === 'key' ? caller.key.id : '',
        model: cell.model ?? '',
        period: cell.period!,
        number,
        percent,
        limit: cell.capacity,
        spent,
      }
      if (await store.notices.post(notice)) this.#posted.set(percent, this.#posted.get(percent)! + 1)
      this.#noticed.delete(name)
      this.#noticed.set(name, { cell, number, limit: cell.capacity, percent })
      if (this.#noticed.size > MOST_REMEMBERED) this.#noticed.delete(this.#noticed.keys().next().value!)
    }
    return settled
  }
}

/** What a limit counts of a period, by the ledger, in nano-USD. */
async function spentBy(store: Store, caller: Identity, cell: Cell, number: number): Promise<number> {
  const filter = {
    org: caller.organization.id,
    ...(cell.scope === 'key' && { key: caller.key.id }),
    ...(cell.model !== undefined && { model: cell.model }),
    since: periodStart(cell.period!, number),
    until: periodStart(cell.period!, number + 1),
  }
  let spent = 0
  for await (const page of store.usage(filter)) for (const sum of page) spent += sum.cost
  return spent
}
