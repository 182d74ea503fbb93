/** Amazon Bedrock's InvokeModel for Anthropic's models. Its OpenAI-compatible endpoint needs no variant. */
import type { Dialect } from '../../core/ports/dialect.ts'
import { faultOf, retryAfterMs } from '../faults.ts'
import { parseObject, string } from '../loose-json.ts'
import { CODEC, EventStreamReader } from './event-stream.ts'
import { bytesOnly } from './media.ts'
import { varied, without } from './vary.ts'

const STREAM_TYPE = 'application/vnd.amazon.eventstream'
/** Preview features that Bedrock documents. It refuses a request that names another, so a client's others stay here. */
const BETAS: ReadonlySet<string> = new Set([
  'context-management-2025-06-27',
  'effort-2025-11-24',
  'fine-grained-tool-streaming-2025-05-14',
  'interleaved-thinking-2025-05-14',
  'token-efficient-tools-2025-02-19',
])
const names = (header: string | undefined) =>
  (header ?? '')
    .split(',')
    .map(name => name.trim())
    .filter(Boolean)

export function bedrock(base: Dialect): Dialect {
  const wire = varied(
    base,
    {
      path: ({ model }, stream) =>
        `/model/${encodeURIComponent(model)}/${stream ? 'invoke-with-response-stream' : 'invoke'}`,
      body: body => ({ ...body, model: undefined, stream: undefined }),
      first(backend, headers) {
        const operators = names(backend.headers['anthropic-beta'])
        const betas = names(headers['anthropic-beta']).filter(name => operators.includes(name) || BETAS.has(name))
        return { anthropic_version: 'bedrock-2023-05-31', ...(betas.length > 0 && { anthropic_beta: betas }) }
      },
      headers: (headers, stream) => ({
        ...without(headers, 'anthropic-version', 'anthropic-beta'),
        accept: stream ? STREAM_TYPE : 'application/json',
      }),
    },
    {
      ...bytesOnly(base),
      capabilities: new Set([...base.capabilities].filter(capability => capability !== 'web_search')),
      packages: [CODEC],
      frames: type => (type.toLowerCase().startsWith(STREAM_TYPE) ? new EventStreamReader() : null),
    },
  )
  return {
    ...wire,
    // An error's body is `{"message": …}`, and its kind is its status.
    fault(status, headers, body) {
      const error = base.fault(status, headers, anthropicError(body, status))
      return status === 424 ? faultOf('server', retryAfterMs(headers), error.cause) : error
    },
  }
}

function anthropicError(body: string, status: number): string {
  const message = string(parseObject(body)?.['message'])
  return JSON.stringify({ error: { ...(status === 400 && { type: 'invalid_request_error' }), message } })
}
