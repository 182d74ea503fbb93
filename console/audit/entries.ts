/** What happened, of both sources: the console's events and the gateway's audit. */

import type { Database, EventTable } from '../db/tables.ts'
import type { AuditEntry } from '../gateway.ts'

/** A line of the page. */
export interface Entry {
  time: number
  /** Who did it, for people. */
  who: string
  what: string
  detail: string
  address: string
  source: 'gateway' | 'console'
  id: string
}

const ACTIONS: Record<string, string> = {
  'account.delete': 'deleted the account',
  'account.email': 'changed the address',
  'account.name': 'changed the name',
  'hold.lift': 'lifted the hold',
  'hold.set': 'set a hold',
  'member.decline': 'declined the invitation',
  'member.invite': 'invited',
  'member.join': 'joined',
  'member.remove': 'removed',
  'member.role': 'changed the role of',
  'member.uninvite': 'took back the invitation of',
  'organization.change': 'changed the organization',
  'organization.create': 'opened the organization',
  'organization.credit': 'credited',
  'organization.delete': 'deleted the organization',
  'organization.rename': 'renamed the organization',
  'passkey.add': 'added a passkey',
  'passkey.remove': 'removed a passkey',
  'payment.hand': 'added a payment',
  'payment.place': 'placed payments of',
  'review.granted': 'granted a tier',
  'review.refused': 'refused a tier for now',
  'key.activate': 'activated the key',
  'key.change': 'changed the key',
  'key.create': 'made the key',
  'key.delete': 'deleted the key',
  'key.revoke': 'revoked the key',
  'key.rotate': 'replaced a key by',
  'session.end': 'ended a session',
  'sign-in': 'signed in',
  'staff.add': 'made staff',
  'staff.invite': 'invited',
  'staff.remove': 'took from staff',
  'tier.move': 'changed the tier',
  'totp.off': 'turned the authenticator app off',
  'totp.on': 'turned the authenticator app on',
}

export const words = (action: string): string => ACTIONS[action] ?? action

/** The names of people by id; those who are gone are missing. */
export async function namesOf(db: Database, ids: readonly (string | null | undefined)[]) {
  const known = [...new Set(ids.filter(id => typeof id === 'string'))]
  if (known.length === 0) return new Map<string, { name: string; staff: boolean }>()
  const people = await db.selectFrom('person').select(['id', 'email', 'staff']).where('id', 'in', known).execute()
  return new Map(people.map(({ id, email, staff }) => [id, { name: email, staff: staff === 1 }]))
}

export function ofEvent({ id, time, person, action, detail, address }: EventTable, name: string): Entry {
  return {
    ...{ id, time, who: person === null ? 'the console' : name, detail, address },
    what: words(action),
    source: 'console',
  }
}

/** @param who the member who did it; null for anybody else, whose address is the operator's */
export function ofGateway({ id, time, operation, key, before, after }: AuditEntry, who: string | null): Entry {
  const changed = differences(before, after)
  return {
    ...{ id, time, what: words(operation), address: '', source: 'gateway', who: who ?? 'the operator' },
    detail: [key, operation.endsWith('.create') || operation.endsWith('.delete') ? '' : changed]
      .filter(Boolean)
      .join(': '),
  }
}

const HIDDEN = new Set(['sha256', 'keys', 'hint', 'creator', 'created'])

/** `plan: tier1 → tier2`, for the members that differ. */
function differences(before: unknown, after: unknown): string {
  const [old, now] = [before, after].map(
    one => (typeof one === 'object' && one !== null ? one : {}) as Record<string, unknown>,
  )
  const names = [...new Set([...Object.keys(old!), ...Object.keys(now!)])].filter(name => !HIDDEN.has(name))
  const text = (value: unknown) =>
    value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value)
  return names
    .filter(name => text(old![name]) !== text(now![name]))
    .map(name => `${name}: ${text(old![name])} → ${text(now![name])}`.slice(0, 160))
    .join('; ')
}
