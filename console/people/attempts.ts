/** How often something may be tried: counted in the database, so that all consoles count together. */
import type { Database } from '../db/tables.ts'

export interface Bound {
  /** Attempts in a window. */
  most: number
  /** The window in ms. */
  per: number
}

/** Counts an attempt under a name. @returns whether it is within the bound; past it nothing is done */
export async function mayTry(db: Database, name: string, { most, per }: Bound, now: number): Promise<boolean> {
  const since = Math.floor(now / per) * per
  const { count } = await db
    .insertInto('attempt')
    .values({ name: name.slice(0, 300), since, count: 1 })
    .onConflict(conflict =>
      conflict.columns(['name', 'since']).doUpdateSet(eb => ({ count: eb('attempt.count', '+', 1) })),
    )
    .returning('count')
    .executeTakeFirstOrThrow()
  return count <= most
}
