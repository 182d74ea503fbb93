/**
 * gateway.yaml after loading: names as in the file (snake_case), durations in milliseconds, sizes in bytes, `${ENV}` expanded, `{ file }` sections
 * read in, defaults filled, built-in plans merged, references checked. `config/load.ts` makes it; nothing else does.
 */

import type { PipelineEntry, Position } from '../core/chain.ts'
import type { Effort, SurfaceName } from '../core/conversation.ts'
import type { Backend, DialectName } from '../core/dialect.ts'

export interface GatewayConfig {
  version: 1
  /** The main file and every file it includes, absolute; all are watched. */
  files: string[]
  server: ServerConfig
  store: { url: string; timeout: number }
  secret: string
  pipelines: Record<string, PipelineEntry[]>
  routes: RouteConfig[]
  /** Absolute paths of plugin files. */
  plugins: { path: string; at: Position }[]
  providers: Record<string, ProviderConfig>
  models: Record<string, ModelConfig>
  price_book: string
  web_search: {
    /** `simulator`, a name of `providers`, or a plugin that registers a search provider. Null: the gateway runs no searches. */
    provider: string | null
    /** Most rounds of searches for one request. */
    max_turns: number
    /** Of the simulated web: set by the composition root. */
    base_url?: string
  }
  media: { fetch: string[]; max_bytes: number; timeout: number }
  stream_limits: Record<'minimal' | 'medium' | 'high' | 'xhigh' | 'max', { idle: number; ceiling: number }>
  platform: { max_concurrent_requests: number; compress_above: number }
  plans: Record<string, PlanConfig>
  organizations: Record<string, OrganizationConfig>
  ledger: { keep: number | null }
  log: { level: string; bodies: boolean }
}

export interface ServerConfig {
  listen: { host: string; port: number }
  admin: { host: string; port: number; token?: string }
  listener: 'uws' | 'node'
  /** Resolved: `auto` is the number of cores. */
  workers: number
  drain: number
  keep_alive: number
  websocket: 'on' | 'off'
  stall_timeout: number
  max_connections: number
  trust_proxy: string[]
  tls: { cert: string; key: string } | null
}

export interface RouteConfig {
  /** GET, POST, …, or ANY. */
  method: string
  path: string
  surface?: SurfaceName
  pipeline: string
  at: Position
}

export interface ProviderConfig {
  name: string
  dialect: DialectName
  /** `simulator` is resolved to the running simulator's address by the composition root. */
  base_url: string
  api_key?: string
  headers: Record<string, string>
  max_connections: number
  queue: { max: number; wait: number }
  http2: boolean
  tls: { ca?: string; cert?: string; key?: string } | null
  proxy: string | null
  at: Position
}

export interface ModelConfig {
  id: string
  aliases: string[]
  listed: boolean
  context_window: number
  max_output_tokens: number | null
  /**
   * pico-USD (1e-12 USD) per token, whole numbers: 1 USD per million tokens is 1 000 000, so six decimals of a price are exact. An exchange's cost is
   * summed in pico-USD and rounded half up to nano-USD once. Null cannot be priced (BILL-2).
   */
  price: { input: number; output: number } | null
  effort_ceiling: Effort | null
  default_stream_row: 'minimal' | 'medium' | 'high' | 'xhigh' | 'max'
  on_client_gone: 'cancel' | 'drain'
  backends: Backend[]
  at: Position
}

/** `null` is unlimited. Rates in units per window; `…_usd` in whole nano-USD (1e-9 USD: 2^53 of them are $9,007,199). */
export interface Limits {
  requests_per_minute: number | null
  requests_per_day: number | null
  tokens_per_minute: number | null
  tokens_per_day: number | null
  input_tokens_per_minute: number | null
  input_tokens_per_day: number | null
  output_tokens_per_minute: number | null
  output_tokens_per_day: number | null
  concurrent_requests: number | null
  max_input_tokens: number | null
  max_output_tokens: number | null
  max_request_tokens: number | null
  max_request_usd: number | null
  daily_spend_usd: number | null
  monthly_spend_usd: number | null
}

export type AccountCapability = 'images' | 'documents' | 'reasoning' | 'tools' | 'web_search'

export interface PlanConfig {
  models: 'all' | string[]
  capabilities: 'all' | AccountCapability[]
  streaming: boolean
  active_keys: number | null
  limits: Limits
  model_limits: Record<string, Partial<Limits>>
}

export interface OrganizationConfig {
  id: string
  plan: string
  billing: 'standard' | 'free'
  /** The plan's, with this organization's own differences applied (wider or narrower, decisions 20). */
  models: 'all' | string[]
  capabilities: 'all' | AccountCapability[]
  streaming: boolean
  limits: Limits
  model_limits: Record<string, Partial<Limits>>
  keys: KeyConfig[]
}

export interface KeyConfig {
  id: string
  /** Lower-case hex SHA-256 of the secret. */
  sha256: string
  status: 'active' | 'staged' | 'revoked'
  models: 'all' | string[]
  capabilities: 'all' | AccountCapability[]
  streaming: boolean
  /** Only what the key itself narrows; both scopes are enforced (AUTH-4). */
  limits: Partial<Limits>
  model_limits: Record<string, Partial<Limits>>
}
