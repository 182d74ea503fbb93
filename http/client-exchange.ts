/**
 * The part of an exchange that is the same on both listeners: how far its response has come, and which callbacks run
 * when the client disconnects before the response is complete.
 */
import type { HeaderList } from '../core/ports/listener.ts'
import { withListener } from './aborts.ts'

/**
 * The states of a response:
 * - `open`: the gateway has not answered
 * - `streaming`: the response is a stream that has not ended
 * - `answered`: the gateway has written the whole response, but not all of it is sent
 * - `ended`: uWebSockets.js has the whole response and reports nothing more about it (R18)
 * - `aborted`: the connection was closed before the gateway had answered
 * - `closed`: the connection was closed after that
 */
export type AnswerState = 'open' | 'streaming' | 'answered' | 'ended' | 'aborted' | 'closed'

/** The base of `UwsExchange` and `NodeExchange`. */
export abstract class ClientExchange {
  /** See `Incoming.tenant`. */
  tenant: string | undefined = undefined
  protected state: AnswerState = 'open'
  #abortListener: (() => void) | undefined

  /** True once the connection is closed, by either side. */
  get gone(): boolean {
    return this.state === 'aborted' || this.state === 'closed'
  }
  /** True once the gateway has answered or never will: the request needs no more work. */
  get settled(): boolean {
    return this.state !== 'open' && this.state !== 'streaming'
  }

  /** See `Incoming.onAborted`. */
  onAborted(listener: () => void): void {
    if (this.state === 'aborted') return void listener()
    this.#abortListener = withListener(this.#abortListener, listener)
  }

  /** Calls the abort listeners, once. Call it only in state `aborted`. */
  protected notifyAborted(onError: ((error: unknown) => void) | undefined): void {
    const listener = this.#abortListener
    this.#abortListener = undefined
    try {
      listener?.()
    } catch (error) {
      onError?.(error)
    }
  }
}

/** The response when the gateway's own code threw before it had answered. */
export const failureHeaders: HeaderList = [['content-type', 'application/json']]
export const failureBody =
  '{"error":{"message":"Internal error","type":"server_error","code":"internal_error","param":null}}'

/**
 * R12: after an early response the listener reads and discards the rest of an upload, so that the client can read the
 * response. This is the limit of that, in milliseconds and in bytes.
 */
export const LINGER_MS = 5_000
export const LINGER_BYTES = 64 * 1024 * 1024
