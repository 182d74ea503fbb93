/**
 * Checks whether the arguments of a strict tool's call match its schema (wire.md F.2): not every backend enforces it.
 * The check covers what strict schemas consist of: properties, types, fixed values, unions and references. What it
 * does not know passes.
 */
import { isObject, type JsonObject, list, object } from './loose-json.ts'

/**
 * A schema may refer to itself. These bound the check: the number of schemas that are visited, and how deeply
 * references are followed. What exceeds them passes.
 */
const MOST_STEPS = 20_000
const MOST_FOLLOWED = 64

/** True when the arguments match the schema, or when the check cannot tell. */
export function keepsTo(parameters: JsonObject, value: unknown): boolean {
  return new Judge(parameters).judge(parameters, value)
}

class Judge {
  readonly #root: JsonObject
  #steps = 0
  /** The current depth of followed references. */
  #followed = 0

  constructor(root: JsonObject) {
    this.#root = root
  }

  judge(schema: unknown, value: unknown): boolean {
    if (schema === false) return false
    if (!isObject(schema) || ++this.#steps > MOST_STEPS) return true
    const { $ref, anyOf, oneOf, allOf } = schema
    if (typeof $ref === 'string' && !this.#follow($ref, value)) return false
    for (const union of [anyOf, oneOf]) {
      if (Array.isArray(union) && !union.some(branch => this.judge(branch, value))) return false
    }
    if (!list(allOf).every(branch => this.judge(branch, value))) return false
    if (!isOfType(schema['type'], value) || !isAllowed(schema, value)) return false
    if (isObject(value)) return this.#object(schema, value)
    const { items } = schema
    return !Array.isArray(value) || !isObject(items) || value.every(item => this.judge(items, item))
  }

  #follow(ref: string, value: unknown): boolean {
    if (this.#followed === MOST_FOLLOWED || (ref !== '#' && !ref.startsWith('#/'))) return true
    let target: unknown = this.#root
    for (const step of ref.split('/').slice(1)) {
      const name = step.replaceAll('~1', '/').replaceAll('~0', '~')
      if (!isObject(target) || !Object.hasOwn(target, name)) return true
      target = target[name]
    }
    this.#followed++
    const kept = this.judge(target, value)
    this.#followed--
    return kept
  }

  #object(schema: JsonObject, value: JsonObject): boolean {
    const properties = object(schema['properties'])
    if (!list(schema['required']).every(name => typeof name !== 'string' || Object.hasOwn(value, name))) return false
    const closed = schema['additionalProperties'] === false && schema['patternProperties'] === undefined
    return Object.keys(value).every(name =>
      Object.hasOwn(properties, name) ? this.judge(properties[name], value[name]) : !closed,
    )
  }
}

function isOfType(type: unknown, value: unknown): boolean {
  if (Array.isArray(type)) return type.some(each => isOfType(each, value))
  switch (type) {
    case 'object':
      return isObject(value)
    case 'array':
      return Array.isArray(value)
    case 'null':
      return value === null
    case 'integer':
      return Number.isInteger(value)
    case 'string':
    case 'number':
    case 'boolean':
      return typeof value === type
  }
  return true
}

/** Checks `enum` and `const` when all their values are simple; others pass. */
function isAllowed(schema: JsonObject, value: unknown): boolean {
  const allowed = 'const' in schema ? [schema['const']] : schema['enum']
  if (!Array.isArray(allowed) || allowed.some(each => typeof each === 'object' && each !== null)) return true
  return allowed.includes(value)
}
