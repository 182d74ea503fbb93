/** Where an organization stands, the file or the store, and how commands change it there: as a whole, or not at all. */
import { existsSync, readFileSync } from 'node:fs'
import { userInfo } from 'node:os'
import { accountNames, readOrganization } from '../config/accounts.ts'
import { type Author, changeStored, creditedOf, type Edit, membersOf } from '../config/stored.ts'
import type { GatewayConfig, OrganizationConfig } from '../config/types.ts'
import { AccountFault, type AccountStore, type OrganizationWithKeys } from '../core/ports/accounts.ts'
import { type OpenAccounts, openAccounts } from '../stores/accounts.ts'
import { addKey, setKeyMember, setMember } from './edit-keys.ts'
import { listing, loadEdited, replaceFile, storeFailure } from './problems.ts'
import { Failure } from './terminal.ts'

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
