/** `sluice try`: one streamed request for each surface of a running gateway, and what came back. */
import { parseArgs } from 'node:util'
import { DEMO_KEY_DIGEST } from '../config/accounts.ts'
import type { GatewayConfig, ModelConfig } from '../config/types.ts'
import type { SurfaceName } from '../core/conversation.ts'
import { cost, formatUsd } from '../core/money.ts'
import { configFile } from './arguments.ts'
import type { Verb } from './main.ts'
import { loadOrFail } from './problems.ts'
import { Failure, type Terminal } from './terminal.ts'

const HELP = `Usage: sluice try [--config FILE] [--key KEY] [--model ID] [--url URL]

Sends one streamed request for each surface to the running gateway of FILE
(default gateway.yaml) and shows the reply, its usage and its cost.

  --key KEY       your API key; default: $SLUICE_API_KEY, else the demo key
  --model ID      default: the first model that is listed and priced
  --url URL       where the gateway listens; default: server.listen of FILE
  --prompt TEXT   default: a short greeting
  --timeout S     seconds for one request; default 60

The requests are real: they are counted, limited and billed.
Exit code: 0 every surface answered well, 1 not, 2 called wrongly.
`

interface Told {
  text: string
  input: number
  cached: number
  output: number
}

interface Probe {
  headers(key: string): Record<string, string>
  body(model: string, prompt: string): object
  /** Takes one event of the stream. @returns true when it was the last one of a whole reply */
  read(event: any, told: Told): boolean
}

const bearer = (key: string) => ({ authorization: `Bearer ${key}` })

/** By surface: one that has none is not tried. */
const PROBES: Record<SurfaceName, Probe> = {
  responses: {
    headers: bearer,
    body: (model, prompt) => ({ model, stream: true, store: false, max_output_tokens: 1000, input: prompt }),
    read(event, told) {
      if (event.type === 'response.output_text.delta') told.text += event.delta
      const usage = event.response?.usage
      if (usage) {
        told.input = usage.input_tokens
        told.cached = usage.input_tokens_details?.cached_tokens ?? 0
        told.output = usage.output_tokens
      }
      return event.type === 'response.completed' || event.type === 'response.incomplete'
    },
  },
  chat: {
    headers: bearer,
    body: (model, prompt) => ({
      model,
      stream: true,
      stream_options: { include_usage: true },
      max_completion_tokens: 1000,
      messages: [{ role: 'user', content: prompt }],
    }),
    read(event, told) {
      if (event === '[DONE]') return true
      told.text += event.choices?.[0]?.delta?.content ?? ''
      if (event.usage) {
        told.input = event.usage.prompt_tokens
        told.cached = event.usage.prompt_tokens_details?.cached_tokens ?? 0
        told.output = event.usage.completion_tokens
      }
      return false
    },
  },
  messages: {
    headers: key => ({ ...bearer(key), 'anthropic-version': '2023-06-01' }),
    body: (model, prompt) => ({
      model,
      stream: true,
      max_tokens: 1000,
      messages: [{ role: 'user', content: prompt }],
    }),
    read(event, told) {
      if (event.delta?.type === 'text_delta') told.text += event.delta.text
      const usage = { ...event.message?.usage, ...event.usage }
      // Here cached tokens stand beside input_tokens, not inside it.
      if (usage.input_tokens !== undefined) {
        told.cached = usage.cache_read_input_tokens ?? 0
        told.input = usage.input_tokens + told.cached + (usage.cache_creation_input_tokens ?? 0)
      }
      if (usage.output_tokens !== undefined) told.output = usage.output_tokens
      return event.type === 'message_stop'
    },
  },
}

export const tryGateway: Verb = {
  summary: 'Sends one request per surface to a running gateway.',
  help: HELP,
  async run(args, terminal) {
    const text = { type: 'string' } as const
    const { values, positionals } = parseArgs({
      args,
      options: { config: text, key: text, model: text, url: text, prompt: text, timeout: text },
      allowPositionals: true,
    })
    const { config } = await loadOrFail(configFile(values.config, positionals))
    const key = values.key ?? process.env['SLUICE_API_KEY'] ?? demoKey(config)
    const model = values.model === undefined ? firstModel(config) : named(config, values.model)
    const url = (values.url ?? address(config)).replace(/\/(v1\/?)?$/, '')
    const routes = config.routes.filter(
      route =>
        route.surface &&
        PROBES[route.surface] &&
        route.path.match(/\/(responses|completions|messages)$/) &&
        /POST|ANY/.test(route.method),
    )
    if (routes.length === 0) throw new Failure('no route of this configuration speaks one of the three surfaces')
    let failed = false
    for (const route of routes) {
      const probe = PROBES[route.surface!]!
      terminal.out(`${route.surface}  POST ${url}${route.path}  ${model.id}`)
      const problem = await ask(`${url}${route.path}`, probe, {
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
    return failed ? 1 : 0
  },
}

interface Asked {
  key: string
  model: ModelConfig
  prompt: string
  timeoutMs: number
  terminal: Terminal
}

/** @returns what was wrong, in words; null when the reply was whole */
async function ask(url: string, probe: Probe, asked: Asked): Promise<string | null> {
  const { model, terminal } = asked
  const started = performance.now()
  const told: Told = { text: '', input: 0, cached: 0, output: 0 }
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...probe.headers(asked.key) },
      body: JSON.stringify(probe.body(model.id, asked.prompt)),
      signal: AbortSignal.timeout(asked.timeoutMs),
    })
    const request = response.headers.get('x-request-id') ?? 'none'
    if (!response.ok) return `${response.status} ${message(await response.text())} (request ${request})`
    let first: number | null = null
    let whole = false
    for await (const event of events(response.body!)) {
      if (event.error) return `${message(JSON.stringify(event))} (request ${request})`
      whole = probe.read(event, told) || whole
      if (told.text !== '') first ??= performance.now() - started
    }
    if (!whole) return `the stream ended before the reply was whole (request ${request})`
    const ms = (value: number) => `${Math.round(value)} ms`
    terminal.out(`  reply  ${told.text.replace(/\s+/g, ' ').trim() || '(no text)'}`)
    const cached = told.cached > 0 ? ` (${told.cached} cached)` : ''
    const price = model.price ? `, ${formatUsd(cost(told, model.price), 9)} USD` : ''
    terminal.out(`  usage  ${told.input} tokens in${cached}, ${told.output} out${price}`)
    terminal.out(
      `  time   ${first === null ? '' : `${ms(first)} to the first text, `}${ms(performance.now() - started)}`,
    )
    terminal.out(`  id     ${request}`)
    return null
  } catch (error) {
    const { cause, message: why, name } = error as Error & { cause?: Error }
    if (name === 'TimeoutError') return `no whole reply within ${asked.timeoutMs / 1000} s`
    return `${cause?.message || why}; is the gateway running? \`sluice start\``
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

function firstModel(config: GatewayConfig): ModelConfig {
  const found = Object.values(config.models).find(model => model.listed && model.price)
  if (!found) throw new Failure('no model is listed and has a price; name one with --model')
  return found
}

function named(config: GatewayConfig, id: string): ModelConfig {
  const found = Object.values(config.models).find(model => model.id === id || model.aliases.includes(id))
  if (!found) throw new Failure(`there is no model ${id}; there are ${Object.keys(config.models).join(', ')}`)
  return found
}
