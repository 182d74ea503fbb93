/**
 * The canonical request. A surface parses a request body into it; plugins read it; a dialect writes the body for a
 * provider from it. Nothing here depends on a wire format. The conversation is never mutated after the `conversation`
 * plugin has completed it.
 *
 * Canonical form (it makes the same conversation count and translate alike on every surface, METER-1):
 * - consecutive turns of one role are merged into one turn, and part boundaries are kept (`TurnList.push` does it);
 * - tool results are in turns of role `tool`, built from Chat `tool` messages, Responses `*_output` items and
 *   Messages `tool_result` blocks (a Messages user message with results and text becomes a tool turn, then a user
 *   turn);
 * - empty text parts are dropped;
 * - system text before the first other turn is `system`; later system or developer text is a turn of role `system`.
 */
import { appendAll } from '../tools/append.ts'
import { REQUEST_WORK, Work } from './work.ts'

/** Reasoning effort (wire.md A.1). `undefined` when the client sets none. */
export type Effort = 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | 'max' | 'ultra'
/** Efforts in ascending order, for comparison with ceilings. */
export const EFFORTS: readonly Effort[] = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', 'ultra']

/**
 * A surface's name as routes give it in gateway.yaml, e.g. `chat`. surfaces/index.ts lists the surfaces of this
 * build.
 */
export type SurfaceName = string
/** What a route says that takes requests of each of the three APIs. */
export const ANY_SURFACE = 'any'

/**
 * The differences between client APIs that affect what a provider is asked for and how its reply is read. A surface's
 * parser attaches it to the conversation (the same object for every request), so that no other code asks which
 * surface it is.
 */
export interface ClientForm {
  /** The names of controls in the request body, for error messages about them. */
  readonly members: {
    /**
     * The member for reasoning effort, and the member for a reasoning budget in tokens where the API has one of its
     * own.
     */
    readonly effort: string
    readonly budget?: string
    /** The member that allows at most one tool call in a turn. */
    readonly single: string
    readonly stop: string
    readonly logprobs: string
    readonly turns: string
    /** Appended to the path of a function tool: its parameters, and whether they are strict. */
    readonly toolSchema: string
    readonly toolStrict: string
  }
  /** True: the model continues an assistant message at the end. Absent: such a message is history. */
  readonly continuesLastMessage?: true
  /** The reply says which stop string ended it. */
  readonly namesStopString?: true
  /** Clients parse the arguments of a call while they stream, and fail on text that is not a JSON object. */
  readonly parsesArguments?: true
  /** The reply has its own member for the reason of a refusal. Absent: the reason is the text of the refusal. */
  readonly explainsRefusal?: true
  /** A reply may pause during a hosted search; the client sends it back to let it go on. */
  readonly pauses?: true
  /**
   * The reply can show a search that the model asked for and that was not made, because the request's cap was
   * reached.
   */
  readonly showsRefusedSearches?: true
  /** Replies are retained unless `store` is false, and `previousResponseId` continues them. */
  readonly retains?: true
  /** Parts and tools may carry cache markers. */
  readonly marksCache?: true
  /** An effort above the model's ceiling is lowered to it. Absent: the request is refused. */
  readonly lowersEffort?: true
}

/**
 * The form of a conversation that has none: one from an operator's plugin, or one read from a store, which keeps
 * turns and tools but no forms.
 */
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
/** The form of a conversation, or the plain one when it states none. */
export const formOf = (conversation: Conversation): ClientForm => conversation.form ?? PLAIN

export interface Conversation {
  surface: SurfaceName
  /** Read it with `formOf`. */
  form?: ClientForm
  /** The model id as the client wrote it; it may be an alias. */
  requestedModel: string
  /** The canonical public id. Equal to `requestedModel` until `model-access` resolves aliases. */
  model: string
  stream: boolean
  /** Leading system text, one entry per part, in order. */
  system: TextPart[]
  /** How many entries of `system` came from Responses `instructions`. A continued response does not inherit them. */
  instructionParts?: number
  turns: Turn[]
  tools: Tool[]
  /**
   * How many entries at the end of `tools` were loaded by items of the history (Responses). A continued response
   * keeps them.
   */
  loadedTools?: number
  toolChoice: ToolChoice
  /**
   * The choice of a request that continues a response and names none of its own tools. It is made when the tools of
   * that response are there, from all of these; it throws a GatewayError when they do not have the tool either.
   */
  lateChoice?: (tools: readonly Tool[]) => ToolChoice
  /** False: the model makes at most one call in a turn (TOOL-5). */
  parallelToolCalls: boolean
  /** The output cap in tokens, including reasoning. Undefined when the client gives none. */
  maxOutputTokens?: number
  /** The body member that carried the client's cap: `max_tokens`, `max_completion_tokens`, `max_output_tokens`. */
  maxOutputField?: string
  sampling: Sampling
  reasoning: ReasoningControls
  verbosity?: 'low' | 'medium' | 'high'
  /** The JSON object that the text of the reply must be (GEN-3). Absent: the reply is free text. */
  output?: OutputFormat
  /** The largest number of hosted searches (Responses `max_tool_calls`). */
  maxSearches?: number
  /** The client's own cache key or session hint. It is used for affinity only and is never sent upstream in clear. */
  cacheKey?: string
  /** Responses only: the id of the retained response that this request continues. */
  previousResponseId?: string
  store?: boolean
  /** False: the request is only stored, so that a later one can continue it; nothing is generated. */
  generate?: false
  /** The turns have the capsule of a compaction whose summary is still sealed. The plugin `conversation` opens it. */
  sealed?: true
  /** The client wants the conversation compacted. */
  compaction?: CompactionWish
  /** What the client wants cleared of the history before it is counted, in this order. */
  edits?: readonly ContextEdit[]
  /** What became of `edits`. The plugin `compaction` fills it. */
  edited?: Edited
  /** The budget of the request. `model-access` sets it. Read it with `workOf`. */
  work?: Work
}

/**
 * The budget on which all draw who work on what a client sent: its text, its schemas, its history, and the replies that
 * are held against them. A copy (`{ ...conversation }`) has the same budget. A conversation that comes without one gets
 * a whole one here.
 */
export function workOf(conversation: Conversation): Work {
  conversation.work ??= new Work(REQUEST_WORK)
  return conversation.work
}

/** Structured output: what the client asks the text of the reply to be. */
export interface OutputFormat {
  /** JSON Schema of an object, within the bounds of surfaces/output-format.ts. Absent: any JSON object. */
  schema?: Record<string, unknown>
  /** The client's name for the schema: [A-Za-z0-9_-], at most 64 characters. */
  name?: string
  description?: string
  /** The schema follows the rule of strict schemas (TOOL-2), and providers may be asked to enforce it. */
  strict: boolean
  /** The body member that asks for it, e.g. `response_format`. */
  path: string
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
  /** The effort that the client asked for, where the model's ceiling has lowered `effort`. */
  asked?: Effort
  /** The model's own effort: for a client that lets the model think and names none. Filled by `model-access`. */
  modelEffort?: Effort
  /** The budget of Messages `thinking: enabled`, in tokens. */
  budgetTokens?: number
  /** Messages `thinking.type`, when given. */
  thinking?: 'enabled' | 'adaptive' | 'disabled' | 'between_tools'
  /** Whether the client wants reasoning summaries back. */
  summary?: 'auto' | 'concise' | 'detailed'
  /** Responses `include: reasoning.encrypted_content`. */
  includeEncrypted?: boolean
}

/** The client asks for a compaction (core/canon/compaction.ts). */
export interface CompactionWish {
  /** The conversation is compacted when its prompt has more tokens than this. Absent: in any case. */
  threshold?: number
  /** The client named no threshold: where a share of the model's window is lower, that holds. */
  withinWindow?: true
  /** The reply ends after the compaction: the model answers nothing. */
  only: boolean
  /** What stays of the conversation before the capsule. */
  keeps: Keeps
  /** The client's own words on how to summarise, in place of the gateway's. */
  instructions?: string
  /** The member that asks for it. */
  path: string
}

/** What stays before a capsule, beside system text: the user's messages, or nothing. */
export type Keeps = 'user' | 'nothing'

/** Clears a part of the history, by the rules of Messages' `context_management`. */
export type ContextEdit =
  | {
      type: 'clear_tool_uses'
      trigger: { unit: 'tokens' | 'uses'; above: number }
      /** The newest tool uses that stay as they are. */
      keep: number
      /** Nothing is cleared where that would save fewer tokens. */
      atLeast: number
      /** Arguments of calls are cleared, too: of all tools, or of these. */
      inputs: true | readonly string[]
      /** Tools whose uses are never cleared. */
      exclude: readonly string[]
    }
  /** `keep`: the newest turns with reasoning that stay as they are. */
  | { type: 'clear_thinking'; keep: number }

export interface Edited {
  /** Tokens of the prompt before anything was cleared. */
  before: number
  /** The edits that have cleared something, with how many tool uses or turns, and how many tokens. */
  applied: readonly { type: ContextEdit['type']; cleared: number; tokens: number }[]
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
  /**
   * Text that a client adds for its own bookkeeping: it is metered, but never sent upstream and not part of any cache
   * key (wire.md H, the billing pseudo header).
   */
  meteredOnly?: true
  /** The text is the summary of a compaction, and stands for what was said before it. Only in turns of the user. */
  capsule?: Capsule
}
/** A summary as its client keeps it. */
export interface Capsule {
  /** What the client sends back: text that only the gateway can open. Empty where the client sent the summary itself. */
  sealed: string
  /** Absent while it is sealed. */
  keeps?: Keeps
  /** The summary that came with it in clear, where the client's API shows it. */
  claimed?: string
  /** The id of its item. */
  id?: string
  /** The member that holds `sealed`. */
  path: string
}
/** An assistant's refusal in the history. */
export interface RefusalPart {
  type: 'refusal'
  text: string
}
export interface ImagePart {
  type: 'image'
  source: MediaSource
  detail?: 'auto' | 'low' | 'high' | 'original'
  /** The path in the request body, e.g. `messages[0].content[1].image_url.url`. */
  path: string
  cache?: { ttl?: string }
}
export interface DocumentPart {
  type: 'document'
  /** A `text` document holds its text; a PDF is data or a URL. */
  source: MediaSource | { kind: 'text'; text: string }
  title?: string
  context?: string
  path: string
  cache?: { ttl?: string }
}
export type MediaSource = DataSource | { kind: 'url'; url: string }
/** base64 without a data-URL prefix. */
export interface DataSource {
  kind: 'data'
  mediaType: string
  data: string
}

/** A shorter data URL costs less to join than to keep. */
const KEPT_URL = 64 * 1024
const sentUrls = new WeakMap<DataSource, string>()

/** Keeps the data URL of which a source was made: to join a file of 6 MiB again takes 10 ms and as much memory. */
export function keepDataUrl(source: DataSource, url: string): void {
  if (url.length < KEPT_URL) return
  const prefix = prefixOf(source)
  if (url.length === prefix.length + source.data.length && url.startsWith(prefix)) sentUrls.set(source, url)
}

export const dataUrlOf = (source: DataSource): string => sentUrls.get(source) ?? prefixOf(source) + source.data

const prefixOf = ({ mediaType }: DataSource) => `data:${mediaType};base64,`

/** A tool call of the assistant, in the history. */
export interface CallPart {
  type: 'call'
  /** The public id, exactly as the client sent it back. */
  id: string
  kind: 'function' | 'custom'
  name: string
  namespace?: string
  /** Function: JSON text as received, perhaps malformed. Custom: the raw input text. */
  input: string
  path: string
  /** The `conversation` plugin fills it in from the store. */
  continuation?: Continuation
}
/** A tool's result. It occurs only in turns of role `tool`. */
export interface ResultPart {
  type: 'result'
  callId: string
  kind: 'function' | 'custom'
  /** Text parts, images, documents. A string result is one text part. */
  content: (TextPart | ImagePart | DocumentPart)[]
  isError?: boolean
  path: string
}
/** Reasoning in the history: a summary and, where the gateway kept it, private continuation data. */
export interface ReasoningPart {
  type: 'reasoning'
  summary: string[]
  /** The handle of the private data: an item id, or a Responses `encrypted_content` handle. */
  handle?: string
  continuation?: Continuation
}
/** A hosted search of the assistant, in the history. */
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
  /** An opaque handle for the provider's private data of this result. */
  handle?: string
}

/** A provider's private data (TOOL-6). Only the dialect that made it can read it. */
export interface Continuation {
  dialect: string
  /** The upstream model that made the data. A request to another model drops the data entirely. */
  model: string
  data: unknown
}

export type Tool = FunctionTool | CustomTool | SearchTool | NativeTool

export interface FunctionTool {
  type: 'function'
  name: string
  namespace?: string
  description?: string
  /** JSON Schema whose top level is an object; `{type:'object',properties:{}}` when the client gave none. */
  parameters: Record<string, unknown>
  strict?: boolean
  cache?: { ttl?: string }
  path: string
  /**
   * Responses `tool_search` with client execution: upstream it is a function, and in the reply a `tool_search_call`.
   */
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
/** A tool of Messages that the client executes and whose shape is published: bash, text editor, memory (MSG-4). */
export interface NativeTool {
  type: 'native'
  /** e.g. `bash_20250124`. */
  version: string
  name: string
  /** The published input schema, for backends that do not know this version of the tool. */
  parameters: Record<string, unknown>
  description: string
  options?: Record<string, unknown>
  cache?: { ttl?: string }
  path: string
}

/** How the model may choose tools. `allowed` restricts it to some of the declared tools. */
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

/**
 * Adds the tools that items of the history load. Transcripts repeat these items, so a tool that is already in the
 * list is not added again.
 */
export class LoadedTools {
  readonly #tools: Tool[]
  /** Kept between calls of `append`, since there may be as many items as tools. */
  #keys: Set<string> | undefined

  /** @param tools the list that `append` extends */
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

  /** Appends parts. They are merged into the last turn when it has the same role. */
  push(role: Turn['role'], parts: Part[]): void {
    const kept = parts.filter(p => p.type !== 'text' || p.text !== '' || p.capsule)
    if (role === 'system' && this.turns.length === 0) {
      for (const p of kept) if (p.type === 'text') this.system.push(p)
      return
    }
    const last = this.turns.at(-1)
    if (last && last.role === role) appendAll(last.parts, kept)
    else if (kept.length > 0 || role !== 'system') this.turns.push({ role, parts: kept })
  }
}

/**
 * Makes a function that computes a fact once for each conversation and stores it on that object. This is safe because
 * conversations do not change once they are parsed. A copy (`{ ...conversation }`) is another conversation and gets
 * its own fact. A WeakMap would do the same, but each of its entries is expensive for the garbage collector.
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

/** The conversation with an output cap of at most this many tokens: the one place where a cap is lowered. */
export function capped(conversation: Conversation, most: number | undefined): Conversation {
  if (most === undefined || most >= (conversation.maxOutputTokens ?? Number.POSITIVE_INFINITY)) return conversation
  return { ...conversation, maxOutputTokens: most }
}
