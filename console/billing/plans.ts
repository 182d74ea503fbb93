/**
 * The limits of plans, for the table of tiers. They change with gateway.yaml alone, so each console keeps them for a
 * minute.
 */
import { GatewayDown, GatewayRefused } from '../gateway.ts'
import { StaffGateway } from '../staff/gateway.ts'
import type { Parts } from '../web/visit.ts'

type Limits = Record<string, number | string>

const KEEP_MS = 60_000
const kept = new WeakMap<Parts, { at: number; plans: Promise<ReadonlyMap<string, Limits> | null> }>()

/** By plan; null where the gateway does not tell them. */
export function limitsOfPlans(parts: Parts): Promise<ReadonlyMap<string, Limits> | null> {
  const now = parts.now()
  const known = kept.get(parts)
  if (known && now - known.at < KEEP_MS) return known.plans
  const plans = new StaffGateway(parts.config, 'console').plans().then(
    all => new Map(all.map(({ id, limits }) => [id, limits])),
    error => {
      // The page has more to show than these.
      if (error instanceof GatewayDown || error instanceof GatewayRefused) return null
      throw error
    },
  )
  kept.set(parts, { at: now, plans })
  return plans
}
