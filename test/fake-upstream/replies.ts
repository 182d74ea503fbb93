/** The usual reply of each dialect: the text "One two three." with usage, streamed or buffered as the request asks. */

const PIECES = ['One', ' two', ' three.']
const TEXT = PIECES.join('')

/** @param target the target of the request (path and query) @param asked the body of the request */
export function usualReply(target: string, asked: string): string {
  const path = target.split('?')[0]!
  if (path.endsWith(':streamGenerateContent')) return stream(gemini())
  if (path.endsWith(':generateContent')) return JSON.stringify(geminiBody())
  const streamed = /"stream":\s*true/.test(asked)
  if (path.endsWith('/chat/completions'))
    return streamed ? stream(chat()) + 'data: [DONE]\n\n' : JSON.stringify(chatBody())
  if (path.endsWith('/responses'))
    return streamed ? named(responses()) : JSON.stringify(response('completed', [message()]))
  if (path.endsWith('/messages')) return streamed ? named(messages()) : JSON.stringify(messagesBody())
  return JSON.stringify({ echo: asked })
}

const stream = (events: readonly object[]): string => events.map(event => `data: ${JSON.stringify(event)}\n\n`).join('')
const named = (events: readonly { type: string }[]): string =>
  events.map(event => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join('')

// ---- openai-chat ----

const CHAT_USAGE = {
  prompt_tokens: 9,
  completion_tokens: 5,
  total_tokens: 14,
  prompt_tokens_details: { cached_tokens: 4 },
  completion_tokens_details: { reasoning_tokens: 2 },
}
const chat = (): object[] => {
  const chunk = (choices: object[], more: object = {}) => ({
    id: 'chatcmpl-up',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'up',
    choices,
    ...more,
  })
  const delta = (content: object, finish: string | null = null) =>
    chunk([{ index: 0, delta: content, logprobs: null, finish_reason: finish }])
  return [
    delta({ role: 'assistant', content: '' }),
    ...PIECES.map(content => delta({ content })),
    delta({}, 'stop'),
    chunk([], { usage: CHAT_USAGE }),
  ]
}
const chatBody = (): object => ({
  id: 'chatcmpl-up',
  object: 'chat.completion',
  created: 1,
  model: 'up',
  choices: [
    { index: 0, message: { role: 'assistant', content: TEXT, refusal: null }, logprobs: null, finish_reason: 'stop' },
  ],
  usage: CHAT_USAGE,
})

// ---- openai-responses ----

const part = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] })
const message = (text = TEXT, status = 'completed') => ({
  id: 'msg_up',
  type: 'message',
  status,
  role: 'assistant',
  content: text === '' ? [] : [part(text)],
})
const response = (status: string, output: object[]) => ({
  id: 'resp_up',
  object: 'response',
  created_at: 1,
  status,
  error: null,
  incomplete_details: null,
  model: 'up',
  output,
  usage:
    status === 'completed'
      ? {
          input_tokens: 9,
          input_tokens_details: { cached_tokens: 4 },
          output_tokens: 5,
          output_tokens_details: { reasoning_tokens: 2 },
          total_tokens: 14,
        }
      : null,
})
const responses = (): { type: string }[] => {
  const at = { item_id: 'msg_up', output_index: 0, content_index: 0 }
  return [
    { type: 'response.created', response: response('in_progress', []) },
    { type: 'response.in_progress', response: response('in_progress', []) },
    { type: 'response.output_item.added', output_index: 0, item: message('', 'in_progress') },
    { type: 'response.content_part.added', ...at, part: part('') },
    ...PIECES.map(delta => ({ type: 'response.output_text.delta', ...at, delta, logprobs: [] })),
    { type: 'response.output_text.done', ...at, text: TEXT, logprobs: [] },
    { type: 'response.content_part.done', ...at, part: part(TEXT) },
    { type: 'response.output_item.done', output_index: 0, item: message() },
    { type: 'response.completed', response: response('completed', [message()]) },
  ].map((event, sequence_number) => ({ ...event, sequence_number }))
}

// ---- anthropic-messages ----

const MESSAGES_USAGE = { input_tokens: 5, cache_creation_input_tokens: 0, cache_read_input_tokens: 4, output_tokens: 5 }
const messagesBody = (): object => ({
  id: 'msg_up',
  type: 'message',
  role: 'assistant',
  content: [{ type: 'text', text: TEXT }],
  model: 'up',
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: MESSAGES_USAGE,
})
const messages = (): { type: string }[] => [
  {
    type: 'message_start',
    message: { ...messagesBody(), content: [], stop_reason: null, usage: { ...MESSAGES_USAGE, output_tokens: 1 } },
  } as { type: string },
  { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } } as { type: string },
  ...PIECES.map(text => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })),
  { type: 'content_block_stop', index: 0 } as { type: string },
  {
    type: 'message_delta',
    delta: { stop_reason: 'end_turn', stop_sequence: null },
    usage: { output_tokens: 5 },
  } as { type: string },
  { type: 'message_stop' },
]

// ---- gemini ----

const candidate = (text: string, end: boolean) => ({
  candidates: [{ content: { parts: [{ text }], role: 'model' }, index: 0, ...(end && { finishReason: 'STOP' }) }],
  usageMetadata: {
    promptTokenCount: 9,
    candidatesTokenCount: 3,
    cachedContentTokenCount: 4,
    thoughtsTokenCount: 2,
    totalTokenCount: 14,
  },
  modelVersion: 'up',
  responseId: 'up',
})
const gemini = (): object[] => PIECES.map((text, i) => candidate(text, i === PIECES.length - 1))
const geminiBody = (): object => candidate(TEXT, true)
