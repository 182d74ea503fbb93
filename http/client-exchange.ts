/**
 * What an exchange is on either listener: how far its answer has come, and who is told when its client leaves before
 * that.
 */
import type { HeaderList } from '../core/listener.ts'
import { withListener } from './aborts.ts'

/**
 * open       nobody has answered
 * streaming  the answer is a stream that has not come to its end
 * answered   the gateway has said all that it has to say, and not all of it is sent
 * ended      uWebSockets.js has the whole answer, and tells nothing more of it (R18)
 * aborted    the connection was closed before the gateway had answered
 * closed     the connection was closed after that
 */
export type AnswerState = 'open' | 'streaming' | 'answered' | 'ended' | 'aborted' | 'closed'

export abstract class ClientExchange {
  protected state: AnswerState = 'open'
  #abortListener: (() => void) | undefined

  /** The connection is closed, by whomever. */
  get gone(): boolean {
    return this.state === 'aborted' || this.state === 'closed'
  }
  /** The gateway has answered, or will not: nobody waits for the request any more. */
  get settled(): boolean {
    return this.state !== 'open' && this.state !== 'streaming'
  }

  /** As `Incoming.onAborted`. */
  onAborted(listener: () => void): void {
    if (this.state === 'aborted') return void listener()
    this.#abortListener = withListener(this.#abortListener, listener)
  }

  /** Of an `aborted` exchange, once. */
  protected tellAborted(onError: ((error: unknown) => void) | undefined): void {
    const listener = this.#abortListener
    this.#abortListener = undefined
    try {
      listener?.()
    } catch (error) {
      onError?.(error)
    }
  }
}

/** The answer when the gateway's own code threw before it had one. */
export const failureHeaders: HeaderList = [['content-type', 'application/json']]
export const failureBody =
  '{"error":{"message":"Internal error","type":"server_error","code":"internal_error","param":null}}'

/** R12: how long, and for how many bytes, an upload is swallowed behind an early answer, so that it can be read. */
export const LINGER_MS = 5_000
export const LINGER_BYTES = 64 * 1024 * 1024
