import type { ModelConfig } from '../../config/types.ts'
import type { Conversation } from '../../core/conversation.ts'
import type { Backend } from '../../core/dialect.ts'
import { asGatewayError, ERRORS, type ErrorSpec, GatewayError } from '../../core/errors.ts'
import { conversation, definePlugin, type Exchange } from '../../core/plugin.ts'
import { Ticker } from '../../core/ticker.ts'
import { count, duration, number, object } from '../../core/vocabulary.ts'
import { dialects } from '../../providers/index.ts'
import {
  candidates,
  model,
  type Outbound,
  outbound,
  searchPlan,
  servedBy,
  trace,
  upstreamConversation,
} from '../slots.ts'
import { openSearch } from '../web-search/provider.ts'
import { Attempt, type AttemptFault, type AttemptOwner, type AttemptSink, type Clocks } from './attempt.ts'
import type { Breaker } from './breaker.ts'
import { type BackendState, sharedBackends, sharedPools, sharedRetries } from './health.ts'
import type { ProviderPool } from './pools.ts'
import type { RetryBudget } from './retry-budget.ts'
import { SearchLoop } from './search-loop.ts'
import { streamRow } from './stream-limits.ts'

/** The head goes out after so long at the latest, with keep-alives (decisions 11). */
const HEAD_WAIT_MS = 30_000
/** How long a draining upstream may run on after the client left. */
const DRAIN_MS = 60_000
/** First pause before the same backend is asked again; it doubles, and half of it is random. */
const BACKOFF_MS = 100
/** provider_unavailable is advertised as 5 to 15 s (ERR-6); jitter adds up to a quarter. */
const UNAVAILABLE_MS = { min: 5000, max: 12_000 }
/** Marks a request that may run twice: a retry is allowed even when a backend may have acted. */
const SAFE_HEADER = 'x-retry-safe'
/** How often the clocks of running attempts are looked at. */
const TICK_MS = 250

const schema = object({
  connect_timeout: duration('5s', 'Longest wait for a connection to a backend.'),
  first_byte_timeout: duration('120s', "Longest wait for the first event of a backend's answer (decisions 11)."),
  attempts: count(
    2,
    'Most attempts for one request, the first included; retries happen only before the head is out.',
    1,
  ),
  retry_budget: number(0.1, 'Share of requests that may be retried, per provider.', { minimum: 0, maximum: 1 }),
  breaker: object(
    {
      failures: count(5, 'Failures in a row that open the breaker.', 1),
      error_rate: number(0.5, 'Share of failures within the window that opens it.', {
        exclusiveMinimum: 0,
        maximum: 1,
      }),
      window: duration('30s', 'Window of the error rate.'),
      open_for: duration('15s', 'How long an open breaker keeps the backend out before one trial request.'),
    },
    [],
    { default: {}, description: 'When a failing backend is left out.' },
  ),
})

/** Sends the request to the first healthy candidate and reads its reply; tries another only while nothing has gone out. */
export const upstream = definePlugin({
  name: 'upstream',
  summary: 'Calls the backend and streams its reply back.',
  config: schema,
  needs: [conversation, model, candidates, outbound],
  providesLate: [servedBy],
  terminal: true,
  create(options, context) {
    const { config, clock } = context
    const pools = sharedPools(context.shared)
    const ticker = context.shared.use('upstream.ticker', () => new Ticker(clock, TICK_MS))
    const budgets = sharedRetries(context.shared)
    const opened = new Map<string, ProviderPool>()
    const targets = new Map<Backend, Target>()
    const search = openSearch(config, context.searchProviders, options.connect_timeout)

    function pool(backend: Backend): ProviderPool {
      let found = opened.get(backend.provider)
      if (!found)
        opened.set(
          backend.provider,
          (found = pools.acquire(config.providers[backend.provider]!, options.connect_timeout)),
        )
      return found
    }
    const backends = sharedBackends(context.shared)

    /** What the chain has of a backend: looked up once. */
    class Target {
      readonly backend: Backend
      readonly state: BackendState
      readonly breaker: Breaker
      readonly budget: RetryBudget
      #pool: ProviderPool | undefined

      constructor(backend: Backend) {
        this.backend = backend
        this.state = backends.of(backend.id, options.breaker)
        this.breaker = this.state.breaker
        this.budget = budgets.of(backend.provider)
      }

      /** Only a backend that is asked has one. */
      get pool(): ProviderPool {
        return (this.#pool ??= pool(this.backend))
      }
    }

    function targetOf(backend: Backend): Target {
      let target = targets.get(backend)
      if (!target) targets.set(backend, (target = new Target(backend)))
      return target
    }

    function clocks(x: Exchange, served: ModelConfig): Clocks {
      const row = config.stream_limits[streamRow(x.get(conversation), served)]
      return {
        idle: row.idle,
        ceiling: row.ceiling,
        firstByte: options.first_byte_timeout,
        headWait: Math.min(options.first_byte_timeout, row.idle, HEAD_WAIT_MS),
        drain: served.on_client_gone === 'drain' ? DRAIN_MS : 0,
      }
    }

    /** The attempts of one exchange. */
    class Attempts implements AttemptOwner {
      readonly #x: Exchange
      readonly #clocks: Clocks
      readonly #startedMono: number
      readonly #sink: AttemptSink
      #untried: Backend[]
      /** What a later round of a search loop asks; undefined: what the exchange asks. */
      #asked: Conversation | undefined
      /** Of the attempt that runs, or waits for a connection. */
      #target!: Target
      #made = 0
      #failures = 0
      /** Of the attempt that is about to be over. */
      #fault: AttemptFault | null = null
      /** Of the attempt before. */
      #last: AttemptFault | null = null
      /** What the attempt says of its backend's health has been told to the breaker. */
      #judged = false

      constructor(x: Exchange) {
        this.#x = x
        this.#untried = [...x.get(candidates)]
        this.#clocks = clocks(x, x.get(model))
        this.#startedMono = clock.mono()
        this.#sink = this.#searchLoop() ?? x
      }

      #searchLoop(): SearchLoop | undefined {
        const plan = this.#x.peek(searchPlan)
        if (!plan) return undefined
        return new SearchLoop(this.#x, {
          asked: this.#x.peek(upstreamConversation) ?? this.#x.get(conversation),
          plan,
          provider: search.provider(),
          maxTurns: config.web_search.max_turns,
          clocks: this.#clocks,
          startedMono: this.#startedMono,
          ticker,
          log: context.log,
          next: asked => this.#round(asked),
        })
      }

      /** Another request of the same exchange; the backend that knows the conversation goes first. */
      #round(asked: Conversation): void {
        const served = this.#x.get(servedBy)
        this.#asked = asked
        this.#untried = [served, ...this.#x.get(candidates).filter(backend => backend !== served)]
        this.next()
      }

      next(): void {
        const now = clock.mono()
        const i = this.#choose(now)
        if (i === -1) return this.#x.fail(this.#last?.error ?? this.#unavailable(now))
        const target = targetOf(this.#untried.splice(i, 1)[0]!)
        this.#target = target
        if (target.pool.gate.enter()) this.#attempt(target)
        else this.#wait(target)
      }

      /** All connections are busy. */
      #wait(target: Target): void {
        const { breaker, pool } = target
        const giveUp = pool.gate.wait(clock, refused => {
          if (refused) {
            breaker.abstained()
            this.#busy(refused.waitedMs)
          } else if (this.#x.closed) {
            breaker.abstained()
            pool.gate.leave()
          } else this.#attempt(target)
        })
        if (giveUp === null) return
        this.#x.control({
          pause() {},
          resume() {},
          abort() {
            giveUp()
            breaker.abstained()
            return undefined
          },
        })
      }

      /** Index of the first backend that may be tried, -1 when none. One that has just come back gives way, where another can. */
      #choose(now: number): number {
        let cold = -1
        for (let i = 0; i < this.#untried.length; i++) {
          const health = targetOf(this.#untried[i]!).breaker
          if (!health.warm(now, context.random())) {
            if (cold === -1) cold = i
          } else if (health.tryEnter(now)) return i
        }
        return cold !== -1 && targetOf(this.#untried[cold]!).breaker.tryEnter(now) ? cold : -1
      }

      /** No backend can be tried. When they asked for a pause, its earliest end is when one can. */
      #unavailable(now: number): GatewayError {
        const breakers = this.#x.get(candidates).map(backend => targetOf(backend).breaker)
        const pauses = breakers.map(breaker => breaker.resting(now))
        const wait = Math.min(...pauses)
        const message = 'No upstream of this model is available. Retry after the advertised time.'
        if (wait === 0) return new GatewayError('provider_unavailable', { message })
        const first = breakers[pauses.indexOf(wait)]!
        if (first.restsFor === 'capacity_exceeded')
          return new GatewayError('capacity_exceeded', {
            message: 'The shared capacity of this model is exhausted. Retry after the advertised time.',
            horizonMs: wait,
          })
        const horizonMs = Math.min(Math.max(wait, UNAVAILABLE_MS.min), UNAVAILABLE_MS.max)
        return new GatewayError('provider_unavailable', { message, horizonMs })
      }

      #attempt({ backend, breaker, state, budget, pool }: Target): void {
        this.#made++
        if (this.#made === 1) budget.counted(clock.mono())
        let sent: Outbound
        try {
          sent = this.#x.get(outbound)(backend, this.#asked)
        } catch (error) {
          breaker.abstained()
          pool.gate.leave()
          return this.#broken(error)
        }
        const attempt = new Attempt(
          this.#x,
          backend,
          dialects[backend.dialect]!,
          sent,
          this.#clocks,
          this.#startedMono,
          this,
          this.#sink,
        )
        this.#judged = false
        this.#x.control(attempt)
        ticker.add(attempt)
        state.began()
        try {
          attempt.start(pool)
        } catch (error) {
          this.#broken(error)
        }
      }

      /** The request can't be written. Who called may be another exchange, which has just left its place, or a timer: nobody who could answer for it. */
      #broken(error: unknown): void {
        context.log.error({ request_id: this.#x.id, err: error }, 'terminal failed')
        this.#x.fail(asGatewayError(error))
      }

      #busy(waitedMs: number): void {
        if (this.#untried.length > 0) return this.next()
        this.#x.fail(
          new GatewayError('route_capacity', {
            message: 'All connections to this model are busy. Retry shortly.',
            horizonMs: Math.max(2000, waitedMs),
          }),
        )
      }

      answered(attempt: Attempt): void {
        this.#judged = true
        this.#target.breaker.succeeded(clock.mono())
        this.#x.set(servedBy, attempt.backend)
      }

      silent(attempt: Attempt, tooLong: boolean): void {
        this.#judged = tooLong
        if (tooLong) this.#target.breaker.failed(clock.mono())
        this.#x.set(servedBy, attempt.backend)
      }

      failed(attempt: Attempt, fault: AttemptFault): void {
        this.#judged = true
        this.#x.peek(trace)?.failed(fault.error.code)
        this.#fault = fault
        this.#failures++
        const { breaker, state } = this.#target
        state.failedWith(fault.error.code)
        const now = clock.mono()
        if (fault.unhealthy) breaker.failed(now)
        else breaker.abstained()
        const asked = fault.restMs ?? pauseAsked(fault.error)
        if (asked !== null) breaker.rest(now, asked, fault.error.code)
        context.log.warn(
          {
            request_id: this.#x.id,
            backend: attempt.backend.id,
            code: fault.error.code,
            attempt: this.#made,
            err: fault.error.cause,
          },
          'attempt failed',
        )
      }

      over(attempt: Attempt): void {
        ticker.delete(attempt)
        const target = this.#target
        target.state.ended()
        // The client left before there was an answer. A trial that nobody ends would keep the backend out for ever.
        if (!this.#judged) target.breaker.abstained()
        target.pool.gate.leave()
        const fault = this.#fault
        this.#fault = null
        if (!fault || this.#x.closed) return
        this.#last = fault
        if (this.#x.headSent || !this.#again(target, fault)) this.#x.fail(fault.error)
      }

      /** Tries once more where that can do no harm. False: it can't, or may not. */
      #again(target: Target, fault: AttemptFault): boolean {
        if (this.#failures >= options.attempts) return false
        const safe = this.#x.incoming.headers.get(SAFE_HEADER) === 'true'
        if (!fault.retriable && !(fault.mayHaveActed && safe)) return false
        const now = clock.mono()
        const elsewhere = this.#untried.some(other => targetOf(other).breaker.state(now) !== 'open')
        // A backend that has answered gets no second request from the same exchange.
        const same = fault.neverSent || fault.mayHaveActed
        if (!elsewhere && !same) return false
        if (!target.budget.take(now, options.retry_budget)) return false
        if (elsewhere) this.next()
        else this.#later(target)
        return true
      }

      /** Asks the same backend again, after a pause. */
      #later(target: Target): void {
        const pause = BACKOFF_MS * 2 ** (this.#failures - 1) * (1 - context.random() / 2)
        const timer = clock.setTimer(pause, () => {
          if (this.#x.closed) return
          this.#untried.unshift(target.backend)
          this.next()
        })
        this.#x.control({
          pause() {},
          resume() {},
          abort() {
            timer.cancel()
            return undefined
          },
        })
      }
    }

    return {
      forward(x) {
        new Attempts(x).next()
        return undefined
      },
      async close() {
        await search.close()
        for (const name of opened.keys()) await pools.release(config.providers[name]!, options.connect_timeout)
      },
    }
  },
})

/** How long the provider itself asked to be left alone; null when it did not. The table's own horizon is none of its words. */
function pauseAsked({ code, horizonMs }: GatewayError): number | null {
  const spec: ErrorSpec = ERRORS[code]
  return horizonMs === null || horizonMs === spec.horizonMs ? null : horizonMs
}
