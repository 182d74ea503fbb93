/**
 * The admin API for what no customer may do: organizations and plans. Its token reaches all of them, so staff/ and what
 * the console does by itself alone may import this file; `npm run check` refuses it elsewhere.
 */
import type { ConsoleConfig } from '../config.ts'
import {
  type AuditEntry,
  GatewayRefused,
  type Organization,
  type SendRequest,
  sender,
  tokenOfFile,
} from '../gateway.ts'

export interface OrganizationRow {
  id: string
  place: 'file' | 'store'
  version: number | null
  plan: string
  status: string
  keys: number
}

/** Somebody has spent so much of a spend limit. */
export interface SpendNotice {
  id: string
  /** Unix ms. */
  time: number
  organization: string
  /** Null where the limit is the organization's. */
  key: string | null
  /** Null where the limit is for all models. */
  model: string | null
  period: 'day' | 'month'
  /** ISO 8601. */
  period_start: string
  percent: 50 | 80 | 100
  limit_nano_usd: number
  spent_nano_usd: number
}

/** Tries again where somebody else has changed the organization meanwhile. */
const ATTEMPTS = 5

export class StaffGateway {
  readonly #send: SendRequest
  readonly #headers: Record<string, string>

  /**
   * @param actor who is named in the audit: `user:ID`, or what of the console acts, such as `console:tiers`
   * @param organization for what a customer does: the gateway then refuses every request about another one
   */
  constructor({ gateway }: Pick<ConsoleConfig, 'gateway'>, actor: string, organization?: string) {
    const { admin, staff_token, token_file } = gateway
    this.#send = sender(admin, token_file === undefined ? () => staff_token! : tokenOfFile(token_file, Date.now))
    this.#headers = { 'sluice-actor': actor, ...(organization !== undefined && { 'sluice-act-for': organization }) }
  }

  #ask(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
    return this.#send({
      ...{ method, path, headers: { ...this.#headers, ...headers } },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
  }

  /** A page of all organizations of the gateway, by id. @param query `after`, `find`, `limit` */
  async organizations(
    query: Record<string, string>,
  ): Promise<{ organizations: OrganizationRow[]; next: string | null }> {
    return (await this.#ask('GET', `organizations?${new URLSearchParams(query)}`)).body
  }

  async organization(id: string): Promise<{ organization: Organization; etag: string | null }> {
    const { body, etag } = await this.#ask('GET', pathOf(id))
    return { organization: body, etag }
  }

  /** Makes an organization; one that was made with the same members is found made. */
  async create(id: string, members: Record<string, unknown>): Promise<void> {
    await this.#ask('POST', 'organizations', { id, ...members })
  }

  /**
   * Changes members of an organization.
   * @param patchOf makes the merge patch of what it is now; null leaves it. It is called again when somebody was
   * faster.
   */
  async change(id: string, patchOf: (now: Organization) => Record<string, unknown> | null): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const { organization, etag } = await this.organization(id)
      const patch = patchOf(organization)
      if (patch === null) return
      try {
        await this.#ask('PATCH', pathOf(id), patch, etag === null ? {} : { 'if-match': etag })
        return
      } catch (error) {
        const faster = error instanceof GatewayRefused && error.status === 412
        if (!faster || attempt === ATTEMPTS) throw error
      }
    }
  }

  /** Disables an organization at once; it is removed after 30 days. */
  async delete(id: string): Promise<void> {
    await this.#ask('DELETE', pathOf(id))
  }

  /** Adds to the balance of a prepaid organization, or takes back; one with the same id is found given. */
  async credit(organization: string, credit: { id: string; amount_usd: string; note: string }): Promise<void> {
    await this.#ask('POST', `${pathOf(organization)}/credits`, credit)
  }

  /**
   * Use by the ledger.
   * @param query `since`, `until`, `group_by` of the admin API
   * @param organization this one alone
   */
  async usage(query: Record<string, string>, organization?: string): Promise<any[]> {
    const of = organization === undefined ? '' : `${pathOf(organization)}/`
    return (await this.#ask('GET', `${of}usage?${new URLSearchParams(query)}`)).body.usage
  }

  /** Notices of spend limits, in the order in which they were posted. */
  async notices(query: Record<string, string>): Promise<{ notices: SpendNotice[]; next: string }> {
    return (await this.#ask('GET', `notices?${new URLSearchParams(query)}`)).body
  }

  /** The plans that the gateway has, with their limits as gateway.yaml writes them. */
  async plans(): Promise<{ id: string; limits: Record<string, number | string> }[]> {
    return (await this.#ask('GET', 'plans')).body.plans
  }

  async audit(query: Record<string, string>): Promise<{ entries: AuditEntry[]; next: string | null }> {
    return (await this.#ask('GET', `audit?${new URLSearchParams(query)}`)).body
  }
}

const pathOf = (id: string) => `organizations/${encodeURIComponent(id)}`
