/**
 * The requests of agents, turn by turn. A conversation has a system prompt, forty tools, and a history that grows with
 * each turn by what the model said, the call it made, and the result of that. It ends after `TURNS` turns, and the
 * connection begins another one with other texts. The members stand in the order in which agents send them, with the
 * tools behind the messages.
 */
import { generator } from '../test/random.ts'
import { headOf, type RequestSource, type Route, type SurfaceName, sentences } from './requests.ts'

const SYSTEM_BYTES = 8 * 1024
const TOOLS = 40
const TOOL_BYTES = 1024
/** What a turn adds: two fifths of it what the model says, the rest the result of its call. */
const TURN_BYTES = 3 * 1024
/** The history grows from nothing to 108 KB, so that a request has 100 KB on average. */
const TURNS = 36

/** A pool of texts for all conversations of a program, each longer than the longest that is taken of it. */
let pool: string | undefined
const TEXT_BYTES = 4_000_000

interface Turn {
  /** The user's request, or undefined where the result of a call asks for the next step. */
  asked?: string
  said: string
  call: { id: string; name: string; arguments: string }
  result: string
}

/** How one surface writes a conversation. */
interface Written {
  before(model: string, system: string, tools: string): string
  /** The messages of a turn, as JSON, without the comma before them. */
  turn(turn: Turn): string
  /** The last message, which asks for the next step: a user's, or the result of the last call. */
  result(turn: Turn): string
  user(text: string): string
  after(system: string, tools: string): string
}

const json = JSON.stringify
const list = (parts: object[]) => json(parts).slice(1, -1)

const tool = (i: number, description: string) => ({
  name: `tool_${i}`,
  description,
  parameters: {
    type: 'object',
    properties: {
      path: { type: 'string', description: 'An absolute path.' },
      limit: { type: 'integer', description: 'The most lines to read.' },
      pattern: { type: 'string', description: 'A regular expression.' },
    },
    required: ['path'],
    additionalProperties: false,
  },
})

const chat: Written = {
  before: (model, system) => `{"model":"${model}","messages":[${list([{ role: 'system', content: system }])},`,
  turn: ({ said, call: { id, name, arguments: text } }) =>
    list([
      {
        role: 'assistant',
        content: said,
        tool_calls: [{ id, type: 'function', function: { name, arguments: text } }],
      },
    ]),
  result: ({ call, result }) => list([{ role: 'tool', tool_call_id: call.id, content: result }]),
  user: text => list([{ role: 'user', content: text }]),
  after: (_, tools) => `],"tools":${tools},"max_tokens":4096,"stream":true,"stream_options":{"include_usage":true}}`,
}

/** Claude Code moves a mark of the cache to the last message of each request. */
const marked = { cache_control: { type: 'ephemeral' } }
const messages: Written = {
  before: model => `{"model":"${model}","messages":[`,
  turn: ({ said, call: { id, name, arguments: text } }) =>
    list([
      {
        role: 'assistant',
        content: [
          { type: 'text', text: said },
          { type: 'tool_use', id, name, input: JSON.parse(text) },
        ],
      },
    ]),
  result: ({ call, result }) =>
    list([{ role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: result }] }]),
  user: text => list([{ role: 'user', content: [{ type: 'text', text }] }]),
  after: (system, tools) =>
    `],"system":${json([{ type: 'text', text: system, ...marked }])},"tools":${tools},"max_tokens":4096,"stream":true}`,
}

const responses: Written = {
  before: (model, system) => `{"model":"${model}","instructions":${json(system)},"input":[`,
  turn: ({ said, call: { id, name, arguments: text } }) =>
    list([
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: said, annotations: [] }] },
      { type: 'function_call', call_id: id, name, arguments: text },
    ]),
  result: ({ call, result }) => list([{ type: 'function_call_output', call_id: call.id, output: result }]),
  user: text => list([{ type: 'message', role: 'user', content: [{ type: 'input_text', text }] }]),
  after: (_, tools) => `],"tools":${tools},"max_output_tokens":4096,"store":false,"stream":true}`,
}

/** Each request has what is new, and the id of the response before it. The gateway keeps the rest. */
const continued = (id: string | undefined): Written => ({
  ...responses,
  after: (_, tools) =>
    `],"tools":${tools},"max_output_tokens":4096,"store":true,"stream":true${id === undefined ? '' : `,"previous_response_id":"${id}"`}}`,
})

const WRITTEN: Record<SurfaceName, Written> = { chat, messages, responses }

/** The tools as the surface writes them. */
function toolsOf(surface: SurfaceName, text: (bytes: number) => string): object[] {
  return Array.from({ length: TOOLS }, (_, i) => {
    const { name, description, parameters } = tool(i, text(TOOL_BYTES - 340))
    if (surface === 'chat') return { type: 'function', function: { name, description, parameters } }
    if (surface === 'messages') return { name, description, input_schema: parameters }
    return { type: 'function', name, description, strict: false, parameters }
  })
}

/** What a provider of Responses repeats of such a request: as long, though of another conversation. */
export function agentEcho(): { instructions: string; tools: object[] } {
  const text = proseOf(generator(4))
  return { instructions: text(SYSTEM_BYTES), tools: toolsOf('responses', text) }
}

let connections = 0

/** The requests of one connection. The next one may be asked for when the last one was answered. */
export class AgentRequests implements RequestSource {
  readonly #route: Route
  readonly #headers: Record<string, string>
  readonly #random: (below: number) => number
  readonly #text: (bytes: number) => string
  readonly #surface: Written
  readonly #name = `${process.pid}-${++connections}`
  #conversation = 0
  #turn = TURNS
  #system = ''
  #tools = ''
  /** The id of the last response. */
  #response: string | undefined
  #pieces: Buffer[] = []
  #after: Buffer = Buffer.alloc(0)
  #ended: Turn | undefined

  constructor(route: Route, headers: Record<string, string>) {
    this.#route = route
    this.#headers = headers
    this.#surface = route.agents === 'continued' ? continued(undefined) : WRITTEN[route.surface]
    this.#random = generator(process.pid + connections)
    this.#text = proseOf(this.#random)
  }

  /** The first bytes of an answer: those of a response have its id. */
  hear(content: Buffer): void {
    this.#response ??= /"id":"(resp_[^"]+)"/.exec(content.toString('latin1'))?.[1]
  }

  next(): Buffer[] {
    const begins = this.#turn === TURNS
    if (begins) this.#begin()
    else if (this.#route.agents === 'continued') this.#continue()
    else this.#grow()
    this.#turn++
    this.#response = undefined
    const { result } = this.#surface
    const last = this.#ended === undefined ? [] : [Buffer.from(result(this.#ended))]
    const body = [...this.#pieces, ...last, this.#after]
    const length = body.reduce((sum, piece) => sum + piece.length, 0)
    return [Buffer.from(headOf(this.#route, length, this.#headers), 'latin1'), ...body]
  }

  #begin(): void {
    const { before, user, after } = this.#surface
    this.#conversation++
    this.#turn = 0
    this.#ended = undefined
    this.#system = `${this.#name}-${this.#conversation} ${this.#text(SYSTEM_BYTES)}`
    this.#tools = json(toolsOf(this.#route.surface, this.#text))
    this.#pieces = [Buffer.from(before(this.#route.model, this.#system, this.#tools) + user(this.#text(400)))]
    this.#after = Buffer.from(after(this.#system, this.#tools))
  }

  #continue(): void {
    const { before, user, after } = continued(this.#response)
    this.#pieces = [Buffer.from(before(this.#route.model, this.#system, this.#tools) + user(this.#text(TURN_BYTES)))]
    this.#after = Buffer.from(after(this.#system, this.#tools))
  }

  /** The model has made a call in its answer; its result is the end of the next request. */
  #grow(): void {
    const { turn, result } = this.#surface
    if (this.#ended) this.#pieces.push(Buffer.from(result(this.#ended)))
    const id = `call_${this.#conversation}_${this.#turn}`
    const path = `/home/agent/project/${this.#random(1e6)}.ts`
    this.#ended = {
      said: this.#text((TURN_BYTES * 2) / 5 - 500),
      call: { id, name: `tool_${this.#random(TOOLS)}`, arguments: json({ path, limit: 200 }) },
      result: this.#text((TURN_BYTES * 3) / 5),
    }
    this.#pieces.push(Buffer.from(`,${turn(this.#ended)},`))
  }
}

/** Gives prose of a length, cut between words. */
const proseOf =
  (random: (below: number) => number) =>
  (bytes: number): string => {
    const whole = (pool ??= makePool())
    const from = whole.indexOf(' ', random(whole.length - bytes - 1000)) + 1
    return whole.slice(from, from + bytes)
  }

function makePool(): string {
  const random = generator(3)
  const all = sentences()
  const parts: string[] = []
  for (let size = 0; size < TEXT_BYTES; ) {
    const text = all[random(all.length)]!
    parts.push(text)
    size += text.length
  }
  return parts.join('')
}
