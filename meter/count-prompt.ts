/** The count of a prompt, with what was counted before recognised, on the event loop or off it. */
import type { Conversation } from '../core/conversation.ts'
import { CACHED_FROM, CountCache, digest, digestInSlices, digestRow } from './cache.ts'
import { countTokens } from './counter.ts'
import { createMeterPool, type MeterPool } from './pool.ts'
import { type Bill, bill, type MediaMinimums } from './prompt.ts'

/**
 * A prompt with more uncounted UTF-16 units than this is counted in the pool. At the slowest adversarial rate (docs/metering.md) this much holds up the event
 * loop for under 10 ms, at the natural one for about 1 ms; handing it over and back costs about a quarter of one.
 */
export const SYNC_LIMIT = 1 << 15

/** Up to this many units are digested at one go, under 1 ms; larger prompts are digested in slices. */
const DIGEST_LIMIT = 1 << 19
const DIGEST_SLICE = 1 << 18

/** What any text costs besides its length, in units: the calls, the entry in a row. */
const EACH = 16

/** Units from which on a row of texts is complete. Short parts behind the last complete row are counted again at each turn, so a row is not long. */
const ROW = 1 << 15

/** What counts are remembered in: some 130,000 parts and rows. */
const CACHE_BYTES = 16 << 20

const remembered = new CountCache(CACHE_BYTES)

let shared: MeterPool | undefined

/** The process's pool. Its threads start when first used. */
export function meterPool(): MeterPool {
  return (shared ??= createMeterPool())
}

/** `texts[from, to)`: a text, or several in a row. */
interface Look {
  from: number
  to: number
  units: number
}

/**
 * The prompt tokens of a conversation, by the bill's rule (prompt.ts). What this process counted before is not counted again: agents resend their history with
 * each turn. Long parts are recognised one by one, and in rows, which costs less and takes in the short ones between them.
 */
export class PromptCount {
  readonly #bill: Bill
  /** Per text: its tokens, or -1. The first of a row that was recognised has the tokens of all, the others 0. */
  readonly #counts: number[]
  /** Per text: its digest, where one was made. */
  readonly #keys: string[] = []
  /** Rows that were not recognised. */
  readonly #rows: { key: string; from: number; to: number }[] = []
  #recalled: boolean

  /** The conversation must stay as it is until it is counted. */
  constructor(conversation: Conversation) {
    this.#bill = bill(conversation)
    const { texts, size } = this.#bill
    this.#counts = new Array<number>(texts.length).fill(-1)
    this.#recalled = size < CACHED_FROM
  }

  /**
   * How much is still to be counted, cheaply: in UTF-16 units, and `EACH` a text. At most `SYNC_LIMIT` means that `now` is quick; more, that `inPool` is the
   * one to call.
   */
  get size(): number {
    const { texts } = this.#bill
    const size = this.#bill.size + EACH * texts.length
    if (size <= SYNC_LIMIT || size > DIGEST_LIMIT) return size
    this.#recall()
    let left = 0
    for (let i = 0; i < texts.length; i++) if (this.#counts[i]! < 0) left += texts[i]!.length + EACH
    return left
  }

  now(media: MediaMinimums): number {
    this.#recall()
    const { texts } = this.#bill
    for (let i = 0; i < texts.length; i++) if (this.#counts[i]! < 0) this.#learn(i, countTokens(texts[i]!))
    return this.#total(media)
  }

  /**
   * The same off the event loop. Rejects with `MeterBusy` when the pool's queue is full (503 `route_capacity`), and with the signal's reason when it aborts,
   * which frees the job's place.
   */
  async inPool(media: MediaMinimums, signal?: AbortSignal, pool: MeterPool = meterPool()): Promise<number> {
    await this.#recallInSlices()
    const { texts } = this.#bill
    const counts = this.#counts
    const missing: number[] = []
    /** Digest → place in `missing`: a text that stands twice is counted once. */
    const first = new Map<string, number>()
    for (let i = 0; i < texts.length; i++) {
      if (counts[i]! >= 0) continue
      const key = this.#keys[i]
      if (key !== undefined) {
        if (first.has(key)) continue
        first.set(key, i)
      }
      missing.push(i)
    }
    const counted = await pool.count(
      missing.map(i => texts[i]!),
      signal,
    )
    for (let k = 0; k < missing.length; k++) this.#learn(missing[k]!, counted[k]!)
    for (let i = 0; i < texts.length; i++) if (counts[i]! < 0) counts[i] = counts[first.get(this.#keys[i]!)!]!
    return this.#total(media)
  }

  #total(media: MediaMinimums): number {
    for (const { key, from, to } of this.#rows) {
      let sum = 0
      for (let i = from; i < to; i++) sum += this.#counts[i]!
      remembered.set(key, sum)
    }
    this.#rows.length = 0
    return this.#bill.total(this.#counts, media)
  }

  #learn(index: number, count: number): void {
    this.#counts[index] = count
    const key = this.#keys[index]
    if (key !== undefined) remembered.set(key, count)
  }

  #recall(): void {
    if (this.#recalled) return
    this.#recalled = true
    for (const look of this.#looks()) this.#lookUp(look)
  }

  async #recallInSlices(): Promise<void> {
    if (this.#recalled) return
    const rest = () => new Promise<void>(resolve => setImmediate(resolve))
    let units = 0
    for (const look of this.#looks()) {
      if ((units += look.units) > DIGEST_SLICE) {
        await rest()
        units = look.units
      }
      if (look.units <= DIGEST_SLICE) this.#lookUp(look)
      else this.#found(look.from, await digestInSlices(this.#bill.texts[look.from]!, DIGEST_SLICE, rest))
    }
    this.#recalled = true
  }

  /** What to look up. A row begins where the one before it ends, so a history that only grows gives the same rows each turn. */
  #looks(): Look[] {
    const { texts, textDocuments } = this.#bill
    const looks: Look[] = []
    let from = 0
    let units = 0
    const row = (to: number) => {
      if (to - from > 1 && units >= CACHED_FROM) looks.push({ from, to, units })
      else if (to > from) alone(to)
      from = to
      units = 0
    }
    const alone = (to: number) => {
      for (let i = from; i < to; i++)
        if (texts[i]!.length >= CACHED_FROM) looks.push({ from: i, to: i + 1, units: texts[i]!.length })
      from = to
    }
    let documents = 0
    for (let i = 0; i < texts.length; i++) {
      const { length } = texts[i]!
      const document = textDocuments[documents] === i
      if (document) documents++
      // A text that would fill a row by itself stands alone, and so does a text document: the bill asks for its own count.
      if (document || length >= ROW) {
        row(i)
        alone(i + 1)
      } else if ((units += length + EACH) >= ROW) row(i + 1)
    }
    alone(texts.length)
    return looks
  }

  #lookUp({ from, to }: Look): void {
    const { texts } = this.#bill
    if (to === from + 1) {
      this.#found(from, digest(texts[from]!))
      return
    }
    const key = digestRow(texts, from, to)
    const count = remembered.get(key)
    if (count === undefined) {
      this.#rows.push({ key, from, to })
      for (let i = from; i < to; i++) if (texts[i]!.length >= CACHED_FROM) this.#found(i, digest(texts[i]!))
    } else {
      this.#counts.fill(0, from, to)
      this.#counts[from] = count
    }
  }

  #found(index: number, key: string): void {
    this.#keys[index] = key
    this.#counts[index] = remembered.get(key) ?? -1
  }
}
