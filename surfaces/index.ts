/**
 * The wire formats that clients speak. Each is a folder here and an entry in the list below; all other lists of
 * surfaces are generated from it.
 */
import type { SurfaceName } from '../core/conversation.ts'
import { chat } from './chat/index.ts'
import type { DescribedSurface } from './described.ts'
import { messages } from './messages/index.ts'
import { responses } from './responses/index.ts'

const all = [responses, chat, messages]

export const surfaces: Readonly<Record<SurfaceName, DescribedSurface>> = Object.fromEntries(
  all.map(surface => [surface.name, surface]),
)

/**
 * The surface whose path is in the request's path. A request without a route is refused in the error form of that
 * surface.
 */
export function surfaceAt(path: string): DescribedSurface | undefined {
  return all.find(surface => path.includes(surface.path))
}

/**
 * The endpoints, as text for a client that requested an unknown path: first the list of models, then chat, which most
 * clients use.
 */
export const offered = `GET /v1/models, POST ${[...new Set([chat, ...all])]
  .map(({ path }) => path)
  .join(', ')
  .replace(/, ([^,]*)$/, ' and $1')}`
