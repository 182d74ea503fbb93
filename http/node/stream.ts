/** A streamed response on node:http. Rule ids such as R10 are those of docs/spec/listener.md. */
import type { OutgoingStream } from '../../core/ports/listener.ts'
import { HIGH_WATER, overruns } from '../backpressure.ts'
import { PieceQueue, type StreamState } from '../outgoing.ts'
import type { NodeExchange } from './exchange.ts'

/** Largest piece that is written to node:http at once, in bytes. */
const PIECE_BYTES = 16 * 1024

export class NodeStream implements OutgoingStream {
  readonly #exchange: NodeExchange
  readonly #bodiless: boolean
  readonly #queue = new PieceQueue(PIECE_BYTES)
  #state: StreamState = 'open'
  /** True while the client is slow: nothing is written until node:http emits 'drain'. */
  #blocked = false
  /** Bytes that had been queued when the client blocked. */
  #beforeBlock = 0
  #owesDrain = false
  #drainListener: (() => void) | undefined

  constructor(exchange: NodeExchange, bodiless: boolean) {
    this.#exchange = exchange
    this.#bodiless = bodiless
    if (exchange.gone) this.#state = 'closed'
    exchange.res.on('drain', () => this.#onDrain())
  }

  write(data: string | Uint8Array): void {
    if (this.#state !== 'open' || this.#bodiless || data.length === 0) return
    const queue = this.#queue
    queue.push(data)
    const before = this.#beforeBlock
    if (this.#blocked && overruns(queue.total - before, before)) this.#exchange.abandon()
  }

  flush(): boolean {
    if (this.#state !== 'open') return false
    this.#pump()
    if (this.#blocked || this.#queue.bytes > HIGH_WATER) this.#owesDrain = true
    return !this.#owesDrain && this.#state === 'open'
  }

  onDrain(listener: () => void): void {
    this.#drainListener = listener
  }

  get buffered(): number {
    return this.#state === 'open' ? this.#queue.bytes + this.#exchange.res.writableLength : 0
  }

  end(): void {
    if (this.#state !== 'open') return
    this.#state = 'ending'
    this.#exchange.handOver()
    this.#pump()
  }

  cut(): void {
    if (this.#state !== 'open') return
    this.#state = 'cutting'
    this.#exchange.handOver()
    this.#pump()
  }

  #pump(): void {
    const exchange = this.#exchange
    const queue = this.#queue
    while (!this.#blocked && !queue.empty && !exchange.gone) {
      if (!exchange.res.write(queue.take(PIECE_BYTES))) this.#block()
    }
    if (this.#blocked || !queue.empty || exchange.gone) return
    if (this.#state === 'ending') this.#finish()
    else if (this.#state === 'cutting') this.#cutNow()
  }

  #finish(): void {
    this.#state = 'closed'
    const exchange = this.#exchange
    const end = (): void => {
      exchange.settle()
      exchange.res.end()
      exchange.watchDelivery()
    }
    if (exchange.mustLinger) exchange.body.linger(end)
    else end()
  }

  /** Closes the connection without the chunk terminator, once the kernel has all bytes (STR-6). */
  #cutNow(): void {
    this.#state = 'closed'
    const exchange = this.#exchange
    exchange.settle()
    exchange.watchDelivery()
    const close = (): void => void exchange.req.socket.destroySoon()
    exchange.body.linger(close)
  }

  #block(): void {
    this.#blocked = true
    this.#beforeBlock = this.#queue.total
    this.#exchange.req.socket.setTimeout(this.#exchange.shared.options.stallTimeoutMs, onStall)
  }

  #onDrain(): void {
    this.#blocked = false
    const { socket } = this.#exchange.req
    socket.off('timeout', onStall)
    socket.setTimeout(0)
    this.#pump()
    if (!this.#owesDrain || this.#blocked || !this.#queue.empty || this.#state !== 'open') return
    this.#owesDrain = false
    try {
      this.#drainListener?.()
    } catch (error) {
      this.#exchange.fail(error)
    }
  }

  dropped(): void {
    this.#state = 'closed'
    this.#queue.clear()
  }
}

/** R10: closes a stalled connection; a listener for a socket's 'timeout' event. */
export function onStall(this: { destroy(): void }): void {
  this.destroy()
}
