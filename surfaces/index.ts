/**
 * The wire formats that clients speak. Each is a folder here and an entry in the list below; all other lists of
 * surfaces are generated from it.
 */
import type { SurfaceName } from '../core/canon/conversation.ts'
import type { Incoming } from '../core/ports/listener.ts'
import type { Surface } from '../core/ports/surface.ts'
import { any } from './any/index.ts'
import { chat } from './chat/index.ts'
import { compact } from './compact/index.ts'
import { cursor } from './cursor/index.ts'
import type { DescribedSurface } from './described.ts'
import { embeddings } from './embeddings/index.ts'
import { messages } from './messages/index.ts'
import { responses } from './responses/index.ts'

const all = [responses, chat, messages, compact, cursor, embeddings]

export const surfaces: Readonly<Record<SurfaceName, DescribedSurface>> = Object.fromEntries(
  all.map(surface => [surface.name, surface]),
)

/** What a route may name. */
export const routable: Readonly<Record<string, Surface>> = { ...surfaces, [any.name]: any }

/** Those that people choose from for text: a surface of one client, or an operation, offers nothing beyond them. */
export const listed: readonly DescribedSurface[] = all.filter(
  ({ client, operationOf, serves }) => client === undefined && operationOf === undefined && serves === undefined,
)

/**
 * The surface whose clients sent a request that has no surface by its route: the surface whose path is in the request's
 * path, else the one whose own headers the request has. Errors are written in its form.
 */
export function callersSurface({ path, headers }: Pick<Incoming, 'path' | 'headers'>): DescribedSurface | undefined {
  return (
    all.find(surface => path.includes(surface.path)) ??
    all.find(surface => surface.ownHeaders?.some(name => headers.has(name)))
  )
}

/**
 * The endpoints, as text for a client that requested an unknown path: first the list of models, then chat, which most
 * clients use.
 */
export const offered = `GET /v1/models, POST ${[...new Set([chat, ...listed])]
  .map(({ path }) => path)
  .join(', ')
  .replace(/, ([^,]*)$/, ' and $1')}`
