import { createHash } from 'node:crypto'

/** The bytes (UTF-8) of a configured secret. For one of less than 32 bytes: its SHA-256 digest, which has 32. */
export function configuredSecret(text: string): Uint8Array {
  const bytes = Buffer.from(text)
  return bytes.length >= 32 ? bytes : createHash('sha256').update(bytes).digest()
}
