/**
 * The shares of organizations in what is retained in Redis: one object for records, one for the replies of idempotency
 * keys, one for values of plugins. The sum of one organization is kept in its own cluster slot, in the step that stores something, which also
 * evicts its oldest when its share is full. The sums of all are kept in the slot of `{sluice:shares}`:
 *
 *   {sluice:shares}:KIND         sorted set: the bytes of each organization
 *   {sluice:shares}:KIND:due     sorted set: when each has something that ends, Unix ms
 *   {sluice:shares}:KIND:bytes   the sum of all
 *
 * Each step reports the organization's new sum there, a moment later and in batches. When all is full, the process that
 * learns of it evicts from the largest share. A report may be lost, or overtaken by an older one of another process; so
 * a process asks once more for the sums of organizations for which it has stored something, and reports them again.
 *
 * What a release without shares stores is not counted, and leaves with its time to live; of the replies of idempotency
 * keys it counts the bytes of each organization in the same way.
 */
import type { KeptStats, Retained } from '../../core/ports/store.ts'
import type { RedisClient } from './client.ts'
import { script } from './scripts.ts'

const REPORT = script('shares_report')
const DUE = script('shares_due')
/** One call reports at most this many organizations. */
const BATCH = 100
/** One look at what has ended takes at most this many organizations, for at most this long, ms. */
const DUE_AT_ONCE = 50
const TAKEN_MS = 10_000
/** The sums of at most this many organizations are asked for at once. */
const WROTE_AT_ONCE = 50

/**
 * The largest share gives way by so much of the total at once, beyond what makes it as large as the next: little, so
 * that shares stay alike, and enough to come to an end soon.
 */
const STEP = 0.01

/** What a script of retained things returns: bytes of the organization, evicted, when its next one ends (or -1). */
export type Trimmed = readonly [bytes: number, evicted: number, ends: number]

export interface SharesOptions {
  client: RedisClient
  kind: Retained
  /** The most bytes of all. */
  total: number
  /** The part of it that one organization may have. */
  share: number
  /** Forgets what has ended, and evicts the oldest above `bytes`, as much as one call does. */
  trim(org: string, bytes: number): Promise<Trimmed>
}

export class Shares {
  /** The most bytes of one organization. */
  readonly share: number
  readonly #options: SharesOptions
  readonly #keys: readonly [bytes: string, due: string, sum: string]
  /** What is to be reported, by organization. */
  readonly #news = new Map<string, Trimmed>()
  /** Organizations that have stored something here since their sum was asked for. */
  readonly #wrote = new Set<string>()
  #reporting: Promise<void> | undefined
  readonly #stats: KeptStats[Retained] = { bytes: 0, evicted: { share: 0, total: 0 } }

  constructor(options: SharesOptions) {
    this.#options = options
    this.share = Math.floor(options.total * options.share)
    const key = `{sluice:shares}:${options.kind}`
    this.#keys = [key, `${key}:due`, `${key}:bytes`]
  }

  get stats(): KeptStats[Retained] {
    return this.#stats
  }

  /** Takes what a step returned that stored something; an empty answer of one that stored nothing is ignored. */
  stored(org: string, answer: unknown): void {
    const trimmed = answer as Trimmed | []
    if (trimmed.length === 0) return
    this.#stats.evicted.share += trimmed[1]
    this.#news.set(org, trimmed)
    this.#wrote.add(org)
    // What fails is reported again by the next beat.
    this.report().catch(() => {})
  }

  /** Reports what is to be reported, and evicts what is above the bounds. Rejects when Redis fails. */
  report(): Promise<void> {
    this.#reporting ??= this.#reportAll().finally(() => {
      this.#reporting = undefined
    })
    return this.#reporting
  }

  /** Called with every renewal of the lease: forgets what has ended. Rejects when Redis fails. */
  async beat(): Promise<void> {
    await this.report()
    const orgs = (await this.#options.client.script(DUE, [this.#keys[1]], [DUE_AT_ONCE, TAKEN_MS])) as Buffer[]
    for (const org of orgs) await this.#trim(org.toString(), this.share, 'share')
    for (const org of [...this.#wrote].slice(0, WROTE_AT_ONCE)) {
      await this.#trim(org, this.share, 'share')
      this.#wrote.delete(org)
    }
    // Also without news: this is how a process learns the sum, and goes on evicting.
    await this.#send([])
    await this.report()
  }

  /** Removes all that an organization has. Rejects when Redis fails. */
  async clear(org: string): Promise<void> {
    for (let evicted = 1; evicted > 0; ) {
      const trimmed = await this.#options.trim(org, 0)
      this.#news.set(org, trimmed)
      evicted = trimmed[1]
    }
    await this.report()
  }

  async #reportAll(): Promise<void> {
    while (this.#news.size > 0) {
      const batch = [...this.#news].slice(0, BATCH)
      for (const [org] of batch) this.#news.delete(org)
      try {
        await this.#send(batch)
      } catch (error) {
        for (const [org, trimmed] of batch) if (!this.#news.has(org)) this.#news.set(org, trimmed)
        throw error
      }
      for (const [org, [bytes]] of batch) if (bytes > this.share) await this.#trim(org, this.share, 'share')
    }
  }

  async #send(batch: readonly (readonly [string, Trimmed])[]): Promise<void> {
    const { client, total } = this.#options
    const args = batch.flatMap(([org, [bytes, , ends]]) => [org, bytes, ends])
    const answer = (await client.script(REPORT, this.#keys, [total, ...args])) as [number, ...Buffer[]]
    const [sum, largest] = answer
    this.#stats.bytes = sum
    if (!largest) return
    const [bytes, next] = answer.slice(2).map(text => Number(text.toString())) as [number, number]
    // A step at a time: after it, another share may be the largest.
    const left = Math.max(bytes - (sum - total), next - Math.ceil(total * STEP), 0)
    await this.#trim(largest.toString(), left, 'total')
  }

  /** Trims one organization by a slice. What it has then is news. */
  async #trim(org: string, bytes: number, cause: 'share' | 'total'): Promise<void> {
    const trimmed = await this.#options.trim(org, Math.min(bytes, this.share))
    this.#stats.evicted[cause] += trimmed[1]
    this.#news.set(org, trimmed)
  }
}
