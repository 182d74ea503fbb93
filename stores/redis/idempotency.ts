/**
 * Idempotency keys in Redis. A running first use is a mark with a lease that its owner renews; a finished one is kept
 * for its time to live.
 */

import type { IdempotencyRecord, IdempotencyState, IdempotencyStore } from '../../core/ports/store.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { type Arg, type RedisClient, tagOf } from './client.ts'
import { script } from './scripts.ts'
import { Shares } from './shares.ts'

const SCRIPTS = {
  begin: script('idem_begin'),
  claim: script('idem_claim'),
  finish: script('idem_finish'),
  lease: script('idem_lease'),
  trim: script('idem_trim'),
}

/** How long a mark lives without renewal, ms. When its owner has died, the key counts as running for this long. */
export const IDEMPOTENCY_LEASE_MS = 15_000

/** Each renewal delivers at most this many kept replies, because a reply can have megabytes. */
const DELIVERED_AT_ONCE = 20

interface Running {
  name: string
  org: string
  requestId: string
  fingerprint: string
  /** When the mark was last renewed: monotonic milliseconds before the call. */
  renewedMono: number
  /** Another execution has the key. */
  lost: boolean
  /** No other execution can get the key. */
  claimed: boolean
  onLost: (() => void) | undefined
  /** Redis did not take `finish` when the first use ended; it is offered again. */
  refused: boolean
  /** Ended: what Redis has not taken yet. */
  finish: { keys: string[]; args: Arg[] } | undefined
}

export interface RedisIdempotencyOptions {
  client: RedisClient
  maxRecord: number
  maxTotal: number
  share: number
  leaseMs: number
  clock: Clock
}

export class RedisIdempotency implements IdempotencyStore {
  readonly shares: Shares
  #options: RedisIdempotencyOptions
  /** Running first uses, by the name of the key in Redis. */
  #running = new Map<string, Running>()
  /**
   * Keys whose release Redis may not have executed yet. When Redis does not know the release script, the call is sent a
   * second time, and a `begin` that was made later would be executed before it.
   */
  #releasing = new Map<string, Promise<unknown>>()

  constructor(options: RedisIdempotencyOptions) {
    this.#options = options
    const { client, maxTotal, share } = options
    const trim = (org: string, bytes: number) =>
      client.script(SCRIPTS.trim, indexOf(org), [nameOf(org, ''), bytes]) as Promise<never>
    this.shares = new Shares({ client, kind: 'idempotency', total: maxTotal, share, trim })
  }

  async begin(
    org: string,
    key: string,
    fingerprint: string,
    requestId: string,
    _ttlMs?: number,
    _now?: number,
    onLost?: () => void,
  ): Promise<IdempotencyState> {
    const { client, leaseMs, clock } = this.#options
    const name = nameOf(org, key)
    // A client that was refused may retry at once, with another body.
    await this.#releasing.get(name)
    // It may still run here when its mark has run out: a second execution in this process would end under its name.
    const here = this.#running.get(name)
    if (here && (!here.finish || here.refused) && here.requestId !== requestId)
      return { state: here.fingerprint === fingerprint ? 'running' : 'conflict' }
    const renewedMono = clock.mono()
    const reply = (await client.script(SCRIPTS.begin, [name], [fingerprint, requestId, leaseMs])) as Buffer[]
    const state = reply[0]!.toString() as IdempotencyState['state']
    if (state === 'first') {
      const marks = { renewedMono, lost: false, claimed: false, refused: false, onLost, finish: undefined }
      this.#running.set(name, { name, org, requestId, fingerprint, ...marks })
    }
    if (state === 'not_kept') return { state, requestId: reply[1]!.toString() }
    if (state !== 'replay') return { state }
    const [, request, status, headers, body, whole, asked] = reply
    return {
      state,
      record: {
        requestId: request!.toString(),
        status: Number(status!.toString()),
        headers: JSON.parse(headers!.toString()) as [string, string][],
        body: body!,
        whole: whole!.toString() === '1',
        ...(asked && { asked: asked.toString() }),
      },
    }
  }

  async claim(org: string, key: string, ttlMs: number): Promise<boolean> {
    const { client, leaseMs } = this.#options
    const running = this.#running.get(nameOf(org, key))
    if (!running || running.lost) return false
    const { name, requestId, fingerprint } = running
    const args = [requestId, fingerprint, leaseMs, ttlMs]
    running.claimed = (await client.script(SCRIPTS.claim, [name], args)) === 1
    running.lost = !running.claimed
    return running.claimed
  }

  holds(org: string, key: string): boolean {
    const { leaseMs, clock } = this.#options
    const running = this.#running.get(nameOf(org, key))
    if (!running || running.lost) return false
    return running.claimed || clock.mono() - running.renewedMono < leaseMs
  }

  async finish(org: string, key: string, record: IdempotencyRecord | null, ttlMs: number): Promise<void> {
    const { maxRecord } = this.#options
    const name = nameOf(org, key)
    const running = this.#running.get(name)
    if (!running) return
    const keys = [name, ...indexOf(org)]
    const base = [running.fingerprint, running.requestId, ttlMs, this.shares.share, nameOf(org, ''), key]
    const kept = record && record.body.length <= maxRecord ? record : null
    const reply = kept
      ? [
          kept.status,
          JSON.stringify(kept.headers),
          Buffer.from(kept.body.buffer, kept.body.byteOffset, kept.body.length),
          kept.whole ? '1' : '0',
          ...(kept.asked === undefined ? [] : [kept.asked]),
        ]
      : []
    running.finish = { keys, args: [...base, ...reply] }
    await this.#deliver(running)
  }

  /**
   * On failure it is offered again with the next renewal. Until Redis has it the key counts as running, and is never
   * free to run again.
   */
  async #deliver(running: Running): Promise<void> {
    const { name, org, finish } = running
    try {
      this.shares.stored(org, await this.#options.client.script(SCRIPTS.finish, finish!.keys, finish!.args))
    } catch (error) {
      running.refused = true
      throw error
    }
    this.#running.delete(name)
  }

  async release(org: string, key: string): Promise<void> {
    const { client } = this.#options
    const name = nameOf(org, key)
    const running = this.#running.get(name)
    if (!running) return
    // If Redis does not answer, the mark expires by itself.
    this.#running.delete(name)
    if (running.lost) return
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

  /**
   * Renews the marks of running first uses, and delivers what could not be written to Redis when they ended. A first
   * use that another has taken over, while this process stood still or could not reach Redis, learns so.
   */
  async renew(): Promise<void> {
    const marks = [...this.#running.values()]
    for (let i = 0; i < marks.length; i += 100)
      await Promise.all(marks.slice(i, i + 100).map(running => this.#renewOne(running)))
    const ended = marks.filter(({ finish }) => finish).slice(0, DELIVERED_AT_ONCE)
    await Promise.allSettled(ended.map(running => this.#deliver(running)))
  }

  async #renewOne(running: Running): Promise<void> {
    const { client, leaseMs, clock } = this.#options
    const { name, requestId, fingerprint } = running
    // Released meanwhile: to renew it would mark the key again.
    if (this.#running.get(name) !== running) return
    const renewedMono = clock.mono()
    const renewed = await client.script(SCRIPTS.lease, [name], [requestId, leaseMs, fingerprint])
    if (renewed === 1) running.renewedMono = renewedMono
    else if (!running.finish && this.#running.get(name) === running) {
      running.lost = true
      running.onLost?.()
    }
  }
}

function nameOf(org: string, key: string): string {
  return `sluice:${tagOf(org)}:idem:${key}`
}

/** What an organization has: the index of kept replies, the sum of the bytes, the index of marks. */
export function indexOf(org: string): string[] {
  const index = `sluice:${tagOf(org)}:idem`
  return [index, `${index}-bytes`, `${index}-marks`]
}
