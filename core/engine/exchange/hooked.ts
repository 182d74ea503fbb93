import type { Exchange } from '../../plugin.ts'
import type { Chain, Link } from '../chain.ts'
import type { Timeline } from '../timeline.ts'

/** The exchange that hooks get, as a part sees it that calls hooks. */
export interface HookedExchange extends Exchange {
  readonly chain: Chain
  /** Null unless the exchange is sampled. */
  readonly timeline: Timeline | null
  /** Counts and logs an error of a plugin. */
  hookFailed(link: Link, error: unknown, what?: string, level?: 'warn' | 'error'): void
}
