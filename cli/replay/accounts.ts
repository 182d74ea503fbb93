/** The accounts of a replay: those of the file and of the store as they are now, on the plans that are tried. */
import { accountNames, raisedAt, readOrganization } from '../../config/accounts.ts'
import type { Proposal, WrittenOrganizations } from '../../config/proposal.ts'
import { creditedOf, membersOf } from '../../config/stored.ts'
import type { GatewayConfig, KeyConfig, ModelConfig, OrganizationConfig } from '../../config/types.ts'
import type { AccountStore, Credit, OrganizationWithKeys } from '../../core/ports/accounts.ts'
import type { MaybePromise, UsageFilter, UsageSum } from '../../core/ports/store.ts'
import type { Identity } from '../../plugins/shared/slots.ts'

/** This many organizations are kept; any other is read again. */
const KEPT = 10_000

/** An organization, and what of it changes in time. */
export interface Account {
  /** As it is without raises; with all its credits. */
  readonly organization: OrganizationConfig
  /** What its prepaid rows cost that came before the replay, in nano-USD. */
  readonly billedBefore: number
  /** The caller with a key of it at a time (Unix ms). @param key its id, which may be that of a key that is gone */
  caller(key: string, time: number): Identity
  /** As `caller`, without what is proposed; null where it cannot be used so. */
  former(key: string, time: number): Identity | null
  /** Whether it has this key. */
  has(key: string): boolean
}

export interface AccountSources {
  config: GatewayConfig
  written: WrittenOrganizations
  /** Null where there are none. */
  stored: { accounts: AccountStore; usage(filter: UsageFilter): AsyncIterable<UsageSum[]> } | null
  proposal: Proposal
  /** When the replay begins, Unix ms. */
  start: number
}

type Names = ReturnType<typeof accountNames>

export class Accounts {
  /** With the proposed prices. */
  readonly models: Record<string, ModelConfig>
  readonly #sources: AccountSources
  readonly #names: Names
  /** Without what is proposed. */
  readonly #formerNames: Names
  /** Those used last come last. */
  readonly #kept = new Map<string, Account | null>()

  constructor(sources: AccountSources) {
    this.#sources = sources
    const { config, proposal } = sources
    this.models = Object.fromEntries(
      Object.entries(config.models).map(([id, model]) => [
        id,
        Object.hasOwn(proposal.prices, id) ? { ...model, price: proposal.prices[id]! } : model,
      ]),
    )
    this.#formerNames = accountNames(config)
    this.#names = { ...this.#formerNames, plans: { ...config.plans, ...proposal.plans } }
  }

  /** Null when there is no such organization any more, or when it cannot be used: its plan is gone. */
  find(id: string): MaybePromise<Account | null> {
    const kept = this.#kept
    const known = kept.get(id)
    if (known !== undefined) {
      if (kept.size >= KEPT / 2) {
        kept.delete(id)
        kept.set(id, known)
      }
      return known
    }
    const read = this.#read(id)
    return read instanceof Promise ? read.then(account => this.#keep(id, account)) : this.#keep(id, read)
  }

  #keep(id: string, account: Account | null): Account | null {
    if (this.#kept.size >= KEPT) this.#kept.delete(this.#kept.keys().next().value!)
    this.#kept.set(id, account)
    return account
  }

  /** The faults of the organizations for which something is proposed, by id; of those that do not exist, too. */
  async faults(): Promise<Map<string, string>> {
    const found = new Map<string, string>()
    for (const id of Object.keys(this.#sources.proposal.organizations)) {
      const raw = await this.#members(id)
      if (raw === null) found.set(id, `there is no organization '${id}', neither in the file nor in the store`)
      else {
        const before = new Set(this.#former(raw).faults)
        const faults = this.#proposed(raw).faults.filter(fault => !before.has(fault))
        if (faults.length > 0) found.set(id, faults.join('; '))
      }
    }
    return found
  }

  #read(id: string): MaybePromise<Account | null> {
    const raw = this.#members(id)
    return raw instanceof Promise ? raw.then(found => this.#account(found)) : this.#account(raw)
  }

  #members(id: string): MaybePromise<Raw | null> {
    const { written, stored } = this.#sources
    if (Object.hasOwn(this.#sources.config.organizations, id)) return { id, ...written.members(id), credited: 0 }
    const found = stored?.accounts.read(id) ?? null
    return found instanceof Promise ? found.then(ofStore) : ofStore(found)
  }

  #former({ id, members, text, credited }: Raw) {
    return readOrganization(id, members, this.#formerNames, credited, text)
  }

  #proposed({ id, members, text, credited }: Raw) {
    const { organizations } = this.#sources.proposal
    const own = Object.hasOwn(organizations, id) ? organizations[id] : undefined
    return readOrganization(id, own ? { ...members, ...own } : members, this.#names, credited, text)
  }

  #account(raw: Raw | null): MaybePromise<Account | null> {
    const { proposal, stored, start } = this.#sources
    const organization = raw && this.#proposed(raw).organization
    if (!organization) return null
    const { id, plan, billing } = organization
    const changed = Object.hasOwn(proposal.plans, plan) || Object.hasOwn(proposal.organizations, id)
    const former = changed ? this.#former(raw).organization : organization
    if (billing !== 'prepaid' || !stored) return accountOf(organization, former, [], 0)
    return prepaid(stored, id, start).then(({ credits, before }) => accountOf(organization, former, credits, before))
  }
}

/** An organization as it is kept. */
interface Raw {
  id: string
  members: Record<string, unknown>
  /** Of the file. */
  text?: ReturnType<WrittenOrganizations['members']>['text']
  credited: number
}

const ofStore = (found: OrganizationWithKeys | null): Raw | null =>
  found && { id: found.id, members: membersOf(found), credited: creditedOf(found) }

/** The credits of an organization, the oldest first, and what its rows cost that came before this time (Unix ms). */
async function prepaid(
  { accounts, usage }: NonNullable<AccountSources['stored']>,
  id: string,
  start: number,
): Promise<{ credits: Credit[]; before: number }> {
  const credits = await accounts.credits(id)
  let before = await accounts.billed(id)
  for await (const page of usage({ org: id, since: start })) for (const { cost } of page) before -= cost
  return { credits: credits.toSorted((a, b) => a.time - b.time), before: Math.max(0, before) }
}

/** An organization as it is from one time to another. */
interface Version {
  organization: OrganizationConfig
  since: number
  until: number
  byKey: Map<string, Identity>
}

function accountOf(
  organization: OrganizationConfig,
  former: OrganizationConfig | null,
  credits: readonly Credit[],
  billedBefore: number,
): Account {
  const keys = new Map(organization.keys.map(key => [key.id, key]))
  const callers = (of: OrganizationConfig) => {
    let version: Version | undefined
    return function callerAt(id: string, time: number): Identity {
      if (!version || time >= version.until || time < version.since) version = versionAt(of, credits, time)
      let caller = version.byKey.get(id)
      if (!caller) {
        caller = { organization: version.organization, key: keys.get(id) ?? withoutLimits(id) }
        version.byKey.set(id, caller)
      }
      return caller
    }
  }
  const caller = callers(organization)
  return {
    ...{ organization, billedBefore, caller },
    former: former === organization ? caller : former ? callers(former) : () => null,
    has: key => keys.has(key),
  }
}

/** An organization at a time (Unix ms): with the raises that hold, and the credits that it had. */
function versionAt(organization: OrganizationConfig, credits: readonly Credit[], time: number): Version {
  const raised = raisedAt(organization, time)
  if (organization.billing !== 'prepaid')
    return { organization: raised.organization, since: time, until: raised.until, byKey: new Map() }
  const next = credits.find(credit => credit.time > time)
  const credited = credits.reduce((sum, credit) => (credit.time <= time ? sum + credit.amount : sum), 0)
  const until = Math.min(raised.until, next?.time ?? Number.POSITIVE_INFINITY)
  return { organization: { ...raised.organization, credited }, since: time, until, byKey: new Map() }
}

/** Stands for a key that is gone. */
const withoutLimits = (id: string): KeyConfig => ({
  ...{ id, sha256: '', status: 'revoked', expires: null, models: 'all', capabilities: 'all', streaming: true },
  ...{ usage: 'key', limits: {}, model_limits: {} },
})
