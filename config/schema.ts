/**
 * The sections of gateway.yaml, one schema each. Loading checks with them, json-schema.ts writes them out for editors,
 * and reference.ts lists them in docs/configuration.md. `~` for a key whose schema has no null means "not set".
 * Sections of named entries (`ENTRIES`) are checked entry by entry, so that a fault in one entry does not hide the
 * faults of the others.
 */
import { ANY_SURFACE, EFFORTS, type SurfaceName } from '../core/canon/conversation.ts'
import { isUsd, LIMITS as LIMIT_TABLE, type LimitName, USER_LIMITS } from '../core/canon/limits.ts'
import { CAPABILITIES, type DialectSettings } from '../core/ports/dialect.ts'
import {
  type Arrives,
  choice,
  count,
  duration,
  type Filled,
  flag,
  list,
  nullable,
  object,
  type Schema,
  secretText,
  size,
  text,
} from '../core/tools/vocabulary.ts'

/** To what a token of the admin API may be bound. */
export const ACTIONS = ['keys', 'plans', 'organizations', 'usage'] as const
export const STREAM_ROWS = ['minimal', 'medium', 'high', 'xhigh', 'max'] as const
export const ACCOUNT_CAPABILITIES = ['images', 'documents', 'reasoning', 'tools', 'web_search'] as const

/**
 * Names of the dialects and surfaces of this build, and the dialects' own settings. config/ may import neither: its
 * schemas only mark where such a name or setting belongs, and `withNames` fills them in.
 */
export interface Names {
  readonly dialects: readonly string[]
  readonly surfaces: readonly string[]
  /** What a route may name: the surfaces, and `any`. */
  readonly routable: readonly string[]
  readonly settings: Required<DialectSettings>
}

/** @param surfaces names of the surfaces */
export function namesOf(
  dialects: Readonly<Record<string, { readonly settings?: DialectSettings | undefined }>>,
  surfaces: readonly string[],
): Names {
  const all = Object.values(dialects)
  const settings = (of: keyof DialectSettings) => Object.assign({}, ...all.map(dialect => dialect.settings?.[of]))
  return {
    dialects: Object.keys(dialects),
    surfaces,
    routable: [...surfaces, ANY_SURFACE],
    settings: { provider: settings('provider'), backend: settings('backend') },
  }
}
/**
 * A text that has to be one of the names of `part`. Until `withNames` has filled it, `enum` is not a list, so an
 * unfilled schema does not compile.
 */
const named = <N extends string = string>(part: Exclude<keyof Names, 'settings'>, description: string): Schema<N> => ({
  type: 'string',
  enum: part,
  description,
})

/**
 * By unfilled schema: the names it was last filled with, and the result. The result is used again because validators
 * are found by the identity of the schema object.
 */
const filledBefore = new WeakMap<Schema, { names: string; schema: Schema }>()

/** Marks an entry to which `withNames` adds the dialects' own settings. */
const withSettings = <O extends keyof DialectSettings>(of: O): { settings: O } => ({ settings: of })

/**
 * The schema with the names filled in where a member takes one, and the settings where it is marked; the schema itself
 * where nothing is. The same names give the same object.
 */
export function withNames<S extends Schema>(schema: S, names: Names): S {
  const key = JSON.stringify(names)
  const before = filledBefore.get(schema)
  if (before?.names === key) return before.schema as S
  const result = filled(schema, names)
  if (result !== schema) filledBefore.set(schema, { names: key, schema: result })
  return result as S
}

function filled(schema: Schema, names: Names): Schema {
  const { settings, ...rest } = schema
  if (typeof schema['enum'] === 'string')
    return { ...rest, enum: [...names[schema['enum'] as Exclude<keyof Names, 'settings'>]] }
  const before = (schema['properties'] ?? {}) as Record<string, Schema>
  const members = Object.entries(before).map(([key, member]) => [key, filled(member, names)] as const)
  const items = schema['items'] && filled(schema['items'] as Schema, names)
  const same = items === schema['items'] && members.every(([key, member]) => member === before[key])
  if (same && settings === undefined) return schema
  const own = settings === undefined ? {} : names.settings[settings as keyof DialectSettings]
  if (members.length > 0) rest['properties'] = { ...Object.fromEntries(members), ...own }
  if (items) rest['items'] = items
  return rest
}

/** `all`, or a list. */
function allOr<I extends Schema>(items: I, description: string): Schema<'all' | Arrives<I>[]>
function allOr<I extends Schema>(items: I, description: string, fallback: 'all'): Filled<'all' | Arrives<I>[]>
function allOr(items: Schema, description: string, fallback?: 'all'): Schema {
  return {
    type: ['string', 'array'],
    pattern: '^all$',
    examples: ['all', '[a, b]'],
    items,
    uniqueItems: true,
    ...(fallback === undefined ? {} : { default: fallback }),
    description,
  }
}
const name = (description: string) => text(description, { minLength: 1 })
/** A mapping of any keys to values of one schema; empty when not set. */
const byName = <V extends Schema>(values: V, description: string): Filled<Record<string, Arrives<V>>> => ({
  type: 'object',
  default: {},
  additionalProperties: values,
  description,
})

// ---- server ---------------------------------------------------------------------------------------------------------

const listen = (fallback: string, description: string) => text(description, { format: 'listen', default: fallback })

const file = (description: string) => name(description)

export const adminMembers = object({
  listen: listen('127.0.0.1:9090', 'Where the admin pages listen.'),
  token: secretText('Bearer token that the admin pages ask for; needed when they listen beyond loopback.', {
    format: 'credential',
  }),
  hosts: list(
    text('Host name, without a port.', { pattern: '^[A-Za-z0-9._-]+$' }),
    'Names under which the admin pages answer without a token, beside localhost and addresses. Any other name is refused with 421: a page of another site could give its own name this address.',
    { default: [] },
  ),
  local_token: file(
    'File to which the gateway writes a token of the role operate, readable by its own user alone, for a console on the same machine. The admin pages stay as open as they are. Only where they listen on loopback; read at the start.',
  ),
  tokens: list(
    object(
      {
        name: text('Name of the token in the audit.', { pattern: '^[A-Za-z0-9._-]{1,64}$' }),
        role: choice(['read', 'operate'], 'read sees all; operate also changes accounts of the store.'),
        sha256: text('SHA-256 of the token, in hex; `sluice admin-token` makes both.', {
          pattern: '^[0-9a-fA-F]{64}$',
        }),
        acts_for: choice(
          ['optional', 'required'],
          'required: the token is good for requests with the header Sluice-Act-For: ORGANIZATION alone, and for nothing outside that organization.',
          'optional',
        ),
        actions: list(
          choice(ACTIONS, 'An action.'),
          'What the token is bound to; left out, it is good for all that its role may.',
          { minItems: 1, uniqueItems: true },
        ),
      },
      ['name', 'role', 'sha256'],
    ),
    'Named tokens, beside `token`, which has the role read. Without one of the role operate nothing can be changed through the admin API. A reload applies them.',
    { default: [] },
  ),
  audit: object(
    {
      keep: duration('400d', 'How long an entry is kept.'),
      most: count(100_000, 'Most entries; above it the oldest go.', 1),
    },
    [],
    { default: {}, description: 'What is kept of who changed which account of the store.' },
  ),
})

export const server = object(
  {
    listen: listen('127.0.0.1:8080', 'Where the public surfaces listen.'),
    admin: {
      ...adminMembers,
      type: ['string', 'object'],
      format: 'listen',
      default: '127.0.0.1:9090',
      description:
        '/healthz, /readyz, /metrics, the dashboard and the admin API: an address, or { listen, token, … }. Never public.',
    } as Filled<string | Arrives<typeof adminMembers>>,
    listener: choice(
      ['uws', 'node'],
      'uws, or the same contract on node:http for systems without a uws binary. Never switched silently.',
      'uws',
    ),
    workers: {
      type: ['integer', 'string'],
      minimum: 1,
      maximum: 1024,
      pattern: '^auto$',
      examples: ['auto', '4'],
      default: 1,
      description:
        'Processes that share the port; auto is one per core. More than 1 needs a store that is local or redis. All have the admin pages together.',
    } as Filled<number | 'auto'>,
    drain: duration('30s', 'On SIGTERM: how long running streams may still run, once no more requests are taken.'),
    drain_delay: duration(
      '0s',
      'On SIGTERM: how long requests are still taken while /readyz is 503 already. A load balancer that looks every 2 s needs more than 2 s.',
    ),
    keep_alive: duration('15s', 'Silence after which a stream gets its keep-alive, and a WebSocket its ping.'),
    websocket: choice(
      ['on', 'off'],
      'Responses over WebSocket on the path of POST /v1/responses, with listener uws. Off, and with listener node: 426, at which agents fall back to HTTP.',
      'on',
    ),
    stall_timeout: duration('30s', 'A client that takes no byte for this long is disconnected.'),
    max_connections: count(20_000, 'Most client connections at once.', 1),
    trust_proxy: list(
      text('An address or network.', { format: 'network' }),
      'Addresses whose X-Forwarded-For is believed.',
      {
        default: [],
      },
    ),
    tls: nullable(
      object(
        { cert: name('PEM file of the certificate chain.'), key: name('PEM file of the private key.') },
        ['cert', 'key'],
        {
          description: 'Serve HTTPS with this certificate; not set: plain HTTP.',
        },
      ),
    ),
  },
  [],
  { description: 'Where and how the gateway listens.' },
)

// ---- store ----------------------------------------------------------------------------------------------------------

export const STORE_URL = '^(local(:.+)?|sqlite:.+|rediss?(\\+(sentinel|cluster))?://.+)$'
const storeUrl = text(
  'sqlite:FILE, local, local:FOLDER, or a redis URL: redis://, rediss://, redis+sentinel://, redis+cluster://.',
  {
    pattern: STORE_URL,
    examples: ['sqlite:./data/gateway.db', 'local', 'redis://127.0.0.1:6379'],
  },
)

export const storeMembers = object({
  url: { ...storeUrl, default: 'sqlite:./data/gateway.db' },
  timeout: duration(
    '250ms',
    'Longest wait for one call to Redis. After it a request that needs the answer is refused with 503.',
  ),
  max_records: size('4GiB', 'Most bytes of retained responses and continuation data, over all organizations.'),
  max_plugin_values: size('256MiB', 'Most bytes of what plugins keep in the store, over all organizations.'),
  max_memory: nullable(
    size('0', "Memory of the server of `local`. It evicts nothing; full, it refuses. Not set: half of the machine's."),
  ),
  share: {
    type: 'number',
    exclusiveMinimum: 0,
    maximum: 1,
    default: 0.25,
    description:
      "Part of max_records, of max_plugin_values, and of the plugin idempotency's max_total, that one organization may have. Above it its oldest go.",
  } as Filled<number>,
  replicas: {
    type: ['integer', 'string'],
    minimum: 0,
    pattern: '^auto$',
    examples: ['auto', '1'],
    default: 'auto',
    description:
      'How many replicas of Redis must have a ledger row before it leaves the local journal; auto is one, once one was seen.',
  } as Filled<number | 'auto'>,
})

export const store = {
  ...storeMembers,
  type: ['string', 'object'],
  pattern: STORE_URL,
  examples: ['sqlite:./data/gateway.db', 'local', 'redis://127.0.0.1:6379'],
  default: 'sqlite:./data/gateway.db',
  description:
    'Holds limits, spend, ledger, idempotency records and retained responses: a URL, or { url, … }. sqlite is for one process; local for the processes of one machine; redis for any number.',
} as Filled<string | Arrives<typeof storeMembers>>

// ---- pipelines and routes -------------------------------------------------------------------------------------------

/** A pipeline entry written in full. pipelines.ts reads the entries. */
export const fullEntry = object(
  {
    plugin: name('Name of the plugin.'),
    id: text('Name of this place in the pipeline; the plugin name when not set.', {
      pattern: '^[A-Za-z0-9_-]+$',
      examples: ['tag-2'],
    }),
    on_failure: choice(
      ['deny', 'skip'],
      'What a plugin that breaks does to the request: deny refuses it, skip goes on without the plugin.',
      'deny',
    ),
    config: { type: 'object', default: {}, description: "The plugin's own options." } as Filled<
      Record<string, unknown>
    >,
  },
  ['plugin'],
)

export const route = object(
  {
    match: text('Method and path; ANY is every method, and a path that ends in /* is a prefix.', {
      pattern: '^[A-Z]+ +/\\S*$',
      examples: ['POST /v1/responses', 'ANY /v1/files/*'],
    }),
    surface: named<SurfaceName>(
      'routable',
      `The public API that requests on this route speak. \`${ANY_SURFACE}\`, where the answer is the same on each: a request with the header \`anthropic-version\` or \`x-api-key\`, or with a member that only Messages has, is of Messages, else one with \`input\` of Responses, and any other of Chat Completions.`,
    ),
    pipeline: name('The pipeline that serves this route.'),
  },
  ['match', 'pipeline'],
)

export const plugins = list(
  name('A .ts, .mts, .js or .mjs file, or npm: and the name of a package.'),
  'Plugins and dialects that are not built in. A file, relative to this one; a pipeline names a plugin, and a provider a dialect, by its file name. Or a package of npm, such as npm:sluice-plugin-x, installed in the folder of this file; a pipeline names it x.',
  { default: [], uniqueItems: true },
)

// ---- providers and models -------------------------------------------------------------------------------------------

const url = (description: string) =>
  text(description, { pattern: '^https?://[^\\s/?#]+[^\\s?#]*$', examples: ['https://api.example.com/v1'] })

/** What is in a host or path. */
export const SETTING = '^[A-Za-z0-9][A-Za-z0-9._:-]*$'

const aws = object(
  {
    region: text('The region, e.g. us-east-1.', { pattern: '^[a-z0-9-]+$', examples: ['us-east-1'] }),
    service: text('Signing name of the service.', { minLength: 1, default: 'bedrock' }),
    profile: name('A profile of the shared AWS configuration files.'),
    access_key_id: secretText('Access key id; without it, the usual places are searched.', { format: 'credential' }),
    secret_access_key: secretText('The secret that belongs to access_key_id.', { format: 'credential' }),
    session_token: secretText('Session token of temporary keys.', { format: 'credential' }),
  },
  [],
  {
    description:
      'AWS Signature Version 4. Without keys: environment, profile, web identity, container role, instance role.',
  },
)
const google = object(
  {
    credentials: file(
      'JSON file of a service account or of workload identity federation. Not set: Application Default Credentials, such as those of the metadata server.',
    ),
    scopes: list(name('A scope.'), 'OAuth scopes of the token.', {
      default: ['https://www.googleapis.com/auth/cloud-platform'],
    }),
  },
  [],
  { description: 'An access token of Google Cloud.' },
)
const azure = object(
  {
    tenant_id: name('The Entra tenant. Not set: a managed identity of this machine.'),
    client_id: name('The application, or the user-assigned managed identity.'),
    client_secret: secretText('Secret of the application.', { format: 'credential' }),
    token_file: file('File with a federated token, in place of the secret (workload identity).'),
    scope: text('Scope of the token.', { minLength: 1, default: 'https://cognitiveservices.azure.com/.default' }),
    authority: {
      ...url('The login service, which another cloud has elsewhere.'),
      default: 'https://login.microsoftonline.com',
    },
  },
  [],
  { description: 'A token of Microsoft Entra; with api_key instead, that key in the header `api-key`.' },
)
const authMembers = object({
  header: text('Name of the header that carries api_key, in place of the one of the dialect.', {
    pattern: "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
    examples: ['x-api-key'],
  }),
  aws,
  google,
  azure,
})
/** A word, or a mapping of one of the members. */
const auth = {
  ...authMembers,
  type: ['string', 'object'],
  pattern: '^(bearer|aws|google|azure)$',
  examples: ['bearer', 'aws', 'google', 'azure', '{ header: x-api-key }'],
  description:
    'How requests authenticate: bearer (api_key as a bearer token), { header: NAME }, aws, google or azure. Not set: api_key in the header that the dialect uses.',
} as Schema<string | Arrives<typeof authMembers>>

export const provider = object(
  {
    preset: text(
      'A service by name: fills in dialect, base_url, auth and what else it needs; `sluice list` has them.',
      {
        examples: ['groq'],
      },
    ),
    region: text('AWS region, for the preset bedrock.', { pattern: SETTING }),
    project: text('Google Cloud project, for the preset vertex.', { pattern: SETTING }),
    location: text('Google Cloud location, for the preset vertex.', { pattern: SETTING }),
    resource: text('Azure resource, for the preset azure.', { pattern: SETTING }),
    dialect: named('dialects', 'The wire format that the provider speaks.'),
    variant: text('The form in which another service speaks the dialect: other paths, members and framing.', {
      examples: ['bedrock', 'vertex', 'azure-deployments'],
    }),
    api_version: text('Version of the API, for the variant azure-deployments.', {
      pattern: '^[A-Za-z0-9.-]+$',
      examples: ['2024-10-21'],
    }),
    base_url: text("The provider's base URL, or simulator: the built-in upstream.", {
      pattern: '^(simulator|https?://[^\\s/?#]+[^\\s?#]*)$',
      examples: ['https://api.openai.com/v1', 'simulator'],
    }),
    api_key: secretText("The gateway's own key at the provider; empty is none.", { format: 'credential' }),
    auth,
    headers: byName(
      secretText('Value of the header.', { pattern: '^[^\\r\\n\\0]*$' }),
      'Headers added to every request.',
    ),
    max_connections: count(256, 'Most connections at once; each carries one request, or more with http2.', 1),
    queue: object(
      {
        max: count(1000, 'Most requests that wait for a connection; one more is 503 route_capacity.'),
        wait: duration('2s', 'Longest wait for a connection.'),
      },
      [],
      { default: {}, description: 'Requests beyond max_connections.' },
    ),
    http2: flag(false, 'Speak HTTP/2 where the provider offers it.'),
    tls: nullable(
      object(
        {
          ca: file('PEM file of the certificate authority to trust.'),
          cert: file('PEM file of the client certificate.'),
          key: file('PEM file of its private key.'),
        },
        [],
        { description: 'TLS beyond the system defaults.' },
      ),
    ),
    proxy: nullable(url('HTTP proxy to go through, e.g. http://proxy:3128.')),
  },
  ['dialect', 'base_url'],
  withSettings('provider'),
)

/**
 * Converted to whole pico-USD (1e-12 USD) per token: 1 USD per million tokens is 1 000 000, so six decimals of a price
 * are exact. The cost of an exchange is summed in pico-USD, and rounded half up to nano-USD once.
 */
const price = (description: string): Schema<number> => ({
  type: ['number', 'string'],
  format: 'usd_per_million_tokens',
  description,
})
const rates = {
  input: price('USD per million input tokens.'),
  output: price('USD per million output tokens.'),
  cached: price('USD per million cached input tokens. Left out: a tenth of input.'),
  cache_write: price('USD per million input tokens that a provider wrote to its cache. Left out: as input.'),
}
const above: Schema<number> = { type: 'integer', minimum: 1, description: 'Tokens of the prompt.' }
const STEPS =
  'What the whole request costs where its prompt has more tokens than `above`; of several, the highest holds.'
const MOST_STEPS = { minItems: 1, maxItems: 16 }
const steps = list(object({ above, ...rates }, ['above', 'input', 'output']), STEPS, MOST_STEPS)
export const priceList = object({ ...rates, steps }, ['input', 'output'], { description: 'USD per million tokens.' })
/** A model's own price. */
export const modelPrice = object(
  { ...rates, output: price('USD per million output tokens; embeddings have none.'), steps },
  ['input'],
  { description: 'USD per million tokens.' },
)
const costRates = {
  ...rates,
  cache_write_1h: price('USD per million that a provider keeps in its cache for an hour. Left out: as cache_write.'),
}
/** What a backend costs. */
export const backendCost = object(
  {
    ...costRates,
    output: price('USD per million output tokens, reasoning included; embeddings have none.'),
    steps: list(object({ above, ...costRates }, ['above', 'input', 'output']), STEPS, MOST_STEPS),
    search: {
      type: ['number', 'string'],
      format: 'usd',
      description: 'USD for a search that the provider makes.',
    } as Schema<number>,
    tiers: byName(
      { type: 'number', exclusiveMinimum: 0, description: 'Factor.' } as Schema<number>,
      'By the service tier that the provider reports: the factor of its cost, such as 0.5 for flex.',
    ),
  },
  ['input'],
  { description: 'What the backend costs you, for the margin in `sluice usage`. It changes no bill.' },
)
const cost = nullable(backendCost)
const effort = (description: string) => nullable(choice(EFFORTS, description))
const modelName = name('A public model id.')

export const backend = object(
  {
    provider: name('A name of the providers section.'),
    model: name("The upstream's own model id; clients never see it."),
    weight: {
      type: 'number',
      exclusiveMinimum: 0,
      default: 1,
      description: 'Share of requests among backends of one group.',
    } as Filled<number>,
    group: text('Backends of one group share the load by weight; without a group the order in the list decides.', {
      minLength: 1,
    }),
    supports: list(
      choice(CAPABILITIES, 'A capability.'),
      'What this backend can do. Not set: all that its dialect can express.',
      {
        uniqueItems: true,
      },
    ),
    native_tools: list(
      text('A dated tool.', {
        pattern: '^(bash|text_editor|memory)_\\d{8}$',
        examples: ['bash_20250124', 'text_editor_20250728', 'memory_20250818'],
      }),
      'Versions of client tools that the backend takes natively. Any other goes as a plain function.',
      { default: [], uniqueItems: true },
    ),
    effort_ceiling: effort('Highest reasoning effort of this backend.'),
    context_window: nullable(count(0, "Its own window in tokens, where it is smaller than the model's.", 1)),
    cost,
  },
  ['provider', 'model'],
  withSettings('backend'),
)

export const model = object(
  {
    aliases: list(modelName, 'Other ids that requests may use; never listed, and replies name the canonical id.', {
      default: [],
      uniqueItems: true,
    }),
    listed: flag(true, 'Shown by GET /v1/models.'),
    listed_aliases: byName(
      list(modelName, 'Ids.', { uniqueItems: true, examples: ['[claude-eb1-preview]'] }),
      "By surface, other ids that GET /v1/models lists beside the model's own to clients of that surface alone, e.g. `{ messages: [claude-eb1-preview] }` for Claude Code, whose picker takes only ids that begin with `claude` or `anthropic`.",
    ),
    display_name: text('The name that GET /v1/models shows to people; not set: the id.', {
      minLength: 1,
      maxLength: 128,
    }),
    created: {
      type: 'string',
      format: 'timestamp',
      default: '2026-01-01T00:00:00Z',
      description: 'The time that GET /v1/models shows as `created`. Clients compare lists by it, so it never moves.',
    } as Filled<number>,
    serves: choice(
      ['text', 'embeddings'],
      'What the model makes: text, on all surfaces of completions, or embeddings, on the surface `embeddings`.',
      'text',
    ),
    context_window: {
      type: 'integer',
      minimum: 1,
      description: 'Largest prompt, in tokens; of embeddings, the largest input.',
    } as Schema<number>,
    max_output_tokens: nullable(count(0, 'Most output tokens a request may ask for.', 1)),
    price: {
      ...nullable(modelPrice),
      description:
        'USD per million tokens. A model without a price answers 404, except to organizations with billing: free, and where plan or organization have a price for it.',
    },
    effort_ceiling: effort(
      'Highest reasoning effort. On Messages a higher one is lowered to it; elsewhere it answers 400.',
    ),
    default_stream_row: choice(STREAM_ROWS, 'Row of stream_limits when the request sets no effort.', 'medium'),
    on_client_gone: choice(['cancel', 'drain'], 'What happens upstream when the client leaves.', 'cancel'),
    backends: list(backend, 'In order of preference: the first that can serve the request and is healthy.', {
      minItems: 1,
    }),
  },
  ['context_window', 'backends'],
)

// ---- the gateway as a whole -----------------------------------------------------------------------------------------

const row = (idle: string, ceiling: string, description: string) =>
  object(
    {
      idle: duration(idle, 'Longest time without model activity.'),
      ceiling: duration(ceiling, 'Longest time in all.'),
    },
    [],
    { default: {}, description },
  )

export const streamLimits = object(
  {
    minimal: row('90s', '5m', 'Effort none and minimal.'),
    medium: row('90s', '10m', 'Effort low and medium, and when none is set.'),
    high: row('90s', '30m', 'Effort high.'),
    xhigh: row('120s', '45m', 'Effort xhigh.'),
    max: row('120s', '60m', 'Effort max and ultra.'),
  },
  [],
  { default: {}, description: 'How long a stream may be silent, and how long it may run, by reasoning effort.' },
)

const preparation = object(
  {
    requests: count(8_000, 'Most requests of all organizations together; one more is 503 route_capacity.', 1),
    bytes: size('1GiB', 'Most bytes of all organizations together; more is 503 route_capacity.'),
    organization_requests: count(
      2_000,
      'Most requests of one organization; one more is 429 concurrency_limit_exceeded.',
      1,
    ),
    organization_bytes: size('256MiB', 'Most bytes of one organization; more is 429 concurrency_limit_exceeded.'),
    unsent_bytes: size(
      '1GiB',
      'Most bytes of admitted requests that no provider has taken and answered yet; more wait before admission.',
    ),
    organization_unsent_bytes: size('256MiB', 'The same of one organization.'),
    unsent_wait: duration('10s', 'How long they wait; then 503 route_capacity.'),
  },
  [],
  {
    default: {},
    description:
      'Requests that are not admitted yet: received, waiting on a WebSocket, parsed, recalled, counted, completed with fetched files; and the bytes of those that wait for a provider. An organization below its share of the totals is not refused by them.',
  },
)

const recentConversations = object(
  {
    bytes: size('128MiB', 'Most bytes of all organizations together; 0 keeps nothing.'),
    organization_bytes: size('32MiB', 'Most bytes of one organization.'),
  },
  [],
  {
    default: {},
    description:
      'What is kept in memory of the last request of each conversation, some four times its bytes, and of the stored responses that requests continue, so that the next turn costs what is new in it. Organizations share nothing. What was used longest ago is given up first.',
  },
)

export const platform = object(
  {
    preparation,
    recent_conversations: recentConversations,
    max_concurrent_requests: count(10_000, 'Most exchanges at once; beyond it 429 capacity_exceeded.', 1),
    overload_delay: duration(
      '200ms',
      'Event-loop delay from which new requests get 503 route_capacity, until it is below a twentieth of this. At least 20ms.',
    ),
    scale_limits_above: {
      type: 'number',
      exclusiveMinimum: 0,
      maximum: 1,
      default: 0.8,
      description:
        'When more than this share of max_concurrent_requests is in use, rate and concurrency limits of all accounts are scaled down.',
    } as Filled<number>,
    compress_above: {
      type: 'number',
      exclusiveMinimum: 0,
      maximum: 1,
      description: 'The name of `scale_limits_above` until 0.1. It works until 0.4, with a warning.',
    } as Schema<number>,
  },
  [],
  { default: {}, description: 'Shared capacity over all accounts, per process.' },
)

export const SHIP_TARGET = '^(postgres(ql)?://.+|file:.+)$'
export const ship = object(
  {
    to: secretText(
      'The target: postgres://USER@HOST:PORT/DATABASE with the parameters of the package pg, or file:FOLDER.',
      { pattern: SHIP_TARGET, examples: ['postgres://billing@db.internal/billing', 'file:./data/ledger'] },
    ),
    interval: duration('10s', 'Time between two looks for new rows.'),
    keep_unshipped: nullable(
      duration(
        '0',
        'How long rows are kept that were not shipped, where that is longer than keep; not set: until they are shipped.',
      ),
    ),
  },
  ['to'],
  {
    description:
      'Copies the rows to PostgreSQL or to files while the gateway runs; not set: nowhere, those of a local store to files beside it.',
  },
)

export const ledger = object(
  {
    keep: nullable(duration('0', 'How long ledger rows are kept; not set: for ever.')),
    ship: nullable(ship),
  },
  [],
  { default: {}, description: 'One row for each admitted request.' },
)

export const receipts = object(
  {
    folder: file(
      'Folder with the keys, as PEM files, that the gateway makes; `sluice receipts rotate` adds one. Not set: `receipt-keys` beside the store.',
    ),
    keys: list(
      secretText('An Ed25519 key as PEM.', { minLength: 1 }),
      'The keys, for gateways that share no folder: the first one, a private key, signs; public keys of before follow. Not with `folder`.',
      { default: [] },
    ),
  },
  [],
  { default: {}, description: 'What receipts and statements are signed with.' },
)

export const directory = object(
  {
    cache: count(
      50_000,
      'Keys of the store that are kept in memory, 2 KB each; the others are looked up when used.',
      1,
    ),
    misses: count(
      1000,
      'Most look-ups a second that find no key, a quarter of them for one client address (an IPv6 network of 64 bits); more is 503 route_capacity.',
      1,
    ),
  },
  [],
  { default: {}, description: 'Accounts that the store keeps, beside those of organizations.' },
)

const retiredName = name('A name.')
export const retired = object(
  {
    plans: list(
      retiredName,
      'Plans that are gone although organizations of the store may have them. Those get 503 account_unavailable.',
      { default: [], uniqueItems: true },
    ),
    models: list(
      retiredName,
      'Ids and aliases of models that are gone although accounts of the store may name them. They allow nothing there.',
      { default: [], uniqueItems: true },
    ),
  },
  [],
  {
    default: {},
    description:
      'What is taken away from accounts of the store on purpose. A reload that takes away a plan or a model which they name is refused otherwise.',
  },
)

export const log = object(
  {
    level: choice(
      ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'],
      'Least level that is written.',
      'info',
    ),
    provider_words: flag(
      true,
      'Write what a provider says when it refuses a request as faulty (400, 404, 413, 422): at most 1 KiB, without keys. It may quote a part of the prompt.',
    ),
    bodies: {
      type: 'boolean',
      description:
        'Write the messages of all errors, those of plugins and providers too. They may quote prompts: for debugging only. Bodies are never written. Left out: only where the log goes to a terminal and the gateway listens on loopback, as while a plugin is written.',
    },
  },
  [],
  { default: {}, description: 'Log lines, as JSON on standard error. A reload applies it.' },
)

// ---- accounts -------------------------------------------------------------------------------------------------------

const limit = (description: string): Schema<number | null> => ({
  type: ['integer', 'null'],
  minimum: 0,
  maximum: Number.MAX_SAFE_INTEGER,
  description,
})
/** Converted to whole nano-USD (1e-9 USD). A safe integer (below 2^53) holds up to $9,007,199. */
const usd = (description: string): Schema<number | null> => ({
  type: ['number', 'string', 'null'],
  format: 'usd',
  description,
})

/**
 * Every limit (core/canon/limits.ts). There are no defaults: a limit that is left out is inherited; in a plan it is
 * unlimited.
 */
export const LIMITS = Object.fromEntries(
  LIMIT_TABLE.map(({ name, description }) => [name, isUsd(name) ? usd(description) : limit(description)]),
) as Record<LimitName, Schema<number | null>>

const limits = (description: string) => object(LIMITS, [], { default: {}, description })
const modelLimits = byName(object(LIMITS), 'The same keys under a model id: limits of that model alone.')
const userLimits = object(
  Object.fromEntries(USER_LIMITS.map(({ name }) => [name, LIMITS[name]])) as typeof LIMITS,
  [],
  {
    description:
      'Limits of each end user of a key, whom requests name (option `user` of admission). They protect the holder of the key from his users, and bound nothing for whoever runs the gateway.',
  },
)
const pricesOf = (description: string) => byName(priceList, description)
const capability = choice(ACCOUNT_CAPABILITIES, 'A capability.')

export const plan = object(
  {
    models: allOr(modelName, 'Models that the plan includes: all, or a list.', 'all'),
    capabilities: allOr(capability, 'What requests may use: all, or a list.', 'all'),
    streaming: flag(true, 'Whether requests may stream. If not, a request for a stream answers 403.'),
    active_keys: nullable(count(0, 'Most keys that are active or staged.')),
    limits: limits('~ or left out is unlimited.'),
    model_limits: modelLimits,
    user_limits: userLimits,
    prices: pricesOf('Prices in place of those of the models, by model id.'),
  },
  [],
)

export const key = object(
  {
    id: text('Name of the key in logs, metrics and the ledger.', {
      pattern: '^[A-Za-z0-9_.-]{1,64}$',
      examples: ['key_ci'],
    }),
    sha256: secretText('SHA-256 of the secret in hex, always quoted; `sluice key new` makes one.', {
      pattern: '^[0-9a-fA-F]{64}$',
      examples: ['"f778…" (64 hex digits)'],
    }),
    status: choice(
      ['active', 'staged', 'revoked'],
      'staged works like active until its predecessor is revoked.',
      'active',
    ),
    expires: {
      type: ['string', 'null'],
      format: 'timestamp',
      default: null,
      description:
        'When the key stops working, such as the end of the grace period after `sluice key rotate`. In a file such a key does not count towards active_keys; in the store it does not in its last day.',
    } as Filled<number | null>,
    models: allOr(modelName, 'Only these models.'),
    capabilities: allOr(capability, 'Only these capabilities.'),
    streaming: { type: 'boolean', description: 'false: this key may not stream.' } as Schema<boolean>,
    usage: choice(
      ['key', 'organization'],
      'What GET /v1/usage and GET /v1/limits show to this key: its own, or all of its organization, with its spend.',
      'key',
    ),
    limits: limits('Narrower limits of this key. Those of its organization hold as well.'),
    model_limits: modelLimits,
    user_limits: userLimits,
    label: text('What the key is for, for people. The gateway ignores it.', { minLength: 1, maxLength: 128 }),
    hint: text('The last characters of the secret, by which people tell keys apart; made with the key.', {
      pattern: '^[!-~]{1,8}$',
    }),
    creator: text('Who made the key; written when it is made.', { minLength: 1, maxLength: 256 }),
    created: {
      type: 'string',
      format: 'timestamp',
      description: 'When it was made; written when it is made.',
    } as Schema<number>,
  },
  ['id', 'sha256'],
)

export const organization = object(
  {
    plan: name('A plan of the plans section, or a built-in one: free, tier1 … tier5, beta, benchmark, custom.'),
    status: choice(['active', 'disabled'], 'disabled: no key of the organization works.', 'active'),
    billing: choice(
      ['standard', 'free', 'prepaid'],
      'free: every request costs 0, on purpose. prepaid: what is left of its credits bounds what it may cost; for organizations of the store alone.',
      'standard',
    ),
    models: allOr(modelName, 'Instead of the models of the plan.'),
    capabilities: allOr(capability, 'Instead of the capabilities of the plan.'),
    streaming: { type: 'boolean', description: 'Instead of the plan.' } as Schema<boolean>,
    limits: limits('What differs from the plan, wider or narrower.'),
    model_limits: modelLimits,
    user_limits: userLimits,
    raises: list(
      object(
        {
          until: {
            type: 'string',
            format: 'timestamp',
            description: 'When the raise ends.',
          } as Schema<number>,
          limits: limits('Limits that are wider until then; one that is not wider changes nothing.'),
          model_limits: modelLimits,
        },
        ['until'],
      ),
      'Temporary raises of limits.',
      { default: [], maxItems: 16 },
    ),
    prices: pricesOf('Prices in place of those of plan and models, by model id.'),
    name: text('Name for people. The gateway ignores it.', { minLength: 1, maxLength: 200 }),
    metadata: {
      ...byName(
        text('A text.', { maxLength: 512 }),
        'Texts of your own by name, at most 32. The gateway ignores them.',
      ),
      maxProperties: 32,
      propertyNames: { pattern: '^[A-Za-z0-9_.:-]{1,64}$' },
    },
    keys: list(key, 'API keys, each by its digest alone.', { default: [] }),
  },
  ['plan'],
)

// ---- all of them ----------------------------------------------------------------------------------------------------

/** Sections with one schema for the whole value. */
const sections = {
  version: { type: 'integer', enum: [1, 2], description: 'Version of this file format.' } as Schema<1 | 2>,
  server,
  store,
  secret: secretText('Seals ids and continuation data. Empty: made once and kept in the store.', { default: '' }),
  plugins,
  price_book: text('The version of the price list, written on every ledger row.', { default: '1', minLength: 1 }),
  stream_limits: streamLimits,
  platform,
  retired,
  directory,
  ledger,
  receipts,
  log,
}
export const SECTIONS: Record<string, Schema> = sections
/** The checked sections by name, with defaults filled and units converted. */
export type Sections = { [K in keyof typeof sections]: Arrives<(typeof sections)[K]> }

/** Sections that map names to entries of one schema. */
export const ENTRIES: Record<string, { entry: Schema; description: string }> = {
  providers: { entry: provider, description: 'Upstream servers, by a name of your choice.' },
  models: { entry: model, description: 'Public models, by id.' },
  plans: {
    entry: plan,
    description: 'Sets of limits and rights. One with the name of a built-in plan replaces it whole.',
  },
  organizations: { entry: organization, description: 'Accounts: a plan, what differs from it, and keys.' },
}

/** Sections that pipelines.ts reads. */
export const CHAIN_SECTIONS = {
  pipelines:
    'Chains of plugins, by name. Requests go down the list to the terminal plugin; responses come back up, then out through what stands below it.',
  routes: 'Which pipeline serves which method and path.',
}

/** All sections in the order of docs/configuration.md. */
export const SECTION_ORDER = [
  'version',
  'server',
  'store',
  'secret',
  'pipelines',
  'routes',
  'plugins',
  'providers',
  'models',
  'price_book',
  'web_search',
  'media',
  'stream_limits',
  'platform',
  'plans',
  'organizations',
  'retired',
  'directory',
  'ledger',
  'receipts',
  'log',
]
