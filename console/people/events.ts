/** What people did in the console: shown to their organization, to themselves and to staff. */
import type { Database } from '../db/tables.ts'
import { newId } from './secrets.ts'

export interface Happened {
  organization?: string | null
  person?: string | null
  /** A word such as `member.invite`. */
  action: string
  detail?: string
  /** The address of whoever did it. */
  address: string
  now: number
}

/** Notes it. Give a transaction, where it belongs to what is changed. */
export async function note(db: Database, { organization, person, action, detail, address, now }: Happened) {
  await db
    .insertInto('event')
    .values({
      ...{ id: newId(now), time: now, action, detail: detail ?? '', address },
      ...{ organization: organization ?? null, person: person ?? null },
    })
    .execute()
}
