/**
 * The cells that an exchange must fit into: one for each limit that organization and key set, for all models and for
 * the requested one (LIM-1, AUTH-4, decisions 20). Spend of organization and key is booked by day and month also where
 * no cap is set, so that a cap that a reload brings sees the running period. Compiled once for each organization, key
 * and model.
 */
import type { GatewayConfig, KeyConfig, Limits, OrganizationConfig } from '../../config/types.ts'
import {
  COUNTED,
  capacityIn,
  cellPrefix,
  DIMENSIONS,
  holdsMoney,
  isMoney,
  sharedPrefix,
  USER_DIMENSIONS,
  USER_LIMITS,
} from '../../core/canon/limits.ts'
import { type Cell, isLimit } from '../../core/ports/store.ts'
import { least } from '../shared/account-limits.ts'
import type { Identity } from '../shared/slots.ts'

/** The most that one request may use: the lowest value of all scopes; null when none is set. */
export interface Maxima {
  outputTokens: number | null
  requestTokens: number | null
  /** nano-USD. */
  requestCost: number | null
}

/** Whose limit it is. */
export type Owner = Pick<Cell, 'scope' | 'model'>

/** A cap of 0.00: its key in gateway.yaml, and whose it is. */
export interface ZeroCap extends Owner {
  setting: string
}

/** The lowest of several limits, and its key in gateway.yaml. */
export interface Budget {
  limit: number
  setting: string
}

/** What an exchange of one organization, key and model has to fit into. */
export interface CellSet {
  cells: readonly Cell[]
  /** `cells` under platform load, by the factor by which limits are reduced; made when a factor is first needed. */
  scaled: Map<number, readonly Cell[]>
  maxima: Maxima
  /** Those of `cells` that hold what may be billed. */
  spendCells: readonly Cell[]
  /** What the spend cells left when this process last saw them, in nano-USD; -1 before that. */
  spendLeft: number
  /** The shared cells of the key's end users (`UserRequest`); null where it limits none. */
  users: readonly Cell[] | null
  /** The least spend cap of each end user in nano-USD; infinite when none is set. */
  userSpend: number
  /** The spend cap of 0.00 that applies, if one does (LIM-7, decisions 21). */
  zeroSpend: ZeroCap | null
  /** The lowest limit of tokens per minute over both scopes: for input and output together, and for each (LIM-6). */
  minuteBudget: { tokens: Budget | null; input_tokens: Budget | null; output_tokens: Budget | null }
}

/**
 * @param model public id; null on a route without a model, where only the limits for all models apply
 * @param users what `cellsOfUsers` makes of the same organization and key: one array for all models
 */
export function cellsFor(
  organization: OrganizationConfig,
  key: KeyConfig,
  model: string | null,
  users: readonly Cell[] | null = null,
): CellSet {
  const cells: Cell[] = []
  const maxima: Maxima = { outputTokens: null, requestTokens: null, requestCost: null }
  const minuteBudget: CellSet['minuteBudget'] = { tokens: null, input_tokens: null, output_tokens: null }

  let zeroSpend: ZeroCap | null = null

  const narrow = (limits: Partial<Limits>, path = ''): void => {
    for (const direction of ['tokens', 'input_tokens', 'output_tokens'] as const) {
      const limit = limits[`${direction}_per_minute`]
      if (limit != null && limit < (minuteBudget[direction]?.limit ?? Number.POSITIVE_INFINITY))
        minuteBudget[direction] = { limit, setting: `${path}${direction}_per_minute` }
    }
  }
  const add = (limits: Partial<Limits>, owner: Owner, prefix: string): void => {
    const booksSpend = owner.model === undefined
    for (const [dimension, counted] of DIMENSIONS) {
      const { kind } = counted
      for (const limit of counted.limits) {
        const { word, windowMs, period } = limit
        const capacity =
          capacityIn(limits, counted, limit) ?? (booksSpend && kind === 'spend' ? Number.POSITIVE_INFINITY : undefined)
        if (capacity === undefined) continue
        const cell = { id: prefix + word, ...owner, dimension, capacity }
        if (kind === 'bucket') cells.push({ ...cell, kind, windowMs })
        else if (kind === 'spend') cells.push({ ...cell, kind, period })
        else cells.push({ ...cell, kind })
        if (kind === 'spend' && capacity === 0) zeroSpend ??= { setting: limit.name, ...owner }
      }
    }
    narrow(limits)
    maxima.outputTokens = least(maxima.outputTokens, limits.max_output_tokens)
    maxima.requestTokens = least(maxima.requestTokens, limits.max_request_tokens)
    maxima.requestCost = least(maxima.requestCost, limits.max_request_usd)
    if (limits.max_request_usd === 0) zeroSpend ??= { setting: 'max_request_usd', ...owner }
  }

  // Those for all models come first: `forAllModels` relies on it.
  add(organization.limits, { scope: 'org' }, cellPrefix(null, null))
  if (organization.billing === 'prepaid') {
    const { kind, given } = COUNTED.balance
    cells.push({ id: given, scope: 'org', dimension: 'balance', kind, capacity: organization.credited ?? 0 })
  }
  add(key.limits, { scope: 'key' }, cellPrefix(key.id, null))
  if (model !== null) {
    add(organization.model_limits[model] ?? {}, { scope: 'org', model }, cellPrefix(null, model))
    add(key.model_limits[model] ?? {}, { scope: 'key', model }, cellPrefix(key.id, model))
  }
  const ofUser = userLimits(organization, key)
  narrow(ofUser, 'user_limits.')
  for (const setting of ['daily_spend_usd', 'monthly_spend_usd'] as const)
    if (ofUser[setting] === 0) zeroSpend ??= { setting: `user_limits.${setting}`, scope: 'user' }
  const spendCells = cells.filter(cell => holdsMoney(cell) && isLimit(cell))
  const userSpend = least(ofUser.daily_spend_usd, ofUser.monthly_spend_usd) ?? Number.POSITIVE_INFINITY
  return { cells, scaled: new Map(), maxima, spendCells, spendLeft: -1, users, userSpend, zeroSpend, minuteBudget }
}

/** Gives the cells of callers by model. `auth` gives the same identity object for a key each time. */
export function cellSets(): (caller: Identity, model: string | null) => CellSet {
  const sets = new WeakMap<Identity, { byModel: Map<string, CellSet>; users: readonly Cell[] | null }>()
  return function cellSet(caller, model) {
    const { organization, key } = caller
    let known = sets.get(caller)
    if (!known) sets.set(caller, (known = { byModel: new Map(), users: cellsOfUsers(organization, key) }))
    const { byModel, users } = known
    let set = byModel.get(model ?? '')
    if (!set) byModel.set(model ?? '', (set = cellsFor(organization, key, model, users)))
    return set
  }
}

/** The limits of each end user of a key: the lower of what organization and key set. */
function userLimits(organization: OrganizationConfig, key: KeyConfig): Partial<Limits> {
  const limits: Partial<Limits> = {}
  if (organization.user_limits || key.user_limits)
    for (const { name } of USER_LIMITS) {
      const limit = least(organization.user_limits?.[name], key.user_limits?.[name])
      if (limit !== null) limits[name] = limit
    }
  return limits
}

/** The shared cells of the end users of a key (`UserRequest`); null where no limit is set for them. */
export function cellsOfUsers(organization: OrganizationConfig, key: KeyConfig): readonly Cell[] | null {
  const limits = userLimits(organization, key)
  if (Object.keys(limits).length === 0) return null
  const cells: Cell[] = []
  for (const [dimension, counted] of USER_DIMENSIONS)
    for (const limit of counted.limits) {
      const { kind } = counted
      const { word, windowMs, period } = limit
      // Concurrency without a limit only counts who has requests that run.
      const capacity = capacityIn(limits, counted, limit) ?? (kind === 'slots' ? Number.POSITIVE_INFINITY : undefined)
      if (capacity === undefined) continue
      const id = sharedPrefix(key.id) + word
      const more = kind === 'bucket' ? { windowMs } : kind === 'spend' ? { period } : {}
      cells.push({ id, scope: 'user', dimension, kind, capacity, ...more } as Cell)
    }
  return cells
}

/**
 * The cells that are looked at before the body of a request is read: requests, concurrency and money of organization
 * and key. A spend cap of 0.00 is not among them, since a request that costs nothing passes it.
 * @param costs whether every request of this caller costs something
 */
export function early({ cells }: CellSet, costs: boolean): readonly Cell[] {
  return cells.filter(
    ({ dimension, capacity }) =>
      dimension === 'requests' || dimension === 'concurrency' || (isMoney(dimension) && costs && capacity > 0),
  )
}

/**
 * The bucket that `counting` takes from: the organization's requests per minute, apart from
 * completions.
 */
export function countingCell({ limits }: OrganizationConfig): Cell | null {
  const { requests_per_minute: capacity } = limits
  if (capacity === null || capacity === undefined) return null
  return { id: 'o:count:rpm', scope: 'org', dimension: 'requests', kind: 'bucket', capacity, windowMs: 60_000 }
}

/**
 * Cells under platform load (LIM-10): rates and concurrency are reduced, money is not. A capacity of 0 stays 0. Each
 * factor has one list of cells, because the plans of limits, headers and Redis are cached by the list. It is the list
 * of the set itself where the load reduces nothing.
 */
export function scaledDown(set: CellSet, factor: number): readonly Cell[] {
  let cells = set.scaled.get(factor)
  if (!cells) {
    const reduced = set.cells.map(cell => {
      if (isMoney(cell.dimension) || cell.capacity === 0) return cell
      const capacity = Math.max(1, Math.floor(cell.capacity * factor))
      return capacity === cell.capacity ? cell : { ...cell, capacity }
    })
    cells = reduced.every((cell, i) => cell === set.cells[i]) ? set.cells : reduced
    set.scaled.set(factor, cells)
  }
  return cells
}

/**
 * The factor of the limits: 1 up to a load of `above`, then falling to 0.1 at full load, in steps of 0.05 so that few
 * lists of cells are made.
 */
export function scaleFactor(load: number, above: number): number {
  if (load <= above) return 1
  const factor = 1 - (0.9 * (load - above)) / (1 - above)
  return Math.max(2, Math.floor(20 * factor)) / 20
}

/** The cells of a set while the platform runs this many exchanges. */
export function cellsAt(
  set: CellSet,
  running: number,
  { max_concurrent_requests, scale_limits_above }: GatewayConfig['platform'],
): readonly Cell[] {
  const factor = scaleFactor(running / max_concurrent_requests, scale_limits_above)
  return factor < 1 ? scaledDown(set, factor) : set.cells
}

const parts = new WeakMap<readonly Cell[], readonly Cell[]>()

/** Those of an admission's cells that are for all models. They come first, so states stay parallel to them. */
export function forAllModels(cells: readonly Cell[]): readonly Cell[] {
  let part = parts.get(cells)
  if (!part) {
    const end = cells.findIndex(({ model }) => model !== undefined)
    parts.set(cells, (part = end < 0 ? cells : cells.slice(0, end)))
  }
  return part
}
