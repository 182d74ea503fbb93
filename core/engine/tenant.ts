/**
 * Who shares in what the process has: its tenants. A tenant is an organization, and while the organization of a client
 * is not known, the address of that client. A credential that nobody has checked is taken for its organization only
 * where the process has it in memory; otherwise a caller could choose a tenant of its own for each request.
 */

import { hash } from 'node:crypto'
import type { Incoming } from '../ports/listener.ts'
import { appendAll } from '../tools/append.ts'
import type { Clock } from '../tools/clock.ts'

/** Addresses that are tenants of their own within a second. All further ones are one tenant. */
const MOST_ADDRESSES = 10_000
const PERIOD_MS = 1000
/** No organization has such an id. */
const ADDRESS = '@'
/** Credentials that are remembered because a plugin found their organization, and for how long (ms). */
const MOST_LEARNED = 10_000
const LEARNED_MS = 60_000

/** The tenants of requests that no plugin has looked at yet. */
export class Tenants {
  readonly #known: (credential: string) => string | undefined
  readonly #clock: Clock
  /** The addresses of the present second. */
  readonly #addresses = new Set<string>()
  #until = Number.NEGATIVE_INFINITY
  /** By digest; the oldest come first. */
  readonly #learned = new Map<string, { organization: string; until: number }>()

  /** @param known the organization of a credential that is in memory. It must not ask a store. */
  constructor(known: (credential: string) => string | undefined, clock: Clock) {
    this.#known = known
    this.#clock = clock
  }

  /** The tenant of a request, the same each time. */
  of(incoming: Incoming): string {
    return (incoming.tenant ??= this.#organizationOf(incoming) ?? this.#addressOf(incoming))
  }

  /**
   * A plugin has found the organization of a request. For a minute its credential stands for this organization: a token
   * that a plugin checks in the place of `auth` is not in the directory of accounts.
   */
  learn(incoming: Incoming, organization: string): void {
    if (incoming.tenant === organization) return
    const credential = credentialOf(incoming)
    if (credential === undefined) return
    const digest = hash('sha256', credential, 'hex')
    this.#learned.delete(digest)
    if (this.#learned.size >= MOST_LEARNED) this.#learned.delete(this.#learned.keys().next().value!)
    this.#learned.set(digest, { organization, until: this.#clock.mono() + LEARNED_MS })
  }

  #organizationOf(incoming: Incoming): string | undefined {
    const credential = credentialOf(incoming)
    if (credential === undefined) return undefined
    const organization = this.#known(credential)
    if (organization !== undefined || this.#learned.size === 0) return organization
    const learned = this.#learned.get(hash('sha256', credential, 'hex'))
    return learned && this.#clock.mono() < learned.until ? learned.organization : undefined
  }

  #addressOf({ remoteAddress }: Incoming): string {
    const tenant = addressTenant(remoteAddress)
    const now = this.#clock.mono()
    if (now >= this.#until) {
      this.#addresses.clear()
      this.#until = now + PERIOD_MS
    }
    if (this.#addresses.size >= MOST_ADDRESSES && !this.#addresses.has(tenant)) return ADDRESS
    this.#addresses.add(tenant)
    return tenant
  }
}

/** The tenant of a client whose organization is not known. */
export function clientTenant(client: Pick<Incoming, 'tenant' | 'remoteAddress'>): string {
  return client.tenant ?? addressTenant(client.remoteAddress)
}

/** The address that a tenant is, or the network of an IPv6 address; '' for an organization. */
export const addressOf = (tenant: string): string => (tenant.startsWith(ADDRESS) ? tenant.slice(ADDRESS.length) : '')

/**
 * The tenant of an address. Of an IPv6 address only the first 64 bits count: whoever has one address of such a network
 * has all of them.
 * @param address in canonical form, as listeners give it
 */
export function addressTenant(address: string): string {
  if (!address.includes(':')) return ADDRESS + address
  const [head, tail] = address.split('::') as [string, string?]
  const groups = head === '' ? [] : head.split(':')
  if (tail !== undefined) {
    const rest = tail === '' ? [] : tail.split(':')
    while (groups.length + rest.length < 8) groups.push('0')
    appendAll(groups, rest)
  }
  return `${ADDRESS}${groups.slice(0, 4).join(':')}::/64`
}

/** The text behind `Bearer `, or behind another word of six letters; else `x-api-key`. */
function credentialOf({ headers }: Incoming): string | undefined {
  const authorization = headers.get('authorization')
  if (authorization === undefined) return headers.get('x-api-key')
  return authorization.charCodeAt(6) === 0x20 ? authorization.slice(7).trim() : undefined
}
