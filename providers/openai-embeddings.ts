/** Embeddings, as OpenAI's API and the servers that speak it make them. */
import { GatewayError } from '../core/canon/errors.ts'
import type { EmbeddingsForm } from '../core/ports/dialect.ts'
import { JsonBytes, pastBlanks } from '../core/tools/json-bytes.ts'
import { jsonMembers } from '../core/tools/json-members.ts'
import { count, parseObject } from './loose-json.ts'
import { OutboundHeaders } from './outbound-headers.ts'

const HEADERS = new OutboundHeaders(apiKey => ({ authorization: `Bearer ${apiKey}` }))

export const openAiEmbeddings: EmbeddingsForm = {
  request: (asked, backend) => ({
    method: 'POST',
    path: '/embeddings',
    headers: HEADERS.of(backend, false),
    body: JSON.stringify({ model: backend.model, ...asked }),
    state: null,
  }),
  decoder: inputs => ({
    // A provider that answers with a stream has not understood the request.
    frame: (_event, _data, push) => push({ type: 'error', error: malformed() }),
    body(text, push) {
      const found = vectorsOf(Buffer.from(text))
      if (found === null || found.count !== inputs) return push({ type: 'error', error: malformed() })
      push({ type: 'vectors', json: found.json })
      const prompt = count(parseObject(found.usage)?.['prompt_tokens'])
      if (prompt !== undefined) push({ type: 'usage', usage: { prompt, output: 0, reasoning: 0 } })
      push({ type: 'finish', reason: 'stop' })
    },
    end: () => undefined,
  }),
}

function malformed(): GatewayError {
  return new GatewayError('upstream_server_error', {
    message: 'The provider did not answer with one vector for each input.',
  })
}

/**
 * The members `data` and `usage` of a reply as they are written, and how many entries `data` has; null when it is no
 * list. They are found by the brackets: millions of numbers would take seconds to parse and to write again, and some
 * would be spelled otherwise.
 */
function vectorsOf(bytes: Buffer): { json: string; count: number; usage: string } | null {
  const found = { data: [0, 0], usage: [0, 0] }
  for (const member of jsonMembers(bytes))
    if (member?.name === 'data' || member?.name === 'usage') found[member.name] = [member.from, member.to]
  const [value, end] = found.data as [number, number]
  if (bytes[value] !== BRACKET || bytes[end - 1] !== CLOSED) return null
  return {
    json: bytes.toString('utf8', value, end),
    count: entriesOf(bytes, value),
    usage: bytes.toString('utf8', ...(found.usage as [number, number])),
  }
}

/** @param at where a list begins @returns how many objects it has; -1 when something else is in it */
function entriesOf(bytes: Buffer, at: number): number {
  let next = pastBlanks(bytes, at + 1)
  if (bytes[next] === CLOSED) return 0
  for (let count = 1; ; count++) {
    if (bytes[next] !== BRACE) return -1
    next = pastBlanks(bytes, endOf(bytes, next))
    if (bytes[next] !== COMMA) return bytes[next] === CLOSED ? count : -1
    next = pastBlanks(bytes, next + 1)
  }
}

function endOf(bytes: Buffer, at: number): number {
  const scanner = new JsonBytes(bytes, at)
  scanner.readValue()
  return scanner.at
}

const COMMA = 0x2c
const BRACKET = 0x5b
const CLOSED = 0x5d
const BRACE = 0x7b
