/** What is noted when an exchange has ended: a log line, the metrics' counts, and its facts for the dashboard. Never a body, a header or a key. */
import type { GatewayError } from '../core/errors.ts'
import type { RunningExchange } from '../core/exchange.ts'
import { type Logger, type Settlement, usage } from '../core/plugin.ts'
import { identity, model, reservation, servedBy } from '../plugins/slots.ts'
import type { Metrics } from './metrics.ts'
import { RecentExchanges } from './recent.ts'
import { UseByKey } from './usage.ts'

export class Observer {
  readonly recent = new RecentExchanges()
  readonly use = new UseByKey()
  readonly #metrics: Metrics
  readonly #log: Logger

  constructor(metrics: Metrics, log: Logger) {
    this.#metrics = metrics
    this.#log = log
  }

  settled(x: RunningExchange, settlement: Settlement): void {
    const { error, status, outcome, durationMs, ttfbMs } = settlement
    const { route } = x
    const served = x.peek(model)?.id
    const bill = x.peek(usage)
    const billed = bill?.billed ? bill.usage : undefined
    const cost = bill?.billed ? bill.cost : 0
    const caller = x.peek(identity)
    const organization = caller?.organization.id
    const key = caller?.key.id
    const backend = x.peek(servedBy)?.id
    this.#metrics.observe({ route, model: served ?? '', status, outcome, durationMs, ttfbMs, usage: billed, cost })
    if (error) this.#metrics.refused(route, error.code, x.peek(reservation) !== undefined)
    if (organization !== undefined) {
      this.use.add(organization, key!, billed?.input ?? 0, billed?.output ?? 0, cost)
    }
    this.recent.add({
      id: x.id,
      at: x.startedAt,
      route,
      model: served ?? '',
      backend: backend ?? '',
      organization: organization ?? '',
      key: key ?? '',
      status,
      outcome,
      code: error?.code ?? '',
      durationMs,
      ttfbMs,
      input: billed?.input ?? 0,
      output: billed?.output ?? 0,
      cost,
      timeline: x.timeline?.entries ?? null,
    })
    this.#log.info(
      {
        request_id: x.id,
        route,
        status,
        outcome,
        code: error?.code,
        organization,
        key,
        model: served,
        backend,
        input_tokens: billed?.input,
        output_tokens: billed?.output,
        duration_ms: Math.round(durationMs),
        ttfb_ms: ttfbMs === null ? undefined : Math.round(ttfbMs),
      },
      'exchange',
    )
  }

  /** A request that was answered by its head alone and never became an exchange. */
  refused(route: string, error: GatewayError, requestId: string, now: number): void {
    const { status, code } = error
    this.#metrics.refusedEarly(route, code)
    this.recent.add({
      id: requestId,
      at: now,
      route,
      model: '',
      backend: '',
      organization: '',
      key: '',
      status,
      outcome: 'refused',
      code,
      durationMs: 0,
      ttfbMs: null,
      input: 0,
      output: 0,
      cost: 0,
      timeline: null,
    })
    this.#log.info({ request_id: requestId, route, status, outcome: 'refused', code, duration_ms: 0 }, 'exchange')
  }
}
