/**
 * The canonical request: what a surface parses a body into and what a dialect writes a provider's body from.
 * Nothing here knows a wire format. A surface fills it; plugins read it; a dialect reads it. It is never mutated
 * after the `conversation` plugin has completed it.
 *
 * Canonical form (what makes the same conversation count and translate alike on every surface, METER-1):
 * - consecutive turns of one role are merged into one turn, part boundaries kept (`TurnList.push` does it);
 * - tool results stand in turns of role `tool`, directly built from Chat `tool` messages, Responses `*_output` items
 *   and Messages `tool_result` blocks (a Messages user message with results and text becomes a tool turn, then a user turn);
 * - empty text parts are dropped;
 * - system text before the first other turn is `system`; later system or developer text is a turn of role `system`.
 */

/** Reasoning effort (wire.md A.1). Unset is `undefined`. */
export type Effort = 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max' | 'ultra'
/** Efforts in ascending order, for comparing with ceilings. */
export const EFFORTS: readonly Effort[] = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', 'ultra']

/** As routes name it in gateway.yaml, e.g. `chat`. surfaces/index.ts lists the surfaces of this build. */
export type SurfaceName = string

/**
 * What sets the client's API apart, as far as it decides what is asked of a provider and how its reply is taken. A surface's parser states it, the same object
 * for each request, and nobody else asks which surface it is.
 */
export interface ClientForm {
  /** What the body calls its controls: for messages about them. */
  readonly members: {
    /** Reasoning effort, and how much to reason where the API has a member of its own for that. */
    readonly effort: string
    readonly budget?: string
    /** At most one call a turn. */
    readonly single: string
    readonly stop: string
    readonly logprobs: string
    readonly turns: string
    /** Behind a function tool's path: its parameters, and whether they are strict. */
    readonly toolSchema: string
    readonly toolStrict: string
  }
  /** An assistant message at the end waits to be continued; else it is history. */
  readonly continuesLastMessage?: true
  /** The reply names the stop string that ended it. */
  readonly namesStopString?: true
  /** Clients parse the arguments of a call while they stream, and fail on text that is no JSON object. */
  readonly parsesArguments?: true
  /** The reply has a member for why the model refused; elsewhere it is the text of the refusal. */
  readonly explainsRefusal?: true
  /** A reply may end within its searches, to go on when it is sent back. */
  readonly pauses?: true
  /** The reply can show a search that was asked for and not made, since the request's cap was reached. */
  readonly showsRefusedSearches?: true
  /** Replies are kept unless `store` is false, and continued by `previousResponseId`. */
  readonly retains?: true
  /** Parts and tools may carry cache markers. */
  readonly marksCache?: true
  /** An effort above the model's ceiling is lowered; else it is refused. */
  readonly lowersEffort?: true
}

/** The form of a conversation that states none, as one that a plugin of the operator's makes. Stores keep turns and tools, no forms. */
const PLAIN: ClientForm = {
  members: {
    effort: 'reasoning_effort',
    single: 'parallel_tool_calls',
    stop: 'stop',
    logprobs: 'logprobs',
    turns: 'messages',
    toolSchema: '.parameters',
    toolStrict: '.strict',
  },
}
export const formOf = (conversation: Conversation): ClientForm => conversation.form ?? PLAIN

export interface Conversation {
  surface: SurfaceName
  /** Read it with `formOf`. */
  form?: ClientForm
  /** The model id as the client wrote it; aliases included. */
  requestedModel: string
  /** The canonical public id. Equal to `requestedModel` until `model-access` resolves aliases. */
  model: string
  stream: boolean
  /** Leading system text, one entry per part, in order. */
  system: TextPart[]
  /** How many entries of `system` came from Responses `instructions`, which a continued response does not inherit. */
  instructionParts?: number
  turns: Turn[]
  tools: Tool[]
  /** How many of `tools`, at their end, were loaded by items of the history (Responses): a continued response has them still. */
  loadedTools?: number
  toolChoice: ToolChoice
  /** False: at most one call a turn (TOOL-5). */
  parallelToolCalls: boolean
  /** The output cap in tokens, reasoning included: the client's; where it named none, the account's maximum, if it has one. */
  maxOutputTokens?: number
  /** The body member that carried the client's cap: `max_tokens`, `max_completion_tokens`, `max_output_tokens`. */
  maxOutputField?: string
  sampling: Sampling
  reasoning: ReasoningControls
  verbosity?: 'low' | 'medium' | 'high'
  /** Cap on hosted searches (Responses `max_tool_calls`). */
  maxSearches?: number
  /** Client's own cache key or session hint, for affinity only (never sent upstream in clear). */
  cacheKey?: string
  /** Responses only: retained-response links. */
  previousResponseId?: string
  store?: boolean
  /** Only taken in, to be continued: nothing is generated. */
  generate?: false
}

export interface Sampling {
  temperature?: number
  topP?: number
  topK?: number
  seed?: number
  /** Stop strings, 0…16. Empty means none. */
  stop: string[]
  logprobs: boolean
  topLogprobs?: number
}

export interface ReasoningControls {
  effort?: Effort
  /** Messages `thinking: enabled`: tokens. */
  budgetTokens?: number
  /** Messages `thinking.type`, when given. */
  thinking?: 'enabled' | 'adaptive' | 'disabled' | 'between_tools'
  /** Whether the client wants reasoning summaries back. */
  summary?: 'auto' | 'concise' | 'detailed'
  /** Responses `include: reasoning.encrypted_content`. */
  includeEncrypted?: boolean
}

export interface Turn {
  role: 'user' | 'assistant' | 'system' | 'tool'
  parts: Part[]
}

export type Part =
  | TextPart
  | RefusalPart
  | ImagePart
  | DocumentPart
  | CallPart
  | ResultPart
  | ReasoningPart
  | SearchPart

export interface TextPart {
  type: 'text'
  text: string
  /** A client's cache marker on this part (Messages `cache_control`). */
  cache?: { ttl?: string }
  /** Client bookkeeping that is metered, but is never sent upstream and is in no cache key (wire.md H, the billing pseudo header). */
  meteredOnly?: true
}
/** An assistant's refusal, replayed. */
export interface RefusalPart {
  type: 'refusal'
  text: string
}
export interface ImagePart {
  type: 'image'
  source: MediaSource
  detail?: 'auto' | 'low' | 'high' | 'original'
  /** Where it stood in the body, e.g. `messages[0].content[1].image_url.url`. */
  path: string
  cache?: { ttl?: string }
}
export interface DocumentPart {
  type: 'document'
  /** `text` documents carry their text; PDFs are data or URL. */
  source: MediaSource | { kind: 'text'; text: string }
  title?: string
  context?: string
  path: string
  cache?: { ttl?: string }
}
export type MediaSource =
  /** base64 without a data-URL prefix. */
  { kind: 'data'; mediaType: string; data: string } | { kind: 'url'; url: string }

/** A tool call the assistant made (history). */
export interface CallPart {
  type: 'call'
  /** The public id, verbatim as the client replayed it. */
  id: string
  kind: 'function' | 'custom'
  name: string
  namespace?: string
  /** Function: JSON text as received (may not parse). Custom: the raw input text. */
  input: string
  path: string
  /** Filled by the `conversation` plugin from the store. */
  continuation?: Continuation
}
/** A tool's result. Only in `tool` turns. */
export interface ResultPart {
  type: 'result'
  callId: string
  kind: 'function' | 'custom'
  /** Text parts, images, documents. A string result is one text part. */
  content: (TextPart | ImagePart | DocumentPart)[]
  isError?: boolean
  path: string
}
/** Replayed reasoning: only a summary and, where we kept it, private continuation data. */
export interface ReasoningPart {
  type: 'reasoning'
  summary: string[]
  /** The client's handle for private data: an item id or a Responses `encrypted_content` handle. */
  handle?: string
  continuation?: Continuation
}
/** A hosted search the assistant ran, replayed. */
export interface SearchPart {
  type: 'search'
  /** `hist_eba1_…` or the item id. */
  id: string
  query: string
  results: SearchResult[]
  errorCode?: string
  continuation?: Continuation
}
export interface SearchResult {
  title: string
  url: string
  /** A short extract, when known. */
  text?: string
  pageAge?: string | null
  /** Opaque handle that stands for provider-private result data. */
  handle?: string
}

/** Provider-private data (TOOL-6). Opaque to all but the dialect that made it. */
export interface Continuation {
  dialect: string
  /** The upstream model that made it; another model's data is dropped whole. */
  model: string
  data: unknown
}

export type Tool = FunctionTool | CustomTool | SearchTool | NativeTool

export interface FunctionTool {
  type: 'function'
  name: string
  namespace?: string
  description?: string
  /** JSON Schema, top-level object; `{type:'object',properties:{}}` when the client gave none. */
  parameters: Record<string, unknown>
  strict?: boolean
  cache?: { ttl?: string }
  path: string
  /** Responses `tool_search` with client execution is a function upstream and a `tool_search_call` on the way out. */
  role?: 'tool_search'
}
export interface CustomTool {
  type: 'custom'
  name: string
  namespace?: string
  description?: string
  grammar?: { syntax: 'lark' | 'regex'; definition: string }
  path: string
}
/** Hosted web search. */
export interface SearchTool {
  type: 'web_search'
  maxUses?: number
  allowedDomains?: string[]
  blockedDomains?: string[]
  userLocation?: Record<string, unknown>
  contextSize?: 'low' | 'medium' | 'high'
  path: string
}
/** A Messages client-executed tool with a published shape: bash, text editor, memory (MSG-4). */
export interface NativeTool {
  type: 'native'
  /** e.g. `bash_20250124`. */
  version: string
  name: string
  /** The published input schema, for backends without the version. */
  parameters: Record<string, unknown>
  description: string
  options?: Record<string, unknown>
  cache?: { ttl?: string }
  path: string
}

export type ToolChoice =
  | { type: 'auto' }
  | { type: 'none' }
  | { type: 'required' }
  | { type: 'tool'; name: string; namespace?: string; kind: 'function' | 'custom' | 'web_search' }
  | {
      type: 'allowed'
      mode: 'auto' | 'required'
      tools: { name: string; namespace?: string; kind: 'function' | 'custom' | 'web_search' }[]
    }

/** Tools, with those that items of the history load: transcripts repeat what they loaded, and one that is there already is not declared twice. */
export class LoadedTools {
  readonly #tools: Tool[]
  /** Kept from item to item: there may be as many items as tools. */
  #keys: Set<string> | undefined

  /** @param tools grows */
  constructor(tools: Tool[]) {
    this.#tools = tools
  }

  append(more: readonly Tool[]): void {
    const keys = (this.#keys ??= new Set(this.#tools.map(toolKey)))
    for (const tool of more) {
      const key = toolKey(tool)
      if (keys.has(key)) continue
      keys.add(key)
      this.#tools.push(tool)
    }
  }
}

function toolKey(tool: Tool): string {
  if (tool.type === 'web_search') return tool.type
  return JSON.stringify(['namespace' in tool ? (tool.namespace ?? null) : null, tool.name])
}

/** Builds `system` and `turns` in canonical form. */
export class TurnList {
  readonly system: TextPart[] = []
  readonly turns: Turn[] = []

  /** Appends parts to the conversation, merging with the last turn when the role is the same. */
  push(role: Turn['role'], parts: Part[]): void {
    const kept = parts.filter(p => p.type !== 'text' || p.text !== '')
    if (role === 'system' && this.turns.length === 0) {
      for (const p of kept) if (p.type === 'text') this.system.push(p)
      return
    }
    const last = this.turns.at(-1)
    if (last && last.role === role) last.parts.push(...kept)
    else if (kept.length > 0 || role !== 'system') this.turns.push({ role, parts: kept })
  }
}

/**
 * A fact that is worked out once for each conversation and kept with it: conversations do not change once they are parsed. A copy with other members
 * (`{ ...conversation }`) is another conversation and gets its own. Not a WeakMap: those are dear to the garbage collector, for each entry.
 */
export function derived<T>(work: (conversation: Conversation) => T): (conversation: Conversation) => T {
  const kept = Symbol('derived')
  type Keeper = Conversation & { [kept]?: { of: Conversation; fact: T } }
  return (conversation: Keeper) => {
    const found = conversation[kept]
    if (found?.of === conversation) return found.fact
    const fact = work(conversation)
    conversation[kept] = { of: conversation, fact }
    return fact
  }
}
