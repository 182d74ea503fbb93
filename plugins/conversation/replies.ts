/** Response objects as their clients got them, sealed, for GET and DELETE of /v1/responses/{id} (RESP-6). */
import type { Clock } from '../../core/clock.ts'
import type { MaybePromise, Store } from '../../core/store.ts'
import { Sealer } from './seal.ts'

export class RetainedReplies {
  readonly #store: Store
  readonly #sealer: Sealer
  readonly #clock: Clock

  constructor(store: Store, secret: Uint8Array, clock: Clock) {
    this.#store = store
    this.#sealer = new Sealer(secret)
    this.#clock = clock
  }

  /** @param object JSON text */
  keep(organization: string, id: string, object: string, ttlMs: number): MaybePromise<void> {
    const sealed = this.#sealer.seal(organization, object)
    return this.#store.records.put(organization, 'reply', id, sealed, ttlMs, this.#clock.now())
  }

  /** @returns JSON text; null when the organization has no such response */
  async get(organization: string, id: string): Promise<string | null> {
    const sealed = await this.#store.records.get(organization, 'reply', id, this.#clock.now())
    return sealed && (this.#sealer.open(organization, sealed) as string | null)
  }

  /**
   * Deletes the object and the turn, so that the response can neither be retrieved nor continued.
   * @returns false when the organization has no such response
   */
  async delete(organization: string, id: string): Promise<boolean> {
    const { records } = this.#store
    // The turn was stored first, and a response of an earlier release has no object.
    if (!(await records.get(organization, 'response', id, this.#clock.now()))) return false
    await records.delete(organization, 'response', id)
    await records.delete(organization, 'reply', id)
    return true
  }
}
