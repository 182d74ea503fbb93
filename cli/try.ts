/** `sluice try`: one streamed request for each surface of a running gateway, and what came back. */
import { parseArgs } from 'node:util'
import { DEMO_KEY_DIGEST } from '../config/accounts.ts'
import type { GatewayConfig, ModelConfig } from '../config/types.ts'
import { cost, formatUsd } from '../core/canon/money.ts'
import type { Surface } from '../core/ports/surface.ts'
import type { ReplySummary, Samples } from '../surfaces/described.ts'
import { surfaces } from '../surfaces/index.ts'
import { configFile, ownCommand } from './arguments.ts'
import type { Verb } from './main.ts'
import { loadOrFail } from './problems.ts'
import { Failure, type Terminal, UsageError } from './terminal.ts'

const HELP = `Usage: sluice try [--config FILE] [--key KEY] [--model ID | --all]

Sends one streamed request for each surface to the running gateway of FILE
(default gateway.yaml) and shows the reply, its usage and its cost.

  --key KEY       your API key; default: $SLUICE_API_KEY, else the demo key
  --model ID      default: the first model that is listed and priced
  --all           every model that is listed and priced: the first on each
                  surface, the others once. Finds a provider whose key is wrong
  --url URL       where the gateway listens; default: server.listen of FILE
  --prompt TEXT   default: a short greeting
  --timeout S     seconds for one request; default 60

The requests are real: they are counted, limited and billed.
Exit code: 0 every surface answered well, 1 not, 2 called wrongly.
`

export const tryGateway: Verb = {
  summary: 'Sends one request per surface to a running gateway.',
  help: HELP,
  async run(args, terminal) {
    const text = { type: 'string' } as const
    const { values, positionals } = parseArgs({
      args,
      options: {
        config: text,
        key: text,
        model: text,
        all: { type: 'boolean' },
        url: text,
        prompt: text,
        timeout: text,
      },
      allowPositionals: true,
    })
    const { config } = await loadOrFail(configFile(values.config, positionals))
    const key = values.key ?? process.env['SLUICE_API_KEY'] ?? demoKey(config)
    if (values.all && values.model !== undefined) throw new UsageError('--model or --all, not both')
    const models = values.model === undefined ? servedModels(config) : [named(config, values.model)]
    if (!values.all) models.length = 1
    const url = (values.url ?? address(config)).replace(/\/(v1\/?)?$/, '')
    const routes = config.routes.flatMap(({ surface: name, path, method }) => {
      const surface = name === undefined ? undefined : surfaces[name]
      return surface?.samples.stream && isWhole(path, surface) && /POST|ANY/.test(method) ? [{ surface, path }] : []
    })
    if (routes.length === 0)
      throw new Failure(`no route of this configuration speaks one of the surfaces ${Object.keys(surfaces).join(', ')}`)
    let failed = false
    const probes = models.flatMap((model, i) =>
      routes.slice(0, i === 0 ? undefined : 1).map(route => ({ model, route })),
    )
    for (const { model, route } of probes) {
      const { surface, path } = route
      terminal.out(`${surface.name}  POST ${url}${path}  ${model.id}`)
      const problem = await ask(`${url}${path}`, surface.samples, {
        key,
        model,
        prompt: values.prompt ?? 'Say hello in one short sentence.',
        timeoutMs: (Number(values.timeout) || 60) * 1000,
        terminal,
      })
      if (problem === null) continue
      failed = true
      terminal.err(`  failed: ${problem}`)
    }
    if (values.all) tellUntried(config, models, terminal)
    return failed ? 1 : 0
  },
}

/**
 * Whether the path is for whole requests of the surface. Other routes of a surface, e.g. one that counts tokens, end
 * otherwise.
 */
const isWhole = (path: string, surface: Surface) => path.endsWith(surface.path.slice(surface.path.lastIndexOf('/')))

/**
 * Names the providers that were not called. Clients can't choose a backend, and a backend that is not the first of its
 * model is not called while the first one serves.
 */
function tellUntried(config: GatewayConfig, models: readonly ModelConfig[], terminal: Terminal): void {
  const first = new Set(models.map(model => model.backends[0]?.provider))
  const untried = Object.keys(config.providers).filter(provider => !first.has(provider))
  if (untried.length > 0) terminal.err(`Not tried, since no model that was tried has it first: ${untried.join(', ')}.`)
}

interface Probe {
  key: string
  model: ModelConfig
  prompt: string
  timeoutMs: number
  terminal: Terminal
}

/**
 * Sends one request for a stream, which the surface must have, and prints the reply.
 * @returns what was wrong, as text; null when the reply was whole
 */
async function ask(url: string, samples: Samples, probe: Probe): Promise<string | null> {
  const { key, model, prompt, terminal } = probe
  const { headers, members, cap, read } = samples.stream!
  const body: Record<string, unknown> = { ...samples.body(model.id, prompt), ...members }
  // A cap above the model's own maximum is refused.
  if (cap !== undefined) body[cap] = Math.min(body[cap] as number, model.max_output_tokens ?? Number.POSITIVE_INFINITY)
  const started = performance.now()
  const reply: ReplySummary = { text: '', input: 0, cached: 0, output: 0 }
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}`, ...headers },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(probe.timeoutMs),
    })
    const request = response.headers.get('x-request-id') ?? 'none'
    if (!response.ok) return `${response.status} ${message(await response.text())} (request ${request})`
    let first: number | null = null
    let whole = false
    for await (const event of events(response.body!)) {
      if (event.error) return `${message(JSON.stringify(event))} (request ${request})`
      whole = read(event, reply) || whole
      if (reply.text !== '') first ??= performance.now() - started
    }
    if (!whole) return `the stream ended before the reply was whole (request ${request})`
    const ms = (value: number) => `${Math.round(value)} ms`
    terminal.out(`  reply  ${reply.text.replace(/\s+/g, ' ').trim() || '(no text)'}`)
    const cached = reply.cached > 0 ? ` (${reply.cached} cached)` : ''
    const price = model.price ? `, ${formatUsd(cost(reply, model.price), 9)} USD` : ''
    terminal.out(`  usage  ${reply.input} tokens in${cached}, ${reply.output} out${price}`)
    terminal.out(
      `  time   ${first === null ? '' : `${ms(first)} to the first text, `}${ms(performance.now() - started)}`,
    )
    terminal.out(`  id     ${request}`)
    return null
  } catch (error) {
    const { cause, message: why, name } = error as Error & { cause?: Error }
    if (name === 'TimeoutError') return `no whole reply within ${probe.timeoutMs / 1000} s`
    return `${cause?.message || why}; is the gateway running? \`${ownCommand()} start\``
  }
}

/** The data of each SSE frame: JSON, or `[DONE]`. */
async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<any> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = lines.pop()!
    for (const line of lines) {
      if (!line.startsWith('data:')) continue
      const data = line.slice(5).trim()
      yield data === '[DONE]' ? data : JSON.parse(data)
    }
  }
}

function message(body: string): string {
  try {
    const { error } = JSON.parse(body)
    return `${error.code ?? error.type}: ${error.message}`
  } catch {
    return body.slice(0, 200)
  }
}

function address({ server }: GatewayConfig): string {
  const { host, port } = server.listen
  const reachable = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host
  return `${server.tls ? 'https' : 'http'}://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

function demoKey(config: GatewayConfig): string {
  const known = Object.values(config.organizations).some(organization =>
    organization.keys.some(key => key.sha256 === DEMO_KEY_DIGEST && key.status !== 'revoked'),
  )
  if (known) return 'sk-demo'
  throw new Failure('no key: give --key, or set SLUICE_API_KEY. `sluice key new ORGANIZATION` makes one')
}

/**
 * The models that are listed and priced.
 * @throws Failure when there is none
 */
function servedModels(config: GatewayConfig): ModelConfig[] {
  const found = Object.values(config.models).filter(model => model.listed && model.price && model.serves === 'text')
  if (found.length === 0) throw new Failure('no model is listed and has a price; name one with --model')
  return found
}

function named(config: GatewayConfig, id: string): ModelConfig {
  const found = Object.values(config.models).find(model => model.id === id || model.aliases.includes(id))
  if (!found) throw new Failure(`there is no model ${id}; there are ${Object.keys(config.models).join(', ')}`)
  return found
}
