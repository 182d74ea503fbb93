/** A provider's usage report (wire.md F.6). */
import type { ProviderUsage } from '../core/events.ts'

/** Without the members that were not reported: reports are merged, and an absent one must not wipe a known one out. */
export function knownUsage(usage: ProviderUsage): ProviderUsage {
  const known: ProviderUsage = {}
  for (const key in usage) {
    const value = usage[key as keyof ProviderUsage]
    if (value !== undefined) known[key as keyof ProviderUsage] = value
  }
  return known
}
