/**
 * Whether load is shed (http/overload.ts), for the dashboard: since when, for what, and how many requests were refused.
 * They are refused before anybody has read their key, so that nobody can say whose they were.
 */
import type { GatewayConfig } from '../config/types.ts'

/** Milliseconds, and exchanges. */
type Bounds = Pick<GatewayConfig['platform'], 'overload_delay' | 'max_concurrent_requests'>

/** It is over when none was refused for so long, milliseconds. */
const QUIET_MS = 60_000

export type Shed = Readonly<Record<string, number>>

export interface SheddingRow extends Bounds {
  /** Unix milliseconds of the first refusal and of the last, to a second. */
  since: number
  last: number
  /** Refused since then because the event loop was late, and because too many exchanges ran. */
  lag: number
  in_flight: number
}

export class Shedding {
  #before: Shed = {}
  #lookedAt: number | undefined
  #running: Omit<SheddingRow, keyof Bounds> | null = null

  /** To be called once a second. @param shed counts since the start @param now Unix milliseconds */
  saw(shed: Shed, now: number): void {
    const before = this.#before
    const lookedAt = this.#lookedAt ?? now
    this.#before = { ...shed }
    this.#lookedAt = now
    const grown = (reason: string) => (shed[reason] ?? 0) - (before[reason] ?? 0)
    const [lag, inFlight] = [grown('lag'), grown('in_flight')]
    if (lag + inFlight === 0) return
    const { since, ...counts } = this.#live(now) ?? { since: lookedAt, lag: 0, in_flight: 0 }
    this.#running = { since, last: now, lag: counts.lag + lag, in_flight: counts.in_flight + inFlight }
  }

  /** Null while it is not shed. */
  row(now: number, { overload_delay, max_concurrent_requests }: Bounds): SheddingRow | null {
    const running = this.#live(now)
    return running && { ...running, overload_delay, max_concurrent_requests }
  }

  #live(now: number) {
    return this.#running && now - this.#running.last < QUIET_MS ? this.#running : null
  }
}

/** Of several workers, each of which has an event loop of its own. */
export function sumOfShedding(rows: readonly (SheddingRow | null)[]): SheddingRow | null {
  const some = rows.filter(row => row !== null)
  if (some.length === 0) return null
  return {
    ...some[0]!,
    since: Math.min(...some.map(({ since }) => since)),
    last: Math.max(...some.map(({ last }) => last)),
    lag: some.reduce((sum, { lag }) => sum + lag, 0),
    in_flight: some.reduce((sum, row) => sum + row.in_flight, 0),
  }
}
