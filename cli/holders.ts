/** Where an organization stands, the file or the store, and how commands change it there: as a whole, or not at all. */
import { existsSync, readFileSync } from 'node:fs'
import { accountNames, readOrganization } from '../config/accounts.ts'
import type { GatewayConfig, KeyConfig, OrganizationConfig } from '../config/types.ts'
import type { AccountStore, OrganizationWithKeys, StoredKey } from '../core/accounts.ts'
import { StoreUnavailable } from '../core/store.ts'
import { type OpenAccounts, openAccounts } from '../stores/accounts.ts'
import { addKey, setKeyMember, setMember } from './edit-keys.ts'
import { listing, loadEdited, replaceFile } from './problems.ts'
import { Failure } from './terminal.ts'

/** A member of gateway.yaml; null takes it away. */
export type Value = string | number | boolean | null | readonly string[]

export interface Edit {
  /** Members of the organization, by their names with dots: `plan`, `limits.requests_per_minute`. */
  members?: readonly (readonly [name: string, value: Value])[]
  /** Keys that are added, with their digest. */
  added?: readonly { id: string; sha256: string; status: KeyConfig['status'] }[]
  /** Members of keys that are there already. */
  keys?: readonly { id: string; member: 'status' | 'expires'; value: string }[]
}

export interface Holder {
  readonly place: 'file' | 'store'
  readonly organization: OrganizationConfig
  /** @throws Failure when the result would not load; then nothing is changed */
  change(edit: Edit): Promise<void>
}

/** The accounts of a configuration, in the file and in the store. */
export class Holders {
  readonly #file: string
  readonly #config: GatewayConfig
  #opened: OpenAccounts | null | undefined

  constructor(file: string, config: GatewayConfig) {
    this.#file = file
    this.#config = config
  }

  /**
   * The store's accounts; null when there is no store yet, or one in memory only.
   * @throws Failure when the store does not open
   */
  async store(): Promise<AccountStore | null> {
    if (this.#opened === undefined) {
      const { url } = this.#config.store
      const isThere = !url.startsWith('sqlite:') || existsSync(url.slice('sqlite:'.length))
      this.#opened = isThere ? await opened(url) : null
    }
    return this.#opened?.accounts ?? null
  }

  /** The store's accounts, in a new database file where there is none. @throws Failure */
  async newStore(): Promise<AccountStore> {
    this.#opened ??= await opened(this.#config.store.url)
    return this.#opened.accounts
  }

  async close(): Promise<void> {
    await this.#opened?.close()
  }

  async find(id: string): Promise<Holder | null> {
    const { organizations } = this.#config
    if (Object.hasOwn(organizations, id)) return new FileHolder(this.#file, this.#config, organizations[id]!)
    const store = await this.store()
    const found = await store?.read(id)
    return store && found ? new StoreHolder(store, this.#config, found) : null
  }
}

async function opened(url: string): Promise<OpenAccounts> {
  try {
    return await openAccounts(url)
  } catch (error) {
    if (error instanceof StoreUnavailable) throw new Failure(error.message)
    throw error
  }
}

class FileHolder implements Holder {
  readonly place = 'file'
  readonly organization: OrganizationConfig
  readonly #file: string
  readonly #config: GatewayConfig

  constructor(file: string, config: GatewayConfig, organization: OrganizationConfig) {
    this.#file = file
    this.#config = config
    this.organization = organization
  }

  /** Edits the file that holds the organization, checks the result as a whole, and only then replaces the file. */
  async change({ members = [], added = [], keys = [] }: Edit): Promise<void> {
    const { id } = this.organization
    const { files } = this.#config
    for (const path of files) {
      // The main file has the key `organizations:`; an included file is that mapping itself.
      const within = path === files[0] ? ['organizations'] : []
      let text: string | null = readFileSync(path, 'utf8')
      for (const key of added) text = text && addKey(text, within, id, key)
      for (const key of keys) text = text && setKeyMember(text, within, id, key.id, key.member, key.value)
      for (const [name, value] of members) text = text && setMember(text, within, id, name.split('.'), value)
      if (text === null) continue
      const loaded = await loadEdited(this.#file, path, text)
      if (loaded.errors) throw new Failure(`${listing(this.#file, loaded.errors)}\nNothing was changed.`)
      replaceFile(path, text)
      return
    }
    throw new Failure(`cannot find where ${id} stands in ${files.join(', ')}; edit the file by hand`)
  }
}

/** Somebody else may change an organization at the same time; then it is read again, this often. */
const ATTEMPTS = 10

class StoreHolder implements Holder {
  readonly place = 'store'
  readonly organization: OrganizationConfig
  readonly #store: AccountStore
  readonly #config: GatewayConfig
  #found: OrganizationWithKeys

  constructor(store: AccountStore, config: GatewayConfig, found: OrganizationWithKeys) {
    this.#store = store
    this.#config = config
    this.#found = found
    const { organization, faults } = readOrganization(found.id, membersOf(found), accountNames(config))
    if (!organization) throw new Failure(`${found.id} in the store cannot be used: ${faults.join('; ')}`)
    this.organization = organization
  }

  async change(edit: Edit): Promise<void> {
    const { id } = this.organization
    for (let i = 0; i < ATTEMPTS; i++) {
      const { settings, keys } = applied(this.#found, edit)
      const merged = [...this.#found.keys.filter(key => !keys.some(other => other.id === key.id)), ...keys]
      checkStored({ ...this.#found, settings, keys: merged }, this.#config)
      const [result] = await this.#store.change([{ id, expected: this.#found.version, settings, keys }])
      if (result!.refused === undefined) return
      if (result!.refused === 'digest')
        throw new Failure(`the digest of a key is already ${result!.organization}'s ${result!.key}`)
      this.#found = (await this.#store.read(id))!
    }
    throw new Failure(`${id} is being changed by others all the time; try again`)
  }
}

/** The organization's members with its keys, as gateway.yaml would have them. */
export function membersOf({
  settings,
  keys,
}: Pick<OrganizationWithKeys, 'settings' | 'keys'>): Record<string, unknown> {
  return {
    ...JSON.parse(settings),
    keys: keys.map(({ id, sha256, settings }) => ({ id, sha256, ...JSON.parse(settings) })),
  }
}

/** @throws Failure with every fault of an organization that is to be stored */
export function checkStored(organization: OrganizationWithKeys, config: GatewayConfig): void {
  const { faults } = readOrganization(organization.id, membersOf(organization), accountNames(config))
  if (faults.length > 0) throw new Failure([...faults, 'Nothing was changed.'].join('\n'))
}

/** The settings after an edit, and the keys that it adds or changes. */
export function applied(
  found: Pick<OrganizationWithKeys, 'settings' | 'keys'>,
  { members = [], added = [], keys = [] }: Edit,
): { settings: string; keys: StoredKey[] } {
  const settings = JSON.parse(found.settings) as Record<string, any>
  for (const [name, value] of members) {
    const path = name.split('.')
    const last = path.pop()!
    let at = settings
    for (const step of path) at = at[step] ??= {}
    if (value === null) delete at[last]
    else at[last] = value
  }
  const changed = new Map<string, StoredKey>()
  for (const { id, sha256, status } of added) changed.set(id, { id, sha256, settings: JSON.stringify({ status }) })
  for (const { id, member, value } of keys) {
    const key = changed.get(id) ?? found.keys.find(candidate => candidate.id === id)!
    changed.set(id, { ...key, settings: JSON.stringify({ ...JSON.parse(key.settings), [member]: value }) })
  }
  return { settings: JSON.stringify(settings), keys: [...changed.values()] }
}
