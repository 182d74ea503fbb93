/** A running gateway and the provider behind it, as the rows of the table use them. */
import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { startSimulator } from '../../../providers/simulator/server.ts'
import { Gateway, sluice } from '../../golden/kit/gateway.ts'
import { configuration, DIALECTS, type Dialect, KEY, keyOf } from './gateways.ts'
import { PATHS, Reply, SURFACES, type Surface } from './reply.ts'
import type { Placed, Where } from './row.ts'

type Simulator = Awaited<ReturnType<typeof startSimulator>>
type Json = Record<string, any>

export interface Ask {
  /** Default: the public model whose backend is openai-chat. */
  model?: string
  /** The text of the user. The simulator follows its `[[sim: …]]`. */
  say?: string
  stream?: boolean
  /** The output cap. Default: none, and 4000 on Messages, which needs one. */
  cap?: number
  /** Members on top of the body, or in their place; undefined removes one. */
  more?: Json
  /** The name of an account of the row, or a key that begins with `sk-`. Default: the row's own account. */
  as?: string
  headers?: Record<string, string | undefined>
  /** The whole body as it is. */
  body?: string
  /**
   * Called with all that came so far, each time more comes. @returns by how many seconds the clock is moved then, and
   * undefined when it stays
   */
  steps?: (raw: string) => number | undefined
  signal?: AbortSignal
}

/** A row of the ledger, as `sluice usage --rows --json` prints it. */
export type Billed = Json

export class World {
  readonly gateway: Gateway
  readonly simulator: Simulator
  readonly where: Where
  #row: Placed | undefined
  #from = 0
  #past = 0
  /** The newest refusal of each code, and of each that may be retried or not. */
  readonly refusals = new Map<string, Reply>()
  #deferred: { row: Placed; id: string; look: (billed: Billed | undefined) => void }[] = []

  private constructor(gateway: Gateway, simulator: Simulator, where: Where) {
    this.gateway = gateway
    this.simulator = simulator
    this.where = where
  }

  /** @param still whether the gateway's clocks stand still until a row moves them */
  static async start(where: Where, rows: readonly Placed[], still = true): Promise<World> {
    const simulator = await startSimulator({ keep: 1_000_000 })
    const gateway = await Gateway.with(folder => configuration(where, folder, simulator.url, rows), still)
    return new World(gateway, simulator, where)
  }

  async begin(row: Placed): Promise<void> {
    this.#row = row
    this.#from = this.simulator.requests.length
    // Pauses and breakers of earlier rows are over.
    await this.pass(120)
  }

  get base(): string {
    return `http://${this.gateway.address}/v1`
  }

  /** The key of an account of the row, or of the organization without limits. */
  key(name?: string): string {
    if (name?.startsWith('sk-')) return name
    if (this.where === 'quickstart' || this.where === 'compose') return 'sk-demo'
    if (name === undefined && this.#row?.account === undefined) return KEY
    return keyOf(this.#row!.id, name)
  }

  /** Moves both clocks of the gateway. @param chance what each of its random numbers is from now on: 0 up to below 1 */
  async pass(seconds: number, chance = 0): Promise<void> {
    this.#past += seconds * 1000
    await this.gateway.pass(seconds * 1000, this.#past, chance)
  }

  /** What the provider got since the row began. */
  get sent(): Simulator['requests'] {
    return this.simulator.requests.slice(this.#from)
  }
  /** The body of the last request that the provider got. */
  get forwarded(): Json {
    return this.simulator.requests.at(-1)?.json ?? {}
  }

  /** The body of a request. */
  body(surface: Surface, ask: Ask = {}): Json {
    const { model = 'eb1-preview', say = 'hello', stream, cap } = ask
    const messages = [{ role: 'user', content: say }]
    const form: Record<Surface, Json> = {
      responses: { model, input: say, max_output_tokens: cap, stream },
      chat: { model, messages, max_completion_tokens: cap, stream },
      messages: { model, messages, max_tokens: cap ?? 4000, stream },
    }
    const body = { ...form[surface], ...ask.more }
    if (surface === 'chat' && body.stream && !('stream_options' in body)) body.stream_options = { include_usage: true }
    return body
  }

  ask(surface: Surface, ask: Ask = {}): Promise<Reply> {
    return this.post(surface, PATHS[surface], ask.body ?? JSON.stringify(this.body(surface, ask)), ask)
  }

  /** Like `ask`, and the reply must be a good one. */
  async well(surface: Surface, ask: Ask = {}): Promise<Reply> {
    const reply = await this.ask(surface, ask)
    assert.equal(reply.status, 200, String(reply))
    assert.ok(reply.whole && reply.error === undefined, String(reply))
    return reply
  }

  async count(ask: Ask = {}): Promise<Reply> {
    const { max_tokens: _, stream: __, ...body } = this.body('messages', ask)
    return this.post('messages', '/messages/count_tokens', ask.body ?? JSON.stringify(body), ask)
  }

  get(path: string, ask: Ask = {}): Promise<Reply> {
    return this.#send('chat', 'GET', path, undefined, ask)
  }

  /** The entries of the list of models. */
  async models(ask: Ask = {}): Promise<Json[]> {
    return (await this.get('/models', ask)).json.data
  }

  post(surface: Surface, path: string, body: string, ask: Ask = {}): Promise<Reply> {
    return this.#send(surface, 'POST', path, body, ask)
  }

  async #send(surface: Surface, method: string, path: string, body: string | undefined, ask: Ask): Promise<Reply> {
    const headers = new Headers({ authorization: `Bearer ${this.key(ask.as)}` })
    if (body !== undefined) headers.set('content-type', 'application/json')
    for (const [name, value] of Object.entries(ask.headers ?? {})) {
      if (value === undefined) headers.delete(name)
      else headers.set(name, value)
    }
    const url = path.startsWith('http') ? path : `${this.base}${path}`
    const response = await fetch(url, { method, headers, body, signal: ask.signal })
    let raw = ''
    const decoder = new TextDecoder()
    try {
      for await (const piece of response.body ?? []) {
        raw += decoder.decode(piece, { stream: true })
        const seconds = ask.steps?.(raw)
        if (seconds !== undefined) await this.pass(seconds)
      }
    } catch {
      return new Reply(surface, response.status, response.headers, raw, false)
    }
    const reply = new Reply(surface, response.status, response.headers, raw, true)
    if (method === 'POST' && reply.status >= 400)
      this.refusals.set(`${reply.surface} ${reply.code} ${reply.header('x-should-retry') ?? ''}`, reply)
    return reply
  }

  /** Sends bytes as they are. @returns all that comes until one answer is whole, or the gateway closes */
  async raw(bytes: string): Promise<string> {
    const [host, port] = this.gateway.address.split(':') as [string, string]
    const socket = connect(Number(port), host)
    let text = ''
    try {
      socket.write(bytes)
      for await (const piece of socket) {
        text += piece
        const [head = '', body] = text.split('\r\n\r\n')
        const length = /^content-length: (\d+)/im.exec(head)?.[1]
        if (body !== undefined && Buffer.byteLength(body) >= Number(length ?? 0)) break
      }
    } finally {
      socket.destroy()
    }
    return text
  }

  /** Tries something on every surface, buffered and streamed. */
  async surfaces(attempt: (surface: Surface, stream: boolean) => Promise<void>): Promise<string> {
    for (const surface of SURFACES) {
      for (const stream of [false, true]) await named(`${surface}, ${form(stream)}`, () => attempt(surface, stream))
    }
    return 'three surfaces, buffered and streamed'
  }

  /** Tries something on every surface with every dialect, buffered and streamed. */
  async everywhere(
    attempt: (surface: Surface, model: string, stream: boolean, dialect: Dialect) => Promise<void>,
  ): Promise<string> {
    for (const [dialect, model] of Object.entries(DIALECTS) as [Dialect, string][]) {
      for (const surface of SURFACES) {
        for (const stream of [false, true])
          await named(`${surface}, ${form(stream)}, ${dialect}`, () => attempt(surface, model, stream, dialect))
      }
    }
    return 'three surfaces, four dialects, buffered and streamed'
  }

  /** Looks at the ledger's row of a reply, once the gateway has ended. */
  bill(reply: Reply, look: (billed: Billed | undefined) => void): void {
    this.#deferred.push({ row: this.#row!, id: reply.id, look })
  }

  /** Runs a verb of the command line beside the running gateway. */
  run(...args: string[]): ReturnType<typeof sluice> {
    return sluice(args, this.gateway.folder)
  }

  /** Ends the gateway. @returns the faults in the ledger, each with its row */
  async close(): Promise<Map<Placed, string>> {
    const faults = new Map<Placed, string>()
    await this.gateway.stop()
    try {
      if (this.#deferred.length > 0) {
        const from = `sqlite:${this.gateway.folder}/gateway.db`
        const { out, err, code } = await this.run('usage', '--rows', '--json', '--since', '2000-01-01', '--store', from)
        assert.equal(code, 0, err)
        const billed = new Map((JSON.parse(out) as Billed[]).map(row => [row.request_id, row]))
        for (const { row, id, look } of this.#deferred) {
          try {
            look(billed.get(id))
          } catch (error) {
            faults.set(row, `ledger: ${words(error)}`)
          }
        }
      }
    } finally {
      this.gateway.remove()
      await this.simulator.close()
    }
    return faults
  }
}

const form = (stream: boolean): string => (stream ? 'streamed' : 'buffered')

async function named(where: string, attempt: () => Promise<void>): Promise<void> {
  try {
    await attempt()
  } catch (error) {
    throw new Error(`${where}: ${words(error)}`)
  }
}

/** What an error says, in one line. */
export const words = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).replaceAll(/\s*\n\s*/g, ' ').slice(0, 600)
