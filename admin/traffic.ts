/** Totals over all routes, and durations since they were last read, for the dashboard's charts. */
import { Quantiles } from './quantiles.ts'

export class Traffic {
  ok = 0
  refused = 0
  failed = 0
  gone = 0
  /** Billed tokens. */
  input = 0
  output = 0
  readonly ttfb = new Quantiles()
  readonly duration = new Quantiles()

  ended(outcome: string, durationMs: number, ttfbMs: number | null): void {
    switch (outcome) {
      case 'refused':
        this.refused++
        break
      case 'upstream_error':
      case 'gateway_error':
        this.failed++
        break
      case 'client_gone':
        this.gone++
        break
      default:
        this.ok++
    }
    this.duration.observe(durationMs)
    if (ttfbMs !== null) this.ttfb.observe(ttfbMs)
  }
}
