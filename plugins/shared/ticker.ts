import type { SharedState } from '../../core/plugin.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { Ticker } from '../../core/tools/ticker.ts'
import { tickerKey } from './state.ts'

/** Milliseconds between two checks of the clocks of running calls. */
const TICK_MS = 250

/** The ticker of the process: it checks the clocks of attempts and of searches. */
export function sharedTicker(shared: SharedState, clock: Clock): Ticker {
  return shared.use(tickerKey, () => new Ticker(clock, TICK_MS))
}
