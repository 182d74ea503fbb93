/** What the exchanges and sockets of one listener share. Rule ids such as R11 are those of docs/spec/listener.md. */
import type { ListenerOptions, RequestHandler } from '../../core/ports/listener.ts'
import type { Clock } from '../../core/tools/clock.ts'
import type { DenseSet, Placed } from '../../core/tools/collections.ts'
import type { FairTurns } from '../../core/tools/fair.ts'
import type { TrustedPeers } from '../client-address.ts'
import type { Cork } from './cork.ts'
import type { UwsRequest } from './native.ts'

/** An exchange, as the listener sees it. */
export interface Ticked extends Placed {
  /** True while the gateway has finished the response, and not all of it has left. */
  readonly unsent: boolean
  tick(): void
}

/** A WebSocket, as the listener sees it. */
export interface OpenSocket {
  /** True while something is still to be sent, including the close frame. */
  readonly unsent: boolean
  drain(): void
}

/** State that the exchanges of one listener share. */
export interface UwsShared {
  readonly options: ListenerOptions
  readonly handler: RequestHandler
  readonly clock: Clock
  readonly trusted: TrustedPeers
  /**
   * R11: the exchanges whose uWebSockets.js timer must be kept from expiring, in slices. Each slice is visited every
   * 4 s.
   */
  readonly ticking: readonly DenseSet<Ticked>[]
  nextSlice: number
  readonly fields: FieldReader
  readonly cork: Cork
  /** The turns of large bodies. */
  readonly reads: FairTurns
  draining: boolean
  /** Each connection closes after its next response. */
  retiring: boolean
  /** Open WebSockets. */
  readonly sockets: Set<OpenSocket>
  /** Tunnels that were closed because the client sent more than the target took. */
  overrunTunnels: number
  /** Connections that were closed because they brought too many pieces in one turn of the event loop. */
  overrunTurns: number
}

/**
 * Reads header fields for all exchanges of one listener, with one array and one callback: heads are read
 * synchronously, one at a time.
 */
export class FieldReader {
  readonly #pairs: string[] = []
  /** True when a value has bytes of 0x80 or above. */
  #hasMore = false
  readonly #collect = (name: string, value: string): void => {
    this.#pairs.push(name, value)
    if (NON_ASCII.test(value)) this.#hasMore = true
  }

  /** Name, value, name, value; one character of a value is one byte. The next call reuses this array. */
  read(req: UwsRequest): readonly string[] {
    this.#pairs.length = 0
    this.#hasMore = false
    req.forEach(this.#collect)
    if (this.#hasMore) this.#asBytes(req)
    return this.#pairs
  }

  /** `forEach` reads UTF-8, and `getHeader` bytes, but of the first field of a name alone. */
  #asBytes(req: UwsRequest): void {
    const pairs = this.#pairs
    const seen = new Set<string>()
    for (let i = 0; i < pairs.length; i += 2) {
      const [name, value] = [pairs[i]!, pairs[i + 1]!]
      if (NON_ASCII.test(value)) {
        if (!seen.has(name)) pairs[i + 1] = req.getHeader(name)
        else if (!value.includes('\ufffd')) pairs[i + 1] = Buffer.from(value).toString('latin1')
      }
      seen.add(name)
    }
  }
}

const NON_ASCII = /[\x80-\uffff]/
