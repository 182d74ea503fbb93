/** What all parts of the attack share: the gateway under attack, its watch, requests, and the seeded random. */
import { type ChildProcess, execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Agent, request } from 'undici'
import { printed, start, startProgram, stop, temporaryFolder } from '../../bench/children.ts'
import { residentBytes } from '../../bench/machine.ts'
import type { Random } from '../random.ts'
import { ANSWER_MS, type Breaches, LOOP_MS, type Promised } from './breaches.ts'

export const MIB = 2 ** 20
const ROOT = join(import.meta.dirname, '..', '..')
const LAUNCHER = join(ROOT, 'bin', 'sluice.mjs')

export const sleep = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))

/** What one part measured. A figure that a part does not measure is left out. */
export interface Result {
  part: string
  cases: number
  /** What the cases were, in a few words. */
  note: string
  /** The worst event-loop delay of the gateway, ms. */
  loopMs?: number
  /** The most resident memory of the gateway, MiB. */
  residentMib?: number
  p99Ratio?: number
  /** The victim's answered requests and all of its requests. */
  victim?: [served: number, sent: number]
}

export interface Part {
  random: Random
  breaches: Breaches
  /** How long the part may run, ms. It ends with the case that runs then. */
  budgetMs: number
  /** Address of a simulator in a process of its own. */
  simulator: string
  /** The kinds of floods that run; the other parts look at none of it. */
  kinds: readonly string[]
}

/** The peak of a process's resident memory, bytes; 0 when it has ended. */
export function peakBytes(pid: number): number {
  try {
    return Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024
  } catch {
    return 0
  }
}

/** Organizations of the gateway's configuration: a plan, and a key that is the name with `sk-attack-` before it. */
export const keyOf = (organization: string): string => `sk-attack-${organization}`
export const UPSTREAM_SECRETS = ['attack-upstream-model', 'attack-provider-key']
/** Texts that no reply may hold: of the configuration, of the simulator, and of Node's errors. */
const LEAK =
  /attack-upstream-model|attack-provider-key|simulated provider|simulator (?:failed|has no)|ECONNREFUSED|ECONNRESET|UND_ERR|socket hang up|\bat [\w.<>#]+ \((?:file|node|\/)/

export const PATHS = {
  chat: '/v1/chat/completions',
  responses: '/v1/responses',
  messages: '/v1/messages',
  count: '/v1/messages/count_tokens',
  /** Chat Completions in a pipeline with what is not in the default one: pii-mask, structured output. */
  optional: '/optional/v1/chat/completions',
} as const
export type Surface = keyof typeof PATHS

/** A model for each dialect. Each has one backend, so that a breaker that opens shows. */
export const MODELS = ['a-chat', 'a-responses', 'a-messages', 'a-gemini'] as const

/** The smallest body of a surface with this prompt. */
export function bodyOf(surface: Surface, model: string, text: string, more: object = {}): Record<string, unknown> {
  if (surface === 'responses') return { model, input: text, store: false, ...more }
  const messages = [{ role: 'user', content: text }]
  return { model, messages, ...(surface === 'messages' && { max_tokens: 256 }), ...more }
}

function configuration(options: GatewayOptions): string {
  const { upstream, floodUpstream = upstream, organizations } = options
  const { listener = 'uws', store = 'sqlite:./data/gateway.db' } = options
  const provider = (name: string, dialect: string, url = upstream) =>
    `  ${name}: { dialect: ${dialect}, base_url: "${url}", api_key: attack-provider-key }`
  const model = (id: string, on: string, upstreamModel = 'attack-upstream-model') =>
    `  ${id}: { context_window: 400000, price: { input: 1.25, output: 10.00 }, backends: [{ provider: ${on}, model: ${upstreamModel} }] }`
  const organization = ([name, plan]: [string, string]) =>
    `  ${name}: { plan: ${plan}, keys: [{ id: key_${name}, sha256: "${createHash('sha256').update(keyOf(name)).digest('hex')}", status: active }] }`
  return `version: 2
server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0, listener: ${listener}, drain: 2s }
store: { url: "${store}", timeout: 10s }
pipelines:
  completions: [auth, validation, idempotency, model-access, conversation, compaction, token-estimate, { web-search: { provider: simulator } }, media, routing, admission, translation, { upstream: ${options.upstreamPlugin ?? '{}'} }, usage-capture, header-stamp]
  optional: [auth, { validation: { structured_output: translate } }, idempotency, model-access, conversation, compaction, { pii-mask: { patterns: { STAFF: 'E-\\d{6}' } } }, token-estimate, { web-search: { provider: simulator } }, media, routing, admission, translation, upstream, usage-capture, header-stamp]
  count_tokens: [auth, validation, model-access, conversation, compaction, token-estimate, count-tokens, header-stamp]
  models: [auth, models, header-stamp]
routes:
  - { match: POST /v1/responses, surface: responses, pipeline: completions }
  - { match: POST /v1/chat/completions, surface: chat, pipeline: completions }
  - { match: "POST ${PATHS.optional}", surface: chat, pipeline: optional }
  - { match: POST /v1/messages, surface: messages, pipeline: completions }
  - { match: POST /v1/messages/count_tokens, surface: messages, pipeline: count_tokens }
  - { match: GET /v1/models, pipeline: models }
providers:
${provider('chat', 'openai-chat')}
${provider('responses', 'openai-responses')}
${provider('messages', 'anthropic-messages')}
${provider('gemini', 'gemini')}
${provider('flood', 'openai-chat', floodUpstream)}
models:
${['chat', 'responses', 'messages', 'gemini', 'flood'].map(name => model(`a-${name}`, name)).join('\n')}
${model('a-structured', 'messages', 'claude-opus-4-5')}
price_book: attack
organizations:
${Object.entries(organizations).map(organization).join('\n')}
log: { level: warn }
`
}

export interface GatewayOptions {
  /** Base URL of the four providers of `MODELS`. */
  upstream: string
  /** Base URL of the provider of the model `a-flood`. */
  floodUpstream?: string
  /** Names with their plans. */
  organizations: Record<string, string>
  listener?: 'uws' | 'node'
  store?: string
  /** Options of the plugin `upstream`, as YAML. */
  upstreamPlugin?: string
}

let folders = 0
/** The launchers that run. Their death alone would end their gateways only a while later, or not while they start. */
const launchers = new Set<number>()
process.on('exit', () => {
  for (const pid of launchers) kill(childOf(pid))
})

/** The one child of a process: the gateway of its launcher. 0 when there is none. */
function childOf(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ')[0])
  } catch {
    return 0
  }
}

function kill(pid: number): void {
  // Signals to 0 go to the whole process group.
  if (pid === 0) return
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}

/** A gateway in a process of its own, started as an operator starts it. */
export class Gateway {
  readonly folder: string
  readonly options: GatewayOptions
  url = ''
  admin = ''
  pid = 0
  #launcher: ChildProcess | undefined
  #wanted = false

  private constructor(options: GatewayOptions) {
    this.options = options
    this.folder = join(temporaryFolder(), `gateway-${++folders}`)
    mkdirSync(this.folder)
    writeFileSync(join(this.folder, 'gateway.yaml'), configuration(options))
  }

  static async start(options: GatewayOptions): Promise<Gateway> {
    const gateway = new Gateway(options)
    await gateway.start()
    return gateway
  }

  get port(): number {
    return Number(new URL(this.url).port)
  }

  /** Starts it, also after `kill`, in the same folder. */
  async start(): Promise<void> {
    const log = openSync(join(this.folder, 'gateway.log'), 'a')
    const command = [LAUNCHER, 'start', '--config', 'gateway.yaml', '--no-watch']
    const launcher = start(undefined, process.execPath, command, { cwd: this.folder, stdio: ['ignore', 'pipe', log] })
    closeSync(log)
    this.#launcher = launcher
    launchers.add(launcher.pid!)
    this.#wanted = true
    launcher.once('exit', () => {
      launchers.delete(launcher.pid!)
      this.#wanted &&= launcher !== this.#launcher
    })
    const [, url, admin] = await printed(launcher, /listens on (\S+)\ndashboard +(\S+?)\/\s/, 60_000).catch(error => {
      throw new Error(`${error.message} ${this.log.slice(-2000)}`)
    })
    this.url = url!
    this.admin = admin!
    this.pid = childOf(launcher.pid!)
  }

  /** Whether it runs as it should: false after a crash. */
  get alive(): boolean {
    return this.#wanted
  }

  get log(): string {
    return readFileSync(join(this.folder, 'gateway.log'), 'utf8')
  }

  /** kill -9, of the gateway itself. */
  async kill(): Promise<void> {
    this.#wanted = false
    const launcher = this.#launcher!
    const ended = new Promise(resolve => launcher.once('exit', resolve))
    const over = launcher.exitCode !== null || launcher.signalCode !== null
    kill(this.pid)
    if (!over) await ended
  }

  async stop(): Promise<void> {
    this.#wanted = false
    const launcher = this.#launcher!
    await stop(launcher, 15_000)
    // It did not end in time, and a launcher that is killed outright leaves its gateway.
    if (launcher.signalCode === 'SIGKILL') kill(this.pid)
  }
}

/** How long a process's main thread has been ready to run without getting a core, ms (/proc/PID/task/TID/schedstat). */
function queuedMs(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'latin1').split(' ')[1]) / 1e6
  } catch {
    return 0
  }
}

/**
 * Watches a gateway's event loop and memory, by its metrics and by /proc. While other processes have all cores, the
 * gateway's main thread is delayed through no fault of its own: this time is subtracted.
 */
export class Watch {
  /** The worst event-loop delay since `reset`, ms. */
  loopMs = 0
  /** The worst of the whole watch. */
  worstLoopMs = 0
  worstResident = 0
  readonly #gateway: Gateway
  #asked: number | undefined
  /** Of this program, when the scrape was sent. */
  #utilization = performance.eventLoopUtilization()
  #queued = 0
  #timer: NodeJS.Timeout

  constructor(gateway: Gateway) {
    this.#gateway = gateway
    this.reset()
    this.#timer = setInterval(() => void this.look(), 500)
  }

  /**
   * Reads the metric. A scrape that gets no answer is a delay too: at least of the time that it has waited while this
   * program had nothing else to do. While that makes bodies of a megabyte, an answer lies unread.
   */
  async look(): Promise<void> {
    if (this.#asked !== undefined) {
      const busy = performance.eventLoopUtilization(this.#utilization).active
      const waited = performance.now() - this.#asked - busy - (queuedMs(this.#gateway.pid) - this.#queued)
      if (waited > 1000) this.#note(waited)
      return
    }
    this.#asked = performance.now()
    this.#utilization = performance.eventLoopUtilization()
    try {
      const response = await fetch(`${this.#gateway.admin}/metrics`, { signal: AbortSignal.timeout(60_000) })
      const found = /sluice_event_loop_delay_seconds\{quantile="1"\} (\S+)/.exec(await response.text())
      const queued = queuedMs(this.#gateway.pid)
      if (found) this.#note(Number(found[1]) * 1000 - (queued - this.#queued))
      this.#queued = queued
    } catch {
      // The gateway is being restarted, or blocked for a minute: `#asked` has been noted meanwhile.
    } finally {
      this.#asked = undefined
    }
    this.worstResident = Math.max(this.worstResident, this.peak)
  }

  #note(ms: number): void {
    this.loopMs = Math.max(this.loopMs, ms)
    this.worstLoopMs = Math.max(this.worstLoopMs, ms)
  }

  /** The peak of the resident memory since `reset`, bytes. */
  get peak(): number {
    return peakBytes(this.#gateway.pid)
  }

  get resident(): number {
    return residentBytes(this.#gateway.pid)
  }

  /** Starts a new window for `loopMs` and `peak`. The kernel resets the peak (proc_pid_clear_refs(5)). */
  reset(): void {
    this.loopMs = 0
    this.worstResident = Math.max(this.worstResident, this.peak)
    try {
      writeFileSync(`/proc/${this.#gateway.pid}/clear_refs`, '5')
    } catch {
      // Without it the peak is that of the process's life.
    }
  }

  async figures(): Promise<{ loopMs: number; residentMib: number }> {
    clearInterval(this.#timer)
    await this.look()
    return { loopMs: this.worstLoopMs, residentMib: this.worstResident / MIB }
  }
}

export interface Answer {
  /** 0 when the connection ended before a whole answer. */
  status: number
  headers: Record<string, string | string[] | undefined>
  text: string
}

const agent = new Agent({ connections: 512, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 })

/** Sends one request and reads its answer. It never rejects: status 0 says that there was no whole answer. */
export async function send(
  url: string,
  path: string,
  key: string,
  body: string | Buffer | object,
  headers: Record<string, string> = {},
  method = 'POST',
  timeoutMs = ANSWER_MS,
): Promise<Answer> {
  try {
    const response = await request(url + path, {
      method: method as 'POST',
      dispatcher: agent,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      ...(method === 'POST' && {
        body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
      }),
      signal: AbortSignal.timeout(timeoutMs),
    })
    return { status: response.statusCode, headers: response.headers, text: await response.body.text() }
  } catch (error) {
    return { status: 0, headers: {}, text: String(error) }
  }
}

/** Notes what is a breach in any answer, whatever was asked. */
export function judge(part: string, breaches: Breaches, what: string, answer: Answer): void {
  const note = (promise: Promised, kind: string) =>
    breaches.add(part, promise, kind, `${what}: ${answer.status} ${answer.text.slice(0, 160)}`)
  if (answer.status === 0) note('unanswered', 'no whole answer')
  if (answer.status === 500) note('internal', /"code":"(\w+)"/.exec(answer.text)?.[1] ?? 'without a code')
  const leak = LEAK.exec(answer.text + JSON.stringify(answer.headers))
  if (leak) note('leak', leak[0])
}

/** Runs `work` in this many lanes until `until` (a performance.now()). */
export async function lanes(count: number, until: number, work: (i: number) => Promise<unknown>): Promise<number> {
  let done = 0
  await Promise.all(
    Array.from({ length: count }, async () => {
      while (performance.now() < until) await work(done++)
    }),
  )
  return done
}

/**
 * Ends a part on its gateway: notes a crash and a blocked event loop, and stops the gateway.
 * @param loop false when the part has noted each blocked event loop with its cause
 */
export async function finish(
  part: string,
  gateway: Gateway,
  watch: Watch,
  breaches: Breaches,
  loop = true,
): Promise<{ loopMs: number; residentMib: number }> {
  const figures = await watch.figures()
  if (!gateway.alive) breaches.add(part, 'crash', 'the gateway ended by itself', gateway.log.slice(-300))
  else if (loop && figures.loopMs > LOOP_MS) breaches.add(part, 'loop', `${Math.round(figures.loopMs)} ms`)
  await gateway.stop()
  return figures
}

/** Starts the simulator in a process of its own. @returns its address */
export async function startUpstream(): Promise<string> {
  const child = startProgram(undefined, join(ROOT, 'cli', 'main.ts'), ['simulate', '--port', '0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [url] = await printed(child, /http:\/\/127\.0\.0\.1:\d+/, 30_000)
  return url!
}

/** The commit under attack, for the report. */
export function commit(): string {
  try {
    return execFileSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: ROOT, encoding: 'utf8' }).trim()
  } catch {
    return 'unknown'
  }
}
