/**
 * The Responses API as OpenAI documents it (platform.openai.com, API reference, Responses and its streaming events).
 * It is stateless: `store` is ignored.
 */
import { type Body, bodyOf, listOf, mediaTypeOf, type SimDialect, type SimEvent, seal, stringOf } from './dialect.ts'
import { type SimItem, type SimPrompt, SimRefusal, type SimReply, type SimTool } from './model.ts'
import { chatSimulator, checkedFormat } from './openai-chat.ts'

const NAME = /^[A-Za-z0-9_-]{1,64}$/

export const responsesSimulator: SimDialect = {
  name: 'openai-responses',

  read(body) {
    const reasoning = bodyOf(body['reasoning'])
    const effort = stringOf(reasoning['effort'])
    const include = Array.isArray(body['include']) ? body['include'] : []
    const prompt: SimPrompt = {
      model: stringOf(body['model']),
      stream: body['stream'] === true,
      userText: '',
      rounds: 0,
      results: [],
      images: [],
      documents: [],
      tools: [],
      search: false,
      choice: choiceOf(body['tool_choice']),
      allowed: allowedOf(body['tool_choice']),
      parallel: body['parallel_tool_calls'] !== false,
      stop: [],
      maxTokens: body['max_output_tokens'] as number | undefined,
      reason: effort !== '' && effort !== 'none',
      reasonTokens: EFFORT_TOKENS[effort] ?? 64,
      summary: typeof reasoning['summary'] === 'string',
      topLogprobs: include.includes('message.output_text.logprobs')
        ? ((body['top_logprobs'] as number | undefined) ?? 0)
        : undefined,
      messages: [],
    }
    const format = bodyOf(bodyOf(body['text'])['format'])
    if (format['type'] === 'json_object') prompt.format = {}
    else if (format['type'] === 'json_schema') prompt.format = checkedFormat(format, 'text.format')
    if (prompt.model === '') throw invalid("Missing required parameter: 'model'.")
    if (prompt.maxTokens !== undefined && prompt.maxTokens < 16)
      throw invalid("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.")
    if (body['instructions']) prompt.messages.push(JSON.stringify(body['instructions']))
    readTools(listOf(body['tools']), 'tools', prompt)
    const { input } = body
    if (typeof input === 'string') {
      prompt.messages.push(input)
      prompt.userText = input
    } else readItems(listOf(input), prompt)
    if (prompt.messages.length === 0)
      throw invalid("One of 'input' or 'previous_response_id' or 'prompt' or 'conversation_id' must be provided.")
    return prompt
  },

  buffered: reply => finalResponse(reply),

  stream(reply) {
    const events: SimEvent[] = []
    const send = (type: string, members: Body) => {
      events.push({ event: type, data: JSON.stringify({ type, sequence_number: events.length, ...members }) })
    }
    const started = { ...envelope(reply), status: 'in_progress', output: [], usage: null }
    send('response.created', { response: started })
    send('response.in_progress', { response: started })
    for (const [index, item] of reply.items.entries()) {
      const output = outputItem(item, index, reply)
      if (output) streamItem(item, output, index, reply, send)
    }
    const response = finalResponse(reply)
    send(response['status'] === 'completed' ? 'response.completed' : 'response.incomplete', { response })
    return events
  },

  error: chatSimulator.error,

  errorEvent(kind) {
    const { error } = this.error(kind, 500, `The simulated provider had a fault: ${kind}`) as { error: Body }
    const { code, message, param, type } = error
    return {
      event: 'error',
      data: JSON.stringify({ type: 'error', sequence_number: 1, code: code ?? type, message, param }),
    }
  },
}

const EFFORT_TOKENS: Readonly<Record<string, number>> = {
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

function envelope(reply: SimReply): Body {
  return {
    id: `resp_sim${reply.seed.slice(0, 40)}`,
    object: 'response',
    created_at: reply.created,
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    model: reply.model,
    parallel_tool_calls: reply.prompt.parallel,
    previous_response_id: null,
    service_tier: 'default',
    store: false,
    tool_choice: 'auto',
    tools: [],
    truncation: 'disabled',
  }
}

function finalResponse(reply: SimReply): Body {
  const output: Body[] = []
  for (const [index, item] of reply.items.entries()) {
    const done = outputItem(item, index, reply)
    if (done) output.push(done)
  }
  const reason =
    reply.finishWord ??
    (reply.finish === 'length' ? 'max_output_tokens' : reply.finish === 'content_filter' ? 'content_filter' : null)
  const { usage } = reply
  return {
    ...envelope(reply),
    status: reason === null || reason === 'completed' ? 'completed' : 'incomplete',
    incomplete_details: reason === null || reason === 'completed' ? null : { reason },
    output,
    usage: usage && {
      input_tokens: usage.prompt,
      input_tokens_details: { cached_tokens: usage.cached },
      output_tokens: usage.output,
      output_tokens_details: { reasoning_tokens: usage.reasoning },
      total_tokens: usage.prompt + usage.output,
    },
  }
}

const PREFIX = { reasoning: 'rs', search: 'ws', text: 'msg', refusal: 'msg', call: 'fc' } as const

/** The finished item. Only the last item can be incomplete. */
function outputItem(item: SimItem, index: number, reply: SimReply): Body | undefined {
  const prefix = item.type === 'call' && item.kind === 'custom' ? 'ctc' : PREFIX[item.type]
  const id = `${prefix}_sim${reply.seed.slice(0, 40)}${index}`
  const status = reply.finish === 'length' && index === reply.items.length - 1 ? 'incomplete' : 'completed'
  switch (item.type) {
    case 'reasoning': {
      const summary = reply.prompt.summary ? item.summary.map(text => ({ type: 'summary_text', text })) : []
      const nonce = reply.seed.slice(0, 16) + index
      return { id, type: 'reasoning', summary, encrypted_content: `gAAAAA${nonce}.${seal('reasoning', nonce)}` }
    }
    case 'search':
      return {
        id,
        type: 'web_search_call',
        status: 'completed',
        action: {
          type: 'search',
          query: item.query,
          queries: [item.query],
          sources: item.results.map(({ url }) => ({ type: 'url', url })),
        },
      }
    case 'text': {
      const part = {
        type: 'output_text',
        text: item.text,
        annotations: annotationsOf(item),
        logprobs: item.pieces.flatMap(piece => logprobsOf(piece, reply)),
      }
      return { id, type: 'message', status, role: 'assistant', content: [part] }
    }
    case 'refusal':
      return { id, type: 'message', status, role: 'assistant', content: [{ type: 'refusal', refusal: item.text }] }
    case 'call': {
      const call_id = `call_sim${reply.seed.slice(0, 20)}${index}`
      const named = item.namespace === undefined ? { name: item.name } : { name: item.name, namespace: item.namespace }
      if (item.kind === 'custom') return { id, type: 'custom_tool_call', status, call_id, ...named, input: item.text }
      return { id, type: 'function_call', status, call_id, ...named, arguments: item.text }
    }
  }
}

function annotationsOf(item: Extract<SimItem, { type: 'text' }>): Body[] {
  return item.citations.map(({ title, url }) => ({
    type: 'url_citation',
    start_index: 0,
    end_index: item.text.length,
    url,
    title,
  }))
}

function logprobsOf(piece: string, reply: SimReply): Body[] {
  const top = reply.prompt.topLogprobs
  if (top === undefined) return []
  const entry = (token: string, logprob: number) => ({ token, logprob, bytes: [...Buffer.from(token, 'utf8')] })
  return [
    {
      ...entry(piece, -0.125),
      top_logprobs: Array.from({ length: top }, (_, i) => entry(i === 0 ? piece : `${piece}${i}`, -0.125 * (i + 1))),
    },
  ]
}

type Send = (type: string, members: Body) => void

function streamItem(item: SimItem, output: Body, index: number, reply: SimReply, send: Send): void {
  const at = { output_index: index, item_id: output['id'] }
  const added = (blank: Body) =>
    send('response.output_item.added', { output_index: index, item: { ...output, status: 'in_progress', ...blank } })
  switch (item.type) {
    case 'reasoning':
      send('response.output_item.added', {
        output_index: index,
        item: { ...output, summary: [], encrypted_content: '' },
      })
      for (const [summary_index, part] of listOf(output['summary']).entries()) {
        send('response.reasoning_summary_part.added', {
          ...at,
          summary_index,
          part: { type: 'summary_text', text: '' },
        })
        send('response.reasoning_summary_text.delta', { ...at, summary_index, delta: part['text'] })
        send('response.reasoning_summary_text.done', { ...at, summary_index, text: part['text'] })
        send('response.reasoning_summary_part.done', { ...at, summary_index, part })
      }
      break
    case 'search':
      added({ action: { type: 'search', query: '' } })
      send('response.web_search_call.in_progress', at)
      send('response.web_search_call.searching', at)
      send('response.web_search_call.completed', at)
      break
    case 'text': {
      const here = { ...at, content_index: 0 }
      added({ content: [] })
      send('response.content_part.added', {
        ...here,
        part: { type: 'output_text', text: '', annotations: [], logprobs: [] },
      })
      for (const piece of item.pieces)
        send('response.output_text.delta', { ...here, delta: piece, logprobs: logprobsOf(piece, reply) })
      for (const [annotation_index, annotation] of annotationsOf(item).entries()) {
        send('response.output_text.annotation.added', { ...here, annotation_index, annotation })
      }
      const part = listOf(output['content'])[0]!
      send('response.output_text.done', { ...here, text: item.text, logprobs: part['logprobs'] })
      send('response.content_part.done', { ...here, part })
      break
    }
    case 'refusal': {
      const here = { ...at, content_index: 0 }
      added({ content: [] })
      send('response.content_part.added', { ...here, part: { type: 'refusal', refusal: '' } })
      for (const piece of item.pieces) send('response.refusal.delta', { ...here, delta: piece })
      send('response.refusal.done', { ...here, refusal: item.text })
      send('response.content_part.done', { ...here, part: listOf(output['content'])[0]! })
      break
    }
    case 'call': {
      const custom = item.kind === 'custom'
      const event = custom ? 'response.custom_tool_call_input' : 'response.function_call_arguments'
      const member = custom ? 'input' : 'arguments'
      added({ [member]: '' })
      for (const piece of item.pieces) send(`${event}.delta`, { ...at, delta: piece })
      if (item.whole) send(`${event}.done`, { ...at, [member]: item.text, ...(!custom && { name: item.name }) })
      break
    }
  }
  send('response.output_item.done', { output_index: index, item: output })
}

function choiceOf(choice: unknown): SimPrompt['choice'] {
  if (choice === 'none' || choice === 'required') return { type: choice }
  const fields = bodyOf(choice)
  switch (fields['type']) {
    case 'function':
    case 'custom':
      return { type: 'tool', name: stringOf(fields['name']) }
    case 'allowed_tools':
      return { type: fields['mode'] === 'required' ? 'required' : 'auto' }
    case 'web_search':
      return { type: 'search' }
    default:
      return { type: 'auto' }
  }
}

function allowedOf(choice: unknown): string[] | undefined {
  const fields = bodyOf(choice)
  return fields['type'] === 'allowed_tools' ? listOf(fields['tools']).map(tool => stringOf(tool['name'])) : undefined
}

function readTools(tools: readonly Body[], path: string, prompt: SimPrompt, namespace?: string): void {
  if (tools.length > 0 && namespace === undefined) prompt.messages.push(JSON.stringify(tools))
  for (const [i, tool] of tools.entries()) {
    const name = stringOf(tool['name'])
    const type = stringOf(tool['type'])
    if (type.startsWith('web_search')) {
      prompt.search = true
      continue
    }
    if (!NAME.test(name))
      throw invalid(
        `Invalid '${path}[${i}].name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.`,
      )
    if (type === 'namespace') readTools(listOf(tool['tools']), `${path}[${i}].tools`, prompt, name)
    else if (type === 'function' || type === 'custom') prompt.tools.push(readTool(tool, name, type, namespace))
    else throw invalid(`Invalid value: '${type}' for '${path}[${i}].type'.`)
  }
}

function readTool(tool: Body, name: string, kind: SimTool['kind'], namespace: string | undefined): SimTool {
  return { name, kind, namespace, description: stringOf(tool['description']), schema: tool['parameters'] }
}

/** The id prefix of each item type: the API checks it. */
const ID_PREFIX: Readonly<Record<string, string>> = {
  message: 'msg_',
  function_call: 'fc_',
  custom_tool_call: 'ctc_',
  reasoning: 'rs_',
  web_search_call: 'ws_',
}

function readItems(items: readonly Body[], prompt: SimPrompt): void {
  const open = new Set<string>()
  let answered = false
  for (const [i, item] of items.entries()) {
    prompt.messages.push(JSON.stringify(item))
    const type = stringOf(item['type']) || 'message'
    const prefix = ID_PREFIX[type]
    if (
      typeof item['id'] === 'string' &&
      prefix !== undefined &&
      item['role'] !== 'user' &&
      !item['id'].startsWith(prefix)
    ) {
      throw invalid(
        `Invalid 'input[${i}].id': '${item['id']}'. Expected an ID that begins with '${prefix.slice(0, -1)}'.`,
      )
    }
    switch (type) {
      case 'message':
        readMessage(item, i, prompt)
        break
      case 'function_call':
      case 'custom_tool_call': {
        const id = stringOf(item['call_id'])
        if (id === '' || id.length > 64)
          throw invalid(`Invalid 'input[${i}].call_id': empty or longer than 64 characters.`, 'string_above_max_length')
        if (!NAME.test(stringOf(item['name'])))
          throw invalid(`Invalid 'input[${i}].name': string does not match pattern '^[a-zA-Z0-9_-]+$'.`)
        if (open.size === 0 || answered) {
          prompt.rounds++
          prompt.results = []
        }
        answered = false
        open.add(id)
        break
      }
      case 'function_call_output':
      case 'custom_tool_call_output': {
        const id = stringOf(item['call_id'])
        if (!open.delete(id)) throw invalid(`No tool call found for function call output with call_id ${id}.`)
        answered = true
        prompt.results.push(readContent(item['output'], i, prompt))
        break
      }
      case 'reasoning':
        checkReasoning(item, i)
        break
      case 'web_search_call':
        break
      default:
        throw invalid(`Invalid value: '${type}' for 'input[${i}].type'.`)
    }
  }
  if (open.size > 0) throw invalid(`No tool output found for function call ${[...open][0]}.`)
}

function readMessage(item: Body, i: number, prompt: SimPrompt): void {
  const text = readContent(item['content'], i, prompt)
  switch (item['role']) {
    case 'user':
      prompt.userText = text
      prompt.rounds = 0
      prompt.results = []
      return
    case 'assistant':
    case 'system':
    case 'developer':
      return
    default:
      throw invalid(`Invalid value: '${String(item['role'])}' for 'input[${i}].role'.`)
  }
}

function checkReasoning(item: Body, i: number): void {
  const encrypted = item['encrypted_content']
  if (typeof encrypted !== 'string')
    throw new SimRefusal(
      404,
      'invalid',
      `Item with id '${stringOf(item['id'])}' not found. Items are not persisted when \`store\` is set to false. (input[${i}])`,
    )
  const [nonce, mark] = encrypted.replace(/^gAAAAA/, '').split('.')
  if (mark !== seal('reasoning', nonce!))
    throw invalid(`The encrypted content for input[${i}] could not be verified.`, 'invalid_encrypted_content')
}

function readContent(content: unknown, i: number, prompt: SimPrompt): string {
  if (typeof content === 'string') return content
  let text = ''
  for (const part of listOf(content)) {
    switch (part['type']) {
      case 'input_text':
      case 'output_text':
        text += (text === '' ? '' : '\n') + stringOf(part['text'])
        break
      case 'refusal':
        break
      case 'input_image':
        prompt.images.push(mediaTypeOf(stringOf(part['image_url'])))
        break
      case 'input_file':
        prompt.documents.push(mediaTypeOf(stringOf(part['file_data'] ?? part['file_url'])))
        break
      default:
        throw invalid(`Invalid value: '${String(part['type'])}' for 'input[${i}].content'.`)
    }
  }
  return text
}
