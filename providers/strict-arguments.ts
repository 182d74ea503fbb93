/**
 * Checks whether JSON that a model wrote matches a schema of the client (wire.md F.2): not every backend enforces it.
 * The schema is interpreted: no code is made from it, and patterns are run by patterns.ts, in linear time. What the
 * checks do not know passes, so a value that matches its schema is never refused.
 *
 *   keepsTo   arguments of a strict tool: what strict schemas consist of, which is properties, types, fixed values,
 *             patterns, unions and references
 *   meets     structured output: also bounds of numbers, strings, arrays and objects, and schemas of further members
 *
 * Not looked at: `format`, `patternProperties`, `propertyNames`, `not`, `if`, `contains`, `uniqueItems`,
 * `unevaluated…`, `dependent…`; of `oneOf`, that only one branch matches.
 */
import { isObject, type JsonObject, list, object } from './loose-json.ts'
import { Patterns } from './patterns.ts'

/**
 * A schema may refer to itself. These bound the check: the number of schemas that are visited, and how deeply
 * references are followed. What exceeds them passes.
 */
const MOST_STEPS = 20_000
/** A reply has more values than the arguments of a call; this many steps take some 20 ms. */
const MOST_STEPS_OF_REPLY = 200_000
const MOST_FOLLOWED = 64

/** True when the arguments match the schema, or when the check cannot tell. */
export function keepsTo(parameters: JsonObject, value: unknown): boolean {
  return new Judge(parameters, MOST_STEPS, false).judge(parameters, value)
}

/** True when a reply meets the schema of its structured output, or when the check cannot tell. */
export function meets(schema: JsonObject, value: unknown): boolean {
  return new Judge(schema, MOST_STEPS_OF_REPLY, true).judge(schema, value)
}

class Judge {
  readonly #root: JsonObject
  readonly #most: number
  readonly #bounds: boolean
  readonly #patterns = new Patterns()
  #steps = 0
  /** The current depth of followed references. */
  #followed = 0

  constructor(root: JsonObject, most: number, bounds: boolean) {
    this.#root = root
    this.#most = most
    this.#bounds = bounds
  }

  judge(schema: unknown, value: unknown): boolean {
    if (schema === false) return false
    if (!isObject(schema) || ++this.#steps > this.#most) return true
    const { $ref, anyOf, oneOf, allOf } = schema
    if (typeof $ref === 'string' && !this.#follow($ref, value)) return false
    for (const union of [anyOf, oneOf]) {
      if (Array.isArray(union) && !union.some(branch => this.judge(branch, value))) return false
    }
    if (!list(allOf).every(branch => this.judge(branch, value))) return false
    if (!isOfType(schema['type'], value) || !isAllowed(schema, value)) return false
    if (this.#bounds && !isWithin(schema, value)) return false
    const { pattern } = schema
    if (typeof pattern === 'string' && typeof value === 'string' && !this.#patterns.matches(pattern, value))
      return false
    if (isObject(value)) return this.#object(schema, value)
    return !Array.isArray(value) || this.#array(schema, value)
  }

  #array({ items, prefixItems }: JsonObject, value: unknown[]): boolean {
    const first = this.#bounds ? list(prefixItems) : []
    if (!first.every((schema, i) => i >= value.length || this.judge(schema, value[i]))) return false
    const rest = first.length === 0 ? value : value.slice(first.length)
    if (isObject(items)) return rest.every(item => this.judge(items, item))
    return !this.#bounds || items !== false || rest.length === 0
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
    const further = this.#bounds && schema['patternProperties'] === undefined ? schema['additionalProperties'] : true
    return Object.keys(value).every(name => {
      if (Object.hasOwn(properties, name)) return this.judge(properties[name], value[name])
      return !closed && this.judge(further, value[name])
    })
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

/** The bounds of a value: of a number itself, of a string in characters, of an array in items, of an object in members. */
function isWithin(schema: JsonObject, value: unknown): boolean {
  if (typeof value === 'number') {
    const { multipleOf: step } = schema
    return (
      inRange(value, schema['minimum'], schema['maximum']) &&
      !(typeof schema['exclusiveMinimum'] === 'number' && value <= schema['exclusiveMinimum']) &&
      !(typeof schema['exclusiveMaximum'] === 'number' && value >= schema['exclusiveMaximum']) &&
      !(Number.isInteger(step) && step !== 0 && isExact(value) && value % (step as number) !== 0)
    )
  }
  if (typeof value === 'string') return lengthInRange(value, schema['minLength'], schema['maxLength'])
  if (Array.isArray(value)) return inRange(value.length, schema['minItems'], schema['maxItems'])
  if (!isObject(value)) return true
  const { minProperties, maxProperties } = schema
  if (minProperties === undefined && maxProperties === undefined) return true
  return inRange(Object.keys(value).length, minProperties, maxProperties)
}

/** Whether the double is the number of the text; of a step that is no integer, the remainder is not exact either. */
function isExact(value: number): boolean {
  return Number.isSafeInteger(value) || !Number.isInteger(value)
}

function inRange(value: number, least: unknown, most: unknown): boolean {
  return !(typeof least === 'number' && value < least) && !(typeof most === 'number' && value > most)
}

/** JSON Schema counts code points, and a code point is one or two UTF-16 units. */
function lengthInRange(text: string, least: unknown, most: unknown): boolean {
  if (least === undefined && most === undefined) return true
  let points = 0
  for (const _ of text) points++
  return inRange(points, least, most)
}
