/** How much may wait for a client that does not read, on every adapter and over WebSockets. */

/** Above this the caller is told to stop although the client may still be reading. */
export const HIGH_WATER = 256 * 1024
/**
 * R8: what a caller may still write to a blocked client before the connection is cut. Callers that heed `flush` never get there: what they have in hand then is
 * the rest of one read, and the last word of a reply, which on Responses says the whole of it four times.
 */
export const OVERRUN_BYTES = 32 * 1024 * 1024
