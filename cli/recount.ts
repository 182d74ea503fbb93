/** Counts a request's body again, as the gateway counts it: for `sluice verify`. */

import { keepArguments, largeArguments } from '../core/canon/arguments.ts'
import type { Conversation } from '../core/canon/conversation.ts'
import { exactValues, replaceAt } from '../core/tools/json.ts'
import { jsonBytes, type MediaMinimums, meterPool, PromptCount, parseJson } from '../meter/index.ts'
import { atOnce, Finder, KINDS, Pace } from '../plugins/extra/pii-mask/find.ts'
import { Masking } from '../plugins/extra/pii-mask/prompt.ts'
import { surfaces } from '../surfaces/index.ts'

/**
 * The tokens of a body, and why the bill may have others; or why it cannot be counted. `more` is the most by which the
 * bill can be above the count for these reasons.
 */
export type Recount = { tokens: number; unless: string | null; more: number } | { tokens: null; why: string }

/**
 * @param surface the name of the API that the request was sent to, as its receipt has it
 * @param rewritten whether the gateway changes prompts before it counts them
 */
export async function recount(
  surface: string,
  body: Uint8Array,
  media: MediaMinimums,
  rewritten = false,
): Promise<Recount> {
  const spoken = Object.hasOwn(surfaces, surface) ? surfaces[surface]! : undefined
  if (!spoken) return { tokens: null, why: `requests to ${surface} are not counted by their bodies` }
  let asked: Conversation
  try {
    const value = parseJson(body) as Record<string, unknown>
    if (spoken.argumentsAt)
      replaceAt(value, spoken.argumentsAt, exactValues(jsonBytes(body).toString('utf8'), spoken.argumentsAt))
    spoken.validate(value, 'strip')
    asked = spoken.parse(value)
  } catch {
    return { tokens: null, why: 'this release does not take such a body' }
  }
  const large = largeArguments(asked)
  if (large.length > 0) {
    const made = await meterPool().normalise(large.map(call => call.input))
    for (const [i, call] of large.entries()) keepArguments(call, made[i]!.text || call.input)
  }
  const why = reasonsOf(asked, rewritten)
  return {
    tokens: await new PromptCount(asked).inPool(media),
    unless: why.map(({ unless }) => unless).join('; ') || null,
    more: why.reduce((sum, { more }) => sum + more, 0),
  }
}

interface Reason {
  unless: string
  /** Infinite where it cannot be told. */
  more: number
}

/** What else than the body the count of a request may depend on. */
function reasonsOf(asked: Conversation, rewritten: boolean): Reason[] {
  const found: Reason[] = []
  const any = (unless: string) => void found.push({ unless, more: Number.POSITIVE_INFINITY })
  if (asked.previousResponseId !== undefined) any('it continues a response that the gateway kept')
  if (asked.sealed) any('it has the capsule of a compaction, which the gateway alone can open')
  if (asked.compaction) any('the gateway may have compacted it, which is billed too')
  if (rewritten) any('the gateway changes prompts before it counts them')
  const parts = asked.turns.flatMap(turn =>
    turn.parts.flatMap(part => (part.type === 'result' ? part.content : [part])),
  )
  const counted = parts.find(part => part.type === 'image' || part.type === 'document')
  if (counted) any(`it has an ${counted.type}, of which the gateway may count another minimum`)
  // An edit that would not save tokens is not made.
  if (asked.edits) found.push({ unless: 'the gateway may have cleared parts of its history', more: 0 })
  const data = maskable(asked)
  if (data > 0)
    found.push({
      unless: `it has personal data (${data === 1 ? 'one datum' : `${data} data`}), which the gateway may have masked before it counted`,
      more: data * MASKED_TOKENS,
    })
  return found
}

/** The most tokens by which `[EMAIL_QWHDKXZB]` in the place of a datum makes a text longer; a character is one at most. */
const MASKED_TOKENS = 24

/** How many data `pii-mask` would replace, with no patterns of its own. */
function maskable(asked: Conversation): number {
  let found = 0
  class Counting extends Finder {
    override *find(text: string, pace: Pace): ReturnType<Finder['find']> {
      const spans = yield* super.find(text, pace)
      found += spans.length
      return spans
    }
  }
  const unbounded = { found: Number.POSITIVE_INFINITY, patternWork: Number.POSITIVE_INFINITY }
  atOnce(new Masking(new Counting(KINDS, []), kind => `[${kind}]`, new Pace(unbounded)).conversation(asked))
  return found
}
