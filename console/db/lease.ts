/**
 * Work that comes back and that one of several consoles does. The lease saves the others the effort. It is no lock: a
 * console may stop for longer than it lasts, so that what is done under it has to be right when two do it.
 */
import { randomUUID } from 'node:crypto'
import type { Database } from './tables.ts'

const HOLDER = randomUUID()

/**
 * Does `work` if no other console has the lease.
 * @param work gets where the last time ended, '' at first, and returns where it stands now
 */
export async function underLease(
  db: Database,
  name: string,
  { now, forMs, holder = HOLDER }: { now: number; forMs: number; holder?: string },
  work: (state: string) => Promise<string>,
): Promise<boolean> {
  await db
    .insertInto('lease')
    .values({ name, holder: '', until: 0, state: '' })
    .onConflict(conflict => conflict.column('name').doNothing())
    .execute()
  const taken = await db
    .updateTable('lease')
    .set({ holder, until: now + forMs })
    .where('name', '=', name)
    .where(eb => eb.or([eb('until', '<=', now), eb('holder', '=', holder)]))
    .returning('state')
    .executeTakeFirst()
  if (!taken) return false
  const state = await work(taken.state)
  if (state !== taken.state)
    await db.updateTable('lease').set({ state }).where('name', '=', name).where('holder', '=', holder).execute()
  return true
}
