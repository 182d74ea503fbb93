import { asGatewayError } from '../core/canon/errors.ts'
import { isMoney, limitOf, periodIndex, periodStart } from '../core/canon/limits.ts'
import { answer, definePlugin, type Exchange, type Reply } from '../core/plugin.ts'
import { type Cell, type CellState, isLimit, type Store } from '../core/ports/store.ts'
import { cellsFor } from './admission/cells.ts'
import { counting, type Refusal } from './admission/counting.ts'
import { type Identity, identity } from './shared/slots.ts'

/**
 * Answers GET /v1/limits with each limit of organization and key, what is used of it, when it is whole again, and which
 * one binds. Each answer takes one from the bucket of counts of tokens.
 */
export const ownLimits = definePlugin({
  name: 'own-limits',
  summary: 'Answers with each limit of organization and key, and what is used of it.',
  needs: [identity],
  terminal: true,
  create(_, { store }) {
    // `auth` gives the same identity object for a key each time.
    const cells = new WeakMap<Identity, readonly Cell[]>()
    const cellsOf = (caller: Identity): readonly Cell[] => {
      let known = cells.get(caller)
      if (!known) cells.set(caller, (known = limitsOf(caller)))
      return known
    }
    const take = counting(store)
    return {
      forward(x) {
        limitsFor(store, x, cellsOf(x.get(identity)), take(x)).then(
          reply => x.reply(reply),
          error => x.fail(asGatewayError(error)),
        )
        return undefined
      },
    }
  },
})

/** The limits that a caller may see, each once. What the organization spends is for keys that may see it. */
function limitsOf({ organization, key }: Identity): readonly Cell[] {
  const cells = new Map<string, Cell>()
  for (const model of [null, ...Object.keys(organization.model_limits), ...Object.keys(key.model_limits)])
    for (const cell of cellsFor(organization, key, model).cells) {
      const hidden = cell.scope === 'org' && isMoney(cell.dimension) && key.usage === 'key'
      // What is left of a balance is between the organization and its operator, and its cell may have to be built first.
      if (isLimit(cell) && cell.kind !== 'balance' && !hidden) cells.set(cell.id, cell)
    }
  return [...cells.values()]
}

async function limitsFor(store: Store, x: Exchange, cells: readonly Cell[], taken: Refusal): Promise<Reply> {
  const refused = await taken
  if (refused) return refused
  const now = x.clock.now()
  const states = cells.length === 0 ? [] : await store.limits.peek(x.get(identity).organization.id, cells, now)
  return answer(200, {
    object: 'list',
    scope: x.get(identity).key.usage,
    data: cells.map((cell, i) => describe(cell, states[i]!, binds(cells, states, i), now)),
  })
}

function describe(cell: Cell, { remaining, resetMs }: CellState, binds: boolean, now: number) {
  const reset = cell.period
    ? periodStart(cell.period, periodIndex(cell.period, now) + 1)
    : resetMs > 0
      ? now + resetMs
      : null
  return {
    object: 'limit',
    name: limitOf(cell).name,
    scope: cell.scope === 'org' ? 'organization' : 'key',
    model: cell.model ?? null,
    unit: isMoney(cell.dimension) ? 'nano_usd' : cell.dimension === 'concurrency' ? 'requests' : cell.dimension,
    limit: cell.capacity,
    // An exchange can use more than was reserved for it.
    used: Math.max(0, Math.ceil(cell.capacity - remaining)),
    remaining: Math.max(0, Math.floor(remaining)),
    resets_at: reset === null ? null : new Date(reset).toISOString(),
    binds,
  }
}

/**
 * Whether this limit would be the first of its dimension to refuse: it leaves least of all that hold for the same
 * requests. A limit of one model competes with those of all models; these compete with each other.
 */
function binds(cells: readonly Cell[], states: readonly CellState[], at: number): boolean {
  const { dimension, model } = cells[at]!
  return cells.every(
    (other, i) =>
      other.dimension !== dimension ||
      (other.model !== undefined && other.model !== model) ||
      states[i]!.remaining > states[at]!.remaining ||
      (states[i]!.remaining === states[at]!.remaining && i >= at),
  )
}
