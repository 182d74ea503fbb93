/** What this process last saw of each caller's limits, for replies that ask for no admission (LIM-9, decision 86). */
import type { SharedState } from '../../core/plugin.ts'
import type { Cell, CellState } from '../../core/ports/store.ts'
import type { Identity } from '../shared/slots.ts'
import { standingsKey } from '../shared/state.ts'
import { forAllModels } from './cells.ts'
import { limitHeaders } from './headers.ts'

/** What was seen longer ago is not shown: other processes may have taken since. */
const FRESH_MS = 1000

/** The cells of a caller's last admission or denial, and their states. */
export interface Standing {
  cells: readonly Cell[]
  states: readonly CellState[]
  compressed: boolean
  /** Monotonic milliseconds. */
  seenAt: number
}

/** By caller. `auth` gives the same identity object for a key each time, in every pipeline. */
export type Standings = WeakMap<Identity, Standing>

export function standingsOf(shared: SharedState): Standings {
  return shared.use(standingsKey, () => new WeakMap())
}

/** Sets the headers of the limits for all models, where they were seen within the last second. */
export function standingHeaders(standing: Standing, mono: number, headers: Map<string, string>): void {
  if (mono - standing.seenAt > FRESH_MS) return
  limitHeaders(forAllModels(standing.cells), standing.states, headers, standing.compressed ? 'platform' : 'org')
}
