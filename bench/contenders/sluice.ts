/**
 * Contender: the gateway as `npm start` runs it, with every plugin of the chain, limits of every kind, and a ledger row
 * and a log line for each exchange.
 */
import { createHash } from 'node:crypto'
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { parse } from 'yaml'
import { printed, startProgram, stop, temporaryFolder } from '../children.ts'
import { CONTENDER } from '../machine.ts'
import { KEY } from '../requests.ts'
import type { Running, Secure } from './index.ts'

export interface SluiceOptions {
  upstream: number
  listener?: 'uws' | 'node'
  /** The store. Default: SQLite in the run's temporary folder. */
  store?: string
  /** Flags for Node. */
  flags?: string[]
  /** The HTTP/1.1 client. Default: the gateway's own for plain HTTP. */
  client?: 'undici'
  /** Changes the configuration before it is written. A relative path in it is in `folder`. */
  change?(config: any, folder: string): void
  /** How long the start may take, in milliseconds. */
  patienceMs?: number
  /** Use the upstream's TLS, with HTTP/1.1 or with HTTP/2. */
  secure?: Secure
  http2?: boolean
}

/**
 * A limit that no run reaches, but that is counted and reported. It has ten digits, so that headers keep their length.
 */
const FAR = 9_000_000_000

function configuration(options: SluiceOptions): string {
  const { upstream, listener = 'uws', store = 'sqlite:./gateway.db', secure, http2 = false } = options
  const base = secure
    ? `https://localhost:${http2 ? secure.http2 : secure.http1}/v1`
    : `http://127.0.0.1:${upstream}/v1`
  const tls = secure ? `, http2: ${http2}, tls: { ca: "${secure.ca}" }` : ''
  const provider = (name: string, dialect: string) =>
    `  ${name}: { dialect: ${dialect}, base_url: "${base}", api_key: sk-upstream, max_connections: 8192${tls} }`
  const model = (id: string, on: string) =>
    `  ${id}: { context_window: 1000000, max_output_tokens: 128000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: ${on}, model: ${id} }] }`
  return `version: 2
server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0, listener: ${listener}, drain: 1s }
store: "${store}"
pipelines:
  completions:
    - auth
    - validation
    - idempotency
    - model-access
    - conversation
    - compaction
    - token-estimate
    - web-search
    - media
    - routing
    - admission
    - translation
    - upstream
    - usage-capture
    - header-stamp
routes:
  - { match: POST /v1/responses, surface: responses, pipeline: completions }
  - { match: POST /v1/chat/completions, surface: chat, pipeline: completions }
  - { match: POST /v1/messages, surface: messages, pipeline: completions }
providers:
${provider('chat', 'openai-chat')}
${provider('responses', 'openai-responses')}
${provider('messages', 'anthropic-messages')}
models:
${model('bench-chat', 'chat')}
${model('bench-responses', 'responses')}
${model('bench-messages', 'messages')}
${model('single-chat', 'chat')}
${model('trickle-chat', 'chat')}
${model('agents-chat', 'chat')}
${model('agents-responses', 'responses')}
${model('agents-messages', 'messages')}
price_book: bench
platform: { max_concurrent_requests: 20000 }
organizations:
  bench:
    plan: custom
    limits:
      requests_per_minute: ${FAR}
      requests_per_day: ${FAR}
      tokens_per_minute: ${FAR}
      tokens_per_day: ${FAR}
      input_tokens_per_minute: ${FAR}
      output_tokens_per_minute: ${FAR}
      concurrent_requests: 10000
      max_input_tokens: 900000
      max_output_tokens: 100000
      daily_spend_usd: 1000000.00
      monthly_spend_usd: 9000000.00
    keys:
      - { id: key_bench, sha256: "${createHash('sha256').update(KEY).digest('hex')}", status: active, limits: { requests_per_minute: ${FAR} } }
log: { level: info, bodies: false }
`
}

let started = 0

export async function startSluice(options: SluiceOptions): Promise<Running & { log: string }> {
  const folder = join(temporaryFolder(), `sluice-${++started}`)
  mkdirSync(folder)
  const text = configuration(options)
  const config = options.change && parse(text)
  options.change?.(config, folder)
  // JSON is YAML, too.
  writeFileSync(join(folder, 'gateway.yaml'), config ? JSON.stringify(config) : text)
  const log = join(folder, 'gateway.log')
  const descriptor = openSync(log, 'a')
  const main = join(import.meta.dirname, '..', '..', 'cli', 'main.ts')
  const [program, ...args] = [...(options.flags ?? []), main, 'start', '--config', join(folder, 'gateway.yaml')]
  // With a Redis store, the gateway keeps its local journal in this folder.
  const child = startProgram(CONTENDER, program!, args, {
    cwd: folder,
    stdio: ['ignore', 'pipe', descriptor],
    env: { ...process.env, SLUICE_HTTP1_CLIENT: options.client },
  })
  closeSync(descriptor)
  const [, port] = await printed(child, /listens on http:\/\/127\.0\.0\.1:(\d+)/, options.patienceMs).catch(error => {
    throw new Error(`${error.message}${readFileSync(log, 'utf8').slice(0, 2000)}`)
  })
  return {
    port: Number(port),
    pid: child.pid!,
    log,
    // The gateway writes the last rows of the ledger when it shuts down, so it gets time for that.
    stop: () => stop(child, 15_000),
    ...(options.store === undefined && {
      recorded: () => ({ ledger: rows(join(folder, 'gateway.db')), log: lines(log) }),
    }),
  }
}

function rows(file: string): number {
  const database = new DatabaseSync(file, { readOnly: true })
  const { n } = database.prepare('SELECT count(*) AS n FROM ledger').get() as { n: number }
  database.close()
  return n
}

/** How many exchanges are in the log. */
function lines(file: string): number {
  const mark = Buffer.from('"msg":"exchange"')
  const text = readFileSync(file)
  let n = 0
  for (let at = text.indexOf(mark); at >= 0; at = text.indexOf(mark, at + mark.length)) n++
  return n
}
