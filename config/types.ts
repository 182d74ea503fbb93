/**
 * gateway.yaml after loading: names as in the file (snake_case), durations in milliseconds, sizes in bytes, `${ENV}`
 * expanded, `{ file }` sections read in, defaults filled, built-in plans merged, references checked. Only
 * config/load.ts makes it.
 *
 * The types of the sections follow from the schemas. This file has what loading adds and changes.
 */

import type { LimitName } from '../core/canon/limits.ts'
import type { Price } from '../core/canon/money.ts'
import type { PipelineEntry, Position } from '../core/engine/chain.ts'
import type { AuditBounds } from '../core/ports/accounts.ts'
import type { Backend } from '../core/ports/dialect.ts'
import type { Arrives } from '../core/tools/vocabulary.ts'
import type {
  ACCOUNT_CAPABILITIES,
  ACTIONS,
  key,
  model,
  organization,
  plan,
  provider,
  route,
  Sections,
  server,
} from './schema.ts'

export interface GatewayConfig extends Omit<Sections, 'server' | 'store' | 'plugins' | 'retired' | 'receipts'> {
  /** Absolute paths of the main file and of every file that it includes; all are watched. */
  files: string[]
  server: ServerConfig
  store: Exclude<Sections['store'], string>
  pipelines: Record<string, PipelineEntry[]>
  routes: RouteConfig[]
  /** Absolute paths of the plugin files that are loaded. */
  plugins: { path: string; at: Position }[]
  providers: Record<string, ProviderConfig>
  models: Record<string, ModelConfig>
  plans: Record<string, PlanConfig>
  organizations: Record<string, OrganizationConfig>
  retired: RetiredConfig
  receipts: ReceiptsConfig
}

/** Where the keys of receipts are. */
export interface ReceiptsConfig {
  /** Absolute path; null where there is none: the keys are those of the list, or are made in memory. */
  folder: string | null
  /** PEM; the first one signs. Empty: those of the folder. */
  keys: string[]
  /** What cannot work: gateways that share this store would have keys of their own. Null: all is well. */
  fault: string | null
}

/** Plans and models that are taken away from accounts of the store on purpose. */
export interface RetiredConfig {
  plans: string[]
  models: string[]
  /** Where the sections of plans and models stand, for faults about what is missing there. */
  at: { plans: Position; models: Position }
}

export interface ServerConfig extends Omit<Arrives<typeof server>, 'listen' | 'admin' | 'workers'> {
  listen: { host: string; port: number }
  admin: AdminConfig
  /** `auto` is the number of cores. */
  workers: number
}

export interface AdminConfig {
  host: string
  port: number
  token?: string
  /** Absolute path of the file of the local token. */
  localToken?: string
  hosts: readonly string[]
  /** `sha256` in lower case. */
  tokens: readonly AdminToken[]
  audit: AuditBounds
}

export interface AdminToken {
  name: string
  role: 'read' | 'operate'
  sha256: string
  acts_for: 'optional' | 'required'
  actions?: (typeof ACTIONS)[number][]
}

export interface RouteConfig extends Omit<Arrives<typeof route>, 'match'> {
  /** GET, POST, …, or ANY. */
  method: string
  path: string
  at: Position
}

type AuthMembers = Exclude<Arrives<typeof provider>['auth'], string | undefined>

/** The settings of a vendor's way to authenticate, with absolute paths; `providers/auth/` authenticates with them. */
export type VendorAuth =
  | ({ kind: 'aws' } & NonNullable<AuthMembers['aws']> & { region: string })
  | ({ kind: 'google' } & NonNullable<AuthMembers['google']>)
  | ({ kind: 'azure' } & NonNullable<AuthMembers['azure']>)

/** When a gateway is built, cli/assembly.ts replaces `base_url: simulator` by the address of the running simulator. */
export interface ProviderConfig extends Omit<Arrives<typeof provider>, 'auth'> {
  name: string
  dialectLoad?: Backend['dialectLoad']
  /** The header that carries `api_key`, where it is not the dialect's own. */
  key_header: Backend['keyHeader']
  /** The dialects' own settings of the entry. */
  settings: Backend['settings']['provider']
  /** What authenticates in place of a key; null when a key does. */
  auth: VendorAuth | null
  at: Position
}

export interface ModelConfig extends Omit<Arrives<typeof model>, 'backends' | 'price'> {
  id: string
  price: Price | null
  backends: Backend[]
  at: Position
}

/**
 * `null` is unlimited. Rates are in units per window; `…_usd` is in whole nano-USD (1e-9 USD), of which a safe integer
 * (below 2^53) holds up to $9,007,199.
 */
export type Limits = Record<LimitName, number | null>

export type AccountCapability = (typeof ACCOUNT_CAPABILITIES)[number]

export interface PlanConfig extends Omit<Arrives<typeof plan>, 'limits' | 'prices'> {
  limits: Limits
  prices?: Record<string, Price>
}

/** Rights and limits are the plan's, with this organization's own differences applied (wider or narrower). */
export interface OrganizationConfig
  extends Required<
    Omit<Arrives<typeof organization>, 'limits' | 'user_limits' | 'keys' | 'name' | 'metadata' | 'prices' | 'raises'>
  > {
  id: string
  name?: string
  metadata?: Record<string, string>
  /** Those of the plan, with its own in their place; absent when there is none. */
  prices?: Record<string, Price>
  /** Absent when there is none. */
  raises?: Arrives<typeof organization>['raises']
  /** Of each end user of each of its keys; absent when there is none. */
  user_limits?: Partial<Limits>
  limits: Limits
  keys: KeyConfig[]
  /** The sum of its credits in nano-USD; left out for 0. Only organizations of the store have credits. */
  credited?: number
}

/**
 * `sha256` is in lower case. The limits are those of the key alone; the limits of its organization are enforced as
 * well.
 */
export type KeyConfig = Required<Omit<Key, ForPeople | 'user_limits'>> & Pick<Key, ForPeople | 'user_limits'>
type Key = Arrives<typeof key>
/** What the gateway ignores. `created` is Unix ms. */
type ForPeople = 'label' | 'hint' | 'creator' | 'created'

declare module '../core/plugin.ts' {
  interface Configuration extends GatewayConfig {}
}
