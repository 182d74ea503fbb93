/**
 * The admin API for what no customer may do: organizations and plans. Its token reaches all of them, so staff/ and the
 * tiers alone may import this file; `npm run check` refuses it elsewhere.
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

/** Tries again where somebody else has changed the organization meanwhile. */
const ATTEMPTS = 5

export class StaffGateway {
  readonly #send: SendRequest
  readonly #actor: string

  /** @param actor who is named in the audit: `user:ID`, or the part of the console that acts, such as `console:tiers` */
  constructor({ gateway }: Pick<ConsoleConfig, 'gateway'>, actor: string) {
    const { admin, staff_token, token_file } = gateway
    this.#send = sender(admin, token_file === undefined ? () => staff_token! : tokenOfFile(token_file, Date.now))
    this.#actor = actor
  }

  #ask(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
    return this.#send({
      ...{ method, path, headers: { 'sluice-actor': this.#actor, ...headers } },
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
   * @param patchOf makes the merge patch of what it is now; null leaves it. It is called again when somebody was faster.
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

  async audit(query: Record<string, string>): Promise<{ entries: AuditEntry[]; next: string | null }> {
    return (await this.#ask('GET', `audit?${new URLSearchParams(query)}`)).body
  }
}

const pathOf = (id: string) => `organizations/${encodeURIComponent(id)}`
