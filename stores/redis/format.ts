/**
 * The version of the layout of keys and values (layout.ts, lua/, docs/ledger.md "Redis keys"), and how it changes
 * while gateways of two releases share one Redis, as they do during a rolling deploy.
 *
 *   {sluice:leases}:format   hash: version, min_reader. A Redis without this key has version 1. `move`: the `MoveMark` of
 *                            data that `sluice store move` has set aside. `data`: the name of the data (identity.ts)
 *
 * The mark is in the same cluster slot as the leases, because each depends on the other. A process takes or renews a
 * lease only when it can read the layout. The value of a lease is the version that its process knows. `min_reader` is
 * not raised above the version of a living lease. So the layout never becomes unreadable for a process that is serving.
 */
import { checkFormat, checkMove, FormatRefused, type Mark, markOf } from '../format.ts'
import { RedisAccounts } from './accounts.ts'
import type { RedisClient } from './client.ts'
import { script } from './scripts.ts'

export interface LayoutStep extends Mark {
  /**
   * Migrates the data of the previous version to this one; absent when the data stays as it is. It must tolerate being
   * run again after a crash, in several processes at once, and beside processes of every version from `minReader` on.
   */
  migrate?(client: RedisClient): Promise<void>
}

/**
 * In ascending order of version. A new version adds an entry. The code of the previous version must be able to use it.
 */
export const STEPS: readonly LayoutStep[] = [
  { version: 1, minReader: 1 },
  // Who names which plan and model. A gateway of version 1 changes accounts without it; what it changes is added later.
  { version: 2, minReader: 1, migrate: client => new RedisAccounts(client).indexNames() },
  // Names, labels and removed ids. A gateway of version 2 knows none, and may give an id again that was removed.
  { version: 3, minReader: 1 },
]

/** The key of the mark. */
export const FORMAT = '{sluice:leases}:format'
/** The key of the set of leases under which something may be held. */
export const HELD = '{sluice:leases}:held'
/** The key of a lease is this and its id. */
export const LEASE_PREFIX = '{sluice:leases}:id:'

const MARK_SCRIPT = script('mark')
/** The version of data without a mark. */
const FIRST = 1

/**
 * Runs the steps that have not been applied to the data, and updates the mark. It may be called again.
 * @throws FormatRefused when this build cannot use the data, or when living gateways could not read the new layout
 * @throws StoreUnavailable when Redis does not answer
 */
export async function bringUpToDate(client: RedisClient, steps: readonly LayoutStep[] = STEPS): Promise<void> {
  const own = markOf(steps)
  checkMove(nameOf(client), await client.call(client.redis.hget(FORMAT, 'move')))
  // First `min_reader` is raised, so that no process which cannot read the new layout can take a lease.
  const { found, older } = await mark(client, { version: FIRST, minReader: own.minReader })
  check(client, found, steps)
  if (older.length)
    throw new FormatRefused(
      `${nameOf(client)} has format version ${found.version}, this release writes version ${own.version}, and ` +
        `gateways run that cannot read it: ${older.join(', ')}. Stop them first, or go through the release in between`,
    )
  if (found.version >= own.version) return
  for (const { version, migrate } of steps) if (version > found.version) await migrate?.(client)
  await mark(client, own)
}

/**
 * Checks the mark without writing anything.
 * @throws FormatRefused when this build cannot use the data
 */
export async function checkLayout(client: RedisClient, steps: readonly LayoutStep[] = STEPS): Promise<void> {
  const [version, minReader, move] = await client.call(client.redis.hmget(FORMAT, 'version', 'min_reader', 'move'))
  checkMove(nameOf(client), move)
  if (version) check(client, { version: Number(version), minReader: Number(minReader) }, steps)
}

/**
 * Raises the mark; never lowers it.
 * @returns the mark as it was, and the living leases that know too old a version. With any, nothing was changed.
 */
async function mark(client: RedisClient, { version, minReader }: Mark): Promise<{ found: Mark; older: string[] }> {
  const reply = await client.script(MARK_SCRIPT, [FORMAT, HELD], [LEASE_PREFIX, version, minReader])
  const [foundVersion, foundReader, ...older] = reply as [number, number, ...Buffer[]]
  return { found: { version: foundVersion, minReader: foundReader }, older: older.map(String) }
}

function check(client: RedisClient, found: Mark, steps: readonly LayoutStep[]): void {
  checkFormat(nameOf(client), found, steps, {
    newer: "start the release that wrote it, or a later one; or name another database in 'store'",
    older: 'start a release in between first, which brings it up to date',
  })
}

const nameOf = (client: RedisClient) => `the data in ${client.name}`
