/**
 * The admin API of the gateway, as the console's pages use it: one client for each request, bound to one organization
 * and one person. Every request says whose it is twice, in its path and in `Sluice-Act-For`, and the token is good for
 * requests with that header alone. So a page that forgets its check still reaches no second organization.
 *
 * What staff and tiers do needs another token: staff/gateway.ts.
 */
import { readFileSync } from 'node:fs'

/** The gateway, or its store, does not answer. Nothing is known of what it did. */
export class GatewayDown extends Error {}

/** The gateway refused: its status, its word for programs, and its words for people. */
export class GatewayRefused extends Error {
  readonly status: number
  readonly code: string
  constructor(status: number, code: string, message: string) {
    super(message)
    this.status = status
    this.code = code
  }
}

export interface GatewayAnswer {
  status: number
  body: any
  etag: string | null
}

/** How a request reaches the admin API. A test puts another in its place. */
export type SendRequest = (request: {
  method: string
  /** Behind /api/v1/, with its query. */
  path: string
  headers: Record<string, string>
  body?: string
}) => Promise<GatewayAnswer>

/** How long the gateway may take. */
const TIMEOUT_MS = 10_000

/** Sends requests to a gateway at `admin`, with the token that `token` gives. */
export function sender(admin: string, token: () => string): SendRequest {
  return async ({ method, path, headers, body }) => {
    let response: Response
    let text: string
    try {
      response = await fetch(`${admin}/api/v1/${path}`, {
        method,
        headers: {
          authorization: `Bearer ${token()}`,
          ...headers,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        signal: AbortSignal.timeout(TIMEOUT_MS),
        redirect: 'error',
        ...(body === undefined ? {} : { body }),
      })
      text = await response.text()
    } catch (error) {
      throw new GatewayDown(`the gateway does not answer: ${(error as Error).message}`)
    }
    let answer: any
    try {
      answer = JSON.parse(text)
    } catch {
      answer = {}
    }
    if (response.ok) return { status: response.status, body: answer, etag: response.headers.get('etag') }
    const { code = '', message = text.trim() } = answer.error ?? {}
    if (response.status >= 500) throw new GatewayDown(message || `the gateway answered ${response.status}`)
    throw new GatewayRefused(response.status, code, message)
  }
}

/** The token of a file, which the gateway writes when it starts. It is read anew after some seconds. */
export function tokenOfFile(file: string, now: () => number): () => string {
  let read = { text: '', at: Number.NEGATIVE_INFINITY }
  return () => {
    if (now() - read.at < 5000) return read.text
    try {
      read = { text: readFileSync(file, 'utf8').trim(), at: now() }
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      const cure = code === 'ENOENT' ? ': start it with `npm start`' : ''
      throw new Error(`${file} cannot be read (${code}); the gateway writes it when it starts with local_token${cure}`)
    }
    return read.text
  }
}

export interface Limit {
  model?: string
  dimension: string
  per: 'minute' | 'day' | 'month' | ''
  capacity: number
  used: number
  /** USD as decimal text; set for limits of money. */
  capacity_usd?: string
  used_usd?: string
}

export interface Key {
  id: string
  status: 'active' | 'staged' | 'revoked'
  /** ISO 8601. */
  expires: string | null
  models: 'all' | string[]
  capabilities: 'all' | string[]
  streaming: boolean
  label: string | null
  /** The last characters of the secret. */
  hint: string | null
  creator: string | null
  created: string | null
  /** When the hour began in which it was last used; ISO 8601. */
  last_used: string | null
  settings: Record<string, any> | null
  limits?: Limit[]
}

export interface Organization {
  id: string
  place: 'file' | 'store'
  version: number | null
  plan: string
  status: string
  name: string | null
  leaves: string | null
  faults: string[]
  billing: string | null
  limits: Limit[]
  spend_usd: { day: string; month: string } | null
  /** Of prepaid organizations. */
  balance: { credited_nano_usd: number; billed_nano_usd: number; left_nano_usd: number } | null
  keys: Key[]
}

/**
 * A sum of the ledger, by the groups that were asked for. The gateway tells more, such as what providers charge, which
 * is no customer's business: a page takes what is named here.
 */
export interface UsageSum {
  day?: string
  month?: string
  model?: string
  key?: string
  tag?: string
  requests: number
  input: number
  /** Of the input. */
  cached: number
  cache_write: number
  output: number
  reasoning: number
  searches: number
  /** Nano-USD. */
  cost: number
  cost_usd: string
}

/** A row of the ledger, as far as it is a customer's business. */
export interface LedgerRow {
  request_id: string
  /** Unix ms. */
  time: number
  key_id: string
  model: string
  outcome: string
  /** Of the error with which it ended; '' where it ended well. */
  code: string
  input: number
  /** Of the input. */
  cached: number
  output: number
  cost_usd: string
  duration_ms: number
}

export interface AuditEntry {
  id: string
  time: number
  by: string
  actor?: string
  address: string
  operation: string
  organization: string
  key: string
  before: unknown
  after: unknown
}

const PERSON = 'user:'

/** The id of the person whom the gateway knows as an actor or a creator; null for others. */
export const personOf = (actor: string | null | undefined): string | null =>
  actor?.startsWith(PERSON) ? actor.slice(PERSON.length) : null

export class Gateway {
  readonly #send: SendRequest
  readonly #organization: string
  readonly #person: string

  constructor(send: SendRequest, organization: string, person: string) {
    this.#send = send
    this.#organization = organization
    this.#person = person
  }

  /** @param path below the organization; '' is the organization itself */
  async #ask(method: string, path: string, body?: unknown, more: Record<string, string> = {}): Promise<GatewayAnswer> {
    return this.#send({
      method,
      path: `organizations/${encodeURIComponent(this.#organization)}${path}`,
      headers: { 'sluice-act-for': this.#organization, 'sluice-actor': `${PERSON}${this.#person}`, ...more },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  }

  /** The organization with its limits as they stand now, its spend and its keys. */
  async organization(): Promise<Organization> {
    return (await this.#ask('GET', '')).body
  }

  async keys(): Promise<Key[]> {
    return (await this.#ask('GET', '/keys')).body.keys
  }

  /** A key with its limits as they stand now. */
  async key(id: string): Promise<Key> {
    return (await this.#ask('GET', keyPath(id))).body
  }

  /** Makes a key. @returns its secret; null when a request before this one has made it */
  async createKey(id: string, members: Record<string, unknown>): Promise<string | null> {
    return (await this.#ask('POST', '/keys', { id, ...members })).body.secret ?? null
  }

  /** Changes members of a key by a merge patch: null takes one away. */
  async changeKey(id: string, patch: Record<string, unknown>): Promise<void> {
    await this.#ask('PATCH', keyPath(id), patch)
  }

  /** Makes a key in place of one, which ends after `grace`. @returns as createKey */
  async rotateKey(id: string, replacement: string, grace: string): Promise<string | null> {
    return (await this.#ask('POST', `${keyPath(id)}/rotate`, { id: replacement, grace })).body.secret ?? null
  }

  async revokeKey(id: string): Promise<void> {
    await this.#ask('POST', `${keyPath(id)}/revoke`, {})
  }

  /** A staged key becomes an active one. */
  async activateKey(id: string): Promise<void> {
    await this.#ask('POST', `${keyPath(id)}/activate`, {})
  }

  async deleteKey(id: string): Promise<void> {
    await this.#ask('DELETE', keyPath(id))
  }

  /** Use by the ledger. @param query `since`, `until`, `group_by`, … of the admin API */
  async usage(query: Record<string, string>): Promise<UsageSum[]> {
    return (await this.#ask('GET', `/usage?${new URLSearchParams(query)}`)).body.usage
  }

  /** Rows of the ledger, the latest first. */
  async rows(query: Record<string, string>): Promise<{ rows: LedgerRow[]; next: string | null }> {
    return (await this.#ask('GET', `/rows?${new URLSearchParams(query)}`)).body
  }

  /** Who changed what, the latest first. */
  async audit(query: Record<string, string>): Promise<{ entries: AuditEntry[]; next: string | null }> {
    return (await this.#ask('GET', `/audit?${new URLSearchParams(query)}`)).body
  }
}

const keyPath = (id: string) => `/keys/${encodeURIComponent(id)}`
