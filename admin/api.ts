/**
 * The admin API: accounts, their limits and use, and the audit, as JSON under /api/v1. What it changes is in the
 * store; organizations of the file are shown, and changed in the file. docs/admin-api.yaml describes it.
 */
import type { IncomingMessage } from 'node:http'
import type { Readable } from 'node:stream'
import { accountNames, readOrganization, sameMembers } from '../config/accounts.ts'
import { writtenCost, writtenPrice } from '../config/prices.ts'
import { ACTIONS } from '../config/schema.ts'
import {
  type Act,
  type Author,
  balanceOf,
  changeStored,
  createStored,
  creditedOf,
  DELETE_GRACE,
  type Edit,
  giveCredit,
  handedOn,
  MADE_WITH_KEY,
  membersOf,
  newSecret,
  rotation,
  wholeOf,
  without,
} from '../config/stored.ts'
import type { GatewayConfig, OrganizationConfig } from '../config/types.ts'
import { parseDuration, parseSignedUsd } from '../config/units.ts'
import { StoreUnavailable } from '../core/canon/errors.ts'
import { isMoney, isUsd, periodStart } from '../core/canon/limits.ts'
import { formatUsd } from '../core/canon/money.ts'
import { AccountFault, type Credit, type OrganizationWithKeys } from '../core/ports/accounts.ts'
import { type LedgerRow, RECENT_ROWS, type Store } from '../core/ports/store.ts'
import { faultByTag, TooManyGroups, withOwners } from '../core/ports/usage-groups.ts'
import { appendAll } from '../core/tools/append.ts'
import { type Action, type Need, refusal } from './access.ts'
import type { AccountReader, LimitUse, Maximum } from './accounts.ts'
import type { Caller } from './callers.ts'
import { lastUsesKept } from './last-use.ts'
import { USAGE_GROUPS, type UsageGroup, usageBy } from './usage.ts'

export interface ApiSources {
  store: Store
  config(): GatewayConfig
  reader: AccountReader
  /** Unix ms. */
  now(): number
}

/** A request of node:http, or one that another process has read. */
export type ApiRequest = Readable & Pick<IncomingMessage, 'method' | 'headers'>

export interface ApiAnswer {
  status: number
  body: unknown
  headers?: Record<string, string>
}

export const API_PREFIX = '/api/v1/'
/** Bytes. */
const MAX_BODY = 1 << 20
const MAX_PAGE = 500
/** Members of settings are nested less deep than this. */
const MAX_DEPTH = 8
const ATTEMPTS = 10

class Refused extends Error {
  readonly answer: ApiAnswer
  constructor(status: number, code: string, message: string) {
    super(message)
    this.answer = { status, body: { error: { code, message } } }
  }
}

const FAULTS = {
  invalid: [400, 'invalid'],
  exists: [409, 'exists'],
  file: [409, 'in_file'],
  changed: [412, 'changed'],
  absent: [404, 'not_found'],
  gone: [409, 'deleted'],
} as const

/** What a request is about. */
interface Asked {
  sources: ApiSources
  caller: Caller
  request: ApiRequest
  query: URLSearchParams
  /** Decoded segments of the path that stand for `{…}`; the first is the organization. */
  ids: string[]
  need: Need
}

type Handler = (asked: Asked) => Promise<ApiAnswer>

/** A method of a path: what a token must be bound to, if it is bound at all, and what answers. */
type Operation = readonly [actions: readonly Action[], handler: Handler]

/**
 * By path, with `*` for a segment that is an id. What a request needs follows from its place here (`needOf`), so that
 * an operation cannot be without an answer to who may ask for it.
 */
const ROUTES: Record<string, Record<string, Operation>> = {
  organizations: {
    GET: [['organizations', 'plans'], listOrganizations],
    POST: [['organizations'], createOrganization],
  },
  'organizations/*': {
    // Whoever works for an organization may see its plan and its limits.
    GET: [ACTIONS, showOrganization],
    PATCH: [['organizations', 'plans'], patchOrganization],
    DELETE: [['organizations'], deleteOrganization],
  },
  'organizations/*/keys': { GET: [['keys'], listKeys], POST: [['keys'], createKey] },
  'organizations/*/keys/*': { GET: [['keys'], showKey], PATCH: [['keys'], patchKey], DELETE: [['keys'], deleteKey] },
  'organizations/*/keys/*/rotate': { POST: [['keys'], rotateKey] },
  'organizations/*/keys/*/revoke': { POST: [['keys'], asked => setStatus(asked, 'revoked')] },
  'organizations/*/keys/*/activate': { POST: [['keys'], asked => setStatus(asked, 'active')] },
  // A credit is worth what a limit is.
  'organizations/*/credits': { GET: [['plans', 'usage'], listCredits], POST: [['plans'], createCredit] },
  'organizations/*/usage': { GET: [['usage'], showUsage] },
  'organizations/*/exchanges': { GET: [['usage'], listExchanges] },
  'organizations/*/rows': { GET: [['usage'], listRows] },
  usage: { GET: [['usage'], showAllUsage] },
  // Whoever makes or changes an organization, or reads its use, has to know their names.
  plans: { GET: [['organizations', 'plans', 'usage'], listPlans] },
  models: { GET: [['organizations', 'plans', 'usage'], listModels] },
  // Whoever works for an organization may see what was done to it.
  'organizations/*/audit': { GET: [ACTIONS, listAuditOfOne] },
  caller: { GET: [ACTIONS, showCaller] },
  audit: { GET: [['organizations'], listAudit] },
  notices: { GET: [['usage'], listNotices] },
}

/** What an operation needs, by its place in the table. */
function needOf(pattern: string, method: string, actions: readonly Action[]): Need {
  const about = pattern === 'caller' ? 'caller' : pattern.startsWith('organizations/*') ? 'one' : 'all'
  return { about, actions, changes: method !== 'GET' }
}

/** Every operation with what it needs; the path is a pattern as in the table. */
export const OPERATIONS: readonly { method: string; path: string; need: Need }[] = Object.entries(ROUTES).flatMap(
  ([path, methods]) =>
    Object.entries(methods).map(([method, [actions]]) => ({ method, path, need: needOf(path, method, actions) })),
)

/** The organization that a request is for, as its caller says. */
export function actingFor({ headers }: Pick<ApiRequest, 'headers'>): string | undefined {
  return headers['sluice-act-for'] as string | undefined
}

/** Answers a request under `API_PREFIX`. Never rejects for a fault of the request. */
export async function answerApi(
  sources: ApiSources,
  caller: Caller,
  request: ApiRequest,
  path: string,
  query: URLSearchParams,
): Promise<ApiAnswer> {
  try {
    const { pattern, methods, ids } = routeOf(path.slice(API_PREFIX.length))
    const method = request.method === 'HEAD' ? 'GET' : request.method!
    const operation = Object.hasOwn(methods, method) ? methods[method] : undefined
    if (!operation) {
      const allow = Object.keys(methods).join(', ')
      const { answer } = new Refused(405, 'method', `${allow} only`)
      return { ...answer, headers: { allow, connection: 'close' } }
    }
    const [actions, handler] = operation
    if (method !== 'GET') ownPage(request)
    const asked = { sources, caller, request, query, ids, need: needOf(pattern, method, actions) }
    mayDo(asked, asked.need)
    return await handler(asked)
  } catch (error) {
    if (error instanceof Refused) return error.answer
    if (error instanceof AccountFault) {
      const [status, code] = FAULTS[error.why]
      return new Refused(status, code, error.message.replaceAll('\n', '; ')).answer
    }
    if (error instanceof StoreUnavailable) return new Refused(503, 'store_unavailable', error.message).answer
    throw error
  }
}

/** Notes in the audit that an address has sent a wrong token. */
export function noteRefusedToken({ store, now }: ApiSources, address: string): void {
  const note = { time: now(), by: '', address, key: '', before: null, after: null }
  Promise.resolve()
    .then(() => store.accounts.note({ ...note, operation: 'token.refused' }))
    // The store is out: the refusal holds, and only its entry is missing.
    .catch(() => {})
}

function routeOf(path: string): { pattern: string; methods: Record<string, Operation>; ids: string[] } {
  const segments = path.split('/')
  for (const [pattern, methods] of Object.entries(ROUTES)) {
    const parts = pattern.split('/')
    if (parts.length !== segments.length) continue
    if (!parts.every((part, i) => part === '*' || part === segments[i])) continue
    try {
      return { pattern, methods, ids: segments.filter((_, i) => parts[i] === '*').map(decodeURIComponent) }
    } catch {
      break
    }
  }
  throw new Refused(404, 'not_found', 'no such path; docs/admin-api.yaml lists them')
}

/** @throws Refused unless the caller may do what has this need */
function mayDo({ caller, request, ids }: Pick<Asked, 'caller' | 'request' | 'ids'>, need: Need): void {
  const refused = refusal(caller, actingFor(request), need, ids[0])
  if (refused) throw new Refused(403, refused.code, refused.message)
}

/** @throws Refused when a page of another site makes its browser ask */
function ownPage({ headers }: ApiRequest): void {
  const { origin, host } = headers
  const site = headers['sec-fetch-site']
  if (
    (origin !== undefined && !ownOrigin(origin, host)) ||
    (site !== undefined && /^(cross|same)-site$/.test(`${site}`))
  )
    throw new Refused(403, 'origin', 'changes are taken from this listener’s own pages and from programs only')
}

function ownOrigin(origin: string, host: string | undefined): boolean {
  return URL.canParse(origin) && host !== undefined && new URL(origin).host === host.toLowerCase()
}

// ---- reading --------------------------------------------------------------------------------------------------------

/** Who asks, so that a page offers only what its token may do. */
async function showCaller({ caller: { by, role, actsFor, actions }, query }: Asked): Promise<ApiAnswer> {
  known(query)
  return { status: 200, body: { by, role, acts_for: actsFor, actions } }
}

async function listOrganizations({ sources, query }: Asked): Promise<ApiAnswer> {
  known(query, 'after', 'limit', 'find', 'sha256', 'key')
  if (['find', 'sha256', 'key'].filter(name => query.has(name)).length > 1)
    throw new Refused(400, 'invalid', 'find, key, sha256: one of them')
  const { store } = sources
  const { organizations } = sources.config()
  const sha256 = query.get('sha256')?.toLowerCase()
  if (sha256 !== undefined) {
    if (!/^[0-9a-f]{64}$/.test(sha256)) throw new Refused(400, 'invalid', 'sha256: 64 hex digits')
    const inFile = Object.values(organizations).find(({ keys }) => keys.some(key => key.sha256 === sha256))
    if (inFile) return { status: 200, body: { organizations: [rowOfFile(inFile)], next: null } }
    const found = await store.accounts.find(sha256)
    const stored = found && (await store.accounts.read(found.organization.id))
    return { status: 200, body: { organizations: stored ? [rowOfStore(stored)] : [], next: null } }
  }
  const after = query.get('after') ?? ''
  const find = query.get('find') ?? ''
  const key = query.get('key')
  const limit = limitOf(query)
  const wanted = (id: string) => id.startsWith(find) && Buffer.compare(Buffer.from(id), Buffer.from(after)) > 0
  const rows = Object.values(organizations)
    .filter(({ id, keys }) => wanted(id) && (key === null || keys.some(one => one.id === key)))
    .map(rowOfFile)
  if (key !== null) appendAll(rows, (await store.accounts.withKey(key, after, limit + 1)).map(rowOfStore))
  else {
    // The store's page begins after an id, so the one that is the prefix itself is read apart.
    const exact = find !== '' && wanted(find) ? await store.accounts.read(find) : null
    if (exact) rows.push(rowOfStore(exact))
    const page = await store.accounts.page([after, find].sort()[1]!, limit + 1)
    appendAll(rows, page.filter(({ id }) => wanted(id)).map(rowOfStore))
  }
  rows.sort((a, b) => Buffer.compare(Buffer.from(a.id), Buffer.from(b.id)))
  const shown = rows.slice(0, limit)
  return { status: 200, body: { organizations: shown, next: rows.length > limit ? shown.at(-1)!.id : null } }
}

const live = (keys: readonly { status: string }[]) => keys.filter(({ status }) => status !== 'revoked').length

function rowOfFile({ id, plan, status, keys }: OrganizationConfig) {
  return { id, place: 'file', version: null as number | null, plan, status: status as string, keys: live(keys) }
}

function rowOfStore({ id, version, settings, keys }: OrganizationWithKeys): ReturnType<typeof rowOfFile> {
  const { plan, status = 'active' } = JSON.parse(settings)
  const all = keys.map(key => ({ status: 'active', ...JSON.parse(key.settings) }))
  return { id, place: 'store', version, plan, status, keys: live(all) }
}

/** An organization in either place. */
async function found({ sources, ids }: Asked): Promise<{
  organization: OrganizationConfig | null
  /** Also when its plan is gone. */
  unplanned: OrganizationConfig | null
  stored: OrganizationWithKeys | null
  faults: string[]
}> {
  const config = sources.config()
  const id = ids[0]!
  if (Object.hasOwn(config.organizations, id)) {
    const organization = config.organizations[id]!
    return { organization, unplanned: organization, stored: null, faults: [] }
  }
  const stored = await sources.store.accounts.read(id)
  if (!stored) throw new Refused(404, 'not_found', `there is no organization ${id}`)
  return { ...readOrganization(id, membersOf(stored), accountNames(config), creditedOf(stored)), stored }
}

async function showOrganization(asked: Asked): Promise<ApiAnswer> {
  known(asked.query)
  const { organization, unplanned, stored, faults } = await found(asked)
  const used = organization && (await asked.sources.reader.one(organization, asked.sources.now()))
  const body = {
    ...(stored ? rowOfStore(stored) : rowOfFile(organization!)),
    settings: stored && settingsOf(stored),
    leaves: isoOf(stored?.leaves),
    faults,
    name: unplanned?.name ?? null,
    metadata: unplanned?.metadata ?? {},
    billing: organization?.billing ?? null,
    limits: inUsd(used?.limits ?? []),
    maxima: used?.maxima ?? [],
    spend: used?.spend ?? null,
    spend_usd: used && { day: usd(used.spend.day), month: usd(used.spend.month) },
    balance: stored && (await shownBalance(asked.sources.store, stored)),
    keys: unplanned ? await keyRows(asked, unplanned, stored, used?.keys) : [],
  }
  return { status: 200, body, headers: etag(stored?.version) }
}

/** Its members as gateway.yaml would have them, without its keys. */
function settingsOf(stored: OrganizationWithKeys): Record<string, unknown> {
  const { keys: _, ...settings } = membersOf(stored)
  return settings
}

/** The balance of an organization; null where it never had one. */
async function shownBalance({ accounts }: Store, stored: OrganizationWithKeys) {
  const credited = creditedOf(stored)
  const billed = await accounts.billed(stored.id)
  if (credited === 0 && billed === 0 && settingsOf(stored)['billing'] !== 'prepaid') return null
  return balanceOf(credited, billed)
}

const rowOfCredit = ({ id, amount, time, by, note }: Credit) => ({ id, amount_nano_usd: amount, time, by, note })

async function listCredits(asked: Asked): Promise<ApiAnswer> {
  const { sources, query, ids } = asked
  known(query, 'limit')
  const { stored } = await found(asked)
  const credits = await sources.store.accounts.credits(ids[0]!)
  const balance = stored && (await shownBalance(sources.store, stored))
  return { status: 200, body: { credits: credits.slice(0, limitOf(query)).map(rowOfCredit), balance } }
}

/** Nano-USD as exact USD. */
const usd = (nano: number): string => formatUsd(nano, 9)

/** Limits with amounts of money in USD beside those without a unit. */
const inUsd = (limits: readonly LimitUse[]) =>
  limits.map(limit =>
    isMoney(limit.dimension) ? { ...limit, capacity_usd: usd(limit.capacity), used_usd: usd(limit.used) } : limit,
  )

const isoOf = (time: number | null | undefined): string | null => (time == null ? null : new Date(time).toISOString())

async function keyRows(
  { sources }: Asked,
  { id: organization, keys }: OrganizationConfig,
  stored: OrganizationWithKeys | null,
  used?: readonly { id: string; limits: readonly LimitUse[]; maxima: readonly Maximum[] }[],
) {
  const ofKey = new Map(used?.map(key => [key.id, key]))
  const settings = new Map(stored?.keys.map(key => [key.id, wholeOf(key)]))
  const live = keys.flatMap(({ id, status }) => (status === 'revoked' ? [] : [id]))
  const last = await lastUsesKept(sources.store, organization, live, sources.now())
  return keys.map(({ id, status, expires, models, capabilities, streaming, label, hint, creator, created }) => ({
    ...{ id, status, expires: isoOf(expires), models, capabilities, streaming },
    ...{ label: label ?? null, hint: hint ?? null, creator: creator ?? null },
    ...{ created: isoOf(created), last_used: isoOf(last.get(id)), settings: settings.get(id) ?? null },
    ...(used && {
      limits: inUsd(ofKey.get(id)?.limits ?? []),
      maxima: ofKey.get(id)?.maxima ?? [],
    }),
  }))
}

async function listKeys(asked: Asked): Promise<ApiAnswer> {
  known(asked.query)
  const { unplanned, stored, faults } = await found(asked)
  if (!unplanned) throw new Refused(409, 'invalid', faults.join('; '))
  return { status: 200, body: { keys: await keyRows(asked, unplanned, stored) }, headers: etag(stored?.version) }
}

async function showKey(asked: Asked): Promise<ApiAnswer> {
  known(asked.query)
  const { organization, unplanned, stored, faults } = await found(asked)
  if (!unplanned) throw new Refused(409, 'invalid', faults.join('; '))
  const keys = unplanned.keys.filter(({ id }) => id === asked.ids[1])
  if (keys.length === 0) throw noKey(unplanned.id, asked.ids[1]!)
  const used = organization && (await asked.sources.reader.one({ ...organization, keys }, asked.sources.now()))
  const [key] = await keyRows(asked, { ...unplanned, keys }, stored, used?.keys)
  return { status: 200, body: key, headers: etag(stored?.version) }
}

const noKey = (organization: string, id: string) => new AccountFault('absent', `${organization} has no key ${id}`)

const HOUR = 3_600_000
const DAY = 24 * HOUR
const MOST_DAYS = 366

/**
 * The time that a query asks for: from the first of the UTC month to now, unless it says otherwise. Up to now is up to
 * the end of the running hour, so that its sum is taken and no row is read.
 */
function rangeOf({ sources, query }: Asked): { since: number; until: number } {
  const now = sources.now()
  const date = new Date(now)
  const since = timeOf(query, 'since') ?? Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1)
  const until = timeOf(query, 'until') ?? Math.ceil((now + 1) / HOUR) * HOUR
  if (until - since > MOST_DAYS * DAY)
    throw new Refused(400, 'invalid', `since, until: at most ${MOST_DAYS} days at once`)
  return { since, until }
}

async function usageOf(asked: Asked, org: string | undefined, standard: string): Promise<ApiAnswer> {
  const { sources, query } = asked
  known(query, 'since', 'until', 'group_by', 'tag')
  const tag = query.get('tag') ?? undefined
  const ofTag = tag === undefined ? '' : ',tag'
  const groups = withOwners((query.get('group_by') ?? standard + ofTag).split(',') as UsageGroup[], org)
  const other = groups.find(name => !USAGE_GROUPS.includes(name))
  if (other !== undefined)
    throw new Refused(
      400,
      'invalid',
      `group_by: ${other}: there is no such group; there are ${USAGE_GROUPS.join(', ')}`,
    )
  const fault = faultByTag(groups, tag)
  if (fault !== null) throw new Refused(400, 'invalid', `group_by: ${fault}`)
  const range = rangeOf(asked)
  try {
    const usage = await usageBy(sources.store, sources.config().organizations, { org, tag, ...range }, groups)
    const [since, until] = [range.since, Math.min(range.until, sources.now())].map(time => new Date(time).toISOString())
    const priced = usage.map(({ provider_cost, ...sum }) => ({
      ...{ ...sum, cost_usd: usd(sum.cost), provider_cost_usd: usd(provider_cost) },
    }))
    return { status: 200, body: { since, until, group_by: groups, usage: priced } }
  } catch (error) {
    if (!(error instanceof TooManyGroups)) throw error
    throw new Refused(400, 'invalid', `group_by: ${error.message}; ask for less time, or group by less`)
  }
}

async function showUsage(asked: Asked): Promise<ApiAnswer> {
  await found(asked)
  return usageOf(asked, asked.ids[0]!, 'key,model')
}

async function showAllUsage(asked: Asked): Promise<ApiAnswer> {
  return usageOf(asked, undefined, 'day,plan')
}

async function listRows(asked: Asked): Promise<ApiAnswer> {
  const { sources, query, ids } = asked
  known(query, 'since', 'until', 'key', 'code', 'outcome', 'after', 'limit')
  const after = query.get('after')
  if (after !== null && !/^\d{1,16}-\d{1,16}$/.test(after))
    throw new Refused(400, 'invalid', 'after: the next of the page before')
  await found(asked)
  const only = (name: 'key' | 'code' | 'outcome') => query.get(name) ?? undefined
  const { rows, next } = await sources.store.rows({
    organization: ids[0]!,
    ...{ key: only('key'), code: only('code'), outcome: only('outcome') },
    ...rangeOf(asked),
    after,
    limit: limitOf(query),
  })
  return { status: 200, body: { rows: rows.map(shownRow), next } }
}

/** A row with the names of its columns, but for amounts of money, whose names have their unit. */
function shownRow({ cacheWrite, cost, provider_cost, price_input, price_output, ...row }: LedgerRow) {
  return {
    ...{ ...row, cache_write: cacheWrite, cost_usd: usd(cost) },
    ...(provider_cost !== undefined && { provider_cost_usd: usd(provider_cost) }),
    ...(price_input !== undefined && { price_input_pico_usd: price_input }),
    ...(price_output !== undefined && { price_output_pico_usd: price_output }),
  }
}

/** Limits as gateway.yaml has them: of money in USD. */
const writtenLimits = (limits: Readonly<Partial<Record<string, number | null>>>) =>
  mapped(limits, (limit, name) => (typeof limit === 'number' && isUsd(name) ? usd(limit) : limit))

const mapped = <V, W>(members: Readonly<Record<string, V>>, to: (value: V, name: string) => W) =>
  Object.fromEntries(Object.entries(members).map(([name, value]) => [name, to(value, name)]))

async function listPlans({ sources, query }: Asked): Promise<ApiAnswer> {
  known(query)
  const plans = Object.entries(sources.config().plans).map(([id, plan]) => ({
    ...{ id, ...plan, limits: writtenLimits(plan.limits) },
    model_limits: mapped(plan.model_limits, writtenLimits),
    ...(plan.user_limits && { user_limits: writtenLimits(plan.user_limits) }),
    prices: mapped(plan.prices ?? {}, writtenPrice),
  }))
  return { status: 200, body: { plans } }
}

async function listModels({ sources, query }: Asked): Promise<ApiAnswer> {
  known(query)
  const models = Object.values(sources.config().models).map(model => ({
    id: model.id,
    aliases: model.aliases,
    listed: model.listed,
    context_window: model.context_window,
    max_output_tokens: model.max_output_tokens,
    price: model.price ? writtenPrice(model.price) : null,
    backends: model.backends.map(({ id, provider, model, weight, group, cost }) => ({
      ...{ id, provider, model, weight, group: group ?? null },
      cost: cost ? writtenCost(cost) : null,
    })),
  }))
  return { status: 200, body: { models } }
}

async function listExchanges(asked: Asked): Promise<ApiAnswer> {
  const { sources, query, ids } = asked
  known(query, 'key', 'limit')
  const limit = query.has('limit') ? limitOf(query) : RECENT_ROWS
  await found(asked)
  const key = query.get('key')
  const rows = (await sources.store.recent(ids[0]!)).filter(row => key === null || row.key_id === key)
  const exchanges = rows.slice(0, limit).map(row => ({
    request_id: row.request_id,
    time: row.time,
    key: row.key_id,
    surface: row.surface,
    model: row.model,
    provider: row.provider,
    outcome: row.outcome,
    input: row.input,
    output: row.output,
    cost: row.cost,
    cost_usd: usd(row.cost),
    duration_ms: row.duration_ms,
    ttfb_ms: row.ttfb_ms,
  }))
  return { status: 200, body: { exchanges } }
}

async function listNotices({ sources, query }: Asked): Promise<ApiAnswer> {
  known(query, 'organization', 'after', 'limit')
  const after = query.get('after') ?? ''
  if (!/^(\d{1,15}(-\d{1,15})?)?$/.test(after)) throw new Refused(400, 'invalid', 'after: the next of the page before')
  const page = await sources.store.notices.page(after, limitOf(query), query.get('organization') ?? undefined)
  const notices = page.notices.map(({ id, time, organization, key, model, period, number, percent, limit, spent }) => ({
    ...{ id, time, organization, key: key || null, model: model || null, period },
    period_start: new Date(periodStart(period, number)).toISOString(),
    ...{ percent, limit_nano_usd: limit, spent_nano_usd: spent },
  }))
  return { status: 200, body: { notices, next: page.next } }
}

function listAudit(asked: Asked): Promise<ApiAnswer> {
  known(asked.query, 'organization', 'before', 'limit')
  return auditPage(asked, asked.query.get('organization') ?? undefined)
}

/** Of an organization that is gone, too: its audit stays. */
function listAuditOfOne(asked: Asked): Promise<ApiAnswer> {
  known(asked.query, 'before', 'limit')
  return auditPage(asked, asked.ids[0]!)
}

async function auditPage({ sources, query }: Asked, organization: string | undefined): Promise<ApiAnswer> {
  const before = query.get('before') ?? ''
  if (!/^(\d{1,15}(-\d{1,15})?)?$/.test(before)) throw new Refused(400, 'invalid', 'before: the id of an entry')
  const page = await sources.store.accounts.audit({ organization, before, most: limitOf(query) })
  return { status: 200, body: page }
}

// ---- changing -------------------------------------------------------------------------------------------------------

/** @throws Refused for a `Sluice-Actor` that is no name */
function authorOf({ caller: { by, address }, request }: Pick<Asked, 'caller' | 'request'>): Author {
  const actor = request.headers['sluice-actor']
  if (actor === undefined) return { by, address }
  if (typeof actor !== 'string' || !/^[!-~]{1,128}$/.test(actor))
    throw new Refused(400, 'actor', 'Sluice-Actor: 1 to 128 visible ASCII characters without spaces, such as user:42')
  return { by, address, actor }
}

/** Members of an organization that are no right, no limit and no price. */
const OF_ORGANIZATION: readonly string[] = ['status', 'name', 'metadata']

/** @throws Refused unless the caller may set each of these members */
function maySet(asked: Asked, members: Record<string, unknown>): void {
  const own = (name: string) => OF_ORGANIZATION.includes(name)
  const names = Object.keys(members)
  for (const [action, touched] of [
    ['organizations', names.some(own)],
    ['plans', !names.every(own)],
  ] as const)
    if (touched) mayDo(asked, { ...asked.need, actions: [action] })
}

async function createOrganization(asked: Asked): Promise<ApiAnswer> {
  const { sources, request, query } = asked
  known(query)
  const author = authorOf(asked)
  const { id, ...patch } = await bodyOf(request)
  maySet(asked, patch)
  if (typeof id !== 'string') throw new Refused(400, 'invalid', 'id: needed; it also tells a repeated request')
  refuseMembers(patch, 'keys')
  try {
    const act = { patch, author, operation: 'organization.create' }
    const version = await createStored(sources.store.accounts, sources.config(), id, act)
    return { status: 201, body: { id, version, created: true }, headers: etag(version) }
  } catch (error) {
    if (!(error instanceof AccountFault) || error.why !== 'exists') throw error
    const stored = await sources.store.accounts.read(id)
    // What a creation leaves out of its nulls is left out here, too.
    if (!stored || !sameMembers('organization', settingsOf(stored), withoutNulls(patch))) throw error
    return { status: 200, body: { id, version: stored.version, created: false }, headers: etag(stored.version) }
  }
}

async function patchOrganization(asked: Asked): Promise<ApiAnswer> {
  known(asked.query)
  const patch = await bodyOf(asked.request)
  maySet(asked, patch)
  refuseMembers(patch, 'id', 'keys')
  const inFile = Object.hasOwn(asked.sources.config().organizations, asked.ids[0]!)
  if (asked.request.headers['if-match'] === undefined && !inFile)
    throw new Refused(428, 'if_match', 'If-Match is needed: the ETag of the organization as you read it')
  const [version] = await change(asked, () => ({ patch, operation: 'organization.change' }))
  return { status: 200, body: { id: asked.ids[0], version }, headers: etag(version) }
}

/**
 * Changes an organization of the store as it is now. With `If-Match` it must have that version, else somebody else's
 * change that comes between is taken as a part of what is changed.
 * @param edit what to do; null when it has been done before
 */
async function change(
  asked: Asked,
  edit: (stored: OrganizationWithKeys) => (Edit & Pick<Act, 'operation' | 'key'>) | null,
): Promise<[version: number, done: boolean]> {
  const { sources, request, ids } = asked
  const author = authorOf(asked)
  const config = sources.config()
  const id = ids[0]!
  if (Object.hasOwn(config.organizations, id))
    throw new AccountFault('file', `${id} stands in ${config.files[0]}, and is changed there`)
  const match = request.headers['if-match']
  for (let attempt = 1; ; attempt++) {
    const stored = await sources.store.accounts.read(id)
    if (!stored) throw new AccountFault('absent', `there is no organization ${id}`)
    const act = edit(stored)
    if (!act) return [stored.version, false]
    if (match !== undefined && match !== `"${stored.version}"`)
      throw new AccountFault('changed', `${id} has another version than If-Match says; read it again`)
    try {
      return [await changeStored(sources.store.accounts, config, stored, { ...act, author }), true]
    } catch (error) {
      const again = error instanceof AccountFault && error.why === 'changed' && match === undefined
      if (!again || attempt === ATTEMPTS) throw error
    }
  }
}

async function createCredit(asked: Asked): Promise<ApiAnswer> {
  const { sources, request, query, ids } = asked
  known(query)
  const author = authorOf(asked)
  const { id, amount_usd: text, note = '', ...more } = await bodyOf(request)
  refuseMembers(more, ...Object.keys(more))
  if (typeof id !== 'string') throw new Refused(400, 'invalid', 'id: needed; it also tells a repeated request')
  if (typeof note !== 'string') throw new Refused(400, 'invalid', 'note: text')
  const amount = typeof text === 'string' || typeof text === 'number' ? parseSignedUsd(text) : null
  if (amount === null)
    throw new Refused(400, 'invalid', 'amount_usd: an amount in USD such as "25.00"; "-25.00" takes back')
  const { accounts } = sources.store
  const given = { credit: { id, amount, note }, author }
  const { credit, created } = await giveCredit(accounts, sources.config(), ids[0]!, given)
  const stored = await accounts.read(ids[0]!)
  const balance = stored && (await shownBalance(sources.store, stored))
  return { status: created ? 201 : 200, body: { ...rowOfCredit(credit), created, balance } }
}

/** Disables it, and lets it leave after a grace period. A repeated request says when that is. */
async function deleteOrganization(asked: Asked): Promise<ApiAnswer> {
  const { sources, query } = asked
  known(query, 'grace')
  const grace = parseDuration(query.get('grace') ?? DELETE_GRACE)
  if (grace === null) throw new Refused(400, 'invalid', 'grace: a duration such as 30d')
  let leaves = sources.now() + grace
  const [version] = await change(asked, stored => {
    if (stored.leaves !== undefined) leaves = stored.leaves
    if (stored.leaves !== undefined) return null
    return { patch: { status: 'disabled' }, leaves, operation: 'organization.delete' }
  })
  const body = { id: asked.ids[0], version, status: 'disabled', leaves: isoOf(leaves) }
  return { status: 200, body, headers: etag(version) }
}

async function createKey(asked: Asked): Promise<ApiAnswer> {
  known(asked.query)
  const { id, ...own } = await bodyOf(asked.request)
  if (typeof id !== 'string') throw new Refused(400, 'invalid', 'id: needed; it also tells a repeated request')
  refuseMembers(own, 'secret', ...MADE_WITH_KEY)
  const settings = { status: 'active' as const, ...own }
  return newKey(asked, id, stored => {
    const existing = stored.keys.find(key => key.id === id)
    if (existing && sameMembers('key', without(wholeOf(existing), MADE_WITH_KEY), settings)) return null
    if (existing) throw new AccountFault('exists', `${stored.id} has a key ${id} already, with other settings`)
    return made => ({ added: [{ ...settings, id, ...made }], operation: 'key.create', key: id })
  })
}

async function patchKey(asked: Asked): Promise<ApiAnswer> {
  known(asked.query)
  const id = asked.ids[1]!
  const patch = await bodyOf(asked.request)
  refuseMembers(patch, 'secret', 'status', ...MADE_WITH_KEY)
  const [version] = await change(asked, stored => {
    keyOf(stored, id)
    return { keys: [{ id, patch }], operation: 'key.change', key: id }
  })
  return { status: 200, body: { organization: asked.ids[0], id, version }, headers: etag(version) }
}

/** Revokes a key and takes it out of all lists. Its id is not given again; done again, it is 404. */
async function deleteKey(asked: Asked): Promise<ApiAnswer> {
  known(asked.query)
  const id = asked.ids[1]!
  const [version] = await change(asked, stored => {
    keyOf(stored, id)
    return { removed: [id], operation: 'key.delete', key: id }
  })
  return { status: 200, body: { organization: asked.ids[0], id, version, deleted: true }, headers: etag(version) }
}

async function rotateKey(asked: Asked): Promise<ApiAnswer> {
  known(asked.query)
  const { id, grace = '24h', ...more } = await bodyOf(asked.request)
  refuseMembers(more, ...Object.keys(more))
  const graceMs = typeof grace === 'string' ? parseDuration(grace) : null
  if (typeof id !== 'string') throw new Refused(400, 'invalid', 'id: needed; the new key’s')
  if (graceMs === null) throw new Refused(400, 'invalid', 'grace: a duration such as 24h')
  const replaced = asked.ids[1]!
  return newKey(asked, id, stored => {
    const keys = keysOf(stored)
    const old = keyOf(stored, replaced)
    if (keys.some(key => key.id === id)) {
      if (id !== replaced && old.expires !== null) return null
      throw new AccountFault('exists', `${stored.id} has a key ${id} already`)
    }
    if (old.status === 'revoked') throw new AccountFault('invalid', `${replaced} is revoked; make a new key instead`)
    const changed = rotation(keys, replaced, graceMs).keys
    const own = handedOn(wholeOf(stored.keys.find(key => key.id === replaced)!))
    return made => ({
      added: [{ ...own, id, ...made, status: 'active' }],
      ...{ keys: changed, operation: 'key.rotate', key: id },
    })
  })
}

type NewKey = (made: ReturnType<typeof newSecret>['made']) => Edit & Pick<Act, 'operation' | 'key'>

/** Makes a key and shows its secret, once; a repeated request gets the id alone. */
async function newKey(
  asked: Asked,
  id: string,
  plan: (stored: OrganizationWithKeys) => NewKey | null,
): Promise<ApiAnswer> {
  const { secret, made } = newSecret(authorOf(asked))
  const [version, done] = await change(asked, stored => plan(stored)?.(made) ?? null)
  const body = { organization: asked.ids[0], id, version, created: done, ...(done && { secret }) }
  return { status: done ? 201 : 200, body, headers: etag(version) }
}

async function setStatus(asked: Asked, status: 'revoked' | 'active'): Promise<ApiAnswer> {
  known(asked.query)
  const id = asked.ids[1]!
  const [version] = await change(asked, stored => {
    const key = keyOf(stored, id)
    if (key.status === status) return null
    if (key.status === 'revoked') throw new AccountFault('invalid', `${id} is revoked, and stays so`)
    const operation = status === 'revoked' ? 'key.revoke' : 'key.activate'
    return { keys: [{ id, members: [['status', status]] }], operation, key: id }
  })
  return { status: 200, body: { organization: asked.ids[0], id, version, status }, headers: etag(version) }
}

/** What a rotation must know of stored keys. */
function keysOf({ keys }: OrganizationWithKeys) {
  return keys.map(({ id, settings }) => {
    const { status = 'active', expires } = JSON.parse(settings)
    return { id, status: status as 'active', expires: expires ? Date.parse(expires) : null }
  })
}

function keyOf(stored: OrganizationWithKeys, id: string): { status: string; expires: number | null } {
  const key = keysOf(stored).find(key => key.id === id)
  if (!key) throw noKey(stored.id, id)
  return key
}

// ---- requests -------------------------------------------------------------------------------------------------------

/**
 * The bytes of a body. Of one that is over MAX_BODY these are the first, and the rest is not read: the connection closes
 * after the answer.
 */
export function bytesOf(request: Readable): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = []
    let size = 0
    request.on('data', (piece: Buffer) => {
      pieces.push(piece)
      size += piece.length
      if (size <= MAX_BODY) return
      request.pause()
      resolve(Buffer.concat(pieces))
    })
    request.on('end', () => resolve(Buffer.concat(pieces)))
    request.on('error', reject)
  })
}

async function bodyOf(request: ApiRequest): Promise<Record<string, unknown>> {
  if (!/^application\/(merge-patch\+)?json\b/i.test(request.headers['content-type'] ?? ''))
    throw new Refused(415, 'content_type', 'the body is JSON: content-type: application/json')
  const bytes = await bytesOf(request)
  if (bytes.length > MAX_BODY) throw new Refused(413, 'too_large', 'the body is over 1 MiB')
  let body: unknown
  try {
    body = JSON.parse(bytes.toString('utf8'))
  } catch {
    throw new Refused(400, 'invalid', 'the body is no JSON')
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new Refused(400, 'invalid', 'the body is a JSON object')
  if (deeper(body, MAX_DEPTH)) throw new Refused(400, 'invalid', `the body is nested deeper than ${MAX_DEPTH}`)
  return body as Record<string, unknown>
}

const deeper = (value: unknown, than: number): boolean =>
  typeof value === 'object' && value !== null && (than === 0 || Object.values(value).some(v => deeper(v, than - 1)))

function withoutNulls(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  const members = Object.entries(value).filter(([, member]) => member !== null)
  return Object.fromEntries(members.map(([name, member]) => [name, withoutNulls(member)]))
}

function refuseMembers(body: Record<string, unknown>, ...names: string[]): void {
  const name = names.find(name => Object.hasOwn(body, name))
  if (name !== undefined) throw new Refused(400, 'invalid', `${name}: is not taken here`)
}

function known(query: URLSearchParams, ...names: string[]): void {
  for (const name of query.keys())
    if (!names.includes(name))
      throw new Refused(400, 'invalid', `no such parameter: ${name}${names.length ? ` (${names.join(', ')})` : ''}`)
}

function limitOf(query: URLSearchParams): number {
  const limit = Number(query.get('limit') ?? 100)
  if (!Number.isSafeInteger(limit) || limit < 1 || limit > MAX_PAGE)
    throw new Refused(400, 'invalid', `limit: a whole number from 1 to ${MAX_PAGE}`)
  return limit
}

function timeOf(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name)
  if (text === null) return undefined
  const time = /^\d{4}-\d{2}-\d{2}(T[\d:.]+Z)?$/.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(time))
    throw new Refused(400, 'invalid', `${name}: a time such as 2026-11-01 or 2026-11-01T12:00:00Z`)
  return time
}

const etag = (version: number | null | undefined): Record<string, string> =>
  version === null || version === undefined ? {} : { etag: `"${version}"` }
