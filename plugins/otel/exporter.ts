/**
 * Posts spans to an OTLP/HTTP receiver: in batches, one post at a time, from a bounded queue. Lost spans never affect
 * an exchange.
 */

import type { Logger } from '../../core/plugin.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import type { Span } from './span.ts'

export interface ExporterOptions {
  endpoint: string
  headers: Record<string, string>
  service_name: string
  /** The most spans in one post. */
  batch: number
  /** The most spans that wait; further ones are dropped. */
  queue: number
  /** Longest wait of a span before it is posted, milliseconds. */
  interval: number
  /** Longest wait for the receiver, milliseconds. */
  timeout: number
  clock: Clock
  log: Logger
}

/** Statuses after which the same post may be sent again (OTLP 1.3, failures). */
const RETRIABLE = new Set([429, 502, 503, 504])
/** Posts of one batch, the first included. */
const ATTEMPTS = 5
/** Pause before the first retry; it doubles with each one, and up to half of it is random. */
const FIRST_PAUSE_MS = 1000
/** No pause is longer, whatever the receiver asks in Retry-After. */
const LONGEST_PAUSE_MS = 30_000

export class Exporter {
  readonly #options: ExporterOptions
  readonly #url: string
  readonly #resource: object
  #queue: Span[] = []
  #dropped = 0
  #timer: Timer | undefined
  #posting: Promise<void> | undefined
  /** Ends the pause before a retry. */
  #wake: (() => void) | undefined
  #closing = false

  constructor(options: ExporterOptions) {
    this.#options = options
    this.#url = `${options.endpoint.replace(/\/$/, '')}/v1/traces`
    this.#resource = { attributes: [{ key: 'service.name', value: { stringValue: options.service_name } }] }
  }

  add(span: Span): void {
    if (this.#queue.length >= this.#options.queue) {
      this.#dropped++
      return
    }
    this.#queue.push(span)
    if (this.#posting) return
    if (this.#queue.length >= this.#options.batch) this.#start()
    else this.#timer ??= this.#options.clock.setTimer(this.#options.interval, () => this.#start())
  }

  /** Posts the waiting spans once, without retries; afterwards nothing runs any more. */
  async close(): Promise<void> {
    this.#closing = true
    this.#wake?.()
    await this.#posting
    if (this.#queue.length > 0) this.#start()
    await this.#posting
  }

  #start(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#posting = this.#run().finally(() => {
      this.#posting = undefined
      if (this.#queue.length > 0 && !this.#closing)
        this.#timer = this.#options.clock.setTimer(this.#options.interval, () => this.#start())
    })
  }

  /** Posts until less than one batch waits; when closing, until no span waits. */
  async #run(): Promise<void> {
    do {
      const spans = this.#queue.splice(0, this.#options.batch)
      if (!(await this.#deliver(spans))) this.#dropped += spans.length
      if (this.#dropped > 0) {
        this.#options.log.warn({ spans: this.#dropped, endpoint: this.#options.endpoint }, 'spans dropped')
        this.#dropped = 0
      }
    } while (this.#queue.length >= (this.#closing ? 1 : this.#options.batch))
  }

  /** @returns whether the receiver took the spans */
  async #deliver(spans: readonly Span[]): Promise<boolean> {
    const body = JSON.stringify({
      resourceSpans: [{ resource: this.#resource, scopeSpans: [{ scope: { name: 'sluice' }, spans }] }],
    })
    for (let attempt = 1; ; attempt++) {
      const pause = await this.#post(body)
      if (pause === 'taken') return true
      if (pause === 'refused' || attempt === ATTEMPTS || this.#closing) return false
      const wait = Math.max(pause, FIRST_PAUSE_MS * 2 ** (attempt - 1) * (0.5 + Math.random() / 2))
      await this.#sleep(Math.min(wait, LONGEST_PAUSE_MS))
      if (this.#closing) return (await this.#post(body)) === 'taken'
    }
  }

  /**
   * @returns what the receiver did; a number means that the post failed and may be retried after this many milliseconds
   */
  async #post(body: string): Promise<'taken' | 'refused' | number> {
    try {
      const response = await fetch(this.#url, {
        method: 'POST',
        headers: { ...this.#options.headers, 'content-type': 'application/json' },
        body,
        redirect: 'error',
        signal: AbortSignal.timeout(this.#options.timeout),
      })
      await response.body?.cancel()
      if (response.ok) return 'taken'
      if (!RETRIABLE.has(response.status)) {
        this.#options.log.warn({ status: response.status }, 'the receiver of traces refused spans')
        return 'refused'
      }
      const seconds = Number(response.headers.get('retry-after'))
      return seconds > 0 ? seconds * 1000 : 0
    } catch (error) {
      this.#options.log.debug({ err: error }, 'the receiver of traces cannot be reached')
      return 0
    }
  }

  #sleep(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = this.#options.clock.setTimer(ms, resolve)
    this.#wake = () => {
      timer.cancel()
      resolve()
    }
    return promise.finally(() => (this.#wake = undefined))
  }
}
