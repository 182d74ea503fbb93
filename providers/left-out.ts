/**
 * What a dialect left out of a request or lowered, for the log: the closed list of wire.md F.8 (decision 30). A
 * backend that cannot carry something outside this list is unfit for the request.
 */
import type { Conversation } from '../core/conversation.ts'
import { wantedEffort } from './effort.ts'

/** The controls as they were sent upstream. Absent or undefined means left out. */
export interface SentControls {
  temperature?: unknown
  topP?: unknown
  seed?: unknown
  verbosity?: unknown
  /** An effort level, or the control that was sent in its place. */
  effort?: unknown
  /** The hints for a hosted search that the dialect has members for. */
  searchHints?: readonly ('userLocation' | 'contextSize')[]
}

/** @returns entries such as `seed` or `temperature 1.5 as 1`; they contain no text of the client */
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

function note(out: string[], control: string, requested: unknown, sent: unknown): void {
  if (requested === undefined || requested === sent) return
  out.push(sent === undefined ? control : `${control} ${requested} as ${sent}`)
}
