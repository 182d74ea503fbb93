/**
 * Responses over a WebSocket, as OpenAI documents it (docs/websocket.md). A request is a `response.create` message
 * with the members of the body and of the envelope; the reply is the JSON of each event of the stream.
 */
import { GatewayError } from '../../core/canon/errors.ts'
import type { HeaderList } from '../../core/ports/listener.ts'
import type { Envelope, SocketForm, Surface } from '../../core/ports/surface.ts'
import { jsonMembers } from '../../core/tools/json-members.ts'
import { compileRequest } from '../check.ts'
import { boolean, oneOfStrings, type Schema, string } from '../schema.ts'
import { ResponsesEncoder } from './encode.ts'
import { requestSchema } from './schema.ts'

const CREATE = 'response.create'
/** Codex sends it when it has processed a response. The gateway does not need it. */
const PROCESSED = 'response.processed'

/** @param http the surface over HTTP, from which the WebSocket form is made */
export function socketForm(http: Surface): SocketForm {
  const schema: Schema = {
    ...requestSchema,
    title: 'Response request as a WebSocket message',
    properties: {
      ...(requestSchema['properties'] as Schema),
      type: oneOfStrings([CREATE]),
      stream_id: string(),
      generate: boolean(),
    },
  }
  return {
    surface: {
      ...http,
      requestSchema: schema,
      validate: compileRequest(schema),
      // `stream` is ignored: a WebSocket reply is always a stream.
      parse: body => ({ ...http.parse(body), stream: true }),
      encoder: context => new ResponsesEncoder(context, 'lines'),
    },
    open,
    frame(json, lane, headers) {
      let added = ''
      if (lane !== undefined) added += `,"stream_id":${JSON.stringify(lane)}`
      if (headers !== null) added += `,"headers":${JSON.stringify(withoutTransport(headers))}`
      return added === '' ? json : `${json.slice(0, -1)}${added}}`
    },
    reply(status, headers, body, lane) {
      const shown = withoutTransport(headers)
      const { error } = JSON.parse(body) as { error?: Record<string, unknown> }
      return JSON.stringify({
        type: 'error',
        ...(error ? { status, error: { ...error, headers: shown } } : NOT_STREAMABLE),
        headers: shown,
        ...(lane !== undefined && { stream_id: lane }),
      })
    },
  }
}

/** Replaces a JSON reply of a plugin that is not an event of a stream. POST would return that reply. */
const NOT_STREAMABLE = {
  status: 501,
  error: {
    type: 'server_error',
    code: 'not_implemented',
    message: 'This request is answered with JSON that is no event of a stream. Send it as POST.',
    param: null,
  },
}

/** Headers that concern only HTTP transport; they are not repeated in a message. */
const TRANSPORT_HEADERS = new Set(['content-type', 'cache-control', 'x-accel-buffering', 'connection'])

function withoutTransport(headers: HeaderList): Record<string, string> {
  return Object.fromEntries([...headers].filter(([name]) => !TRANSPORT_HEADERS.has(name)))
}

function* open(message: Uint8Array): Generator<undefined, Envelope> {
  const found = yield* members(Buffer.from(message.buffer, message.byteOffset, message.byteLength))
  if (!found) {
    throw new GatewayError('invalid_json', { message: 'The message is not a JSON object. Check its syntax.' })
  }
  const { type, stream_id: lane } = found
  if (type === PROCESSED) return { kind: 'notice' }
  if (type !== CREATE) {
    throw new GatewayError(type === undefined ? 'missing_required_parameter' : 'unsupported_value', {
      message: `A message is an object with "type": "${CREATE}" and the members of a request's body; other types are not offered.`,
      param: 'type',
    })
  }
  const warmUp = found.generate === false
  if (lane === undefined || lane === null) return { kind: 'request', lane: undefined, warmUp }
  if (typeof lane !== 'string' || !/^[A-Za-z0-9_.-]{1,256}$/.test(lane)) {
    throw new GatewayError('invalid_stream_id', {
      message:
        'stream_id must be 1 to 256 letters, digits, underscores, hyphens and periods. Leave it out for the lane without a name.',
      param: 'stream_id',
    })
  }
  return { kind: 'request', lane, warmUp }
}

// ---- the envelope's members -----------------------------------------------------------------------------------------

/** How many bytes are scanned in one event-loop turn: at most 10 ms, for a text of nothing but brackets. */
const SLICE = 1024 * 1024
interface Members {
  type?: unknown
  stream_id?: unknown
  generate?: unknown
}

/**
 * Finds the members of the envelope without parsing the message. `validation` parses the whole message later, once; a
 * large one usually on another thread. A syntax error elsewhere in the message is found only then.
 * @returns null when the message is not an object
 */
function* members(bytes: Buffer): Generator<undefined, Members | null> {
  const found: Members = {}
  const walk = jsonMembers(bytes, SLICE)
  for (;;) {
    const { done, value } = walk.next()
    if (done) return value ? found : null
    if (value === undefined) yield
    else if (isWanted(value.name)) found[value.name] = parsed(bytes, value.from, value.to)
  }
}

const isWanted = (name: string | undefined): name is keyof Members =>
  name === 'type' || name === 'stream_id' || name === 'generate'

/** The parsed JSON, or null for broken JSON; null is no type. */
function parsed(bytes: Buffer, from: number, to: number): unknown {
  try {
    return JSON.parse(bytes.toString('utf8', from, to))
  } catch {
    return null
  }
}
