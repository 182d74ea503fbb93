/** A provider's usage report (wire.md F.6). */
import type { ProviderUsage } from '../core/canon/events.ts'

/**
 * The report without its undefined members: reports are merged, and an undefined member must not overwrite a known
 * one.
 */
export function knownUsage(usage: ProviderUsage): ProviderUsage {
  const known: ProviderUsage = {}
  for (const key in usage) {
    const value = usage[key as keyof ProviderUsage]
    if (value !== undefined) known[key as keyof ProviderUsage] = value
  }
  return known
}
