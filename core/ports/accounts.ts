/**
 * The accounts that the store keeps, beside those of gateway.yaml. The store keeps them as text: what an organization
 * or a key may have is known to `config/`. Every engine gives an organization the next number of one counter with each
 * change, its `version`, so that a process which knows a version can ask what has changed since.
 */
import type { MaybePromise } from './store.ts'

export interface StoredKey {
  /** Unique in its organization. */
  id: string
  /** SHA-256 of the secret, 64 lower-case hex digits. Unique over all organizations. */
  sha256: string
  /** JSON of the other members of the key, as in gateway.yaml. */
  settings: string
  /**
   * JSON of the members that the gateway ignores, such as a label; absent when it has none, and where `find` is asked.
   */
  about?: string
}

export interface StoredOrganization {
  id: string
  /** Rises with each change of the organization or of one of its keys. No two organizations have the same. */
  version: number
  /**
   * JSON of the organization's members, as in gateway.yaml, without its keys; and `credited`, the sum of its credits in
   * nano-USD, which a credit alone changes.
   */
  settings: string
}

/** A key with its organization. */
export interface StoredAccount {
  organization: StoredOrganization
  key: StoredKey
}

export interface OrganizationWithKeys extends StoredOrganization {
  /** As of a key. */
  about?: string
  /** Unix ms from which it may be removed, if it is still disabled then; absent when it stays. */
  leaves?: number
  /** In ascending order of their ids. */
  keys: StoredKey[]
}

/** One change of one organization. It happens as a whole, or not at all. */
export interface AccountChange {
  id: string
  /** The version on which the change is based; 0 when the organization must not exist yet. */
  expected: number
  /** Replaces the settings; undefined leaves them. A new organization needs them. */
  settings?: string
  /** Replaces what the gateway ignores; undefined leaves it. */
  about?: string
  /** Unix ms from which it may be removed; null: it stays; undefined leaves what was said before. */
  leaves?: number | null
  /** Keys that are added, or that replace the key with their id; what they say nothing `about` stays. */
  keys: readonly StoredKey[]
  /** Ids of keys that are removed. The store remembers the ids, and takes no key with one of them again. */
  removed?: readonly string[]
  /** Removes the organization with all its keys. The store remembers the id, and takes none with it again. */
  remove?: boolean
  /** Who does it and what; undefined: the entry in the audit says `unknown`. */
  audit?: AuditNote
  /** A credit that is added in the same step. */
  credit?: Credit
}

/** What was given to an organization, or taken back from it. */
export interface Credit {
  /** Unique in its organization: a second credit with the same id changes nothing. */
  id: string
  /** nano-USD; below zero where it takes back. */
  amount: number
  /** Unix ms. */
  time: number
  /** As in `AuditNote`. */
  by: string
  /** The operator's own words; '' for none. */
  note: string
}

/** Who did what, for the audit. It has no secret and no digest. */
export interface AuditNote {
  /** Unix ms. */
  time: number
  /** `token:NAME` of the admin listener, `cli:USER` of the command line, '' for a caller that is not known. */
  by: string
  /** The caller's network address; '' on the command line. */
  address: string
  /** On whose behalf, as the caller said in `Sluice-Actor`; absent when it said nothing. */
  actor?: string
  /** What was done, e.g. `key.rotate`. */
  operation: string
  /** The key that it was about; '' when it was none. */
  key: string
  /** What changed, as it was and as it is: members of the organization, and its keys by their ids. */
  before: Record<string, unknown> | null
  after: Record<string, unknown> | null
}

export interface AuditEntry extends AuditNote {
  /** Place in the audit: later entries come after earlier ones. */
  id: string
  /** '' when it was about none. */
  organization: string
}

export interface AuditPage {
  /** The latest first. */
  entries: AuditEntry[]
  /** Where the next page begins; null after the last. A page may have fewer entries than asked for and yet a next. */
  next: string | null
}

/** How much of the audit a gateway keeps: `server.admin.audit` of gateway.yaml. */
export interface AuditBounds {
  /** Milliseconds. */
  keep: number
  /** Number of entries. */
  most: number
}

/** What came of an `AccountChange`: the new version, or why nothing was changed. */
export type ChangeResult =
  | { version: number; refused?: undefined }
  /** The organization has another version than expected. */
  | { refused: 'changed' }
  /** The organization has a credit with this id. */
  | { refused: 'credited' }
  /** A digest is already a key, of another organization or under another id. */
  | { refused: 'digest'; sha256: string; organization: string; key: string }
  /** The organization, or with `key` that key of it, was removed: its id is not given again. */
  | { refused: 'gone'; key: string }

export interface AccountsSince {
  /** The version of the latest change; 0 when no organization was ever stored. */
  version: number
  /** The organizations that have changed; null when that is not known, or when there are too many. */
  ids: string[] | null
}

/** What accounts refer to by name: a plan, or a model (by its id or an alias). */
export const NAME_KINDS = ['plan', 'model'] as const
export type NameKind = (typeof NAME_KINDS)[number]

/** How many organizations name a plan or model: in their settings, or in those of a key that is not revoked. */
export interface NameCount {
  kind: NameKind
  /** As the account spells it: an alias is a name of its own. */
  name: string
  organizations: number
}

export interface NameUsers extends NameCount {
  /** The first of them, in ascending order of ids. */
  ids: string[]
}

export interface AccountStore {
  /** The account of a key; null when there is none. One indexed read, one round trip. */
  find(sha256: string): MaybePromise<StoredAccount | null>
  /** One organization with all its keys; null when there is none. */
  read(id: string): MaybePromise<OrganizationWithKeys | null>
  /** The first organizations with an id greater than `after`, in ascending order of ids (by their UTF-8 bytes). */
  page(after: string, most: number): MaybePromise<OrganizationWithKeys[]>
  /**
   * The first organizations with an id greater than `after` that have a key with this id, in ascending order of ids.
   * Ids of keys are unique within an organization only.
   */
  withKey(key: string, after: string, most: number): MaybePromise<OrganizationWithKeys[]>
  /** How many organizations there are. */
  count(): MaybePromise<number>
  /** Those of the ids that are organizations of this store. */
  held(ids: readonly string[]): MaybePromise<string[]>
  /** All names that accounts use, in no order. The cost is that of the names, however many accounts there are. */
  names(): MaybePromise<NameCount[]>
  /**
   * Those of the names that accounts use, with the first `most` organizations of each. It reads an index only.
   * @throws (or rejects with) StoreUnavailable also while the index is not complete
   */
  users(kind: NameKind, names: readonly string[], most: number): MaybePromise<NameUsers[]>
  /**
   * Applies each change by itself, and notes it in the audit in the same step. @returns the results, parallel to the
   * changes
   */
  change(changes: readonly AccountChange[]): MaybePromise<ChangeResult[]>
  /** The credits of an organization, the latest first. */
  credits(id: string): MaybePromise<Credit[]>
  /** One credit of an organization; null when it has none with this id. */
  credit(id: string, credit: string): MaybePromise<Credit | null>
  /** What the prepaid rows of an organization cost together, in nano-USD: those that the engine has. */
  billed(id: string): MaybePromise<number>
  /** Organizations that may be removed at this time (Unix ms), at most `most`, those that left first. */
  leaving(now: number, most: number): MaybePromise<string[]>
  /** What has changed since a version. It costs next to nothing when nothing has. */
  since(version: number): MaybePromise<AccountsSince>
  /** Notes what changed nothing, such as a refused token. */
  note(audit: AuditNote): MaybePromise<void>
  /**
   * Entries of the audit, of one organization or of all; `before` is the `next` of the page before, '' for the first.
   */
  audit(filter: { organization?: string; before: string; most: number }): MaybePromise<AuditPage>
}

/**
 * Why an account was not made or changed. `invalid`: its settings do not fit; `exists`: the id is taken; `file`: it is
 * in gateway.yaml; `changed`: somebody else has changed it meanwhile; `absent`: there is no such organization or key;
 * `gone`: the id belonged to one that was deleted.
 */
export class AccountFault extends Error {
  readonly why: 'invalid' | 'exists' | 'file' | 'changed' | 'absent' | 'gone'
  constructor(why: AccountFault['why'], message: string) {
    super(message)
    this.why = why
  }
}

/** For a change that says nothing about its author. */
export const unknownNote = (time: number): AuditNote => ({
  time,
  by: 'unknown',
  address: '',
  operation: 'change',
  key: '',
  before: null,
  after: null,
})

/**
 * Above this many changed organizations, `since` says only that there are many. An import makes fewer between two looks
 * of a gateway, and reading this many takes some milliseconds.
 */
export const MOST_CHANGES = 5000
