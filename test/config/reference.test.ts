import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { parseDocument } from 'yaml'
import { loadConfig } from '../../config/load.ts'
import type { GatewayConfig } from '../../config/types.ts'
import { catalog, dialects, surfaces } from './catalog.ts'
import { lines, loadText } from './load-text.ts'

const file = join(import.meta.dirname, 'fixtures/gateway.reference.yaml')
const text = await readFile(file, 'utf8')

async function load(): Promise<GatewayConfig> {
  const loaded = await loadConfig(file, { plugins: catalog, dialects, surfaces, env: {} })
  assert.deepEqual(lines(loaded.errors), [])
  return loaded.config!
}

test('the reference file loads as it stands', async () => {
  const config = await load()
  assert.deepEqual(Object.keys(config.pipelines), ['completions', 'count_tokens', 'models', 'embeddings'])
  assert.equal(config.routes.length, 6)
  assert.deepEqual(config.files, [file])
})

test('every value of the reference file arrives with its unit', async () => {
  const { server, store, stream_limits, platform, ledger, log, price_book, secret } = await load()
  assert.deepEqual(
    { ...server, tls: server.tls },
    {
      listen: { host: '127.0.0.1', port: 8080 },
      admin: { host: '127.0.0.1', port: 9090, hosts: [], tokens: [], audit: { keep: 400 * 86_400_000, most: 100_000 } },
      listener: 'uws',
      workers: 1,
      drain: 30_000,
      drain_delay: 0,
      keep_alive: 15_000,
      websocket: 'on',
      stall_timeout: 30_000,
      max_connections: 20_000,
      trust_proxy: [],
      tls: null,
    },
  )
  assert.deepEqual(store, {
    url: `sqlite:${join(import.meta.dirname, 'fixtures/data/gateway.db')}`,
    timeout: 250,
    max_records: 4 * 1024 ** 3,
    max_plugin_values: 256 * 1024 ** 2,
    max_memory: null,
    share: 0.25,
    replicas: 'auto',
  })
  assert.equal(secret, '')
  assert.equal(price_book, '2026-11')
  assert.deepEqual(platform, {
    max_concurrent_requests: 10_000,
    overload_delay: 200,
    scale_limits_above: 0.8,
    preparation: {
      requests: 8000,
      bytes: 1024 ** 3,
      organization_requests: 2000,
      organization_bytes: 256 * 1024 ** 2,
      unsent_bytes: 1024 ** 3,
      organization_unsent_bytes: 256 * 1024 ** 2,
      unsent_wait: 10_000,
    },
    recent_conversations: { bytes: 128 * 1024 ** 2, organization_bytes: 32 * 1024 ** 2 },
  })
  assert.deepEqual(ledger, {
    keep: null,
    ship: {
      to: `file:${join(import.meta.dirname, 'fixtures/shipped')}`,
      interval: 30_000,
      keep_unshipped: 180 * 86_400_000,
    },
  })
  assert.deepEqual(log, { level: 'info', provider_words: true, bodies: false })
  assert.deepEqual(stream_limits, {
    minimal: { idle: 90_000, ceiling: 300_000 },
    medium: { idle: 90_000, ceiling: 600_000 },
    high: { idle: 90_000, ceiling: 1_800_000 },
    xhigh: { idle: 120_000, ceiling: 2_700_000 },
    max: { idle: 120_000, ceiling: 3_600_000 },
  })
})

test('plugin options arrive checked, filled and converted', async () => {
  const { pipelines } = await load()
  const options = Object.fromEntries(pipelines['completions']!.map(e => [e.id, e.config]))
  assert.deepEqual(options['validation'], {
    max_body: 32 * 1024 ** 2,
    body_timeout: 60_000,
    max_depth: 64,
    max_nodes: 100_000,
    max_images: 50,
    max_documents: 10,
    max_replay: 16 * 1024 ** 2,
    structured_output: { responses: 'translate', chat: 'reject', messages: 'translate', cursor: 'reject' },
    unknown_fields: {
      responses: 'reject',
      chat: 'reject',
      messages: 'reject',
      compact: 'reject',
      cursor: 'reject',
      embeddings: 'reject',
    },
  })
  assert.deepEqual(options['idempotency'], { keep: 86_400_000, max_record: 4 * 1024 ** 2, max_total: 1024 ** 3 })
  assert.deepEqual(options['conversation'], { retain: 86_400_000, max_retained: 1024 ** 2, continuation: 259_200_000 })
  assert.deepEqual(options['web-search'], {
    model: null,
    provider: 'simulator',
    max_turns: 8,
    max_searches: 32,
    max_results: 256 * 1024,
    connect_timeout: 5000,
  })
  assert.deepEqual(options['media'], {
    fetch: [],
    max_bytes: 20 * 1024 ** 2,
    max_text: 2 * 1024 ** 2,
    max_files: 60,
    timeout: 10_000,
  })
  assert.deepEqual(options['upstream'], {
    connect_timeout: 5000,
    first_byte_timeout: 120_000,
    attempts: 2,
    retry_budget: 0.1,
    max_reply: 16 * 1024 ** 2,
    breaker: { failures: 5, error_rate: 0.5, window: 30_000, open_for: 15_000 },
    unlimited: false,
  })
  assert.deepEqual(pipelines['embeddings']![2]!.config, {
    target: 'http://127.0.0.1:8000',
    timeout: 120_000,
    api_key: null,
    unlimited: false,
    open: false,
  })
  // The short form gives the same defaults that the long form spells out.
  for (const entry of pipelines['count_tokens']!.slice(0, 5)) assert.deepEqual(entry.config, options[entry.id])
})

test('models, backends and providers are resolved', async () => {
  const { models, providers } = await load()
  const preview = models['eb1-preview']!
  assert.deepEqual(preview.price, { input: 1_250_000, output: 10_000_000 })
  assert.equal(preview.max_output_tokens, 128_000)
  const [backend] = preview.backends
  assert.equal(backend!.id, 'local/sim-large')
  assert.equal(backend!.baseUrl, 'simulator')
  assert.equal(backend!.settings.backend['max_tokens_field'], 'max_completion_tokens')
  assert.equal(backend!.supports.size, 11)
  assert.equal(models['eb1-frontier-preview']!.default_stream_row, 'max')
  assert.deepEqual(models['eb1-delta-preview']!.aliases, ['eb1-preview-delta'])
  assert.equal(models['eb1-delta-preview']!.listed, false)
  assert.equal(models['eb1-fast-preview']!.default_stream_row, 'medium')
  assert.equal(providers['openai']!.api_key, undefined)
  assert.deepEqual(providers['vllm']!.headers, { 'x-team': 'gateway' })
  assert.deepEqual(providers['vllm']!.queue, { max: 1000, wait: 2000 })
  assert.deepEqual(providers['local']!.queue, { max: 1000, wait: 2000 })
})

test('organizations carry the limits of their plan with their own differences', async () => {
  const { organizations, plans } = await load()
  assert.equal(organizations['demo']!.limits.monthly_spend_usd, 500_000_000_000)
  assert.equal(organizations['demo']!.limits.daily_spend_usd, null)
  assert.equal(plans['beta']!.limits.tokens_per_minute, 2_000_000)
  assert.equal(organizations['acme']!.limits.requests_per_minute, 120)
  assert.deepEqual(organizations['acme']!.keys[0], {
    id: 'key_ci',
    sha256: '0'.repeat(63) + '1',
    status: 'active',
    expires: null,
    models: ['eb1-fast-preview'],
    capabilities: 'all',
    streaming: true,
    usage: 'key',
    limits: { requests_per_minute: 10 },
    model_limits: {},
  })
})

// Every key of the reference is known by name: misspelling it, wherever it stands, is an error at its line.
test('every key of the reference file is checked', async () => {
  const document = parseDocument(text)
  const keys: { name: string; start: number; end: number }[] = []
  const names = new Set(['providers', 'models', 'plans', 'organizations', 'pipelines', 'headers', 'model_limits'])
  const walk = (node: any, free: boolean): void => {
    for (const item of node?.items ?? []) {
      if (item.key) {
        // Names of one's own are free: entries of these sections, and headers.
        if (!free) keys.push({ name: item.key.value, start: item.key.range[0], end: item.key.range[1] })
        walk(item.value, names.has(item.key.value))
      } else walk(item, false)
    }
  }
  walk(document.contents, false)
  assert.ok(keys.length > 150, `${keys.length} keys`)
  for (const { name, start, end } of keys) {
    const broken = text.slice(0, start) + `${name}zz` + text.slice(end)
    const line = text.slice(0, start).split('\n').length
    const { errors } = await loadText(broken)
    assert.ok(
      errors?.some(e => e.line === line && e.message.includes(`${name}zz`)),
      `${name} on line ${line}: ${lines(errors).join('\n')}`,
    )
  }
})
