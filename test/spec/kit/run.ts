/** Tries the rows one after the other, and says of each whether it holds. */
import type { Reply } from './reply.ts'
import type { Placed, Where } from './row.ts'
import { World, words } from './world.ts'

export interface Result {
  row: Placed
  verdict: 'holds' | 'does not hold' | 'later' | 'out of reach'
  /** What was seen, or why nothing could be. */
  evidence: string
  /** Why the table is not as it must be: the row does not hold, or holds although a later change is to build it. */
  fault?: string
}

/** @param refusals gets the refusals that the rows met, one of each code, surface and advice */
export async function tryRows(
  rows: readonly Placed[],
  still = true,
  refusals = new Map<string, Reply>(),
): Promise<Result[]> {
  const seen = new Map<Placed, { evidence: string; holds: boolean }>()
  const checked = rows.filter(row => row.check !== undefined)
  // Gateways run one after the other: the clock of each belongs to the row that is tried.
  for (const [where, together] of Map.groupBy(checked, row => row.gateway ?? ('main' as Where))) {
    const w = await World.start(where, together, still)
    try {
      for (const row of together) seen.set(row, await tryRow(w, row))
      for (const [what, reply] of w.refusals) refusals.set(what, reply)
    } finally {
      for (const [row, evidence] of await w.close()) seen.set(row, { evidence, holds: false })
    }
  }
  return rows.map(row => judge(row, seen.get(row)))
}

async function tryRow(w: World, row: Placed): Promise<{ evidence: string; holds: boolean }> {
  try {
    await w.begin(row)
    return { evidence: await row.check!(w), holds: true }
  } catch (error) {
    return { evidence: words(error), holds: false }
  }
}

function judge(row: Placed, seen: { evidence: string; holds: boolean } | undefined): Result {
  if (seen === undefined) return { row, verdict: 'out of reach', evidence: row.beyond ?? '' }
  const { evidence, holds } = seen
  if (row.later === undefined)
    return holds
      ? { row, verdict: 'holds', evidence }
      : { row, verdict: 'does not hold', evidence, fault: `${row.id} (${row.says}): ${evidence}` }
  if (holds) return { row, verdict: 'holds', evidence, fault: `${row.id} holds now: take its mark 'later' away` }
  return { row, verdict: 'later', evidence: `${row.later}: ${evidence}` }
}
