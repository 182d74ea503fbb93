/** Rules about tools that a schema cannot express and that all surfaces share (TOOL-2, wire.md B.4, B.5). */
import type { Tool, ToolChoice } from '../core/canon/conversation.ts'
import { describe, fault, join } from './check.ts'

/**
 * The canonical `parameters` of a function tool: an object schema. When the client gave none, it is an empty object
 * schema; for a strict tool that empty schema also follows the rule for strict schemas, which upstreams enforce.
 * @param path path of the schema, e.g. `tools[0].function.parameters`
 * @throws GatewayError invalid_value when the schema is not one of an object
 */
export function objectParameters(
  schema: Record<string, unknown> | null | undefined,
  path: string,
  strict?: boolean | null,
): Record<string, unknown> {
  if (schema === null || schema === undefined) {
    if (strict !== true) return { type: 'object', properties: {} }
    return { type: 'object', properties: {}, required: [], additionalProperties: false }
  }
  const type = schema['type']
  if (type === undefined || type === null) return { type: 'object', ...withProperties(schema) }
  if (type === 'object' || (Array.isArray(type) && type.includes('object'))) return withProperties(schema)
  throw fault(
    'invalid_value',
    join(path, 'type'),
    w => `${w} is ${describe(type)}; the parameters of a tool must be an object schema. Set it to "object".`,
  )
}

/** Adds `properties` where it is missing: some upstreams refuse an object schema without it. */
function withProperties(schema: Record<string, unknown>): Record<string, unknown> {
  return schema['properties'] === undefined && schema['$ref'] === undefined ? { ...schema, properties: {} } : schema
}

/** Schema keywords by the kind of their value: one schema, a list of schemas, a map of schemas. */
const ONE = ['items', 'additionalItems', 'not', 'if', 'then', 'else', 'contains'] as const
const LIST = ['anyOf', 'oneOf', 'allOf', 'prefixItems', 'items'] as const
export const MAP = ['properties', '$defs', 'definitions', 'patternProperties', 'dependentSchemas'] as const

/**
 * Checks that every object level of a strict schema has `additionalProperties: false` and lists each property in
 * `required` (TOOL-2).
 * @param owner what is strict: a tool, or the schema of structured output
 * @throws GatewayError invalid_value whose `param` is the path of the faulty level
 */
export function checkStrict(schema: Record<string, unknown>, path: string, owner: 'tool' | 'schema' = 'tool'): void {
  // An explicit stack instead of recursion: the client's schema may be nested as deeply as its body.
  const open: [node: unknown, path: string][] = [[schema, path]]
  while (open.length > 0) {
    const [node, at] = open.pop()!
    if (typeof node !== 'object' || node === null || Array.isArray(node)) continue
    const level = node as Record<string, unknown>
    const properties = isObject(level['properties']) ? level['properties'] : undefined
    if (properties || isObjectType(level['type'])) {
      if (level['additionalProperties'] !== false)
        throw fault(
          'invalid_value',
          at,
          w =>
            `${w} belongs to a strict ${owner} and must have "additionalProperties": false. Add it, or set strict to false.`,
        )
      const required = new Set(Array.isArray(level['required']) ? level['required'] : [])
      for (const name of properties ? Object.keys(properties) : []) {
        if (!required.has(name))
          throw fault(
            'invalid_value',
            at,
            w =>
              `${w} belongs to a strict ${owner} and must list '${short(name)}' in "required". Add it, or set strict to false.`,
          )
      }
    }
    // Entries are pushed in reverse, so that the first fault in document order is reported.
    for (const key of MAP) {
      const inner = level[key]
      if (!isObject(inner)) continue
      const names = Object.keys(inner)
      for (let i = names.length - 1; i >= 0; i--) open.push([inner[names[i]!], join(join(at, key), names[i]!, false)])
    }
    for (const key of LIST) {
      const inner = level[key]
      if (Array.isArray(inner))
        for (let i = inner.length - 1; i >= 0; i--) open.push([inner[i], join(join(at, key), i)])
    }
    for (const key of ONE) if (isObject(level[key])) open.push([level[key], join(at, key)])
  }
}

/** Whether a schema follows the rule that `checkStrict` checks. */
export function isStrict(schema: Record<string, unknown>): boolean {
  try {
    checkStrict(schema, '')
    return true
  } catch {
    return false
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
function isObjectType(type: unknown): boolean {
  return type === 'object' || (Array.isArray(type) && type.includes('object'))
}
const short = (name: string): string => (name.length > 64 ? `${name.slice(0, 64)}…` : name)

/**
 * Checks that tool names are unique within their namespace.
 * @param namePath path from a tool's own `path` to its name, e.g. `.function.name`
 * @throws GatewayError invalid_value at the second tool of a name
 */
export function checkUniqueNames(tools: readonly Tool[], namePath: string): void {
  if (tools.length < 2) return
  const seen = new Set<string>()
  for (const tool of tools) {
    if (tool.type === 'web_search') continue
    const namespace = 'namespace' in tool ? tool.namespace : undefined
    const key = namespace === undefined ? tool.name : JSON.stringify([namespace, tool.name])
    if (seen.has(key))
      throw fault(
        'invalid_value',
        tool.path + namePath,
        w => `${w}: the name ${describe(tool.name)} is declared twice. Give each tool its own name.`,
      )
    seen.add(key)
  }
}

/**
 * Checks that a choice names only declared tools, and that `required` has tools to choose from (wire.md B.5).
 * @param param usually `tool_choice`
 * @throws GatewayError invalid_value at `param`
 */
export function checkChoice(choice: ToolChoice, tools: readonly Tool[], param: string): void {
  if (choice.type === 'auto' || choice.type === 'none') return
  if (choice.type === 'required') {
    if (tools.length > 0) return
    throw fault(
      'invalid_value',
      param,
      w => `${w} asks for a tool call, but no tools are declared. Add tools or use auto.`,
    )
  }
  const named = choice.type === 'tool' ? [choice] : choice.tools
  const declared = declaredNames(tools)
  for (const { kind, namespace, name } of named) {
    if (kind === 'web_search' ? declared.has(kind) : declared.has(nameKey(kind, namespace, name))) continue
    throw fault(
      'invalid_value',
      param,
      w => `${w} names ${describe(name)}, which tools does not declare. Declare it or choose another.`,
    )
  }
}

/**
 * Keys of everything that a choice may name. A tool in a namespace may also be named without the namespace. The
 * client controls the length of both lists, so a set is used: comparing each entry with each would take quadratic
 * time.
 */
function declaredNames(tools: readonly Tool[]): Set<string> {
  const declared = new Set<string>()
  for (const tool of tools) {
    if (tool.type === 'web_search') {
      declared.add(tool.type)
      continue
    }
    const kind = tool.type === 'custom' ? 'custom' : 'function'
    declared.add(nameKey(kind, undefined, tool.name))
    if ('namespace' in tool && tool.namespace !== undefined) declared.add(nameKey(kind, tool.namespace, tool.name))
  }
  return declared
}

const nameKey = (kind: 'function' | 'custom', namespace: string | undefined, name: string): string =>
  `${kind} ${namespace === undefined ? '' : namespace.length} ${namespace ?? ''}${name}`
