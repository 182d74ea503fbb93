/**
 * Versions of what is stored: the tables of the database (sqlite/schema.ts), the records of the journal (journal.ts),
 * and the keys in Redis (redis/format.ts). Each of the three has one list of steps; a new version is one more entry at
 * its end.
 *
 * Stored data carries a mark. A build brings older data up to its own version, and uses data of a later version when
 * the mark allows it, so that the release before can start again, or run beside, on what a change left readable. It
 * refuses all other data, and says the cure.
 */
import { StoreUnavailable } from '../core/store.ts'

export interface Mark {
  /** The version of the format that the data is in. */
  version: number
  /** The oldest version whose code may read this data and write to it; at most `version`. */
  minReader: number
}

/** The data is in a format that this build must not touch. The message says what was found, what is read, the cure. */
export class FormatRefused extends StoreUnavailable {}

/** The mark of data that has been through all of `steps` (ascending, not empty). A step never lowers `minReader`. */
export function markOf(steps: readonly Mark[]): Mark {
  return { version: steps.at(-1)!.version, minReader: Math.max(...steps.map(step => step.minReader)) }
}

/**
 * Throws FormatRefused when a build with these steps can neither use the data nor bring it up to date.
 * @param what names the data, e.g. `the database ./data/gateway.db`
 * @param cures what to do when the data is too new, and when it is too old
 */
export function checkFormat(
  what: string,
  { version, minReader }: Mark,
  steps: readonly Mark[],
  cures: { newer: string; older: string },
): void {
  const [oldest, newest] = [steps[0]!.version, markOf(steps).version]
  const cure = minReader > newest ? cures.newer : version < oldest ? cures.older : undefined
  if (cure === undefined) return
  const range = oldest === newest ? `${newest} only` : `${oldest} to ${newest}`
  throw new FormatRefused(`${what} has format version ${version}, and this release of Sluice reads ${range}: ${cure}`)
}
