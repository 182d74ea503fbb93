/**
 * The OpenAPI 3.1 description of the public API, made from the surfaces' own schemas: what it says of a request is what the gateway checks.
 * Written to docs/openapi.yaml by docs/generate/index.ts.
 */
import { stringify } from 'yaml'
import { ERRORS } from '../../core/errors.ts'
import { surfaces } from '../../surfaces/index.ts'

type Json = Record<string, unknown>

const SURFACES = {
  chat: { path: '/v1/chat/completions', name: 'ChatCompletion', title: 'Chat Completions' },
  responses: { path: '/v1/responses', name: 'Response', title: 'Responses' },
  messages: { path: '/v1/messages', name: 'Message', title: 'Messages' },
} as const
type Name = keyof typeof SURFACES

const DESCRIPTION = `One service, three wire formats, the same models. Members that are not required may also be null, which means absent.

\`x-sluice\` tells the class of a request member: \`NOOP\` is checked and not acted upon, \`DEF\` takes only the listed values, \`REJ\` is an official member
that is not offered. No class: it acts. Members that are not listed are refused with 400 \`unknown_parameter\`.`

/** The document, as an object. */
export function openApi(): Json {
  const requests = Object.entries(SURFACES).map(([name, { name: object }]) => [
    `${object}Request`,
    published(surfaces[name as Name]!.requestSchema) as Json,
  ])
  return {
    openapi: '3.1.1',
    jsonSchemaDialect: 'https://json-schema.org/draft/2020-12/schema',
    info: {
      title: 'Text generation API',
      version: '1.0.0',
      description: DESCRIPTION,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{ bearer: [] }],
    paths: {
      ...Object.fromEntries(Object.keys(SURFACES).map(name => [SURFACES[name as Name].path, completion(name as Name)])),
      '/v1/messages/count_tokens': { post: COUNT_TOKENS },
      '/v1/models': { get: MODELS },
    },
    components: {
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer', description: 'Authorization: Bearer <API key>' },
      },
      schemas: { ...Object.fromEntries(requests), ...replies(), ...errors() },
      headers: {
        RequestId: { description: 'Id of the exchange, also in error bodies.', schema: { type: 'string' } },
        RetryAfter: { description: 'Whole seconds to wait, at least 1.', schema: { type: 'integer', minimum: 1 } },
        RetryAfterMs: { description: 'The same wait in milliseconds.', schema: { type: 'number' } },
        ShouldRetry: {
          description: '`false` when an unchanged retry can’t succeed, or should not be waited for.',
          schema: { const: 'false' },
        },
      },
    },
  }
}

/** The document as YAML text. */
export function openApiYaml(): string {
  const head = '# Made by docs/generate/index.ts from the surfaces’ schemas: edit those instead.\n'
  return head + stringify(openApi(), { aliasDuplicateObjects: false, lineWidth: 0 })
}

// ---- requests ---------------------------------------------------------------------------------------------------------

/** A schema without the checker's own annotations; hints become descriptions. */
function published(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(published)
  if (typeof schema !== 'object' || schema === null) return schema
  const out: Json = {}
  for (const [key, value] of Object.entries(schema)) {
    if (key === 'x-tag' || key === 'x-forms' || key === '$schema') continue
    if (key === 'x-hint') out['description'] = value
    else if (key === 'properties')
      out[key] = Object.fromEntries(Object.entries(value as Json).map(([name, member]) => [name, published(member)]))
    else if (key === 'const' || key === 'enum' || key === 'required') out[key] = value
    else out[key] = published(value)
  }
  return out
}

// ---- paths ------------------------------------------------------------------------------------------------------------

const ref = (name: string): Json => ({ $ref: `#/components/schemas/${name}` })
const json = (name: string): Json => ({ 'application/json': { schema: ref(name) } })
const ID = { 'x-request-id': { $ref: '#/components/headers/RequestId' } }
const RETRY = {
  ...ID,
  'retry-after': { $ref: '#/components/headers/RetryAfter' },
  'retry-after-ms': { $ref: '#/components/headers/RetryAfterMs' },
  'x-should-retry': { $ref: '#/components/headers/ShouldRetry' },
}

function completion(name: Name): Json {
  const { name: object, title } = SURFACES[name]
  return {
    post: {
      operationId: `create${object}`,
      summary: title,
      parameters: [
        {
          name: 'Idempotency-Key',
          in: 'header',
          description: 'The same key and body is executed once; a repeat replays the reply.',
          schema: { type: 'string', minLength: 1, maxLength: 255 },
        },
        {
          name: 'X-Excluded-Models',
          in: 'header',
          description: 'Comma-separated public model ids that must not be used.',
          schema: { type: 'string' },
        },
      ],
      requestBody: { required: true, content: json(`${object}Request`) },
      responses: {
        '200': {
          description: 'The reply; with `stream: true` as server-sent events.',
          headers: ID,
          content: { ...json(object), 'text/event-stream': { schema: { type: 'string' } } },
        },
        ...failures(name === 'messages' ? 'MessagesError' : 'Error', () => true),
      },
    },
  }
}

const COUNT_TOKENS: Json = {
  operationId: 'countTokens',
  summary: 'Counts the prompt of a Messages body; a body that Messages would refuse is counted all the same',
  requestBody: {
    required: true,
    content: {
      'application/json': {
        schema: { type: 'object', required: ['messages'], properties: { messages: { type: 'array' } } },
      },
    },
  },
  responses: {
    '200': { description: 'The count.', headers: ID, content: json('TokenCount') },
    ...failures('MessagesError', status => [400, 401, 408, 413, 415, 500, 503].includes(status)),
  },
}

const MODELS: Json = {
  operationId: 'listModels',
  summary: 'The models that the key may call',
  responses: {
    '200': { description: 'The models.', headers: ID, content: json('ModelList') },
    ...failures('Error', status => [401, 500, 503].includes(status)),
  },
}

/** One entry for each status of the error table, with its codes. */
function failures(schema: string, wanted: (status: number) => boolean): Json {
  const codes = new Map<number, [string, string][]>()
  for (const [code, { status, docs }] of Object.entries(ERRORS)) {
    if (!wanted(status)) continue
    codes.set(status, [...(codes.get(status) ?? []), [code, docs]])
  }
  const entries = [...codes].sort(([a], [b]) => a - b)
  return Object.fromEntries(
    entries.map(([status, rows]) => [
      String(status),
      {
        description: rows.map(([code, docs]) => `\`${code}\`: ${docs}`).join('\n\n'),
        headers: RETRY,
        content: json(schema),
      },
    ]),
  )
}

// ---- replies ----------------------------------------------------------------------------------------------------------

const text = { type: 'string' }
const nullable = (schema: Json): Json => ({ anyOf: [schema, { type: 'null' }] })
const count = { type: 'integer', minimum: 0 }
const shape = (properties: Json, optional: readonly string[] = []): Json => ({
  type: 'object',
  properties,
  required: Object.keys(properties).filter(name => !optional.includes(name)),
})

function errors(): Json {
  const members = {
    message: { type: 'string', description: 'Names the field, what was measured and what to change.' },
    type: { enum: [...new Set(Object.values(ERRORS).map(spec => spec.type))].sort() },
    code: { enum: Object.keys(ERRORS).sort() },
    param: nullable({ type: 'string', description: 'Path of the member, in the notation of the surface.' }),
    request_id: text,
    retryable: { type: 'boolean' },
    details: { type: 'object' },
  }
  return {
    Error: shape({ error: shape(members, ['details']) }),
    MessagesError: shape({ type: { const: 'error' }, error: shape(members, ['details']), request_id: text }),
  }
}

function replies(): Json {
  return {
    ChatCompletion: shape(
      {
        id: { type: 'string', pattern: '^chatcmpl-' },
        object: { const: 'chat.completion' },
        created: { type: 'integer' },
        model: text,
        choices: {
          type: 'array',
          minItems: 1,
          maxItems: 1,
          items: shape({
            index: { const: 0 },
            message: shape(
              {
                role: { const: 'assistant' },
                content: nullable(text),
                refusal: nullable(text),
                tool_calls: {
                  type: 'array',
                  items: shape({
                    id: text,
                    type: { const: 'function' },
                    function: shape({ name: text, arguments: text }),
                  }),
                },
              },
              ['tool_calls'],
            ),
            logprobs: nullable({ type: 'object' }),
            finish_reason: { enum: ['stop', 'length', 'tool_calls', 'content_filter'] },
          }),
        },
        usage: shape({
          prompt_tokens: count,
          completion_tokens: count,
          total_tokens: count,
          completion_tokens_details: shape({ reasoning_tokens: count }),
          prompt_tokens_details: shape({ cached_tokens: count }),
        }),
        service_tier: { const: 'default' },
        metadata: { type: 'object' },
      },
      ['metadata'],
    ),
    Response: shape(
      {
        id: { type: 'string', pattern: '^resp_' },
        object: { const: 'response' },
        created_at: { type: 'integer' },
        completed_at: nullable({ type: 'integer' }),
        model: text,
        status: { enum: ['completed', 'incomplete', 'in_progress', 'failed'] },
        error: nullable({ type: 'object' }),
        incomplete_details: nullable(
          shape({
            reason: { enum: ['max_output_tokens', 'content_filter', 'stream_idle_timeout', 'stream_ceiling_timeout'] },
          }),
        ),
        output: {
          type: 'array',
          items: shape({
            id: { type: 'string', pattern: '^item_eba1_' },
            type: {
              enum: [
                'message',
                'reasoning',
                'function_call',
                'custom_tool_call',
                'web_search_call',
                'tool_search_call',
              ],
            },
            status: { enum: ['completed', 'incomplete', 'in_progress', 'failed'] },
          }),
        },
        usage: nullable(
          shape({
            input_tokens: count,
            input_tokens_details: shape({ cached_tokens: count, cache_write_tokens: count }),
            output_tokens: count,
            output_tokens_details: shape({ reasoning_tokens: count }),
            total_tokens: count,
          }),
        ),
        warning: shape({ code: text, message: text }),
        previous_response_id: nullable(text),
        instructions: nullable(text),
        store: { type: 'boolean' },
        tools: { type: 'array' },
      },
      ['warning'],
    ),
    Message: shape(
      {
        id: { type: 'string', pattern: '^msg_' },
        type: { const: 'message' },
        role: { const: 'assistant' },
        model: text,
        content: {
          type: 'array',
          items: shape({
            type: { enum: ['text', 'thinking', 'tool_use', 'server_tool_use', 'web_search_tool_result'] },
          }),
        },
        stop_reason: {
          enum: [
            'end_turn',
            'max_tokens',
            'stop_sequence',
            'tool_use',
            'refusal',
            'pause_turn',
            'model_context_window_exceeded',
          ],
        },
        stop_sequence: nullable(text),
        stop_details: nullable({ type: 'object' }),
        usage: shape({
          input_tokens: count,
          cache_creation_input_tokens: count,
          cache_read_input_tokens: count,
          output_tokens: count,
        }),
        context_management: { type: 'object' },
      },
      ['context_management'],
    ),
    TokenCount: shape({ input_tokens: count }),
    ModelList: shape({
      object: { const: 'list' },
      data: {
        type: 'array',
        items: shape(
          {
            id: text,
            object: { const: 'model' },
            type: { const: 'model' },
            created: { type: 'integer' },
            created_at: text,
            owned_by: text,
            display_name: text,
            context_window: count,
            max_input_tokens: count,
            max_tokens: count,
            limits: { type: 'object', additionalProperties: { type: 'number' } },
          },
          ['max_tokens', 'limits'],
        ),
      },
      has_more: { const: false },
      first_id: nullable(text),
      last_id: nullable(text),
    }),
  }
}
