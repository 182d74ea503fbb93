/**
 * Counts a prompt, on the event loop or in the pool of threads. Texts that this process has counted before are not
 * counted again.
 */
import type { Conversation } from '../core/canon/conversation.ts'
import { type Budget, jobs } from '../core/engine/budget.ts'
import { CACHED_FROM, CountCache, digest, digestInSlices, digestRow } from './cache.ts'
import { countTokens } from './counter.ts'
import type { Counted, KnownPrompt } from './known-prompt.ts'
import { createMeterPool, type MeterPool } from './pool.ts'
import { contentOf, type MediaMinimums, type PromptContent } from './prompt.ts'

/**
 * A prompt with more uncounted UTF-16 units than this is counted in the pool. Counting this many blocks the event loop
 * for less than 10 ms for the slowest adversarial text (docs/metering.md), and for about 1 ms for natural text. Sending
 * a job to a thread and back costs about 0.25 ms.
 */
export const SYNC_LIMIT = 1 << 15

/** A prompt of up to this many UTF-16 units is digested without a pause, in less than 1 ms. Larger ones are sliced. */
const DIGEST_LIMIT = 1 << 19
/** The event loop gets a turn after this many digested UTF-16 units of a large prompt. */
const DIGEST_SLICE = 1 << 18

/** What each text costs besides its length (calls, its entry in a row), expressed in UTF-16 units. */
export const EACH_TEXT = 16

/**
 * A row of texts is complete when it has this many UTF-16 units. Short texts behind the last complete row are counted
 * again with each request, so a row must not be long.
 */
const ROW = 1 << 15

/**
 * Texts that are new in a conversation whose other texts are known are looked up from this length on: they are known
 * themselves in the next turn, and a digest of 2 KB takes half as long as counting them.
 */
const NEW_CACHED_FROM = 8192

/** The memory of the cache of counts, in bytes: enough for about 130,000 texts and rows. */
const CACHE_BYTES = 16 << 20

const remembered = new CountCache(CACHE_BYTES)

let shared: MeterPool | undefined

/** The pool of this process. Each thread starts when it is first needed. */
export function meterPool(): MeterPool {
  return (shared ??= createMeterPool())
}

export const threadsBudget: Budget = {
  name: 'meter_threads',
  bound: 'threads that count large prompts, and as many that parse bodies of more than 4 MiB',
  owner: 'tenant',
  each: 'by turns; a prompt gives its thread up after each 128 KiB',
  all: 'one less than the cores of the machine, from 1 to 4',
  over: 'nothing: the next waits',
  seen: '`sluice_meter_jobs`',
  metrics: [
    jobs(
      'sluice_meter_jobs',
      'Large prompts being counted off the event loop, and waiting for a thread.',
      () => meterPool().jobs,
    ),
  ],
}

/** One look-up in the cache: of `texts[from, to)`, which is one text or a row of several. */
interface Look {
  from: number
  to: number
  units: number
}

/**
 * Counts the prompt tokens of a conversation, by the rule of prompt.ts. Texts that this process has counted before are
 * not counted again, because agents send their history again with each request. Texts are looked up in the cache in
 * rows of neighbouring texts. This costs less than looking up each text, and also covers short texts. If a row is
 * unknown, its long texts are looked up one by one.
 */
export class PromptCount {
  readonly #content: PromptContent
  /**
   * For each text: its tokens, or -1 before it is counted. In a row from the cache, the first text has the sum of all
   * and the others have 0.
   */
  readonly #counts: number[]
  /** For each text: its digest, if one was made. */
  readonly #keys: string[] = []
  /** Rows that were not in the cache. */
  readonly #rows: { key: string; from: number; to: number }[] = []
  /** Of the texts that were counted together: where they begin, and where they end. */
  readonly #together = new Map<number, number>()
  readonly #known: KnownPrompt | undefined
  /** The first text that was not in the last turn of the conversation. */
  readonly #begin: number
  /** Whether the cache has been searched; also true when the prompt is too short for the cache. */
  #recalled: boolean

  /**
   * The conversation must not change until it is counted.
   * @param known of its last turn; it is given what is counted now
   */
  constructor(conversation: Conversation, known?: KnownPrompt) {
    this.#known = known
    this.#content = contentOf(conversation, known)
    const { texts, size, textDocuments } = this.#content
    this.#counts = new Array<number>(texts.length).fill(-1)
    this.#begin = known?.recall(texts, textDocuments, (from, to, tokens) => this.#foundAll(from, to, tokens)) ?? 0
    this.#recalled = size < CACHED_FROM || this.#begin === texts.length
  }

  /**
   * How much is still to be counted, in UTF-16 units, with `EACH_TEXT` units for each text. It is cheap to get. When it is
   * at most `SYNC_LIMIT`, `now` is fast; otherwise call `inPool`.
   */
  get size(): number {
    const { texts } = this.#content
    let size = this.#content.size + EACH_TEXT * texts.length
    for (let i = 0; i < this.#begin; i++) size -= texts[i]!.length + EACH_TEXT
    if (size <= SYNC_LIMIT || size > DIGEST_LIMIT) return size
    this.#recall()
    let left = 0
    for (let i = 0; i < texts.length; i++) if (this.#counts[i]! < 0) left += texts[i]!.length + EACH_TEXT
    return left
  }

  /** Counts at once, on the event loop. @returns the tokens of the prompt */
  now(media: MediaMinimums): number {
    this.#recall()
    const { texts } = this.#content
    for (let i = 0; i < texts.length; i++) if (this.#counts[i]! < 0) this.#learn(i, countTokens(texts[i]!))
    return this.#total(media)
  }

  /**
   * The same off the event loop. Rejects with `MeterBusy` when the pool has no thread (503 `route_capacity`), and with
   * the signal's reason when it aborts, which frees the job's place.
   * @param owner the organization whose turn it waits for
   */
  async inPool(media: MediaMinimums, signal?: AbortSignal, pool: MeterPool = meterPool(), owner = ''): Promise<number> {
    await this.#recallInSlices()
    const { texts } = this.#content
    const counts = this.#counts
    const missing: number[] = []
    // Digest → index of the first text with that digest. A repeated text is counted once.
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
      owner,
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
    this.#teach()
    return this.#content.total(this.#counts, media)
  }

  #teach(): void {
    if (!this.#known) return
    const counted: Counted[] = []
    for (let from = 0; from < this.#counts.length; ) {
      const to = this.#together.get(from) ?? from + 1
      counted.push({ to, tokens: this.#counts[from]! })
      from = to
    }
    this.#known.learn(this.#content.texts, counted)
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
      else this.#found(look.from, await digestInSlices(this.#content.texts[look.from]!, DIGEST_SLICE, rest))
    }
    this.#recalled = true
  }

  /**
   * What to look up in the cache. Each row begins where the one before it ends. So a history that only grows gives the
   * same rows with each request.
   */
  #looks(): Look[] {
    const { texts, textDocuments } = this.#content
    const looks: Look[] = []
    const least = this.#begin > 0 ? NEW_CACHED_FROM : CACHED_FROM
    let from = this.#begin
    let units = 0
    const row = (to: number) => {
      if (to - from > 1 && units >= least) looks.push({ from, to, units })
      else if (to > from) alone(to)
      from = to
      units = 0
    }
    const alone = (to: number) => {
      for (let i = from; i < to; i++)
        if (texts[i]!.length >= least) looks.push({ from: i, to: i + 1, units: texts[i]!.length })
      from = to
    }
    let documents = 0
    while (textDocuments[documents]! < from) documents++
    for (let i = from; i < texts.length; i++) {
      const { length } = texts[i]!
      const document = textDocuments[documents] === i
      if (document) documents++
      // A text that would fill a row by itself is not put in a row. Nor is a text document: the rule needs its own
      // count.
      if (document || length >= ROW) {
        row(i)
        alone(i + 1)
      } else if ((units += length + EACH_TEXT) >= ROW) row(i + 1)
    }
    alone(texts.length)
    return looks
  }

  #lookUp({ from, to }: Look): void {
    const { texts } = this.#content
    if (to === from + 1) {
      this.#found(from, digest(texts[from]!))
      return
    }
    const key = digestRow(texts, from, to)
    const count = remembered.get(key)
    if (count === undefined) {
      this.#rows.push({ key, from, to })
      for (let i = from; i < to; i++) if (texts[i]!.length >= CACHED_FROM) this.#found(i, digest(texts[i]!))
    } else this.#foundAll(from, to, count)
  }

  #foundAll(from: number, to: number, count: number): void {
    if (to > from + 1) {
      this.#counts.fill(0, from, to)
      this.#together.set(from, to)
    }
    this.#counts[from] = count
  }

  #found(index: number, key: string): void {
    this.#keys[index] = key
    this.#counts[index] = remembered.get(key) ?? -1
  }
}
