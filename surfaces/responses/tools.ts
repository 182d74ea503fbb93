/** Reads the tool declarations and tool_choice of the Responses surface (wire.md B.4, B.5). */
import type { CustomTool, FunctionTool, SearchTool, Tool, ToolChoice } from '../../core/canon/conversation.ts'
import { describe, fault, join } from '../check.ts'
import { checkStrict, objectParameters } from '../tools.ts'
import type {
  ResponsesBody,
  WireCustomTool,
  WireFunctionTool,
  WireSearchTool,
  WireTool,
  WireToolChoice,
} from './schema.ts'

/** The name under which the model sees a tool search that the client runs. */
export const TOOL_SEARCH = 'tool_search'
const TOOL_SEARCH_DESCRIPTION = 'Searches the tools that the client can load, and loads those that match.'

/** @param path path of the array, e.g. `tools` */
export function toolsOf(declared: readonly WireTool[], path: string): Tool[] {
  const tools: Tool[] = []
  declared.forEach((tool, i) => {
    const at = join(path, i)
    switch (tool.type) {
      case 'function':
        tools.push(functionOf(tool, at))
        return
      case 'custom':
        tools.push(customOf(tool, at))
        return
      case 'namespace':
        tool.tools.forEach((inner, j) => {
          const innerAt = join(join(at, 'tools'), j)
          const t = inner.type === 'function' ? functionOf(inner, innerAt) : customOf(inner, innerAt)
          t.namespace = tool.name
          tools.push(t)
        })
        return
      case 'tool_search': {
        const parameters = objectParameters(tool.parameters, join(at, 'parameters'))
        const description = tool.description ?? TOOL_SEARCH_DESCRIPTION
        tools.push({ type: 'function', name: TOOL_SEARCH, description, parameters, path: at, role: 'tool_search' })
        return
      }
      default: {
        const search = searchOf(tool, at)
        if (search) tools.push(search)
      }
    }
  })
  return tools
}

function functionOf(declared: WireFunctionTool, path: string): FunctionTool {
  const at = join(path, 'parameters')
  const tool: FunctionTool = {
    type: 'function',
    name: declared.name,
    parameters: objectParameters(declared.parameters, at, declared.strict),
    path,
  }
  if (declared.description != null) tool.description = declared.description
  if (declared.strict != null) tool.strict = declared.strict
  if (declared.strict === true) checkStrict(tool.parameters, at)
  return tool
}

function customOf(declared: WireCustomTool, path: string): CustomTool {
  const tool: CustomTool = { type: 'custom', name: declared.name, path }
  if (declared.description != null) tool.description = declared.description
  if (declared.format?.type === 'grammar')
    tool.grammar = { syntax: declared.format.syntax, definition: declared.format.definition }
  return tool
}

/** Undefined when live search is switched off: no search may run then (wire.md B.4). */
function searchOf(declared: WireSearchTool, path: string): SearchTool | undefined {
  if (declared.external_web_access === false) return undefined
  const tool: SearchTool = { type: 'web_search', path }
  const domains = declared.filters?.allowed_domains
  if (domains != null && domains.length > 0) tool.allowedDomains = domains
  if (declared.user_location != null) tool.userLocation = declared.user_location
  if (declared.search_context_size != null) tool.contextSize = declared.search_context_size
  return tool
}

/** @param tools the number of declared tools */
export function choiceOf(choice: ResponsesBody['tool_choice'], tools: number): ToolChoice {
  if (choice == null) return { type: tools > 0 ? 'auto' : 'none' }
  if (typeof choice === 'string') return { type: choice }
  if (choice.type === 'allowed_tools') return { type: 'allowed', mode: choice.mode, tools: choice.tools.map(named) }
  return { type: 'tool', ...named(choice) }
}

/**
 * Adds the namespaces that a choice leaves out: the official types have no member for them. A bare name means the
 * tool outside all namespaces, or else the tool of that name inside a namespace. Dialects identify a tool by name and
 * namespace.
 *
 * @param choice a choice that `checkChoice` has accepted
 * @throws GatewayError invalid_value when several namespaces declare the name of a single choice
 */
export function withNamespaces(choice: ToolChoice, tools: readonly Tool[]): ToolChoice {
  if (choice.type === 'allowed') {
    const declared = byName(tools)
    return { ...choice, tools: choice.tools.flatMap(tool => inNamespaces(tool, declared)) }
  }
  if (choice.type !== 'tool') return choice
  const [meant, other] = inNamespaces(choice, byName(tools))
  if (other)
    throw fault(
      'invalid_value',
      'tool_choice',
      w => `${w} names ${describe(choice.name)}, which several namespaces declare. Say which one in 'namespace'.`,
    )
  return { ...choice, ...meant }
}

interface Choosable {
  name: string
  namespace?: string
  kind: 'function' | 'custom' | 'web_search'
}

type Named = FunctionTool | CustomTool
function byName(tools: readonly Tool[]): Map<string, Named[]> {
  const found = new Map<string, Named[]>()
  for (const tool of tools) {
    if (tool.type !== 'function' && tool.type !== 'custom') continue
    const same = found.get(tool.name)
    if (same) same.push(tool)
    else found.set(tool.name, [tool])
  }
  return found
}

function inNamespaces(want: Choosable, declared: Map<string, Named[]>): Choosable[] {
  if (want.kind === 'web_search' || want.namespace !== undefined) return [want]
  const meant: Choosable[] = []
  for (const tool of declared.get(want.name) ?? []) {
    if (tool.type !== want.kind) continue
    if (tool.namespace === undefined) return [want]
    meant.push({ name: want.name, kind: want.kind, namespace: tool.namespace })
  }
  return meant
}

type ChosenTool = Exclude<WireToolChoice, string | { type: 'allowed_tools' }>

function named(tool: ChosenTool): Choosable {
  if (tool.type !== 'function' && tool.type !== 'custom') return { name: 'web_search', kind: 'web_search' }
  const { name, namespace, type: kind } = tool
  return namespace == null ? { name, kind } : { name, namespace, kind }
}
