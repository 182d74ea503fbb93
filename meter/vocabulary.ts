import { tables } from './tables.ts'

/** The bytes of a token. */
export function tokenBytes(id: number): Uint8Array {
  const { halves, length, byteOf } = tables()
  const bytes = new Uint8Array(length[id]!)
  let at = 0
  // Left halves first; depth is at most the token's length.
  const write = (token: number): void => {
    if (token < 256) bytes[at++] = byteOf[token]!
    else {
      write(halves[2 * token]!)
      write(halves[2 * token + 1]!)
    }
  }
  write(id)
  return bytes
}
