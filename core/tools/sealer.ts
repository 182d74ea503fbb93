/**
 * Seals what the store keeps with the gateway's secret (TOOL-6): AES-256-GCM under a key derived for the organization, so
 * that it cannot be opened for another organization. Layout: 12-byte nonce, 16-byte tag, ciphertext.
 */
import { createCipheriv, createDecipheriv, type DecipherGCM, hkdfSync, randomBytes } from 'node:crypto'

/** Seals and opens records with one secret. Derived keys are cached by organization. */
export class Sealer {
  readonly #secret: Uint8Array
  readonly #purpose: string
  readonly #keys = new Map<string, Buffer>()

  /** @param purpose what is sealed for one purpose cannot be opened for another; at most 1024 bytes */
  constructor(secret: Uint8Array, purpose = 'sluice record') {
    this.#secret = secret
    this.#purpose = purpose
  }

  seal(organization: string, value: unknown): Uint8Array {
    return this.sealJson(organization, JSON.stringify(value))
  }

  /** Seals a value of which the JSON is known. */
  sealJson(organization: string, json: string): Uint8Array {
    return this.sealBytes(organization, Buffer.from(json))
  }

  sealBytes(organization: string, bytes: Uint8Array): Uint8Array {
    const nonce = randomBytes(12)
    const cipher = createCipheriv('aes-256-gcm', this.#key(organization), nonce)
    const body = Buffer.concat([cipher.update(bytes), cipher.final()])
    return Buffer.concat([nonce, cipher.getAuthTag(), body])
  }

  /**
   * The value; null when the bytes are another organization's, incomplete, or sealed under another secret. That counts
   * as not found, never as an error.
   */
  open(organization: string, sealed: Uint8Array): unknown {
    // Without a copy of the bytes: a stored conversation has megabytes.
    const text = this.#opened(organization, sealed, (decipher, body) => {
      const begun = decipher.update(body, undefined, 'utf8')
      return begun + decipher.final('utf8')
    })
    return text === null ? null : JSON.parse(text)
  }

  /** The bytes that were sealed; null as `open` says. */
  openBytes(organization: string, sealed: Uint8Array): Buffer | null {
    return this.#opened(organization, sealed, (decipher, body) =>
      Buffer.concat([decipher.update(body), decipher.final()]),
    )
  }

  #opened<T>(organization: string, sealed: Uint8Array, read: (decipher: DecipherGCM, body: Uint8Array) => T): T | null {
    if (sealed.length < 28) return null
    try {
      const decipher = createDecipheriv('aes-256-gcm', this.#key(organization), sealed.subarray(0, 12))
      decipher.setAuthTag(sealed.subarray(12, 28))
      return read(decipher, sealed.subarray(28))
    } catch {
      return null
    }
  }

  #key(organization: string): Buffer {
    let key = this.#keys.get(organization)
    if (!key) {
      key = Buffer.from(hkdfSync('sha256', this.#secret, organization, this.#purpose, 32))
      this.#keys.set(organization, key)
    }
    return key
  }
}
