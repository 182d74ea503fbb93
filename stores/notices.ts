/** What both engines know of notices. */
import { NOTICED_PERCENT, type Notice } from '../core/ports/store.ts'

/** What was noticed of a day or month is known for this long: longer than a month, so that nothing is noticed twice. */
export const ONCE_KEEP_MS = 62 * 86_400_000
/** Notices are kept for this long, ms. */
export const NOTICE_KEEP_MS = 400 * 86_400_000
/** Redis keeps at most about this many, some 30 MB. */
export const NOTICES_KEPT = 100_000

/**
 * Notices with one identity are one. A limit that was changed is another one: a customer who was given more is told
 * again.
 */
export function identityOf({ organization, key, model, period, number, percent, limit }: Notice): string {
  return [organization, key, model, period, number, percent, limit].join('\n')
}

/** The identity of a notice, then those of the same limit and period at higher thresholds: after these it is no news. */
export function newsUnless(notice: Notice): string[] {
  const higher = NOTICED_PERCENT.filter(percent => percent > notice.percent)
  return [notice.percent, ...higher].map(percent => identityOf({ ...notice, percent }))
}
