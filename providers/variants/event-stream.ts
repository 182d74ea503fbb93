/** Reads the event-stream framing of AWS. The vendor's codec checks and decodes each message. */
import { createRequire } from 'node:module'
import type { EventStreamCodec } from '@smithy/eventstream-codec'
import { FrameFault, type FrameHandler, FrameLimit, type FrameReader } from '../../core/ports/dialect.ts'
import { object, parseObject, string } from '../loose-json.ts'
import { SSE_DEFAULT_LIMIT } from '../sse.ts'

export const CODEC = '@smithy/eventstream-codec'
/** Total length, length of the headers, checksum of the two, checksum of the message: four bytes each. */
const LEAST_BYTES = 16
/** A larger buffer is released when its message is complete, so that it does not cost memory for the whole stream. */
const KEEP_BYTES = 64 * 1024

let codec: EventStreamCodec | undefined
/** Loaded with the first stream: it is an optional package. */
function loaded(): EventStreamCodec {
  if (codec) return codec
  const { EventStreamCodec } = createRequire(import.meta.url)(CODEC) as typeof import('@smithy/eventstream-codec')
  const toUtf8 = (bytes: Uint8Array | string) => (typeof bytes === 'string' ? bytes : Buffer.from(bytes).toString())
  return (codec = new EventStreamCodec(toUtf8, text => Buffer.from(text)))
}

/**
 * Frames of Bedrock's response streams. An event has the JSON of the model's own event in base64. An exception becomes
 * an `error` event of Anthropic's form.
 */
export class EventStreamReader implements FrameReader {
  readonly #limit: number
  /** The bytes of a message that is not complete. Only the first `#size` are valid. */
  #kept = Buffer.alloc(0)
  #size = 0

  /** @param limit for one message, in bytes */
  constructor(limit: number = SSE_DEFAULT_LIMIT) {
    this.#limit = limit
  }

  /** @throws FrameFault when a message is malformed or too long */
  push(chunk: Buffer, onFrame: FrameHandler): void {
    let at = 0
    while (at < chunk.length) {
      // The length of a message is in its first four bytes.
      const wanted = this.#size < 4 ? 4 : this.#length(this.#kept)
      if (this.#size === 0 && chunk.length - at >= 4) {
        const length = this.#length(chunk.subarray(at))
        if (chunk.length - at >= length) {
          this.#message(chunk.subarray(at, at + length), onFrame)
          at += length
          continue
        }
      }
      const taken = Math.min(wanted - this.#size, chunk.length - at)
      this.#keep(chunk.subarray(at, at + taken))
      at += taken
      if (this.#size >= 4 && this.#size === this.#length(this.#kept)) {
        const message = this.#kept.subarray(0, this.#size)
        this.#size = 0
        if (this.#kept.length > KEEP_BYTES) this.#kept = Buffer.alloc(0)
        this.#message(message, onFrame)
      }
    }
  }

  /** A message that is cut off is dropped: without the model's last event the decoder says that the reply was cut. */
  end(): void {}

  #length(bytes: Buffer): number {
    const length = bytes.readUInt32BE(0)
    if (length < LEAST_BYTES) throw new FrameFault('A message of the stream has no valid length.')
    if (length > this.#limit) throw new FrameLimit(this.#limit)
    return length
  }

  #keep(bytes: Buffer): void {
    const size = this.#size + bytes.length
    if (size > this.#kept.length) {
      // The buffer doubles, so that collecting a long message from small pieces takes linear time.
      const larger = Buffer.allocUnsafeSlow(Math.max(size, 2 * this.#kept.length, 256))
      this.#kept.copy(larger, 0, 0, this.#size)
      this.#kept = larger
    }
    bytes.copy(this.#kept, this.#size)
    this.#size = size
  }

  #message(bytes: Buffer, onFrame: FrameHandler): void {
    let message: ReturnType<EventStreamCodec['decode']>
    try {
      message = loaded().decode(bytes)
    } catch {
      throw new FrameFault('A message of the stream is malformed.')
    }
    const header = (name: string) => string(message.headers[name]?.value)
    const body = parseObject(Buffer.from(message.body).toString())
    const type = header(':message-type')
    if (type === 'event') {
      // Another kind of event has no meaning here.
      const bytes = object(body)['bytes']
      if (typeof bytes === 'string') onFrame('', Buffer.from(bytes, 'base64').toString())
      return
    }
    const kind = type === 'exception' ? header(':exception-type') : header(':error-code')
    const error = { type: KINDS[kind.toLowerCase()] ?? 'api_error', message: string(object(body)['message']) }
    onFrame('error', JSON.stringify({ type: 'error', error }))
  }
}

/** Bedrock's exceptions inside a stream, as Anthropic's types of errors. */
const KINDS: Readonly<Record<string, string>> = {
  throttlingexception: 'rate_limit_error',
  serviceunavailableexception: 'overloaded_error',
  modeltimeoutexception: 'timeout_error',
  validationexception: 'invalid_request_error',
}
