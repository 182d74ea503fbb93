/**
 * Rewrites a schema for the structured output of the Messages API, which takes a part of JSON Schema: each object is
 * closed, nothing contains itself, and there are no bounds and no patterns. Those become text that the model reads; the
 * gateway checks the bounds of the reply itself.
 */
import type { Work } from '../../core/canon/work.ts'
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

/** Levels of schemas inside each other. Those of clients have fewer (surfaces/output-format.ts). */
const MOST_DEPTH = 64
/** Units of work (core/canon/work.ts) for each member of the schema: it is looked at, and written. */
const MEMBER = 60
/** Characters that are looked at and written for a unit. */
const CHARACTERS = 4
const NONE: readonly string[] = []

/** What was made of a schema. Routing asks for each backend, and each attempt writes it. */
const forms = new WeakMap<JsonObject, JsonObject | null>()

/**
 * The schema as the API takes it; null when the API has no form for it.
 * @param work the budget of the request; when it does not suffice, there is no form
 */
export function outputSchema(schema: JsonObject, work: Work): JsonObject | null {
  let form = forms.get(schema)
  if (form === undefined) {
    form = terminates(schema, work) ? rewrite(schema, 0) : null
    forms.set(schema, form)
  }
  return form
}

function rewrite(schema: unknown, depth: number): JsonObject | null {
  if (!isObject(schema) || depth === MOST_DEPTH) return null
  const written: JsonObject = {}
  const told: string[] = []
  for (const [key, value] of Object.entries(schema)) {
    if (PLAIN.has(key)) written[key] = value
    else if (TOLD.has(key)) told.push(`${key}: ${JSON.stringify(value)}`)
    else if (UNIONS.has(key)) {
      if (!Array.isArray(value)) return null
      const branches = value.map(branch => rewrite(branch, depth + 1))
      if (branches.includes(null)) return null
      written[key === 'oneOf' ? 'anyOf' : key] = branches
    } else if (key === 'properties' || DEFINITIONS.has(key)) {
      const members = isObject(value)
        ? Object.entries(value).map(([name, inner]) => [name, rewrite(inner, depth + 1)] as const)
        : []
      if (members.some(([, inner]) => inner === null)) return null
      written[key] = Object.fromEntries(members)
    } else if (key === 'items') {
      const items = rewrite(value, depth + 1)
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

/**
 * Whether no reference leads back to a place that holds it. Each place is visited once, along its members and its
 * reference, and pays for being written. Not recursive: references of ten thousand values lead far.
 * @returns false also when the work does not suffice
 */
function terminates(root: JsonObject, work: Work): boolean {
  /** True while the place is being visited, false after that. */
  const visited = new Map<object, boolean>()
  const open: { node: object; inner: readonly unknown[]; next: number }[] = []
  /** @returns false when the place is being visited already, or nothing is left */
  const enter = (node: unknown): boolean => {
    if (typeof node !== 'object' || node === null) return true
    const state = visited.get(node)
    if (state !== undefined) return !state
    visited.set(node, true)
    const names = Array.isArray(node) ? NONE : Object.keys(node)
    const inner: unknown[] = Array.isArray(node) ? node : names.map(name => (node as JsonObject)[name])
    if (!work.take(MEMBER * (1 + inner.length))) return false
    if (!work.take((charactersOf(names) + charactersOf(inner)) / CHARACTERS)) return false
    const at = names.indexOf('$ref')
    if (at !== -1 && typeof inner[at] === 'string') inner[at] = targetOf(root, inner[at])
    open.push({ node, inner, next: 0 })
    return true
  }
  if (!enter(root)) return false
  while (open.length > 0) {
    const place = open.at(-1)!
    if (place.next === place.inner.length) {
      visited.set(place.node, false)
      open.pop()
    } else if (!enter(place.inner[place.next++])) return false
  }
  return true
}

function charactersOf(values: readonly unknown[]): number {
  let characters = 0
  for (const value of values) if (typeof value === 'string') characters += value.length
  return characters
}

function targetOf(root: unknown, ref: string): unknown {
  let target = root
  for (const step of ref.split('/').slice(1)) {
    if (typeof target !== 'object' || target === null) return undefined
    target = (target as JsonObject)[step.replaceAll('~1', '/').replaceAll('~0', '~')]
  }
  return target
}
