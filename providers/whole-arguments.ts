/**
 * Checks that the arguments of function calls are JSON objects, for clients that cannot handle anything else. Models
 * sometimes write other text. The OpenAI surfaces pass such text on unchanged, and the client reports it to the
 * model. But the client libraries of Messages parse the arguments of a stream, and those of OpenAI parse the
 * arguments of strict tools, before the application sees them: the application would get an untyped error.
 *
 * When nothing of such text has been streamed yet, it is wrapped as `{"_raw": "…"}`. The client's own validation
 * refuses that and reports it to the model. Streamed text cannot be taken back: then the reply fails, as it does when
 * the provider itself reports a malformed call (wire.md F.6). The reply fails for strict tools too, whose arguments
 * must also match their schema. All these checks draw on the budget of the request; what it does not suffice for
 * passes.
 */
import { type Conversation, formOf, workOf } from '../core/canon/conversation.ts'
import { GatewayError, printable } from '../core/canon/errors.ts'
import type { FinishReason, StreamEvent, ToolCallEvent } from '../core/canon/events.ts'
import type { Work } from '../core/canon/work.ts'
import type { Decoder } from '../core/ports/dialect.ts'
import type { JsonObject } from './loose-json.ts'
import { JsonObjectText } from './object-text.ts'
import { OuterDecoder, type Push } from './outer-decoder.ts'
import { textKeepsTo } from './strict-arguments.ts'

interface Watched {
  /** The tool, as the client named it. */
  name: string
  /** For a strict tool: its schema. `text` is then the whole argument text. */
  schema?: JsonObject
  text: string
  json: JsonObjectText
  /** Text that has not been sent: no object has begun yet, or the text broke the grammar before anything was sent. */
  pending: string
  sent: boolean
}

/** Reasons to finish that may cut off a call. A cut-off call is not checked, because no client runs it. */
const CUTS: ReadonlySet<FinishReason> = new Set([
  'length',
  'context_full',
  'content_filter',
  'stop_sequence',
  'refusal',
  'idle_timeout',
  'ceiling_timeout',
])

/**
 * The decoder of a reply, with the check where the client needs it.
 * @param own name of a function that the gateway itself answers: clients do not see its calls
 */
export function wholeArguments(decoder: Decoder, conversation: Conversation, own: string | null): Decoder {
  if (conversation.tools.length === 0) return decoder
  const every = formOf(conversation).parsesArguments === true && conversation.stream
  const strict = new Map<string, JsonObject>()
  for (const tool of conversation.tools)
    if (tool.type === 'function' && tool.strict) strict.set(keyOf(tool), tool.parameters)
  if (strict.size === 0 && !every) return decoder
  return new WatchedDecoder(decoder, workOf(conversation), call => {
    if (call.kind !== 'function' || (call.name === own && call.namespace === undefined)) return undefined
    const schema = strict.get(keyOf(call))
    return schema || every
      ? { name: call.name, schema, text: '', json: new JsonObjectText(), pending: '', sent: false }
      : undefined
  })
}

function keyOf({ name, namespace }: { name: string; namespace?: string }): string {
  return `${namespace ?? ''}\0${name}`
}

class WatchedDecoder extends OuterDecoder {
  readonly #watch: (call: ToolCallEvent) => Watched | undefined
  readonly #work: Work
  readonly #calls = new Map<number, Watched>()

  constructor(decoder: Decoder, work: Work, watch: (call: ToolCallEvent) => Watched | undefined) {
    super(decoder)
    this.#work = work
    this.#watch = watch
  }

  protected override on(event: StreamEvent, push: Push): void {
    if (this.over) return
    switch (event.type) {
      case 'tool_call': {
        const watched = this.#watch(event)
        if (watched) this.#calls.set(event.index, watched)
        return push(event)
      }
      case 'tool_args': {
        const watched = this.#calls.get(event.index)
        return watched ? this.#args(event.index, watched, event.text, push) : push(event)
      }
      case 'tool_end':
        if (this.#ended(event.index, push)) push(event)
        return
      case 'finish':
        if (!CUTS.has(event.reason)) for (const index of [...this.#calls.keys()]) if (!this.#ended(index, push)) return
        return push(event)
      default:
        push(event)
    }
  }

  #args(index: number, watched: Watched, text: string, push: Push): void {
    const valid = watched.json.push(text)
    if (!valid && watched.sent) return this.#fail(watched, push)
    if (watched.schema) watched.text += text
    watched.pending += text
    if (!valid || !watched.json.started) return push({ type: 'activity' })
    push({ type: 'tool_args', index, text: watched.pending })
    watched.pending = ''
    watched.sent = true
  }

  /** Checks a call at its end. @returns false when the reply has failed */
  #ended(index: number, push: Push): boolean {
    const watched = this.#calls.get(index)
    if (!watched) return true
    this.#calls.delete(index)
    const { json, pending, sent, schema, text } = watched
    // An empty text means no arguments, which is valid.
    const whole = json.whole || (!sent && pending.trim() === '')
    if (whole && (!schema || textKeepsTo(schema, text, this.#work))) return true
    if (sent || schema) {
      this.#fail(watched, push)
      return false
    }
    push({ type: 'tool_args', index, text: JSON.stringify({ _raw: pending }) })
    return true
  }

  #fail({ name, schema }: Watched, push: Push): void {
    this.over = true
    const lack = schema ? 'do not match the schema of this strict tool' : 'are not a JSON object'
    const error = new GatewayError('upstream_server_error', {
      message: `The arguments that the model wrote for a call of the tool '${printable(name)}' ${lack}. Retry; if it persists, simplify the tool or choose another model.`,
      cause: 'the arguments of a call are not what they have to be',
    })
    push({ type: 'error', error })
  }
}
