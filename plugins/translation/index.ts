import { hash } from 'node:crypto'
import { type CallPart, type Conversation, formOf } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import { UpstreamFault } from '../../core/canon/upstream-fault.ts'
import { conversation, definePlugin, type Exchange, estimate } from '../../core/plugin.ts'
import type {
  Adjustment,
  Backend,
  Decoder,
  Dialect,
  FaultHeaders,
  FrameReader,
  OutboundContext,
  OutboundRequest,
} from '../../core/ports/dialect.ts'
import { callId, searchId } from '../../core/tools/ids.ts'
import { wellFormed } from '../../core/tools/json.ts'
import { blamedError, namingTurns } from '../../providers/blame.ts'
import { dialectOf } from '../../providers/index.ts'
import { inWords } from '../../providers/left-out.ts'
import { memberOf } from '../../providers/requirements.ts'
import { isEventStream, SseReader } from '../../providers/sse.ts'
import { StopDecoder } from '../../providers/stop-matcher.ts'
import { type Sent, sentTo, structuredDecoder } from '../../providers/structured-output.ts'
import { wholeArguments } from '../../providers/whole-arguments.ts'
import { exceedsCounted } from '../shared/sent-bound.ts'
import { sentConversation } from '../shared/sent-conversation.ts'
import {
  type Adjusted,
  adjusted,
  candidates,
  contentLimits,
  counted,
  identity,
  type Outbound,
  outbound,
  searchPlan,
  verbatim,
  type WrittenArguments,
  writtenArguments,
} from '../shared/slots.ts'
import { type Pieces, Verbatim } from '../shared/verbatim.ts'
import { sharedBackends } from '../upstream/health.ts'

/**
 * Knows the dialects, so that `upstream` needs to know none. The backend is known only when an attempt begins, so
 * `upstream` calls `outbound` for each attempt to get the request and the decoder for its reply. `upstream` also gives
 * the reply's bytes to the decoder.
 */
export const translation = definePlugin({
  name: 'translation',
  summary: 'Writes each attempt’s request in its backend’s dialect, and gives the decoder for the reply.',
  needs: [identity, conversation, candidates],
  provides: [outbound],
  mayProvide: [adjusted],
  aboveTerminal: true,
  dryRun: 'safe',
  create(_, { log, shared }) {
    const backends = sharedBackends(shared)
    return {
      onRequest(x) {
        const own = sentConversation(x)
        const input = x.peek(estimate)?.input ?? 0
        const replayBytes = x.peek(contentLimits)?.replayBytes ?? Number.POSITIVE_INFINITY
        const sent = x.peek(verbatim)
        const written = x.peek(writtenArguments)
        const marks = sent ?? (written && new Verbatim())
        const context: OutboundContext = {
          stream: own.stream || mayOutlastIdle(own),
          upstreamCallId,
          cacheKey: cacheKey(x, own),
          previews: previewsOf(x),
          json: sent && (body => sent.write(body)),
          written: written && marks && writer(written, marks),
        }
        x.set(outbound, (backend, said = own) => {
          const translated = new Translated(x, backend, forBackend(said, backend, input), context, marks)
          const base = x.peek(counted)?.conversation
          const { body } = translated
          if (base && exceedsCounted({ body, backend, said }, base, input, replayBytes)) {
            log.error({ request_id: x.id, backend: backend.id, tokens: input }, 'request larger than counted')
            backends.notSent(backend.id)
            throw new GatewayError('internal_error', {
              message:
                'The request that was written for the provider is larger than what was counted, so it was not sent. Quote the request id.',
              retriable: false,
            })
          }
          const changes = translated.request.adjusted ?? []
          if (changes.length > 0) {
            const fields = { request_id: x.id, backend: backend.id, left_out: changes.map(inWords) }
            log.debug(fields, 'controls were left out or lowered')
          }
          // Of an attempt that fails, nothing reaches the client.
          if (changes.length > 0 || x.peek(adjusted)) x.set(adjusted, named(own, changes))
          return translated
        })
        return undefined
      },
      onResponseHead(x, head) {
        const changes = x.peek(adjusted)
        if (changes?.length && head.origin === 'upstream')
          head.headers.set('x-adjusted', changes.map(({ field, reason }) => `${field}=${reason}`).join(', '))
        return undefined
      },
    }
  },
})

/** What a client is told of the controls that are not sent as it wrote them. What means the same is not told. */
function named(conversation: Conversation, changes: readonly Adjustment[]): Adjusted[] {
  return changes
    .filter(change => !change.same)
    .map(({ control, sent }) => ({
      field: control === 'effort' ? memberOf(conversation, 'effort') : control,
      reason: sent === undefined ? 'not_supported' : `sent_as_${sent}`,
    }))
}

/**
 * A cap that the client did not name is lowered to what the backend takes, and to what its own window leaves. So is the
 * one that a dialect sends where nothing sets any.
 */
function forBackend(said: Conversation, backend: Backend, input: number): Conversation {
  if (said.maxOutputField !== undefined) return said
  const configured = Math.min(said.maxOutputTokens ?? Infinity, backend.maxOutputTokens ?? Infinity)
  const left = Math.max(1, (backend.contextWindow ?? Infinity) - input)
  if (configured === Infinity && left >= (dialectOf(backend).outputCap ?? 0)) return said
  const cap = Math.min(configured, left)
  return cap === said.maxOutputTokens ? said : { ...said, maxOutputTokens: cap }
}

/** Puts arguments that a thread has written into a request, without looking at them again. */
function writer(written: ReadonlyMap<CallPart, WrittenArguments>, marks: Verbatim): OutboundContext['written'] {
  return (call, as) => {
    const made = written.get(call)
    if (made === undefined || (as === 'object' && !made.object)) return undefined
    return marks.insert(as === 'object' ? made.text : made.quoted)
  }
}

class Translated implements Outbound {
  readonly request: OutboundRequest
  readonly body: string | Pieces
  readonly #x: Exchange
  readonly #backend: Backend
  readonly #conversation: Conversation
  /** The conversation as this backend gets it. */
  readonly #sent: Sent
  readonly #dialect: Dialect

  constructor(
    x: Exchange,
    backend: Backend,
    said: Conversation,
    context: OutboundContext,
    marks: Verbatim | undefined,
  ) {
    this.#x = x
    this.#backend = backend
    this.#conversation = said
    this.#dialect = dialectOf(backend)
    this.#sent = sentTo(said, backend, this.#dialect)
    this.request = this.#dialect.request(this.#sent.conversation, backend, context)
    const json = wellFormed(this.request.body)
    this.body = marks?.pieces(json) ?? json
  }

  decoder(): Decoder {
    const { conversation, tool } = this.#sent
    let decoder = this.#dialect.decoder({
      backend: this.#backend,
      conversation,
      state: this.request.state,
      mintCallId: callId,
      mintSearchId: searchId,
    })
    const search = this.#x.peek(searchPlan)?.name ?? null
    const { output, sampling } = this.#conversation
    if (output) decoder = structuredDecoder(decoder, this.#conversation, tool, search)
    // The dialect matches stop strings in texts, and this text was the arguments of a call.
    if (tool !== null && sampling.stop.length > 0) decoder = new StopDecoder(decoder, sampling.stop)
    return wholeArguments(decoder, this.#conversation, search)
  }

  frames(contentType: string): FrameReader | null {
    if (this.#dialect.frames) return this.#dialect.frames(contentType)
    return isEventStream(contentType) ? new SseReader() : null
  }

  fault(status: number, headers: FaultHeaders, body: string): GatewayError {
    return this.#blamed(this.#dialect.fault(status, headers, body), status === 400)
  }

  eventFault(error: GatewayError): GatewayError {
    return this.#blamed(error, true)
  }

  /** The client's fault in place of the provider's, when the provider faults something that the client asked for. */
  #blamed(error: GatewayError, mayBlame: boolean): GatewayError {
    const { cause } = error
    if (error.code !== 'upstream_server_error' || error.retriable || !(cause instanceof UpstreamFault))
      return namingTurns(this.#conversation, error)
    cause.ofRequest = true
    const part = mayBlame ? this.#dialect.blames?.(cause.error) : undefined
    return (part && blamedError(this.#conversation, part, cause)) || error
  }
}

/**
 * Output tokens. A reply of at most this many ends within the shortest idle limit of `stream_limits`, at any usable
 * speed.
 */
const SURELY_SHORT = 2048

/**
 * Whether a buffered reply could take longer than the idle limit allows. Such a reply is read from the upstream as a
 * stream: then the idle and ceiling clocks see activity (decisions 12), and the upstream stops when the client
 * disconnects. Short replies are requested whole, which costs half.
 */
function mayOutlastIdle({ reasoning, maxOutputTokens }: Conversation): boolean {
  const { effort, thinking } = reasoning
  const quiet = effort === undefined || effort === 'none' || effort === 'minimal' || effort === 'low'
  const thinks = thinking !== undefined && thinking !== 'disabled'
  return !quiet || thinks || maxOutputTokens === undefined || maxOutputTokens > SURELY_SHORT
}

/**
 * An upstream call id. It is deterministic, so that a call has the same id in every request; 29 characters of
 * [A-Za-z0-9_-], which fit every dialect (wire.md F.7).
 */
export function upstreamCallId(publicId: string): string {
  return `call_${hash('sha256', publicId, 'base64url').slice(0, 24)}`
}

function previewsOf(x: Exchange): string[] | undefined {
  const header = x.surface?.previewHeader
  const value = header === undefined ? undefined : x.incoming.headers.get(header)
  return value?.split(',').map(name => name.trim())
}

/**
 * The cache hint for the provider, hashed so that others cannot read it: the client's own hint, or for a client that
 * marks what to cache, the beginning that its requests share (wire.md F.8).
 */
function cacheKey(x: Exchange, own: Conversation): string | undefined {
  const hint =
    own.cacheKey ??
    x.incoming.headers.get('x-claude-code-session-id') ??
    x.incoming.headers.get('session-id') ??
    markedPrefix(own)
  if (hint === undefined) return undefined
  return hash('sha256', `${x.get(identity).organization.id}\0${hint}`, 'base64url').slice(0, 32)
}

/** System text and tools of a request with cache markers; later requests of the conversation have the same. */
function markedPrefix(conversation: Conversation): string | undefined {
  const { system, tools, turns } = conversation
  if (!formOf(conversation).marksCache || (system.length === 0 && tools.length === 0)) return undefined
  const marked =
    system.some(part => part.cache) ||
    tools.some(tool => 'cache' in tool && tool.cache) ||
    turns.some(turn => turn.parts.some(part => 'cache' in part && part.cache))
  if (!marked) return undefined
  return JSON.stringify([system.filter(part => !part.meteredOnly).map(part => part.text), tools])
}
