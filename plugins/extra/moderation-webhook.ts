// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of gateway.yaml
/**
 * Asks a service whether a prompt may be served, in the form of OpenAI's moderations: POST `{ input, model? }`,
 * answered by `{ results: [{ flagged }] }`. A flagged prompt is refused as one that a provider's policy refuses.
 *
 *   - admission
 *   - moderation-webhook: { url: https://moderation.example.com/v1/moderations, api_key: '${MODERATION_KEY}' }
 *   - translation
 *
 * The service gets the text of the prompt and nothing about the caller. Nothing of the prompt is logged.
 */
import { type Conversation, conversation, definePlugin, deny, type Exchange, loopTurn, type Reply } from 'sluice'

interface Options {
  url: string
  api_key: string
  model: string
  scope: 'latest' | 'all'
  timeout: number
  max_body: number
  on_failure: 'deny' | 'allow'
}

type Part = Conversation['turns'][number]['parts'][number]
type Tool = Conversation['tools'][number]

/** An answer is read up to this many bytes: one verdict with its categories takes about two thousand. */
const ANSWER_BYTES = 65_536
/** UTF-16 units of text that are written as JSON in one turn of the event loop: some milliseconds. */
const SLICE = 262_144

export default definePlugin<Options>({
  name: 'moderation-webhook',
  summary: 'Asks a moderation service before a prompt goes upstream, and refuses prompts that it flags.',
  config: {
    type: 'object',
    additionalProperties: false,
    required: ['url'],
    properties: {
      url: { type: 'string', pattern: '^https?://', description: 'Where prompts are sent, such as …/v1/moderations.' },
      api_key: { type: 'string', default: '', description: 'Sent as a Bearer key; from the environment: "${NAME}".' },
      model: {
        type: 'string',
        default: '',
        description: 'The model that the service shall use, where it has several.',
      },
      scope: {
        type: 'string',
        enum: ['latest', 'all'],
        default: 'all',
        description:
          'all: the whole prompt with system text and tools. latest: the last turn of the user and what follows.',
      },
      timeout: { type: 'string', format: 'duration', default: '2s', description: 'How long the service may take.' },
      max_body: { type: 'string', format: 'size', default: '1MiB', description: 'A longer prompt cannot be checked.' },
      on_failure: {
        type: 'string',
        enum: ['deny', 'allow'],
        default: 'deny',
        description: 'What becomes of a prompt that could not be checked: deny refuses it with 503, allow serves it.',
      },
    },
  },
  needs: [conversation],
  aboveTerminal: true,
  check({ url }) {
    if (!URL.canParse(url)) return [`${url} is no URL`]
    const { protocol, hostname } = new URL(url)
    if (protocol === 'https:' || /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname)) return []
    return [`${url} would send prompts in clear over the network; write https://`]
  },
  create({ url, api_key, model, scope, timeout, max_body, on_failure }, { clock, log, terminal }) {
    const headers = { 'content-type': 'application/json', ...(api_key && { authorization: `Bearer ${api_key}` }) }

    /** @throws Error that says why the service gave no verdict */
    async function flagged(x: Exchange, texts: Iterable<string>, signal: AbortSignal): Promise<boolean> {
      const body = await bodyOf(x, texts, model, max_body)
      if (body === null || x.closed) return false
      // A redirect would carry the prompt to a place that the operator has not named.
      const response = await fetch(url, { method: 'POST', headers, body, signal, redirect: 'error' })
      const text = await read(response)
      if (!response.ok) throw new Error(`the service answered ${response.status}`)
      const results = (parsed(text) as { results?: unknown } | null)?.results
      if (!Array.isArray(results) || results.length === 0 || results.some(one => typeof one?.flagged !== 'boolean'))
        throw new Error('the answer has no results with flagged: true or false')
      return results.some(one => one.flagged)
    }

    return {
      async onRequest(x): Promise<undefined | Reply> {
        // Counting tokens serves no prompt.
        if (terminal.advisory) return undefined
        const texts = textsToAsk(x.get(conversation), scope)
        const stop = new AbortController()
        // The client leaves, or the exchange ends otherwise.
        x.defer(() => stop.abort())
        const timer = clock.setTimer(timeout, () => stop.abort(new Error(`no answer within ${timeout} ms`)))
        try {
          if (!(await flagged(x, texts, stop.signal))) return undefined
          log.info({ request_id: x.id }, 'moderation-webhook: flagged')
          const message = 'This prompt was refused by the content policy of this service. Change the prompt.'
          return deny('invalid_value', { message, details: { reason: 'content_policy' } })
        } catch (error) {
          if (x.closed) return undefined
          log.warn({ request_id: x.id, err: error }, 'moderation-webhook: no verdict')
          if (on_failure === 'allow') return undefined
          const message = 'This prompt could not be checked against the content policy. Retry shortly.'
          return deny('route_unavailable', { message })
        } finally {
          timer.cancel()
        }
      },
    }
  },
})

/** The body of an answer. @throws Error when it is longer than ANSWER_BYTES */
async function read(response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length
    if (bytes > ANSWER_BYTES) throw new Error(`the answer is longer than ${ANSWER_BYTES} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

/** Parsed JSON. The error of JSON.parse would quote the answer, which may quote the prompt. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Error('the answer is no JSON')
  }
}

/**
 * The body of a question: `{ input, model? }`, where `input` is the texts, each on a line of its own. Null when there
 * is no text. It is written in slices, and no further than it may be sent.
 * @throws Error when it is longer than `most` bytes
 */
async function bodyOf(x: Exchange, texts: Iterable<string>, model: string, most: number): Promise<Uint8Array | null> {
  const pieces: Buffer[] = []
  let bytes = 0
  const add = (json: string) => {
    const piece = Buffer.from(json)
    pieces.push(piece)
    bytes += piece.length
    if (bytes > most) throw new Error('the prompt is longer than max_body')
  }
  let units = 0
  for (const text of texts) {
    add(pieces.length === 0 ? '{"input":"' : '\\n')
    for (let from = 0; from < text.length; ) {
      let to = Math.min(text.length, from + SLICE)
      // Both halves of a character stay together: alone each would be written as an escape.
      if (to < text.length && (text.charCodeAt(to - 1) & 0xfc00) === 0xd800) to++
      add(JSON.stringify(text.slice(from, to)).slice(1, -1))
      units += to - from
      from = to
      if (units < SLICE) continue
      units = 0
      await loopTurn(x)
      if (x.closed) return null
    }
  }
  if (pieces.length === 0) return null
  add(model ? `","model":${JSON.stringify(model)}}` : '"}')
  return Buffer.concat(pieces)
}

/** The texts that are asked about, one after the other; none of them is empty. */
function* textsToAsk(asked: Conversation, scope: Options['scope']): Iterable<string> {
  for (const text of scope === 'all' ? textsOfAll(asked) : textsOfTurns(sinceLastUser(asked.turns)))
    if (text !== '') yield text
}

/** Clients write the history, too: what is behind the user's last turn need not be from a model or a tool. */
function sinceLastUser(turns: Conversation['turns']): Conversation['turns'] {
  return turns.slice(
    Math.max(
      0,
      turns.findLastIndex(turn => turn.role === 'user'),
    ),
  )
}

function* textsOfAll({ system, turns, tools, output }: Conversation): Iterable<string> {
  for (const part of system) yield* textsOf(part)
  for (const tool of tools) yield* textsOfTool(tool)
  if (output) yield* [output.name ?? '', output.description ?? '', output.schema ? JSON.stringify(output.schema) : '']
  yield* textsOfTurns(turns)
}

function* textsOfTurns(turns: Conversation['turns']): Iterable<string> {
  for (const turn of turns) for (const part of turn.parts) yield* textsOf(part)
}

function* textsOf(part: Part): Iterable<string> {
  switch (part.type) {
    case 'text':
    case 'refusal':
      yield part.text
      break
    case 'result':
      for (const content of part.content) yield* textsOf(content)
      break
    case 'call':
      yield part.input
      break
    case 'document':
      yield* [part.title ?? '', part.context ?? '', part.source.kind === 'text' ? part.source.text : '']
      break
    case 'reasoning':
      yield* part.summary
      break
    case 'search':
      yield part.query
      for (const { title, text } of part.results) yield* [title, text ?? '']
      break
    case 'image':
      break
  }
}

/** What a model reads of a tool, in the client's words. */
function* textsOfTool(tool: Tool): Iterable<string> {
  switch (tool.type) {
    case 'function':
      yield* [tool.name, tool.description ?? '', JSON.stringify(tool.parameters)]
      break
    case 'custom':
      yield* [tool.name, tool.description ?? '', tool.grammar?.definition ?? '']
      break
    case 'web_search':
      if (tool.userLocation) yield JSON.stringify(tool.userLocation)
      break
    // Its shape is published; the client adds no text.
    case 'native':
      break
  }
}
