/**
 * What may be done with the organizations of the store: one set of operations for the command line and the admin API.
 * Each is checked as the file would be, and noted in the audit in the step that makes it.
 */
import { createHash, randomBytes } from 'node:crypto'
import { formatUsd } from '../core/canon/money.ts'
import {
  AccountFault,
  type AccountStore,
  type AuditNote,
  type Credit,
  type OrganizationWithKeys,
  type StoredKey,
} from '../core/ports/accounts.ts'
import { type Read as AccountRead, accountNames, countedKeys, readOrganization, tooManyKeys } from './accounts.ts'
import type { GatewayConfig, KeyConfig } from './types.ts'

/** A member of gateway.yaml; null takes it away. */
export type Value = string | number | boolean | null | readonly string[]

/** Changes of the members of an organization or of a key. */
export interface Change {
  /** Members by their names with dots: `plan`, `limits.requests_per_minute`. */
  members?: readonly (readonly [name: string, value: Value])[]
  /** A merge patch (RFC 7396): null takes a member away. */
  patch?: Record<string, unknown>
}

/** A key that is added, with its digest; other members as in gateway.yaml. */
export type AddedKey = { id: string; sha256: string; status: KeyConfig['status'] } & Record<string, unknown>

export interface Edit extends Change {
  added?: readonly AddedKey[]
  /** Members of keys that are there already. */
  keys?: readonly ({ id: string } & Change)[]
  /** Ids of keys that are removed for good. */
  removed?: readonly string[]
  /** Unix ms from which a disabled organization may be removed. */
  leaves?: number
}

/** Who does something, and what it is called in the audit. */
export interface Author {
  by: string
  address: string
  /** On whose behalf, as the caller said. */
  actor?: string
}

export interface Act extends Edit {
  author: Author
  operation: string
  /** The key that it is about. */
  key?: string
  /** What is given or taken back in the same step. */
  credit?: Credit
}

/**
 * Members that the gateway ignores. The store keeps them apart, so that a look-up of a key does not read them, and a
 * release that does not know them serves the account all the same.
 */
const IGNORED = { organization: ['name', 'metadata'], key: ['label', 'hint', 'creator', 'created'] } as const
/** Members of a key that are made with it, and that nobody sets later. */
export const MADE_WITH_KEY = ['id', 'sha256', 'hint', 'creator', 'created'] as const
/** Members of a key that are no rights of it: its replacement does not take them over. */
const OWN_OF_KEY: readonly string[] = [...MADE_WITH_KEY, 'status', 'expires']

type Names = Pick<GatewayConfig, 'plans' | 'models' | 'organizations'>

/** How long a deleted organization can be taken back, unless said otherwise. */
export const DELETE_GRACE = '30d'

/** What an id of an organization may be. */
export const ORGANIZATION_ID = /^[A-Za-z0-9][\w.:/-]{0,127}$/
export const ID_RULE = 'letters, digits and . _ - : / only, at most 128'

/**
 * Makes an organization.
 * @returns its version
 * @throws AccountFault
 */
export async function createStored(store: AccountStore, names: Names, id: string, act: Act): Promise<number> {
  if (!ORGANIZATION_ID.test(id)) throw new AccountFault('invalid', `'${id}' is no name: ${ID_RULE}`)
  if (Object.hasOwn(names.organizations, id))
    throw new AccountFault('file', `${id} stands in the file already, and an id may stand in one place only`)
  return write(store, names, { id, version: 0, settings: '{}', keys: [] }, act)
}

/**
 * Changes an organization as it was read.
 * @returns its new version
 * @throws AccountFault `changed` when somebody else has changed it since
 */
export function changeStored(
  store: AccountStore,
  names: Names,
  found: OrganizationWithKeys,
  act: Act,
): Promise<number> {
  return write(store, names, found, act)
}

/** What an id of a credit may be, and the operator's words about it. */
const CREDIT_ID = /^[\w.:-]{1,128}$/
const MOST_NOTE = 500

/**
 * Gives an organization a credit, or takes some of it back. It changes nothing when the organization has a credit with
 * this id already.
 * @returns the credit with this id, and whether it is new
 * @throws AccountFault also where another credit has this id
 */
export async function giveCredit(
  store: AccountStore,
  names: Names,
  id: string,
  { credit, author }: { credit: Omit<Credit, 'time' | 'by'>; author: Author },
): Promise<{ credit: Credit; created: boolean }> {
  const invalid = (message: string) => new AccountFault('invalid', message)
  if (!CREDIT_ID.test(credit.id)) throw invalid('id: 1 to 128 letters, digits and . _ : - ; it tells a repeated credit')
  if (!Number.isSafeInteger(credit.amount) || credit.amount === 0)
    throw invalid('amount: nano-USD as a whole number other than 0; below 0 takes back')
  if (credit.note.length > MOST_NOTE) throw invalid(`note: at most ${MOST_NOTE} characters`)
  if (Object.hasOwn(names.organizations, id))
    throw new AccountFault('file', `${id} stands in the file; credits are for organizations of the store`)
  for (let attempt = 1; ; attempt++) {
    const given = await store.credit(id, credit.id)
    if (given && given.amount === credit.amount) return { credit: given, created: false }
    if (given) throw new AccountFault('exists', `id: ${id} has a credit ${credit.id} already, of another amount`)
    const found = await store.read(id)
    if (!found) throw new AccountFault('absent', `there is no organization ${id}`)
    if (JSON.parse(found.settings).billing !== 'prepaid')
      throw invalid(`${id} is not billed by a balance, so a credit would be of no use; set billing: prepaid first`)
    const whole = { ...credit, time: Date.now(), by: author.by }
    try {
      await write(store, names, found, { credit: whole, author, operation: 'organization.credit' })
      return { credit: whole, created: true }
    } catch (error) {
      if (!(error instanceof AccountFault) || error.why !== 'changed' || attempt === CREDIT_ATTEMPTS) throw error
    }
  }
}

/** Somebody else may change an organization at the same time; then it is read again, this often. */
const CREDIT_ATTEMPTS = 10

async function write(store: AccountStore, names: Names, found: OrganizationWithKeys, act: Act): Promise<number> {
  const { removed, ...after } = applied(found, act)
  const { settings, about, leaves, keys } = after
  const credited = creditedOf(after)
  if (credited !== creditedOf(found) + (act.credit?.amount ?? 0))
    throw new AccountFault('invalid', 'credited: it is the sum of credits; give a credit')
  if (!(credited >= 0 && credited <= Number.MAX_SAFE_INTEGER))
    throw new AccountFault(
      'invalid',
      `amount: all credits of ${found.id} together would be ${formatUsd(credited)} USD; between 0.00 and ${formatUsd(Number.MAX_SAFE_INTEGER)} are possible`,
    )
  const gone = new Set([...keys.map(({ id }) => id), ...removed])
  const merged = [...found.keys.filter(key => !gone.has(key.id)), ...keys]
  checkStored({ ...found, settings, ...(about !== undefined && { about }), keys: merged }, names, found)
  const owner = keys.length > 0 ? ownerInFile(keys, names) : undefined
  if (owner !== undefined) throw new AccountFault('invalid', `the digest of a key is a key of ${owner} in the file`)
  const before = found.version === 0 ? null : found
  const audit = noteOf(before, after, act, removed)
  const change = { id: found.id, expected: found.version, settings, keys, removed, audit }
  const [result] = await store.change([
    {
      ...change,
      ...(about !== undefined && { about }),
      ...(leaves !== undefined && { leaves }),
      ...(act.credit && { credit: act.credit }),
    },
  ])
  if (result!.refused === undefined) return result!.version
  if (result!.refused === 'digest')
    throw new AccountFault('invalid', `the digest of a key is already ${result!.organization}'s ${result!.key}`)
  if (result!.refused === 'gone') throw new AccountFault('gone', goneWords(found.id, result!.key))
  if (found.version === 0) throw new AccountFault('exists', `there is an organization ${found.id} in the store already`)
  throw new AccountFault('changed', `${found.id} was changed by somebody else; read it again`)
}

/** Why an id is refused that belonged to what was deleted. @param key '' for the organization itself */
export const goneWords = (organization: string, key: string): string =>
  key === ''
    ? `an organization ${organization} was deleted, and its id is not given again; choose another`
    : `a key ${key} of ${organization} was deleted, and its id is not given again; choose another`

function ownerInFile(keys: readonly StoredKey[], { organizations }: Names): string | undefined {
  const digests = new Set(keys.map(({ sha256 }) => sha256))
  return Object.values(organizations).find(({ keys }) => keys.some(({ sha256 }) => digests.has(sha256)))?.id
}

/** For the audit: the members of the organization and those of the keys that differ; never a digest. */
export function noteOf(
  before: OrganizationWithKeys | null,
  after: Pick<OrganizationWithKeys, 'settings' | 'about'> & { keys: readonly StoredKey[] },
  { author, operation, key = '' }: Pick<Act, 'author' | 'operation' | 'key'>,
  removed: readonly string[] = [],
): AuditNote {
  const touched = new Set([...after.keys.map(({ id }) => id), ...removed])
  const shown = (own: Pick<OrganizationWithKeys, 'settings' | 'about'>, keys: readonly StoredKey[]) => ({
    ...wholeOf(own),
    ...(touched.size > 0 && {
      keys: Object.fromEntries(keys.filter(({ id }) => touched.has(id)).map(k => [k.id, wholeOf(k)])),
    }),
  })
  return {
    time: Date.now(),
    ...author,
    operation,
    key,
    before: before && shown(before, before.keys),
    after: shown({ ...after, about: after.about ?? before?.about }, after.keys),
  }
}

/** The sum of its credits, in nano-USD. */
export function creditedOf({ settings }: Pick<OrganizationWithKeys, 'settings'>): number {
  return JSON.parse(settings).credited ?? 0
}

/** What an organization had as credit, what of it its rows cost, and what is left. */
export const balanceOf = (credited: number, billed: number) => ({
  credited_nano_usd: credited,
  billed_nano_usd: billed,
  left_nano_usd: credited - billed,
})

/** The members of an organization or of a key, those that the gateway ignores included. */
export const wholeOf = ({
  settings,
  about,
}: {
  settings: string
  about?: string | undefined
}): Record<string, any> => ({
  ...JSON.parse(settings),
  ...(about !== undefined && JSON.parse(about)),
})

/** Members as the store keeps them. `about` is absent when there is nothing that the gateway ignores, and never was. */
export function apart(
  members: Record<string, unknown>,
  kind: keyof typeof IGNORED,
  before?: { about?: string | undefined },
): { settings: string; about?: string } {
  const ignored: readonly string[] = IGNORED[kind]
  const part = (of: boolean) =>
    Object.fromEntries(Object.entries(members).filter(([name]) => ignored.includes(name) === of))
  const about = part(true)
  const says = before?.about !== undefined || Object.keys(about).length > 0
  return { settings: JSON.stringify(part(false)), ...(says && { about: JSON.stringify(about) }) }
}

/** The organization's members with its keys, as gateway.yaml would have them. */
export function membersOf({
  keys,
  ...own
}: Pick<OrganizationWithKeys, 'settings' | 'about' | 'keys'>): Record<string, unknown> {
  const { credited: _, ...members } = wholeOf(own)
  return { ...members, keys: keys.map(key => ({ id: key.id, sha256: key.sha256, ...wholeOf(key) })) }
}

/**
 * @param before the organization that it replaces. The faults that it has already are none of the change: else no key
 *   could be revoked, and nothing disabled, of an account whose plan or model has gone.
 * @throws AccountFault with every fault of an organization that is to be stored
 */
export function checkStored(
  organization: OrganizationWithKeys,
  names: Names,
  before: OrganizationWithKeys | null = null,
): void {
  const checkedNames = accountNames(names)
  const read = (of: OrganizationWithKeys) => readOrganization(of.id, membersOf(of), checkedNames)
  const after = read(organization)
  const former = before && before.version > 0 ? read(before) : null
  // A change may put keys in another order.
  const alike = (fault: string) => fault.replace(/^keys\.\d+/, 'keys')
  const known = new Set(former ? faultsBeside(former, names).map(alike) : [])
  const faults = faultsBeside(after, names).filter(fault => !known.has(alike(fault)))
  const full = keyFault(after, former, names)
  if (full) faults.push(full)
  if (faults.length > 0) throw new AccountFault('invalid', [...faults, 'Nothing was changed.'].join('\n'))
}

/** The faults of an organization but for that of too many keys, of which `keyFault` decides. */
function faultsBeside({ organization, faults }: AccountRead, { plans }: Names): string[] {
  const full = organization && `keys: ${tooManyKeys(organization, plans[organization.plan]!)}`
  return faults.filter(fault => fault !== full)
}

/**
 * The fault of a change that makes a key more than the plan allows, or that gives an organization a plan with fewer.
 * Who has more already keeps them, and may change and revoke them.
 */
function keyFault({ organization }: AccountRead, former: AccountRead | null, { plans }: Names): string | undefined {
  if (!organization) return undefined
  const plan = plans[organization.plan]!
  const now = Date.now()
  const count = countedKeys(organization, now)
  const more = count > (former?.unplanned ? countedKeys(former.unplanned, now) : 0)
  const moved = former?.unplanned?.plan !== organization.plan
  const full = more ? tooManyKeys(organization, plan, count) : moved ? tooManyKeys(organization, plan) : undefined
  return full && `keys: ${full}`
}

/** An organization after an edit: its members, the keys that are added or changed, and the ids of those that go. */
export function applied(
  found: Pick<OrganizationWithKeys, 'settings' | 'about' | 'leaves' | 'keys'>,
  { added = [], keys = [], removed = [], leaves, credit, ...own }: Edit & Pick<Act, 'credit'>,
): ReturnType<typeof apart> & { keys: StoredKey[]; removed: readonly string[]; leaves?: number | null } {
  const members = changed(wholeOf(found), own)
  if (credit) members['credited'] = (members['credited'] ?? 0) + credit.amount
  const touched = new Map<string, StoredKey>()
  for (const { id, sha256, ...rest } of added) touched.set(id, { id, sha256, ...apart(rest, 'key') })
  for (const { id, ...change } of keys) {
    const key = touched.get(id) ?? found.keys.find(candidate => candidate.id === id)!
    touched.set(id, { id, sha256: key.sha256, ...apart(changed(wholeOf(key), change), 'key', key) })
  }
  // Enabled again, it stays.
  const stays = found.leaves !== undefined && members['status'] !== 'disabled'
  return {
    ...apart(members, 'organization', found),
    ...{ keys: [...touched.values()], removed },
    ...(stays ? { leaves: null } : leaves !== undefined && { leaves }),
  }
}

function changed(target: Record<string, unknown>, { members = [], patch = {} }: Change): Record<string, any> {
  const result = merged(target, patch) as Record<string, any>
  for (const [name, value] of members) setMember(result, name, value ?? undefined)
  return result
}

/** Sets a member by its name with dots; undefined takes it away. */
export function setMember(target: Record<string, any>, name: string, value: Value | undefined): void {
  const path = name.split('.')
  const last = path.pop()!
  let at = target
  for (const step of path) at = at[step] ??= {}
  if (value === undefined) delete at[last]
  else at[last] = value
}

const isMapping = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** A merge patch (RFC 7396): a null takes the member away, so that the plan's value holds again. */
function merged(target: unknown, patch: unknown): unknown {
  if (!isMapping(patch)) return patch
  const members = new Map(isMapping(target) ? Object.entries(target) : [])
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) members.delete(name)
    else members.set(name, merged(members.get(name), value))
  }
  // Own members only, also for a name such as `__proto__`.
  return Object.fromEntries(members)
}

/** The last characters of a secret that are kept, so that people can tell keys apart. */
const HINT = 4

export const hintOf = (secret: string): string => secret.slice(-HINT)

/** A new secret, and the members of its key that are made with it. */
export function newSecret({ by, actor = by }: Author): {
  secret: string
  made: { sha256: string; hint: string; creator: string; created: string }
} {
  const secret = `sk-${randomBytes(32).toString('base64url')}`
  const created = new Date().toISOString()
  return { secret, made: { sha256: sha256Of(secret), hint: hintOf(secret), creator: actor, created } }
}

/** The digest by which a secret is known, 64 hex digits. */
export const sha256Of = (secret: string): string => createHash('sha256').update(secret).digest('hex')

/** The members without those of these names. */
export const without = (members: Record<string, unknown>, names: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(Object.entries(members).filter(([name]) => !names.includes(name)))

/** What a key hands on to the one that replaces it: its label, rights and limits. */
export const handedOn = (key: Record<string, unknown>): Record<string, unknown> => without(key, OWN_OF_KEY)

/** Those of a key's members that were made with it. */
export const madeWith = (key: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(MADE_WITH_KEY.flatMap(name => (Object.hasOwn(key, name) ? [[name, key[name]]] : [])))

/** What a rotation changes: the replaced key ends after the grace period, and keys that have ended are revoked. */
export function rotation(
  keys: readonly Pick<KeyConfig, 'id' | 'expires' | 'status'>[],
  replaced: string,
  graceMs: number,
): { expires: string; keys: NonNullable<Edit['keys']> } {
  const now = Date.now()
  const expires = new Date(now + graceMs).toISOString()
  const ended = keys.filter(key => key.id !== replaced && key.expires !== null && key.expires <= now)
  return {
    expires,
    keys: [
      { id: replaced, members: [['expires', expires]] },
      ...ended.map(({ id }) => ({ id, members: [['status', 'revoked'] as const] })),
    ],
  }
}
