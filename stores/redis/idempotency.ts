/** Idempotency keys in Redis. A running first use is a mark with a lease that its owner renews; a finished one is kept for its time to live. */
import type { IdempotencyRecord, IdempotencyState, IdempotencyStore } from '../../core/store.ts'
import { script } from './call.ts'
import { type Arg, type RedisClient, tagOf } from './client.ts'
import { IDEM_BEGIN, IDEM_FINISH, IDEM_LEASE } from './scripts.ts'

const SCRIPTS = { begin: script(IDEM_BEGIN), finish: script(IDEM_FINISH), lease: script(IDEM_LEASE) }

/** Life of an unrenewed mark: a dead first use counts as running for so long, and never runs again before. */
export const IDEMPOTENCY_LEASE_MS = 15_000

/** Replies can be megabytes. */
const DELIVERED_AT_ONCE = 20

interface Running {
  name: string
  requestId: string
  fingerprint: string
  /** Ended: what Redis has not taken yet. */
  finish: { keys: string[]; args: Arg[] } | undefined
}

export interface RedisIdempotencyOptions {
  client: RedisClient
  maxRecord: number
  maxTotal: number
  leaseMs: number
}

export class RedisIdempotency implements IdempotencyStore {
  #options: RedisIdempotencyOptions
  #running = new Map<string, Running>()
  /** Keys given back that Redis may not know of yet: where it must be told a script first, a later call overtakes that. */
  #releasing = new Map<string, Promise<unknown>>()

  constructor(options: RedisIdempotencyOptions) {
    this.#options = options
  }

  async begin(org: string, key: string, fingerprint: string, requestId: string): Promise<IdempotencyState> {
    const { client, leaseMs } = this.#options
    const name = nameOf(org, key)
    // Who was refused may ask again at once, with another body.
    await this.#releasing.get(name)
    const reply = (await client.script(SCRIPTS.begin, [name], [fingerprint, requestId, leaseMs])) as Buffer[]
    const state = reply[0]!.toString() as IdempotencyState['state']
    if (state === 'first') this.#running.set(name, { name, requestId, fingerprint, finish: undefined })
    if (state === 'not_kept') return { state, requestId: reply[1]!.toString() }
    if (state !== 'replay') return { state }
    const [, request, status, headers, body, whole] = reply
    return {
      state,
      record: {
        requestId: request!.toString(),
        status: Number(status!.toString()),
        headers: JSON.parse(headers!.toString()) as [string, string][],
        body: body!,
        whole: whole!.toString() === '1',
      },
    }
  }

  async finish(org: string, key: string, record: IdempotencyRecord | null, ttlMs: number): Promise<void> {
    const { maxRecord, maxTotal } = this.#options
    const name = nameOf(org, key)
    const running = this.#running.get(name)
    if (!running) return
    const keys = [name, `sluice:${tagOf(org)}:idem`, `sluice:${tagOf(org)}:idem-bytes`]
    const base = [running.fingerprint, running.requestId, ttlMs, maxTotal, nameOf(org, ''), key]
    const kept = record && record.body.length <= maxRecord ? record : null
    const reply = kept
      ? [
          kept.status,
          JSON.stringify(kept.headers),
          Buffer.from(kept.body.buffer, kept.body.byteOffset, kept.body.length),
          kept.whole ? '1' : '0',
        ]
      : []
    running.finish = { keys, args: [...base, ...reply] }
    await this.#deliver(running)
  }

  /** On failure it is offered again with the next renewal. Until Redis has it the key counts as running, and is never free to run again. */
  async #deliver({ name, finish }: Running): Promise<void> {
    await this.#options.client.script(SCRIPTS.finish, finish!.keys, finish!.args)
    this.#running.delete(name)
  }

  async release(org: string, key: string): Promise<void> {
    const { client } = this.#options
    const name = nameOf(org, key)
    const running = this.#running.get(name)
    if (!running) return
    // Without an answer the mark runs out by itself.
    this.#running.delete(name)
    const released = client.script(SCRIPTS.lease, [name], [running.requestId, 0])
    this.#releasing.set(
      name,
      released.catch(() => {}),
    )
    try {
      await released
    } finally {
      this.#releasing.delete(name)
    }
  }

  /** Renews the marks of running first uses, and delivers what Redis could not be told when they ended. */
  async renew(): Promise<void> {
    const { client, leaseMs } = this.#options
    const marks = [...this.#running.values()]
    for (let i = 0; i < marks.length; i += 100)
      await Promise.all(
        marks
          .slice(i, i + 100)
          .map(({ name, requestId }) => client.script(SCRIPTS.lease, [name], [requestId, leaseMs])),
      )
    const ended = marks.filter(({ finish }) => finish).slice(0, DELIVERED_AT_ONCE)
    await Promise.allSettled(ended.map(running => this.#deliver(running)))
  }
}

function nameOf(org: string, key: string): string {
  return `sluice:${tagOf(org)}:idem:${key}`
}
