/** What a provider of each dialect replies when its model says a text: buffered, and as the events of a stream. */

/** What the model says, and what the reply counts. */
export interface Said {
  /** The text, as a stream divides it. */
  pieces: readonly string[]
  /** The end of each id. */
  tag: string
  model: string
  /** Seconds since 1970. */
  created: number
  /** Tokens of the prompt, cached ones included, and of the reply, reasoning included. */
  usage: { input: number; cached: number; output: number; reasoning: number }
  /** Leaves out what openai-chat and anthropic-messages need not say: members that are null, and parts of counts. */
  bare?: boolean
  /** What a response repeats of its request, in every event that has the whole response. Only openai-responses does. */
  echo?: { instructions: string; tools: readonly object[] }
}

interface Writer {
  path: RegExp
  whole(said: Said): object
  events(said: Said): object[]
}

/** @returns undefined for a path of no dialect */
export function replyTo(path: string, body: string, said: Said): string | undefined {
  const [bare] = path.split('?')
  const name = (Object.keys(WRITERS) as WrittenDialect[]).find(name => WRITERS[name].path.test(bare!))
  if (name === undefined) return undefined
  const streamed = name === 'gemini' ? bare!.includes(':stream') : /"stream":\s*true/.test(body)
  return streamed ? streamOf(name, said).join('') : wholeOf(name, said)
}

/** A buffered reply. */
export const wholeOf = (dialect: WrittenDialect, said: Said): string => JSON.stringify(WRITERS[dialect].whole(said))

/** The server-sent events of a streamed reply, each with its blank line. */
export function streamOf(dialect: WrittenDialect, said: Said): string[] {
  const named = dialect === 'openai-responses' || dialect === 'anthropic-messages'
  const events = WRITERS[dialect].events(said).map(event => {
    const data = `data: ${JSON.stringify(event)}\n\n`
    return named ? `event: ${(event as { type: string }).type}\n${data}` : data
  })
  return dialect === 'openai-chat' ? [...events, 'data: [DONE]\n\n'] : events
}

// ---- openai-chat ----

/** A member that a bare reply does not have. */
const unless = <T>(bare: boolean | undefined, value: T): T | undefined => (bare ? undefined : value)

const chatUsage = ({ usage: { input, cached, output, reasoning }, bare }: Said) => ({
  prompt_tokens: input,
  completion_tokens: output,
  total_tokens: input + output,
  prompt_tokens_details: unless(bare, { cached_tokens: cached }),
  completion_tokens_details: unless(bare, { reasoning_tokens: reasoning }),
})
const chatBase = (object: string, { tag, created, model }: Said) => ({ id: `chatcmpl-${tag}`, object, created, model })

const openaiChat: Writer = {
  path: /\/chat\/completions$/,
  whole(said) {
    const logprobs = unless(said.bare, null)
    const message = { role: 'assistant', content: said.pieces.join(''), refusal: unless(said.bare, null) }
    const choices = [{ index: 0, message, logprobs, finish_reason: 'stop' }]
    return { ...chatBase('chat.completion', said), choices, usage: chatUsage(said) }
  },
  events(said) {
    const base = chatBase('chat.completion.chunk', said)
    const logprobs = unless(said.bare, null)
    const chunk = (delta: object, finish_reason: string | null = null) => ({
      ...base,
      choices: [{ index: 0, delta, logprobs, finish_reason }],
    })
    return [
      chunk({ role: 'assistant', content: '' }),
      ...said.pieces.map(content => chunk({ content })),
      chunk({}, 'stop'),
      { ...base, choices: [], usage: chatUsage(said) },
    ]
  },
}

// ---- openai-responses ----

const part = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] })
const item = ({ tag }: Said, status: string, content: object[]) => ({
  id: `msg_${tag}`,
  type: 'message',
  status,
  role: 'assistant',
  content,
})
const response = (
  { tag, created, model, echo }: Said,
  status: string,
  output: object[],
  usage: object | null = null,
) => ({
  id: `resp_${tag}`,
  object: 'response',
  created_at: created,
  status,
  error: null,
  incomplete_details: null,
  model,
  output,
  usage,
  ...echo,
})
function completed(said: Said): object {
  const { input, cached, output, reasoning } = said.usage
  return response(said, 'completed', [item(said, 'completed', [part(said.pieces.join(''))])], {
    input_tokens: input,
    input_tokens_details: { cached_tokens: cached },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: input + output,
  })
}

const openaiResponses: Writer = {
  path: /\/responses$/,
  whole: completed,
  events(said) {
    const text = said.pieces.join('')
    const at = { item_id: `msg_${said.tag}`, output_index: 0, content_index: 0 }
    return [
      { type: 'response.created', response: response(said, 'in_progress', []) },
      { type: 'response.in_progress', response: response(said, 'in_progress', []) },
      { type: 'response.output_item.added', output_index: 0, item: item(said, 'in_progress', []) },
      { type: 'response.content_part.added', ...at, part: part('') },
      ...said.pieces.map(delta => ({ type: 'response.output_text.delta', ...at, delta, logprobs: [] })),
      { type: 'response.output_text.done', ...at, text, logprobs: [] },
      { type: 'response.content_part.done', ...at, part: part(text) },
      { type: 'response.output_item.done', output_index: 0, item: item(said, 'completed', [part(text)]) },
      { type: 'response.completed', response: completed(said) },
    ].map((event, sequence_number) => ({ ...event, sequence_number }))
  },
}

// ---- anthropic-messages ----

function message({ tag, model, usage, bare }: Said, content: object[], stop_reason: string | null, output: number) {
  return {
    id: `msg_${tag}`,
    type: 'message',
    role: 'assistant',
    content,
    model,
    stop_reason,
    stop_sequence: null,
    usage: {
      input_tokens: usage.input - usage.cached,
      cache_creation_input_tokens: unless(bare, 0),
      cache_read_input_tokens: unless(bare, usage.cached),
      output_tokens: output,
    },
  }
}

const anthropicMessages: Writer = {
  path: /\/messages$/,
  whole: said => message(said, [{ type: 'text', text: said.pieces.join('') }], 'end_turn', said.usage.output),
  events: said => [
    { type: 'message_start', message: message(said, [], null, 1) },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    ...said.pieces.map(text => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })),
    { type: 'content_block_stop', index: 0 },
    {
      type: 'message_delta',
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: said.usage.output },
    },
    { type: 'message_stop' },
  ],
}

// ---- gemini ----

const candidate = ({ tag, model, usage }: Said, text: string, end: boolean) => ({
  candidates: [{ content: { parts: [{ text }], role: 'model' }, index: 0, ...(end && { finishReason: 'STOP' }) }],
  usageMetadata: {
    promptTokenCount: usage.input,
    candidatesTokenCount: usage.output - usage.reasoning,
    cachedContentTokenCount: usage.cached,
    thoughtsTokenCount: usage.reasoning,
    totalTokenCount: usage.input + usage.output,
  },
  modelVersion: model,
  responseId: tag,
})

const gemini: Writer = {
  path: /:(?:streamG|g)enerateContent$/,
  whole: said => candidate(said, said.pieces.join(''), true),
  events: said => said.pieces.map((text, i) => candidate(said, text, i === said.pieces.length - 1)),
}

const WRITERS = {
  'openai-chat': openaiChat,
  'openai-responses': openaiResponses,
  'anthropic-messages': anthropicMessages,
  gemini,
}
export type WrittenDialect = keyof typeof WRITERS
