import { randomBytes } from 'node:crypto'
import type { ErrorCode, GatewayError } from '../../core/canon/errors.ts'
import type { FinishReason, StreamEvent } from '../../core/canon/events.ts'
import {
  type CallFault,
  type CallSink,
  conversation as conversationSlot,
  definePlugin,
  type Exchange,
  type Settlement,
  SinkAround,
  slot,
  usage,
} from '../../core/plugin.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { count, duration, type Filled, flag, number, object, text } from '../../core/tools/vocabulary.ts'
import { dialectOf } from '../../providers/index.ts'
import { callReport, identity, model, parsedConversation } from '../shared/slots.ts'
import { traceParent } from '../shared/trace-context.ts'
import { Exporter } from './exporter.ts'
import { type AttributeValue, attributes, CLIENT, failedStatus, nanos, SERVER, type Span } from './span.ts'

const traced = slot<TracedExchange>('otel.traced')

const schema = object(
  {
    endpoint: text('The OTLP/HTTP receiver; spans are posted as JSON to /v1/traces below it.', {
      pattern: '^https?://[^\\s/?#]+[^\\s?#]*$',
      examples: ['http://127.0.0.1:4318'],
    }),
    headers: {
      type: 'object',
      additionalProperties: { type: 'string' },
      default: {},
      description: 'Headers added to every post, e.g. an authorization.',
    } as Filled<Record<string, string>>,
    service_name: text('The `service.name` of the spans.', { default: 'sluice' }),
    sample: number(1, 'Share of exchanges that are traced, of those whose traceparent does not decide.', {
      minimum: 0,
      maximum: 1,
    }),
    follow_parent: flag(
      true,
      "A client's traceparent decides by its sampled flag. Switch it off where clients are not trusted: they could have every request traced.",
    ),
    batch: count(512, 'Most spans in one post.', 1),
    queue: count(4096, 'Most spans that wait; further spans are dropped, and the log counts them.', 1),
    interval: duration('5s', 'Longest wait of a span before it is posted.'),
    timeout: duration('5s', 'Longest wait for the receiver.'),
  },
  ['endpoint'],
)

/**
 * OpenTelemetry traces: one SERVER span for the exchange, one CLIENT span for each attempt at a backend, with the GenAI
 * semantic conventions (`gen_ai.*`, status Development). Spans never hold prompts, replies, headers or secrets.
 */
export const otel = definePlugin({
  name: 'otel',
  summary: 'Sends OpenTelemetry traces over OTLP/HTTP; stands first in its pipeline.',
  config: schema,
  mayProvide: [traced],
  layers: ['attempt', 'wire'],
  create(options, { clock, log, random }) {
    const exporter = new Exporter({ ...options, clock, log })
    return {
      onRequest(x) {
        const parent = traceParent(x.incoming.headers)
        const sampled =
          parent !== undefined && options.follow_parent
            ? (Number.parseInt(parent.slice(53), 16) & 1) === 1
            : random() < options.sample
        if (!sampled) return undefined
        const record = new TracedExchange(x, parent)
        x.set(traced, record)
        // The first plugin's release runs last, when the bill is final.
        x.defer(() => {
          for (const span of record.spans()) exporter.add(span)
        })
        return undefined
      },
      attemptLayer: next => (call, sink) => {
        const record = call.facts.peek(traced)
        return record ? next(call, record.attempt(call.backend, sink)) : next(call, sink)
      },
      wireLayer: next => (request, handler) => {
        const record = request.call.facts.peek(traced)
        if (!record || request.headers['traceparent'] !== undefined) return next(request, handler)
        next({ ...request, own: { ...request.own, traceparent: record.traceparent } }, handler)
      },
      onEvent(x, event) {
        if (event.type === 'finish') x.peek(traced)?.finished(event.reason)
        return undefined
      },
      onSettle(x, settlement) {
        x.peek(traced)?.settled(settlement)
        return undefined
      },
      close: () => exporter.close(),
    }
  },
})

interface AttemptRecord {
  spanId: string
  backend: Backend
  /** Milliseconds since the exchange began. */
  began: number
  ended: number | null
  code: ErrorCode | undefined
}

/** Reports how an attempt failed before its first event. After that the exchange's end does. */
class TracedAttempt extends SinkAround {
  readonly #failed: (code: ErrorCode) => void
  #answered = false

  constructor(sink: CallSink, failed: (code: ErrorCode) => void) {
    super(sink)
    this.#failed = failed
  }

  override emit(event: StreamEvent): void {
    this.#answered = true
    this.sink.emit(event)
  }

  override fail(error: GatewayError, fault?: CallFault): void {
    if (!this.#answered && fault) this.#failed(error.code)
    this.sink.fail(error, fault)
  }
}

class TracedExchange {
  readonly #x: Exchange
  readonly #traceId: string
  readonly #spanId: string
  readonly #parentId: string | undefined
  readonly #mono: number
  readonly #attempts: AttemptRecord[] = []
  #reason: FinishReason | undefined
  #settlement: Settlement | undefined

  constructor(x: Exchange, parent: string | undefined) {
    const ids = randomBytes(24).toString('hex')
    this.#x = x
    this.#traceId = parent?.slice(3, 35) ?? ids.slice(16)
    this.#spanId = ids.slice(0, 16)
    this.#parentId = parent?.slice(36, 52)
    this.#mono = x.clock.mono()
  }

  /** An attempt begins; the one before has ended. */
  attempt(backend: Backend, sink: CallSink): CallSink {
    const began = this.#elapsed()
    const before = this.#attempts.at(-1)
    if (before) before.ended ??= began
    const record: AttemptRecord = {
      spanId: randomBytes(8).toString('hex'),
      backend,
      began,
      ended: null,
      code: undefined,
    }
    this.#attempts.push(record)
    return new TracedAttempt(sink, code => {
      record.ended = this.#elapsed()
      record.code = code
    })
  }

  /** The parent of what the provider does: the running attempt. */
  get traceparent(): string {
    return `00-${this.#traceId}-${this.#attempts.at(-1)!.spanId}-01`
  }

  finished(reason: FinishReason): void {
    this.#reason = reason
  }

  settled(settlement: Settlement): void {
    this.#settlement = settlement
  }

  #elapsed(): number {
    return this.#x.clock.mono() - this.#mono
  }

  spans(): Span[] {
    const settlement = this.#settlement
    if (!settlement) return []
    return [
      this.#exchangeSpan(settlement),
      ...this.#attempts.map((attempt, i) => this.#attemptSpan(attempt, settlement, i === this.#attempts.length - 1)),
    ]
  }

  #span(id: string, parent: string | undefined, name: string, kind: number, from: number, to: number): Span {
    const { startedAt } = this.#x
    return {
      traceId: this.#traceId,
      spanId: id,
      ...(parent !== undefined && { parentSpanId: parent }),
      name,
      kind,
      startTimeUnixNano: nanos(startedAt + from),
      endTimeUnixNano: nanos(startedAt + Math.max(from, to)),
      attributes: [],
      flags: 1,
    }
  }

  #exchangeSpan(settlement: Settlement): Span {
    const x = this.#x
    const { incoming } = x
    const span = this.#span(this.#spanId, this.#parentId, x.route, SERVER, 0, settlement.durationMs)
    const caller = x.peek(identity)
    const bill = x.peek(usage)
    const report = x.peek(callReport)
    span.attributes = attributes({
      'http.request.method': incoming.method,
      'http.route': x.route.slice(x.route.indexOf(' ') + 1),
      'http.response.status_code': settlement.status || undefined,
      'error.type': settlement.error?.code,
      ...((x.peek(conversationSlot) ?? x.peek(parsedConversation)) && { 'gen_ai.operation.name': 'chat' }),
      'gen_ai.request.model': x.peek(model)?.id,
      ...this.#replyAttributes(),
      'sluice.request_id': x.id,
      'sluice.surface': x.surface?.name,
      'sluice.organization': caller?.organization.id,
      'sluice.key': caller?.key.id,
      'sluice.outcome': settlement.outcome,
      'sluice.backend': report?.served?.id ?? report?.instead?.by,
      'sluice.cost_usd': bill?.billed ? bill.cost / 1e9 : undefined,
      'sluice.ttfb_ms': settlement.ttfbMs ?? undefined,
    })
    // A client's fault is no error of the server (HTTP semantic conventions).
    if (settlement.error && (settlement.status >= 500 || settlement.status < 400)) span.status = failedStatus
    return span
  }

  #attemptSpan(attempt: AttemptRecord, settlement: Settlement, last: boolean): Span {
    const { backend, code } = attempt
    const { hostname, port, protocol } = new URL(backend.baseUrl)
    const name = `chat ${backend.model}`
    const span = this.#span(
      attempt.spanId,
      this.#spanId,
      name,
      CLIENT,
      attempt.began,
      attempt.ended ?? settlement.durationMs,
    )
    const conversation = this.#x.peek(conversationSlot)
    const answered = last && code === undefined
    const fault = code ?? (answered ? settlement.error?.code : undefined)
    span.attributes = attributes({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': dialectOf(backend).vendor,
      'gen_ai.request.model': backend.model,
      'gen_ai.request.max_tokens': conversation?.maxOutputTokens,
      'gen_ai.request.temperature': conversation?.sampling.temperature,
      'gen_ai.request.top_p': conversation?.sampling.topP,
      'server.address': hostname,
      'server.port': Number(port) || (protocol === 'https:' ? 443 : 80),
      'error.type': fault,
      'sluice.provider': backend.provider,
      ...(answered && this.#replyAttributes()),
    })
    if (fault !== undefined) span.status = failedStatus
    return span
  }

  #replyAttributes(): Record<string, AttributeValue> {
    const bill = this.#x.peek(usage)
    return {
      'gen_ai.response.finish_reasons': this.#reason && [this.#reason],
      ...(bill?.billed && {
        'gen_ai.usage.input_tokens': bill.usage.input,
        'gen_ai.usage.output_tokens': bill.usage.output,
        'gen_ai.usage.cache_read.input_tokens': bill.usage.cached || undefined,
        'gen_ai.usage.cache_creation.input_tokens': bill.usage.cacheWrite || undefined,
      }),
    }
  }
}
