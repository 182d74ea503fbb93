/** What happened, of both sources: the console's events and the gateway's audit. */

import type { Database, EventTable } from '../db/tables.ts'
import type { AuditEntry } from '../gateway.ts'
import { membersOf } from '../people/memberships.ts'

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
  'member.leave': 'left the organization',
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
  'staff.active': 'enabled the organization',
  'staff.add': 'made staff',
  'staff.disabled': 'disabled the organization',
  'staff.invite': 'invited',
  'staff.plan': 'changed the plan to',
  'staff.remove': 'took from staff',
  'tier.move': 'changed the tier',
  'totp.off': 'turned the authenticator app off',
  'totp.on': 'turned the authenticator app on',
  'usage.again': 'sent usage to the bill again',
  'usage.done': 'found usage on the bill',
  'usage.drop': 'took usage off the bill',
}

/** Who did something, as the members of an organization read it. */
export interface Actor {
  name: string
  /** Whether members may read where it was done from. */
  own: boolean
}

/** Staff is nobody whom a customer knows by name. */
export const OPERATOR: Actor = { name: 'the operator', own: false }
export const CONSOLE: Actor = { name: 'the console', own: false }
const FORMER: Actor = { name: 'a former member', own: true }

/** Those of `ids` who are members of an organization by their address; staff who is no member is the operator. */
export async function peopleOf(
  db: Database,
  organization: string,
  ids: readonly (string | null | undefined)[],
): Promise<(id: string) => Actor> {
  const asked = [...new Set(ids.filter(id => typeof id === 'string'))]
  const people =
    asked.length === 0
      ? []
      : await db.selectFrom('person').select(['id', 'email', 'staff']).where('id', 'in', asked).execute()
  const members = new Set((await membersOf(db, organization)).map(({ person }) => person))
  const actors = new Map(
    people.map(({ id, email, staff }): [string, Actor] => [
      id,
      members.has(id) || staff === 0 ? { name: email, own: true } : OPERATOR,
    ]),
  )
  return id => actors.get(id) ?? FORMER
}

export const ofEvent = ({ id, time, action, detail, address }: EventTable, { name, own }: Actor): Entry => ({
  ...{ id, time, who: name, what: ACTIONS[action] ?? action, detail },
  ...{ address: own ? address : '', source: 'console' },
})

/** The addresses in the gateway's audit are those of consoles and of the operator. */
export function ofGateway({ id, time, operation, key, before, after }: AuditEntry, { name }: Actor): Entry {
  const changed = /\.(create|delete)$/.test(operation) ? '' : differences(before, after)
  return {
    ...{ id, time, who: name, what: ACTIONS[operation] ?? operation, address: '', source: 'gateway' },
    detail: [key, changed].filter(Boolean).join(': '),
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
