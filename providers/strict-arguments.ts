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
 *
 * A schema of some kilobytes that refers to itself can ask for years of work. All checks of a request draw on its
 * budget (core/canon/work.ts), and each step takes what it costs: the lists that it walks, the texts that it compares.
 * When nothing is left, what was not found to be wrong so far passes.
 */
import type { Work } from '../core/canon/work.ts'
import { isObject, type JsonObject, list, object, parseObject } from './loose-json.ts'
import { patterns } from './patterns.ts'

/** Units of work: for a schema that is looked at, and for a member of an object or a name in a list. */
const STEP = 15
const MEMBER = 10
/**
 * For a member of a value that has more than a thousand: V8 keeps them in a hash table, and sorts them each time that
 * they are listed.
 */
const MEMBER_OF_MANY = 50
const MANY = 1000
/** For an entry of a list of values or types. */
const ENTRY = 3
/** Characters that are compared, hashed or copied for a unit. */
const CHARACTERS = 4
/** Levels of schemas inside each other, references included. What is deeper passes. Each takes two frames of the stack. */
const MOST_DEPTH = 500

/** True when the arguments match the schema, or when the check cannot tell. */
export function keepsTo(parameters: JsonObject, value: unknown, work: Work): boolean {
  return judged(new Judge(parameters, work, false), parameters, value)
}

/** True when a reply meets the schema of its structured output, or when the check cannot tell. */
export function meets(schema: JsonObject, value: unknown, work: Work): boolean {
  return judged(new Judge(schema, work, true), schema, value)
}

/** The same of arguments as the model wrote them. To read them takes a unit for each character. */
export function textKeepsTo(parameters: JsonObject, text: string, work: Work): boolean {
  return !work.take(text.length) || keepsTo(parameters, parseObject(text) ?? {}, work)
}

/** True when the text is an object that meets the schema, if there is one, or when the check cannot tell. */
export function textMeets(schema: JsonObject | undefined, text: string, work: Work): boolean {
  if (!work.take(text.length)) return true
  const value = parseObject(text)
  return value !== undefined && (schema === undefined || meets(schema, value, work))
}

/** Thrown to leave a check for which nothing is left. */
const SPENT = Symbol('spent')

function judged(judge: Judge, schema: JsonObject, value: unknown): boolean {
  try {
    return judge.judge(schema, value, 0)
  } catch (error) {
    if (error === SPENT) return true
    throw error
  }
}

class Judge {
  readonly #root: JsonObject
  readonly #work: Work
  readonly #bounds: boolean

  constructor(root: JsonObject, work: Work, bounds: boolean) {
    this.#root = root
    this.#work = work
    this.#bounds = bounds
  }

  #take(units: number): void {
    if (!this.#work.take(units)) throw SPENT
  }

  judge(schema: unknown, value: unknown, depth: number): boolean {
    this.#take(STEP)
    if (schema === false) return false
    if (!isObject(schema) || depth === MOST_DEPTH) return true
    const { $ref, anyOf, oneOf, allOf, pattern } = schema
    if (typeof $ref === 'string' && !this.judge(this.#target($ref), value, depth + 1)) return false
    if (Array.isArray(anyOf) && !this.#some(anyOf, value, depth + 1)) return false
    if (Array.isArray(oneOf) && !this.#some(oneOf, value, depth + 1)) return false
    for (const branch of list(allOf)) if (!this.judge(branch, value, depth + 1)) return false
    if (!this.#isOfType(schema['type'], value) || !this.#isAllowed(schema, value)) return false
    if (typeof value === 'string') {
      if (this.#bounds && !this.#lengthInRange(value, schema['minLength'], schema['maxLength'])) return false
      return typeof pattern !== 'string' || patterns.matches(pattern, value, this.#work)
    }
    if (typeof value === 'number') return !this.#bounds || isWithin(schema, value)
    if (Array.isArray(value)) return this.#array(schema, value, depth + 1)
    return !isObject(value) || this.#object(schema, value, depth + 1)
  }

  #some(branches: readonly unknown[], value: unknown, depth: number): boolean {
    for (const branch of branches) if (this.judge(branch, value, depth)) return true
    return false
  }

  #array({ items, prefixItems, minItems, maxItems }: JsonObject, value: unknown[], depth: number): boolean {
    if (this.#bounds && !inRange(value.length, minItems, maxItems)) return false
    const first = this.#bounds ? list(prefixItems) : []
    for (let i = 0; i < first.length && i < value.length; i++) if (!this.judge(first[i], value[i], depth)) return false
    if (isObject(items)) {
      for (let i = first.length; i < value.length; i++) if (!this.judge(items, value[i], depth)) return false
      return true
    }
    return !this.#bounds || items !== false || value.length <= first.length
  }

  #object(schema: JsonObject, value: JsonObject, depth: number): boolean {
    const required = list(schema['required'])
    this.#take(required.length * MEMBER)
    for (const name of required) {
      if (typeof name !== 'string') continue
      this.#take(name.length / CHARACTERS)
      if (!Object.hasOwn(value, name)) return false
    }
    const { minProperties, maxProperties } = schema
    const counts = this.#bounds && (minProperties !== undefined || maxProperties !== undefined)
    const closed = schema['additionalProperties'] === false && schema['patternProperties'] === undefined
    const further = this.#bounds && schema['patternProperties'] === undefined ? schema['additionalProperties'] : true
    if (!counts && !closed && !isObject(schema['properties']) && !isObject(further)) return true
    // How many there are is known only now. The text that they were read from has been paid for, so it is not too much.
    const names = Object.keys(value)
    this.#take(names.length * (names.length > MANY ? MEMBER_OF_MANY : MEMBER))
    if (counts && !inRange(names.length, minProperties, maxProperties)) return false
    const properties = object(schema['properties'])
    for (const name of names) {
      const inner = Object.hasOwn(properties, name) ? properties[name] : closed ? false : further
      if (!this.judge(inner, value[name], depth)) return false
    }
    return true
  }

  /** What a reference leads to; undefined, which passes, where it leads out of the schema or nowhere. */
  #target(ref: string): unknown {
    this.#take(ref.length / CHARACTERS)
    if (ref !== '#' && !ref.startsWith('#/')) return undefined
    let target: unknown = this.#root
    for (let at = ref.indexOf('/'); at !== -1; ) {
      this.#take(MEMBER)
      const end = ref.indexOf('/', at + 1)
      const step = ref.slice(at + 1, end === -1 ? ref.length : end)
      const name = step.includes('~') ? step.replaceAll('~1', '/').replaceAll('~0', '~') : step
      if (!isObject(target) || !Object.hasOwn(target, name)) return undefined
      target = target[name]
      at = end
    }
    return target
  }

  #isOfType(type: unknown, value: unknown): boolean {
    if (!Array.isArray(type)) return isOfType(type, value)
    this.#take(type.length * ENTRY)
    return type.some(each => isOfType(each, value))
  }

  /** Checks `enum` and `const` when all their values are simple; others pass. */
  #isAllowed(schema: JsonObject, value: unknown): boolean {
    const allowed = 'const' in schema ? [schema['const']] : schema['enum']
    if (!Array.isArray(allowed)) return true
    this.#take(allowed.length * ENTRY)
    let found = false
    for (const each of allowed) {
      if (typeof each === 'object' && each !== null) return true
      found ||= typeof each === 'string' && typeof value === 'string' ? this.#isSame(each, value) : each === value
    }
    return found
  }

  #isSame(a: string, b: string): boolean {
    if (a.length !== b.length) return false
    this.#take(a.length / CHARACTERS)
    // To look at a character makes one piece of a string that was concatenated. Each comparison of such strings would
    // go through their pieces again.
    return a === '' || (a.charCodeAt(0) === b.charCodeAt(0) && a === b)
  }

  /** JSON Schema counts code points, and a code point is one or two UTF-16 units. */
  #lengthInRange(text: string, least: unknown, most: unknown): boolean {
    const { length } = text
    const few = typeof least === 'number' && least > length / 2
    const many = typeof most === 'number' && most < length
    if (!few && !many) return true
    this.#take(length)
    let points = length
    for (let i = 1; i < length; i++) {
      // The second half of a pair.
      if ((text.charCodeAt(i) & 0xfc00) === 0xdc00 && (text.charCodeAt(i - 1) & 0xfc00) === 0xd800) points--
    }
    return inRange(points, least, most)
  }
}

/** A type that is no text says nothing. */
function isOfType(type: unknown, value: unknown): boolean {
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

/** The bounds of a number. */
function isWithin(schema: JsonObject, value: number): boolean {
  const { multipleOf: step } = schema
  return (
    inRange(value, schema['minimum'], schema['maximum']) &&
    !(typeof schema['exclusiveMinimum'] === 'number' && value <= schema['exclusiveMinimum']) &&
    !(typeof schema['exclusiveMaximum'] === 'number' && value >= schema['exclusiveMaximum']) &&
    !(Number.isInteger(step) && step !== 0 && isExact(value) && value % (step as number) !== 0)
  )
}

/** Whether the double is the number of the text; of a step that is no integer, the remainder is not exact either. */
function isExact(value: number): boolean {
  return Number.isSafeInteger(value) || !Number.isInteger(value)
}

function inRange(value: number, least: unknown, most: unknown): boolean {
  return !(typeof least === 'number' && value < least) && !(typeof most === 'number' && value > most)
}
