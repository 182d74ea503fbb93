/** How much may wait for a client that does not read. The same on both listeners and over WebSockets. */

/** When more bytes than this are queued, `flush` returns false even though the client may still be reading. */
export const HIGH_WATER = 256 * 1024
/** Bytes that may always wait for a blocked client, however little was sent before. */
const OVERRUN_BYTES = 32 * 1024 * 1024
/**
 * A reply may end with a frame this many times as large as all frames before it. The last frame on Responses repeats
 * the whole reply, at about four times the size.
 */
const LAST_FRAME_FACTOR = 5

/**
 * R8: protects memory from callers that ignore `flush`. Callers that respect it may still write two things to a
 * blocked client: the rest of one read from upstream, and the last frame of a reply.
 *
 * @param waiting bytes written since the client is blocked
 * @param before bytes written before that
 * @returns true when so much waits that the connection must be cut
 */
export function overruns(waiting: number, before: number): boolean {
  return waiting > OVERRUN_BYTES && waiting > LAST_FRAME_FACTOR * before
}
