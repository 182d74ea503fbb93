/**
 * The taps that receive what a client was sent. The client already has it: a tap that throws is removed, and affects
 * nothing else.
 */

import type { SentTap } from '../../plugin.ts'
import type { HeaderList } from '../../ports/listener.ts'

const utf8 = new TextEncoder()

/** The taps of one exchange. */
export class Taps {
  #taps: readonly SentTap[] = []
  readonly #onFault: (error: unknown) => void

  constructor(onFault: (error: unknown) => void) {
    this.#onFault = onFault
  }

  add(tap: SentTap): void {
    this.#taps = [...this.#taps, tap]
  }
  head(status: number, headers: HeaderList): void {
    this.#each(tap => tap.head(status, [...headers]))
  }
  bytes(sent: string | Uint8Array): void {
    const bytes = typeof sent === 'string' ? utf8.encode(sent) : sent
    this.#each(tap => tap.bytes(bytes))
  }
  end(whole: boolean): void {
    this.#each(tap => tap.end(whole))
  }

  #each(call: (tap: SentTap) => void): void {
    for (const tap of this.#taps) {
      try {
        call(tap)
      } catch (error) {
        this.#taps = this.#taps.filter(other => other !== tap)
        this.#onFault(error)
      }
    }
  }
}
