/** How many exchanges the platform runs, from admission to their end (LIM-10). All chains share it. */
import { type Budget, refusal, setting } from '../../core/engine/budget.ts'
import type { Reply, SharedState } from '../../core/plugin.ts'
import { platformKey } from '../shared/state.ts'

export interface Platform {
  running: number
}

export function platformOf(shared: SharedState): Platform {
  return shared.use(platformKey, () => ({ running: 0 }))
}

const FULL = { code: 'capacity_exceeded', message: () => 'The service is at capacity. Retry shortly.' } as const

export const platformBudget: Budget = {
  name: 'platform',
  bound: 'admitted exchanges that run',
  owner: 'process',
  all: setting('platform.max_concurrent_requests'),
  refused: { all: FULL },
  over: 'above `platform.scale_limits_above` all limits of accounts are lowered; a quarter above all, 503 `route_capacity` before the body',
  seen: '`sluice_limit_denials_total{dimension="platform"}`, `sluice_shed_total{reason="in_flight"}`',
  figures: ({ shared }) => ({ used: platformOf(shared).running }),
}

export function platformFull(): Reply {
  return { kind: 'error', error: refusal(FULL) }
}
