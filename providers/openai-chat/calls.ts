/**
 * The tool calls of a reply, out of deltas whose indexes and ids servers fill in their own ways (wire.md G 11 to 15).
 */
import type { StreamEvent } from '../../core/events.ts'
import { CustomInputDecoder } from '../custom-input.ts'
import { isObject, object, string } from '../loose-json.ts'
import { SurrogateJoiner } from '../surrogates.ts'
import type { DeclaredName, ToolNames } from '../tool-names.ts'

type Push = (event: StreamEvent) => void

interface Call {
  /** Dense, ours: calls are numbered as they are announced, which is when their names come. -1 until then. */
  index: number
  /** The provider's; not unique with every server. */
  readonly slot: number | undefined
  readonly upstreamId: string
  /** Null until the name has come. */
  declared: DeclaredName | null
  /** Argument text so far. */
  args: string
  /** Custom tools only. */
  readonly input: CustomInputDecoder
  readonly joiner: SurrogateJoiner
  ended: boolean
}

export class Calls {
  readonly #names: ToolNames
  readonly #mintId: () => string
  readonly #calls: Call[] = []
  /** The latest of each: a reply may have any number of them. The last call is not in them yet: most replies have one. */
  #bySlot: Map<number, Call> | undefined
  #byId: Map<string, Call> | undefined
  #announced = 0

  constructor(names: ToolNames, mintId: () => string) {
    this.#names = names
    this.#mintId = mintId
  }

  /** Calls that were seen. */
  get count(): number {
    return this.#calls.length
  }

  /**
   * @param position where a call stands in a buffered message; undefined in a stream, where the provider's index says
   * it
   */
  delta(delta: unknown, position: number | undefined, push: Push): void {
    if (!isObject(delta)) return
    const fn = object(delta['function'])
    const name = string(fn['name'])
    const id = string(delta['id'])
    const slot = position ?? (typeof delta['index'] === 'number' ? delta['index'] : undefined)
    const args = fn['arguments']
    // Arguments as an object: servers that wrap a native API.
    const text = typeof args === 'string' ? args : isObject(args) ? JSON.stringify(args) : ''
    const call = this.#find(slot, id, name) ?? this.#add(slot, id)
    if (call.declared === null && name !== '') this.#start(call, name, push)
    if (text !== '') this.#args(call, text, push)
  }

  /**
   * The reply is over.
   * @param cut by a limit or a filter: a call whose arguments are not whole stays open, so that nobody executes it
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

  /** The call that a delta goes on with. */
  #find(slot: number | undefined, id: string, name: string): Call | undefined {
    const call = this.#latest(slot, id)
    if (!call) return undefined
    // A new id at an old index is a new call (servers that send index 0 for all).
    if (id !== '') return call.upstreamId === id ? call : undefined
    // Neither id nor new index, but a name again: the next call if this one is whole, else a server that repeats
    // itself.
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
