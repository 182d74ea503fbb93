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
import { accountNames, readOrganization } from './accounts.ts'
import type { GatewayConfig, KeyConfig } from './types.ts'

/** A member of gateway.yaml; null takes it away. */
export type Value = string | number | boolean | null | readonly string[]

export interface Edit {
  /** Members of the organization, by their names with dots: `plan`, `limits.requests_per_minute`. */
  members?: readonly (readonly [name: string, value: Value])[]
  /** A merge patch (RFC 7396) of the organization's members: null takes a member away. */
  patch?: Record<string, unknown>
  /** Keys that are added, with their digest; other members as in gateway.yaml. */
  added?: readonly ({ id: string; sha256: string; status: KeyConfig['status'] } & Record<string, unknown>)[]
  /** Members of keys that are there already. */
  keys?: readonly { id: string; member: 'status' | 'expires'; value: string }[]
}

/** Who does something, and what it is called in the audit. */
export interface Author {
  by: string
  address: string
}

export interface Act extends Edit {
  author: Author
  operation: string
  /** The key that it is about. */
  key?: string
  /** What is given or taken back in the same step. */
  credit?: Credit
}

type Names = Pick<GatewayConfig, 'plans' | 'models' | 'organizations'>

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
  const { settings, keys } = applied(found, act)
  const before = creditedOf(found)
  const credited = creditedOf({ settings })
  if (credited !== before + (act.credit?.amount ?? 0))
    throw new AccountFault('invalid', 'credited: it is the sum of credits; give a credit')
  if (!(credited >= 0 && credited <= Number.MAX_SAFE_INTEGER))
    throw new AccountFault(
      'invalid',
      `amount: all credits of ${found.id} together would be ${formatUsd(credited)} USD; between 0.00 and ${formatUsd(Number.MAX_SAFE_INTEGER)} are possible`,
    )
  const merged = [...found.keys.filter(key => !keys.some(other => other.id === key.id)), ...keys]
  checkStored({ ...found, settings, keys: merged }, names, found.version === 0 ? null : found)
  const owner = keys.length > 0 ? ownerInFile(keys, names) : undefined
  if (owner !== undefined) throw new AccountFault('invalid', `the digest of a key is a key of ${owner} in the file`)
  const audit = noteOf(found.version === 0 ? null : found, { settings, keys }, act)
  const change = { id: found.id, expected: found.version, settings, keys, audit }
  const [result] = await store.change([{ ...change, ...(act.credit && { credit: act.credit }) }])
  if (result!.refused === undefined) return result!.version
  if (result!.refused === 'digest')
    throw new AccountFault('invalid', `the digest of a key is already ${result!.organization}'s ${result!.key}`)
  if (found.version === 0) throw new AccountFault('exists', `there is an organization ${found.id} in the store already`)
  throw new AccountFault('changed', `${found.id} was changed by somebody else; read it again`)
}

function ownerInFile(keys: readonly StoredKey[], { organizations }: Names): string | undefined {
  const digests = new Set(keys.map(({ sha256 }) => sha256))
  return Object.values(organizations).find(({ keys }) => keys.some(({ sha256 }) => digests.has(sha256)))?.id
}

/** For the audit: the members of the organization and those of the keys that differ; never a digest. */
export function noteOf(
  before: OrganizationWithKeys | null,
  after: { settings: string; keys: readonly StoredKey[] },
  { author, operation, key = '' }: Pick<Act, 'author' | 'operation' | 'key'>,
): AuditNote {
  const touched = new Set(after.keys.map(({ id }) => id))
  const shown = (settings: string, keys: readonly StoredKey[]) => ({
    ...JSON.parse(settings),
    ...(touched.size > 0 && {
      keys: Object.fromEntries(keys.filter(({ id }) => touched.has(id)).map(k => [k.id, JSON.parse(k.settings)])),
    }),
  })
  return {
    time: Date.now(),
    ...author,
    operation,
    key,
    before: before && shown(before.settings, before.keys),
    after: shown(after.settings, after.keys),
  }
}

/** The sum of its credits, in nano-USD. */
export function creditedOf({ settings }: Pick<OrganizationWithKeys, 'settings'>): number {
  return JSON.parse(settings).credited ?? 0
}

/** The organization's members with its keys, as gateway.yaml would have them. */
export function membersOf({
  settings,
  keys,
}: Pick<OrganizationWithKeys, 'settings' | 'keys'>): Record<string, unknown> {
  const { credited: _, ...members } = JSON.parse(settings)
  return {
    ...members,
    keys: keys.map(({ id, sha256, settings }) => ({ id, sha256, ...JSON.parse(settings) })),
  }
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
  const faultsOf = (of: OrganizationWithKeys) => readOrganization(of.id, membersOf(of), checkedNames).faults
  const all = faultsOf(organization)
  if (all.length === 0) return
  // A change may put keys in another order.
  const alike = (fault: string) => fault.replace(/^keys\.\d+/, 'keys')
  const known = new Set(before && faultsOf(before).map(alike))
  const faults = all.filter(fault => !known.has(alike(fault)))
  if (faults.length > 0) throw new AccountFault('invalid', [...faults, 'Nothing was changed.'].join('\n'))
}

/** The settings after an edit, and the keys that it adds or changes. */
export function applied(
  found: Pick<OrganizationWithKeys, 'settings' | 'keys'>,
  { members = [], patch = {}, added = [], keys = [], credit }: Edit & Pick<Act, 'credit'>,
): { settings: string; keys: StoredKey[] } {
  const settings = merged(JSON.parse(found.settings), patch) as Record<string, any>
  for (const [name, value] of members) {
    const path = name.split('.')
    const last = path.pop()!
    let at = settings
    for (const step of path) at = at[step] ??= {}
    if (value === null) delete at[last]
    else at[last] = value
  }
  if (credit) settings['credited'] = (settings['credited'] ?? 0) + credit.amount
  const changed = new Map<string, StoredKey>()
  for (const { id, sha256, ...own } of added) changed.set(id, { id, sha256, settings: JSON.stringify(own) })
  for (const { id, member, value } of keys) {
    const key = changed.get(id) ?? found.keys.find(candidate => candidate.id === id)!
    changed.set(id, { ...key, settings: JSON.stringify({ ...JSON.parse(key.settings), [member]: value }) })
  }
  return { settings: JSON.stringify(settings), keys: [...changed.values()] }
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

/** A new secret and its digest. */
export function newSecret(): { secret: string; sha256: string } {
  const secret = `sk-${randomBytes(32).toString('base64url')}`
  return { secret, sha256: sha256Of(secret) }
}

/** The digest by which a secret is known, 64 hex digits. */
export const sha256Of = (secret: string): string => createHash('sha256').update(secret).digest('hex')

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
      { id: replaced, member: 'expires', value: expires },
      ...ended.map(({ id }) => ({ id, member: 'status' as const, value: 'revoked' })),
    ],
  }
}
