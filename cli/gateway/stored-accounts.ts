/** What the accounts of the store mean for a configuration: names that they use, and ids that are in both places. */
import type { AccountNamesInUse } from '../../admin/view.ts'
import type { ConfigError } from '../../config/load.ts'
import {
  faultsOf,
  type Names,
  standingOf,
  takenAway,
  twiceFaults,
  unansweredFault,
  usersOf,
} from '../../config/retired.ts'
import type { GatewayConfig } from '../../config/types.ts'
import type { Logger } from '../../core/plugin.ts'
import type { AccountStore, NameCount, NameUsers } from '../../core/ports/accounts.ts'
import type { Clock } from '../../core/tools/clock.ts'

/** Time in milliseconds for which the counts of accounts are shown as they were read. */
const NAMES_MS = 5000

export interface StoredAccountsOptions {
  store: AccountStore
  /** Whether the store is known to have no account: then it is not asked. */
  directory: { readonly empty: boolean }
  current: { readonly config: GatewayConfig }
  clock: Clock
  log: Logger
  /** Asks once for all workers which names accounts use. Absent: this process asks by itself. */
  askAll?: ((names: Names) => Promise<NameUsers[]>) | undefined
}

export class StoredAccounts {
  readonly #options: StoredAccountsOptions
  /** The names that accounts use, and until when they are not read again, by the monotonic clock. */
  #names: Promise<readonly NameCount[]> = Promise.resolve([])
  #namesUntil = Number.NEGATIVE_INFINITY

  constructor(options: StoredAccountsOptions) {
    this.#options = options
  }

  /**
   * The organizations that are in the file and in the store. An id is in one place only, so that nobody can take over
   * another's limits and spend. While the store does not answer, `Accounts` refuses the store's one when it is used.
   */
  async inBothPlaces(config: GatewayConfig): Promise<ConfigError[]> {
    const { store, directory, log } = this.#options
    if (directory.empty) return []
    const held = await Promise.resolve()
      .then(() => store.held(Object.keys(config.organizations)))
      .catch((error: Error) => {
        log.warn({ err: error }, 'the store does not say which organizations it has')
        return []
      })
    return twiceFaults(held, config)
  }

  /**
   * What a file takes away from accounts of the store. The store is asked only when it takes a plan or model away, and
   * a store that does not answer keeps the configuration that serves: what goes by mistake is an outage for all who use
   * it.
   */
  async leftBehind(before: GatewayConfig, after: GatewayConfig): Promise<ConfigError[]> {
    const names = takenAway(before, after)
    if (names.plan.length + names.model.length === 0 || this.#options.directory.empty) return []
    try {
      const users = await (this.#options.askAll ?? this.usersOf)(names)
      return faultsOf(users, after)
    } catch (error) {
      return [unansweredFault(names, after, (error as Error).message)]
    }
  }

  /** Which of the names accounts of the store use. */
  readonly usersOf = (names: Names): Promise<NameUsers[]> => usersOf(this.#options.store, names)

  /** What accounts of the store name, for the metrics; as it was when the store does not answer. */
  async named(): Promise<AccountNamesInUse> {
    const { store, directory, current, clock } = this.#options
    const now = clock.mono()
    if (now >= this.#namesUntil && !directory.empty) {
      this.#namesUntil = now + NAMES_MS
      const before = this.#names
      this.#names = Promise.resolve()
        .then(() => store.names())
        .catch(() => before)
    }
    const names = await this.#names
    const standing = standingOf(current.config)
    return names.map(count => ({ ...count, standing: standing(count.kind, count.name) }))
  }
}
