/**
 * The arguments of replayed calls as they are sent and counted: one text for every dialect and for the meter, so that
 * nothing larger goes upstream than what was counted (decision 73).
 */

import { normalJson } from '../tools/json.ts'
import type { CallPart, Conversation } from './conversation.ts'

/** A call keeps its form beside its input. The form of another input is not used: plugins copy parts and change them. */
const kept = Symbol('arguments')
type Keeper = CallPart & { [kept]?: { of: string; text: string } }

/**
 * The input of a call in the form in which it is sent and counted. That of a function is `normalJson` where it is JSON,
 * else as it came; that of a custom tool is text and stays as it came.
 */
export function argumentsOf(call: CallPart): string {
  const { kind, input } = call
  if (kind === 'custom' || input === '') return input
  const known = (call as Keeper)[kept]
  return known?.of === input ? known.text : keepArguments(call, normalJson(input) ?? input)
}

/** Keeps the form of a call that was made elsewhere. @returns the form */
export function keepArguments(call: CallPart, text: string): string {
  const { input } = call
  ;(call as Keeper)[kept] = { of: input, text: text === input ? input : text }
  return text
}

/** As many characters are brought into form on the event loop, in at most some 15 ms: 13,000 numbers. */
const HERE = 1 << 16

/**
 * The calls whose arguments are to be brought into form by a thread, because together they would hold the event loop;
 * none where they would not.
 */
export function largeArguments({ turns }: Conversation): CallPart[] {
  let size = 0
  const calls: CallPart[] = []
  for (const { role, parts } of turns) {
    if (role !== 'assistant') continue
    for (const part of parts) {
      if (part.type !== 'call' || part.kind !== 'function' || (part as Keeper)[kept]?.of === part.input) continue
      size += part.input.length
      calls.push(part)
    }
  }
  return size > HERE ? calls : []
}
