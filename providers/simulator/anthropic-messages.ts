/** The Messages API as Anthropic documents it (docs: Messages, Streaming, Extended thinking, Tool use, Web search). */
import { appendAll } from '../../core/tools/append.ts'
import {
  type Body,
  bodyOf,
  isBody,
  listOf,
  mediaTypeOf,
  type SimDialect,
  type SimEvent,
  seal,
  stringOf,
} from './dialect.ts'
import type { ErrorKind } from './directives.ts'
import { type SimBlock, type SimItem, type SimPrompt, SimRefusal, type SimReply, type SimTool } from './model.ts'
import { isClosed } from './openai-chat.ts'
import type { Found } from './search.ts'

const NAME = /^[a-zA-Z0-9_-]{1,128}$/

export const anthropicSimulator: SimDialect = {
  name: 'anthropic-messages',
  status: { overloaded: 529, quota: 400 },

  read(body) {
    const thinking = bodyOf(body['thinking'])
    const reason = thinking['type'] === 'enabled' || thinking['type'] === 'adaptive'
    const choice = bodyOf(body['tool_choice'])
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
      choice: choiceOf(choice),
      parallel: choice['disable_parallel_tool_use'] !== true,
      stop: (body['stop_sequences'] as string[] | undefined) ?? [],
      maxTokens: body['max_tokens'] as number | undefined,
      reason,
      reasonTokens: EFFORT_TOKENS[stringOf(bodyOf(body['output_config'])['effort'])] ?? 256,
      summary: thinking['display'] !== 'omitted',
      messages: [],
      blocks: blocksIn(body),
    }
    const format = bodyOf(bodyOf(body['output_config'])['format'])
    if (format['type'] === 'json_schema') {
      if (!isClosed(format['schema']) || /"(minimum|maxLength|pattern)":/.test(JSON.stringify(format['schema'])))
        throw invalid('output_config.format.schema: the schema uses what structured outputs do not support')
      prompt.format = { schema: format['schema'] }
    }
    if (prompt.model === '') throw invalid('model: Field required')
    if (typeof prompt.maxTokens !== 'number') throw invalid('max_tokens: Field required')
    checkThinking(body, thinking, prompt)
    readTools(body, prompt)
    if (body['system'] !== undefined) prompt.messages.push(JSON.stringify(body['system']))
    readMessages(body['messages'], thinking['type'] === 'enabled', prompt)
    return prompt
  },

  buffered(reply) {
    return { ...envelope(reply), content: contentOf(reply), ...ending(reply), usage: usageOf(reply, true) }
  },

  stream(reply) {
    const events: SimEvent[] = []
    const send = (data: Body) => events.push({ event: String(data['type']), data: JSON.stringify(data) })
    const empty = { stop_reason: null, stop_sequence: null, stop_details: null }
    send({
      type: 'message_start',
      message: { ...envelope(reply), content: [], ...empty, usage: usageOf(reply, false) },
    })
    send({ type: 'ping' })
    for (const [index, block] of contentOf(reply).entries()) {
      const { start, deltas } = streamed(block)
      send({ type: 'content_block_start', index, content_block: start })
      const pieces = piecesOf(reply, index)
      for (const delta of deltas(pieces)) send({ type: 'content_block_delta', index, delta })
      send({ type: 'content_block_stop', index })
    }
    send({ type: 'message_delta', delta: ending(reply), usage: usageOf(reply, true) })
    send({ type: 'message_stop' })
    return events
  },

  error(kind, status, message) {
    const [type, text] = ERRORS[kind]
    return {
      type: 'error',
      error: { type: status === 404 ? 'not_found_error' : type, message: text ?? message },
      request_id: 'req_sim',
    }
  },

  errorEvent(kind) {
    const [type, text] = ERRORS[kind]
    const error = { type, message: text ?? `The simulated provider had a fault: ${kind}` }
    return { event: 'error', data: JSON.stringify({ type: 'error', error }) }
  },
}

/** The type of an error, and its text where only the text shows the kind. */
const ERRORS: Readonly<Record<ErrorKind, readonly [string, string?]>> = {
  server: ['api_error'],
  overloaded: ['overloaded_error', 'Overloaded'],
  rate: ['rate_limit_error'],
  quota: [
    'invalid_request_error',
    'Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.',
  ],
  context: ['invalid_request_error', 'prompt is too long: 200010 tokens > 200000 maximum'],
  policy: ['invalid_request_error', 'Output blocked by content filtering policy'],
  auth: ['authentication_error', 'invalid x-api-key'],
  timeout: ['timeout_error'],
  invalid: ['invalid_request_error'],
}

const EFFORT_TOKENS: Readonly<Record<string, number>> = { low: 64, medium: 256, high: 1024, xhigh: 2048, max: 4096 }

/** The most cache markers in a request. */
const MOST_MARKERS = 4

/** The prompt block by block, in the order in which the provider caches: tools, system, messages. */
function blocksIn(body: Body): SimBlock[] {
  const blocks: SimBlock[] = []
  let markers = 0
  const add = (owner: string, value: unknown) => {
    const { cache_control, ...block } = isBody(value) ? value : { text: value }
    if (cache_control) markers++
    const cacheMs = cache_control ? lifeOf(cache_control) : undefined
    blocks.push({ text: owner + JSON.stringify(block), cacheMs })
  }
  const addAll = (owner: string, content: unknown) => {
    for (const block of Array.isArray(content) ? content : [content]) if (block !== undefined) add(owner, block)
  }
  addAll('tools', body['tools'])
  addAll('system', body['system'])
  for (const message of listOf(body['messages'])) addAll(stringOf(message['role']), message['content'])
  const automatic = body['cache_control']
  if (automatic) {
    markers++
    const last = blocks.at(-1)
    if (last) last.cacheMs ??= lifeOf(automatic)
  }
  if (markers > MOST_MARKERS)
    throw invalid(`A maximum of 4 blocks with cache_control may be provided. Found ${markers}.`)
  return blocks
}

/** For how many milliseconds a marker has its prefix kept. */
function lifeOf(marker: unknown): number {
  return bodyOf(marker)['ttl'] === '1h' ? 3_600_000 : 300_000
}

function invalid(message: string): SimRefusal {
  return new SimRefusal(400, 'invalid', message)
}

function envelope(reply: SimReply): Body {
  return { id: `msg_sim${reply.seed.slice(0, 20)}`, type: 'message', role: 'assistant', model: reply.model }
}

/** The content blocks of the reply. A search makes two blocks. */
function contentOf(reply: SimReply): Body[] {
  const blocks: Body[] = []
  for (const item of reply.items) appendAll(blocks, blocksOf(item, reply, blocks.length))
  return blocks
}

function blocksOf(item: SimItem, reply: SimReply, index: number): Body[] {
  switch (item.type) {
    case 'reasoning': {
      if (item.summary.length === 0) {
        const data = `redacted-${reply.seed.slice(0, 16)}`
        return [{ type: 'redacted_thinking', data: `${data}.${seal('redacted', data)}` }]
      }
      const thinking = reply.prompt.summary ? item.summary.join('') : ''
      return [{ type: 'thinking', thinking, signature: signatureOf(thinking, reply.seed.slice(0, 16)) }]
    }
    case 'search': {
      const id = `srvtoolu_sim${reply.seed.slice(0, 18)}${index}`
      const results = item.results.map(({ title, url }) => ({
        type: 'web_search_result',
        title,
        url,
        encrypted_content: seal('search', url),
        page_age: null,
      }))
      return [
        { type: 'server_tool_use', id, name: 'web_search', input: { query: item.query } },
        { type: 'web_search_tool_result', tool_use_id: id, content: results },
      ]
    }
    case 'text':
      return [
        { type: 'text', text: item.text, citations: item.citations.length > 0 ? item.citations.map(citation) : null },
      ]
    case 'refusal':
      return []
    case 'call':
      return [
        {
          type: 'tool_use',
          id: `toolu_sim${reply.seed.slice(0, 18)}${index}`,
          name: item.name,
          input: parsed(item.text),
          caller: { type: 'direct' },
        },
      ]
  }
}

/** The signature contains a nonce: the same thinking has another signature in another reply. */
function signatureOf(thinking: string, nonce: string): string {
  return `${nonce}.${seal('thinking', nonce + thinking)}`
}

function citation({ title, url, text }: Found): Body {
  return { type: 'web_search_result_location', url, title, cited_text: text, encrypted_index: seal('index', url) }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return {}
  }
}

/** How a block streams: the content of `content_block_start`, and the deltas. */
function streamed(block: Body): { start: Body; deltas: (pieces: readonly string[]) => Body[] } {
  switch (block['type']) {
    case 'thinking':
      return {
        start: { type: 'thinking', thinking: '', signature: '' },
        deltas: pieces => [
          ...(block['thinking'] === '' ? [] : pieces.map(thinking => ({ type: 'thinking_delta', thinking }))),
          { type: 'signature_delta', signature: block['signature'] },
        ],
      }
    case 'text':
      return {
        start: { type: 'text', text: '', citations: block['citations'] ? [] : null },
        deltas: pieces => [
          ...pieces.map(text => ({ type: 'text_delta', text })),
          ...listOf(block['citations']).map(c => ({ type: 'citations_delta', citation: c })),
        ],
      }
    case 'tool_use':
    case 'server_tool_use':
      return {
        start: { ...block, input: {} },
        deltas: pieces => {
          const parts = block['type'] === 'server_tool_use' ? [JSON.stringify(block['input'])] : pieces
          return ['', ...parts].map(partial_json => ({ type: 'input_json_delta', partial_json }))
        },
      }
    default:
      return { start: block, deltas: () => [] }
  }
}

/** The text pieces of a block, by the block's index. */
function piecesOf(reply: SimReply, index: number): readonly string[] {
  let at = 0
  for (const item of reply.items) {
    const count = blocksOf(item, reply, at).length
    if (index < at + count) {
      if (item.type === 'reasoning') return item.summary
      return item.type === 'search' ? [] : item.pieces
    }
    at += count
  }
  return []
}

function ending(reply: SimReply): Body {
  const refusal = reply.items.find(item => item.type === 'refusal')
  return {
    stop_reason: reply.finishWord ?? stopReason(reply),
    stop_sequence: reply.stopSequence ?? null,
    stop_details: refusal ? { type: 'refusal', category: null, explanation: refusal.text } : null,
    container: null,
  }
}

function stopReason({ finish }: SimReply): string {
  switch (finish) {
    case 'length':
      return 'max_tokens'
    case 'tool_calls':
      return 'tool_use'
    case 'stop_sequence':
      return 'stop_sequence'
    case 'refusal':
    case 'content_filter':
      return 'refusal'
    case 'stop':
      return 'end_turn'
  }
}

/**
 * The usage member.
 * @param final true for the last event and for a buffered message. In `message_start` the output is one token; with
 *   `usage late` all its figures are 0.
 */
function usageOf(reply: SimReply, final: boolean): Body | undefined {
  const { usage, directives } = reply
  if (!usage) return final ? undefined : { input_tokens: 0, output_tokens: 0 }
  if (!final && directives.usage === 'late') return { input_tokens: 0, output_tokens: 0 }
  const { prompt: all, cached, cacheWrite: written } = usage
  return {
    input_tokens: all - cached - written,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: cached,
    cache_creation: { ephemeral_5m_input_tokens: written, ephemeral_1h_input_tokens: 0 },
    output_tokens: final ? usage.output : 1,
    ...(final && { output_tokens_details: { thinking_tokens: usage.reasoning } }),
    ...(final && usage.searches > 0 && { server_tool_use: { web_search_requests: usage.searches } }),
    service_tier: 'standard',
  }
}

function choiceOf(choice: Body): SimPrompt['choice'] {
  switch (choice['type']) {
    case 'any':
      return { type: 'required' }
    case 'none':
      return { type: 'none' }
    case 'tool':
      return choice['name'] === 'web_search' ? { type: 'search' } : { type: 'tool', name: stringOf(choice['name']) }
    default:
      return { type: 'auto' }
  }
}

function checkThinking(body: Body, thinking: Body, prompt: SimPrompt): void {
  if (thinking['type'] === 'enabled') {
    const budget = thinking['budget_tokens']
    if (typeof budget !== 'number' || budget < 1024)
      throw invalid('thinking.enabled.budget_tokens: Input should be greater than or equal to 1024')
    if (budget >= prompt.maxTokens!) throw invalid('`max_tokens` must be greater than `thinking.budget_tokens`')
  }
  if (!prompt.reason) {
    if (typeof body['temperature'] === 'number' && body['temperature'] > 1) throw invalid('temperature: range: 0..1')
    return
  }
  if (body['temperature'] !== undefined && body['temperature'] !== 1)
    throw invalid('`temperature` may only be set to 1 when thinking is enabled')
  if (body['top_k'] !== undefined) throw invalid('`top_k` must be unset when thinking is enabled')
  if (typeof body['top_p'] === 'number' && body['top_p'] < 0.95)
    throw invalid('`top_p` must be greater than or equal to 0.95 when thinking is enabled')
  if (prompt.choice.type !== 'auto' && prompt.choice.type !== 'none')
    throw invalid('Thinking may not be enabled when tool_choice forces tool use.')
}

function readTools(body: Body, prompt: SimPrompt): void {
  const tools = listOf(body['tools'])
  if (tools.length > 0) prompt.messages.push(JSON.stringify(tools))
  const names = new Set<string>()
  for (const [i, tool] of tools.entries()) {
    const name = stringOf(tool['name'])
    if (!NAME.test(name)) throw invalid(`tools.${i}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'`)
    if (names.has(name)) throw invalid('tools: Tool names must be unique.')
    names.add(name)
    const type = tool['type']
    if (typeof type === 'string' && type.startsWith('web_search_')) prompt.search = true
    else prompt.tools.push(readTool(tool, name, i))
  }
  if (prompt.choice.type !== 'auto' && tools.length === 0)
    throw invalid('tool_choice may only be specified while providing tools.')
}

function readTool(tool: Body, name: string, i: number): SimTool {
  const type = tool['type'] ?? 'custom'
  if (type === 'custom') {
    const schema = tool['input_schema']
    if (!isBody(schema) || schema['type'] !== 'object')
      throw invalid(`tools.${i}.custom.input_schema.type: Field required`)
    if ('anyOf' in schema || 'oneOf' in schema || 'allOf' in schema) {
      throw invalid(
        `tools.${i}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level`,
      )
    }
    return { name, kind: 'function', description: stringOf(tool['description']), schema }
  }
  if (!/^(bash|text_editor|memory)_\d{8}$/.test(String(type)))
    throw invalid(`tools.${i}: Input tag '${String(type)}' found using 'type' does not match any of the expected tags`)
  return { name, kind: 'function' }
}

function readMessages(messages: unknown, strictThinking: boolean, prompt: SimPrompt): void {
  const list = listOf(messages)
  if (list.length === 0) throw invalid('messages: at least one message is required')
  if (list[0]!['role'] !== 'user') throw invalid('messages: first message must use the "user" role')
  let open = new Set<string>()
  for (const [i, message] of list.entries()) {
    prompt.messages.push(JSON.stringify(message))
    const content =
      typeof message['content'] === 'string' ? [{ type: 'text', text: message['content'] }] : listOf(message['content'])
    const role = message['role']
    if (role === 'assistant') {
      checkOpen(open, i)
      open = readAssistant(content, i, prompt)
      if (open.size > 0 && strictThinking && isCurrentLoop(list, i)) {
        const first = content[0]!['type']
        if (first !== 'thinking' && first !== 'redacted_thinking') {
          throw invalid(
            `messages.${i}.content.0.type: Expected \`thinking\` or \`redacted_thinking\`, but found \`${String(first)}\`.`,
          )
        }
      }
    } else if (role === 'user') {
      readUser(content, i, open, prompt)
      checkOpen(open, i)
    } else if (role === 'system') checkOpen(open, i)
    else throw invalid(`messages.${i}.role: Input should be 'user' or 'assistant'`)
  }
  checkOpen(open, list.length)
}

/** True when no user text follows this message: its tool loop is still running. */
function isCurrentLoop(messages: readonly Body[], from: number): boolean {
  return messages
    .slice(from + 1)
    .every(m => m['role'] !== 'user' || listOf(m['content']).every(block => block['type'] === 'tool_result'))
}

function checkOpen(open: ReadonlySet<string>, i: number): void {
  if (open.size === 0) return
  throw invalid(
    `messages.${i - 1}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${[...open].join(', ')}.`,
  )
}

function readUser(content: readonly Body[], i: number, open: Set<string>, prompt: SimPrompt): void {
  let text = ''
  let own = false
  for (const [j, block] of content.entries()) {
    const at = `messages.${i}.content.${j}`
    if (block['type'] === 'tool_result') {
      if (!open.delete(stringOf(block['tool_use_id'])))
        throw invalid(
          `${at}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${stringOf(block['tool_use_id'])}.`,
        )
      if (own) throw invalid(`${at}: \`tool_result\` blocks must come first in a message.`)
      const inner =
        typeof block['content'] === 'string' ? [{ type: 'text', text: block['content'] }] : listOf(block['content'])
      prompt.results.push(inner.map(part => readPart(part, `${at}.content`, prompt)).join(''))
      continue
    }
    own = true
    text += (text === '' ? '' : '\n') + readPart(block, at, prompt)
  }
  if (!own) return
  prompt.userText = text
  prompt.rounds = 0
  prompt.results = []
}

/** The text of a block. Images and documents are added to the prompt. */
function readPart(block: Body, at: string, prompt: SimPrompt): string {
  const source = bodyOf(block['source'])
  switch (block['type']) {
    case 'text':
      if (stringOf(block['text']) === '') throw invalid(`${at}: text content blocks must be non-empty`)
      return stringOf(block['text'])
    case 'image':
      prompt.images.push(
        source['type'] === 'base64' ? stringOf(source['media_type']) : mediaTypeOf(stringOf(source['url'])),
      )
      return ''
    case 'document':
      prompt.documents.push(source['type'] === 'url' ? 'url' : stringOf(source['media_type']))
      return ''
    case 'search_result':
      return stringOf(block['title'])
    default:
      throw invalid(
        `${at}: Input tag '${String(block['type'])}' found using 'type' does not match any of the expected tags`,
      )
  }
}

/** @returns the ids of its calls */
function readAssistant(content: readonly Body[], i: number, prompt: SimPrompt): Set<string> {
  const ids = new Set<string>()
  for (const [j, block] of content.entries()) {
    const at = `messages.${i}.content.${j}`
    switch (block['type']) {
      case 'text':
        if (stringOf(block['text']) === '') throw invalid(`${at}: text content blocks must be non-empty`)
        break
      case 'thinking': {
        const signature = stringOf(block['signature'])
        if (signature !== signatureOf(stringOf(block['thinking']), signature.split('.')[0]!))
          throw invalid(`${at}: Invalid \`signature\` in \`thinking\` block`)
        break
      }
      case 'redacted_thinking': {
        const [data, mark] = stringOf(block['data']).split('.')
        if (mark !== seal('redacted', data!)) throw invalid(`${at}: Invalid \`data\` in \`redacted_thinking\` block`)
        break
      }
      case 'tool_use': {
        const id = stringOf(block['id'])
        if (!/^[a-zA-Z0-9_-]+$/.test(id))
          throw invalid(`${at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'`)
        if (!isBody(block['input'])) throw invalid(`${at}.tool_use.input: Input should be a valid dictionary`)
        if (!NAME.test(stringOf(block['name'])))
          throw invalid(`${at}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'`)
        ids.add(id)
        break
      }
      case 'server_tool_use':
        if (!stringOf(block['id']).startsWith('srvtoolu_'))
          throw invalid(`${at}.server_tool_use.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'`)
        break
      case 'web_search_tool_result':
        for (const result of listOf(block['content'])) {
          if (result['encrypted_content'] !== seal('search', stringOf(result['url'])))
            throw invalid(`${at}: Invalid \`encrypted_content\` in \`web_search_result\``)
        }
        break
      default:
        throw invalid(
          `${at}: Input tag '${String(block['type'])}' found using 'type' does not match any of the expected tags`,
        )
    }
  }
  if (ids.size > 0) {
    prompt.rounds++
    prompt.results = []
  }
  return ids
}
