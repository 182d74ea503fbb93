/** Which people belong to which organizations, and as what. */
import type { Database, InvitationTable } from '../db/tables.ts'
import type { Role } from './roles.ts'
import { newId } from './secrets.ts'

export interface Membership {
  /** The gateway's id of the organization. */
  id: string
  name: string
  role: Role
}

const INVITATION_LIFE_MS = 7 * 86_400_000

/** The organizations of a person, by name. */
export function membershipsOf(db: Database, person: string): Promise<Membership[]> {
  return db
    .selectFrom('member')
    .innerJoin('organization', 'organization.id', 'member.organization')
    .select(['organization.id', 'organization.name', 'member.role'])
    .where('member.person', '=', person)
    .where('organization.deleted', 'is', null)
    .orderBy('organization.name')
    .execute()
}

export interface Member {
  person: string
  role: Role
  created: number
  email: string
  name: string
}

export function membersOf(db: Database, organization: string): Promise<Member[]> {
  return db
    .selectFrom('member')
    .innerJoin('person', 'person.id', 'member.person')
    .select(['member.person', 'member.role', 'member.created', 'person.email', 'person.name'])
    .where('member.organization', '=', organization)
    .orderBy('person.email')
    .execute()
}

/** Makes a person a member; who is one keeps the role. */
export async function addMember(db: Database, organization: string, person: string, role: Role, now: number) {
  await db
    .insertInto('member')
    .values({ organization, person, role, created: now })
    .onConflict(conflict => conflict.columns(['organization', 'person']).doNothing())
    .execute()
}

/** Thrown where no owner would be left. */
export class LastOwner extends Error {
  readonly organization: string
  constructor(organization: string) {
    super(`${organization} needs an owner`)
    this.organization = organization
  }
}

/** @throws LastOwner when an organization would have no owner without a person. Give a transaction. */
export async function keepAnOwner(step: Database, organization: string, person: string): Promise<void> {
  // The organization's row is the lock: two owners who leave at the same time do so one after the other.
  await step
    .updateTable('organization')
    .set(eb => ({ name: eb.ref('name') }))
    .where('id', '=', organization)
    .execute()
  const owners = await step
    .selectFrom('member')
    .select('person')
    .where('organization', '=', organization)
    .where('role', '=', 'owner')
    .execute()
  if (owners.length === 1 && owners[0]!.person === person) throw new LastOwner(organization)
}

/**
 * Gives a member another role, or takes the membership away (null).
 * @returns whether there was such a member
 * @throws LastOwner when no owner would be left
 */
export function setRole(db: Database, organization: string, person: string, role: Role | null): Promise<boolean> {
  return db.transaction().execute(async step => {
    if (role !== 'owner') await keepAnOwner(step, organization, person)
    const which = { organization, person }
    const changed =
      role === null
        ? await step
            .deleteFrom('member')
            .where(eb => eb.and(which))
            .returning('person')
            .execute()
        : await step
            .updateTable('member')
            .set({ role })
            .where(eb => eb.and(which))
            .returning('person')
            .execute()
    return changed.length > 0
  })
}

/** Makes an invitation. One for the same address and organization that is open ends. */
export function invite(
  db: Database,
  invitation: Pick<InvitationTable, 'email' | 'organization' | 'role' | 'inviter'>,
  now: number,
): Promise<void> {
  const { email, organization } = invitation
  return db.transaction().execute(async step => {
    await step
      .updateTable('invitation')
      .set({ ended: now })
      .where('email', '=', email)
      .where('organization', organization === null ? 'is' : '=', organization)
      .where('ended', 'is', null)
      .execute()
    await step
      .insertInto('invitation')
      .values({ ...invitation, id: newId(now), created: now, expires: now + INVITATION_LIFE_MS, ended: null })
      .execute()
  })
}

const open = (db: Database, now: number) =>
  db.selectFrom('invitation').selectAll().where('ended', 'is', null).where('expires', '>', now)

/** Open invitations of an organization; null: those to open one's own. */
export function openInvitations(db: Database, organization: string | null, now: number): Promise<InvitationTable[]> {
  const of = open(db, now).where('organization', organization === null ? 'is' : '=', organization)
  return of.orderBy('created', 'desc').limit(200).execute()
}

/** Open invitations of an address, with the name of the organization. */
export function invitationsOf(db: Database, email: string, now: number) {
  return db
    .selectFrom('invitation')
    .leftJoin('organization', 'organization.id', 'invitation.organization')
    .select(['invitation.id', 'invitation.organization', 'invitation.role', 'organization.name'])
    .where('invitation.email', '=', email)
    .where('invitation.ended', 'is', null)
    .where('invitation.expires', '>', now)
    .where('organization.deleted', 'is', null)
    .orderBy('invitation.created')
    .limit(50)
    .execute()
}

/** Ends an open invitation of an address or of an organization. @returns it; null when it had ended. */
export async function endInvitation(
  db: Database,
  id: string,
  whose: { email: string } | { organization: string | null },
  now: number,
): Promise<InvitationTable | null> {
  const all = db.updateTable('invitation').set({ ended: now }).where('id', '=', id).where('ended', 'is', null)
  const of =
    'email' in whose
      ? all.where('email', '=', whose.email)
      : all.where('organization', whose.organization === null ? 'is' : '=', whose.organization)
  return (await of.where('expires', '>', now).returningAll().executeTakeFirst()) ?? null
}
