/** Takes away what is over. Nothing is served from it, so that this may come late; it bounds what is kept. */
import type { Database } from '../db/tables.ts'
import type { Lifetime } from './sessions.ts'

const DAY = 86_400_000
/** How long what people did is kept. */
const EVENTS_MS = 400 * DAY
/** How long it is known that a mail was sent: longer than what it is about comes back, such as a month's limit. */
const NOTICES_MS = 100 * DAY

export async function sweep(db: Database, { idle, life }: Lifetime, now: number): Promise<void> {
  await db.deleteFrom('link').where('expires', '<=', now).execute()
  await db.deleteFrom('challenge').where('expires', '<=', now).execute()
  await db
    .deleteFrom('attempt')
    .where('since', '<', now - DAY)
    .execute()
  await db
    .deleteFrom('session')
    .where('seen', '<=', now - idle)
    .execute()
  await db
    .deleteFrom('session')
    .where('created', '<=', now - life)
    .execute()
  await db
    .deleteFrom('invitation')
    .where('expires', '<', now - 30 * DAY)
    .execute()
  await db
    .deleteFrom('event')
    .where('time', '<', now - EVENTS_MS)
    .execute()
  await db
    .deleteFrom('notice')
    .where('sent', '<', now - NOTICES_MS)
    .execute()
}
