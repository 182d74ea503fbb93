/** A call as it is written for one backend, and what reads the reply to it. */
import type { Conversation } from '../../core/canon/conversation.ts'
import type { GatewayError } from '../../core/canon/errors.ts'
import type { AttemptCall, WireRequest } from '../../core/plugin.ts'
import type {
  Decoder,
  Dialect,
  FaultHeaders,
  FrameReader,
  OutboundContext,
  OutboundRequest,
} from '../../core/ports/dialect.ts'
import { callId, searchId } from '../../core/tools/ids.ts'
import { wellFormed } from '../../core/tools/json.ts'
import { blaming, namingTurns } from '../../providers/blame.ts'
import { dialectOf } from '../../providers/index.ts'
import { isEventStream, SseReader } from '../../providers/sse.ts'
import { StopDecoder } from '../../providers/stop-matcher.ts'
import { type Sent, sentTo, structuredDecoder } from '../../providers/structured-output.ts'
import { wholeArguments } from '../../providers/whole-arguments.ts'
import { plan } from '../shared/slots.ts'
import type { Verbatim } from '../shared/verbatim.ts'

const NO_HEADERS = {}

/** The request of an attempt in its backend's dialect, and the decoder for its reply. */
export class Written {
  readonly wire: WireRequest
  readonly adjusted: NonNullable<OutboundRequest['adjusted']>
  readonly #call: AttemptCall
  /** What the request says, with the backend's own output cap. */
  readonly #conversation: Conversation
  /** The conversation as this backend gets it. */
  readonly #sent: Sent
  readonly #dialect: Dialect
  readonly #state: OutboundRequest['state']

  /** @throws when the request cannot be written */
  constructor(call: AttemptCall, conversation: Conversation, context: OutboundContext, marks: Verbatim | undefined) {
    const { backend } = call
    this.#call = call
    this.#conversation = conversation
    this.#dialect = dialectOf(backend)
    this.#sent = sentTo(conversation, backend, this.#dialect)
    const { method, path, headers, body, state, adjusted } = this.#dialect.request(
      this.#sent.conversation,
      backend,
      context,
    )
    const json = wellFormed(body)
    this.wire = { call, method, path, headers, own: NO_HEADERS, body: marks?.pieces(json) ?? json }
    this.adjusted = adjusted ?? []
    this.#state = state
  }

  /** A new decoder for a reply with a status of 2xx. */
  decoder(): Decoder {
    const { conversation, tool } = this.#sent
    let decoder = this.#dialect.decoder({
      backend: this.#call.backend,
      conversation,
      state: this.#state,
      mintCallId: callId,
      mintSearchId: searchId,
    })
    const search = this.#call.facts.peek(plan)?.search?.name ?? null
    const { output, sampling } = this.#conversation
    if (output) decoder = structuredDecoder(decoder, this.#conversation, tool, search)
    // The dialect matches stop strings in texts, and this text was the arguments of a call.
    if (tool !== null && sampling.stop.length > 0) decoder = new StopDecoder(decoder, sampling.stop)
    return wholeArguments(decoder, this.#conversation, search)
  }

  /** A new reader for a reply of this content type; null when such a reply is one body. */
  frames(contentType: string): FrameReader | null {
    if (this.#dialect.frames) return this.#dialect.frames(contentType)
    return isEventStream(contentType) ? new SseReader() : null
  }

  /** The error that the client gets for a reply with another status. */
  fault(status: number, headers: FaultHeaders, body: string): GatewayError {
    return this.#blamed(this.#dialect.fault(status, headers, body), status === 400)
  }

  /** The error that the client gets for an error that the decoder found inside a reply. */
  eventFault(error: GatewayError): GatewayError {
    return this.#blamed(error, true)
  }

  #blamed(error: GatewayError, mayBlame: boolean): GatewayError {
    return namingTurns(this.#conversation, blaming(this.#conversation, this.#dialect, error, mayBlame))
  }
}
