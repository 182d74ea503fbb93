/** Maps an effort to the levels that one model accepts (wire.md F.4, F.8). */
import { EFFORTS, type Effort } from '../core/canon/conversation.ts'

/**
 * The highest level of a model that is not above the wish and the ceiling. When all levels are above them, the lowest
 * level: so `none` becomes the lowest level of a model that always reasons (wire.md F.9).
 * @param levels ascending, not empty
 */
export function fitEffort<T extends Effort>(wish: Effort, levels: readonly T[], ceiling?: Effort): T {
  let rank = EFFORTS.indexOf(wish)
  if (ceiling !== undefined) rank = Math.min(rank, EFFORTS.indexOf(ceiling))
  let best = levels[0]!
  for (const level of levels) if (EFFORTS.indexOf(level) <= rank) best = level
  return best
}
