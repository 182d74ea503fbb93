/**
 * Versions of stored data. There are three formats: the tables of the database (sqlite/schema.ts), the records of the
 * journal (journal.ts) and the keys in Redis (redis/format.ts). Each format has one list of steps, one step for each
 * version. A new version adds a step at the end of the list.
 *
 * Stored data carries a mark with its version. A build migrates older data to its own version. It uses data of a later
 * version when the mark allows it. So the previous release can start again after an upgrade, or run beside the new one,
 * as long as it can still read the data. A build refuses all other data, and its error names the cure.
 */
import { StoreRefused } from '../core/canon/errors.ts'

export interface Mark {
  /** The version of the format that the data is in. */
  version: number
  /** The oldest version whose code may read this data and write to it; at most `version`. */
  minReader: number
}

/**
 * The data is in a format that this build must not touch. The message names the version that was found, the versions
 * that this build reads, and the cure.
 */
export class FormatRefused extends StoreRefused {}

/**
 * The mark of data to which all of `steps` have been applied. A step never lowers `minReader`.
 * @param steps in ascending order of version; not empty
 */
export function markOf(steps: readonly Mark[]): Mark {
  return { version: steps.at(-1)!.version, minReader: Math.max(...steps.map(step => step.minReader)) }
}

/**
 * Checks that a build with these steps can use the data or migrate it.
 * @param what names the data in the error message, e.g. `the database ./data/gateway.db`
 * @param cures what the operator can do when the data is too new, and when it is too old
 * @throws FormatRefused when the build can neither use the data nor migrate it
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

// ---- data that `sluice store move` has set aside --------------------------------------------------------------------

/**
 * The `minReader` of a store that `sluice store move` has set aside. No release reads it, so every release refuses such
 * a store, also one that does not know of moves.
 */
export const SET_ASIDE = 1_000_000

/** Why a store is set aside. It is stored as JSON beside the mark of the format. */
export interface MoveMark {
  /** `moving`: it is being read, or the move was interrupted. `filling`: it is being written, and not complete. */
  state: 'moving' | 'moved' | 'filling'
  /** The other store of the move, without secrets: `sqlite:/var/lib/sluice/gateway.db`. */
  other: string
}

/** @throws StoreRefused for a store that is set aside */
export function checkMove(what: string, mark: string | null | undefined): void {
  if (mark === null || mark === undefined) return
  const { state, other } = JSON.parse(mark) as MoveMark
  const words = {
    moved: `was moved to ${other}: name that store in 'store'; remove the data here when nobody needs it any more`,
    moving: `is being moved to ${other}, or the move was interrupted: run \`sluice store move\` again, or \`sluice store move --cancel\` to go on with the data here`,
    filling: `is being filled from ${other} and is not complete: wait for \`sluice store move\`, or run it again if it was interrupted`,
  }
  throw new StoreRefused(`${what} ${words[state]}`)
}
