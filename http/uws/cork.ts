/**
 * R7: bytes per cork, framing included. The tested build loses bytes when a cork outgrows its 16 KB buffer while the client is slow; below that
 * the path is not reached. Not an option: nobody who raises it would notice what is missing.
 */
export const CORK_BYTES = 12 * 1024

/** Room in a cork for what uWebSockets.js adds to a head: Date, Content-Length or Transfer-Encoding, Connection, a chunk's size and line ends. */
export const HEAD_FRAMING_BYTES = 192

/** Bytes of one chunk in a cork without a head: size line and line ends need 8, the chunk that ends the body 5 more. */
export const CHUNK_BYTES = CORK_BYTES - 32
