/**
 * Records an exchange that has ended: a log line, the counts of the metrics, and facts for the dashboard. It never
 * records a body, a header or a key.
 */
import type { GatewayError } from '../core/canon/errors.ts'
import type { RunningExchange } from '../core/engine/exchange/index.ts'
import { addressOf } from '../core/engine/tenant.ts'
import { type Logger, type Settlement, usage } from '../core/plugin.ts'
import { wordOf } from '../core/tools/word.ts'
import { upstreamFields } from '../plugins/shared/call-report.ts'
import {
  callReport,
  identity,
  model,
  parsedConversation,
  providerSide,
  reservation,
  slowed,
} from '../plugins/shared/slots.ts'
import { Incidents } from './incidents.ts'
import type { Metrics } from './metrics.ts'
import { type ExchangeRecord, RecentExchanges, Taken, wentWrong } from './recent.ts'
import type { SpendWatch } from './spend-watch.ts'
import type { Troubles } from './troubles.ts'
import { UseByKey } from './usage.ts'

const NONE: readonly never[] = []
/**
 * So many requests that were refused by their heads are logged in a second. A line costs as much as half of a refusal,
 * and a flood must not fill the disk, or push the exchanges that failed out of the dashboard.
 */
const MOST_NOTED = 100

export class Observer {
  readonly recent = new RecentExchanges()
  readonly troubles: Troubles
  readonly use = new UseByKey()
  readonly incidents = new Incidents()
  readonly #metrics: Metrics
  readonly #spend: SpendWatch
  readonly #log: Logger
  /** The second (Unix) of the last refusal, and how many refusals it has had. */
  #second = 0
  #refusals = 0

  constructor(metrics: Metrics, spend: SpendWatch, log: Logger, troubles: Troubles) {
    this.#metrics = metrics
    this.#spend = spend
    this.#log = log
    this.troubles = troubles
  }

  /**
   * Whether a refusal at this moment gets a line and a row on the dashboard. The first line of a second says how many
   * had none.
   */
  #noted(now: number): boolean {
    const second = Math.floor(now / 1000)
    if (second !== this.#second) {
      const unnoted = this.#refusals - MOST_NOTED
      if (unnoted > 0) this.#log.warn({ unnoted }, 'refusals without a line of their own; sluice_refused_total has all')
      this.#second = second
      this.#refusals = 0
    }
    return ++this.#refusals <= MOST_NOTED
  }

  settled(x: RunningExchange, settlement: Settlement): void {
    const { error, status, outcome, durationMs, ttfbMs } = settlement
    const caller = x.peek(identity)
    const bill = x.peek(usage)
    const billed = bill?.billed ? bill.usage : undefined
    const report = x.peek(callReport)
    const failed = report?.failed ?? []
    const last = failed.at(-1)
    const backend = report?.served?.id ?? last?.backend
    const answeredBy = report?.served?.id ?? report?.instead?.by ?? last?.backend
    // A model id that the configuration does not have is text of the client. It is recorded only if it is a plain word.
    const unknown = x.peek(model) ? undefined : wordOf(x.peek(parsedConversation)?.model)
    const param = wordOf(error?.param)
    const reserved = x.peek(reservation)
    const taken = reserved ? new Taken(reserved) : null
    const record: ExchangeRecord = {
      seq: 0,
      id: x.id,
      at: x.startedAt,
      route: x.route,
      model: x.peek(model)?.id ?? '',
      unknownModel: unknown ?? '',
      backend: answeredBy ?? '',
      organization: caller?.organization.id ?? '',
      key: caller?.key.id ?? '',
      status,
      outcome,
      code: error?.code ?? '',
      param: param ?? '',
      cause: error?.forOperators ?? '',
      client: caller ? '' : addressOf(x.incoming.tenant ?? ''),
      durationMs,
      ttfbMs,
      input: billed?.input ?? 0,
      output: billed?.output ?? 0,
      cost: bill?.billed ? bill.cost : 0,
      failed: last ? failed.map(attempt => ({ ...attempt, told: attempt.told?.toJSON() ?? null })) : NONE,
      passedOver: report?.passedOver ?? NONE,
      slowedMs: x.peek(slowed) ?? 0,
      taken,
      timeline: x.timeline?.entries ?? null,
    }
    this.#metrics.observe(record, billed)
    const side = x.peek(providerSide)
    if (side && backend !== undefined) this.#metrics.answered(backend, side)
    if (report?.served && ttfbMs !== null && x.peek(parsedConversation)?.stream)
      this.#metrics.streamBegan(record.model, report.served.id, ttfbMs)
    if (record.slowedMs > 0) this.#metrics.slowed(x.route)
    if (error) this.#metrics.refused(x.route, error.code, reserved !== undefined)
    const overSpend = error?.details?.['dimension'] === 'spend'
    if (caller && (record.cost > 0 || overSpend)) this.#spend.saw(caller, record.model, overSpend, x.startedAt)
    // `usage` is filled once an admitted exchange has settled. Without both nobody has opened a row, or closed it.
    if ((!reserved || !bill) && x.forwarded) this.#metrics.withoutRow(x.chain)
    if (error?.bound) this.#metrics.overBound(error.bound)
    if (caller) this.use.add(record.organization, record.key, record.input, record.output, record.cost)
    this.recent.add(record)
    if (wentWrong(outcome) || last || record.passedOver.length > 0) this.troubles.add(record, x.incoming.tenant ?? '@')
    this.incidents.saw(record, record.at + durationMs)
    this.#log.info(
      {
        request_id: x.id,
        route: x.route,
        status,
        outcome,
        code: error?.code,
        param,
        cause: record.cause || undefined,
        organization: caller?.organization.id,
        key: caller?.key.id,
        model: x.peek(model)?.id,
        unknown_model: unknown,
        backend: answeredBy,
        ...(last && upstreamFields(last)),
        passed_over: record.passedOver.length > 0 ? record.passedOver : undefined,
        slowed_ms: record.slowedMs || undefined,
        input_tokens: billed?.input,
        output_tokens: billed?.output,
        cost: billed && record.cost,
        reserved_input: reserved?.input,
        reserved_output: reserved?.output,
        duration_ms: Math.round(durationMs),
        ttfb_ms: ttfbMs === null ? undefined : Math.round(ttfbMs),
      },
      'exchange',
    )
    if (taken || x.timeline) this.#log.debug({ request_id: x.id, taken, timeline: record.timeline }, 'trace')
  }

  /**
   * Records a request that was refused because of its head alone and never became an exchange. Of a flood of them, all
   * are counted and can be traced, and some are logged and shown.
   * @param tenant whose it was (core/engine/tenant.ts)
   */
  refused(route: string, error: GatewayError, requestId: string, now: number, tenant: string): void {
    const { status, code } = error
    this.#metrics.refusedEarly(route, code)
    const record: ExchangeRecord = {
      seq: 0,
      id: requestId,
      at: now,
      route,
      model: '',
      unknownModel: '',
      backend: '',
      organization: '',
      key: '',
      status,
      outcome: 'refused',
      code,
      param: '',
      cause: error.forOperators,
      client: addressOf(tenant),
      durationMs: 0,
      ttfbMs: null,
      input: 0,
      output: 0,
      cost: 0,
      failed: NONE,
      passedOver: NONE,
      slowedMs: 0,
      taken: null,
      timeline: null,
    }
    this.incidents.saw(record, now)
    this.troubles.add(record, tenant)
    if (!this.#noted(now)) return
    this.recent.add(record)
    this.#log.info({ request_id: requestId, route, status, outcome: 'refused', code, duration_ms: 0 }, 'exchange')
  }
}
