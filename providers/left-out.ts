/**
 * What a dialect left out of a request or changed: the closed list of wire.md F.8 (decision 30). A backend that cannot
 * carry something outside this list is unfit for the request.
 */
import type { Conversation } from '../core/canon/conversation.ts'
import type { Adjustment } from '../core/ports/dialect.ts'
import { wantedEffort } from './effort.ts'

/** The controls as they were sent upstream. Absent or undefined means left out. */
export interface SentControls {
  temperature?: unknown
  topP?: unknown
  seed?: unknown
  verbosity?: unknown
  /** The cap of output tokens, from a dialect that may raise it. */
  cap?: number | undefined
  /** An effort level. */
  effort?: unknown
  /** What is sent in place of an effort level, such as a budget of thinking. */
  insteadOfEffort?: string | undefined
  /** The hints for a hosted search that the dialect has members for. */
  searchHints?: readonly ('userLocation' | 'contextSize')[]
  /** The provider keeps the request's bound on the number of searches. */
  searchLimit?: boolean
}

/** Compares what a conversation asks for with what is sent. */
export function adjustments(conversation: Conversation, sent: SentControls): Adjustment[] {
  const { sampling, verbosity, reasoning, maxSearches } = conversation
  const out: Adjustment[] = []
  note(out, 'temperature', sampling.temperature, sent.temperature)
  note(out, 'top_p', sampling.topP, sent.topP)
  note(out, 'seed', sampling.seed, sent.seed, sent.seed !== undefined)
  note(out, 'verbosity', verbosity, sent.verbosity)
  const { maxOutputField, maxOutputTokens } = conversation
  if (maxOutputField !== undefined && sent.cap !== undefined) note(out, maxOutputField, maxOutputTokens, sent.cap)
  const effort = reasoning.asked ?? wantedEffort(conversation)
  note(out, 'effort', effort, sent.effort ?? sent.insteadOfEffort, sent.effort === undefined)
  for (const tool of conversation.tools) {
    if (tool.type !== 'web_search') continue
    if (tool.userLocation && !sent.searchHints?.includes('userLocation')) out.push({ control: 'user_location' })
    if (tool.contextSize && !sent.searchHints?.includes('contextSize')) out.push({ control: 'search_context_size' })
    if (sent.searchLimit) continue
    if (tool.maxUses !== undefined) out.push({ control: 'max_uses' })
    else if (maxSearches !== undefined) out.push({ control: 'max_tool_calls' })
  }
  return out
}

function note(out: Adjustment[], control: string, asked: unknown, sent: unknown, same = false): void {
  if (asked === undefined || asked === sent) return
  if (sent === undefined) out.push({ control })
  else out.push({ control, asked: String(asked), sent: String(sent), ...(same && { same }) })
}

/** For the log: `seed`, `temperature 1.5 as 1`. */
export function inWords({ control, asked, sent }: Adjustment): string {
  return sent === undefined ? control : `${control} ${asked} as ${sent}`
}
