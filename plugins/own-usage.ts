import { asGatewayError, printable } from '../core/canon/errors.ts'
import type { Budget } from '../core/engine/budget.ts'
import { answer, definePlugin, deny, type Exchange, type Reply, type SharedState, tenantOf } from '../core/plugin.ts'
import type { Store, UsageFilter } from '../core/ports/store.ts'
import { faultByTag, GROUPS, type GroupedUse, sumBy, TooManyGroups } from '../core/ports/usage-groups.ts'
import { FairGate } from '../core/tools/fair.ts'
import { counting, type Refusal } from './admission/counting.ts'
import { disconnection } from './shared/disconnection.ts'
import { type Identity, identity } from './shared/slots.ts'

const HOUR = 3_600_000
const MOST_DAYS = 92
/** In one answer. */
const MOST_GROUPS = 5000

/** The sums of three months may be millions, so what one organization asks at once is read one after the other. */
export const usageBudget = {
  name: 'usage_looks',
  bound: 'requests for `GET /v1/usage` whose sums are being read',
  owner: 'tenant',
  each: 1,
  all: 4,
  over: 'nothing: the next waits, as long as its client does',
  figures: ({ shared }) => {
    const { running: used, waiting } = usageGate(shared)
    return { used, waiting }
  },
} as const satisfies Budget

const usageGate = (shared: SharedState): FairGate =>
  shared.use('own-usage', () => new FairGate(usageBudget.all, usageBudget.each))

/** What a caller may group by. The others of `GROUPS` tell of backends. */
const OWN_GROUPS = ['hour', 'day', 'month', 'model', 'key', 'tag'] as const
type OwnGroup = (typeof OWN_GROUPS)[number]

/**
 * Answers GET /v1/usage with what the caller's organization used, or the key alone where it may see no more, from the
 * sums of whole hours. Each answer takes one from the bucket of counts of tokens.
 */
export const ownUsage = definePlugin({
  name: 'own-usage',
  summary: 'Answers with what the organization or key used, by day, model, key and tag.',
  needs: [identity],
  terminal: true,
  create(_, { store, shared }) {
    const take = counting(store)
    const gate = usageGate(shared)
    return {
      forward(x) {
        usageFor(store, gate, x, take(x)).then(
          reply => x.reply(reply),
          error => x.fail(asGatewayError(error)),
        )
        return undefined
      },
    }
  },
})

async function usageFor(store: Store, gate: FairGate, x: Exchange, taken: Refusal): Promise<Reply> {
  const refused = await taken
  if (refused) return refused
  const caller = x.get(identity)
  const asked = questionOf(caller, new URLSearchParams(x.incoming.query), x.clock.now())
  if ('kind' in asked) return asked
  const { filter, groups } = asked
  const signal = disconnection(x)
  let leave: (() => void) | undefined
  let found: GroupedUse[]
  try {
    leave = await gate.enter(tenantOf(x), signal)
    found = await sumBy(
      store.usage({ ...filter, by: groups }),
      groups.map(group => GROUPS[group]),
      MOST_GROUPS,
    )
  } catch (error) {
    if (signal.aborted) return deny('provider_unavailable', { message: 'The client has left.' })
    if (!(error instanceof TooManyGroups)) throw error
    return wrong(
      'group_by',
      `The answer would have more than ${MOST_GROUPS} entries; ask for less time, or fewer groups.`,
    )
  } finally {
    leave?.()
  }
  return answer(200, {
    object: 'list',
    scope: caller.key.usage,
    since: new Date(filter.since).toISOString(),
    until: new Date(filter.until).toISOString(),
    data: found.map(({ names, sums }) => ({
      object: 'usage',
      ...Object.fromEntries(groups.map((group, i) => [group, names[i]])),
      requests: sums.requests,
      input_tokens: sums.input,
      cached_tokens: sums.cached,
      cache_write_tokens: sums.cache_write,
      output_tokens: sums.output,
      reasoning_tokens: sums.reasoning,
      searches: sums.searches,
      cost_nano_usd: sums.cost,
    })),
  })
}

interface Question {
  filter: UsageFilter & { since: number; until: number }
  groups: OwnGroup[]
}

const PARAMETERS = ['since', 'until', 'group_by', 'key', 'model', 'tag']

function questionOf({ organization, key }: Identity, query: URLSearchParams, now: number): Question | Reply {
  for (const name of query.keys())
    if (!PARAMETERS.includes(name))
      return deny('unknown_parameter', {
        message: `There is no parameter ${JSON.stringify(printable(name))} here; there are ${PARAMETERS.join(', ')}.`,
        param: printable(name),
      })
  const since = timeOf(query, 'since', startOfMonth(now))
  const until = timeOf(query, 'until', now)
  if (typeof since !== 'number') return since
  if (typeof until !== 'number') return until
  // Sums are of whole hours. To look at the rows of an hour that is cut would cost as much as all of its rows.
  const range = { since: Math.floor(since / HOUR) * HOUR, until: Math.ceil(until / HOUR) * HOUR }
  if (range.until - range.since > MOST_DAYS * 24 * HOUR)
    return wrong('since', `'since' and 'until' are more than ${MOST_DAYS} days apart; ask for less at once.`)
  const tag = query.get('tag') ?? undefined
  const groups = (query.get('group_by') ?? (tag === undefined ? 'day,model' : 'day,tag')).split(',')
  const other = groups.find(name => !OWN_GROUPS.includes(name as OwnGroup))
  if (other !== undefined)
    return wrong('group_by', `'group_by' has ${JSON.stringify(printable(other))}; it takes ${OWN_GROUPS.join(', ')}.`)
  const fault = faultByTag(groups, tag)
  if (fault !== null) return wrong('group_by', `'group_by': ${fault}.`)
  const only = query.get('key')
  const own = key.usage === 'key'
  if (own && only !== null && only !== key.id)
    return wrong('key', "This key sees its own use alone. Leave 'key' out, or use a key that sees the organization's.")
  const model = query.get('model')
  return {
    filter: {
      org: organization.id,
      ...(own ? { key: key.id } : only !== null && { key: only }),
      ...(model !== null && { model }),
      ...(tag !== undefined && { tag }),
      ...range,
    },
    groups: groups as OwnGroup[],
  }
}

function startOfMonth(now: number): number {
  const date = new Date(now)
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1)
}

function timeOf(query: URLSearchParams, name: string, missing: number): number | Reply {
  const text = query.get(name)
  if (text === null) return missing
  const time = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/.test(text)
    ? Date.parse(text)
    : Number.NaN
  if (Number.isNaN(time))
    return wrong(name, `'${name}' is ${JSON.stringify(printable(text))}; write 2026-11-01 or 2026-11-01T12:00:00Z.`)
  return time
}

function wrong(param: string, message: string): Reply {
  return deny('invalid_value', { message, param })
}
