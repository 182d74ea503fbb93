// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of gateway.yaml
/**
 * Asks a service whether a prompt may be served, in the form of OpenAI's moderations: POST `{ input, model? }`, answered
 * by `{ results: [{ flagged }] }`. A flagged prompt is refused as one that a provider's policy refuses.
 *
 *   - admission
 *   - moderation-webhook: { url: https://moderation.example.com/v1/moderations, api_key: '${MODERATION_KEY}' }
 *   - translation
 *
 * The service gets the text of the prompt and nothing about the caller. Nothing of the prompt is logged.
 */
import { type Conversation, conversation, definePlugin, deny, type Reply } from 'sluice'

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

/** An answer is read up to this many bytes: one verdict with its categories takes about two thousand. */
const ANSWER_BYTES = 65_536

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
        default: 'latest',
        description: 'latest: what follows the last turn of the assistant. all: the whole conversation.',
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
    async function flagged(input: string, signal: AbortSignal): Promise<boolean> {
      const body = JSON.stringify({ input, ...(model && { model }) })
      if (Buffer.byteLength(body) > max_body) throw new Error('the prompt is longer than max_body')
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
        const input = textOf(x.get(conversation), scope)
        if (input === '') return undefined
        const stop = new AbortController()
        // The client leaves, or the exchange ends otherwise.
        x.defer(() => stop.abort())
        const timer = clock.setTimer(timeout, () => stop.abort(new Error(`no answer within ${timeout} ms`)))
        try {
          if (!(await flagged(input, stop.signal))) return undefined
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

function textOf({ system, turns }: Conversation, scope: Options['scope']): string {
  const from = scope === 'all' ? 0 : turns.findLastIndex(turn => turn.role === 'assistant') + 1
  const parts: Part[] = turns.slice(from).flatMap(turn => turn.parts)
  return (scope === 'all' ? [...system, ...parts] : parts).flatMap(textsOf).join('\n')
}

function textsOf(part: Part): string[] {
  if (part.type === 'text' || part.type === 'refusal') return [part.text]
  if (part.type === 'result') return part.content.flatMap(textsOf)
  if (part.type === 'call') return [part.input]
  if (part.type === 'document')
    return [part.title ?? '', part.context ?? '', part.source.kind === 'text' ? part.source.text : '']
  return []
}
