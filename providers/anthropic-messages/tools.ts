/** Writes tool declarations and the tool choice for the Messages API (wire.md F.2). */
import type { Conversation, Tool } from '../../core/canon/conversation.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { CUSTOM_INPUT_SCHEMA, customDescription } from '../custom-input.ts'
import { type JsonObject, list, object } from '../loose-json.ts'
import type { ToolNames } from '../tool-names.ts'
import type { CacheMarkers } from './cache-markers.ts'

/**
 * The `tools` and `tool_choice` members. When history has calls but no tool is declared, the called tools are
 * declared with an open schema and `tool_choice` none, because the API requires a declaration for every call in the
 * history.
 */
export function toolMembers(
  conversation: Conversation,
  backend: Backend,
  names: ToolNames,
  cache: CacheMarkers,
): JsonObject {
  const { toolChoice: choice, parallelToolCalls } = conversation
  let tools = conversation.tools
  if (tools.length === 0) {
    const called = new Set<string>()
    for (const turn of conversation.turns) {
      for (const part of turn.parts) if (part.type === 'call') called.add(names.toUpstream(part.name, part.namespace))
    }
    if (called.size === 0) return {}
    return {
      tools: [...called].map(name => ({ name, input_schema: { type: 'object' } })),
      tool_choice: { type: 'none' },
    }
  }
  if (choice.type === 'allowed') {
    const search = choice.tools.some(allowed => allowed.kind === 'web_search')
    const allowed = new Map<string, Set<string | undefined>>()
    for (const { kind, name, namespace } of choice.tools) {
      if (kind === 'web_search') continue
      const namespaces = allowed.get(name)
      if (namespaces) namespaces.add(namespace)
      else allowed.set(name, new Set([namespace]))
    }
    tools = tools.filter(tool => {
      if (tool.type === 'web_search') return search
      const namespaces = allowed.get(tool.name)
      return namespaces !== undefined && (tool.type === 'native' || namespaces.has(tool.namespace))
    })
  }
  const single = parallelToolCalls ? undefined : true
  const members: JsonObject = { tools: tools.map(tool => toolBody(tool, conversation, backend, names, cache)) }
  if (choice.type === 'none') members['tool_choice'] = { type: 'none' }
  else if (choice.type === 'tool') {
    const name = choice.kind === 'web_search' ? 'web_search' : names.toUpstream(choice.name, choice.namespace)
    members['tool_choice'] = { type: 'tool', name, disable_parallel_tool_use: single }
  } else if (choice.type === 'required' || (choice.type === 'allowed' && choice.mode === 'required')) {
    members['tool_choice'] = { type: 'any', disable_parallel_tool_use: single }
  } else if (single) members['tool_choice'] = { type: 'auto', disable_parallel_tool_use: true }
  return members
}

function toolBody(
  tool: Tool,
  conversation: Conversation,
  backend: Backend,
  names: ToolNames,
  cache: CacheMarkers,
): JsonObject {
  switch (tool.type) {
    case 'function':
      return {
        name: names.toUpstream(tool.name, tool.namespace),
        description: tool.description,
        input_schema: inputSchema(tool.parameters),
        strict: tool.strict ? true : undefined,
        cache_control: cache.marker(tool.cache),
      }
    case 'custom':
      return {
        name: names.toUpstream(tool.name, tool.namespace),
        description: customDescription(tool),
        input_schema: CUSTOM_INPUT_SCHEMA,
      }
    case 'native': {
      const cache_control = cache.marker(tool.cache)
      if (backend.nativeTools.has(tool.version)) {
        return { ...tool.options, type: tool.version, name: tool.name, cache_control }
      }
      const name = names.toUpstream(tool.name)
      return { name, description: tool.description, input_schema: inputSchema(tool.parameters), cache_control }
    }
    case 'web_search': {
      const most = [tool.maxUses, conversation.maxSearches].filter(limit => limit !== undefined)
      return {
        // The later version runs code upstream to filter its results, and no surface has a form for the blocks of
        // that code.
        type: 'web_search_20250305',
        name: 'web_search',
        max_uses: most.length > 0 ? Math.min(...most) : undefined,
        allowed_domains: tool.allowedDomains,
        blocked_domains: tool.blockedDomains,
        user_location: tool.userLocation,
      }
    }
  }
}

const UNIONS = ['anyOf', 'oneOf', 'allOf'] as const

/**
 * The API requires an object schema without a union at its top: the properties of the branches become optional
 * properties (wire.md F.2).
 */
function inputSchema(schema: JsonObject): JsonObject {
  if (!UNIONS.some(union => union in schema))
    return schema['type'] === 'object' ? schema : { ...schema, type: 'object' }
  const { anyOf, oneOf, allOf, ...rest } = schema
  // The entries are collected and made into an object once. Copying an object for each branch would take minutes with
  // thousands of branches.
  const branches = [...list(anyOf), ...list(oneOf), ...list(allOf)].map(branch => object(branch)['properties'])
  const properties = [...branches, rest['properties']].flatMap(some => Object.entries(object(some)))
  return { ...rest, type: 'object', properties: Object.fromEntries(properties) }
}
