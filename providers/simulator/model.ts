/**
 * The simulated model: it makes a reply from a prompt. A dialect reads the prompt and writes the reply. The reply is
 * deterministic, except for its time.
 */
import { createHash } from 'node:crypto'
import { cacheMinimum } from '../anthropic-messages/models.ts'
import {
  type Directives,
  directivesIn,
  type ErrorKind,
  readDirectives,
  type ToolRequest,
  withoutDirectives,
} from './directives.ts'
import { type Found, simulatedSearch } from './search.ts'

export interface SimTool {
  name: string
  kind: 'function' | 'custom'
  namespace?: string
  description?: string
  schema?: unknown
}

/** What the model knows of a request, independent of the dialect. */
export interface SimPrompt {
  model: string
  stream: boolean
  /** The last text of the user. */
  userText: string
  /** The number of tool rounds since that text. */
  rounds: number
  /** The results of the last round. */
  results: string[]
  /** The media types of the images and of the documents, in order; `url` when the type is unknown. */
  images: string[]
  documents: string[]
  tools: SimTool[]
  /** True when the hosted search is declared. */
  search: boolean
  choice: { type: 'auto' | 'none' | 'required' } | { type: 'tool'; name: string } | { type: 'search' }
  /** The names of the tools that may be called, when the choice lists them. */
  allowed?: string[]
  parallel: boolean
  stop: string[]
  maxTokens?: number
  /** True when the request asks the model to reason. */
  reason: boolean
  /** The number of reasoning tokens when no directive gives it. */
  reasonTokens: number
  summary: boolean
  /** The number of alternatives for each token; undefined when no logprobs are requested. */
  topLogprobs?: number
  /** The text of each message in order. */
  messages: string[]
  /**
   * The whole prompt block by block, for providers that cache what a request marks. Absent: the provider caches every
   * message by itself, and does not report writes.
   */
  blocks?: SimBlock[]
  /** The reply's text has to be a JSON object, of this schema if there is one. */
  format?: { schema?: unknown }
}

/** A block of a prompt. */
export interface SimBlock {
  /** Without the marker, which is no part of the prompt. */
  text: string
  /** The prefix that ends here is to be cached for this many milliseconds after its last use. */
  cacheMs?: number
}

/** A part of a reply, in the order in which it is written. */
export type SimItem =
  | { type: 'reasoning'; summary: string[]; tokens: number }
  | { type: 'search'; query: string; results: Found[] }
  | { type: 'text'; text: string; pieces: string[]; citations: Found[] }
  | { type: 'refusal'; text: string; pieces: string[] }
  /** `text`: JSON arguments, or the plain input of a custom tool. */
  | {
      type: 'call'
      name: string
      namespace?: string
      kind: 'function' | 'custom'
      text: string
      pieces: string[]
      whole: boolean
    }

export type SimFinish = 'stop' | 'stop_sequence' | 'length' | 'tool_calls' | 'content_filter' | 'refusal'

/** A reply, before a dialect writes it. */
export interface SimReply {
  /** Hexadecimal digest of the prompt; ids and signatures are made from it. */
  seed: string
  model: string
  /** Unix seconds. */
  created: number
  items: SimItem[]
  finish: SimFinish
  stopSequence?: string
  /** The finish reason in the provider's notation, from a directive. */
  finishWord?: string
  /** Null when usage is not reported. */
  usage: SimUsage | null
  directives: Directives
  prompt: SimPrompt
}

/** Token counts. `prompt` includes `cached` and `cacheWrite`; `output` includes `reasoning`. */
export interface SimUsage {
  prompt: number
  cached: number
  cacheWrite: number
  output: number
  reasoning: number
  searches: number
}

/** Thrown for a request that the provider would refuse. */
export class SimRefusal extends Error {
  readonly status: number
  readonly kind: ErrorKind
  readonly code: string | null
  constructor(status: number, kind: ErrorKind, message: string, code: string | null = null) {
    super(message)
    this.status = status
    this.kind = kind
    this.code = code
  }
}

const WORDS =
  'stream of tokens flows through the gate and every gate counts what passes while the river waits for rain'.split(' ')
const SUMMARY = 'Reading the request, then weighing what it asks for'

/** Makes replies. Its prompt cache is shared by all requests. */
export class SimModel {
  readonly #cache = new PromptCache()
  readonly #now: () => number

  /** @param now the clock for `created` and for the prompt cache, in Unix milliseconds */
  constructor(now: () => number) {
    this.#now = now
  }

  /** @param header the directives of the `x-sim` header; they are added to those of the prompt */
  reply(prompt: SimPrompt, header: string | undefined): SimReply {
    const directives = directivesIn(prompt.userText)
    if (header !== undefined) readDirectives(header, directives)
    const seed = createHash('sha256').update(prompt.model).update(prompt.messages.join('\0')).digest('hex')
    const reply: SimReply = {
      seed,
      model: prompt.model,
      created: Math.floor(this.#now() / 1000),
      items: [],
      finish: 'stop',
      usage: null,
      directives,
      prompt,
    }
    compose(reply)
    limit(reply)
    if (directives.finish !== undefined) reply.finishWord = directives.finish
    if (directives.usage !== 'none') reply.usage = this.#usage(reply)
    return reply
  }

  #usage({ prompt, items, directives }: SimReply): SimUsage {
    const { total, cached, written } = this.#cache.look(prompt, this.#now())
    let output = 0
    let reasoning = 0
    let searches = 0
    for (const item of items) {
      if (item.type === 'reasoning') reasoning += item.tokens
      else if (item.type === 'search') searches++
      else output += item.pieces.length
    }
    if (directives.usage === 'negative')
      return { prompt: -7, cached: -1, cacheWrite: -1, output: -3, reasoning: -2, searches: 0 }
    return {
      prompt: total,
      cached,
      cacheWrite: written,
      output: output + reasoning,
      reasoning,
      searches,
    }
  }
}

function compose(reply: SimReply): void {
  const { directives, prompt, items } = reply
  const reason = directives.reason ?? (prompt.reason ? { sentences: 1 } : undefined)
  if (reason) {
    const summary = Array.from({ length: reason.sentences }, (_, i) => `${SUMMARY}, step ${i + 1}. `)
    items.push({
      type: 'reasoning',
      summary,
      tokens: reason.tokens ?? Math.max(prompt.reasonTokens, 8 * reason.sentences),
    })
  }
  if (directives.refuse !== undefined) {
    items.push({ type: 'refusal', text: directives.refuse, pieces: cut(directives.refuse, directives) })
    reply.finish = 'refusal'
    return
  }
  const calls = callsOf(reply)
  if (calls.length > 0) {
    if (directives.text !== undefined) items.push(say(directives.text, directives))
    for (const call of calls) {
      const { name, namespace, kind } = call
      items.push({
        type: 'call',
        name,
        namespace,
        kind,
        text: call.arguments,
        pieces: cut(call.arguments, directives),
        whole: true,
      })
    }
    reply.finish = 'tool_calls'
    return
  }
  let found: Found[] = []
  const query = directives.search ?? (prompt.choice.type === 'search' ? withoutDirectives(prompt.userText) : undefined)
  if (query !== undefined && prompt.search && prompt.rounds === 0) {
    found = simulatedSearch(query)
    items.push({ type: 'search', query, results: found })
  }
  const text = say(directives.text ?? textOf(reply, found), directives)
  items.push(text)
  text.citations = found.slice(0, 1)
}

function say(text: string, directives: Directives): Extract<SimItem, { type: 'text' }> {
  return { type: 'text', text, pieces: cut(text, directives), citations: [] }
}

/**
 * Cuts text into words, each with the space after it, or into pieces of `chunk` characters. For this model a piece is
 * a token.
 */
function cut(text: string, directives: Directives): string[] {
  if (directives.chunk === undefined) return text.match(/\S+\s*|\s+/g) ?? []
  const characters = [...text]
  const pieces: string[] = []
  for (let i = 0; i < characters.length; i += directives.chunk)
    pieces.push(characters.slice(i, i + directives.chunk).join(''))
  return pieces
}

function textOf({ directives, prompt }: SimReply, found: readonly Found[]): string {
  if (directives.tokens !== undefined) {
    return Array.from({ length: directives.tokens }, (_, i) => WORDS[i % WORDS.length]).join(' ')
  }
  if (prompt.format) return JSON.stringify(prompt.format.schema ? sample(prompt.format.schema) : { simulated: true })
  const sentences: string[] = []
  if (prompt.results.length > 0) {
    sentences.push(`The ${prompt.results.length === 1 ? 'tool' : 'tools'} answered: ${prompt.results.join('; ')}.`)
  } else {
    const said = withoutDirectives(prompt.userText) || 'nothing'
    sentences.push(`You said: ${said}${/[.!?]$/.test(said) ? '' : '.'}`)
  }
  if (found.length > 0) sentences.push(`The first result is ${found[0]!.title}.`)
  if (prompt.images.length > 0) sentences.push(`I see ${countOf(prompt.images, 'image')}.`)
  if (prompt.documents.length > 0) sentences.push(`I read ${countOf(prompt.documents, 'document')}.`)
  sentences.push('This is the built-in simulator, so that is all there is to it.')
  return sentences.join(' ')
}

function countOf(types: readonly string[], noun: string): string {
  return `${types.length} ${noun}${types.length === 1 ? '' : 's'} (${types.join(', ')})`
}

interface PlannedCall {
  name: string
  namespace?: string
  kind: 'function' | 'custom'
  arguments: string
}

/** The calls of this round: those of a directive, otherwise an invented one when the choice forces a call. */
function callsOf({ directives, prompt }: SimReply): PlannedCall[] {
  if (prompt.choice.type === 'none' || prompt.tools.length === 0) return []
  const planned = directives.rounds[prompt.rounds]
  let calls = planned?.map(request => plan(request, prompt.tools)) ?? []
  const { choice, allowed } = prompt
  if (allowed) calls = calls.filter(call => allowed.includes(call.name))
  if (choice.type === 'tool') calls = calls.filter(call => call.name === choice.name)
  const forced = choice.type === 'required' || choice.type === 'tool'
  if (calls.length === 0 && forced && prompt.rounds === 0) {
    const name = choice.type === 'tool' ? choice.name : allowed?.[0]
    const tool = prompt.tools.find(t => t.name === name) ?? prompt.tools[0]!
    const made = sample(tool.schema)
    calls.push({
      name: tool.name,
      namespace: tool.namespace,
      kind: tool.kind,
      arguments: tool.kind === 'custom' ? 'text' : JSON.stringify(made),
    })
  }
  return prompt.parallel ? calls : calls.slice(0, 1)
}

function plan(request: ToolRequest, tools: readonly SimTool[]): PlannedCall {
  const tool = findTool(request.name, tools)
  if (!tool) return { name: request.name, kind: 'function', arguments: request.arguments }
  const { name, namespace, kind } = tool
  if (kind === 'custom' || !request.plain) return { name, namespace, kind, arguments: request.arguments }
  // A plain input for a function: the gateway has wrapped a custom tool.
  return { name, namespace, kind, arguments: JSON.stringify({ input: request.arguments }) }
}

/**
 * Finds a declared tool by name; `#2` is the second one. An aliased name is found by its beginning, so that a prompt
 * can use the name that the client declared.
 */
function findTool(name: string, tools: readonly SimTool[]): SimTool | undefined {
  if (/^#\d+$/.test(name)) return tools[Number(name.slice(1)) - 1]
  const exact = tools.find(tool => tool.name === name)
  if (exact) return exact
  const stem = name.replace(/[^A-Za-z0-9_-]/g, '_').slice(0, 50)
  return (
    tools.find(tool => /_[0-9a-f]{10}$/.test(tool.name) && tool.name.startsWith(stem)) ??
    tools.find(tool => tool.name.endsWith('__' + name))
  )
}

/** Makes a value that matches a simple JSON Schema, with only the required members. */
function sample(schema: unknown, depth = 0, root = schema): unknown {
  const s = (typeof schema === 'object' && schema !== null ? schema : {}) as Record<string, unknown>
  if (typeof s['$ref'] === 'string') {
    let target: any = root
    for (const name of s['$ref'].split('/').slice(1)) target = target?.[name]
    return depth < 8 ? sample(target, depth + 1, root) : null
  }
  // The last branch, since the first is often the one that contains itself.
  const union = s['anyOf'] ?? s['oneOf']
  if (Array.isArray(union) && union.length > 0) return sample(union.at(-1), depth, root)
  if (Array.isArray(s['enum'])) return s['enum'][0]
  if ('const' in s) return s['const']
  const type = Array.isArray(s['type']) ? s['type'][0] : s['type']
  switch (typeof type === 'string' ? type.toLowerCase() : '') {
    case 'string':
      return 'text'
    case 'integer':
    case 'number':
      return typeof s['minimum'] === 'number' ? s['minimum'] : 1
    case 'boolean':
      return true
    case 'array':
      return depth < 8 ? [sample(s['items'], depth + 1, root)] : []
    case 'null':
      return null
  }
  const properties = (s['properties'] ?? {}) as Record<string, unknown>
  const required = Array.isArray(s['required']) ? (s['required'] as string[]) : []
  const made: Record<string, unknown> = {}
  if (depth < 8) for (const name of required) made[name] = sample(properties[name], depth + 1, root)
  return made
}

/** Applies stop strings and the token cap, in the same order as a provider. */
function limit(reply: SimReply): void {
  const { prompt, directives } = reply
  let left = prompt.maxTokens ?? Number.POSITIVE_INFINITY
  const kept: SimItem[] = []
  for (const item of reply.items) {
    if (item.type === 'reasoning') {
      // Without a directive, reasoning uses at most half of the cap, so that there is an answer.
      if (!directives.reason) item.tokens = Math.min(item.tokens, Math.floor(left / 2))
      const whole = item.tokens < left
      item.tokens = Math.min(item.tokens, left)
      left -= item.tokens
      kept.push(item)
      if (!whole) {
        reply.finish = 'length'
        break
      }
      continue
    }
    if (item.type === 'search') {
      kept.push(item)
      continue
    }
    const stop = item.type === 'text' ? stopAt(item.text, prompt.stop) : undefined
    if (stop && item.type === 'text') {
      item.text = item.text.slice(0, stop.at)
      item.pieces = cut(item.text, directives)
      reply.stopSequence = stop.string
    }
    if (item.pieces.length > left) {
      item.pieces = item.pieces.slice(0, left)
      item.text = item.pieces.join('')
      if (item.type === 'call') item.whole = false
      reply.finish = 'length'
      reply.stopSequence = undefined
      kept.push(item)
      break
    }
    left -= item.pieces.length
    kept.push(item)
    if (reply.stopSequence !== undefined) {
      reply.finish = 'stop_sequence'
      break
    }
  }
  reply.items = kept
}

function stopAt(text: string, stops: readonly string[]): { at: number; string: string } | undefined {
  let first: { at: number; string: string } | undefined
  for (const string of stops) {
    const at = text.indexOf(string)
    if (at !== -1 && (!first || at + string.length < first.at + first.string.length)) first = { at, string }
  }
  return first
}

/** What a provider that caches by itself keeps a message for, in milliseconds. */
const IMPLICIT_MS = 3_600_000
/** How many prefixes the cache keeps; the one that was used longest ago is dropped first. */
const MOST_PREFIXES = 10_000
/** A marked prefix is looked for at the marker's block, and at this many blocks before it. */
const LOOK_BACK = 20

/** Remembers prompt prefixes by their exact text, as a provider's cache does. */
class PromptCache {
  /** Digest of a prefix → when it expires, in Unix milliseconds. In the order of use. */
  readonly #expires = new Map<string, number>()

  /** @returns tokens: `total` of the prompt, of those `cached` and `written`. */
  look(prompt: SimPrompt, now: number): { total: number; cached: number; written: number } {
    const { model, messages, images, documents } = prompt
    const blocks: SimBlock[] = prompt.blocks ?? messages.map(text => ({ text, cacheMs: IMPLICIT_MS }))
    const minimum = prompt.blocks ? cacheMinimum(model) : 0
    const prefixes: { digest: string; tokens: number; cacheMs?: number }[] = []
    let digest = model
    let tokens = 0
    for (const { text, cacheMs } of blocks) {
      digest = createHash('sha256').update(digest).update('\0').update(text).digest('base64')
      tokens += Math.ceil(text.length / 4)
      prefixes.push({ digest, tokens, cacheMs })
    }
    const total = Math.max(tokens + 85 * images.length + 1500 * documents.length, 1)
    let cached = 0
    let marked = 0
    for (const [at, prefix] of prefixes.entries()) {
      if (prefix.cacheMs === undefined || prefix.tokens < minimum) continue
      marked = prefix.tokens
      const found = prefixes
        .slice(Math.max(at - LOOK_BACK, 0), at + 1)
        .findLast(({ digest }) => (this.#expires.get(digest) ?? 0) > now)
      if (found) cached = Math.max(cached, found.tokens)
    }
    for (const { digest, tokens, cacheMs } of prefixes) {
      if (cacheMs === undefined || tokens < minimum) continue
      this.#expires.delete(digest)
      this.#expires.set(digest, now + cacheMs)
    }
    for (const oldest of this.#expires.keys()) {
      if (this.#expires.size <= MOST_PREFIXES) break
      this.#expires.delete(oldest)
    }
    // A provider never serves the whole prompt from its cache.
    cached = Math.min(cached, total - 1)
    return { total, cached, written: prompt.blocks ? Math.max(marked - cached, 0) : 0 }
  }
}
