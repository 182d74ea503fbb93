/** How much may wait for a client that does not read, on every adapter and over WebSockets. */

/** Above this the caller is told to stop although the client may still be reading. */
export const HIGH_WATER = 256 * 1024
const OVERRUN_BYTES = 32 * 1024 * 1024
/** A reply's last word on Responses says four times what has been said before. */
const LAST_WORD = 5

/**
 * R8: a fuse against callers that do not heed `flush`: whether so much has been written to a blocked client that its connection is to be cut. Those that do
 * heed it have two things in hand then: the rest of one read, and a reply's last word.
 *
 * @param waiting bytes written since the client is blocked
 * @param before bytes written before that
 */
export function overruns(waiting: number, before: number): boolean {
  return waiting > OVERRUN_BYTES && waiting > LAST_WORD * before
}
