/** Calls between two processes over a channel of messages, such as that of `child_process`. */
import { systemClock } from '../core/tools/clock.ts'

/** Any signature, for the types of one to be read from it. */
type Calls = Record<string, (...args: any[]) => unknown>

type Call = { call: number; name: string; args: unknown[] }
type Answer = { answer: number; value?: unknown; fault?: string }

/** Sends what is JSON. It may be lost when the other side ends. */
export type Send = (message: unknown) => void

/** Answers the calls of the other side. @returns what takes its messages */
export function answering<C extends Calls>(calls: C, send: Send): (message: unknown) => void {
  return message => {
    const { call, name, args } = message as Call
    if (call === undefined || !Object.hasOwn(calls, name)) return
    Promise.resolve()
      .then(() => calls[name]!(...args))
      .then(
        value => send({ answer: call, value } satisfies Answer),
        (error: Error) => send({ answer: call, fault: error.message } satisfies Answer),
      )
  }
}

/** Calls the other side. */
export class Peer<C extends Calls> {
  readonly #send: Send
  readonly #open = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
  #last = 0
  #closed = false

  constructor(send: Send) {
    this.#send = send
  }

  /**
   * Rejects with the error of the other side, when it ends before it has answered, and when it has left very many calls
   * without an answer.
   */
  call<N extends keyof C & string>(name: N, ...args: Parameters<C[N]>): Promise<Awaited<ReturnType<C[N]>>> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    if (this.#closed) reject(new Error(ENDED))
    else if (this.#open.size >= MOST_UNANSWERED) reject(new Error('the worker does not answer'))
    else {
      this.#open.set(++this.#last, { resolve, reject })
      this.#send({ call: this.#last, name, args } satisfies Call)
    }
    return promise as Promise<Awaited<ReturnType<C[N]>>>
  }

  /** Takes a message of the other side. */
  receive(message: unknown): void {
    const { answer, value, fault } = message as Answer
    const open = this.#open.get(answer)
    if (!open) return
    this.#open.delete(answer)
    if (fault === undefined) open.resolve(value)
    else open.reject(new Error(fault))
  }

  /** The other side has ended. */
  close(): void {
    this.#closed = true
    for (const { reject } of this.#open.values()) reject(new Error(ENDED))
    this.#open.clear()
  }
}

const ENDED = 'the worker has ended'
/** Each call to a worker that hangs stays in memory, here and in the channel. */
const MOST_UNANSWERED = 1000

/** The value of a promise; undefined when it rejects, or takes longer than this many milliseconds. */
export function within<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  return new Promise(resolve => {
    const timer = systemClock.setTimer(ms, () => resolve(undefined))
    const done = (value?: T) => {
      timer.cancel()
      resolve(value)
    }
    promise.then(done, () => done())
  })
}
