/**
 * Rewrites a schema for the structured output of the Messages API, which takes a part of JSON Schema: each object is
 * closed, nothing contains itself, and there are no bounds and no patterns. Those become text that the model reads; the
 * gateway checks the bounds of the reply itself.
 */
import { isObject, type JsonObject } from '../loose-json.ts'

/** Keywords that are sent as they are. */
const PLAIN: ReadonlySet<string> = new Set(['type', 'enum', 'const', 'required', 'title', 'description', '$ref'])
/** Keywords for which the API has no form, and which the model can follow when it reads them. */
const TOLD: ReadonlySet<string> = new Set([
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'exclusiveMaximum',
  'multipleOf',
  'minLength',
  'maxLength',
  'pattern',
  'format',
  'minItems',
  'maxItems',
  'uniqueItems',
  'minProperties',
  'maxProperties',
  'default',
  'examples',
])
const SKIPPED: ReadonlySet<string> = new Set(['$schema', '$id', '$comment', 'deprecated', 'readOnly', 'writeOnly'])
const UNIONS: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'allOf'])
const DEFINITIONS: ReadonlySet<string> = new Set(['$defs', 'definitions'])

/** The schema as the API takes it; null when the API has no form for it. */
export function outputSchema(schema: JsonObject): JsonObject | null {
  return containsItself(schema) ? null : rewrite(schema)
}

function rewrite(schema: unknown): JsonObject | null {
  if (!isObject(schema)) return null
  const written: JsonObject = {}
  const told: string[] = []
  for (const [key, value] of Object.entries(schema)) {
    if (PLAIN.has(key)) written[key] = value
    else if (TOLD.has(key)) told.push(`${key}: ${JSON.stringify(value)}`)
    else if (UNIONS.has(key)) {
      if (!Array.isArray(value)) return null
      const branches = value.map(rewrite)
      if (branches.includes(null)) return null
      written[key === 'oneOf' ? 'anyOf' : key] = branches
    } else if (key === 'properties' || DEFINITIONS.has(key)) {
      const members = isObject(value)
        ? Object.entries(value).map(([name, inner]) => [name, rewrite(inner)] as const)
        : []
      if (members.some(([, inner]) => inner === null)) return null
      written[key] = Object.fromEntries(members)
    } else if (key === 'items') {
      const items = rewrite(value)
      if (!items) return null
      written[key] = items
    } else if (key === 'additionalProperties' && value === false) written[key] = false
    else if (!SKIPPED.has(key)) return null
  }
  const { type } = schema
  const isOfObjects = type === 'object' || (Array.isArray(type) && type.includes('object')) || 'properties' in schema
  if (isOfObjects && schema['additionalProperties'] !== false) return null
  if (told.length > 0) {
    const description = typeof written['description'] === 'string' ? `${written['description']}\n` : ''
    written['description'] = `${description}${told.join('; ')}`
  }
  return written
}

/** Whether a reference leads back to a place that holds it. Each place is visited once. */
function containsItself(root: JsonObject): boolean {
  /** True while the place is being visited, false after that. */
  const visited = new Map<unknown, boolean>()
  const visit = (node: unknown): boolean => {
    if (typeof node !== 'object' || node === null) return false
    const state = visited.get(node)
    if (state !== undefined) return state
    visited.set(node, true)
    const found = Object.entries(node).some(([key, value]) =>
      key === '$ref' && typeof value === 'string' ? visit(targetOf(root, value)) : visit(value),
    )
    visited.set(node, false)
    return found
  }
  return visit(root)
}

function targetOf(root: unknown, ref: string): unknown {
  let target = root
  for (const step of ref.split('/').slice(1)) {
    if (typeof target !== 'object' || target === null) return undefined
    target = (target as JsonObject)[step.replaceAll('~1', '/').replaceAll('~0', '~')]
  }
  return target
}
