/** What one end of `sluice store move` can do, the same for both engines, and the things that are carried. */
import type { Credit, OrganizationWithKeys } from '../../core/ports/accounts.ts'
import type { LedgerRow, Notice, UsageSum } from '../../core/ports/store.ts'
import type { MoveMark } from '../format.ts'
import type { NOT_TOLD } from '../usage.ts'

/**
 * What one organization has spent, and the levels of its buckets. Both are whole numbers, kept as they are. What the end
 * users of one of its keys have comes by itself.
 */
export interface Cells {
  organization: string
  /**
   * The present period of each cell: `number` counts days or months, `amount` is in nano-USD; of an end user also when he
   * was last admitted, Unix ms.
   */
  spend: { cell: string; period: 'day' | 'month'; number: number; amount: number; at?: number }[]
  /** `part` and `at` as in `Level` of limits/rules.ts. */
  levels: { cell: string; used: number; part: number; at: number }[]
}

/** What an organization was given, and what its prepaid rows cost: whole nano-USD. */
export interface Balance {
  organization: string
  billed: number
  credits: Credit[]
}

/** What the rows of one hour with one value of a tag used: `time` is when the hour began, Unix ms. */
export interface TaggedSum extends Omit<UsageSum, keyof typeof NOT_TOLD | 'tag'> {
  tag: string
  value: string
}

/** A reply of an idempotency key; `reply` is null when it is not kept. `expires`: Unix ms. */
export interface KeptReply {
  organization: string
  key: string
  fingerprint: string
  requestId: string
  /** `headers` is JSON; `asked` as in `IdempotencyRecord`, or null. */
  reply: { status: number; headers: string; body: Uint8Array; whole: boolean; asked: string | null } | null
  expires: number
}

/** A retained response or continuation data. `expires`: Unix ms. */
export interface KeptRecord {
  organization: string
  kind: string
  id: string
  value: Uint8Array
  expires: number
}

/** What is carried, in this order. */
export interface Carried {
  organizations: OrganizationWithKeys
  /** The id of a removed organization, or with `key` of a removed key. */
  gone: { organization: string; key: string }
  /** `entry` is the JSON of an `AuditNote`. */
  audit: { organization: string; entry: string }
  cells: Cells
  sums: UsageSum
  ledger: LedgerRow
  /** These two after the ledger, whose rows SQLite counts in them as they are written. */
  tagged: TaggedSum
  balances: Balance
  /** In the order in which they were posted. */
  notices: Notice
  idempotency: KeptReply
  records: KeptRecord
}
export type Kind = keyof Carried
export const KINDS: readonly Kind[] = [
  'organizations',
  'gone',
  'audit',
  'cells',
  'sums',
  'ledger',
  'tagged',
  'balances',
  'notices',
  'idempotency',
  'records',
]

/** Counts what is left behind on purpose, by what it is. */
export type Drop = (what: string, count?: number) => void

/** One store, which no gateway uses. */
export interface End {
  /** With its place, without secrets: `sqlite:/var/lib/sluice/gateway.db`. Two ends with one name are one store. */
  readonly name: string
  mark(): Promise<MoveMark | null>
  /**
   * Sets the store aside, or with null puts it into use again.
   * @throws StoreUnavailable when a gateway uses it; then nothing is changed
   */
  setMark(mark: MoveMark | null): Promise<void>
  /** What it holds, in words; null when it is empty. What a gateway that was only started leaves does not count. */
  content(): Promise<string | null>
  /** Removes everything but the mark. */
  clear(): Promise<void>
  /** The gateway's secret of 32 bytes; null when there is none. */
  secret(): Promise<Uint8Array | null>
  /** Begins to fill an empty store. */
  begin(secret: Uint8Array | null): Promise<void>
  /**
   * Everything of one kind, in batches of bounded size. A batch may hold something that an earlier one had.
   * @param now what has expired by then, and periods that are over, are left out (Unix ms)
   */
  read<K extends Kind>(kind: K, now: number, drop: Drop): AsyncIterable<Carried[K][]>
  /** @returns those that were not there yet */
  write<K extends Kind>(kind: K, items: readonly Carried[K][]): Promise<Carried[K][]>
  /** What a change by a command beside the move would change, such as by a long `sluice org import`. */
  state(): Promise<string>
  /** Ends the filling. */
  finish(): Promise<void>
  close(): Promise<void>
}
