/** Vertex AI: gemini and Anthropic's models below a project and a location, which the base URL names. */
import type { Dialect } from '../../core/ports/dialect.ts'
import { isObject, list, object } from '../loose-json.ts'
import { bytesOnly } from './media.ts'
import { varied, without } from './vary.ts'

export const vertexGemini = (base: Dialect): Dialect =>
  varied(base, {
    path: (_, __, path) => `/publishers/google${path}`,
    body: body => ({ ...body, contents: list(body['contents']).map(withoutIds) }),
  })

/** Vertex refuses ids of function calls and responses as unknown members; it matches the two by order and name. */
function withoutIds(content: unknown): unknown {
  const parts = list(object(content)['parts']).map(part => {
    const own = { ...object(part) }
    for (const member of ['functionCall', 'functionResponse'])
      if (isObject(own[member])) own[member] = { ...own[member], id: undefined }
    return own
  })
  return { ...object(content), parts }
}

export const vertexAnthropic = (base: Dialect): Dialect =>
  varied(
    base,
    {
      path: ({ model }, stream) =>
        `/publishers/anthropic/models/${encodeURIComponent(model).replaceAll('%40', '@')}:${stream ? 'streamRawPredict' : 'rawPredict'}`,
      first: () => ({ anthropic_version: 'vertex-2023-10-16' }),
      body: body => ({ ...body, model: undefined }),
      headers: headers => without(headers, 'anthropic-version'),
    },
    {
      ...bytesOnly(base),
      // Not offered there: a forced tool takes the place of an output format.
      structures: () => false,
    },
  )
