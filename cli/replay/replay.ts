/**
 * Replays rows of the ledger against other plans and prices: each exchange asks the limiter again, at the time at which
 * its request came, and gives back what it did not use when it ended. The limiter is the one of a gateway
 * (stores/limits/memory.ts), asked by the code of `admission`; time passes with the rows.
 */
import { isDeepStrictEqual } from 'node:util'
import type { GatewayConfig, ModelConfig } from '../../config/types.ts'
import { countedOf, denialCode, limitOf } from '../../core/canon/limits.ts'
import type { CostRates } from '../../core/canon/money.ts'
import type { Reply } from '../../core/plugin.ts'
import { type Cell, isLimit, type LedgerRow } from '../../core/ports/store.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { type CellSet, cellSets } from '../../plugins/admission/cells.ts'
import { verdict } from '../../plugins/admission/denials.ts'
import { needFor } from '../../plugins/admission/need.ts'
import { mostOf, type Taken, take } from '../../plugins/admission/take.ts'
import { ModelAccess } from '../../plugins/model-access/access.ts'
import type { Identity } from '../../plugins/shared/slots.ts'
import { MemoryLimits } from '../../stores/limits/memory.ts'
import type { Account, Accounts } from './accounts.ts'
import { capOf, consumedOf, figuresOf, providerCostOf, recordedPrice, revenueOf } from './row.ts'
import { Running } from './running.ts'

/** A row that would have been refused. */
export interface Refusal {
  row: LedgerRow
  /** Whose limit it is; `request`: of one request, by whichever of them has it. */
  scope: 'organization' | 'key' | 'user' | 'request'
  /** Its key in gateway.yaml: `requests_per_minute`, `models`, `price`. */
  limit: string
  /** The model that the limit is for; '' where it is for all. */
  model: string
  /** The code that the client would have got. */
  code: string
  /** Unix ms from which it would have fitted; null where waiting does not help. */
  fits: number | null
}

/** What became of one row. `revenue` and `providerCost` are those of the replay, and nothing where it was refused. */
export interface Replayed {
  row: LedgerRow
  /** The plan of its organization, as replayed; '' where the organization is gone. */
  plan: string
  refusal: Refusal | null
  /** Nano-USD. */
  revenue: number
  /** Nano-USD; undefined where it is not known. */
  providerCost: number | undefined
}

/** Of rows within the period: how many lack something that a replay would need. */
export interface Untold {
  /** Their organization is gone: they are taken as they were, and no limit is asked. */
  organizations: number
  /** Their key is gone: it has no limits of its own. */
  keys: number
  /** Their model is gone: it has the price that was billed, and only limits for all models. */
  models: number
  /** Their key limits each end user, and the row does not tell whose it was. */
  users: number
  /** They are of a release that did not write what it had reserved. */
  reservations: number
}

export interface ReplayOptions {
  config: GatewayConfig
  accounts: Accounts
  /** Costs that are proposed, by backend. */
  costs: Readonly<Record<string, CostRates>>
  /** Rows before this time (Unix ms) fill the limits, and are not told about. */
  since: number
  tell(replayed: Replayed): void
}

/** An exchange that runs. */
interface Admitted {
  org: string
  id: string
  finals: readonly number[]
  ofUser: readonly number[] | undefined
}

/** After this many rows the limiter looks for levels that are full again, and forgets them. */
const SWEEP_ROWS = 1000

export class Replay {
  /** Within the period. */
  readonly untold: Untold = { organizations: 0, keys: 0, models: 0, users: 0, reservations: 0 }
  readonly #options: ReplayOptions
  readonly #pipelines: ReturnType<typeof pipelinesOf>
  readonly #access: ModelAccess
  readonly #formerAccess: ModelAccess
  readonly #setOf = cellSets()
  /** The sets without cells that only book. */
  readonly #limited = new WeakMap<CellSet, CellSet>()
  readonly #withoutUsers = new WeakMap<CellSet, CellSet>()
  readonly #running = new Running<Admitted>()
  readonly #limits: MemoryLimits
  #account: Account | undefined
  #now = 0
  #sweep = () => {}
  #rows = 0

  constructor(options: ReplayOptions) {
    this.#options = options
    this.#pipelines = pipelinesOf(options.config)
    this.#access = new ModelAccess({ models: options.accounts.models })
    this.#formerAccess = new ModelAccess(options.config)
    const clock: Clock = {
      now: () => this.#now,
      mono: () => this.#now,
      setTimer: (_, fire) => {
        this.#sweep = fire
        return { cancel() {} }
      },
    }
    this.#limits = new MemoryLimits({ clock, billed: () => this.#account!.billedBefore })
  }

  /** Replays the next rows, in order of time. */
  async add(rows: readonly LedgerRow[]): Promise<void> {
    for (const row of rows) {
      const found = this.#options.accounts.find(row.organization)
      this.#row(row, found instanceof Promise ? await found : found)
    }
  }

  #row(row: LedgerRow, account: Account | null): void {
    const { accounts, costs, since, tell } = this.#options
    this.#now = row.time
    while (this.#running.next <= row.time) this.#end(this.#running.next)
    if (++this.#rows % SWEEP_ROWS === 0) this.#sweep()
    const counts = row.time >= since
    const { untold } = this
    const rates = costs[`${row.provider}/${row.provider_model}`]
    const providerCost = providerCostOf(row, rates)
    if (!account) {
      if (!counts) return
      untold.organizations++
      return tell({ row, plan: '', refusal: null, revenue: row.cost, providerCost })
    }
    this.#account = account
    const caller = account.caller(row.key_id, row.time)
    const { organization, key } = caller
    const tellOf = (refusal: Refusal | null, revenue: number) => {
      if (counts) tell({ row, plan: organization.plan, refusal, revenue, providerCost: refusal ? 0 : providerCost })
    }
    const isKnown = row.model !== '' && Object.hasOwn(accounts.models, row.model)
    if (counts) {
      if (!account.has(row.key_id)) untold.keys++
      if (row.model !== '' && !isKnown) untold.models++
      if (row.output_reserved === undefined) untold.reservations++
    }

    const resolved = isKnown ? this.#access.resolve(row.model, organization, key, undefined) : undefined
    if (resolved && 'kind' in resolved) {
      const code = codeOf(resolved)
      const limit = code === 'model_not_found' ? 'price' : 'models'
      return tellOf({ row, scope: 'organization', limit, model: row.model, code, fits: null }, 0)
    }
    const priceOf = (model: ModelConfig | undefined, { organization: { billing } }: Identity) =>
      billing === 'free' ? null : model ? model.price : recordedPrice(row)
    const price = priceOf(resolved, caller)
    const former = this.#former(row, account, isKnown)
    const formerPrice = former && priceOf(former.model, former.caller)

    const { user, set } = this.#user(row, this.#setFor(caller, row.model), counts)
    const asked = former
      ? capOf(row, former.model, formerPrice, this.#setFor(former.caller, row.model), this.#pipelines.reserves)
      : capOf(row, resolved, price, set, this.#pipelines.reserves)
    const need = needFor(figuresOf(row, resolved, price, asked.cap), set, asked.reserve)
    if ('reply' in need) {
      const code = codeOf(need.reply)
      return tellOf({ row, scope: 'request', limit: need.setting, model: '', code, fits: null }, 0)
    }
    const org = organization.id
    const { cells } = set
    const taken = take(this.#limits, {
      ...{ org, id: row.request_id, now: row.time, set, cells, need, user },
      conversation: undefined,
    }) as Taken
    if (!taken.result.admitted) return tellOf(refusalOf(row, cells, taken), 0)

    const samePrice = price === formerPrice || isDeepStrictEqual(price, formerPrice)
    const revenue = revenueOf(row, price, !samePrice, mostOf(taken))
    const consumed = consumedOf(row, revenue, price)
    const settled = (of: readonly Cell[], reserved: readonly number[]) =>
      of.map(({ dimension }, i) => countedOf(dimension).settle(consumed, reserved[i]!))
    this.#running.add(row.time + this.#runs(row), {
      ...{ org, id: row.request_id, finals: settled(cells, taken.amounts) },
      ofUser: taken.user ? settled(taken.user.cells, taken.user.amounts) : undefined,
    })
    tellOf(null, revenue)
  }

  /** The same caller and model, without what is proposed; null where that could not have been admitted. */
  #former(
    row: LedgerRow,
    account: Account,
    isKnown: boolean,
  ): { caller: Identity; model: ModelConfig | undefined } | null {
    const caller = account.former(row.key_id, row.time)
    if (!caller) return null
    if (!isKnown) return { caller, model: undefined }
    const model = this.#formerAccess.resolve(row.model, caller.organization, caller.key, undefined)
    return 'kind' in model ? null : { caller, model }
  }

  #setFor(caller: Identity, model: string): CellSet {
    const whole = this.#setOf(caller, model === '' ? null : model)
    let set = this.#limited.get(whole)
    if (!set) this.#limited.set(whole, (set = { ...whole, cells: whole.cells.filter(isLimit) }))
    return set
  }

  /** The end user of a row, and the limits without those of users where it does not tell him. */
  #user(row: LedgerRow, set: CellSet, counts: boolean): { user: string | null; set: CellSet } {
    if (!set.users) return { user: null, set }
    const { userTag } = this.#pipelines
    if (userTag !== null) {
      const tags = (row.tags ? JSON.parse(row.tags) : {}) as Record<string, string>
      return { user: Object.hasOwn(tags, userTag) ? tags[userTag]! : '', set }
    }
    if (counts) this.untold.users++
    let without = this.#withoutUsers.get(set)
    if (!without) {
      without = { ...set, users: null, userSpend: Number.POSITIVE_INFINITY }
      this.#withoutUsers.set(set, without)
    }
    return { user: null, set: without }
  }

  /** How long an exchange ran, ms. One that a crash cut off has the time until that was found, which may be days. */
  #runs({ duration_ms, outcome }: LedgerRow): number {
    const ran = Math.max(0, duration_ms)
    return outcome === 'lost' ? Math.min(ran, this.#pipelines.longest) : ran
  }

  #end(at: number): void {
    const { org, id, finals, ofUser } = this.#running.take()!
    this.#limits.settle(org, id, finals, at, ofUser)
  }
}

/** What the pipelines of a configuration say about admission. */
function pipelinesOf({ pipelines, stream_limits }: GatewayConfig): {
  /** The values of `output_reserve`. */
  reserves: readonly number[]
  /** The tag that has the end user as `admission` names him; null where not every pipeline writes it. */
  userTag: string | null
  /** The longest time that an exchange may run, ms. */
  longest: number
} {
  const reserves = new Set<number>()
  const tags = new Set<string | null>()
  for (const entries of Object.values(pipelines)) {
    const admission = entries.find(({ plugin }) => plugin === 'admission')?.config
    if (!admission) continue
    reserves.add(admission['output_reserve'] as number)
    const written = entries.find(({ plugin }) => plugin === 'usage-capture')?.config['tags'] ?? {}
    const same = Object.entries(written).find(([, tag]) => isDeepStrictEqual(tag, admission['user']))
    tags.add(same?.[0] ?? null)
  }
  return {
    reserves: reserves.size > 0 ? [...reserves] : [DEFAULT_RESERVE],
    userTag: tags.size === 1 ? [...tags][0]! : null,
    longest: Math.max(...Object.values(stream_limits).map(({ ceiling }) => ceiling)),
  }
}

/** Where no pipeline admits anything. */
const DEFAULT_RESERVE = 4096

function refusalOf(row: LedgerRow, cells: readonly Cell[], { result, amounts, user }: Taken): Refusal {
  if (result.admitted) throw new Error('it was admitted')
  const [of, reserved] = result.user && user ? [user.cells, user.amounts] : [cells, amounts]
  const { at, final, horizonMs } = verdict(of, reserved, result)
  const cell = of[at]!
  return {
    row,
    scope: SCOPES[cell.scope],
    limit: (cell.scope === 'user' ? 'user_limits.' : '') + (cell.kind === 'balance' ? 'balance' : limitOf(cell).name),
    model: cell.model ?? '',
    code: denialCode(cell.dimension),
    fits: final ? null : Math.ceil(row.time + horizonMs),
  }
}

const SCOPES = { org: 'organization', key: 'key', user: 'user' } as const

function codeOf(reply: Reply): string {
  if (reply.kind !== 'error') throw new Error(`a refusal is ${reply.kind}`)
  return reply.error.code
}
