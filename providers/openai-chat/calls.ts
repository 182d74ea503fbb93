/**
 * Assembles the tool calls of a reply from deltas. Servers differ in how they fill in the indexes and ids
 * (wire.md G 11 to G 15).
 */
import type { StreamEvent } from '../../core/canon/events.ts'
import { CustomInputDecoder } from '../custom-input.ts'
import { isObject, object, string } from '../loose-json.ts'
import { SurrogateJoiner } from '../surrogates.ts'
import type { DeclaredName, ToolNames } from '../tool-names.ts'

type Push = (event: StreamEvent) => void

interface Call {
  /**
   * The gateway's index, without gaps: a call gets it when it is announced, which is when its name arrives. -1 until
   * then.
   */
  index: number
  /** The provider's index; some servers use one index for several calls. */
  readonly slot: number | undefined
  readonly upstreamId: string
  /** Null until the name has arrived. */
  declared: DeclaredName | null
  /** The argument text so far. */
  args: string
  /** Used only for custom tools. */
  readonly input: CustomInputDecoder
  readonly joiner: SurrogateJoiner
  ended: boolean
}

/** The tool calls of one reply. */
export class Calls {
  readonly #names: ToolNames
  readonly #mintId: () => string
  readonly #calls: Call[] = []
  /**
   * The latest call of each provider index and of each id: a reply may have any number of calls. The last call of all
   * is not in these maps yet, so that most replies, which have one call, need no map.
   */
  #bySlot: Map<number, Call> | undefined
  #byId: Map<string, Call> | undefined
  #announced = 0

  constructor(names: ToolNames, mintId: () => string) {
    this.#names = names
    this.#mintId = mintId
  }

  /** The number of calls so far. */
  get count(): number {
    return this.#calls.length
  }

  /**
   * @param position the position of a call in a buffered message; undefined in a stream, where the provider gives an
   *   index
   */
  delta(delta: unknown, position: number | undefined, push: Push): void {
    if (!isObject(delta)) return
    const fn = object(delta['function'])
    const name = string(fn['name'])
    const id = string(delta['id'])
    const slot = position ?? (typeof delta['index'] === 'number' ? delta['index'] : undefined)
    const args = fn['arguments']
    // Servers that wrap a native API send the arguments as an object.
    const text = typeof args === 'string' ? args : isObject(args) ? JSON.stringify(args) : ''
    const call = this.#find(slot, id, name) ?? this.#add(slot, id)
    if (call.declared === null && name !== '') this.#start(call, name, push)
    if (text !== '') this.#args(call, text, push)
  }

  /**
   * The reply has ended.
   * @param cut a limit or a filter cut the reply off: a call with incomplete arguments then stays open, so that no
   *   client runs it
   */
  end(cut: boolean, push: Push): void {
    for (const call of this.#calls) {
      if (call.ended || (cut && !this.#whole(call))) continue
      if (call.declared === null) this.#start(call, '', push)
      const custom = call.declared!.kind === 'custom'
      const rest = custom ? call.input.end() : call.args.trim() === '' ? '{}' : call.joiner.end()
      if (rest !== '') push({ type: 'tool_args', index: call.index, text: rest })
      this.#close(call, push)
    }
  }

  /** The call that a delta continues. */
  #find(slot: number | undefined, id: string, name: string): Call | undefined {
    const call = this.#latest(slot, id)
    if (!call) return undefined
    // A new id at an old index is a new call: some servers send index 0 for all calls.
    if (id !== '') return call.upstreamId === id ? call : undefined
    // No id and no new index, but a name again: it is the next call if this one is complete, otherwise the server
    // repeats the name.
    if (name !== '' && call.declared !== null && isWholeJson(call.args)) return undefined
    return call
  }

  #latest(slot: number | undefined, id: string): Call | undefined {
    const last = this.#calls.at(-1)
    if (last === undefined || (slot !== undefined ? last.slot === slot : id === '' || last.upstreamId === id))
      return last
    return slot !== undefined ? this.#bySlot?.get(slot) : this.#byId?.get(id)
  }

  #add(slot: number | undefined, upstreamId: string): Call {
    const call: Call = {
      index: -1,
      slot,
      upstreamId,
      declared: null,
      args: '',
      input: new CustomInputDecoder(),
      joiner: new SurrogateJoiner(),
      ended: false,
    }
    const last = this.#calls.at(-1)
    if (last !== undefined) {
      if (last.slot !== undefined) (this.#bySlot ??= new Map()).set(last.slot, last)
      ;(this.#byId ??= new Map()).set(last.upstreamId, last)
    }
    this.#calls.push(call)
    return call
  }

  #start(call: Call, upstreamName: string, push: Push): void {
    const declared = this.#names.fromUpstream(upstreamName)
    call.declared = declared
    call.index = this.#announced++
    const { kind, name, namespace } = declared
    const event: StreamEvent = { type: 'tool_call', index: call.index, id: this.#mintId(), kind, name }
    if (namespace !== undefined) event.namespace = namespace
    push(event)
    const early = call.args
    call.args = ''
    if (early !== '') this.#args(call, early, push)
  }

  #args(call: Call, text: string, push: Push): void {
    call.args += text
    if (call.declared === null || call.ended) return
    const out = call.declared.kind === 'custom' ? call.input.push(text) : call.joiner.push(text)
    if (out !== '') push({ type: 'tool_args', index: call.index, text: out })
    if (call.input.closed) this.#close(call, push)
  }

  #close(call: Call, push: Push): void {
    call.ended = true
    push({ type: 'tool_end', index: call.index })
  }

  #whole(call: Call): boolean {
    return call.declared !== null && isWholeJson(call.args)
  }
}

function isWholeJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
