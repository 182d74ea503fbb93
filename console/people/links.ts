/** Links of mails: each works once, and for some minutes. */
import type { Database, LinkTable } from '../db/tables.ts'
import { digestOf, newSecret } from './secrets.ts'

export const LINK_LIFE_MS = 10 * 60_000

/** Makes a link. @returns its secret */
export async function newLink(
  db: Database,
  link: Pick<LinkTable, 'purpose' | 'email' | 'person' | 'next'>,
  now: number,
  life = LINK_LIFE_MS,
): Promise<string> {
  const secret = newSecret()
  await db
    .insertInto('link')
    .values({ ...link, digest: digestOf(secret), created: now, expires: now + life })
    .execute()
  return secret
}

/** What a link is for, without using it: a mail's scanner may look at it, too. */
export async function peekLink(db: Database, secret: string, now: number): Promise<LinkTable | null> {
  const query = db.selectFrom('link').selectAll().where('digest', '=', digestOf(secret))
  return (await query.where('expires', '>', now).executeTakeFirst()) ?? null
}

/** Uses a link up. Of several at the same time one gets it. */
export async function useLink(db: Database, secret: string, now: number): Promise<LinkTable | null> {
  const query = db.deleteFrom('link').where('digest', '=', digestOf(secret))
  return (await query.where('expires', '>', now).returningAll().executeTakeFirst()) ?? null
}
