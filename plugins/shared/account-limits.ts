import type { Limits } from '../../config/types.ts'
import type { Identity } from './slots.ts'

/** The least that organization and key set for a limit, over all models and over this one; null when none does. */
export function leastOf(name: keyof Limits, { organization, key }: Identity, model: string): number | null {
  const account = least(organization.limits[name], key.limits[name])
  return least(account, least(organization.model_limits[model]?.[name], key.model_limits[model]?.[name]))
}

/** Null is no limit. */
export function least(a: number | null | undefined, b: number | null | undefined): number | null {
  if (a == null) return b ?? null
  return b == null ? a : Math.min(a, b)
}
