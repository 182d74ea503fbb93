/** One thing in the form of each surface: a tool, its call and result, an image, an effort. */
import { DIALECTS } from './gateways.ts'
import type { Surface } from './reply.ts'

type Json = Record<string, any>

export const SCHEMA = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
}
/** A red dot, PNG. */
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=='
const DOCUMENT = Buffer.from('%PDF-1.4\n1 0 obj<</Type/Page>>endobj\n').toString('base64')

export function tool(surface: Surface, name = 'weather', schema: Json = SCHEMA, strict?: boolean): Json {
  const told = { name, description: 'Tells the weather.' }
  const extra = strict === undefined ? {} : { strict }
  if (surface === 'chat') return { type: 'function', function: { ...told, parameters: schema, ...extra } }
  if (surface === 'responses') return { type: 'function', ...told, parameters: schema, ...extra }
  return { ...told, input_schema: schema, ...extra }
}

/** Members of a body for an image (or several) beside a text. */
export function image(surface: Surface, say = 'look', times = 1): Json {
  const url = `data:image/png;base64,${PIXEL}`
  const many = <T>(part: T): T[] => Array.from({ length: times }, () => part)
  if (surface === 'chat')
    return {
      messages: [
        { role: 'user', content: [{ type: 'text', text: say }, ...many({ type: 'image_url', image_url: { url } })] },
      ],
    }
  if (surface === 'responses')
    return {
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: say },
            ...many({ type: 'input_image', image_url: url, detail: 'auto' }),
          ],
        },
      ],
    }
  const source = { type: 'base64', media_type: 'image/png', data: PIXEL }
  return {
    messages: [{ role: 'user', content: [{ type: 'text', text: say }, ...many({ type: 'image', source })] }],
  }
}

/** Members of a Messages body for documents. */
export function documents(times: number): Json {
  const source = { type: 'base64', media_type: 'application/pdf', data: DOCUMENT }
  const content = Array.from({ length: times }, () => ({ type: 'document', source }))
  return { messages: [{ role: 'user', content }] }
}

export function effort(surface: Surface, level: string): Json {
  if (surface === 'chat') return { reasoning_effort: level }
  if (surface === 'responses') return { reasoning: { effort: level } }
  return { output_config: { effort: level } }
}

export interface Turn {
  /** A text of the user. */
  user?: string
  /** Ids of calls of the tool `weather` that the assistant made in one turn. */
  calls?: string[]
  /** Ids of the calls that are answered. */
  results?: string[]
}

/** Members of a body for a history of tool calls. */
export function history(surface: Surface, turns: readonly Turn[], result: any = 'sunny'): Json {
  const input = JSON.stringify({ city: 'Ulm' })
  if (surface === 'responses')
    return {
      input: turns.flatMap(({ user, calls = [], results = [] }) => [
        ...(user === undefined ? [] : [{ role: 'user', content: user }]),
        ...calls.map(id => ({ type: 'function_call', call_id: id, name: 'weather', arguments: input })),
        ...results.map(id => ({ type: 'function_call_output', call_id: id, output: result })),
      ]),
    }
  if (surface === 'chat')
    return {
      messages: turns.flatMap(({ user, calls = [], results = [] }) => [
        ...results.map(id => ({ role: 'tool', tool_call_id: id, content: result })),
        ...(user === undefined ? [] : [{ role: 'user', content: user }]),
        ...(calls.length === 0
          ? []
          : [
              {
                role: 'assistant',
                content: null,
                tool_calls: calls.map(id => ({
                  id,
                  type: 'function',
                  function: { name: 'weather', arguments: input },
                })),
              },
            ]),
      ]),
    }
  return {
    messages: turns.flatMap(({ user, calls = [], results = [] }) => {
      const answered = results.map(id => ({ type: 'tool_result', tool_use_id: id, content: result }))
      const said = user === undefined ? [] : [{ type: 'text', text: user }]
      const asked = calls.map(id => ({ type: 'tool_use', id, name: 'weather', input: { city: 'Ulm' } }))
      return [
        ...(answered.length + said.length > 0 ? [{ role: 'user', content: [...answered, ...said] }] : []),
        ...(asked.length > 0 ? [{ role: 'assistant', content: asked }] : []),
      ]
    }),
  }
}

/** Members of a Messages body for a search. */
export const WEB_SEARCH = { tools: [{ type: 'web_search_20250305', name: 'web_search' }] }

/** What makes the provider of a model search. The gateway searches for the one that cannot, by a call. */
export const searching = (model: string): string =>
  model === DIALECTS['openai-chat'] ? '[[sim: call web_search {"query":"rain"}]] go' : '[[sim: search "rain"]] go'
