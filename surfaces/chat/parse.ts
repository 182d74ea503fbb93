/** Makes the canonical conversation from a Chat Completions body that the schema has accepted. */
import {
  type Conversation,
  type DocumentPart,
  type FunctionTool,
  type ImagePart,
  type Part,
  type TextPart,
  type Tool,
  type ToolChoice,
  TurnList,
} from '../../core/canon/conversation.ts'
import { fault } from '../check.ts'
import { documentSource, imageSource } from '../media.ts'
import { anyObject, schemaFormat } from '../output-format.ts'
import { checkChoice, checkStrict, checkUniqueNames, objectParameters } from '../tools.ts'
import { form } from './form.ts'
import type {
  ChatBody,
  ChatMembers,
  ChatMessage,
  ChatTool,
  ChatToolChoice,
  TextContent,
  UserContent,
} from './schema.ts'

/** @throws GatewayError for violations of rules that the schema cannot express */
export function parse(body: ChatBody): Conversation {
  return read(body, () => {
    const tools = (body.tools ?? []).map(toolOf)
    checkUniqueNames(tools, '.function.name')
    return { tools, toolChoice: choiceOf(body.tool_choice, tools.length) }
  })
}

/**
 * @param readTools reads the declared tools and the choice among them, which clients of their own write in another way
 */
export function read(body: ChatMembers, readTools: () => { tools: Tool[]; toolChoice: ToolChoice }): Conversation {
  const list = new TurnList()
  if (body.system !== null && body.system !== undefined) {
    if (body.messages.some(m => m.role === 'system' || m.role === 'developer'))
      throw fault(
        'invalid_value',
        'system',
        w => `${w} and a system or developer message are both given. Keep one of them.`,
      )
    list.push('system', texts(body.system))
  }
  const custom = new Set<string>()
  for (let i = 0; i < body.messages.length; i++) pushMessage(list, body.messages[i]!, i, custom)

  const { tools, toolChoice } = readTools()
  checkChoice(toolChoice, tools, 'tool_choice')

  if (body.max_tokens != null && body.max_completion_tokens != null && body.max_tokens !== body.max_completion_tokens)
    throw fault(
      'invalid_value',
      'max_tokens',
      w =>
        `${w} is ${body.max_tokens} and 'max_completion_tokens' is ${body.max_completion_tokens}; they are one cap. Send one of them.`,
    )
  if (body.top_logprobs != null && body.logprobs !== true)
    throw fault('invalid_value', 'top_logprobs', w => `${w} needs 'logprobs' to be true. Set it, or leave ${w} out.`)

  const conversation: Conversation = {
    surface: 'chat',
    form,
    requestedModel: body.model,
    model: body.model,
    stream: body.stream === true,
    system: list.system,
    turns: list.turns,
    tools,
    toolChoice,
    parallelToolCalls: body.parallel_tool_calls !== false,
    sampling: {
      stop: typeof body.stop === 'string' ? [body.stop] : (body.stop ?? []),
      logprobs: body.logprobs === true,
    },
    reasoning: {},
  }
  const sampling = conversation.sampling
  if (body.temperature != null) sampling.temperature = body.temperature
  if (body.top_p != null) sampling.topP = body.top_p
  if (body.seed != null) sampling.seed = body.seed
  if (body.top_logprobs != null) sampling.topLogprobs = body.top_logprobs
  const cap = body.max_completion_tokens ?? body.max_tokens
  if (cap != null) {
    conversation.maxOutputTokens = cap
    conversation.maxOutputField = body.max_completion_tokens != null ? 'max_completion_tokens' : 'max_tokens'
  }
  if (body.reasoning_effort != null) conversation.reasoning.effort = body.reasoning_effort
  if (body.verbosity != null) conversation.verbosity = body.verbosity
  if (body.prompt_cache_key != null) conversation.cacheKey = body.prompt_cache_key
  const format = body.response_format
  if (format?.type === 'json_object') conversation.output = anyObject('response_format')
  else if (format?.type === 'json_schema')
    conversation.output = schemaFormat(format.json_schema, 'response_format', 'response_format.json_schema.schema')
  return conversation
}

function texts(content: string | TextContent[]): TextPart[] {
  return typeof content === 'string'
    ? [{ type: 'text', text: content }]
    : content.map(p => ({ type: 'text', text: p.text }))
}

/** @param custom ids of the calls of custom tools, whose results are distinguished from others by nothing else */
function pushMessage(list: TurnList, message: ChatMessage, at: number, custom: Set<string>): void {
  switch (message.role) {
    case 'system':
    case 'developer':
      return list.push('system', texts(message.content))
    case 'user': {
      const { content } = message
      if (typeof content === 'string') return list.push('user', [{ type: 'text', text: content }])
      return list.push(
        'user',
        content.map((part, i) => userPart(part, `messages[${at}].content[${i}]`)),
      )
    }
    case 'assistant':
      for (const call of message.tool_calls ?? []) if (call.type === 'custom') custom.add(call.id)
      return list.push('assistant', assistantParts(message, `messages[${at}]`))
    case 'tool':
      return list.push('tool', [
        {
          type: 'result',
          callId: message.tool_call_id,
          kind: custom.has(message.tool_call_id) ? 'custom' : 'function',
          content: texts(message.content),
          path: `messages[${at}]`,
        },
      ])
  }
}

function userPart(part: UserContent, path: string): TextPart | ImagePart | DocumentPart {
  switch (part.type) {
    case 'text':
      return { type: 'text', text: part.text }
    case 'image_url': {
      const { url, detail } = part.image_url
      const at = `${path}.image_url.url`
      const image: ImagePart = { type: 'image', source: imageSource(url, at), path: at }
      if (detail != null) image.detail = detail
      return image
    }
    case 'file': {
      const at = `${path}.file.file_data`
      const document: DocumentPart = { type: 'document', source: documentSource(part.file.file_data, at), path: at }
      if (part.file.filename != null) document.title = part.file.filename
      return document
    }
  }
}

function assistantParts(message: Extract<ChatMessage, { role: 'assistant' }>, path: string): Part[] {
  const calls = message.tool_calls ?? []
  if (message.content == null && message.refusal == null && calls.length === 0)
    throw fault(
      'missing_required_parameter',
      `${path}.content`,
      w => `Missing required parameter: ${w}. An assistant message has content, a refusal or tool_calls.`,
    )
  const parts: Part[] = []
  if (typeof message.content === 'string') parts.push({ type: 'text', text: message.content })
  else
    for (const part of message.content ?? [])
      parts.push(part.type === 'text' ? { type: 'text', text: part.text } : { type: 'refusal', text: part.refusal })
  if (message.refusal != null && message.refusal !== '') parts.push({ type: 'refusal', text: message.refusal })
  calls.forEach((call, i) => {
    const at = `${path}.tool_calls[${i}]`
    if (call.type === 'custom') parts.push({ type: 'call', id: call.id, kind: 'custom', ...call.custom, path: at })
    else {
      const { name, arguments: input } = call.function
      parts.push({ type: 'call', id: call.id, kind: 'function', name, input, path: at })
    }
  })
  return parts
}

function toolOf({ function: declared }: ChatTool, i: number): FunctionTool {
  return functionTool(declared, `tools[${i}]`, '.function')
}

/** @param members the path from the tool to its members */
export function functionTool(
  { name, description, parameters, strict }: ChatTool['function'],
  path: string,
  members: string,
): FunctionTool {
  const at = `${path}${members}.parameters`
  const tool: FunctionTool = { type: 'function', name, parameters: objectParameters(parameters, at, strict), path }
  if (description != null) tool.description = description
  if (strict != null) tool.strict = strict
  if (strict === true) checkStrict(tool.parameters, at)
  return tool
}

function choiceOf(choice: ChatToolChoice | null | undefined, tools: number): ToolChoice {
  if (choice == null) return { type: tools > 0 ? 'auto' : 'none' }
  if (typeof choice === 'string') return { type: choice }
  if (choice.type === 'function') return { type: 'tool', name: choice.function.name, kind: 'function' }
  const { mode, tools: allowed } = choice.allowed_tools
  return { type: 'allowed', mode, tools: allowed.map(t => ({ name: t.function.name, kind: 'function' })) }
}
