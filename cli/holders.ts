/**
 * Where an organization is kept, the file or the store, and how commands change it there: as a whole, or not at all.
 */
import { existsSync, readFileSync } from 'node:fs'
import { userInfo } from 'node:os'
import { accountNames, readOrganization } from '../config/accounts.ts'
import { type Author, changeStored, creditedOf, type Edit, membersOf, wholeOf } from '../config/stored.ts'
import type { GatewayConfig, OrganizationConfig } from '../config/types.ts'
import { AccountFault, type AccountStore, type OrganizationWithKeys } from '../core/ports/accounts.ts'
import { lastUses } from '../core/ports/store.ts'
import { type OpenAccounts, openAccounts } from '../stores/accounts.ts'
import { addKey, readKey, removeKey, setKeyMember, setMember } from './edit-keys.ts'
import { listing, loadEdited, replaceFile, storeFailure } from './problems.ts'
import { Failure } from './terminal.ts'

type OpenOptions = Parameters<typeof openAccounts>[1]

export interface Holder {
  readonly place: 'file' | 'store'
  readonly organization: OrganizationConfig
  /** What does not fit the configuration, such as a plan that is gone. */
  readonly faults: readonly string[]
  /**
   * @param operation what it is called in the audit of the store, and the key that it is about
   * @throws Failure or AccountFault when the result would not load; then nothing is changed
   */
  change(edit: Edit, operation: string, key?: string): Promise<void>
  /** The members of a key as they are written, with id, digest and status. */
  written(key: string): Record<string, unknown>
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
    if (this.#opened === undefined) this.#opened = await openedIfThere(this.#config.store.url)
    return this.#opened?.accounts ?? null
  }

  /**
   * When keys of an organization were last used by the ledger: by id, the beginning of the hour, Unix ms.
   * @throws Failure when the store does not open
   */
  async lastUses(organization: string, keys: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const store = await this.store()
    if (store === null) return new Map()
    return lastUses(filter => this.#opened!.usage(filter), organization, keys, Date.now())
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

/** Null while there is no database file. @throws Failure when the store does not open */
export async function openedIfThere(url: string, options?: OpenOptions): Promise<OpenAccounts | null> {
  if (url.startsWith('sqlite:') && !existsSync(url.slice('sqlite:'.length))) return null
  return opened(url, options)
}

/** @throws Failure when the store does not open */
export async function opened(url: string, options?: OpenOptions): Promise<OpenAccounts> {
  try {
    return await openAccounts(url, options)
  } catch (error) {
    throw storeFailure(error)
  }
}

class FileHolder implements Holder {
  readonly place = 'file'
  readonly organization: OrganizationConfig
  readonly faults = []
  readonly #file: string
  readonly #config: GatewayConfig

  constructor(file: string, config: GatewayConfig, organization: OrganizationConfig) {
    this.#file = file
    this.#config = config
    this.organization = organization
  }

  /** Edits the file that holds the organization, checks the result as a whole, and only then replaces the file. */
  async change({ members = [], added = [], keys = [], removed = [], leaves }: Edit): Promise<void> {
    const { id } = this.organization
    if (leaves !== undefined)
      throw new Failure(`${id} stands in ${this.#config.files[0]}; take it out there to delete it`)
    for (const { path, within } of this.#files()) {
      let text: string | null = readFileSync(path, 'utf8')
      for (const key of added) text = text && addKey(text, within, id, key)
      for (const key of keys)
        for (const [name, value] of key.members ?? [])
          text = text && setKeyMember(text, within, id, key.id, name.split('.'), value)
      for (const key of removed) text = text && removeKey(text, within, id, key)
      for (const [name, value] of members) text = text && setMember(text, within, id, name.split('.'), value)
      if (text === null) continue
      const loaded = await loadEdited(this.#file, path, text)
      if (loaded.errors) throw new Failure(`${listing(this.#file, loaded.errors)}\nNothing was changed.`)
      replaceFile(path, text)
      return
    }
    throw this.#notFound()
  }

  written(key: string): Record<string, unknown> {
    for (const { path, within } of this.#files()) {
      const found = readKey(readFileSync(path, 'utf8'), within, this.organization.id, key)
      if (found) return found
    }
    throw this.#notFound()
  }

  /** The main file has the key `organizations:`; an included file is that mapping itself. */
  #files(): { path: string; within: readonly string[] }[] {
    return this.#config.files.map((path, i) => ({ path, within: i === 0 ? ['organizations'] : [] }))
  }

  #notFound(): Failure {
    const { files } = this.#config
    return new Failure(`cannot find where ${this.organization.id} stands in ${files.join(', ')}; edit the file by hand`)
  }
}

/** Somebody else may change an organization at the same time; then it is read again, this often. */
const ATTEMPTS = 10

class StoreHolder implements Holder {
  readonly place = 'store'
  readonly organization: OrganizationConfig
  readonly faults: readonly string[]
  readonly #store: AccountStore
  readonly #config: GatewayConfig
  #found: OrganizationWithKeys

  constructor(store: AccountStore, config: GatewayConfig, found: OrganizationWithKeys) {
    this.#store = store
    this.#config = config
    this.#found = found
    const { unplanned, faults } = readOrganization(found.id, membersOf(found), accountNames(config), creditedOf(found))
    if (!unplanned) throw new Failure(`${found.id} in the store cannot be used: ${faults.join('; ')}`)
    this.organization = unplanned
    this.faults = faults
  }

  async change(edit: Edit, operation: string, key?: string): Promise<void> {
    for (let i = 0; i < ATTEMPTS; i++) {
      try {
        await changeStored(this.#store, this.#config, this.#found, { ...edit, author: cliAuthor(), operation, key })
        return
      } catch (error) {
        if (!(error instanceof AccountFault) || error.why !== 'changed') throw error
        this.#found = (await this.#store.read(this.organization.id))!
      }
    }
    throw new Failure(`${this.organization.id} is being changed by others all the time; try again`)
  }

  written(id: string): Record<string, unknown> {
    const key = this.#found.keys.find(key => key.id === id)!
    return { id, sha256: key.sha256, ...wholeOf(key) }
  }
}

/** The user of the command line, for the audit. */
export function cliAuthor(): Author {
  let user = ''
  try {
    user = userInfo().username
  } catch {
    // A container may run under a number that has no name.
    user = String(process.getuid?.() ?? '')
  }
  return { by: `cli:${user}`, address: '' }
}
