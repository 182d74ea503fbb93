/**
 * What the benchmarks' upstream answers, in the form of each API, and what a client must find in it whichever gateway
 * stands between.
 */

/** Number of content events of a stream. Frames that open and close the stream are not counted. */
export const EVENTS = 200
/** The length of the body of the buffered chat reply, in bytes. */
const REPLY_BYTES = 400

const words = Array.from({ length: EVENTS }, (_, i) => ` word${i}`)
/** The text of a stream. */
export const STREAM_TEXT = words.join('')
export const USAGE = { input: 250, output: 30, streamOutput: 400 }

const chatReply = (content: string): string =>
  JSON.stringify({
    id: 'chatcmpl-bench',
    object: 'chat.completion',
    created: 1700000000,
    model: 'bench',
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }],
    usage: {
      prompt_tokens: USAGE.input,
      completion_tokens: USAGE.output,
      total_tokens: USAGE.input + USAGE.output,
    },
  })

/** The text of a buffered reply. */
export const TEXT = 'The quick brown fox jumps over the lazy dog. '
  .repeat(9)
  .slice(0, REPLY_BYTES - chatReply('').length)
  .replace(/.$/, '.')

const messagesReply = JSON.stringify({
  id: 'msg_bench',
  type: 'message',
  role: 'assistant',
  model: 'bench',
  content: [{ type: 'text', text: TEXT }],
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: { input_tokens: USAGE.input, output_tokens: USAGE.output },
})

const responsesUsage = (output: number) => ({
  input_tokens: USAGE.input,
  input_tokens_details: { cached_tokens: 0 },
  output_tokens: output,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: USAGE.input + output,
})
const outputMessage = (text: string) => ({
  id: 'msg_1',
  type: 'message',
  status: 'completed',
  role: 'assistant',
  content: [{ type: 'output_text', text, annotations: [], logprobs: [] }],
})
const response = (status: string, output: object[], usage: object | null) => ({
  id: 'resp_bench',
  object: 'response',
  created_at: 1700000000,
  status,
  error: null,
  incomplete_details: null,
  model: 'bench',
  output,
  usage,
})

const frame = (data: object | string, event?: string): string =>
  `${event === undefined ? '' : `event: ${event}\n`}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`

function chatStream(): string[] {
  const chunk = (choices: object[], usage?: object) =>
    frame({
      id: 'chatcmpl-bench',
      object: 'chat.completion.chunk',
      created: 1700000000,
      model: 'bench',
      choices,
      ...(usage && { usage }),
    })
  const delta = (content: object, finish: string | null = null) =>
    chunk([{ index: 0, delta: content, finish_reason: finish }])
  return [
    delta({ role: 'assistant', content: '' }),
    ...words.map(content => delta({ content })),
    delta({}, 'stop'),
    chunk([], {
      prompt_tokens: USAGE.input,
      completion_tokens: USAGE.streamOutput,
      total_tokens: USAGE.input + USAGE.streamOutput,
    }),
    frame('[DONE]'),
  ]
}

function messagesStream(): string[] {
  const event = (type: string, rest: object = {}) => frame({ type, ...rest }, type)
  return [
    event('message_start', {
      message: {
        id: 'msg_bench',
        type: 'message',
        role: 'assistant',
        model: 'bench',
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: { input_tokens: USAGE.input, output_tokens: 1 },
      },
    }),
    event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    ...words.map(text => event('content_block_delta', { index: 0, delta: { type: 'text_delta', text } })),
    event('content_block_stop', { index: 0 }),
    event('message_delta', {
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: USAGE.streamOutput },
    }),
    event('message_stop'),
  ]
}

function responsesStream(): string[] {
  let number = 0
  const event = (type: string, rest: object) => frame({ type, sequence_number: number++, ...rest }, type)
  const place = { item_id: 'msg_1', output_index: 0, content_index: 0 }
  const part = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] })
  const done = outputMessage(STREAM_TEXT)
  return [
    event('response.created', { response: response('in_progress', [], null) }),
    event('response.in_progress', { response: response('in_progress', [], null) }),
    event('response.output_item.added', { output_index: 0, item: { ...done, status: 'in_progress', content: [] } }),
    event('response.content_part.added', { ...place, part: part('') }),
    ...words.map(delta => event('response.output_text.delta', { ...place, delta, logprobs: [] })),
    event('response.output_text.done', { ...place, text: STREAM_TEXT, logprobs: [] }),
    event('response.content_part.done', { ...place, part: part(STREAM_TEXT) }),
    event('response.output_item.done', { output_index: 0, item: done }),
    event('response.completed', { response: response('completed', [done], responsesUsage(USAGE.streamOutput)) }),
  ]
}

export interface Reply {
  whole: Buffer
  /** The frames of the stream, one buffer for each. */
  frames: Buffer[]
}

const reply = (whole: string, frames: string[]): Reply => ({
  whole: Buffer.from(whole),
  frames: frames.map(text => Buffer.from(text)),
})

/** The replies, by the path of the request. */
export const replies: Record<string, Reply> = {
  '/v1/chat/completions': reply(chatReply(TEXT), chatStream()),
  '/v1/messages': reply(messagesReply, messagesStream()),
  '/v1/responses': reply(
    JSON.stringify(response('completed', [outputMessage(TEXT)], responsesUsage(USAGE.output))),
    responsesStream(),
  ),
}
