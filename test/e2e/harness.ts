/**
 * A listening gateway for black-box tests: a real listener, a real upstream over HTTP, the embedded store in memory,
 * port 0.
 */
import { createHash } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { buildGateway, type Gateway, type GatewayOptions } from '../../cli/gateway.ts'
import type { Logger } from '../../core/plugin.ts'
import type { LedgerRow } from '../../core/ports/store.ts'
import { type Clock, systemClock } from '../../core/tools/clock.ts'
import { declaredOnly } from '../../plugins/testing.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { freezing } from '../frozen.ts'
import { LISTENERS } from '../listeners.ts'
import { LeakScan } from './leak-scan.ts'

export type Simulator = Awaited<ReturnType<typeof startSimulator>>

export const KEY = 'sk-test-0001-secret'
export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

/** The system's clock, that a test can put forward: horizons of minutes become short, and waiting stays real. */
export class ShiftedClock implements Clock {
  shift = 0
  now = () => systemClock.now() + this.shift
  mono = () => systemClock.mono() + this.shift
  setTimer = systemClock.setTimer
}

/** A clock that stands still, so that no limit refills while a slow machine runs a test. Timers run. */
export function stillClock(): Clock {
  const [now, mono] = [systemClock.now(), systemClock.mono()]
  return { now: () => now, mono: () => mono, setTimer: systemClock.setTimer }
}

export interface TestGateway {
  gateway: Gateway
  url: string
  simulator: Simulator
  /** The configuration file; rewrite it and call `gateway.reload()`. */
  file: string
  log: { level: string; fields: any; message: string }[]
  /** Watches what every client of the gateway gets (GEN-7). */
  leaks: LeakScan
  openai(options?: Record<string, unknown>): OpenAI
  anthropic(options?: Record<string, unknown>): Anthropic
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Response>
  ledger(): Promise<LedgerRow[]>
  close(): Promise<void>
}

export interface TestOptions {
  /** Replaces the default configuration. */
  yaml?: (url: string) => string
  /** Appended to the default configuration's organization: `    limits: { … }` and the like. */
  organization?: string
  /** Replaces the default `models:` section body. */
  models?: string
  /** Replaces the default `providers:` section body. */
  providers?: string
  /** Extra top-level sections. */
  extra?: string
  /** Options of plugins, by the plugin's YAML entry, e.g. `{ upstream: '{ first_byte_timeout: 1s }' }`. */
  plugins?: Record<string, string>
  server?: string
  /** The value of `store`. */
  store?: string
  gateway?: Partial<GatewayOptions>
}

/** What a configuration has where tests run with one listener alone. */
const NODE_ONLY = LISTENERS.length === 1 ? 'listener: node, ' : ''

/** The plugins of the pipeline of completions. */
export const ENTRIES = [
  'auth',
  'validation',
  'idempotency',
  'model-access',
  'conversation',
  'compaction',
  'token-estimate',
  'web-search',
  'media',
  'routing',
  'admission',
  'translation',
  'upstream',
  'usage-capture',
  'header-stamp',
]

export function defaultYaml(url: string, options: TestOptions = {}): string {
  const entry = (name: string) => (options.plugins?.[name] ? `{ ${name}: ${options.plugins[name]} }` : name)
  return `version: 2
server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0, ${NODE_ONLY}${options.server ?? 'drain: 2s'} }
store: ${options.store ?? '"sqlite::memory:"'}
pipelines:
  completions: [${ENTRIES.map(entry).join(', ')}]
  count_tokens: [auth, validation, model-access, conversation, compaction, token-estimate, count-tokens, header-stamp]
  responses: [auth, retained-responses, header-stamp]
  models: [auth, models, header-stamp]
  usage: [auth, own-usage, header-stamp]
  limits: [auth, own-limits, header-stamp]
  quote: [auth, validation, model-access, conversation, compaction, token-estimate, ${entry('web-search')}, ${entry('media')}, routing, quote, header-stamp]
routes:
  - { match: POST /v1/responses, surface: responses, pipeline: completions }
  - { match: POST /v1/responses/compact, surface: compact, pipeline: completions }
  - { match: POST /v1/chat/completions, surface: chat, pipeline: completions }
  - { match: POST /v1/messages, surface: messages, pipeline: completions }
  - { match: POST /v1/messages/count_tokens, surface: messages, pipeline: count_tokens }
  - { match: POST /v1/responses/input_tokens, surface: responses, pipeline: count_tokens }
  - { match: GET /v1/responses/*, pipeline: responses }
  - { match: DELETE /v1/responses/*, pipeline: responses }
  - { match: GET /v1/models, pipeline: models }
  - { match: GET /v1/models/*, pipeline: models }
  - { match: GET /v1/usage, pipeline: usage }
  - { match: GET /v1/limits, pipeline: limits }
  - { match: POST /v1/responses/quote, surface: responses, pipeline: quote }
  - { match: POST /v1/chat/completions/quote, surface: chat, pipeline: quote }
  - { match: POST /v1/messages/quote, surface: messages, pipeline: quote }
  - { match: POST /v1/quote, surface: any, pipeline: quote }
providers:
${
  options.providers ??
  `  chat: { dialect: openai-chat, base_url: "${url}" }
  responses: { dialect: openai-responses, base_url: "${url}", api_key: k }
  messages: { dialect: anthropic-messages, base_url: "${url}", api_key: k }
  gemini: { dialect: gemini, base_url: "${url}", api_key: k }`
}
models:
${
  options.models ??
  `  eb1-preview: { context_window: 400000, max_output_tokens: 128000, price: { input: 1.25, output: 10.00 }, effort_ceiling: xhigh, backends: [{ provider: chat, model: sim-large }] }
  eb1-efficient-preview: { aliases: [eb1-preview-efficient], context_window: 400000, price: { input: 0.25, output: 2.00 }, backends: [{ provider: responses, model: sim-small }] }
  eb1-fast-preview: { aliases: [eb1-preview-fast], context_window: 400000, price: { input: 2.50, output: 20.00 }, backends: [{ provider: messages, model: sim-fast }] }
  eb1-frontier-preview: { context_window: 869811, default_stream_row: max, price: { input: 5.00, output: 40.00 }, backends: [{ provider: gemini, model: sim-frontier }] }
  eb1-delta-preview: { aliases: [eb1-preview-delta], listed: false, context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: chat, model: sim-large }] }`
}
price_book: test-1
organizations:
  acme:
    plan: custom
${options.organization ?? ''}
    keys:
      - { id: key_test, sha256: "${sha256(KEY)}", status: active }
  other:
    plan: custom
    keys:
      - { id: key_other, sha256: "${sha256('sk-other-0001-secret')}", status: active }
${options.extra ?? ''}
log: { level: info, bodies: false }
`
}

export async function startGateway(options: TestOptions = {}): Promise<TestGateway> {
  const simulator = await startSimulator({ port: 0 })
  const folder = await mkdtemp(join(tmpdir(), 'sluice-test-'))
  const file = join(folder, 'gateway.yaml')
  const yaml = options.yaml ? options.yaml(simulator.url) : defaultYaml(simulator.url, options)
  await writeFile(file, yaml)
  // A chain with a plugin of one's own shares nothing between turns, so that such a plugin may change what it finds.
  const freezes = !/^plugins:/m.test(yaml)
  const log: TestGateway['log'] = []
  const write = (level: string) => (fields: object, message: string) => void log.push({ level, fields, message })
  const logger: Logger = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') }
  const undeclared: string[] = []
  const gateway = await buildGateway(file, {
    log: logger,
    watch: false,
    listener: NODE_ONLY ? 'node' : undefined,
    forceAsync: process.env['SLUICE_FORCE_ASYNC'] === '1',
    around: (plugin, hooks) =>
      declaredOnly(plugin, freezes ? freezing(plugin, hooks) : hooks, fault => undeclared.push(fault)),
    // The machine that runs the tests may be busy with others.
    lag: { lagMs: () => 0, close() {} },
    ...options.gateway,
  })
  const url = gateway.address
  const leaks = new LeakScan(url, () => gateway.config)
  return {
    leaks,
    gateway,
    url,
    simulator,
    file,
    log,
    openai: more => new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY, maxRetries: 0, ...more }),
    anthropic: more => new Anthropic({ baseURL: url, authToken: KEY, apiKey: null, maxRetries: 0, ...more }),
    post: (path, body, headers) =>
      fetch(`${url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}`, ...headers },
        body: typeof body === 'string' ? body : JSON.stringify(body),
      }),
    async ledger() {
      await gateway.store.ledger.flush()
      return gateway.store.ledger.query({})
    },
    async close() {
      await gateway.close()
      await simulator.close()
      await rm(folder, { recursive: true, force: true })
      leaks.close()
      if (undeclared.length > 0) throw new Error(undeclared[0])
    },
  }
}
