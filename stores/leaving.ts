/** Removes organizations that were deleted, when their grace is over. Each gateway does it, and one of them is first. */
import type { AccountStore } from '../core/ports/accounts.ts'

/** One look removes at most this many. */
const AT_ONCE = 20

/**
 * Removes what has left: its levels and retained data first, so that a crash in between leaves something to find again,
 * then the organization with its keys. One that was enabled again meanwhile stays. Ledger rows and audit stay, too.
 * @param forget removes levels, spend, retained data and idempotency records of an organization; may be repeated
 * @param now Unix ms
 */
export async function removeLeft(
  accounts: AccountStore,
  forget: (organization: string) => Promise<void>,
  now: number,
): Promise<void> {
  for (const id of await accounts.leaving(now, AT_ONCE)) {
    const found = await accounts.read(id)
    if (!found) continue
    // An earlier release enables one without a word about its leaving.
    if (JSON.parse(found.settings).status !== 'disabled') {
      await accounts.change([{ id, expected: found.version, leaves: null, keys: [], audit: noteOf('stay', now) }])
      continue
    }
    await forget(id)
    await accounts.change([{ id, expected: found.version, remove: true, keys: [], audit: noteOf('remove', now) }])
  }
}

const noteOf = (what: string, time: number) => ({
  ...{ time, by: 'gateway', address: '', operation: `organization.${what}`, key: '' },
  ...{ before: null, after: null },
})
