/** Who is signed in. The cookie has a secret, of which the database knows the digest alone. */
import type { Database, PersonTable, SessionTable } from '../db/tables.ts'
import { digestOf, newId, newSecret } from './secrets.ts'

export interface Lifetime {
  /** Without a request for so long, a session is over; ms. */
  idle: number
  /** However much it is used, it is over after this; ms. */
  life: number
}

export interface Session extends SessionTable {
  who: PersonTable
}

/** The time of the last request is written at most so often. */
const SEEN_EVERY_MS = 60_000

export interface Device {
  address: string
  agent: string
}

/** Begins a session. @returns the secret for the cookie */
export async function beginSession(
  db: Database,
  { person, means, complete }: { person: string; means: string; complete: boolean },
  { address, agent }: Device,
  now: number,
): Promise<string> {
  const secret = newSecret()
  await db
    .insertInto('session')
    .values({
      ...{ id: newId(now), digest: digestOf(secret), person, means, complete: complete ? 1 : 0 },
      ...{ created: now, seen: now, address, agent: agent.slice(0, 200) },
    })
    .execute()
  return secret
}

/** The session of a cookie; null when it is over, revoked or never was. */
export async function findSession(
  db: Database,
  secret: string,
  { idle, life }: Lifetime,
  now: number,
): Promise<Session | null> {
  const session = await db.selectFrom('session').selectAll().where('digest', '=', digestOf(secret)).executeTakeFirst()
  if (!session || session.seen + idle <= now || session.created + life <= now) return null
  const who = await db.selectFrom('person').selectAll().where('id', '=', session.person).executeTakeFirst()
  if (!who) return null
  if (session.seen + SEEN_EVERY_MS <= now)
    await db.updateTable('session').set({ seen: now }).where('id', '=', session.id).execute()
  return { ...session, who }
}

/** The second factor was given: the session is whole, under a new secret. @returns that secret */
export async function completeSession(db: Database, { id }: Session): Promise<string> {
  const secret = newSecret()
  await db
    .updateTable('session')
    .set({ complete: 1, digest: digestOf(secret) })
    .where('id', '=', id)
    .execute()
  return secret
}

/** Sessions of a person that are not over, the latest first. */
export async function sessionsOf(db: Database, person: string, { idle, life }: Lifetime, now: number) {
  return db
    .selectFrom('session')
    .selectAll()
    .where('person', '=', person)
    .where('seen', '>', now - idle)
    .where('created', '>', now - life)
    .orderBy('seen', 'desc')
    .execute()
}

/** Ends one session of a person, or all but one. @returns how many ended */
export async function endSessions(db: Database, person: string, which: { id: string } | { not: string }) {
  const ended = await db
    .deleteFrom('session')
    .where('person', '=', person)
    .where('id', 'id' in which ? '=' : '<>', 'id' in which ? which.id : which.not)
    .executeTakeFirst()
  return Number(ended.numDeletedRows)
}
