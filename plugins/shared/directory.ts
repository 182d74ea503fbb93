/**
 * The directory of accounts: who a key belongs to. Accounts are in gateway.yaml, in the store, or some in each. Those
 * of the file are in memory. Those of the store are read when a key is first used, and kept in a bounded cache, which
 * follows the changes that other processes make.
 */
import { hash } from 'node:crypto'
import { type AccountNames, accountNames, raisedAt, readOrganization } from '../../config/accounts.ts'
import type { GatewayConfig, OrganizationConfig } from '../../config/types.ts'
import { type Budget, refusal, setting } from '../../core/engine/budget.ts'
import { addressTenant } from '../../core/engine/tenant.ts'
import { type AccountFinder, GatewayError, type Logger, type SharedState } from '../../core/plugin.ts'
import type { AccountStore, StoredAccount } from '../../core/ports/accounts.ts'
import type { MaybePromise } from '../../core/ports/store.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import type { Identity } from './slots.ts'
import { accountsKey, directoryKey } from './state.ts'

/** `directory` of gateway.yaml. */
export type DirectoryBounds = GatewayConfig['directory']

/** Time between two looks for changes, ms. With the time of a call, a change takes effect within a second. */
const FOLLOW_MS = 300
/** Digests of no key that are remembered. */
const MOST_UNKNOWN = 10_000
/** One address (of IPv6: a network of 64 bits) may cause at most this share of the look-ups that find no key. */
const ADDRESS_SHARE = 0.25
/** One warning a minute reports accounts that cannot be used. */
const WARN_MS = 60_000
/** It has at most this many plans, and counts at most this many organizations of each. */
const MOST_WARNED = 20
const MOST_COUNTED = 1000
/** The wait in ms that a refused look-up asks for. */
const WAIT_MS = 1000
/** Credentials whose digest is remembered, because hashing costs more than the rest of a cached look-up. */
const REMEMBERED = 10_000

const TOO_MANY = {
  code: 'route_capacity',
  message: () =>
    'Too many keys that do not exist are being tried, so this one was not looked up. Retry after the wait.',
  horizonMs: WAIT_MS,
} as const

export const missesBudget: Budget = {
  name: 'directory_misses',
  bound: 'look-ups of keys that nobody has',
  owner: 'tenant',
  each: `a share of ${ADDRESS_SHARE} of those of all`,
  all: setting('directory.misses'),
  refused: { all: TOO_MANY },
  seen: '`sluice_directory_lookups_total{result="refused"}`',
  figures: ({ shared }) => ({ refused: directoryOf(shared).stats.refused }),
}

export interface DirectoryStats {
  /** Keys of the store in memory. */
  cached: number
  found: number
  unknown: number
  /** Look-ups that were not made because too many had found no key. */
  refused: number
  failed: number
}

interface Source {
  store: AccountStore
  clock: Clock
  log: Logger
}

/** The only thing about a caller without a key that is asked for, and only when the store is. */
interface Client {
  readonly remoteAddress: string
}

/** Look-ups that found no key in one second: all, and by tenant, which is an address here. */
interface Misses {
  second: number
  all: number
  readonly tenants: Map<string, number>
}

/** A key of the store in memory. */
interface CachedKey {
  readonly sha256: string
  readonly found: StoredAccount
  /** What was made of it last; null when the key does not work. */
  account: Account | null | Unusable
  /** `number` of the `Accounts` for which it was made; -1 before that. */
  of: number
  /** Set by each use, and taken away when the key is next considered for eviction. */
  used: boolean
}

/** A key with which clients may call. */
interface Account {
  /** As it is until `until`. */
  identity: Identity
  /** Unix ms: the identity is made anew then, since the key or a raise of its organization has ended. */
  until: number
  /** The organization without raises. */
  readonly organization: OrganizationConfig
  /** Unix ms after which the key does not work; Infinity when it has no end. */
  readonly expires: number
  /** Null for a key of the file. */
  readonly kept: CachedKey | null
  /** It was changed or evicted: who remembers it must ask again. */
  stale: boolean
}

/** Why the account of a key cannot be used. */
class Unusable {
  readonly organization: string
  /** The plan that is gone; undefined when it is something else. */
  readonly plan: string | undefined
  readonly faults: readonly string[]
  /** Unix ms after which the key does not work anyway. */
  readonly expires: number
  constructor(organization: string, plan: string | undefined, faults: readonly string[], expires: number) {
    this.organization = organization
    this.expires = expires
    this.plan = plan
    this.faults = faults
  }
}

/** Requests that were refused because their account cannot be used. */
interface Refusals {
  requests: number
  organizations: Set<string>
  /** One of the faults: which, and of whom. */
  fault: string
  such_as: string
}

/** What a process knows of the store's accounts. It outlives a reload. */
export class Directory {
  readonly stats: DirectoryStats = { cached: 0, found: 0, unknown: 0, refused: 0, failed: 0 }
  #source: Source | undefined
  #bounds: DirectoryBounds = { cache: 0, misses: 0 }
  /** By digest; those that were put in first come first. */
  readonly #kept = new Map<string, CachedKey>()
  readonly #digests = new Map<string, Set<string>>()
  readonly #unknown = new Set<string>()
  /** Digests of keys by the names of organization and key. */
  readonly #named = new Map<string, string>()
  /** Look-ups under way, with the epoch in which they began. */
  readonly #running = new Map<string, { epoch: number; answer: Promise<StoredAccount | null> }>()
  /** The version up to which changes are known; undefined before the store was first asked. */
  #version: number | undefined
  /** Rises with each change that is noticed: what was read before it is not kept. */
  #epoch = 0
  readonly #misses: Misses = { second: 0, all: 0, tenants: new Map() }
  /** Refusals since the last warning, by plan; '' when the plan is there. */
  readonly #refusals = new Map<string, Refusals>()
  /** When the last warning was written, by the monotonic clock. */
  #warned = Number.NEGATIVE_INFINITY
  #timer: Timer | undefined
  #closed = false

  /** Opens the store's accounts as a source. Without this, the directory has only those of the file. */
  async open(source: Source, bounds: DirectoryBounds): Promise<void> {
    this.#source = source
    this.#bounds = bounds
    await this.#follow()
  }

  /** After a reload. */
  resize(bounds: DirectoryBounds): void {
    this.#bounds = bounds
    this.#evict()
  }

  close(): void {
    this.#closed = true
    this.#timer?.cancel()
  }

  /** Whether the store is known to have no organization. */
  get empty(): boolean {
    return this.#version === 0
  }

  /** An organization of the store with those of its keys that are in memory; null when none is. */
  organization(id: string): OrganizationConfig | null {
    const identities: Identity[] = []
    for (const sha256 of this.#digests.get(id) ?? []) {
      const { account } = this.#kept.get(sha256)!
      if (account instanceof Unusable) continue
      if (account) identities.push(account.identity)
    }
    if (identities.length <= 1) return identities[0]?.organization ?? null
    return { ...identities[0]!.organization, keys: identities.map(({ key }) => key) }
  }

  /** The organization of a digest whose key is in memory and works. */
  organizationOf(sha256: string): string | undefined {
    const kept = this.#kept.get(sha256)
    return kept?.account ? kept.found.organization.id : undefined
  }

  /**
   * The account of a digest that is not in the file.
   * @param client its address bounds how many wrong keys it may have looked up
   * @throws (or rejects with) StoreUnavailable when it is not in memory and the store does not answer, and GatewayError
   *   when too many keys that do not exist are asked for, or the account does not fit the configuration
   */
  find(sha256: string, client: Client, accounts: Accounts): Account | null | Promise<Account | null> {
    const kept = this.#kept.get(sha256)
    if (kept) return this.#accountOf(kept, accounts)
    // A store in which no organization was ever made need not be asked, and may be out.
    if (this.#source === undefined || this.#version === 0 || this.#unknown.has(sha256)) return null
    const running = this.#running.get(sha256)
    if (running) return running.answer.then(found => this.#take(sha256, found, running.epoch, accounts))
    const tenant = addressTenant(client.remoteAddress)
    if (this.#overMisses(tenant)) throw refusal(TOO_MANY)
    const epoch = this.#epoch
    const failed = (error: unknown): never => {
      this.#running.delete(sha256)
      this.stats.failed++
      throw error
    }
    const count = (found: StoredAccount | null) => {
      this.#running.delete(sha256)
      if (found) this.stats.found++
      else this.#miss(tenant)
      return found
    }
    let found: ReturnType<AccountStore['find']>
    try {
      found = this.#source.store.find(sha256)
    } catch (error) {
      return failed(error)
    }
    if (!(found instanceof Promise)) return this.#take(sha256, count(found), epoch, accounts)
    const answer = found.then(count, failed)
    this.#running.set(sha256, { epoch, answer })
    return answer.then(account => this.#take(sha256, account, epoch, accounts))
  }

  /**
   * The account of a key by its names. Its digest is remembered: `find` follows changes, and a digest that is no longer
   * the key's is asked for again.
   */
  findNamed(organization: string, key: string, client: Client, accounts: Accounts): MaybePromise<Account | null> {
    if (this.#source === undefined || this.#version === 0) return null
    const name = JSON.stringify([organization, key])
    const digest = this.#named.get(name)
    const found = digest === undefined ? null : this.find(digest, client, accounts)
    if (found !== null && !(found instanceof Promise)) return found
    return this.#readNamed(name, found, organization, key, client, accounts)
  }

  async #readNamed(
    name: string,
    known: Promise<Account | null> | null,
    organization: string,
    key: string,
    client: Client,
    accounts: Accounts,
  ): Promise<Account | null> {
    const found = await known
    if (found) return found
    const tenant = addressTenant(client.remoteAddress)
    if (this.#overMisses(tenant)) throw refusal(TOO_MANY)
    const digest = (await this.#source!.store.read(organization))?.keys.find(({ id }) => id === key)?.sha256
    this.#named.delete(name)
    if (digest === undefined) {
      this.#miss(tenant)
      return null
    }
    if (this.#named.size >= REMEMBERED) this.#named.delete(this.#named.keys().next().value!)
    this.#named.set(name, digest)
    return this.find(digest, client, accounts)
  }

  /** Keeps what a look-up brought, unless a change that was noticed since may have made it out of date. */
  #take(sha256: string, found: StoredAccount | null, epoch: number, accounts: Accounts): Account | null {
    const current = epoch === this.#epoch
    if (found === null) {
      if (current && this.#unknown.size >= MOST_UNKNOWN) this.#unknown.clear()
      if (current) this.#unknown.add(sha256)
      return null
    }
    let kept = this.#kept.get(sha256)
    if (!kept) {
      kept = { sha256, found, account: null, of: -1, used: false }
      if (current) this.#keep(kept)
    }
    const account = this.#accountOf(kept, accounts)
    if (account && !current) account.stale = true
    return account
  }

  #keep(kept: CachedKey): void {
    const { sha256, found } = kept
    this.#kept.set(sha256, kept)
    const { id } = found.organization
    let digests = this.#digests.get(id)
    if (!digests) this.#digests.set(id, (digests = new Set()))
    digests.add(sha256)
    this.#evict()
  }

  /** The account in terms of a configuration: its plans and models decide what the key may do. */
  #accountOf(kept: CachedKey, accounts: Accounts): Account | null {
    kept.used = true
    if (kept.of !== accounts.number) {
      markStale(kept)
      kept.of = accounts.number
      const identity = accounts.identityOf(kept.found, this.#source!.log)
      kept.account = identity === null || identity instanceof Unusable ? identity : accountOf(identity, kept)
    }
    if (!(kept.account instanceof Unusable)) return kept.account
    if (this.#source!.clock.now() >= kept.account.expires) return null
    this.#noteRefusal(kept.account)
    throw new GatewayError('account_unavailable', {
      message:
        'The key is valid, but its account cannot be served as it is set up at present. This is for the operator of the gateway to correct; ask there if it lasts.',
    })
  }

  /** Counts a refusal, and writes one line a minute however many there are. */
  #noteRefusal({ organization, plan = '', faults }: Unusable): void {
    let refusals = this.#refusals.get(plan)
    if (!refusals) {
      if (this.#refusals.size >= MOST_WARNED) return
      refusals = { requests: 0, organizations: new Set(), fault: faults[0]!, such_as: organization }
      this.#refusals.set(plan, refusals)
    }
    refusals.requests++
    if (refusals.organizations.size < MOST_COUNTED) refusals.organizations.add(organization)
    const { clock, log } = this.#source!
    if (clock.mono() - this.#warned < WARN_MS) return
    this.#warned = clock.mono()
    const refused = [...this.#refusals].map(([plan, { organizations, ...rest }]) => ({
      ...(plan !== '' && { plan }),
      ...rest,
      organizations: organizations.size,
    }))
    this.#refusals.clear()
    log.warn({ refused }, 'accounts of the store cannot be used, and get 503 account_unavailable')
  }

  /**
   * Forgets keys until the cache is within its bound. One that was used since it was last looked at stays once more.
   */
  #evict(): void {
    for (const kept of this.#kept.values()) {
      if (this.#kept.size <= this.#bounds.cache) break
      if (kept.used) {
        kept.used = false
        this.#kept.delete(kept.sha256)
        this.#kept.set(kept.sha256, kept)
      } else this.#forget(kept)
    }
    this.stats.cached = this.#kept.size
  }

  #forget(kept: CachedKey): void {
    const { sha256, found } = kept
    markStale(kept)
    this.#kept.delete(sha256)
    const digests = this.#digests.get(found.organization.id)
    digests?.delete(sha256)
    if (digests?.size === 0) this.#digests.delete(found.organization.id)
  }

  // ---- bounds -------------------------------------------------------------------------------------------------------

  #miss(tenant: string): void {
    this.stats.unknown++
    const misses = this.#thisSecond()
    misses.all++
    misses.tenants.set(tenant, (misses.tenants.get(tenant) ?? 0) + 1)
  }

  #thisSecond(): Misses {
    const second = Math.floor(this.#source!.clock.mono() / 1000)
    const misses = this.#misses
    if (misses.second !== second) {
      misses.second = second
      misses.all = 0
      misses.tenants.clear()
    }
    return misses
  }

  /** Whether a key that may not exist must not be looked up now. Look-ups that find their key are not bounded. */
  #overMisses(tenant: string): boolean {
    const most = this.#bounds.misses
    const { all, tenants } = this.#thisSecond()
    const over =
      this.#running.size >= most || all >= most || (tenants.get(tenant) ?? 0) >= Math.ceil(most * ADDRESS_SHARE)
    if (over) this.stats.refused++
    return over
  }

  // ---- changes ------------------------------------------------------------------------------------------------------

  /** Asks the store what has changed, and does so again later. Never rejects. */
  async #follow(): Promise<void> {
    const { store, clock } = this.#source!
    try {
      const since = store.since(this.#version ?? 0)
      const { version, ids } = since instanceof Promise ? await since : since
      if (version !== this.#version) this.#changed(ids)
      this.#version = version
    } catch {
      // The store is out. What is in memory is served until it answers, and then brought up to date.
    }
    if (!this.#closed) this.#timer = clock.setTimer(FOLLOW_MS, () => void this.#follow())
  }

  #changed(ids: string[] | null): void {
    this.#epoch++
    this.#unknown.clear()
    if (ids === null) for (const kept of [...this.#kept.values()]) this.#forget(kept)
    else {
      for (const id of ids)
        for (const sha256 of [...(this.#digests.get(id) ?? [])]) this.#forget(this.#kept.get(sha256)!)
    }
    this.stats.cached = this.#kept.size
  }
}

/** The accounts as one configuration has them: what the chains of one generation ask. */
export class Accounts {
  static #count = 0
  readonly number = Accounts.#count++
  readonly #directory: Directory
  readonly #config: Pick<GatewayConfig, 'organizations' | 'plans' | 'models'>
  readonly #file = new Map<string, Account>()
  readonly #remembered = new Map<string, Account>()
  /** The last credential that was hashed, and its digest: `known` asks for it just before `find` does. */
  #hashed = ''
  #digest = ''
  #names: AccountNames | undefined

  constructor(directory: Directory, config: Pick<GatewayConfig, 'organizations' | 'plans' | 'models'>) {
    this.#directory = directory
    this.#config = config
    for (const organization of Object.values(config.organizations)) {
      if (organization.status === 'disabled') continue
      for (const key of organization.keys) {
        if (key.status === 'revoked') continue
        this.#file.set(key.sha256, accountOf({ organization, key }, null))
      }
    }
  }

  /** Whether all that accounts follow from is the same. */
  isOf({ organizations, plans, models }: Pick<GatewayConfig, 'organizations' | 'plans' | 'models'>): boolean {
    const own = this.#config
    return organizations === own.organizations && plans === own.plans && models === own.models
  }

  /**
   * Who a credential belongs to; null when nobody may use it. The answer is a promise only when the store has to be
   * asked and does not answer at once.
   * @param now Unix ms
   * @throws (or rejects with) what `Directory.find` throws
   */
  find(credential: string, client: Client, now: number): Identity | null | Promise<Identity | null> {
    const known = this.#remembered.get(credential)
    if (known !== undefined && !known.stale) {
      if (known.kept !== null) known.kept.used = true
      return now < known.until ? known.identity : identityAt(known, now)
    }
    if (!isKeyText(credential)) return null
    const sha256 = this.#digestOf(credential)
    const account = this.#file.get(sha256) ?? this.#directory.find(sha256, client, this)
    if (account instanceof Promise) return account.then(found => this.#remember(credential, found, now))
    return this.#remember(credential, account, now)
  }

  /**
   * The organization of a credential whose key is in memory and works. The store is not asked, and nothing is counted
   * or remembered.
   * @param now Unix ms
   */
  known(credential: string, now: number): string | undefined {
    let account = this.#remembered.get(credential)
    if (account === undefined || account.stale) {
      if (!isKeyText(credential)) return undefined
      const sha256 = this.#digestOf(credential)
      account = this.#file.get(sha256)
      if (account === undefined) return this.#directory.organizationOf(sha256)
    }
    return now < account.expires ? account.identity.organization.id : undefined
  }

  #digestOf(credential: string): string {
    if (credential !== this.#hashed) {
      this.#hashed = credential
      this.#digest = hash('sha256', credential, 'hex')
    }
    return this.#digest
  }

  #remember(credential: string, account: Account | null, now: number): Identity | null {
    if (account === null) return null
    if (!account.stale) {
      if (this.#remembered.size >= REMEMBERED) this.#remembered.delete(this.#remembered.keys().next().value!)
      this.#remembered.set(credential, account)
    }
    return identityAt(account, now)
  }

  /** As `AccountFinder` of core/plugin.ts. */
  named(organization: string, key: string, client: Client, now: number): Identity | null | Promise<Identity | null> {
    const alive = (account: Account | null) => account && identityAt(account, now)
    if (Object.hasOwn(this.#config.organizations, organization)) {
      const found = this.#config.organizations[organization]!.keys.find(({ id }) => id === key)
      return alive((found && this.#file.get(found.sha256)) ?? null)
    }
    const account = this.#directory.findNamed(organization, key, client, this)
    return account instanceof Promise ? account.then(alive) : alive(account)
  }

  /** For the directory: what a stored account is by this configuration; null when its key does not work. */
  identityOf({ organization: { id, settings }, key }: StoredAccount, log: Logger): Identity | null | Unusable {
    if (Object.hasOwn(this.#config.organizations, id)) {
      const faults = [`the configuration has an organization ${id} too; an id may stand in one place only`]
      log.error({ organization: id, faults }, 'an account of the store cannot be used')
      return null
    }
    this.#names ??= accountNames(this.#config)
    const [own, ofKey] = [membersIn(settings), membersIn(key.settings)]
    if (!own || !ofKey)
      return new Unusable(id, undefined, ['its settings are no JSON object'], Number.POSITIVE_INFINITY)
    // Whoever may not come in does not learn what is wrong with the account.
    if (own.status === 'disabled' || ofKey.status === 'revoked') return null
    const { credited, ...rest } = own
    const members: Record<string, unknown> = { ...rest, keys: [{ ...ofKey, id: key.id, sha256: key.sha256 }] }
    const { organization, unplanned, faults } = readOrganization(id, members, this.#names, Number(credited ?? 0))
    if (!organization) {
      const expires = unplanned?.keys[0]?.expires ?? Number.POSITIVE_INFINITY
      return new Unusable(id, unplanned?.plan, faults, expires)
    }
    return { organization, key: organization.keys[0]! }
  }
}

/** The process's directory. */
export function directoryOf(shared: SharedState): Directory {
  return shared.use(directoryKey, () => new Directory())
}

/** The accounts of a configuration; the same object for all chains of one generation. */
export function accountsOf(
  shared: SharedState,
  config: Pick<GatewayConfig, 'organizations' | 'plans' | 'models'>,
): Accounts {
  const all = shared.use(accountsKey, () => new WeakMap())
  let accounts = all.get(config.organizations)
  // A reload may keep sections that have not changed as they are.
  if (!accounts?.isOf(config)) all.set(config.organizations, (accounts = new Accounts(directoryOf(shared), config)))
  return accounts
}

/** The accounts of a configuration as plugins find them by name. They are made when the first is asked for. */
export function accountFinder(
  shared: SharedState,
  config: Pick<GatewayConfig, 'organizations' | 'plans' | 'models'>,
): AccountFinder {
  return {
    find: (organization, key, client, now) => accountsOf(shared, config).named(organization, key, client, now),
  }
}

/** The members of stored settings; null when they are damaged. */
function membersIn(settings: string): Record<string, unknown> | null {
  try {
    const members = JSON.parse(settings)
    return typeof members === 'object' && members !== null && !Array.isArray(members) ? members : null
  } catch {
    return null
  }
}

function accountOf(identity: Identity, kept: CachedKey | null): Account {
  const { organization, key } = identity
  const expires = key.expires ?? Number.POSITIVE_INFINITY
  // With a raise it is looked at when it is first used, for then it is known what time it is.
  const until = organization.raises !== undefined ? Number.NEGATIVE_INFINITY : expires
  return { identity, until, organization, expires, kept, stale: false }
}

/** The identity of an account at a time; null when its key has ended. */
function identityAt(account: Account, now: number): Identity | null {
  if (now < account.until) return account.identity
  if (now >= account.expires) return null
  const { organization, until } = raisedAt(account.organization, now)
  account.identity = { organization, key: account.identity.key }
  account.until = Math.min(account.expires, until)
  return account.identity
}

function markStale({ account }: CachedKey): void {
  if (account && !(account instanceof Unusable)) account.stale = true
}

/**
 * Whether a credential can be a key: 1 to 256 characters of [A-Za-z0-9_.:-]. Other bytes may have been altered by the
 * listener (R5).
 */
export function isKeyText(value: string): boolean {
  if (value.length === 0 || value.length > 256) return false
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i)
    const letter = (c >= 0x61 && c <= 0x7a) || (c >= 0x41 && c <= 0x5a)
    if (!letter && !(c >= 0x30 && c <= 0x3a) && c !== 0x2d && c !== 0x2e && c !== 0x5f) return false
  }
  return true
}
