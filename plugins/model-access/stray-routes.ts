import type { GatewayConfig } from '../../config/types.ts'
import { routable } from '../../surfaces/index.ts'
import { embeddings } from '../embeddings.ts'

/**
 * The faults of routes whose pipeline makes something else than their surface asks for.
 * @param own the options of a plugin: only routes of its pipeline are looked at
 */
export function strayRoutes(
  { routes, pipelines }: Pick<GatewayConfig, 'routes' | 'pipelines'>,
  own: unknown,
): string[] {
  return routes.flatMap(({ method, path, surface, pipeline }) => {
    const entries = pipelines[pipeline]!
    if (surface === undefined || !entries.some(({ config }) => config === own)) return []
    const embeds = entries.some(({ plugin }) => plugin === embeddings.name)
    if (embeds === (routable[surface]!.serves !== undefined)) return []
    return [
      embeds
        ? `${method} ${path} has surface: ${surface}, and pipeline ${pipeline} makes embeddings; write surface: embeddings, or another pipeline`
        : `${method} ${path} has surface: ${surface}, and pipeline ${pipeline} makes none; name a pipeline with the plugin embeddings`,
    ]
  })
}
