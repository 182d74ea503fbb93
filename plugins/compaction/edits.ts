/** Clears parts of a history, as Messages' `context_management` describes it. The same history is cleared alike. */

import type { CallPart, ContextEdit, Conversation, Edited, Part, Turn } from '../../core/canon/conversation.ts'
import type { Reply } from '../../core/plugin.ts'
import type { MaybePromise } from '../../core/ports/store.ts'

/** What the model reads in place of a result that was cleared. */
export const CLEARED = '[cleared to save context]'

/** What an edit makes of a conversation, and how many tool uses or turns it clears. */
export interface Clearing {
  conversation: Conversation
  cleared: number
}

/** The conversation as edits leave it, and what they have cleared. */
export type Managed = { conversation: Conversation; edited: Edited }

/**
 * Applies the edits in their order.
 * @param count the tokens of a conversation, or a refusal, which is then returned
 */
export async function edit(
  asked: Conversation,
  edits: readonly ContextEdit[],
  count: (conversation: Conversation) => MaybePromise<number | Reply>,
): Promise<Managed | Reply> {
  let conversation = asked
  const before = await count(asked)
  if (typeof before !== 'number') return before
  let tokens = before
  const applied: { type: ContextEdit['type']; cleared: number; tokens: number }[] = []
  for (const each of edits) {
    const { type } = each
    const clearing = type === 'clear_thinking' ? clearThinking(conversation, each) : uses(conversation, each, tokens)
    if (!clearing) continue
    const left = await count(clearing.conversation)
    if (typeof left !== 'number') return left
    // Results may be shorter than what stands for them.
    if (type === 'clear_tool_uses' && tokens - left < Math.max(1, each.atLeast)) continue
    applied.push({ type, cleared: clearing.cleared, tokens: tokens - left })
    conversation = clearing.conversation
    tokens = left
  }
  return { conversation, edited: { before, applied } }
}

type ToolUses = ContextEdit & { type: 'clear_tool_uses' }

function uses(conversation: Conversation, edit: ToolUses, tokens: number): Clearing | null {
  const { trigger, keep, exclude } = edit
  const answered = new Set<string>()
  const calls: CallPart[] = []
  for (const { parts } of conversation.turns) {
    for (const part of parts) {
      if (part.type === 'result') answered.add(part.callId)
      else if (part.type === 'call') calls.push(part)
    }
  }
  const made = calls.filter(({ id }) => answered.has(id))
  if ((trigger.unit === 'tokens' ? tokens : made.length) <= trigger.above) return null
  const old = made.slice(0, Math.max(0, made.length - keep)).filter(({ name }) => !exclude.includes(name))
  return clearToolUses(conversation, new Map(old.map(({ id, name }) => [id, name])), edit.inputs)
}

/** @param names of the tools whose uses are cleared, by call id */
function clearToolUses(
  conversation: Conversation,
  names: ReadonlyMap<string, string>,
  inputs: ToolUses['inputs'],
): Clearing | null {
  const emptied = (name: string) => inputs === true || inputs.includes(name)
  const cleared = new Set<string>()
  const clear = (part: Part): Part => {
    if (part.type === 'result' && names.has(part.callId) && !isCleared(part.content)) {
      cleared.add(part.callId)
      const marker = part.content.findLast(content => content.cache)?.cache
      return { ...part, content: [{ type: 'text', text: CLEARED, ...(marker && { cache: marker }) }] }
    }
    if (part.type === 'call' && names.has(part.id) && emptied(part.name)) {
      const input = part.kind === 'function' ? '{}' : ''
      if (part.input === input) return part
      cleared.add(part.id)
      return { ...part, input }
    }
    return part
  }
  const turns = conversation.turns.map(turn => changed(turn, turn.parts.map(clear)))
  return cleared.size === 0 ? null : { conversation: { ...conversation, turns }, cleared: cleared.size }
}

function isCleared(content: readonly Part[]): boolean {
  const [only, ...more] = content
  return only === undefined || (more.length === 0 && only.type === 'text' && only.text === CLEARED)
}

/** Removes reasoning from all but the newest turns that have some. What follows a message of the user is one turn. */
function clearThinking(
  conversation: Conversation,
  { keep }: ContextEdit & { type: 'clear_thinking' },
): Clearing | null {
  let kept = 0
  let cleared = 0
  /** Whether the turn that is being read has reasoning. */
  let thought = false
  const turns: Turn[] = []
  for (const turn of [...conversation.turns].reverse()) {
    if (turn.role === 'user') thought = false
    const has = turn.role === 'assistant' && turn.parts.some(part => part.type === 'reasoning')
    if (has && !thought) {
      thought = true
      if (kept < keep) kept++
      else {
        kept = Number.POSITIVE_INFINITY
        cleared++
      }
    }
    if (!has || kept <= keep) turns.push(turn)
    else {
      const parts = turn.parts.filter(part => part.type !== 'reasoning')
      if (parts.length > 0) turns.push({ ...turn, parts })
    }
  }
  return cleared === 0 ? null : { conversation: { ...conversation, turns: turns.reverse() }, cleared }
}

/** The same turn where nothing in it was changed: what was computed of it stays valid. */
function changed(turn: Turn, parts: Part[]): Turn {
  return parts.some((part, i) => part !== turn.parts[i]) ? { ...turn, parts } : turn
}
