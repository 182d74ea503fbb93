import type { Limits } from '../../config/types.ts'
import type { Identity } from './slots.ts'

/**
 * The lowest value that organization and key set for a limit, for all models or for this model; null when neither sets
 * it.
 */
export function leastOf(name: keyof Limits, { organization, key }: Identity, model: string): number | null {
  const account = least(organization.limits[name], key.limits[name])
  return least(account, least(organization.model_limits[model]?.[name], key.model_limits[model]?.[name]))
}

/** The lower of two limits; null and undefined mean no limit. */
export function least(a: number | null | undefined, b: number | null | undefined): number | null {
  if (a == null) return b ?? null
  return b == null ? a : Math.min(a, b)
}
