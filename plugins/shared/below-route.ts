import type { Exchange } from '../../core/plugin.ts'

/**
 * The part of the path that the `*` of the exchange's route stands for, decoded: an id. Undefined on a route without
 * `*`; the text as it was sent when it cannot be decoded.
 */
export function belowRoute({ route, incoming }: Exchange): string | undefined {
  const pattern = route.slice(route.indexOf(' ') + 1)
  if (!pattern.endsWith('/*')) return undefined
  const rest = incoming.path.slice(pattern.length - 1)
  try {
    return decodeURIComponent(rest)
  } catch {
    return rest
  }
}
