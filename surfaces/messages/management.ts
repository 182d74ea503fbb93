/**
 * Reads what a Messages body wants done to its own conversation: `context_management` and `compaction`. The body may be
 * anything (reading.ts): what has no meaning is left out.
 */
import type { CompactionWish, ContextEdit, Conversation } from '../../core/canon/conversation.ts'
import { fault } from '../check.ts'
import { isObject, listOf, numberOf, type ObjectOf, stringOf } from '../unchecked.ts'
import type { Reading } from './reading.ts'
import type { MessagesBody } from './schema.ts'

type Management = ObjectOf<MessagesBody['context_management']>
type Edit = ObjectOf<Extract<Management['edits'], readonly unknown[]>[number]>

/** What Anthropic publishes as defaults. */
const CLEAR_ABOVE = 100_000
const COMPACT_ABOVE = 150_000
const KEEP_USES = 3
const KEEP_TURNS = 1

/** @throws GatewayError, in a strict reading, for edits that do not go together */
export function readManagement(body: MessagesBody, reading: Reading): Pick<Conversation, 'compaction' | 'edits'> {
  const management = isObject(body.context_management) ? body.context_management : undefined
  const { compaction: wished } = body
  if (isObject(wished) && (wished.type === 'summarize' || wished.instructions != null)) {
    if (wished.type == null && reading.strict)
      throw fault('missing_required_parameter', 'compaction.type', w => `Missing required parameter: ${w}.`)
    if (management && reading.strict)
      throw fault('invalid_value', 'compaction', w => `${w} and context_management are both given. Keep one of them.`)
    const words = wordsOf(wished.instructions)
    return { compaction: { only: true, keeps: 'nothing', path: 'compaction', ...words } }
  }
  const clear: ContextEdit[] = []
  let compaction: CompactionWish | undefined
  const types = new Set<unknown>()
  for (const [i, edit] of listOf(management?.edits).entries()) {
    if (!isObject(edit)) continue
    const path = `context_management.edits[${i}]`
    if (reading.strict && types.has(edit.type))
      throw fault('invalid_value', `${path}.type`, w => `${w} is ${edit.type} once more. Give each edit once.`)
    if (reading.strict && i > 0 && edit.type === 'clear_thinking_20251015')
      throw fault('invalid_value', path, w => `${w} is ${edit.type}, which has to be the first edit. Move it up.`)
    types.add(edit.type)
    if (edit.type === 'compact_20260112') compaction = compact(edit, path)
    else if (edit.type === 'clear_tool_uses_20250919') clear.push(clearToolUses(edit))
    else if (edit.type === 'clear_thinking_20251015') {
      const keep = turnsOf(edit.keep)
      if (keep !== 'all') clear.push({ type: 'clear_thinking', keep })
    }
  }
  return { ...(compaction && { compaction }), ...(clear.length > 0 && { edits: clear }) }
}

function compact({ trigger, pause_after_compaction, instructions }: Edit, path: string): CompactionWish {
  const above = amountOf(trigger)
  const when = above === undefined ? { threshold: COMPACT_ABOVE, withinWindow: true as const } : { threshold: above }
  return { ...when, only: pause_after_compaction === true, keeps: 'nothing', path, ...wordsOf(instructions) }
}

function clearToolUses(edit: Edit): ContextEdit {
  const { trigger, clear_tool_inputs: inputs } = edit
  const unit = isObject(trigger) && trigger.type === 'tool_uses' ? 'uses' : 'tokens'
  return {
    type: 'clear_tool_uses',
    trigger: { unit, above: amountOf(trigger) ?? CLEAR_ABOVE },
    keep: amountOf(edit.keep) ?? KEEP_USES,
    atLeast: amountOf(edit.clear_at_least) ?? 0,
    inputs: inputs === true || namesOf(inputs),
    exclude: namesOf(edit.exclude_tools),
  }
}

/** How many of the newest turns keep their thinking. */
function turnsOf(keep: unknown): number | 'all' {
  if (keep === 'all' || (isObject(keep) && (keep as { type?: unknown }).type === 'all')) return 'all'
  return amountOf(keep) ?? KEEP_TURNS
}

const amountOf = (value: unknown): number | undefined =>
  isObject(value) ? numberOf((value as { value?: unknown }).value) : undefined

const namesOf = (value: unknown): string[] =>
  (listOf(value) as readonly unknown[]).filter(name => typeof name === 'string')

/** Words that are empty count as absent. */
function wordsOf(instructions: unknown): Pick<CompactionWish, 'instructions'> {
  const words = stringOf(instructions)
  return words?.trim() ? { instructions: words } : {}
}
