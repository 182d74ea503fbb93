/** The configurations of the gateways that the rows are tried against, and the accounts that the rows ask for. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT, sha256 } from '../../golden/kit/gateway.ts'
import type { Account, Placed, Where } from './row.ts'

/** The key of the organization that has no limits. */
export const KEY = 'sk-specification'
/** The key of an organization of a row. */
export const keyOf = (row: string, name = 'own'): string => `sk-${row}-${name}`

/** The model of each dialect. */
export const DIALECTS = {
  'openai-chat': 'eb1-preview',
  'openai-responses': 'eb1-efficient-preview',
  'anthropic-messages': 'eb1-fast-preview',
  gemini: 'eb1-frontier-preview',
} as const
export type Dialect = keyof typeof DIALECTS

const ENTRIES: unknown[] = [
  'auth',
  { validation: { max_images: 3, max_documents: 2, max_replay: '64KiB', max_nodes: 20_000 } },
  'idempotency',
  'model-access',
  'conversation',
  'compaction',
  'token-estimate',
  { 'web-search': { provider: 'simulator' } },
  'media',
  'routing',
  'admission',
  'translation',
  // Rows make backends fail on purpose, and the next row must find them open.
  {
    upstream: {
      attempts: 2,
      retry_budget: 1,
      first_byte_timeout: '20s',
      breaker: { failures: 100_000, error_rate: 1, open_for: '1ms' },
    },
  },
  'usage-capture',
  'header-stamp',
]
const ROUTES = [
  { match: 'POST /v1/responses', surface: 'responses', pipeline: 'completions' },
  { match: 'POST /v1/chat/completions', surface: 'chat', pipeline: 'completions' },
  { match: 'POST /v1/messages', surface: 'messages', pipeline: 'completions' },
  { match: 'POST /v1/messages/count_tokens', surface: 'messages', pipeline: 'count_tokens' },
  { match: 'POST /v1/responses/input_tokens', surface: 'responses', pipeline: 'count_tokens' },
  { match: 'GET /v1/responses/*', pipeline: 'responses' },
  { match: 'DELETE /v1/responses/*', pipeline: 'responses' },
  { match: 'GET /v1/models', pipeline: 'models' },
  { match: 'GET /v1/models/*', pipeline: 'models' },
]

const backend = (provider: string, more: object = {}) => ({ provider, model: `sim-${provider}`, ...more })
const model = (backends: readonly object[], more: object = {}) => ({
  context_window: 400_000,
  price: { input: 1.25, output: 10 },
  backends,
  ...more,
})
const NO_SINGLE = ['tools', 'strict_tools', 'images', 'reasoning']

const MODELS = {
  'eb1-preview': model([backend('chat')], { max_output_tokens: 128_000, effort_ceiling: 'xhigh' }),
  'eb1-efficient-preview': model([backend('responses')], {
    aliases: ['eb1-preview-efficient'],
    price: { input: 0.25, output: 2 },
  }),
  'eb1-fast-preview': model([backend('messages')], {
    aliases: ['eb1-preview-fast'],
    price: { input: 2.5, output: 20 },
  }),
  'eb1-frontier-preview': model([backend('gemini')], {
    context_window: 869_811,
    default_stream_row: 'max',
    price: { input: 5, output: 40 },
  }),
  'eb1-delta-preview': model([backend('chat')], { aliases: ['eb1-preview-delta'], listed: false }),
  // For what the four public models cannot show.
  unpriced: { context_window: 1000, listed: false, backends: [backend('chat')] },
  small: model([backend('chat')], { context_window: 60, max_output_tokens: 1000, listed: false }),
  bare: model([backend('chat', { supports: [] })], { listed: false }),
  apart: model([backend('chat', { supports: ['tools'] }), backend('messages', { supports: ['images'] })], {
    listed: false,
  }),
  // The first backend has no single-call mode.
  single: model([backend('chat', { supports: NO_SINGLE }), backend('messages')], { listed: false }),
  low: model([backend('messages')], { effort_ceiling: 'low', listed: false }),
  native: model([backend('messages', { native_tools: ['bash_20250124', 'text_editor_20250728', 'memory_20250818'] })], {
    listed: false,
  }),
  queue: model([{ provider: 'narrow', model: 'sim-narrow' }], { listed: false }),
  // One token of its output costs a dollar.
  dear: model([backend('chat')], { price: { input: 0, output: 1_000_000 }, listed: false }),
  gone: model([{ provider: 'gone', model: 'sim-gone' }], { listed: false }),
}

/** The configuration of a gateway, as JSON, which is YAML. */
export function configuration(where: Where, folder: string, upstream: string, rows: readonly Placed[]): string {
  if (where === 'quickstart' || where === 'compose') return shipped(where, folder)
  const entries = where === 'guarded' ? guarded() : ENTRIES
  const organizations: Record<string, object> = { acme: organization({}, KEY) }
  for (const row of rows) {
    const accounts = { ...(row.account && { own: row.account }), ...row.accounts }
    for (const [name, account] of Object.entries(accounts)) {
      organizations[`${row.id}-${name}`] = organization(account, keyOf(row.id, name))
    }
  }
  return JSON.stringify({
    version: 2,
    server: { listen: '127.0.0.1:0', admin: { listen: '127.0.0.1:0', token: 'sk-operator' }, drain: '1s' },
    store: `sqlite:${folder}/gateway.db`,
    secret: 'the-secret-of-the-specification-0123456789abcdef',
    pipelines: {
      completions: entries,
      count_tokens: [
        'auth',
        'validation',
        'model-access',
        'conversation',
        'compaction',
        'token-estimate',
        'count-tokens',
        'header-stamp',
      ],
      responses: ['auth', 'retained-responses', 'header-stamp'],
      models: ['auth', 'models', 'header-stamp'],
    },
    routes: ROUTES,
    ...(where === 'guarded' && {
      plugins: [join(ROOT, 'docs', 'examples', 'safety-refusal.ts'), join(import.meta.dirname, 'breaks.ts')],
    }),
    providers: {
      chat: { dialect: 'openai-chat', base_url: upstream },
      responses: { dialect: 'openai-responses', base_url: upstream, api_key: 'k' },
      messages: { dialect: 'anthropic-messages', base_url: upstream, api_key: 'k' },
      gemini: { dialect: 'gemini', base_url: upstream, api_key: 'k' },
      narrow: { dialect: 'openai-chat', base_url: upstream, max_connections: 1, queue: { max: 1, wait: '1s' } },
      // A port of the loopback device where nobody listens.
      gone: { dialect: 'openai-chat', base_url: 'http://127.0.0.1:1' },
    },
    models: MODELS,
    price_book: 'specification-1',
    // A busy machine must not make the gateway shed what a row sends.
    platform: {
      overload_delay: '60s',
      ...(where === 'loaded' && { max_concurrent_requests: 5, scale_limits_above: 0.2 }),
    },
    organizations,
    log: { level: 'warn' },
  })
}

function organization({ key, ...account }: Account, secret: string): object {
  const entry = { id: `key_${sha256(secret).slice(0, 12)}`, sha256: sha256(secret), status: 'active', ...key }
  return { plan: 'custom', ...account, keys: [entry] }
}

/** With the example plugin that refuses what the operator does not want, and with one that has a fault. */
function guarded(): unknown[] {
  const at = ENTRIES.indexOf('admission')
  const refusal = { 'safety-refusal': { phrases: ['forbidden fruit'], answer: 'I will not.' } }
  return ENTRIES.toSpliced(at + 1, 0, refusal, 'breaks')
}

/** The variables that the file of the image reads. */
const VARIABLES: Record<string, string> = {
  SLUICE_SECRET: 'a-secret-of-the-specification-with-32-characters',
  SLUICE_KEY_SHA256: sha256('sk-demo'),
}

/**
 * A configuration of the repository. Only its listeners, its store, its delay before draining and its variables without
 * a default are changed.
 */
function shipped(where: 'quickstart' | 'compose', folder: string): string {
  const file = where === 'quickstart' ? 'gateway.yaml' : 'deploy/gateway.yaml'
  return readFileSync(join(ROOT, file), 'utf8')
    .replace(/^( {2}listen: ).*$/m, '$1127.0.0.1:0')
    .replace(/^ {2}admin:.*(\n {4}.*)*/m, '  admin: 127.0.0.1:0')
    .replace(/^( {2}drain_delay: ).*$/m, '')
    .replace(/^store: .*$/m, `store: "sqlite:${folder}/gateway.db"`)
    .replace(/\$\{(\w+)\}/g, (text, name) => VARIABLES[name] ?? text)
}
