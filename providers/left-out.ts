/**
 * What of a request a dialect left out or lowered: the closed list of wire.md F.8, for the log (decisions 30). Anything else that a backend can't
 * carry makes it unfit.
 */
import type { Conversation } from '../core/conversation.ts'
import { wantedEffort } from './effort.ts'

/** Controls as they went upstream; absent or undefined: left out. */
export interface SentControls {
  temperature?: unknown
  topP?: unknown
  seed?: unknown
  verbosity?: unknown
  /** A level, or another control that stands for one. */
  effort?: unknown
  /** Hints of a hosted search that the dialect has members for. */
  searchHints?: readonly ('userLocation' | 'contextSize')[]
}

/** @returns words such as `seed` or `temperature 1.5 as 1`; no text of the client's */
export function leftOut(conversation: Conversation, sent: SentControls): string[] {
  const { sampling, verbosity } = conversation
  const out: string[] = []
  note(out, 'temperature', sampling.temperature, sent.temperature)
  note(out, 'top_p', sampling.topP, sent.topP)
  note(out, 'seed', sampling.seed, sent.seed)
  note(out, 'verbosity', verbosity, sent.verbosity)
  note(out, 'effort', wantedEffort(conversation), sent.effort)
  for (const tool of conversation.tools) {
    if (tool.type !== 'web_search') continue
    if (tool.userLocation && !sent.searchHints?.includes('userLocation')) out.push('user_location')
    if (tool.contextSize && !sent.searchHints?.includes('contextSize')) out.push('search_context_size')
  }
  return out
}

function note(out: string[], control: string, asked: unknown, sent: unknown): void {
  if (asked === undefined || asked === sent) return
  out.push(sent === undefined ? control : `${control} ${asked} as ${sent}`)
}
