/**
 * A credential that expires. It is fetched once for all requests that wait for it, and again ahead of its expiry, while
 * requests still use the old one.
 */
import { AuthFault } from '../../core/ports/auth.ts'
import type { Clock } from '../../core/tools/clock.ts'

/** A credential with its expiry in Unix milliseconds; null when it has none. */
export interface Fetched<T> {
  value: T
  expiresAt: number | null
}

/** A credential is fetched again this long before it expires, or in the last fifth of a shorter life. Milliseconds. */
const LEAD_MS = 5 * 60_000
/** A credential is not used in this last part of its life: the provider's clock may differ, and requests take time. */
const MARGIN_MS = 10_000
/** A credential without an expiry is read again after this time, in case that it was replaced in its file. */
const REREAD_MS = 15 * 60_000
/** After a failure, nothing is fetched for this long: the requests of that time fail with the same fault. */
const PAUSE_MS = 2000
/** The longest wait for a credential. */
const TIMEOUT_MS = 10_000
/** A refusal by the provider replaces a credential that is at least this old, so that refusals cannot cause a storm. */
const MIN_AGE_MS = 30_000
/** The longest message of a fault, in UTF-16 units. */
const MOST_WORDS = 500

export class Refreshed<T> {
  readonly #name: string
  readonly #secrets: readonly string[]
  readonly #fetch: () => Promise<Fetched<T>>
  readonly #clock: Clock
  #held: { value: T; since: number; refreshAt: number; expiresAt: number } | undefined
  #running: Promise<T> | undefined
  #failure: { fault: AuthFault; until: number } | undefined

  /**
   * @param name of the credential, for error messages
   * @param secrets texts that no error message may hold
   */
  constructor(name: string, secrets: readonly (string | undefined)[], clock: Clock, fetch: () => Promise<Fetched<T>>) {
    this.#name = name
    this.#secrets = secrets.filter(secret => secret !== undefined && secret !== '') as string[]
    this.#clock = clock
    this.#fetch = fetch
  }

  /**
   * The credential; a promise when there is no valid one.
   * @throws AuthFault as a rejection
   */
  get(): T | Promise<T> {
    const now = this.#clock.mono()
    const held = this.#held
    if (held === undefined || now >= held.expiresAt) return this.#refresh(now)
    if (now >= held.refreshAt) this.#refresh(now).catch(() => {})
    return held.value
  }

  /** The credential was refused: the next request fetches another, and uses this one until then. */
  refused(): void {
    const held = this.#held
    const now = this.#clock.mono()
    if (held !== undefined && now - held.since >= MIN_AGE_MS) held.refreshAt = now
  }

  #refresh(now: number): Promise<T> {
    if (this.#running) return this.#running
    if (this.#failure && now < this.#failure.until) return Promise.reject(this.#failure.fault)
    const done = Promise.withResolvers<T>()
    this.#running = done.promise
    const timer = this.#clock.setTimer(TIMEOUT_MS, () => failed(new Error(`no answer within ${TIMEOUT_MS / 1000} s`)))
    const failed = (cause: unknown) => {
      if (this.#running !== done.promise) return
      this.#running = undefined
      timer.cancel()
      const fault = new AuthFault(this.#words(cause))
      this.#failure = { fault, until: this.#clock.mono() + PAUSE_MS }
      done.reject(fault)
    }
    const fetched = ({ value, expiresAt }: Fetched<T>) => {
      if (this.#running !== done.promise) return
      const left = expiresAt === null ? Number.POSITIVE_INFINITY : expiresAt - this.#clock.now()
      if (!(left > 0)) return failed(new Error('the credential has expired already'))
      this.#running = undefined
      this.#failure = undefined
      timer.cancel()
      const since = this.#clock.mono()
      this.#held = {
        value,
        since,
        refreshAt: since + (expiresAt === null ? REREAD_MS : left - Math.min(LEAD_MS, left / 5)),
        expiresAt: since + left - Math.min(MARGIN_MS, left / 10),
      }
      done.resolve(value)
    }
    this.#fetch().then(fetched, failed)
    return done.promise
  }

  #words(cause: unknown): string {
    const said = cause instanceof Error ? cause.message : 'failed'
    const words = this.#secrets.reduce((text, secret) => text.replaceAll(secret, '[secret]'), `${this.#name}: ${said}`)
    return words.slice(0, MOST_WORDS)
  }
}
