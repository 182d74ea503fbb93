/**
 * Marks of idempotency keys: what stays of a key when its reply is not kept, so that it is not executed again. Both
 * engines count a mark in the share of its organization, in the same way. A kept reply counts as a mark and its bytes.
 *
 * Redis 7.0 takes 477 bytes for a mark whose key has 36 characters, and 979 for one of 255: the hash with fingerprint
 * and request id, its name, its expiry, and the member of the index. SQLite takes less.
 */
export const MARK_BASE = 512
export const MARK_BYTES_PER_CHARACTER = 2

/** @param key visible ASCII */
export function markBytes(key: string): number {
  return MARK_BASE + MARK_BYTES_PER_CHARACTER * key.length
}
