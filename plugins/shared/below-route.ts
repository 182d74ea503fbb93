import type { Exchange } from '../../core/plugin.ts'

/**
 * The segments of the path that the `*` of the exchange's route stands for, each decoded. Undefined on a route without
 * `*`. A segment that cannot be decoded is as it was sent.
 */
export function belowRoute({ route, incoming }: Exchange): string[] | undefined {
  const pattern = route.slice(route.indexOf(' ') + 1)
  if (!pattern.endsWith('/*')) return undefined
  return incoming.path
    .slice(pattern.length - 1)
    .split('/')
    .map(decoded)
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}
