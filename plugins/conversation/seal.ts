/**
 * Seals private records with the gateway's secret (TOOL-6): AES-256-GCM under a key derived for the organization, so that a record
 * read under another organization's name does not open. Layout: 12-byte nonce, 16-byte tag, ciphertext.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'

export class Sealer {
  readonly #secret: Uint8Array
  readonly #keys = new Map<string, Buffer>()

  constructor(secret: Uint8Array) {
    this.#secret = secret
  }

  seal(organization: string, value: unknown): Uint8Array {
    const nonce = randomBytes(12)
    const cipher = createCipheriv('aes-256-gcm', this.#key(organization), nonce)
    const body = Buffer.concat([cipher.update(JSON.stringify(value), 'utf8'), cipher.final()])
    return Buffer.concat([nonce, cipher.getAuthTag(), body])
  }

  /** Null when the bytes are not this organization's, not whole, or sealed under another secret: a miss, never an error. */
  open(organization: string, sealed: Uint8Array): unknown {
    if (sealed.length < 28) return null
    try {
      const decipher = createDecipheriv('aes-256-gcm', this.#key(organization), sealed.subarray(0, 12))
      decipher.setAuthTag(sealed.subarray(12, 28))
      const text = decipher.update(sealed.subarray(28), undefined, 'utf8') + decipher.final('utf8')
      return JSON.parse(text)
    } catch {
      return null
    }
  }

  #key(organization: string): Buffer {
    let key = this.#keys.get(organization)
    if (!key) {
      key = Buffer.from(hkdfSync('sha256', this.#secret, organization, 'sluice record', 32))
      this.#keys.set(organization, key)
    }
    return key
  }
}
