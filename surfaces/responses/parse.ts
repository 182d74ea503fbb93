/** Makes the canonical conversation from a Responses body that the schema has accepted. */
import {
  type CompactionWish,
  type Conversation,
  type DocumentPart,
  type ImagePart,
  LoadedTools,
  type Part,
  type ReasoningPart,
  type SearchPart,
  type TextPart,
  type Tool,
  type ToolChoice,
  TurnList,
} from '../../core/canon/conversation.ts'
import { describe, fault, join } from '../check.ts'
import { documentSource, httpsSource, imageSource } from '../media.ts'
import { anyObject, schemaFormat } from '../output-format.ts'
import type { Optional } from '../schema.ts'
import { checkChoice, checkUniqueNames } from '../tools.ts'
import { form } from './form.ts'
import { searchIdOf } from './items.ts'
import {
  type CompactionItem,
  type InputPart,
  type Item,
  type MessageItem,
  type OutputItem,
  PARTS,
  type ReasoningItem,
  type ResponsesBody,
  type SearchCallItem,
} from './schema.ts'
import { choiceOf, TOOL_SEARCH, toolsOf, withNamespaces } from './tools.ts'

/** @throws GatewayError for violations of rules that the schema cannot express */
export function parse(body: ResponsesBody): Conversation {
  const tools = toolsOf(body.tools ?? [], 'tools')
  checkUniqueNames(tools, '.name')
  const list = new TurnList()
  if (body.instructions != null) list.push('system', [{ type: 'text', text: body.instructions }])
  const declared = tools.length
  pushInput(list, tools, body)
  const choose = (among: readonly Tool[]): ToolChoice => {
    const choice = choiceOf(body.tool_choice, among.length)
    checkChoice(choice, among, 'tool_choice')
    return withNamespaces(choice, among)
  }
  // The response that is continued may bring the tool that is chosen, or any tool at all.
  const late = body.previous_response_id != null && !isSettled(body.tool_choice, tools, choose)

  const include = body.include ?? []
  const conversation: Conversation = {
    surface: 'responses',
    form,
    requestedModel: body.model,
    model: body.model,
    stream: body.stream === true,
    system: list.system,
    // The list drops an empty text, so it makes no part.
    instructionParts: body.instructions ? 1 : 0,
    turns: list.turns,
    tools,
    toolChoice: late ? { type: 'none' } : choose(tools),
    parallelToolCalls: body.parallel_tool_calls !== false,
    sampling: {
      stop: [],
      logprobs: include.includes('message.output_text.logprobs') || (body.top_logprobs ?? 0) > 0,
    },
    reasoning: {},
    store: body.store !== false,
  }
  if (late) conversation.lateChoice = choose
  const loaded = tools.length - declared
  if (loaded > 0) conversation.loadedTools = loaded
  const { sampling, reasoning } = conversation
  if (body.temperature != null) sampling.temperature = body.temperature
  if (body.top_p != null) sampling.topP = body.top_p
  if (body.top_logprobs != null) sampling.topLogprobs = body.top_logprobs
  if (body.max_output_tokens != null) {
    conversation.maxOutputTokens = body.max_output_tokens
    conversation.maxOutputField = 'max_output_tokens'
  }
  if (body.max_tool_calls != null) conversation.maxSearches = body.max_tool_calls
  if (body.reasoning?.effort != null) reasoning.effort = body.reasoning.effort
  const summary = body.reasoning?.summary ?? body.reasoning?.generate_summary
  if (summary != null) reasoning.summary = summary
  if (include.includes('reasoning.encrypted_content')) reasoning.includeEncrypted = true
  if (body.text?.verbosity != null) conversation.verbosity = body.text.verbosity
  const format = body.text?.format
  if (format?.type === 'json_object') conversation.output = anyObject('text.format')
  else if (format?.type === 'json_schema')
    conversation.output = schemaFormat(format, 'text.format', 'text.format.schema')
  if (body.prompt_cache_key != null) conversation.cacheKey = body.prompt_cache_key
  if (body.previous_response_id != null) conversation.previousResponseId = body.previous_response_id
  if (body.generate === false) conversation.generate = false
  const { input } = body
  if (Array.isArray(input) && input.some(({ type }) => type === 'compaction')) conversation.sealed = true
  const wish = compactionOf(body)
  if (wish) conversation.compaction = wish
  return conversation
}

function compactionOf({ input, context_management: management }: ResponsesBody): CompactionWish | undefined {
  const last = Array.isArray(input) ? input.length - 1 : -1
  if (Array.isArray(input) && input[last]?.type === 'compaction_trigger')
    return { only: true, keeps: 'user', path: `input[${last}]` }
  if (!management?.length) return undefined
  const threshold = management[0]!.compact_threshold
  const wish = { only: false, keeps: 'nothing' as const, path: 'context_management' }
  return threshold == null
    ? { ...wish, threshold: Number.POSITIVE_INFINITY, withinWindow: true }
    : { ...wish, threshold }
}

/** Whether more tools would not change what a choice means. */
function isSettled(
  choice: ResponsesBody['tool_choice'],
  tools: readonly Tool[],
  choose: Required<Conversation>['lateChoice'],
): boolean {
  if (choice == null) return tools.length > 0
  try {
    choose(tools)
    return true
  } catch {
    return false
  }
}

function pushInput(list: TurnList, tools: Tool[], body: ResponsesBody): void {
  const { input } = body
  if (typeof input === 'string') return list.push('user', [{ type: 'text', text: input }])
  if (input == null || input.length === 0) {
    if (body.previous_response_id != null || body.generate === false) return
    throw fault(
      'missing_required_parameter',
      'input',
      w => `Missing required parameter: ${w}. It may be empty only with previous_response_id.`,
    )
  }
  const answered = new Set<string>()
  for (const item of input) if (isOutput(item)) answered.add(item.call_id)
  const continued = body.previous_response_id != null
  const loaded = new LoadedTools(tools)
  input.forEach((item, i) => {
    if (item.type === 'compaction_trigger' && i < input.length - 1)
      throw fault(
        'invalid_value',
        `input[${i}]`,
        w => `${w} is a compaction_trigger, which is the last item of the input.`,
      )
    pushItem(list, loaded, item, `input[${i}]`, answered, continued)
  })
}

function isOutput(item: Item): item is OutputItem | Extract<Item, { type: 'tool_search_output' }> {
  return (
    item.type === 'function_call_output' ||
    item.type === 'custom_tool_call_output' ||
    item.type === 'tool_search_output'
  )
}

/**
 * Appends one input item to the turns.
 * @param answered ids of the calls that have an output. A call that was cut off (`incomplete`) and has no output is
 *   left out.
 * @param continued stored turns come before the items, so system text is never at the beginning
 */
function pushItem(
  list: TurnList,
  tools: LoadedTools,
  item: Item,
  path: string,
  answered: ReadonlySet<string>,
  continued: boolean,
): void {
  switch (item.type) {
    case 'function_call':
    case 'custom_tool_call': {
      if (item.status === 'incomplete' && !answered.has(item.call_id)) return
      const kind = item.type === 'function_call' ? 'function' : 'custom'
      const input = item.type === 'function_call' ? item.arguments : item.input
      const call: Part = { type: 'call', id: item.call_id, kind, name: item.name, input, path }
      if (item.namespace != null) call.namespace = item.namespace
      return list.push('assistant', [call])
    }
    case 'function_call_output':
    case 'custom_tool_call_output': {
      const kind = item.type === 'function_call_output' ? 'function' : 'custom'
      const content =
        typeof item.output === 'string'
          ? [text(item.output)]
          : item.output.map((part, i) => inputPart(part, `${path}.output[${i}]`))
      return list.push('tool', [{ type: 'result', callId: item.call_id, kind, content, path }])
    }
    case 'reasoning':
      return list.push('assistant', [reasoningPart(item)])
    case 'web_search_call':
      return list.push('assistant', [searchPart(item)])
    case 'tool_search_call': {
      if (item.status === 'incomplete' && !answered.has(item.call_id)) return
      const input = typeof item.arguments === 'string' ? item.arguments : JSON.stringify(item.arguments ?? {})
      return list.push('assistant', [
        { type: 'call', id: item.call_id, kind: 'function', name: TOOL_SEARCH, input, path },
      ])
    }
    case 'tool_search_output': {
      const found = toolsOf(item.tools, join(path, 'tools'))
      tools.append(found)
      const names = found.map(t => (t.type === 'web_search' ? t.type : t.name))
      const content = [text(names.length > 0 ? `Loaded tools: ${names.join(', ')}` : 'No tools found.')]
      return list.push('tool', [{ type: 'result', callId: item.call_id, kind: 'function', content, path }])
    }
    case 'additional_tools':
      tools.append(toolsOf(item.tools, join(path, 'tools')))
      return
    case 'compaction':
      return list.push('user', [capsulePart(item, `${path}.encrypted_content`)])
    case 'compaction_trigger':
      return
    default:
      return pushMessage(list, item, path, continued)
  }
}

function pushMessage(list: TurnList, item: MessageItem, path: string, continued: boolean): void {
  const { role, content } = item
  const parts: Part[] =
    typeof content === 'string'
      ? [text(content)]
      : content.map((part, i) => messagePart(part, role, `${path}.content[${i}]`))
  if (role !== 'system' && role !== 'developer') return list.push(role, parts)
  if (continued && list.turns.length === 0) {
    // Pushed without TurnList, which would treat it as system text at the beginning; stored turns come before it.
    const kept = parts.filter(p => p.type !== 'text' || p.text !== '')
    if (kept.length > 0) list.turns.push({ role: 'system', parts: kept })
    return
  }
  list.push('system', parts)
}

function text(value: string): TextPart {
  return { type: 'text', text: value }
}

function messagePart(part: Exclude<MessageItem['content'], string>[number], role: MessageItem['role'], path: string) {
  if (part.type === 'input_text') return text(part.text)
  if (!PARTS[role].includes(part.type))
    throw fault(
      'unsupported_value',
      `${path}.type`,
      w => `${w} is ${describe(part.type)}; a message of role ${role} may have ${PARTS[role].join(', ')}.`,
    )
  if (part.type === 'output_text') return text(part.text)
  if (part.type === 'refusal') return { type: 'refusal' as const, text: part.refusal }
  return inputPart(part, path)
}

function inputPart(part: InputPart, path: string): TextPart | ImagePart | DocumentPart {
  switch (part.type) {
    case 'input_text':
      return text(part.text)
    case 'input_image': {
      const at = `${path}.image_url`
      if (part.image_url == null) throw missing(at)
      const image: ImagePart = { type: 'image', source: imageSource(part.image_url, at), path: at }
      if (part.detail != null) image.detail = part.detail
      return image
    }
    case 'input_file': {
      if (part.file_data == null && part.file_url == null) throw missing(`${path}.file_data`)
      if (part.file_data != null && part.file_url != null)
        throw fault('invalid_value', `${path}.file_url`, w => `${w} and file_data are both given. Keep one of them.`)
      const at = `${path}.${part.file_data != null ? 'file_data' : 'file_url'}`
      const source = part.file_data != null ? documentSource(part.file_data, at) : httpsSource(part.file_url!, at)
      const document: DocumentPart = { type: 'document', source, path: at }
      if (part.filename != null) document.title = part.filename
      return document
    }
  }
}

function missing(path: string) {
  return fault('missing_required_parameter', path, w => `Missing required parameter: ${w}.`)
}

/**
 * In reasoning from this gateway the item's id and its `encrypted_content` are the same handle, so a client that
 * keeps only one of them still sends it back. A reasoning item of another service has no data stored for its handle.
 */
function reasoningPart(item: ReasoningItem): ReasoningPart {
  const part: ReasoningPart = { type: 'reasoning', summary: item.summary.map(s => s.text) }
  const handle = item.encrypted_content || item.id
  if (handle != null) part.handle = handle
  return part
}

/** The summary stays sealed until it is known whose it is. */
function capsulePart({ id, encrypted_content: sealed }: CompactionItem, path: string): TextPart {
  return { ...text(''), capsule: { sealed, path, ...(id != null && { id: id as string }) } }
}

function searchPart({ id, action }: SearchCallItem): SearchPart {
  const sources = action?.type === 'search' ? action.sources : null
  return {
    type: 'search',
    id: id == null ? '' : searchIdOf(id),
    query: searched(action) ?? '',
    results: (sources ?? []).flatMap(s => (s.url == null ? [] : [{ title: '', url: s.url }])),
  }
}

function searched(action: SearchCallItem['action']): Optional<string> {
  switch (action?.type) {
    case 'search':
      return action.query ?? action.queries?.[0]
    case 'open_page':
      return action.url
    case 'find':
    case 'find_in_page':
      return action.pattern ?? action.url
    default:
      return undefined
  }
}
