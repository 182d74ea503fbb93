/**
 * Mails that are sent once. A row is made where the thing happens, in the same transaction, and its id says what it is
 * about, so that two consoles make one. Then it is sent, and sent again until the mail server takes it. A console that
 * is killed between the server's word and the note of it, or does not get that word, sends that mail a second time; it
 * has the same Message-ID.
 */
import { createHash } from 'node:crypto'
import type { Database } from '../db/tables.ts'
import { ATTEMPT_MS } from '../mail.ts'
import type { Right } from '../people/roles.ts'
import { mayDo } from '../people/roles.ts'
import type { Parts } from '../web/visit.ts'

export interface NoticeMail {
  /** What it is about: one mail to each person. */
  id: string
  subject: string
  /** Plain text. */
  body: string
}

/** Writes a mail to each of these people, unless there is one of this id. */
async function write(db: Database, people: readonly string[], { id, subject, body }: NoticeMail, now: number) {
  if (people.length === 0) return
  await db
    .insertInto('notice')
    .values(
      people.map(person => ({
        id: `${id}:${person}`,
        person,
        subject,
        body,
        created: now,
        due: now,
        attempts: 0,
        sent: null,
      })),
    )
    .onConflict(conflict => conflict.column('id').doNothing())
    .execute()
}

/** To the members of an organization that have a right. */
export async function tellMembers(db: Database, organization: string, right: Right, mail: NoticeMail, now: number) {
  const members = await db
    .selectFrom('member')
    .innerJoin('organization', 'organization.id', 'member.organization')
    .select(['member.person', 'member.role'])
    .where('member.organization', '=', organization)
    .where('organization.deleted', 'is', null)
    .execute()
  await write(
    db,
    members.filter(({ role }) => mayDo(role, right)).map(({ person }) => person),
    mail,
    now,
  )
}

/** To all of the operator's staff. */
export async function tellStaff(db: Database, mail: NoticeMail, now: number) {
  const staff = await db.selectFrom('person').select('id').where('staff', '=', 1).execute()
  await write(
    db,
    staff.map(({ id }) => id),
    mail,
    now,
  )
}

const AT_ONCE = 20
/** How long a console has for one mail before another tries: its attempt is over by then, whatever the server does. */
export const CLAIM_MS = ATTEMPT_MS + 30_000
const PAUSE_MS = 30_000
const LONGEST_PAUSE_MS = 3_600_000
/** About a day. */
const MOST_ATTEMPTS = 30

/** Sends what is due. */
export async function sendNotices(parts: Parts): Promise<void> {
  const { db, now } = parts
  const due = await db
    .selectFrom('notice')
    .select('id')
    .where('sent', 'is', null)
    .where('due', '<=', now())
    .orderBy('due')
    .limit(AT_ONCE)
    .execute()
  await Promise.all(due.map(({ id }) => sendNotice(parts, id)))
}

async function sendNotice({ db, mail, config, now, tell }: Parts, id: string): Promise<void> {
  const claimed = await db
    .updateTable('notice')
    .set(eb => ({ due: now() + CLAIM_MS, attempts: eb('attempts', '+', 1) }))
    .where('id', '=', id)
    .where('sent', 'is', null)
    .where('due', '<=', now())
    .returningAll()
    .executeTakeFirst()
  if (!claimed) return
  const { person, subject, body, attempts } = claimed
  const { email } = (await db.selectFrom('person').select('email').where('id', '=', person).executeTakeFirst()) ?? {}
  try {
    const messageId = `<${createHash('sha256').update(id).digest('hex').slice(0, 32)}@${new URL(config.url).hostname}>`
    if (email !== undefined) await mail.deliver({ to: email, subject, text: body, messageId })
    await db.updateTable('notice').set({ sent: now() }).where('id', '=', id).execute()
  } catch (error) {
    const over = attempts >= MOST_ATTEMPTS
    const due = now() + Math.min(PAUSE_MS * 2 ** (attempts - 1), LONGEST_PAUSE_MS)
    await db
      .updateTable('notice')
      .set(over ? { sent: now() } : { due })
      .where('id', '=', id)
      .execute()
    const then = over ? '; it is given up' : ''
    tell(`mail "${subject}" could not be sent (attempt ${attempts})${then}: ${(error as Error).message}`)
  }
}
