/**
 * What a conversation requires of a backend (REQ-1, wire.md F.9). One pass over the conversation collects it. The
 * result is cached with the conversation, because routing checks every backend of the model.
 */
import {
  type Conversation,
  type DocumentPart,
  derived,
  formOf,
  type ImagePart,
  type Part,
} from '../core/canon/conversation.ts'
import { type Backend, CAPABILITIES, type Capability, type Unfit } from '../core/ports/dialect.ts'
import { wantedEffort } from './effort.ts'

/** What one conversation requires, with the paths of the members that require it. */
export interface Requirements {
  /** The required capabilities, each with the member that requires it. */
  needs: ReadonlyMap<Capability, string>
  /** The paths of the first image and the first document that are given by URL and not as data. */
  imageUrl?: string
  documentUrl?: string
  /** The path of the first GIF. */
  gif?: string
  /** The path of the first tool that the client runs; undefined when there is none. */
  clientTool?: string
  /** The paths of the hosted search tool and of its domain filters. */
  search?: string
  allowedDomains?: string
  blockedDomains?: string
}

/** The requirements of a conversation; gathered once and cached with it. */
export const requirementsOf = derived(gather)

const WORDS: Record<Capability, string> = {
  tools: 'tool calls',
  strict_tools: 'strict tool schemas',
  single_tool_call: 'at most one tool call in a turn',
  forced_tool_choice: 'a forced tool choice',
  custom_tools: 'custom tools with free-form input',
  images: 'image input',
  documents: 'document input',
  reasoning: 'reasoning controls',
  web_search: 'web search',
  logprobs: 'log probabilities',
  prefill: 'an assistant message to continue',
  structured_output: 'structured output',
}

/** The capabilities that a dialect can express: all except those for which its wire format has no form. */
export function allBut(...missing: Capability[]): ReadonlySet<Capability> {
  return new Set(CAPABILITIES.filter(capability => !missing.includes(capability)))
}

/**
 * The first common requirement that a backend does not meet: a capability, or enough output tokens. Null when it
 * meets all.
 */
export function commonUnfit(conversation: Conversation, backend: Backend): Unfit | null {
  const [lacked] = lackedBy(conversation, backend)
  if (lacked) return lacked
  const { maxOutputTokens, maxOutputField } = conversation
  if (maxOutputTokens !== undefined && maxOutputTokens > (backend.maxOutputTokens ?? Number.POSITIVE_INFINITY)) {
    return { param: maxOutputField ?? 'max_tokens', requirement: 'this many output tokens' }
  }
  return null
}

/** The capabilities that a conversation requires and a backend lacks. */
export function* lackedBy(conversation: Conversation, { supports }: Backend): Generator<Unfit> {
  for (const [capability, param] of requirementsOf(conversation).needs)
    if (!supports.has(capability)) yield { param, requirement: WORDS[capability] }
}

/** The member of the client's body that carries a control. */
export function memberOf(
  conversation: Conversation,
  control: 'effort' | 'single' | 'stop' | 'logprobs' | 'turns',
): string {
  const { members } = formOf(conversation)
  if (control !== 'effort') return members[control]
  return (conversation.reasoning.effort === undefined ? members.budget : undefined) ?? members.effort
}

/** The path of a function tool's parameters in the body. */
export function schemaPath(conversation: Conversation, tool: { path: string }): string {
  return tool.path + formOf(conversation).members.toolSchema
}

/** True when the conversation ends with an assistant message that the model must continue. */
export function isPrefill(conversation: Conversation): boolean {
  const last = conversation.turns.at(-1)
  // A paused reply, sent back, ends with a search. It has no text to continue.
  return (
    formOf(conversation).continuesLastMessage === true &&
    last?.role === 'assistant' &&
    last.parts.at(-1)?.type !== 'search'
  )
}

function gather(conversation: Conversation): Requirements {
  const needs = new Map<Capability, string>()
  const found: Requirements = { needs }
  for (const tool of conversation.tools) {
    if (tool.type === 'web_search') {
      needs.set('web_search', tool.path)
      found.search = tool.path
      if (tool.allowedDomains && tool.allowedDomains.length > 0) found.allowedDomains = tool.path + '.allowed_domains'
      if (tool.blockedDomains && tool.blockedDomains.length > 0) found.blockedDomains = tool.path + '.blocked_domains'
      continue
    }
    found.clientTool ??= tool.path
    first(needs, 'tools', tool.path)
    if (tool.type === 'custom') first(needs, 'custom_tools', tool.path)
    if (tool.type === 'function' && tool.strict) {
      first(needs, 'strict_tools', tool.path + formOf(conversation).members.toolStrict)
    }
  }
  if (conversation.tools.length > 0) {
    if (found.clientTool !== undefined && !conversation.parallelToolCalls && conversation.toolChoice.type !== 'none') {
      needs.set('single_tool_call', memberOf(conversation, 'single'))
    }
    if (isForced(conversation)) needs.set('forced_tool_choice', 'tool_choice')
  }
  for (const turn of conversation.turns) for (const part of turn.parts) gatherPart(part, found, needs)
  if (conversation.sampling.logprobs) needs.set('logprobs', memberOf(conversation, 'logprobs'))
  if (isPrefill(conversation)) needs.set('prefill', memberOf(conversation, 'turns'))
  const effort = wantedEffort(conversation)
  if (effort !== undefined && effort !== 'none') needs.set('reasoning', memberOf(conversation, 'effort'))
  return found
}

/** True when the model must call a tool. */
export function isForced(conversation: Conversation): boolean {
  const choice = conversation.toolChoice
  return (
    choice.type === 'required' || choice.type === 'tool' || (choice.type === 'allowed' && choice.mode === 'required')
  )
}

function gatherPart(part: Part, found: Requirements, needs: Map<Capability, string>): void {
  if (part.type === 'image') gatherImage(part, found, needs)
  else if (part.type === 'document') gatherDocument(part, found, needs)
  else if (part.type === 'result') {
    for (const inner of part.content) {
      if (inner.type === 'image') gatherImage(inner, found, needs)
      else if (inner.type === 'document') gatherDocument(inner, found, needs)
    }
  }
}

function gatherImage(part: ImagePart, found: Requirements, needs: Map<Capability, string>): void {
  first(needs, 'images', part.path)
  if (part.source.kind === 'url') found.imageUrl ??= part.path
  else if (part.source.mediaType === 'image/gif') found.gif ??= part.path
}

function gatherDocument(part: DocumentPart, found: Requirements, needs: Map<Capability, string>): void {
  // A text document is text to every model (wire.md F.3).
  if (part.source.kind === 'text') return
  first(needs, 'documents', part.path)
  if (part.source.kind === 'url') found.documentUrl ??= part.path
}

function first(needs: Map<Capability, string>, capability: Capability, path: string): void {
  if (!needs.has(capability)) needs.set(capability, path)
}
