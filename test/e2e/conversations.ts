/**
 * One conversation in the notation of each surface, and replies read back: for tests that hold the three surfaces
 * against each other.
 */
import assert from 'node:assert/strict'
import type { TestGateway } from './harness.ts'

export type SurfaceName = 'chat' | 'responses' | 'messages'
export const SURFACES: readonly SurfaceName[] = ['chat', 'responses', 'messages']
export const PATHS: Record<SurfaceName, string> = {
  chat: '/v1/chat/completions',
  responses: '/v1/responses',
  messages: '/v1/messages',
}

/** One model for each dialect, as the harness configures them. */
export const DIALECTS = {
  'openai-chat': 'eb1-preview',
  'openai-responses': 'eb1-efficient-preview',
  'anthropic-messages': 'eb1-fast-preview',
  gemini: 'eb1-frontier-preview',
} as const
export type DialectName = keyof typeof DIALECTS

export const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
export const PDF = Buffer.from('%PDF-1.4\n%%EOF').toString('base64')

export interface Call {
  id: string
  name: string
  input: unknown
}
export type Entry =
  | { system: string }
  | { user: string; image?: boolean; pdf?: boolean }
  | { assistant: string }
  | { calls: Call[]; text?: string }
  | { results: { id: string; output: string }[] }
export interface Tool {
  name: string
  description?: string
  schema?: Record<string, unknown>
  strict?: boolean
}

const EMPTY = { type: 'object', properties: {} }

/** A request body. `more` goes on top, in the surface's own notation. */
export function bodyOf(
  surface: SurfaceName,
  model: string,
  entries: readonly Entry[],
  options: { tools?: Tool[]; more?: Record<string, unknown> } = {},
): Record<string, unknown> {
  const { tools, more } = options
  switch (surface) {
    case 'chat':
      return {
        model,
        messages: entries.flatMap(chatMessages),
        ...(tools && {
          tools: tools.map(({ name, description, schema = EMPTY, strict }) => ({
            type: 'function',
            function: { name, description, parameters: schema, strict },
          })),
        }),
        ...more,
      }
    case 'responses':
      return {
        model,
        input: entries.flatMap(responsesItems),
        ...(tools && {
          tools: tools.map(({ name, description, schema = EMPTY, strict = false }) => ({
            type: 'function',
            name,
            description,
            parameters: schema,
            strict,
          })),
        }),
        ...more,
      }
    case 'messages': {
      const system = entries.flatMap(e => ('system' in e ? [{ type: 'text', text: e.system }] : []))
      return {
        model,
        max_tokens: 2000,
        ...(system.length > 0 && { system }),
        messages: entries.flatMap(messagesTurns),
        ...(tools && {
          tools: tools.map(({ name, description, schema = EMPTY, strict }) => ({
            name,
            description,
            input_schema: schema,
            strict,
          })),
        }),
        ...more,
      }
    }
  }
}

function chatMessages(entry: Entry): unknown[] {
  if ('system' in entry) return [{ role: 'system', content: entry.system }]
  if ('user' in entry) {
    if (!entry.image && !entry.pdf) return [{ role: 'user', content: entry.user }]
    const content: unknown[] = [{ type: 'text', text: entry.user }]
    if (entry.image) content.push({ type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } })
    if (entry.pdf)
      content.push({ type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${PDF}` } })
    return [{ role: 'user', content }]
  }
  if ('assistant' in entry) return [{ role: 'assistant', content: entry.assistant }]
  if ('calls' in entry)
    return [
      {
        role: 'assistant',
        content: entry.text ?? null,
        tool_calls: entry.calls.map(({ id, name, input }) => ({
          id,
          type: 'function',
          function: { name, arguments: JSON.stringify(input) },
        })),
      },
    ]
  return entry.results.map(({ id, output }) => ({ role: 'tool', tool_call_id: id, content: output }))
}

function responsesItems(entry: Entry): unknown[] {
  if ('system' in entry) return [{ role: 'system', content: entry.system }]
  if ('user' in entry) {
    if (!entry.image && !entry.pdf) return [{ role: 'user', content: entry.user }]
    const content: unknown[] = [{ type: 'input_text', text: entry.user }]
    if (entry.image) content.push({ type: 'input_image', image_url: `data:image/png;base64,${PNG}`, detail: 'auto' })
    if (entry.pdf)
      content.push({ type: 'input_file', filename: 'a.pdf', file_data: `data:application/pdf;base64,${PDF}` })
    return [{ role: 'user', content }]
  }
  if ('assistant' in entry) return [{ role: 'assistant', content: [{ type: 'output_text', text: entry.assistant }] }]
  if ('calls' in entry)
    return [
      ...(entry.text === undefined
        ? []
        : [{ role: 'assistant', content: [{ type: 'output_text', text: entry.text }] }]),
      ...entry.calls.map(({ id, name, input }) => ({
        type: 'function_call',
        call_id: id,
        name,
        arguments: JSON.stringify(input),
      })),
    ]
  return entry.results.map(({ id, output }) => ({ type: 'function_call_output', call_id: id, output }))
}

function messagesTurns(entry: Entry): unknown[] {
  if ('system' in entry) return []
  if ('user' in entry) {
    const content: unknown[] = [{ type: 'text', text: entry.user }]
    if (entry.image) content.push({ type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } })
    if (entry.pdf)
      content.push({
        type: 'document',
        title: 'a.pdf',
        source: { type: 'base64', media_type: 'application/pdf', data: PDF },
      })
    return [{ role: 'user', content }]
  }
  if ('assistant' in entry) return [{ role: 'assistant', content: entry.assistant }]
  if ('calls' in entry)
    return [
      {
        role: 'assistant',
        content: [
          ...(entry.text === undefined ? [] : [{ type: 'text', text: entry.text }]),
          ...entry.calls.map(({ id, name, input }) => ({ type: 'tool_use', id, name, input })),
        ],
      },
    ]
  return [
    {
      role: 'user',
      content: entry.results.map(({ id, output }) => ({ type: 'tool_result', tool_use_id: id, content: output })),
    },
  ]
}

export interface Said {
  text: string
  calls: Call[]
  /** Full prompt, cached part included. */
  prompt: number
  cached: number
  cacheWrite: number
  output: number
  reasoning: number
  body: any
}

export function read(surface: SurfaceName, body: any): Said {
  if (surface === 'chat') {
    const { message } = body.choices[0]
    return {
      text: message.content ?? '',
      calls: (message.tool_calls ?? []).map((c: any) => ({
        id: c.id,
        name: c.function.name,
        input: JSON.parse(c.function.arguments),
      })),
      prompt: body.usage.prompt_tokens,
      cached: body.usage.prompt_tokens_details?.cached_tokens ?? 0,
      cacheWrite: 0,
      output: body.usage.completion_tokens,
      reasoning: body.usage.completion_tokens_details.reasoning_tokens,
      body,
    }
  }
  if (surface === 'responses') {
    const texts = body.output.flatMap((o: any) => (o.type === 'message' ? o.content.map((c: any) => c.text ?? '') : []))
    return {
      text: texts.join(''),
      calls: body.output
        .filter((o: any) => o.type === 'function_call')
        .map((o: any) => ({ id: o.call_id, name: o.name, input: JSON.parse(o.arguments) })),
      prompt: body.usage.input_tokens,
      cached: body.usage.input_tokens_details.cached_tokens,
      cacheWrite: body.usage.input_tokens_details.cache_write_tokens,
      output: body.usage.output_tokens,
      reasoning: body.usage.output_tokens_details.reasoning_tokens,
      body,
    }
  }
  const { usage } = body
  return {
    text: body.content.map((b: any) => b.text ?? '').join(''),
    calls: body.content
      .filter((b: any) => b.type === 'tool_use')
      .map((b: any) => ({ id: b.id, name: b.name, input: b.input })),
    prompt: usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
    cached: usage.cache_read_input_tokens,
    cacheWrite: usage.cache_creation_input_tokens,
    output: usage.output_tokens,
    reasoning: usage.output_tokens_details.thinking_tokens,
    body,
  }
}

/** Sends a body that is served. */
export async function served(t: TestGateway, surface: SurfaceName, body: unknown): Promise<Said> {
  const response = await t.post(PATHS[surface], body)
  const json: any = await response.json()
  assert.equal(response.status, 200, JSON.stringify(json))
  return read(surface, json)
}

/** Sends a body that is refused; the error's members. */
export async function refused(t: TestGateway, surface: SurfaceName, body: unknown, status = 400): Promise<any> {
  const response = await t.post(PATHS[surface], body)
  const json: any = await response.json()
  assert.equal(response.status, status, JSON.stringify(json))
  return json.error
}
