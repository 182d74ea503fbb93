/**
 * The OpenAPI 3.1 description of the public API, made from the surfaces' own schemas: what it says of a request is what
 * the gateway checks. Written to docs/openapi.yaml by docs/generate/index.ts.
 */
import { stringify } from 'yaml'
import { ERRORS } from '../../core/canon/errors.ts'
import { DIMENSIONS, headerFamily, isMoney } from '../../core/canon/limits.ts'
import { chat } from '../../surfaces/chat/index.ts'
import type { DescribedSurface, NamedSchema } from '../../surfaces/described.ts'
import { errorReply, unixSeconds } from '../../surfaces/envelope.ts'
import { surfaces } from '../../surfaces/index.ts'
import { messages } from '../../surfaces/messages/index.ts'
import { responses } from '../../surfaces/responses/index.ts'
import { INCLUDES } from '../../surfaces/responses/schema.ts'
import { array, exactly, integer, map, orNull, shape, string } from '../../surfaces/schema.ts'

type Json = Record<string, unknown>

const DESCRIPTION = `One service and the same models, in each of its wire formats. Members that are not required may also be null, which means absent.

\`x-sluice\` tells the class of a request member: \`NOOP\` is checked and not acted upon, \`DEF\` takes only the listed values, \`REJ\` is an official member
that is not offered. No class: it acts. Members that are not listed are refused with 400 \`unknown_parameter\`.`

/** By name: the headers of each dimension and window that an account can have a limit of. */
const LIMIT_HEADERS: Json = limitHeaders()

function limitHeaders(): Json {
  const headers: Json = {}
  for (const [dimension, { kind, limits, words, money }] of DIMENSIONS) {
    if (money === 'in no header') continue
    for (const limit of limits) {
      const name = headerFamily(dimension, limit)
      const per = kind === 'bucket' ? (name.endsWith('-day') ? ' per day' : ' per minute') : ''
      const figure = isMoney(dimension) ? { type: 'string' } : { type: 'integer', minimum: 0 }
      const of = isMoney(dimension) ? 'of the tightest spend limit, in USD' : `of ${words}${per}`
      headers[`x-ratelimit-limit-${name}`] = { description: `The limit ${of}.`, schema: figure }
      headers[`x-ratelimit-remaining-${name}`] = { description: `What is left ${of}.`, schema: figure }
      if (kind === 'bucket')
        headers[`x-ratelimit-reset-${name}`] = {
          description: `When the limit ${of} is whole again: \`250ms\`, \`56s\`.`,
          schema: { type: 'string', pattern: '^[0-9]+(ms|s)$' },
        }
    }
  }
  headers['x-ratelimit-scope'] = {
    description: '`platform` while the load of the platform reduces the account’s limits.',
    schema: { enum: ['org', 'platform'] },
  }
  return headers
}

/** What one client alone speaks is not described. */
const PUBLIC = Object.values(surfaces).filter(({ client }) => client === undefined)

/** The surfaces whose requests are quoted. */
const QUOTED: readonly DescribedSurface[] = [responses, chat, messages]

/** The document, as an object. */
export function openApi(): Json {
  const requests = PUBLIC.map(({ reply, requestSchema }) => ({
    name: requestOf(reply.name),
    schema: published(requestSchema) as Json,
  }))
  const errors = [errorReply, ...PUBLIC.map(surface => surface.errorReply)]
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
      ...Object.fromEntries(PUBLIC.map(surface => [surface.path, completion(surface)])),
      ...Object.fromEntries(QUOTED.map(surface => [`${surface.path}/quote`, quote(surface)])),
      '/v1/quote': QUOTE_OF_ANY,
      '/v1/messages/count_tokens': { post: COUNT_TOKENS },
      '/v1/responses/input_tokens': { post: INPUT_TOKENS },
      '/v1/responses/{id}': { get: RESPONSE, delete: DELETE_RESPONSE },
      '/v1/responses/{id}/input_items': { get: INPUT_ITEMS },
      '/v1/models': { get: MODELS },
      '/v1/models/{id}': { get: MODEL },
      '/v1/usage': { get: USAGE },
      '/v1/limits': { get: LIMITS },
      '/v1/receipts': { get: STATEMENT },
      '/v1/receipts/{id}': { get: RECEIPT },
      '/v1/receipts/keys': { get: RECEIPT_KEYS },
    },
    components: {
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer', description: 'Authorization: Bearer <API key>' },
      },
      schemas: { ...named(requests), ...named(PUBLIC.map(surface => surface.reply)), ...OTHERS, ...named(errors) },
      headers: {
        RequestId: { description: 'Id of the exchange, also in error bodies.', schema: { type: 'string' } },
        RetryAfter: { description: 'Whole seconds to wait, at least 1.', schema: { type: 'integer', minimum: 1 } },
        RetryAfterMs: { description: 'The same wait in milliseconds.', schema: { type: 'number' } },
        ShouldRetry: {
          description: '`false` when an unchanged retry can’t succeed, or should not be waited for.',
          schema: { const: 'false' },
        },
        ...LIMIT_HEADERS,
      },
    },
  }
}

/** The document as YAML text. */
export function openApiYaml(): string {
  const head = '# Made by docs/generate/index.ts from the surfaces’ schemas: edit those instead.\n'
  return head + stringify(openApi(), { aliasDuplicateObjects: false, lineWidth: 0 })
}

// ---- requests -------------------------------------------------------------------------------------------------------

/** A schema without the checker's own annotations; hints become descriptions. */
function published(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(published)
  if (typeof schema !== 'object' || schema === null) return schema
  const out: Json = {}
  for (const [key, value] of Object.entries(schema)) {
    if (key === 'x-tag' || key === 'x-forms' || key === 'x-bound' || key === 'x-wish' || key === '$schema') continue
    if (key === 'x-hint') out['description'] = value
    else if (key === 'properties')
      out[key] = Object.fromEntries(Object.entries(value as Json).map(([name, member]) => [name, published(member)]))
    else if (key === 'const' || key === 'enum' || key === 'required') out[key] = value
    else out[key] = published(value)
  }
  return out
}

// ---- paths ----------------------------------------------------------------------------------------------------------

const ref = (name: string): Json => ({ $ref: `#/components/schemas/${name}` })
const json = (name: string): Json => ({ 'application/json': { schema: ref(name) } })
const text = string()
const ID = { 'x-request-id': { $ref: '#/components/headers/RequestId' } }
const LIMITED = {
  ...ID,
  ...Object.fromEntries(Object.keys(LIMIT_HEADERS).map(name => [name, { $ref: `#/components/headers/${name}` }])),
}
const RETRY = {
  'retry-after': { $ref: '#/components/headers/RetryAfter' },
  'retry-after-ms': { $ref: '#/components/headers/RetryAfterMs' },
  'x-should-retry': { $ref: '#/components/headers/ShouldRetry' },
}

const requestOf = (reply: string): string => `${reply}Request`
const named = (schemas: readonly NamedSchema[]): Json =>
  Object.fromEntries(schemas.map(({ name, schema }) => [name, schema]))

const MAX_COST_HEADER = {
  name: 'X-Max-Cost',
  in: 'header',
  description:
    'The most that the request may cost, USD. Its output cap is lowered to what that pays for; below the price of the prompt it is refused.',
  schema: { type: 'string', pattern: '^[0-9]{1,7}(\\.[0-9]{1,9})?$' },
}

function completion({ title, reply, errorReply, samples }: DescribedSurface): Json {
  return {
    post: {
      operationId: `create${reply.name}`,
      summary: title,
      parameters: [
        {
          name: 'Idempotency-Key',
          in: 'header',
          description: 'The same key and body is executed once; a repeat replays the reply.',
          schema: { type: 'string', minLength: 1, maxLength: 255 },
        },
        MAX_COST_HEADER,
        {
          name: 'X-Excluded-Models',
          in: 'header',
          description: 'Comma-separated public model ids that must not be used.',
          schema: { type: 'string' },
        },
        ...(reply === responses.reply ? [RESUMABLE] : []),
      ],
      requestBody: { required: true, content: json(requestOf(reply.name)) },
      responses: {
        '200': {
          description: samples.stream ? 'The reply; with `stream: true` as server-sent events.' : 'The reply.',
          headers: LIMITED,
          content: {
            ...json(reply.name),
            ...(samples.stream && { 'text/event-stream': { schema: { type: 'string' } } }),
          },
        },
        ...failures(errorReply.name, () => true),
      },
    },
  }
}

const RESUMABLE: Json = {
  name: 'X-Sluice-Resumable',
  in: 'header',
  description:
    '`true`: the stream can be read again while it runs (`GET /v1/responses/{id}?stream=true`), and runs on without its client.',
  schema: { type: 'string', enum: ['true', 'false'] },
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
    '200': { description: 'The count.', headers: LIMITED, content: json('TokenCount') },
    ...failures(messages.errorReply.name, status => [400, 401, 408, 413, 415, 500, 503].includes(status)),
  },
}

const quote = ({ title, reply, errorReply }: DescribedSurface): Json =>
  quoted(reply.name, `a request to ${title}`, ref(requestOf(reply.name)), errorReply)

/** @param of what is quoted, for people */
function quoted(name: string, of: string, schema: Json, error: NamedSchema, more = ''): Json {
  return {
    post: {
      operationId: `quote${name}`,
      summary: `What ${of} would cost at most, and whether it would be admitted now`,
      description: `Nothing is sent to a provider, and nothing is billed. Each quote takes one from the bucket of counts.${more}`,
      parameters: [MAX_COST_HEADER],
      requestBody: { required: true, content: { 'application/json': { schema } } },
      responses: {
        '200': { description: 'The quote.', headers: LIMITED, content: json('Quote') },
        ...failures(error.name, status => [400, 401, 404, 408, 413, 415, 429, 500, 503].includes(status)),
      },
    },
  }
}

const QUOTE_OF_ANY = quoted(
  'Any',
  'a request of any of the three APIs',
  { anyOf: QUOTED.map(({ reply }) => ref(requestOf(reply.name))) },
  errorReply,
  ' Errors have the form of the API whose request it is.',
)

const INPUT_TOKENS: Json = {
  operationId: 'countInputTokens',
  summary: 'Counts the prompt of a Responses body, whose members are all optional',
  requestBody: { required: true, content: { 'application/json': { schema: { type: 'object' } } } },
  responses: {
    '200': { description: 'The count.', headers: LIMITED, content: json('InputTokens') },
    ...failures(responses.errorReply.name, status => [400, 401, 408, 413, 415, 429, 500, 503].includes(status)),
  },
}

const BY_ID = [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }]
const FOUND = (status: number) => [401, 404, 500, 503].includes(status)

const RESPONSE: Json = {
  operationId: 'retrieveResponse',
  summary: 'A retained response, or its stream',
  parameters: [
    ...BY_ID,
    {
      name: 'stream',
      in: 'query',
      description: '`true`: its events again, as its client got them.',
      schema: { type: 'boolean', default: false },
    },
    {
      name: 'starting_after',
      in: 'query',
      description: 'The `sequence_number` of the last event that the client has: the stream begins behind it.',
      schema: { type: 'integer', minimum: 0 },
    },
  ],
  responses: {
    '200': {
      description: 'The response; with `stream=true` as server-sent events.',
      headers: LIMITED,
      content: { ...json(responses.reply.name), 'text/event-stream': { schema: { type: 'string' } } },
    },
    ...failures(responses.errorReply.name, status => [400, 403, 429].includes(status) || FOUND(status)),
  },
}

const INPUT_ITEMS: Json = {
  operationId: 'listInputItems',
  summary: 'The items of a retained response’s input',
  parameters: [
    ...BY_ID,
    { name: 'limit', in: 'query', schema: { type: 'integer', minimum: 1, maximum: 100, default: 20 } },
    { name: 'order', in: 'query', schema: { type: 'string', enum: ['asc', 'desc'], default: 'desc' } },
    { name: 'after', in: 'query', description: 'The id of an item: the page begins behind it.', schema: text },
    {
      name: 'include',
      in: 'query',
      description: 'What is shown beside what is always shown; also as `include[]`.',
      schema: { type: 'array', items: { type: 'string', enum: [...INCLUDES] } },
    },
  ],
  responses: {
    '200': { description: 'A page of items.', headers: ID, content: json('InputItemList') },
    ...failures(responses.errorReply.name, status => status === 400 || FOUND(status)),
  },
}

const DELETE_RESPONSE: Json = {
  operationId: 'deleteResponse',
  summary: 'Deletes a retained response',
  parameters: BY_ID,
  responses: {
    '200': { description: 'It is deleted.', headers: LIMITED, content: json('DeletedResponse') },
    ...failures(responses.errorReply.name, FOUND),
  },
}

const MODEL: Json = {
  operationId: 'retrieveModel',
  summary: 'A model that the key may call',
  parameters: BY_ID,
  responses: {
    '200': { description: 'The model.', headers: LIMITED, content: json('Model') },
    ...failures(errorReply.name, status => status === 403 || FOUND(status)),
  },
}

const MODELS: Json = {
  operationId: 'listModels',
  summary: 'The models that the key may call',
  responses: {
    '200': { description: 'The models.', headers: LIMITED, content: json('ModelList') },
    ...failures(errorReply.name, status => [401, 500, 503].includes(status)),
  },
}

const question = (name: string, description: string): Json => ({
  name,
  in: 'query',
  description,
  schema: { type: 'string' },
})
const LOOKS = (status: number) => [401, 429, 500, 503].includes(status)

const USAGE: Json = {
  operationId: 'showUsage',
  summary: 'What the key used, or its organization where the key may see that',
  description: 'Sums of whole hours. Each answer takes one from the bucket of counts of tokens.',
  parameters: [
    question('since', '`2026-11-01` or `2026-11-01T12:00:00Z`; default is the first of the running UTC month.'),
    question('until', 'The same, at most 92 days later; default is now.'),
    question(
      'group_by',
      'Of `hour`, `day`, `month`, `model`, `key`, `tag`, comma-separated; default is `day,model`, or `day,tag` with `tag`.',
    ),
    question('key', 'The use of this key alone.'),
    question('model', 'The use of this model alone.'),
    question('tag', 'The name of a tag: the use that has it, by its values unless `group_by` leaves `tag` out.'),
  ],
  responses: {
    '200': { description: 'The sums.', headers: LIMITED, content: json('UsageList') },
    ...failures(errorReply.name, status => status === 400 || LOOKS(status)),
  },
}

const LIMITS: Json = {
  operationId: 'listLimits',
  summary: 'The limits of organization and key, and what is used of them',
  description: 'Each answer takes one from the bucket of counts of tokens.',
  responses: {
    '200': { description: 'The limits.', headers: LIMITED, content: json('LimitList') },
    ...failures(errorReply.name, LOOKS),
  },
}

const TURNED_ON = 'Where the operator has turned receipts on.'

const STATEMENT: Json = {
  operationId: 'showStatement',
  summary: 'The signed statement of a month: a receipt a line',
  description: `${TURNED_ON} Each answer takes one from the bucket of counts of tokens.`,
  parameters: [{ ...question('month', 'A UTC month, `2026-11`.'), required: true }],
  responses: {
    '200': {
      description: 'The lines, each a JSON object: the head, the receipts, and the signed end.',
      headers: LIMITED,
      content: { 'application/x-ndjson': { schema: text } },
    },
    ...failures(errorReply.name, status => status === 400 || LOOKS(status)),
  },
}

const RECEIPT: Json = {
  operationId: 'retrieveReceipt',
  summary: 'The signed receipt of a request, by its X-Request-Id',
  description: `${TURNED_ON} Each answer takes one from the bucket of counts of tokens.`,
  parameters: BY_ID,
  responses: {
    '200': { description: 'The receipt.', headers: LIMITED, content: json('Receipt') },
    ...failures(errorReply.name, status => status === 404 || LOOKS(status)),
  },
}

const RECEIPT_KEYS: Json = {
  operationId: 'listReceiptKeys',
  summary: 'The public keys that receipts are verified with',
  description: TURNED_ON,
  security: [],
  responses: {
    '200': { description: 'A JSON Web Key Set.', headers: ID, content: json('ReceiptKeys') },
    ...failures(errorReply.name, status => status === 500),
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
        headers: { ...(status === 429 ? LIMITED : ID), ...RETRY },
        content: json(schema),
      },
    ]),
  )
}

// ---- replies --------------------------------------------------------------------------------------------------------

const count = integer(0)

const model = shape(
  {
    id: text,
    object: exactly('model'),
    type: exactly('model'),
    created: unixSeconds,
    created_at: text,
    owned_by: text,
    display_name: text,
    context_window: count,
    max_input_tokens: count,
    max_tokens: count,
    limits: map({ type: 'number' }),
  },
  ['max_tokens', 'limits'],
)

/** Schemas of the endpoints that belong to no surface. */
const OTHERS: Json = {
  TokenCount: shape({ input_tokens: count }),
  InputTokens: shape({ object: exactly('response.input_tokens'), input_tokens: count }),
  DeletedResponse: shape({ id: text, object: exactly('response'), deleted: exactly(true) }),
  InputItemList: shape({
    object: exactly('list'),
    data: array({
      type: 'object',
      required: ['id', 'type', 'status'],
      properties: { id: text, type: text, status: text },
    }),
    first_id: orNull(text),
    last_id: orNull(text),
    has_more: { type: 'boolean' },
  }),
  UsageList: shape({
    object: exactly('list'),
    scope: { enum: ['key', 'organization'] },
    since: text,
    until: text,
    data: array(
      shape(
        {
          object: exactly('usage'),
          ...{ hour: text, day: text, month: text, model: text, key: text, tag: text },
          ...{ requests: count, input_tokens: count, cached_tokens: count, cache_write_tokens: count },
          ...{ output_tokens: count, reasoning_tokens: count, searches: count, cost_nano_usd: count },
        },
        ['hour', 'day', 'month', 'model', 'key', 'tag'],
      ),
    ),
  }),
  Quote: shape({
    object: exactly('quote'),
    model: text,
    input_tokens: count,
    max_output_tokens: orNull(count),
    cost: shape({
      currency: exactly('USD'),
      most: orNull(text),
      input: text,
      price: orNull(shape({ used: text, input_per_million: text, output_per_million: text })),
    }),
    admitted: { type: 'boolean' },
    refusal: orNull(
      shape(
        {
          ...{ code: text, message: text },
          retryable: { type: 'boolean' },
          retry_after_seconds: orNull(count),
          details: { type: 'object' },
        },
        ['details'],
      ),
    ),
  }),
  LimitList: shape({
    object: exactly('list'),
    scope: { enum: ['key', 'organization'] },
    data: array(
      shape({
        object: exactly('limit'),
        name: text,
        scope: { enum: ['key', 'organization'] },
        model: orNull(text),
        unit: { enum: ['requests', 'tokens', 'input_tokens', 'output_tokens', 'nano_usd'] },
        ...{ limit: count, used: count, remaining: count },
        resets_at: orNull(text),
        binds: { type: 'boolean' },
      }),
    ),
  }),
  Receipt: shape(
    {
      ...{ object: exactly('receipt'), version: exactly(1), request_id: text, time: text },
      ...{ organization: text, key: text, surface: text, model: text, outcome: text },
      body_sha256: orNull(text),
      tags: map(text),
      usage: shape({
        ...{ input_tokens: count, cached_tokens: count, cache_write_tokens: count, output_tokens: count },
        ...{ reasoning_tokens: count, searches: count, estimated: { type: 'boolean' } },
      }),
      billing: text,
      price: orNull(shape({ book: text, used: text, input_pico_usd: count, output_pico_usd: count })),
      cost_nano_usd: count,
      signature: shape({ key: text, value: text }),
    },
    ['tags'],
  ),
  ReceiptKeys: shape({
    keys: array(
      shape({
        ...{ kty: exactly('OKP'), crv: exactly('Ed25519'), x: text, kid: text },
        ...{ use: exactly('sig'), alg: exactly('EdDSA') },
      }),
    ),
  }),
  Model: model,
  ModelList: shape({
    object: exactly('list'),
    data: array(model),
    has_more: exactly(false),
    first_id: orNull(text),
    last_id: orNull(text),
  }),
}
