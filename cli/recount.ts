/** Counts a request's body again, as the gateway counts it: for `sluice verify`. */

import { keepArguments, largeArguments } from '../core/canon/arguments.ts'
import type { Conversation } from '../core/canon/conversation.ts'
import { exactValues, replaceAt } from '../core/tools/json.ts'
import { jsonBytes, type MediaMinimums, meterPool, PromptCount, parseJson } from '../meter/index.ts'
import { surfaces } from '../surfaces/index.ts'

/** The tokens of a body, and why the bill may have others; or why it cannot be counted. */
export type Recount = { tokens: number; unless: string | null } | { tokens: null; why: string }

/** @param surface the name of the API that the request was sent to, as its receipt has it */
export async function recount(surface: string, body: Uint8Array, media: MediaMinimums): Promise<Recount> {
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
  return { tokens: await new PromptCount(asked).inPool(media), unless: unlessOf(asked) }
}

/** What else than the body the count of a request may depend on. */
function unlessOf(asked: Conversation): string | null {
  if (asked.previousResponseId !== undefined) return 'it continues a response that the gateway kept'
  if (asked.sealed) return 'it has the capsule of a compaction, which the gateway alone can open'
  if (asked.compaction) return 'the gateway may have compacted it, which is billed too'
  if (asked.edits) return 'the gateway may have cleared parts of its history'
  const parts = asked.turns.flatMap(turn =>
    turn.parts.flatMap(part => (part.type === 'result' ? part.content : [part])),
  )
  const counted = parts.find(part => part.type === 'image' || part.type === 'document')
  return counted ? `it has an ${counted.type}, of which the gateway may count another minimum` : null
}
