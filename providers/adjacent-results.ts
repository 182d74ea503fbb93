/**
 * Puts tool results directly after the calls that they answer, for dialects that require it (wire.md B.6, F.1).
 * Clients may put assistant or system text between a call and its result, and may answer calls in any order.
 */
import type { CallPart, Part, ResultPart, Turn } from '../core/canon/conversation.ts'

/** An assistant turn with calls and all their results, in the order of the calls; or any other turn. */
export type Step = { type: 'turn'; turn: Turn; index: number } | ToolRound
/** An assistant turn with calls, and their results. */
export interface ToolRound {
  type: 'round'
  /** The parts of the assistant. Text comes before the first call. */
  parts: Part[]
  calls: CallPart[]
  results: ResultPart[]
  /** The index of the round's first turn in the conversation. */
  index: number
}

/**
 * A result without a call is refused earlier (TOOL-4). If one comes here, it is left out, because no dialect accepts
 * it.
 */
export function adjacentResults(turns: readonly Turn[]): Step[] {
  if (!turns.some(isOfTools)) return turns.map((turn, index) => ({ type: 'turn', turn, index }))
  const steps: Step[] = []
  let round: ToolRound | null = null
  let open = new Set<string>()
  let later: Step[] = []
  /** The parts from the first call of the round on. */
  let called: Part[] = []

  const close = () => {
    if (!round) return
    const order = new Map(round.calls.map((call, position) => [call.id, position]))
    round.results.sort((a, b) => order.get(a.callId)! - order.get(b.callId)!)
    round.parts = round.parts.concat(called)
    steps.push(round)
    for (const step of later) steps.push(step)
    round = null
    open = new Set()
    later = []
    called = []
  }

  for (const [index, turn] of turns.entries()) {
    if (turn.role === 'assistant') {
      if (round && open.size === 0) close()
      const calls = turn.parts.filter(part => part.type === 'call')
      if (calls.length === 0 && !round) {
        steps.push({ type: 'turn', turn, index })
        continue
      }
      round ??= { type: 'round', parts: [], calls: [], results: [], index }
      for (const part of turn.parts) addPart(round, called, part)
      for (const call of calls) open.add(call.id)
    } else if (turn.role === 'tool') {
      for (const part of turn.parts) {
        if (part.type === 'result' && round && open.delete(part.callId)) round.results.push(part)
      }
    } else if (turn.role === 'system' && round && open.size > 0) {
      later.push({ type: 'turn', turn, index })
    } else {
      close()
      steps.push({ type: 'turn', turn, index })
    }
  }
  close()
  return steps
}

function isOfTools({ role, parts }: Turn): boolean {
  return role === 'tool' || (role === 'assistant' && parts.some(part => part.type === 'call'))
}

/**
 * Text after a call moves before the first call, because text must come before tool_use (wire.md F.1). Reasoning and
 * searches keep their place among the calls.
 */
function addPart(round: ToolRound, called: Part[], part: Part): void {
  if (part.type === 'call') round.calls.push(part)
  const leads = part.type === 'text' || part.type === 'refusal' || (part.type !== 'call' && called.length === 0)
  if (leads) round.parts.push(part)
  else called.push(part)
}
