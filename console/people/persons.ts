/** People: each is an address of mail. */
import type { Database, PersonTable } from '../db/tables.ts'
import { note } from './events.ts'
import { invitationsOf, keepAnOwner, membershipsOf } from './memberships.ts'
import { newId } from './secrets.ts'

export async function personByEmail(db: Database, email: string): Promise<PersonTable | null> {
  return (await db.selectFrom('person').selectAll().where('email', '=', email).executeTakeFirst()) ?? null
}

/** Who may become a person of this console: by invitation alone, unless it is open; before there is staff, nobody. */
export async function maySignUp(db: Database, email: string, signup: string, now: number): Promise<boolean> {
  if (signup === 'open') return someStaff(db)
  return (await invitationsOf(db, email, now)).length > 0
}

/** Makes a person, or finds the one with this address. */
export async function ensurePerson(
  db: Database,
  { email, name, staff = false }: { email: string; name?: string; staff?: boolean },
  now: number,
): Promise<PersonTable> {
  const person = {
    id: newId(now),
    email,
    name: name ?? '',
    staff: staff ? 1 : 0,
    totp: null,
    totp_step: 0,
    created: now,
  }
  await db
    .insertInto('person')
    .values(person)
    .onConflict(conflict => conflict.column('email').doNothing())
    .execute()
  await db.deleteFrom('waiting').where('email', '=', email).execute()
  return (await personByEmail(db, email))!
}

export async function someStaff(db: Database): Promise<boolean> {
  return (await db.selectFrom('person').select('id').where('staff', '=', 1).limit(1).executeTakeFirst()) !== undefined
}

/**
 * Takes a person out, with everything that is known of them. What they did stays, by an id that nobody has.
 * @throws LastOwner when an organization would have no owner; nothing has changed then
 */
export function deletePerson(db: Database, { id, email }: PersonTable, now: number): Promise<void> {
  return db.transaction().execute(async step => {
    // By their ids, so that two people with the same organizations do not wait for each other.
    const ids = (await membershipsOf(step, id)).map(one => one.id).sort()
    for (const organization of ids) await keepAnOwner(step, organization, id)
    for (const table of ['passkey', 'recovery_code', 'session', 'member', 'link', 'challenge', 'notice'] as const)
      await step.deleteFrom(table).where('person', '=', id).execute()
    await step.deleteFrom('link').where('email', '=', email).execute()
    await step.deleteFrom('invitation').where('email', '=', email).execute()
    await step.deleteFrom('person').where('id', '=', id).execute()
    await step.updateTable('event').set({ address: '', detail: '' }).where('person', '=', id).execute()
    // What others did with this address. LIKE takes some of its characters for others.
    const alike = await step
      .selectFrom('event')
      .select(['id', 'detail'])
      .where('detail', 'like', `%${email}%`)
      .execute()
    for (const one of alike)
      if (one.detail.includes(email))
        await step.updateTable('event').set({ detail: '' }).where('id', '=', one.id).execute()
    await note(step, { person: id, action: 'account.delete', address: '', now })
    for (const organization of ids)
      await note(step, { organization, person: id, action: 'member.leave', address: '', now })
  })
}
