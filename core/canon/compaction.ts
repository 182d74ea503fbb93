/**
 * Compaction: a summary takes the place of what was said before it. The client keeps the summary in a capsule, which is
 * an item of its conversation; the model gets it as a text of the user.
 */
import { type Conversation, type Keeps, type Part, type TextPart, type Turn, TurnList, workOf } from './conversation.ts'

/** The text that the model gets for a summary. It is counted as it is sent. */
export function standIn(summary: string): string {
  return (
    'The conversation up to here was replaced by this summary, which you wrote yourself. Go on from where it ends, ' +
    `without mentioning it.\n\n<summary>\n${summary}\n</summary>`
  )
}

/** Where the last capsule of a conversation is; what is before it has been replaced by it. */
export interface CapsulePlace {
  turn: number
  part: number
  text: TextPart & Required<Pick<TextPart, 'capsule'>>
}

export function lastCapsule(turns: readonly Turn[]): CapsulePlace | undefined {
  for (let turn = turns.length - 1; turn >= 0; turn--) {
    const { role, parts } = turns[turn]!
    if (role !== 'user') continue
    for (let part = parts.length - 1; part >= 0; part--) {
      const text = parts[part]!
      if (text.type === 'text' && text.capsule) return { turn, part, text: text as CapsulePlace['text'] }
    }
  }
  return undefined
}

/** The turns on both sides of a capsule. */
export function aroundCapsule(turns: readonly Turn[], { turn, part }: CapsulePlace): { before: Turn[]; after: Turn[] } {
  const { role, parts } = turns[turn]!
  return {
    before: [...turns.slice(0, turn), { role, parts: parts.slice(0, part) }],
    after: [{ role, parts: parts.slice(part + 1) }, ...turns.slice(turn + 1)],
  }
}

/**
 * What stays of the turns before a capsule: system text, and the user's messages where it keeps them. A capsule among
 * them is left out, since the later one covers it.
 * @param most UTF-16 units of texts of the user: the newest texts up to there stay, and what is between them
 */
export function keptTurns(turns: readonly Turn[], keeps: Keeps, most = Number.POSITIVE_INFINITY): Turn[] {
  const kept: Turn[] = []
  let left = keeps === 'user' ? most : -1
  for (const { role, parts } of [...turns].reverse()) {
    if (role === 'system') kept.push({ role, parts })
    if (role !== 'user') continue
    // Messages of the user that follow each other are one turn, so a turn may stay in part.
    const own: Part[] = []
    for (const part of [...parts].reverse()) {
      if (part.type === 'text' && part.capsule) continue
      if (part.type === 'text') left -= part.text.length
      if (left < 0) break
      own.push(part)
    }
    if (own.length > 0) kept.push({ role, parts: own.reverse() })
  }
  return kept.reverse()
}

/** The conversation whose turns are these: those that stay, the summary, and what was said after it. */
export function withCapsule(
  conversation: Conversation,
  before: readonly Turn[],
  capsule: TextPart,
  after: readonly Turn[],
): Conversation {
  const list = new TurnList()
  for (const turn of [...before, { role: 'user' as const, parts: [capsule] }, ...after]) {
    if (turn.parts.length > 0) list.push(turn.role, [...turn.parts])
  }
  const { sealed: _, ...rest } = conversation
  const system = [...conversation.system, ...list.system]
  return { ...rest, work: workOf(conversation), system, turns: list.turns }
}
