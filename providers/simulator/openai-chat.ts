/**
 * The Chat Completions API as OpenAI documents it (platform.openai.com, API reference, Chat), with
 * `reasoning_content`, which compatible servers stream.
 */
import { appendAll } from '../../core/tools/append.ts'
import { type Body, bodyOf, listOf, mediaTypeOf, type SimDialect, type SimEvent, stringOf } from './dialect.ts'
import type { ErrorKind } from './directives.ts'
import { type SimPrompt, SimRefusal, type SimReply, type SimTool, type SimUsage } from './model.ts'

const NAME = /^[A-Za-z0-9_-]{1,64}$/
/**
 * The label with which a gateway sends media that it moved out of a tool result. A user message with this label
 * belongs to the results.
 */
export const ATTACHED = 'Attached to the result of tool call'

export const chatSimulator: SimDialect = {
  name: 'openai-chat',

  read(body) {
    const prompt: SimPrompt = {
      model: stringOf(body['model']),
      stream: body['stream'] === true,
      userText: '',
      rounds: 0,
      results: [],
      images: [],
      documents: [],
      tools: toolsOf(body),
      search: false,
      choice: choiceOf(body['tool_choice']),
      parallel: body['parallel_tool_calls'] !== false,
      stop: typeof body['stop'] === 'string' ? [body['stop']] : ((body['stop'] as string[] | undefined) ?? []),
      maxTokens: (body['max_completion_tokens'] ?? body['max_tokens']) as number | undefined,
      reason: typeof body['reasoning_effort'] === 'string' && body['reasoning_effort'] !== 'none',
      reasonTokens: REASON_TOKENS[stringOf(body['reasoning_effort'])] ?? 0,
      summary: true,
      topLogprobs: body['logprobs'] === true ? ((body['top_logprobs'] as number | undefined) ?? 0) : undefined,
      messages: [],
    }
    const format = bodyOf(body['response_format'])
    if (format['type'] === 'json_object') prompt.format = {}
    else if (format['type'] === 'json_schema')
      prompt.format = checkedFormat(bodyOf(format['json_schema']), 'response_format.json_schema')
    if (prompt.model === '') throw invalid('you must provide a model parameter')
    if (!Array.isArray(body['messages']) || body['messages'].length === 0)
      throw invalid("'messages' must be a non-empty array")
    if (prompt.stop.length > 4) throw invalid("'stop': array too long. Expected an array with maximum length 4")
    if (body['tools'] === undefined && body['tool_choice'] !== undefined)
      throw invalid("'tool_choice' is only allowed when 'tools' are specified")
    readMessages(listOf(body['messages']), prompt)
    // The tool list is a part of the prompt that a provider caches.
    if (prompt.tools.length > 0) prompt.messages.unshift(JSON.stringify(body['tools']))
    return prompt
  },

  buffered(reply) {
    const message: Body = { role: 'assistant', content: null, refusal: null, annotations: [] }
    const calls: Body[] = []
    const logprobs: Body[] = []
    for (const item of reply.items) {
      if (item.type === 'reasoning' && item.summary.length > 0) message['reasoning_content'] = item.summary.join('')
      else if (item.type === 'text') {
        message['content'] = item.text
        for (const piece of item.pieces) appendAll(logprobs, logprobsOf(piece, reply))
      } else if (item.type === 'refusal') message['refusal'] = item.text
      else if (item.type === 'call') calls.push(callOf(reply, calls.length, item.name, item.text))
    }
    if (calls.length > 0) message['tool_calls'] = calls
    const choice = {
      index: 0,
      message,
      logprobs: reply.prompt.topLogprobs === undefined ? null : { content: logprobs, refusal: null },
      finish_reason: finishOf(reply),
    }
    return {
      ...envelope(reply, 'chat.completion'),
      choices: [choice],
      ...(reply.usage && { usage: usageOf(reply.usage) }),
    }
  },

  stream(reply) {
    const events: SimEvent[] = []
    const { quirks } = reply.directives
    const base = envelope(reply, 'chat.completion.chunk')
    const send = (delta: Body, finish: string | null = null, logprobs: Body[] = []) => {
      const choice = {
        index: 0,
        delta,
        logprobs: logprobs.length > 0 ? { content: logprobs, refusal: null } : null,
        finish_reason: finish,
      }
      events.push({ data: JSON.stringify({ ...base, choices: [choice], usage: null }) })
    }
    send({ role: 'assistant', content: '', refusal: null })
    let index = 0
    for (const item of reply.items) {
      if (item.type === 'reasoning') for (const sentence of item.summary) send({ reasoning_content: sentence })
      else if (item.type === 'text')
        for (const piece of item.pieces) send({ content: piece }, null, logprobsOf(piece, reply))
      else if (item.type === 'refusal') for (const piece of item.pieces) send({ refusal: piece })
      else if (item.type === 'call') {
        const at = quirks.has('no-index') ? {} : { index: quirks.has('index-0') ? 0 : index }
        const call = callOf(reply, index, item.name, '')
        send({ tool_calls: [{ ...at, ...call }] })
        const again = quirks.has('empty-names') ? { id: '', type: 'function' } : {}
        const name = quirks.has('empty-names') ? { name: '' } : {}
        for (const piece of item.pieces)
          send({ tool_calls: [{ ...at, ...again, function: { ...name, arguments: piece } }] })
        index++
      }
    }
    if (!quirks.has('no-finish')) send({}, finishOf(reply))
    if (reply.usage) events.push({ data: JSON.stringify({ ...base, choices: [], usage: usageOf(reply.usage) }) })
    if (!quirks.has('no-done')) events.push({ data: '[DONE]' })
    return events
  },

  error(kind, _status, message, code) {
    const [type, known] = ERRORS[kind]
    return { error: { message, type, param: null, code: code ?? known } }
  },

  errorEvent(kind) {
    const [type, code] = ERRORS[kind]
    return {
      data: JSON.stringify({
        error: { message: `The simulated provider had a fault: ${kind}`, type, param: null, code },
      }),
    }
  },
}

/** The type and the code that OpenAI sends. */
const ERRORS: Readonly<Record<ErrorKind, readonly [string, string | null]>> = {
  server: ['server_error', null],
  overloaded: ['server_error', 'service_unavailable'],
  rate: ['requests', 'rate_limit_exceeded'],
  quota: ['insufficient_quota', 'insufficient_quota'],
  context: ['invalid_request_error', 'context_length_exceeded'],
  policy: ['invalid_request_error', 'content_policy_violation'],
  auth: ['invalid_request_error', 'invalid_api_key'],
  timeout: ['server_error', 'timeout'],
  invalid: ['invalid_request_error', null],
}

const REASON_TOKENS: Readonly<Record<string, number>> = {
  minimal: 16,
  low: 64,
  medium: 256,
  high: 1024,
  xhigh: 2048,
  max: 4096,
}

function invalid(message: string, code: string | null = null): SimRefusal {
  return new SimRefusal(400, 'invalid', message, code)
}

function envelope(reply: SimReply, object: string): Body {
  return {
    id: `chatcmpl-sim${reply.seed.slice(0, 24)}`,
    object,
    created: reply.created,
    model: reply.model,
    service_tier: 'default',
    system_fingerprint: `fp_${reply.seed.slice(0, 10)}`,
  }
}

function finishOf(reply: SimReply): string {
  if (reply.finishWord !== undefined) return reply.finishWord
  switch (reply.finish) {
    case 'length':
    case 'content_filter':
      return reply.finish
    case 'tool_calls':
      return reply.directives.quirks.has('stop-with-calls') ? 'stop' : 'tool_calls'
    default:
      return 'stop'
  }
}

function usageOf(usage: SimUsage): Body {
  return {
    prompt_tokens: usage.prompt,
    completion_tokens: usage.output,
    total_tokens: usage.prompt + usage.output,
    prompt_tokens_details: { cached_tokens: usage.cached, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: usage.reasoning,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  }
}

function callOf(reply: SimReply, index: number, name: string, args: string): Body {
  return { id: `call_sim${reply.seed.slice(0, 20)}${index}`, type: 'function', function: { name, arguments: args } }
}

function logprobsOf(piece: string, reply: SimReply): Body[] {
  const top = reply.prompt.topLogprobs
  if (top === undefined) return []
  const entry = (token: string, logprob: number) => ({ token, logprob, bytes: [...Buffer.from(token, 'utf8')] })
  const alternatives = Array.from({ length: top }, (_, i) => entry(i === 0 ? piece : `${piece}${i}`, -0.125 * (i + 1)))
  return [{ ...entry(piece, -0.125), top_logprobs: alternatives }]
}

function toolsOf(body: Body): SimTool[] {
  return listOf(body['tools']).map((tool, i) => {
    const fn = bodyOf(tool['function'])
    const name = stringOf(fn['name'])
    if (tool['type'] !== 'function') throw invalid(`Invalid value for 'tools[${i}].type'`)
    if (!NAME.test(name))
      throw invalid(
        `Invalid 'tools[${i}].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$' or is too long`,
      )
    return { name, kind: 'function', description: stringOf(fn['description']), schema: fn['parameters'] }
  })
}

function choiceOf(choice: unknown): SimPrompt['choice'] {
  if (choice === 'none' || choice === 'required') return { type: choice }
  const name = bodyOf(bodyOf(choice)['function'])['name']
  return typeof name === 'string' ? { type: 'tool', name } : { type: 'auto' }
}

function readMessages(messages: Body[], prompt: SimPrompt): void {
  /** The calls of the last assistant message that have no result yet. */
  let open = new Set<string>()
  for (const [i, message] of messages.entries()) {
    prompt.messages.push(JSON.stringify(message))
    const role = message['role']
    if (open.size > 0 && role !== 'tool') {
      throw invalid(
        `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. (messages[${i}])`,
      )
    }
    switch (role) {
      case 'system':
      case 'developer':
        break
      case 'user': {
        const text = readContent(message['content'], prompt)
        if (text.startsWith(ATTACHED) && messages[i - 1]?.['role'] === 'tool') break
        prompt.userText = text
        prompt.rounds = 0
        prompt.results = []
        break
      }
      case 'assistant': {
        const calls = listOf(message['tool_calls'])
        if (calls.length === 0) break
        open = new Set(calls.map(call => stringOf(call['id'])))
        if (open.size < calls.length) throw invalid(`Duplicate tool call id in messages[${i}]`)
        for (const call of calls) checkCall(call, i)
        prompt.rounds++
        prompt.results = []
        break
      }
      case 'tool': {
        const id = stringOf(message['tool_call_id'])
        if (!open.delete(id))
          throw invalid(`messages[${i}] with role 'tool' must be a response to a preceding message with 'tool_calls'.`)
        if (typeof message['content'] !== 'string') throw invalid(`Invalid type for 'messages[${i}].content'`)
        prompt.results.push(message['content'])
        break
      }
      default:
        throw invalid(`Invalid value: '${String(role)}' for 'messages[${i}].role'`)
    }
  }
  if (open.size > 0) throw invalid("An assistant message with 'tool_calls' must be followed by tool messages.")
}

function checkCall(call: Body, i: number): void {
  const fn = bodyOf(call['function'])
  if (stringOf(call['id']).length > 40)
    throw invalid(`Invalid 'messages[${i}].tool_calls[].id': string too long`, 'string_above_max_length')
  if (!NAME.test(stringOf(fn['name']))) throw invalid(`Invalid 'messages[${i}].tool_calls[].function.name'`)
  if (typeof fn['arguments'] !== 'string')
    throw invalid(`Invalid type for 'messages[${i}].tool_calls[].function.arguments'`)
}

/** The text of a user message. Images and documents are added to the prompt. */
function readContent(content: unknown, prompt: SimPrompt): string {
  if (typeof content === 'string') return content
  let text = ''
  for (const part of listOf(content)) {
    switch (part['type']) {
      case 'text':
        text += (text === '' ? '' : '\n') + stringOf(part['text'])
        break
      case 'image_url': {
        const { url } = bodyOf(part['image_url'])
        if (typeof url !== 'string') throw invalid("Missing required parameter: 'image_url.url'")
        prompt.images.push(mediaTypeOf(url))
        break
      }
      case 'file': {
        const data = stringOf(bodyOf(part['file'])['file_data'])
        if (!data.startsWith('data:')) throw invalid("Invalid 'file_data': expected a data URL")
        prompt.documents.push(mediaTypeOf(data))
        break
      }
      default:
        throw invalid(`Invalid content part type '${String(part['type'])}'`)
    }
  }
  return text
}

/** The schema of a format as OpenAI's APIs take it: named, of an object, and closed where it is strict. */
export function checkedFormat({ name, schema, strict }: Body, at: string): { schema: unknown } {
  if (!NAME.test(stringOf(name))) throw invalid(`Invalid '${at}.name': string does not match pattern.`)
  if (strict === true && !isClosed(schema))
    throw invalid(`Invalid schema for '${at}': 'additionalProperties' is required to be supplied and to be false.`)
  return { schema }
}

/** Whether each object of a schema is closed. */
export function isClosed(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null) return true
  const closed = !('properties' in schema) || (schema as Body)['additionalProperties'] === false
  return closed && Object.values(schema).every(isClosed)
}
