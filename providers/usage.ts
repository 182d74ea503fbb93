/** A provider's usage report (wire.md F.6). */
import type { ProviderUsage } from '../core/canon/events.ts'

/**
 * The report without its undefined members: reports are merged, and an undefined member must not overwrite a known
 * one.
 */
export function knownUsage(usage: ProviderUsage): ProviderUsage {
  return Object.fromEntries(Object.entries(usage).filter(([, value]) => value !== undefined))
}

/** The name of a service tier; undefined where the value is none. It goes into a ledger row, so it is a short word. */
export function tierOf(value: unknown): string | undefined {
  return typeof value === 'string' && /^[\w.-]{1,32}$/.test(value) ? value : undefined
}
