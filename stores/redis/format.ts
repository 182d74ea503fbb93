/**
 * The version of the layout of keys and values (layout.ts, scripts.ts, docs/ledger.md "Redis keys"), and how it changes
 * while gateways of two releases share one Redis, as they do during a rolling deploy.
 *
 *   {sluice:leases}:format   hash: version, min_reader. A Redis without it is of version 1
 *
 * The mark is in the slot of the leases, because they depend on each other. Only a process that may read the layout
 * takes or renews a lease; a lease's value is the version that its process knows; and `min_reader` is not raised above
 * the version of a lease that lives. So no process meets a layout that it does not know while it serves.
 */
import { checkFormat, FormatRefused, type Mark, markOf } from '../format.ts'
import { script } from './call.ts'
import type { RedisClient } from './client.ts'
import { MARK } from './scripts.ts'

export interface LayoutStep extends Mark {
  /**
   * Brings the data of the version before up to this one; absent when there is nothing to do but to read both. May run
   * again after a crash, in several processes at once, and beside processes of every version from `minReader` on.
   */
  migrate?(client: RedisClient): Promise<void>
}

/** By version, ascending. A new version is one more entry, which the code of the version before can still use. */
export const STEPS: readonly LayoutStep[] = [{ version: 1, minReader: 1 }]

export const FORMAT = '{sluice:leases}:format'
export const HELD = '{sluice:leases}:held'
export const LEASE_PREFIX = '{sluice:leases}:id:'

const MARK_SCRIPT = script(MARK)
const FIRST = 1

/**
 * Runs the steps that the data has not been through, and marks it. Twice does no harm. Rejects with FormatRefused when
 * this build may not use the data, or may not change it yet; with StoreUnavailable when Redis does not answer.
 */
export async function bringUpToDate(client: RedisClient, steps: readonly LayoutStep[] = STEPS): Promise<void> {
  const own = markOf(steps)
  // Who could not read the new layout is locked out first.
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

/** Rejects with FormatRefused when this build may not use the data. Writes nothing. */
export async function checkLayout(client: RedisClient, steps: readonly LayoutStep[] = STEPS): Promise<void> {
  const [version, minReader] = await client.call(client.redis.hmget(FORMAT, 'version', 'min_reader'))
  if (version) check(client, { version: Number(version), minReader: Number(minReader) }, steps)
}

/** Raises the mark, never lowers it. @returns as it was, and the leases that forbid it: then nothing was changed */
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
