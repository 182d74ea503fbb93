/** Reads the tool declarations and tool_choice of a Messages body (wire.md B.4, B.5). */
import type { Tool, ToolChoice } from '../../core/canon/conversation.ts'
import { fault } from '../check.ts'
import { checkChoice, checkStrict, checkUniqueNames, objectParameters } from '../tools.ts'
import { isObject, listOf, numberOf, stringOf } from '../unchecked.ts'
import { NATIVE_TOOLS, otherTextEditor, WEB_SEARCH_TYPES } from './native-tools.ts'
import type { Reading } from './reading.ts'
import type { DeclaredTool, MessagesBody, WireToolChoice } from './schema.ts'

/** The declared tools. @throws GatewayError for faults in names, strict schemas and search domains */
export function readTools(body: MessagesBody, reading: Reading): Tool[] {
  const tools: Tool[] = []
  const declared = listOf(body.tools)
  for (let i = 0; i < declared.length; i++) {
    const entry = declared[i]
    if (isObject(entry)) tools.push(readTool(entry, `tools[${i}]`, reading))
  }
  if (reading.strict) {
    checkUniqueNames(tools, '.name')
    checkSearchName(tools)
  }
  return tools
}

function readTool(entry: DeclaredTool, path: string, reading: Reading): Tool {
  const type = stringOf(entry.type) ?? 'custom'
  const cache = reading.cache(entry, path)
  if (WEB_SEARCH_TYPES.includes(type)) return readSearchTool(entry, path, reading)
  const name = stringOf(entry.name) ?? ''
  const native = NATIVE_TOOLS.get(type)
  if (native) {
    const { description, parameters } = native
    const tool: Tool = { type: 'native', version: type, name, description, parameters, path }
    const options: Record<string, unknown> = {}
    for (const option of native.options) if (entry[option] != null) options[option] = entry[option]
    if (Object.keys(options).length > 0) tool.options = options
    if (cache) tool.cache = cache
    return tool
  }
  const editor = otherTextEditor(type)
  const schema = isObject(entry.input_schema) ? entry.input_schema : undefined
  const tool: Tool = {
    type: 'function',
    name,
    description: editor?.description ?? stringOf(entry.description),
    parameters: editor?.parameters ?? readParameters(schema, `${path}.input_schema`, reading),
    path,
  }
  if (typeof entry.strict === 'boolean' && !editor) tool.strict = entry.strict
  if (cache) tool.cache = cache
  if (reading.strict && tool.strict && schema) checkStrict(schema, `${path}.input_schema`)
  return tool
}

/** Both readings make the same canonical schema: members that are added to it are counted too (CNT-1). */
function readParameters(
  schema: Record<string, unknown> | undefined,
  path: string,
  reading: Reading,
): Record<string, unknown> {
  try {
    return objectParameters(schema, path)
  } catch (error) {
    if (reading.strict || schema === undefined) throw error
    return schema
  }
}

function readSearchTool(entry: DeclaredTool, path: string, reading: Reading): Tool {
  const tool: Tool = { type: 'web_search', path }
  const uses = numberOf(entry.max_uses)
  if (uses !== undefined) tool.maxUses = uses
  const allowed = listOf(entry.allowed_domains).filter(domain => typeof domain === 'string')
  const blocked = listOf(entry.blocked_domains).filter(domain => typeof domain === 'string')
  if (reading.strict && allowed.length > 0 && blocked.length > 0)
    throw fault(
      'invalid_value',
      `${path}.blocked_domains`,
      w => `${w} and allowed_domains exclude each other. Send one of them.`,
    )
  if (allowed.length > 0) tool.allowedDomains = allowed
  if (blocked.length > 0) tool.blockedDomains = blocked
  if (isObject(entry.user_location)) tool.userLocation = entry.user_location
  return tool
}

/** @throws GatewayError invalid_value at `tool_choice` when it names a tool that is not declared */
export function readToolChoice(choice: WireToolChoice | undefined, tools: Tool[], reading: Reading): ToolChoice {
  const chosen = choiceOf(choice, tools)
  if (reading.strict) checkChoice(chosen, tools, 'tool_choice')
  return chosen.type === 'auto' && tools.length === 0 ? { type: 'none' } : chosen
}

function choiceOf(choice: WireToolChoice | undefined, tools: Tool[]): ToolChoice {
  switch (choice?.type) {
    case 'none':
      return { type: 'none' }
    case 'any':
      return { type: 'required' }
    case 'tool': {
      const name = stringOf(choice.name) ?? ''
      const hosted = name === 'web_search' && tools.some(tool => tool.type === 'web_search')
      return { type: 'tool', name, kind: hosted ? 'web_search' : 'function' }
    }
    default:
      return { type: 'auto' }
  }
}

/**
 * Refuses a second tool with the name `web_search`: that is the name of the hosted search, and the two could not be
 * told apart.
 */
function checkSearchName(tools: Tool[]): void {
  let search = false
  for (const tool of tools) search ||= tool.type === 'web_search'
  if (!search) return
  let seen = false
  for (const tool of tools) {
    if (tool.type !== 'web_search' && tool.name !== 'web_search') continue
    if (seen)
      throw fault(
        'invalid_value',
        `${tool.path}.name`,
        w => `${w}: the name 'web_search' is declared twice. Give each tool its own name.`,
      )
    seen = true
  }
}
