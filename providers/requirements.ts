/**
 * What a conversation asks of a backend (REQ-1, wire.md F.9). One pass over the conversation gathers it, and the answer is kept with the
 * conversation, because routing asks every backend of the model.
 */
import {
  type Conversation,
  type DocumentPart,
  derived,
  type FunctionTool,
  formOf,
  type ImagePart,
  type Part,
} from '../core/conversation.ts'
import { type Backend, CAPABILITIES, type Capability, type Unfit } from '../core/dialect.ts'
import { wantedEffort } from './effort.ts'

export interface Requirements {
  /** Capabilities needed, each with the member that asks for it. */
  needs: ReadonlyMap<Capability, string>
  /** Paths of the first image and document given by URL rather than as data. */
  imageUrl?: string
  documentUrl?: string
  /** Path of the first GIF. */
  gif?: string
  /** Path of the first tool the client runs itself; undefined when there is none. */
  clientTool?: string
  /** Path of the hosted search tool, and of its domain filters. */
  search?: string
  allowedDomains?: string
  blockedDomains?: string
  /** The member that limits how often is searched. */
  searchLimit?: string
}

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
}

/** What a dialect can express: all capabilities but those that its wire format has no form for. */
export function allBut(...missing: Capability[]): ReadonlySet<Capability> {
  return new Set(CAPABILITIES.filter(capability => !missing.includes(capability)))
}

/** What any backend may lack: a capability, or room for the output asked for. Null when it has all. */
export function commonUnfit(conversation: Conversation, backend: Backend): Unfit | null {
  for (const [capability, param] of requirementsOf(conversation).needs) {
    if (!backend.supports.has(capability)) return { param, requirement: WORDS[capability] }
  }
  const { maxOutputTokens, maxOutputField } = conversation
  if (maxOutputTokens !== undefined && maxOutputTokens > (backend.maxOutputTokens ?? Number.POSITIVE_INFINITY)) {
    return { param: maxOutputField ?? 'max_tokens', requirement: 'this many output tokens' }
  }
  return null
}

/** The body member of a client surface that carries a control. */
export function memberOf(
  conversation: Conversation,
  control: 'effort' | 'single' | 'stop' | 'logprobs' | 'turns',
): string {
  const { members } = formOf(conversation)
  if (control !== 'effort') return members[control]
  return (conversation.reasoning.effort === undefined ? members.budget : undefined) ?? members.effort
}

/** Where a function tool's parameters stand in the body. */
export function schemaPath(conversation: Conversation, tool: FunctionTool): string {
  return tool.path + formOf(conversation).members.toolSchema
}

/** Whether an assistant message at the end is to be continued. */
export function isPrefill(conversation: Conversation): boolean {
  const last = conversation.turns.at(-1)
  // A reply that paused within its searches ends in one when it is sent back: nothing of it waits to be continued.
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
      if (tool.maxUses !== undefined) found.searchLimit = tool.path + '.max_uses'
      else if (conversation.maxSearches !== undefined) found.searchLimit = 'max_tool_calls'
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

/** Whether the model must call a tool. */
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
