/** Who calls the admin listener: by token, with a bound on how often an address may guess. */
import { hash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { AdminToken } from '../config/types.ts'
import type { Clock } from '../core/tools/clock.ts'
import type { Action } from './access.ts'

export interface Caller {
  /** As the audit names it; '' without a token. */
  by: string
  address: string
  role: 'read' | 'operate'
  /** `required`: good for requests with `Sluice-Act-For` alone. */
  actsFor: 'optional' | 'required'
  /** What the token is bound to; null: to nothing. */
  actions: readonly Action[] | null
}

/** May read all, and change nothing. */
const READER = { role: 'read', actsFor: 'optional', actions: null } as const
/** Who has the local token. No named token is called so in the audit. */
const LOCAL = { by: 'local-token', role: 'operate', actsFor: 'optional', actions: null } as const

/** Wrong tokens that one address may send in a minute; then all its requests with a token wait for the next minute. */
const MOST_WRONG = 60
const MINUTE_MS = 60_000
/** Addresses that are remembered within a minute, and entries of refused tokens that a minute may add to the audit. */
const MOST_ADDRESSES = 1000
const MOST_NOTES = 20

const digestOf = (text: string): Buffer => hash('sha256', text, 'buffer')

export class Callers {
  readonly #token: Buffer | undefined
  readonly #local: Buffer | undefined
  readonly #tokens: () => readonly AdminToken[]
  readonly #clock: Clock
  /** Requests since the start: with a wrong token, and not looked at because their address had sent too many. */
  readonly stats = { wrong: 0, throttled: 0 }
  readonly #refused: (address: string) => void
  #minute = -1
  #notes = 0
  readonly #wrong = new Map<string, number>()

  /**
   * @param local the local token, which opens more and closes nothing
   * @param refused called with the address of a wrong token, at most `MOST_NOTES` times a minute
   */
  constructor(
    token: string | undefined,
    local: string | undefined,
    tokens: () => readonly AdminToken[],
    clock: Clock,
    refused: (address: string) => void,
  ) {
    this.#token = token === undefined ? undefined : digestOf(token)
    this.#local = local === undefined ? undefined : digestOf(local)
    this.#tokens = tokens
    this.#clock = clock
    this.#refused = refused
  }

  /** Whether no token is configured: everybody who reaches the listener may read, and nobody may write. */
  get open(): boolean {
    return this.#token === undefined && this.#tokens().length === 0
  }

  /** The caller; `unknown` without a valid token, `throttled` after too many wrong ones. */
  of(request: IncomingMessage): Caller | 'unknown' | 'throttled' {
    const address = request.socket.remoteAddress ?? ''
    const given = /^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1]
    const digest = given === undefined ? undefined : digestOf(given)
    // Nobody guesses 256 bits, so that this needs no count of attempts.
    if (digest && this.#local && timingSafeEqual(digest, this.#local)) return { address, ...LOCAL }
    if (this.open) return { by: '', address, ...READER }
    if (digest === undefined) return 'unknown'
    const minute = Math.floor(this.#clock.mono() / MINUTE_MS)
    if (minute !== this.#minute) {
      this.#minute = minute
      this.#notes = 0
      this.#wrong.clear()
    }
    const wrong = this.#wrong.get(address) ?? 0
    if (wrong >= MOST_WRONG) {
      this.stats.throttled++
      return 'throttled'
    }
    let found: Caller | undefined
    if (this.#token && timingSafeEqual(digest, this.#token)) found = { by: 'token', address, ...READER }
    for (const { name, role, sha256, acts_for: actsFor, actions = null } of this.#tokens())
      if (timingSafeEqual(digest, Buffer.from(sha256, 'hex')))
        found = { by: `token:${name}`, address, role, actsFor, actions }
    if (found) return found
    this.stats.wrong++
    if (this.#wrong.size >= MOST_ADDRESSES && wrong === 0) this.#wrong.delete(this.#wrong.keys().next().value!)
    this.#wrong.set(address, wrong + 1)
    if (wrong === 0 && this.#notes++ < MOST_NOTES) this.#refused(address)
    return 'unknown'
  }
}
