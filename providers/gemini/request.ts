/** Makes `models/…:generateContent` requests from a conversation (wire.md F.1 to F.5). */

import { createHash } from 'node:crypto'
import { argumentsOf } from '../../core/canon/arguments.ts'
import {
  type CallPart,
  type Conversation,
  type DocumentPart,
  type Effort,
  formOf,
  type ImagePart,
  type MediaSource,
  type Part,
  type ResultPart,
  type Tool,
  workOf,
} from '../../core/canon/conversation.ts'
import type { Work } from '../../core/canon/work.ts'
import type { Backend, OutboundContext, OutboundRequest } from '../../core/ports/dialect.ts'
import { appendAll } from '../../core/tools/append.ts'
import { adjacentResults, type ToolRound } from '../adjacent-results.ts'
import { CUSTOM_INPUT_SCHEMA, customDescription } from '../custom-input.ts'
import { documentLine, documentText, resultText, searchText, systemTag } from '../document-text.ts'
import { wantedEffort } from '../effort.ts'
import { fitEffort } from '../effort-levels.ts'
import { adjustments, type SentControls } from '../left-out.ts'
import { argumentsObject, isObject, type JsonObject, object, string } from '../loose-json.ts'
import { OutboundHeaders } from '../outbound-headers.ts'
import { isPrefill } from '../requirements.ts'
import { aliasTools, GEMINI_NAMES, type ToolNames } from '../tool-names.ts'
import { type ModelTraits, type ThinkingLevel, traitsOf } from './models.ts'
import { openApiSchema } from './openapi-schema.ts'
import { takesOpenApi } from './settings.ts'

const HEADERS = new OutboundHeaders(apiKey => ({ 'x-goog-api-key': apiKey }))

export const NAME = 'gemini'

/** What the decoder needs from the request. */
export interface RequestState {
  names: ToolNames
}

/** The private data of this dialect: the signature of a functionCall part. */
export interface GeminiContinuation {
  signature: string
  /** `digestOf` the arguments that the model signed; absent in what 0.1.0 kept. */
  args?: string
}

/** The JSON of a call's arguments, as it was made of what the model said. */
const sentArguments = (call: CallPart): string =>
  call.kind === 'custom' ? JSON.stringify({ input: call.input }) : argumentsOf(call) || '{}'

/** @param json the arguments, as `normalJson` writes them */
export const digestOf = (json: string): string => createHash('sha256').update(json).digest('base64url').slice(0, 16)

/**
 * The documented replacement for a signature, when another model made the call, a client changed its arguments, or the
 * signature is lost.
 */
const NO_SIGNATURE = 'skip_thought_signature_validator'
/** The most stop strings that the API accepts. */
const MOST_STOPS = 5

/**
 * Makes the request for one attempt. The backend must fit the conversation (`unfit`).
 * @throws Error when a tool schema does not fit the backend
 */
export function request(conversation: Conversation, backend: Backend, context: OutboundContext): OutboundRequest {
  const names = aliasTools(conversation.tools, GEMINI_NAMES)
  const traits = traitsOf(backend.model)
  const system = conversation.system.filter(part => !part.meteredOnly && part.text.trim() !== '')
  const config = generationConfig(conversation, backend, traits)
  const body: JsonObject = {
    systemInstruction: system.length > 0 ? { parts: system.map(part => ({ text: part.text })) } : undefined,
    contents: new ContentBuilder(names, backend, traits, context).build(conversation),
    ...toolMembers(conversation, backend, names),
    generationConfig: config,
  }
  const headers = HEADERS.of(backend, context.stream)
  const resource = backend.model.includes('/') ? backend.model : `models/${backend.model}`
  const path = `/${resource}:${context.stream ? 'streamGenerateContent?alt=sse' : 'generateContent'}`
  const state: RequestState = { names }
  const { temperature, topP, seed, thinkingConfig: thinking } = config ?? {}
  return {
    method: 'POST',
    path,
    headers,
    body: (context.json ?? JSON.stringify)(body),
    state,
    adjusted: adjustments(conversation, { temperature, topP, seed, ...effortSent(object(thinking)) }),
  }
}

/**
 * The stop strings that the API matches. It does not report which one matched: when the client's surface reports
 * that, the gateway matches them itself.
 */
export function nativeStops(conversation: Conversation): readonly string[] {
  const { sampling } = conversation
  return formOf(conversation).namesStopString || sampling.stop.length > MOST_STOPS ? [] : sampling.stop
}

// ---- tools ----------------------------------------------------------------------------------------------------------

type ClientTool = Exclude<Tool, { type: 'web_search' }>

function toolMembers(conversation: Conversation, backend: Backend, names: ToolNames): JsonObject {
  const { toolChoice: choice } = conversation
  let { tools } = conversation
  if (choice.type === 'allowed' && choice.mode === 'auto') {
    const allowed = new Set(
      choice.tools.map(tool => `${tool.kind === 'web_search'}:${tool.namespace ?? ''}:${tool.name}`),
    )
    tools = tools.filter(tool => {
      const namespace = 'namespace' in tool ? (tool.namespace ?? '') : ''
      return tool.type === 'web_search'
        ? choice.tools.some(chosen => chosen.kind === 'web_search')
        : allowed.has(`false:${namespace}:${tool.name}`)
    })
  }
  const functions = tools.filter(tool => tool.type !== 'web_search')
  const members: JsonObject[] = []
  if (functions.length > 0)
    members.push({
      functionDeclarations: functions.map(tool => declaration(tool, backend, names, workOf(conversation))),
    })
  if (functions.length < tools.length && choice.type !== 'none') members.push({ googleSearch: {} })
  if (members.length === 0) return {}
  if (functions.length === 0) return { tools: members }
  return { tools: members, toolConfig: { functionCallingConfig: callingConfig(conversation, names) } }
}

function callingConfig(conversation: Conversation, names: ToolNames): JsonObject {
  const choice = conversation.toolChoice
  switch (choice.type) {
    case 'none':
      return { mode: 'NONE' }
    case 'required':
      return { mode: 'ANY' }
    case 'tool':
      return { mode: 'ANY', allowedFunctionNames: [names.toUpstream(choice.name, choice.namespace)] }
    case 'allowed':
      if (choice.mode === 'required') {
        const functions = choice.tools.filter(tool => tool.kind !== 'web_search')
        // A client may name one tool a thousand times, and what it names is not counted.
        const allowed = new Set(functions.map(tool => names.toUpstream(tool.name, tool.namespace)))
        return { mode: 'ANY', allowedFunctionNames: [...allowed] }
      }
  }
  const strict = conversation.tools.some(tool => tool.type === 'function' && tool.strict)
  return { mode: strict ? 'VALIDATED' : 'AUTO' }
}

function declaration(tool: ClientTool, backend: Backend, names: ToolNames, work: Work): JsonObject {
  const name = names.toUpstream(tool.name, tool.type === 'native' ? undefined : tool.namespace)
  const description = tool.type === 'custom' ? customDescription(tool) : tool.description
  const parameters = tool.type === 'custom' ? CUSTOM_INPUT_SCHEMA : tool.parameters
  if (!takesOpenApi(backend)) return { name, description, parametersJsonSchema: parameters }
  const written = openApiSchema(parameters, work)
  if (!('schema' in written)) throw new Error(`a tool whose schema needs ${written.lacks} was sent to an unfit backend`)
  // The API refuses an object schema without properties; a function without parameters has no `parameters` member.
  return { name, description, parameters: written.schema['properties'] === undefined ? undefined : written.schema }
}

// ---- controls -------------------------------------------------------------------------------------------------------

function generationConfig(conversation: Conversation, backend: Backend, traits: ModelTraits): JsonObject | undefined {
  const { sampling } = conversation
  const stops = nativeStops(conversation)
  const config: JsonObject = {
    maxOutputTokens: conversation.maxOutputTokens,
    temperature: sampling.temperature,
    topP: sampling.topP,
    topK: sampling.topK !== undefined && sampling.topK > 0 ? sampling.topK : undefined,
    seed: sampling.seed === undefined ? undefined : seedOf(sampling.seed),
    stopSequences: stops.length > 0 ? stops : undefined,
    responseLogprobs: sampling.logprobs ? true : undefined,
    logprobs: sampling.logprobs && sampling.topLogprobs ? sampling.topLogprobs : undefined,
    thinkingConfig: thinkingConfig(conversation, backend, traits),
    mediaResolution: mediaResolution(conversation),
    responseMimeType: conversation.output ? 'application/json' : undefined,
    responseJsonSchema: conversation.output?.schema,
  }
  return Object.values(config).some(value => value !== undefined) ? config : undefined
}

/**
 * The API refuses a seed of more than 32 bits. A longer seed, such as a time, is mapped to a shorter one, always the
 * same.
 */
function seedOf(seed: number): number {
  return seed === (seed | 0) ? seed : Number(BigInt.asUintN(31, BigInt(seed)))
}

/** What a thinkingConfig says of the effort. */
function effortSent({ thinkingLevel: level, thinkingBudget: budget }: JsonObject): SentControls {
  if (typeof level === 'string') return { effort: level.toLowerCase() }
  if (budget === 0) return { effort: 'none' }
  return budget === undefined ? {} : { insteadOfEffort: `thinking ${budget}` }
}

const LEVEL_EFFORTS: Record<ThinkingLevel, Effort> = { MINIMAL: 'minimal', LOW: 'low', MEDIUM: 'medium', HIGH: 'high' }
const BUDGETS: Record<Exclude<Effort, 'none'>, number> = {
  minimal: 1_024,
  low: 2_048,
  medium: 8_192,
  high: 16_384,
  xhigh: 32_768,
  max: 32_768,
  ultra: 32_768,
}

function thinkingConfig(conversation: Conversation, backend: Backend, traits: ModelTraits): JsonObject | undefined {
  const { thinking } = traits
  if (thinking.by === 'none' || !backend.supports.has('reasoning')) return undefined
  const { reasoning } = conversation
  const wish = wantedEffort(conversation)
  const config: JsonObject = { includeThoughts: reasoning.summary === undefined ? undefined : true }
  if (wish === undefined) return reasoning.summary === undefined ? undefined : config
  if (thinking.by === 'level') {
    const efforts = thinking.levels.map(level => LEVEL_EFFORTS[level])
    const effort = fitEffort(wish, efforts, backend.effortCeiling)
    config['thinkingLevel'] = thinking.levels[efforts.indexOf(effort)]
  } else {
    const native = reasoning.effort === undefined && reasoning.budgetTokens !== undefined
    const fitted = fitEffort(wish, ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'], backend.effortCeiling)
    if (fitted === 'none') config['thinkingBudget'] = thinking.off
    else {
      const budget = native ? reasoning.budgetTokens! : BUDGETS[fitted]
      config['thinkingBudget'] = Math.min(Math.max(budget, thinking.least), thinking.most)
    }
  }
  return config
}

/** The API has one resolution for the whole request: the highest that any image requests. */
function mediaResolution(conversation: Conversation): string | undefined {
  let low = false
  for (const turn of conversation.turns) {
    for (const part of turn.parts) {
      for (const media of part.type === 'result' ? part.content : [part]) {
        if (media.type !== 'image') continue
        if (media.detail === 'high' || media.detail === 'original') return 'MEDIA_RESOLUTION_HIGH'
        if (media.detail === 'low') low = true
      }
    }
  }
  return low ? 'MEDIA_RESOLUTION_LOW' : undefined
}

// ---- contents -------------------------------------------------------------------------------------------------------

interface Content {
  role: 'user' | 'model'
  parts: JsonObject[]
}

class ContentBuilder {
  readonly #names: ToolNames
  readonly #backend: Backend
  readonly #traits: ModelTraits
  readonly #context: OutboundContext
  readonly #contents: Content[] = []
  /** The last content contains function responses; nothing else may be added to it. */
  #sealed = false

  constructor(names: ToolNames, backend: Backend, traits: ModelTraits, context: OutboundContext) {
    this.#names = names
    this.#backend = backend
    this.#traits = traits
    this.#context = context
  }

  build(conversation: Conversation): Content[] {
    for (const step of adjacentResults(conversation.turns)) {
      if (step.type === 'round') this.#round(step)
      else if (step.turn.role === 'assistant') this.#push('model', this.#model(step.turn.parts))
      else if (step.turn.role === 'system') {
        const texts = step.turn.parts.filter(part => part.type === 'text' && !part.meteredOnly && !isBlank(part.text))
        this.#push(
          'user',
          texts.map(part => ({ text: systemTag((part as { text: string }).text) })),
        )
      } else this.#push('user', userParts(step.turn.parts))
    }
    if (this.#contents[0]?.role !== 'user') this.#contents.unshift({ role: 'user', parts: [{ text: '.' }] })
    // The model continues a model turn at the end. Only Messages has that meaning; for other surfaces a user turn is
    // added.
    if (this.#contents.at(-1)!.role === 'model' && !isPrefill(conversation)) this.#push('user', [{ text: '.' }])
    return this.#contents
  }

  #push(role: Content['role'], parts: JsonObject[]): void {
    if (parts.length === 0) return
    const last = this.#contents.at(-1)
    if (last && last.role === role && !this.#sealed) appendAll(last.parts, parts)
    else this.#contents.push({ role, parts })
    this.#sealed = false
  }

  #round(round: ToolRound): void {
    this.#push('model', this.#model(round.parts))
    const calls = new Map(round.calls.map(call => [call.id, call]))
    const responses: JsonObject[] = []
    const hoisted: JsonObject[] = []
    for (const result of round.results) responses.push(this.#response(result, calls.get(result.callId)!, hoisted))
    if (responses.length === 0) return
    this.#contents.push({ role: 'user', parts: responses })
    this.#sealed = true
    this.#push('user', hoisted)
  }

  #model(parts: readonly Part[]): JsonObject[] {
    const content: JsonObject[] = []
    // Only the first of several parallel calls has the signature.
    let signed = false
    for (const part of parts) {
      if (part.type === 'text' || part.type === 'refusal') {
        if (!isBlank(part.text)) content.push({ text: part.text })
      } else if (part.type === 'search') content.push({ text: searchText(part) })
      else if (part.type === 'call') {
        const signature = this.#signature(part) ?? (signed || !this.#traits.signatures ? undefined : NO_SIGNATURE)
        signed = true
        content.push({
          functionCall: {
            id: this.#context.upstreamCallId(part.id),
            name: this.#names.toUpstream(part.name, part.namespace),
            args: argumentsObject(part, this.#context),
          },
          thoughtSignature: signature,
        })
      }
    }
    return content
  }

  /**
   * Private data of another dialect or model is dropped completely (TOOL-6). So is the signature of a call whose
   * arguments a client changed, as n8n does by adding the call's id: it signs others.
   */
  #signature(call: CallPart): string | undefined {
    const { continuation } = call
    if (continuation?.dialect !== NAME || continuation.model !== this.#backend.model) return undefined
    const { data } = continuation
    if (!isObject(data)) return undefined
    if (data['args'] !== undefined && data['args'] !== digestOf(sentArguments(call))) return undefined
    return string(data['signature']) || undefined
  }

  #response(result: ResultPart, call: CallPart, hoisted: JsonObject[]): JsonObject {
    const id = this.#context.upstreamCallId(result.callId)
    const text = resultText(result)
    const media = result.content.filter(part => part.type !== 'text' && part.source.kind !== 'text')
    const inner: JsonObject[] = []
    for (const part of media) appendAll(inner, mediaParts(part as ImagePart | DocumentPart))
    const functionResponse: JsonObject = {
      id,
      name: this.#names.toUpstream(call.name, call.namespace),
      response: result.isError ? { error: text } : { output: text },
    }
    if (inner.length > 0) {
      if (this.#traits.responseMedia) functionResponse['parts'] = inner
      else {
        if (text === '') functionResponse['response'] = { output: 'The content of this result follows.' }
        hoisted.push({ text: `[result of call ${id}]` })
        appendAll(hoisted, inner)
      }
    }
    return { functionResponse }
  }
}

function isBlank(text: string): boolean {
  return text.trim() === ''
}

function userParts(parts: readonly Part[]): JsonObject[] {
  const content: JsonObject[] = []
  for (const part of parts) {
    if (part.type === 'text') {
      if (!part.meteredOnly && !isBlank(part.text)) content.push({ text: part.text })
    } else if (part.type === 'image' || part.type === 'document') appendAll(content, mediaParts(part))
  }
  return content
}

function mediaParts(part: ImagePart | DocumentPart): JsonObject[] {
  const { source } = part
  if (source.kind === 'text') return [{ text: documentText(part as DocumentPart, source.text) }]
  const line = part.type === 'document' ? documentLine(part) : ''
  return [...(line === '' ? [] : [{ text: line }]), blob(source)]
}

/** The API takes bytes; `unfit` has refused media that are given only by URL. */
function blob(source: MediaSource): JsonObject {
  if (source.kind === 'data') return { inlineData: { mimeType: source.mediaType, data: source.data } }
  return { fileData: { fileUri: source.url } }
}
