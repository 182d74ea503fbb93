import { createHash } from 'node:crypto'

/** A configured secret as bytes; one of less than 32 bytes is stretched to 32 by SHA-256. */
export function configuredSecret(text: string): Uint8Array {
  const bytes = Buffer.from(text)
  return bytes.length >= 32 ? bytes : createHash('sha256').update(bytes).digest()
}
