import type { CallPart, Part } from '../core/conversation.ts'

/**
 * Finds the first call at or behind a place of a turn, for places that are asked for in ascending order: each part is looked at once, however many of
 * them ask.
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
