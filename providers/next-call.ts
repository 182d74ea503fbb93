import type { CallPart, Part } from '../core/canon/conversation.ts'

/**
 * Finds the first call at or after a position in a turn. Positions must be given in ascending order; each part is
 * then visited only once, however often the function is called.
 */
export function nextCall(parts: readonly Part[]): (position: number) => CallPart | undefined {
  let at = 0
  return position => {
    at = Math.max(at, position)
    for (; at < parts.length; at++) {
      const part = parts[at]!
      if (part.type === 'call') return part
    }
    return undefined
  }
}
