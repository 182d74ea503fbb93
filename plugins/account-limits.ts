import type { Limits } from '../core/config/types.ts'
import type { Identity } from './slots.ts'

/** The least that organization and key set for a limit, over all models and over this one; null when none does. */
export function leastOf(name: keyof Limits, { organization, key }: Identity, model: string): number | null {
  let least: number | null = null
  const scopes = [organization.limits, key.limits, organization.model_limits[model], key.model_limits[model]]
  for (const scope of scopes) {
    const limit = scope?.[name] ?? null
    if (limit !== null && (least === null || limit < least)) least = limit
  }
  return least
}
