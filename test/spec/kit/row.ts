/** The form of a row of the specification's table, and the lists of rows that make the table. */
import type { World } from './world.ts'

/** Limits and rights of an organization of a row, as they stand in gateway.yaml, and what its key narrows. */
export interface Account {
  plan?: string
  billing?: 'standard' | 'free'
  models?: readonly string[]
  capabilities?: readonly string[]
  streaming?: boolean
  limits?: Record<string, number>
  model_limits?: Record<string, Record<string, number>>
  /** Members of the key's entry: `models`, `limits`, `status` and so on. */
  key?: Record<string, unknown>
}

/** Gateways of configurations of their own. `main` has every limit with the accounts alone. See `gateways.ts`. */
export type Where = 'main' | 'loaded' | 'guarded' | 'ending' | 'quickstart' | 'compose'

export interface Row {
  /** Where the sentence stands within its section: the number of a rule, or the table and its row. */
  at: string
  /** The sentence in a few words of our own. */
  says: string
  /**
   * Shows that the sentence holds. @returns the evidence, in a few words; throws when it does not hold.
   * Absent where `beyond` says why it cannot be seen from outside.
   */
  check?: (w: World) => Promise<string>
  beyond?: string
  /** What builds the sentence later. The row must not hold until then. */
  later?: 'accounts' | 'console' | 'agents'
  /** The organization whose key the row's requests carry. Default: one without any limit, which rows share. */
  account?: Account
  /** Further organizations by a name of their own; `w.key(name)` is the key of one. */
  accounts?: Record<string, Account>
  /** Default `main`. */
  gateway?: Where
  /** The row waits for a real clock, up to 90 s: it stands in the long test. */
  long?: true
}

export interface Section {
  title: string
  rows: readonly Row[]
}

/** A row with its id, which is the section's word and the row's place in it. */
export interface Placed extends Row {
  id: string
  section: string
}

/** @param word of the ids of the section's rows */
export function section(title: string, word: string, rows: readonly Row[]): readonly Placed[] {
  return rows.map((row, i) => ({ ...row, id: `${word}-${i + 1}`, section: title }))
}
