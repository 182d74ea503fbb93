/** Fitting an effort into the levels that one model takes (wire.md F.4, F.8). */
import { EFFORTS, type Effort } from '../core/conversation.ts'

/**
 * The highest of a model's levels that is not above the wish and the ceiling; the model's lowest when all are above (so `none` on a model
 * that always reasons is its lowest level, wire.md F.9).
 * @param levels ascending, not empty
 */
export function fitEffort<T extends Effort>(wish: Effort, levels: readonly T[], ceiling?: Effort): T {
  let rank = EFFORTS.indexOf(wish)
  if (ceiling !== undefined) rank = Math.min(rank, EFFORTS.indexOf(ceiling))
  let best = levels[0]!
  for (const level of levels) if (EFFORTS.indexOf(level) <= rank) best = level
  return best
}
