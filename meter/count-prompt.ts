/** The count of a prompt, with long parts counted once, on the event loop or off it. */
import { type Conversation, derived } from '../core/conversation.ts'
import { CACHED_FROM, CountCache, digest, digestInSlices } from './cache.ts'
import { countTokens } from './counter.ts'
import { createMeterPool, type MeterPool } from './pool.ts'
import { type Bill, bill, type MediaMinimums } from './prompt.ts'

/**
 * A prompt with more uncounted UTF-16 units than this is counted in the pool. At the slowest adversarial rate (docs/metering.md) this much holds up the event
 * loop for under 10 ms, at the natural one for about 1 ms; handing it over and back costs about a quarter of one.
 */
export const SYNC_LIMIT = 1 << 15

/** Up to this many units are digested at one go, about 1 ms; larger prompts are digested in slices. */
const DIGEST_LIMIT = 1 << 19
const DIGEST_SLICE = 1 << 18

/** What counts are remembered in: some 130,000 parts. */
const CACHE_BYTES = 16 << 20

const remembered = new CountCache(CACHE_BYTES)

/** What is known of a conversation's count so far. Conversations are not changed once they are counted. */
interface Progress {
  bill: Bill
  /** Per text: its tokens, or -1. */
  counts: Int32Array
  /** Per text: its digest, where one was made. */
  keys: (string | undefined)[]
  digested: boolean
}

const progressOf = derived((conversation): Progress => {
  const b = bill(conversation)
  return { bill: b, counts: new Int32Array(b.texts.length).fill(-1), keys: [], digested: false }
})

/** Looks the long texts up in the cache. */
function recall(progress: Progress): void {
  if (progress.digested) return
  progress.digested = true
  const { texts } = progress.bill
  for (let i = 0; i < texts.length; i++) if (texts[i]!.length >= CACHED_FROM) found(progress, i, digest(texts[i]!))
}

async function recallInSlices(progress: Progress): Promise<void> {
  if (progress.digested) return
  const { texts } = progress.bill
  const rest = () => new Promise<void>(resolve => setImmediate(resolve))
  let units = 0
  for (let i = 0; i < texts.length; i++) {
    const text = texts[i]!
    if (text.length < CACHED_FROM) continue
    if ((units += text.length) > DIGEST_SLICE) {
      await rest()
      units = text.length
    }
    found(progress, i, text.length > DIGEST_SLICE ? await digestInSlices(text, DIGEST_SLICE, rest) : digest(text))
  }
  progress.digested = true
}

function found(progress: Progress, index: number, key: string): void {
  progress.keys[index] = key
  progress.counts[index] = remembered.get(key) ?? -1
}

function learn(progress: Progress, index: number, count: number): void {
  progress.counts[index] = count
  const key = progress.keys[index]
  if (key !== undefined) remembered.set(key, count)
}

/**
 * How much of a conversation is still to be counted, in UTF-16 units, cheaply: at most `SYNC_LIMIT` means that `countPrompt` is quick; more, that
 * `countPromptAsync` is the one to call.
 */
export function promptSize(conversation: Conversation): number {
  const progress = progressOf(conversation)
  const { texts, size } = progress.bill
  if (size <= SYNC_LIMIT || size > DIGEST_LIMIT) return size
  recall(progress)
  let left = 0
  for (let i = 0; i < texts.length; i++) if (progress.counts[i]! < 0) left += texts[i]!.length
  return left
}

/** Prompt tokens of a conversation, by the bill's rule (prompt.ts). Long parts that this process counted before are not counted again. */
export function countPrompt(conversation: Conversation, media: MediaMinimums): number {
  const progress = progressOf(conversation)
  recall(progress)
  const { counts } = progress
  const { texts } = progress.bill
  for (let i = 0; i < texts.length; i++) if (counts[i]! < 0) learn(progress, i, countTokens(texts[i]!))
  return progress.bill.total(counts, media)
}

let shared: MeterPool | undefined

/** The process's pool. Its threads start when first used. */
export function meterPool(): MeterPool {
  return (shared ??= createMeterPool())
}

/**
 * `countPrompt` off the event loop. Rejects with `MeterBusy` when the pool's queue is full (503 `route_capacity`), and with the signal's reason when it
 * aborts, which frees the job's place.
 */
export async function countPromptAsync(
  conversation: Conversation,
  media: MediaMinimums,
  signal?: AbortSignal,
  pool: MeterPool = meterPool(),
): Promise<number> {
  const progress = progressOf(conversation)
  await recallInSlices(progress)
  const { counts, keys } = progress
  const { texts } = progress.bill
  const missing: number[] = []
  /** Digest → place in `missing`: a text that stands twice is counted once. */
  const first = new Map<string, number>()
  for (let i = 0; i < texts.length; i++) {
    if (counts[i]! >= 0) continue
    const key = keys[i]
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
  for (let k = 0; k < missing.length; k++) learn(progress, missing[k]!, counted[k]!)
  for (let i = 0; i < texts.length; i++) if (counts[i]! < 0) counts[i] = counts[first.get(keys[i]!)!]!
  return progress.bill.total(counts, media)
}
