/**
 * Azure OpenAI's dated API: the deployment is in the path, the version in the query. (The newer v1 API has the paths
 * of the dialect and needs no variant.)
 */
import type { Dialect } from '../../core/ports/dialect.ts'
import { varied } from './vary.ts'

export const azureDeployments = (base: Dialect): Dialect =>
  varied(base, {
    path: ({ model, apiVersion }, _, path) =>
      `/deployments/${encodeURIComponent(model)}${path}?api-version=${encodeURIComponent(apiVersion!)}`,
    // The dated versions refuse members that are newer than they are.
    body: body => ({ ...body, prompt_cache_key: undefined }),
  })
