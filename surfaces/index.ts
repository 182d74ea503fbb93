/** The wire formats that clients speak: each is a folder here and a line in this list, and everything that names surfaces is made from it. */
import type { SurfaceName } from '../core/conversation.ts'
import { chat } from './chat/index.ts'
import type { DescribedSurface } from './described.ts'
import { messages } from './messages/index.ts'
import { responses } from './responses/index.ts'

const all = [responses, chat, messages]

export const surfaces: Readonly<Record<SurfaceName, DescribedSurface>> = Object.fromEntries(
  all.map(surface => [surface.name, surface]),
)

/** The surface at or below whose path a request stands: without a route it is refused in that surface's form. */
export function surfaceAt(path: string): DescribedSurface | undefined {
  return all.find(surface => path.includes(surface.path))
}

/** What a client can ask for, in words for one that has missed it: the list of models, then chat, which most speak. */
export const offered = `GET /v1/models, POST ${[...new Set([chat, ...all])]
  .map(({ path }) => path)
  .join(', ')
  .replace(/, ([^,]*)$/, ' and $1')}`
