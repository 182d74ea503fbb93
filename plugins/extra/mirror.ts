/**
 * Sends a share of the requests to a second backend as well, whose replies nobody sees: how fast a new model or
 * provider is, and what it fails at, is known before a client meets it.
 *
 *   - routing
 *   - mirror: { backend: openai/gpt-next, share: 0.05 }
 *   - admission
 *
 * The backend is one of the model's, so that `routing` has found that it can serve the request. It serves clients only
 * where nothing else can. A copy is the first attempt of an exchange, made again with its own clocks; it runs on when
 * the client has its reply. It is on nobody's bill, in no limit and in no breaker. One line of the log for each says how
 * it went.
 */
import {
  type AttemptCall,
  type CallControl,
  type CallReport,
  type CallSink,
  definePlugin,
  FactsAround,
  GatewayError,
  type SendAttempt,
  type Slot,
  type StreamEvent,
  slot,
} from 'sluice'
import { BACKEND, faultsOfBackend } from './shared/model-backend.ts'

interface Options {
  backend: string
  share: number
  organizations: string[]
  at_once: number
  max_bytes: number
}

const identity = slot<{ organization: { id: string } }>('identity')
const candidates = slot<AttemptCall['backend'][]>('candidates')
/** The backend that gets a copy of the exchange's first attempt; null when it has got it. */
const chosen = slot<AttemptCall['backend'] | null>('mirror.backend')

/** What belongs to the exchange of the client and not to its copy: what its connection has yet to take, and its trace. */
const NOT_COPIED: readonly string[] = ['unsent', 'otel.traced']

export default definePlugin<Options, 'models'>({
  name: 'mirror',
  summary: 'Sends copies of a share of the requests to a second backend, whose replies nobody sees.',
  config: {
    type: 'object',
    additionalProperties: false,
    required: ['backend', 'share'],
    properties: {
      backend: BACKEND,
      share: {
        type: 'number',
        minimum: 0,
        maximum: 1,
        description: 'The share of requests that it gets: 0.05 is one in twenty.',
      },
      organizations: {
        type: 'array',
        items: { type: 'string', minLength: 1 },
        default: [],
        description: 'The organizations whose requests are copied. Empty: all.',
      },
      at_once: {
        type: 'integer',
        minimum: 1,
        default: 16,
        description: 'Most copies at a time. Further requests are not copied.',
      },
      max_bytes: {
        type: 'string',
        format: 'size',
        default: '8MiB',
        description: 'Most bytes of the copies that run. A request above what is left is not copied.',
      },
    },
  },
  needs: [identity, candidates],
  mayProvide: [chosen],
  rewrites: [candidates],
  layers: ['attempt', 'wire'],
  aboveTerminal: true,
  dryRun: 'safe',
  uses: ['models'],
  check: ({ backend }, { models }) => faultsOfBackend(backend, models),
  create({ backend, share, organizations, at_once: atOnce, max_bytes: maxBytes }, { clock, log, random }) {
    const running = new Set<Copy>()
    let bytes = 0
    /** Requests that were not copied since the last line of the log. */
    let skipped = 0

    function copy(next: SendAttempt, call: AttemptCall, to: AttemptCall['backend']): void {
      if (running.size >= atOnce) {
        skipped++
        return
      }
      const made = new Copy(
        () => clock.mono(),
        how => {
          running.delete(made)
          bytes -= made.bytes
          const { prompt, output } = made.tokens
          const ms = clock.mono() - made.began
          const figures = { ms, first_ms: made.firstMs, input_tokens: prompt, output_tokens: output, skipped }
          log.info({ request_id: call.facts.id, backend: to.id, ...how, ...figures }, 'mirror')
          skipped = 0
        },
      )
      running.add(made)
      const facts = new CopiedFacts(call.facts)
      try {
        made.control = next({ ...call, backend: to, facts, report: made, startedMono: made.began }, made)
      } catch (error) {
        made.fail(
          error instanceof GatewayError
            ? error
            : new GatewayError('internal_error', { message: 'The copy could not be made.', cause: error }),
        )
      }
    }

    return {
      onRequest(x) {
        const all = x.get(candidates)
        const mirrored = all.find(({ id }) => id === backend)
        if (!mirrored || all.length === 1) return undefined
        x.set(
          candidates,
          all.filter(each => each !== mirrored),
        )
        const asked = organizations.length === 0 || organizations.includes(x.get(identity).organization.id)
        if (asked && random() < share) x.set(chosen, mirrored)
        return undefined
      },
      attemptLayer: next => (call, sink) => {
        const control = next(call, sink)
        const to = call.facts.peek(chosen)
        if (to) {
          call.facts.set(chosen, null)
          copy(next, call, to)
        }
        return control
      },
      wireLayer: next => (request, handler) => {
        const { report } = request.call
        if (report instanceof Copy) {
          const size = [request.body].flat().reduce((sum, piece) => sum + Buffer.byteLength(piece), 0)
          if (bytes + size > maxBytes) {
            const error = new GatewayError('route_capacity', { message: 'More bytes of copies than max_bytes allows.' })
            return handler.onResponseError(null, error)
          }
          report.bytes = size
          bytes += size
        }
        next(request, handler)
      },
      close() {
        for (const { control } of running) control?.abort('ended')
        running.clear()
      },
    }
  },
})

/** The exchange may settle while the copy runs on: nothing of the copy is released with it. */
class CopiedFacts extends FactsAround {
  protected override sees({ name }: Slot<any>): boolean {
    return !NOT_COPIED.includes(name)
  }
  override defer(): void {}
}

/** How a copy ended, as the log says it. */
interface Ended {
  code?: string
  finish?: string
}

/** A copy: where its events go, and what its attempt reports to. Neither reaches the exchange. */
class Copy implements CallSink, CallReport {
  readonly began: number
  readonly #mono: () => number
  readonly #over: (how: Ended) => void
  control: CallControl | undefined
  /** Bytes of its body. */
  bytes = 0
  firstMs: number | undefined
  tokens: { prompt?: number; output?: number } = {}
  #finish: string | undefined
  closed = false

  constructor(mono: () => number, over: (how: Ended) => void) {
    this.#mono = mono
    this.began = mono()
    this.#over = over
  }

  // ---- where its events go --------------------------------------------------------------------------------------------

  emit(event: StreamEvent): void {
    this.firstMs ??= this.#mono() - this.began
    if (event.type === 'finish') this.#finish = event.reason
    if (event.type === 'usage') this.tokens = event.usage
  }
  flush(): boolean {
    return true
  }
  end(): void {
    this.#ended(this.#finish === undefined ? {} : { finish: this.#finish })
  }
  fail(error: GatewayError): void {
    this.#ended({ code: error.code })
  }
  #ended(how: Ended): void {
    if (this.closed) return
    this.closed = true
    this.#over(how)
  }
  sendHead(): void {}
  readonly headSent = false
  readonly clientGone = false

  // ---- what its attempt reports to ------------------------------------------------------------------------------------

  readonly served = undefined
  readonly instead = undefined
  readonly failed = []
  readonly promptTaken = false
  readonly passedOver = []
  readonly furtherInput = 0
  readonly ownCost = null
  calledAgain(): void {}
  calledApart(): void {}
  answered(): void {}
  answeredInstead(): void {}
  passed(): void {}
  failure(): void {}
  tookPrompt(): void {}
}
