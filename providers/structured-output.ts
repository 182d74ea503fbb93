/**
 * Structured output for every backend (GEN-3). Where the dialect has a form for it, the provider is asked for it.
 * Elsewhere the conversation goes out with one more tool, which the model has to call, and the arguments of that call
 * become the text of the reply. In both cases the gateway checks the text: it is one JSON object that meets the schema,
 * or the reply fails.
 */
import {
  type Conversation,
  derived,
  type FunctionTool,
  type OutputFormat,
  type Tool,
  type ToolChoice,
  workOf,
} from '../core/canon/conversation.ts'
import { GatewayError } from '../core/canon/errors.ts'
import type { FinishReason, StreamEvent } from '../core/canon/events.ts'
import type { Work } from '../core/canon/work.ts'
import type { Backend, Decoder, Dialect, Unfit } from '../core/ports/dialect.ts'
import { JsonObjectText } from './object-text.ts'
import { OuterDecoder, type Push } from './outer-decoder.ts'
import { isForced, isPrefill, memberOf } from './requirements.ts'
import { textMeets } from './strict-arguments.ts'

// ---- requests -------------------------------------------------------------------------------------------------------

/** A conversation as it goes to one backend. */
export interface Sent {
  conversation: Conversation
  /** The name of the tool whose arguments are the text of the reply; null where the provider is asked for JSON. */
  tool: string | null
}

/** The conversation as a backend gets it: unchanged, or with a forced tool in place of `output`. */
export function sentTo(conversation: Conversation, backend: Backend, dialect: Dialect): Sent {
  if (!conversation.output || isNative(conversation, backend, dialect)) return { conversation, tool: null }
  const { strict, loose } = toolForms(conversation)
  const strictly = strict && backend.supports.has('strict_tools') && !dialect.unfit(strict.conversation, backend)
  return strictly ? strict : loose
}

/** Says why a backend cannot serve a conversation, structured output included; null when it can. */
export function unfitFor(conversation: Conversation, backend: Backend, dialect: Dialect): Unfit | null {
  const { output } = conversation
  if (!output) return dialect.unfit(conversation, backend)
  if (isPrefill(conversation)) {
    return { param: output.path, requirement: 'structured output that continues an assistant message' }
  }
  const sent = sentTo(conversation, backend, dialect)
  if (sent.tool !== null && conversation.sampling.logprobs) {
    return { param: memberOf(conversation, 'logprobs'), requirement: 'log probabilities of structured output' }
  }
  const unfit = dialect.unfit(sent.conversation, backend)
  // The client asked for no forced tool and for no tool at the format's path: the gateway did.
  const ours =
    sent.tool !== null && unfit !== null && (unfit.param === 'tool_choice' || unfit.param.startsWith(output.path))
  return ours ? { param: output.path, requirement: `structured output: ${unfit.requirement}` } : unfit
}

function isNative(conversation: Conversation, backend: Backend, dialect: Dialect): boolean {
  return backend.supports.has('structured_output') && dialect.structures?.(conversation, backend) === true
}

/** The tools of a conversation with one more, whose arguments are the reply. */
interface Extended {
  of: readonly Tool[]
  name: string
  strict: Tool[] | null
  loose: Tool[]
}

/** By the format. Each attempt has a copy of the conversation, with the same format and the same tools. */
const extended = new WeakMap<OutputFormat, Extended>()

function extendedTools({ tools }: Conversation, output: OutputFormat): Extended {
  const found = extended.get(output)
  if (found?.of === tools) return found
  const name = freeName(tools)
  const tool: FunctionTool = {
    type: 'function',
    name,
    description: output.description ? `${DESCRIPTION}\n\n${output.description}` : DESCRIPTION,
    parameters: output.schema ?? ANY_OBJECT,
    path: output.path,
  }
  const strict = output.strict ? [...tools, { ...tool, strict: true }] : null
  const made = { of: tools, name, strict, loose: [...tools, tool] }
  extended.set(output, made)
  return made
}

/** `strict` is null when the schema does not follow the rule of strict schemas. */
const toolForms = derived((conversation): { strict: Sent | null; loose: Sent } => {
  const { output, ...rest } = conversation
  // A forced call of the client's own tools comes first: that reply has no text.
  if (conversation.tools.length > 0 && isForced(conversation)) {
    const sent = { conversation: rest, tool: null }
    return { strict: output!.strict ? sent : null, loose: sent }
  }
  const { name, strict, loose } = extendedTools(conversation, output!)
  const toolForm = (tools: Tool[]): Sent => {
    const sent: Conversation = { ...rest, tools, toolChoice: forced(conversation, name) }
    // Of several calls of this tool only the first is read. A backend that can't be told so need not be passed over.
    if (sent.toolChoice.type === 'tool') sent.parallelToolCalls = true
    return { conversation: sent, tool: name }
  }
  return { strict: strict && toolForm(strict), loose: toolForm(loose) }
})

const DESCRIPTION =
  'Gives the reply to the user. Call it once, when the reply is complete: the arguments are the reply.'
const ANY_OBJECT = Object.freeze({ type: 'object', properties: Object.freeze({}) })

function forced({ tools, toolChoice: choice }: Conversation, name: string): ToolChoice {
  const own = { name, kind: 'function' as const }
  if (choice.type === 'allowed') return { ...choice, mode: 'required', tools: [...choice.tools, own] }
  return tools.length === 0 || choice.type === 'none' ? { type: 'tool', ...own } : { type: 'required' }
}

function freeName(tools: readonly Tool[]): string {
  const taken = new Set(tools.map(tool => (tool.type === 'web_search' ? tool.type : tool.name)))
  let name = 'final_reply'
  for (let n = 2; taken.has(name); n++) name = `final_reply_${n}`
  return name
}

/** A format with its schema, as OpenAI's APIs take it. They require a name. */
export function namedSchemaOf({ name, description, schema, strict }: OutputFormat): Record<string, unknown> {
  return { name: name ?? 'reply', ...(description !== undefined && { description }), schema, strict }
}

// ---- replies --------------------------------------------------------------------------------------------------------

/** Text that may be dropped waits up to this many UTF-16 units; then the reply fails. */
const MOST_HELD = 1024 * 1024

/** Reasons to finish after which the text is whole. A reply that ends otherwise may hold a part of the object. */
const WHOLE: ReadonlySet<FinishReason> = new Set(['stop', 'tool_calls'])

/**
 * The decoder of a reply whose text is the client's structured output. Text leaves as soon as it is the beginning of
 * one object. Other text waits: it is dropped before an answer or a search, and shown before a call of the client's own
 * tools, since a reply with such calls need not have an object.
 * @param decoder of the conversation that was sent
 * @param conversation the client's, with an `output`
 * @param tool as in `Sent`
 * @param search name of the function by which the gateway itself searches; null when there is none
 */
export function structuredDecoder(
  decoder: Decoder,
  conversation: Conversation,
  tool: string | null,
  search: string | null,
): Decoder {
  return new StructuredDecoder(decoder, conversation, tool, search)
}

class StructuredDecoder extends OuterDecoder {
  readonly #output: OutputFormat
  readonly #work: Work
  readonly #tool: string | null
  readonly #search: string | null
  readonly #json = new JsonObjectText()
  /** All text of the object so far. */
  #text = ''
  /** Text that waits, with the breaks between its blocks. */
  #held: StreamEvent[] = []
  #heldSize = 0
  /** The request has stop strings: some providers report a match like a natural end. */
  readonly #stops: boolean
  /** Text has left. */
  #begun = false
  /** The call whose arguments are the answer. */
  #answer: number | null = null
  /** Of the other calls, by their index upstream: the index that the client sees; -1 for further answers. */
  readonly #calls = new Map<number, number>()
  #shown = 0
  /** The reply need not have an object: it has calls, searches of the gateway or a refusal. */
  #excused = false
  /** It has searches of the gateway: text beside them is not shown, since the object comes in the next round. */
  #searched = false

  constructor(decoder: Decoder, conversation: Conversation, tool: string | null, search: string | null) {
    super(decoder)
    this.#output = conversation.output!
    this.#work = workOf(conversation)
    this.#stops = conversation.sampling.stop.length > 0
    this.#tool = tool
    this.#search = search
  }

  protected override on(event: StreamEvent, push: Push): void {
    if (this.over) return
    switch (event.type) {
      case 'text':
        // With the tool, text beside it is no answer; it is one only where the model does not call the tool.
        if (this.#tool === null) return this.#write(event, push)
        return this.#answer === null ? this.#hold(event, event.text.length, push) : push({ type: 'activity' })
      case 'break':
        if (this.#tool !== null && this.#answer !== null) return
        return this.#held.length > 0 || this.#tool !== null ? this.#hold(event, 0, push) : push(event)
      case 'citation':
        return this.#begun && this.#tool === null ? push(event) : push({ type: 'activity' })
      case 'refusal':
        this.#excused = true
        return push(event)
      case 'search_start':
        this.#drop()
        return push(event)
      case 'tool_call':
        if (event.kind === 'function' && event.namespace === undefined) {
          if (event.name === this.#tool) return this.#answered(event.index, push)
          if (event.name === this.#search) {
            this.#searched = true
            this.#drop()
          }
        }
        this.#release(push)
        this.#excused = true
        this.#calls.set(event.index, this.#shown)
        return push({ ...event, index: this.#shown++ })
      case 'tool_args':
      case 'tool_end': {
        if (event.index !== this.#answer) {
          const index = this.#calls.get(event.index) ?? -1
          return index === -1 ? push({ type: 'activity' }) : push({ ...event, index })
        }
        if (event.type === 'tool_args') return this.#write({ type: 'text', text: event.text }, push)
        // A call without arguments means an empty object.
        if (this.#text.trim() === '' && this.#held.length === 0) this.#write({ type: 'text', text: '{}' }, push)
        return
      }
      case 'finish': {
        if (!WHOLE.has(event.reason)) {
          this.#release(push)
          return push(event)
        }
        if (this.#tool !== null && this.#answer === null && !this.#excused) this.#reread(push)
        const stopped = this.#stops && this.#begun && !this.#json.whole
        if (!this.#excused && !stopped && !this.#isMet()) return this.#fail(push)
        if (this.#answer === null && !this.#searched) this.#release(push)
        return push(this.#shown === 0 ? { ...event, reason: 'stop' } : event)
      }
      default:
        push(event)
    }
  }

  #answered(index: number, push: Push): void {
    if (this.#answer === null) this.#answer = index
    else this.#calls.set(index, -1)
    this.#drop()
    push({ type: 'activity' })
  }

  /** Adds a piece of the answer. */
  #write(event: Extract<StreamEvent, { type: 'text' }>, push: Push): void {
    if (event.text === '') return push(event)
    this.#text += event.text
    if (this.#json.push(event.text)) {
      if (!this.#json.started) return this.#hold(event, event.text.length, push)
      this.#release(push)
      this.#begun = true
      return push(event)
    }
    if (this.#begun) return this.#fail(push)
    this.#hold(event, event.text.length, push)
  }

  #hold(event: StreamEvent, size: number, push: Push): void {
    this.#held.push(event)
    this.#heldSize += size
    if (this.#heldSize > MOST_HELD) this.#fail(push)
    else push({ type: 'activity' })
  }

  #release(push: Push): void {
    for (const event of this.#held) push(event)
    this.#held = []
    this.#heldSize = 0
  }

  #drop(): void {
    this.#held = []
    this.#heldSize = 0
    if (this.#begun) return
    this.#text = ''
    this.#json.reset()
  }

  /** The model wrote text where it had to call the tool: the text is the answer, if it is an object. */
  #reread(push: Push): void {
    const held = this.#held
    this.#drop()
    for (const event of held) {
      if (event.type === 'text') this.#write(event, push)
      if (this.over) return
    }
  }

  #isMet(): boolean {
    return this.#json.whole && textMeets(this.#output.schema, this.#text, this.#work)
  }

  #fail(push: Push): void {
    if (this.over) return
    this.over = true
    // The provider did its work, so the request is not repeated elsewhere: an event shows that it has answered.
    push({ type: 'activity' })
    push({ type: 'error', error: unmet(this.#output) })
  }
}

function unmet({ path, schema }: OutputFormat): GatewayError {
  return new GatewayError('upstream_server_error', {
    message: `The model's reply is not ${schema ? `the JSON that the schema of '${path}' asks for` : `the JSON object that '${path}' asks for`}. Simplify the request, or ask another model.`,
    param: path,
    retriable: false,
    horizonMs: null,
  })
}
