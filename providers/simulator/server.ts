/**
 * The built-in upstream: an HTTP server that speaks the four provider dialects on a loopback port. It is the model of
 * the quickstart, and the provider of the tests, which can request every kind of fault. README.md is its manual.
 */
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer } from '../../core/tools/http.ts'
import { anthropicSimulator } from './anthropic-messages.ts'
import { type Body, isBody, type SimDialect } from './dialect.ts'
import { DirectiveError } from './directives.ts'
import { isEmbeddings, simulatedEmbeddings } from './embeddings.ts'
import { geminiSimulator } from './gemini.ts'
import { SimModel, SimRefusal } from './model.ts'
import { chatSimulator } from './openai-chat.ts'
import { responsesSimulator } from './openai-responses.ts'
import { simulatedSearch } from './search.ts'
import { variantOf } from './variants.ts'
import { writeReply } from './write.ts'

export interface SimulatorOptions {
  /** Default 127.0.0.1. */
  host?: string
  /** Default 0: any free port. */
  port?: number
  /** When set, requests without this credential are refused as a provider would refuse them. */
  apiKey?: string
  /** How many requests `requests` keeps; the oldest are dropped. Default 1000. */
  keep?: number
  /**
   * Gives the directives of a request that has no `x-sim` header. For tests that cannot change the prompt or the
   * headers.
   */
  directives?: (request: RecordedRequest) => string | undefined
  /** The clock for `created` and for the prompt cache, in Unix milliseconds. */
  now?: () => number
}

/** A request that the simulator received, for tests. */
export interface RecordedRequest {
  readonly method: string
  /** The path with the query. */
  readonly path: string
  readonly headers: IncomingHttpHeaders
  /** The body, unchanged. */
  readonly body: string
  /** The body parsed; undefined when it is not a JSON object. */
  readonly json: Body | undefined
  readonly dialect: SimDialect['name'] | undefined
  /** The state of the response: `open` until it ends; `aborted` when the client disconnected before its end. */
  state: 'open' | 'finished' | 'aborted'
  /** Resolves when `state` is no longer `open`. */
  readonly settled: Promise<'finished' | 'aborted'>
}

export interface Simulator {
  /**
   * The base URL for every dialect, without a trailing slash and without `/v1`. With `/v1` or `/v1beta` added it
   * works too.
   */
  readonly url: string
  readonly port: number
  /** The received requests, oldest first. */
  readonly requests: readonly RecordedRequest[]
  /** Closes the port and all connections. */
  close(): Promise<void>
}

/** The longest request body in bytes. Prompts with images are large. */
const MAX_BODY = 256 * 1024 * 1024

/** @throws Error when the port cannot be bound */
export async function startSimulator(options: SimulatorOptions = {}): Promise<Simulator> {
  const requests: RecordedRequest[] = []
  const model = new SimModel(options.now ?? Date.now)
  const server = createServer((req, res) => {
    handle(req, res, model, options, requests).catch((error: unknown) => {
      if (!res.headersSent)
        answer(res, 500, { error: { message: `The simulator failed: ${String(error)}`, type: 'simulator_error' } })
      else res.destroy()
    })
  })
  // The client's connection pool decides when a connection ends: a benchmark must not use a connection that is being
  // closed.
  server.keepAliveTimeout = 65_000
  const host = options.host ?? '127.0.0.1'
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(options.port ?? 0, host, resolve)
  })
  const { port } = server.address() as AddressInfo
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${port}`,
    port,
    requests,
    close: () => closeServer(server),
  }
}

function closeServer(server: Server): Promise<void> {
  return new Promise(resolve => {
    server.close(() => resolve())
    server.closeAllConnections()
  })
}

/** The dialect of a path. A version prefix such as /v1 or /v1beta may come first. */
export function dialectOf(path: string): SimDialect | undefined {
  const bare = path.replace(/^(\/openai)?\/v1(beta)?(?=\/)/, '')
  if (bare === '/chat/completions') return chatSimulator
  if (bare === '/responses') return responsesSimulator
  if (bare === '/messages') return anthropicSimulator
  if (/^\/models\/[^/]+:(generateContent|streamGenerateContent)$/.test(bare)) return geminiSimulator
  return undefined
}

async function handle(
  req: IncomingMessage,
  res: ServerResponse,
  model: SimModel,
  options: SimulatorOptions,
  requests: RecordedRequest[],
): Promise<void> {
  const target = req.url ?? '/'
  const question = target.indexOf('?')
  const path = decodeURIComponent(question === -1 ? target : target.slice(0, question))
  const variant = variantOf(path, new URLSearchParams(question === -1 ? '' : target.slice(question)))
  const dialect = variant?.dialect ?? dialectOf(path)
  const body = await readBody(req)
  const request = record(req, res, target, body, dialect, options, requests)
  if (/^(\/v1(beta)?)?\/search$/.test(path) && req.method === 'GET') {
    answer(res, 200, { results: simulatedSearch(new URLSearchParams(target.slice(question + 1)).get('q') ?? '') })
    return
  }
  if (isEmbeddings(path) && req.method === 'POST' && !refusedKey(req, options)) {
    const { status, body: reply } = simulatedEmbeddings(request.json)
    answer(res, status, reply)
    return
  }
  if (!dialect) {
    answer(res, 404, { error: { message: `The simulator has no ${req.method} ${path}.`, type: 'not_found_error' } })
    return
  }
  if (req.method !== 'POST') {
    answer(res, 405, dialect.error('invalid', 405, 'Only POST is allowed here.'))
    return
  }
  if (refusedKey(req, options)) {
    answer(res, 401, dialect.error('auth', 401, 'Incorrect API key provided.'))
    return
  }
  const header = req.headers['x-sim']
  const directives = typeof header === 'string' ? header : options.directives?.(request)
  try {
    if (!request.json) throw new SimRefusal(400, 'invalid', 'We could not parse the JSON body of your request.')
    const asked = variant?.read(request.json) ?? { body: request.json, path }
    const reply = model.reply(dialect.read(asked.body, asked.path), directives)
    // In Gemini the path says whether to stream; in the other dialects the body does.
    if (dialect === geminiSimulator) reply.prompt.stream = path.endsWith(':streamGenerateContent')
    await writeReply(res, dialect, reply)
  } catch (error) {
    if (error instanceof SimRefusal)
      answer(res, error.status, dialect.error(error.kind, error.status, error.message, error.code))
    else if (error instanceof DirectiveError)
      answer(res, 400, dialect.error('invalid', 400, `[[sim: …]]: ${error.message}`))
    else throw error
  }
}

function record(
  req: IncomingMessage,
  res: ServerResponse,
  path: string,
  body: string,
  dialect: SimDialect | undefined,
  options: SimulatorOptions,
  requests: RecordedRequest[],
): RecordedRequest {
  const { promise: settled, resolve } = Promise.withResolvers<'finished' | 'aborted'>()
  const request: RecordedRequest = {
    method: req.method ?? '',
    path,
    headers: req.headers,
    body,
    json: parse(body),
    dialect: dialect?.name,
    state: 'open',
    settled,
  }
  res.once('close', () => {
    request.state = res.writableFinished ? 'finished' : 'aborted'
    resolve(request.state)
  })
  requests.push(request)
  if (requests.length > (options.keep ?? 1000)) requests.shift()
  return request
}

function refusedKey(req: IncomingMessage, { apiKey }: SimulatorOptions): boolean {
  return apiKey !== undefined && credentialOf(req.headers) !== apiKey
}

/** The credential in the form of any of the four dialects. */
function credentialOf(headers: IncomingHttpHeaders): string | undefined {
  const bearer = headers.authorization?.replace(/^Bearer /i, '')
  const key = headers['x-api-key'] ?? headers['x-goog-api-key'] ?? headers['api-key']
  return bearer ?? (Array.isArray(key) ? key[0] : key)
}

async function readBody(req: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of req) {
    size += (chunk as Buffer).length
    if (size > MAX_BODY) throw new Error('The body is too large.')
    chunks.push(chunk as Buffer)
  }
  return Buffer.concat(chunks).toString('utf8')
}

function parse(body: string): Body | undefined {
  try {
    const value: unknown = JSON.parse(body)
    return isBody(value) ? value : undefined
  } catch {
    return undefined
  }
}

function answer(res: ServerResponse, status: number, body: unknown): void {
  res.writeHead(status, { 'content-type': 'application/json' })
  res.end(JSON.stringify(body))
}
