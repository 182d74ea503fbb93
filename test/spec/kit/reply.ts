/** Replies of the three surfaces, read as a client reads them: a stream is put together into the buffered form. */

export const SURFACES = ['responses', 'chat', 'messages'] as const
export type Surface = (typeof SURFACES)[number]
export const PATHS: Record<Surface, string> = {
  responses: '/responses',
  chat: '/chat/completions',
  messages: '/messages',
}

export interface Frame {
  event: string | undefined
  /** The parsed data; the text `[DONE]` as it is. */
  data: any
}

export class Reply {
  readonly surface: Surface
  readonly status: number
  readonly headers: Headers
  /** Every byte of the body. */
  readonly raw: string
  readonly frames: readonly Frame[]
  /** Whether the body came to its end. */
  readonly whole: boolean
  /** The buffered form of the body. Undefined when it is no JSON and no stream. */
  readonly json: any

  constructor(surface: Surface, status: number, headers: Headers, raw: string, whole: boolean) {
    this.surface = surface
    this.status = status
    this.headers = headers
    this.raw = raw
    this.whole = whole
    const streamed = (headers.get('content-type') ?? '').startsWith('text/event-stream')
    this.frames = streamed ? framesOf(raw) : []
    this.json = streamed ? ASSEMBLE[surface](this.frames) : parse(raw)
  }

  header(name: string): string | null {
    return this.headers.get(name)
  }
  /** The names of the headers that begin with `x-ratelimit-`. */
  get rates(): string[] {
    return [...this.headers.keys()].filter(name => name.startsWith('x-ratelimit-'))
  }
  get id(): string {
    return this.headers.get('x-request-id') ?? ''
  }
  /** The error object of the body, or of the error frame of a stream. */
  get error(): any {
    if (this.frames.length === 0) return this.json?.error ?? undefined
    const frame = this.frames.find(({ event, data }) => event === 'error' || data?.type === 'error' || data?.error)
    return this.surface === 'responses' ? (frame?.data.error ?? frame?.data) : frame?.data.error
  }
  get code(): string | undefined {
    return this.error?.code
  }
  get model(): string {
    return this.json?.model
  }
  get usage(): any {
    return this.json?.usage
  }
  /** The generated text. */
  get text(): string {
    if (this.surface === 'chat') return this.json?.choices?.[0]?.message?.content ?? ''
    const parts =
      this.surface === 'messages'
        ? (this.json?.content ?? [])
        : (this.json?.output ?? []).flatMap((item: any) => (item.type === 'message' ? item.content : []))
    return parts.map((part: any) => (part.type === 'text' || part.type === 'output_text' ? part.text : '')).join('')
  }
  /** Calls of client tools. `input` is parsed where it is JSON. */
  get calls(): { id: string; name: string; input: any }[] {
    if (this.surface === 'chat')
      return (this.json?.choices?.[0]?.message?.tool_calls ?? []).map((call: any) => ({
        id: call.id,
        name: call.function?.name ?? call.custom?.name,
        input: parse(call.function?.arguments ?? call.custom?.input),
      }))
    if (this.surface === 'messages')
      return (this.json?.content ?? [])
        .filter((block: any) => block.type === 'tool_use')
        .map(({ id, name, input }: any) => ({ id, name, input }))
    return (this.json?.output ?? [])
      .filter((item: any) => item.type === 'function_call' || item.type === 'custom_tool_call')
      .map((item: any) => ({ id: item.call_id, name: item.name, input: parse(item.arguments ?? item.input) }))
  }
  /** Why it ended: the finish reason, the stop reason, or the status and the reason of an incomplete response. */
  get end(): string {
    if (this.surface === 'chat') return this.json?.choices?.[0]?.finish_reason
    if (this.surface === 'messages') return this.json?.stop_reason
    const { status, incomplete_details: incomplete } = this.json ?? {}
    return incomplete ? `${status} ${incomplete.reason}` : status
  }
  /** The whole prompt's tokens. */
  get input(): number {
    const usage = this.usage ?? {}
    if (this.surface === 'chat') return usage.prompt_tokens
    if (this.surface === 'responses') return usage.input_tokens
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
  }
  get output(): number {
    return this.usage?.completion_tokens ?? this.usage?.output_tokens
  }
  /** The surface, the status and the beginning of the body, for messages of assertions. */
  toString(): string {
    return `${this.surface} ${this.status} ${this.raw.slice(0, 400)}`
  }
}

export function parse(text: string): any {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

function framesOf(raw: string): Frame[] {
  const frames: Frame[] = []
  for (const block of raw.split('\n\n')) {
    const event = /^event: (.*)$/m.exec(block)?.[1]
    const data = /^data: (.*)$/m.exec(block)?.[1]
    if (data !== undefined) frames.push({ event, data: parse(data) })
  }
  return frames
}

const ASSEMBLE: Record<Surface, (frames: readonly Frame[]) => any> = {
  responses: frames => frames.findLast(({ data }) => data?.response)?.data.response,
  chat(frames) {
    const message: any = { content: '', tool_calls: [] }
    const whole: any = { choices: [{ message, finish_reason: null }] }
    for (const { data } of frames) {
      if (data?.model) whole.model = data.model
      if (data?.usage) whole.usage = data.usage
      const choice = data?.choices?.[0]
      if (!choice) continue
      message.content += choice.delta?.content ?? ''
      for (const { index, ...call } of choice.delta?.tool_calls ?? []) {
        const known = (message.tool_calls[index] ??= { id: call.id, function: { name: '', arguments: '' } })
        known.function.name += call.function?.name ?? ''
        known.function.arguments += call.function?.arguments ?? ''
      }
      if (choice.finish_reason) whole.choices[0].finish_reason = choice.finish_reason
    }
    return whole
  },
  messages(frames) {
    const whole: any = { content: [] }
    for (const { data } of frames) {
      if (data?.type === 'message_start') Object.assign(whole, data.message, { content: [] })
      if (data?.type === 'content_block_start') whole.content[data.index] = { ...data.content_block, json: '' }
      if (data?.type === 'content_block_delta') {
        const block = whole.content[data.index]
        const { delta } = data
        if (delta.type === 'text_delta') block.text += delta.text
        if (delta.type === 'thinking_delta') block.thinking += delta.thinking
        if (delta.type === 'input_json_delta') block.json += delta.partial_json
      }
      if (data?.type === 'content_block_stop') {
        const block = whole.content[data.index]
        if (block.json !== '') block.input = parse(block.json)
        delete block.json
      }
      if (data?.type === 'message_delta') {
        Object.assign(whole, data.delta)
        whole.usage = { ...whole.usage, ...data.usage }
      }
    }
    return whole
  },
}
