/**
 * Converts a tool's JSON Schema to the `Schema` of `FunctionDeclaration.parameters`, a subset of OpenAPI 3.0, for
 * servers that do not know `parametersJsonSchema` (wire.md F.2). What wire.md lists is left out or rewritten. Any
 * other assertion that the subset cannot express makes the backend unfit (decision 30). Annotations, and keywords
 * that JSON Schema itself ignores, are left out.
 */
import { isObject, type JsonObject, list, object } from '../loose-json.ts'

/** The result: a schema of the subset, or a description of what it cannot express. */
export type OpenApiSchema = { schema: JsonObject } | { lacks: string }

/**
 * The most schema nodes, and the deepest nesting. Inlined references may make a small schema grow without bound, and
 * deep nesting overflows the stack.
 */
const MOST_NODES = 5_000
const MOST_DEPTH = 64
/**
 * The most members that are visited while schemas are merged. Each of thousands of merges would visit a list that
 * grows with each merge.
 */
const MOST_MERGED = 100_000
/**
 * The most characters of JSON that references add in total. Their values and texts are copied or written once for
 * each reference.
 */
const MOST_INLINED = 4 << 20

/** Keywords that are copied unchanged. */
const SAME = [
  'title',
  'description',
  'default',
  'example',
  'format',
  'pattern',
  'nullable',
  'minimum',
  'maximum',
  'minLength',
  'maxLength',
  'minItems',
  'maxItems',
  'minProperties',
  'maxProperties',
  'propertyOrdering',
] as const
/** Annotations: of two merged schemas, the nearer one's are kept. */
const ANNOTATIONS: ReadonlySet<string> = new Set(['title', 'description', 'default', 'example', 'propertyOrdering'])
/** Assertions that the subset cannot express and that wire.md does not allow to be left out. */
const LACKING = [
  'not',
  'if',
  'dependentRequired',
  'dependentSchemas',
  'dependencies',
  'multipleOf',
  'prefixItems',
  'unevaluatedProperties',
  'unevaluatedItems',
  '$dynamicRef',
  '$recursiveRef',
] as const

class Lacking extends Error {}

/** Converts the parameters of a function. */
export function openApiSchema(parameters: JsonObject): OpenApiSchema {
  try {
    const schema = new Converter(parameters).node(parameters, [])
    // The parameters of a function are always one object.
    return schema['anyOf'] === undefined ? { schema: { ...schema, type: 'OBJECT' } } : { lacks: 'a union at its top' }
  } catch (error) {
    if (error instanceof Lacking) return { lacks: error.message }
    throw error
  }
}

class Converter {
  readonly #root: JsonObject
  #nodes = 0
  #merged = 0
  #inlinedSize = 0

  constructor(root: JsonObject) {
    this.#root = root
  }

  /** @param refs the references that are being inlined, and an empty entry for each level of nesting */
  node(schema: unknown, refs: readonly string[]): JsonObject {
    if (schema === false) throw new Lacking('a schema that allows nothing')
    if (!isObject(schema)) return {}
    if (++this.#nodes > MOST_NODES || refs.length > MOST_DEPTH) throw new Lacking('so many nested definitions')
    for (const keyword of LACKING) if (keyword in schema) throw new Lacking(`the keyword ${keyword}`)
    const inner = [...refs, '']
    const out: JsonObject = {}
    for (const keyword of SAME) if (schema[keyword] !== undefined) out[keyword] = schema[keyword]
    exclusiveBounds(schema, out)
    writeTypes(schema, out)
    writeEnum(schema, out)
    this.#writeProperties(schema, out, inner)
    if (Array.isArray(schema['items'])) throw new Lacking('a list of item schemas')
    if (schema['items'] !== undefined) out['items'] = this.node(schema['items'], inner)
    if (out['type'] === undefined && out['anyOf'] === undefined) inferType(out)
    let whole = this.#withUnion(schema, out, inner)
    for (const branch of list(schema['allOf'])) whole = this.#both(whole, this.node(branch, inner))
    const ref = schema['$ref']
    return typeof ref === 'string' ? this.#both(whole, this.#inlined(ref, refs)) : whole
  }

  #writeProperties(schema: JsonObject, out: JsonObject, inner: readonly string[]): void {
    const properties: JsonObject = {}
    for (const [name, property] of Object.entries(object(schema['properties']))) {
      define(properties, name, this.node(property, inner))
    }
    const required = list(schema['required']).filter(name => typeof name === 'string')
    // The API requires that every required property is declared.
    for (const name of required) if (!Object.hasOwn(properties, name)) define(properties, name, {})
    if (Object.keys(properties).length > 0) out['properties'] = properties
    if (required.length > 0) out['required'] = required
  }

  #withUnion(schema: JsonObject, out: JsonObject, inner: readonly string[]): JsonObject {
    const { anyOf, oneOf } = schema
    if (anyOf === undefined && oneOf === undefined) return out
    if ((anyOf !== undefined && oneOf !== undefined) || out['anyOf'] !== undefined)
      throw new Lacking('two unions at once')
    const branches = list(anyOf ?? oneOf).map(branch => this.node(branch, inner))
    const values = branches.filter(branch => branch['type'] !== 'NULL')
    if (values.length < branches.length) out['nullable'] = true
    if (values.length === 1) return this.#both(out, values[0]!)
    return values.length === 0 ? { ...out, type: 'NULL' } : { ...out, anyOf: values }
  }

  #both(near: JsonObject, far: JsonObject): JsonObject {
    for (const { properties, required } of [near, far])
      this.#merged += Object.keys(object(properties)).length + list(required).length
    if (this.#merged > MOST_MERGED) throw new Lacking('so many schemas at once')
    return both(near, far)
  }

  #inlined(ref: string, refs: readonly string[]): JsonObject {
    if (refs.includes(ref)) throw new Lacking('a schema that contains itself')
    if (ref !== '#' && !ref.startsWith('#/')) throw new Lacking('a $ref to elsewhere')
    let target: unknown = this.#root
    for (const step of ref.split('/').slice(1)) {
      const name = decoded(step).replaceAll('~1', '/').replaceAll('~0', '~')
      const holder: JsonObject = isObject(target) || Array.isArray(target) ? (target as JsonObject) : {}
      if (!Object.hasOwn(holder, name)) throw new Lacking('a $ref to nothing')
      target = holder[name]
    }
    this.#inlinedSize += JSON.stringify(target).length
    if (this.#inlinedSize > MOST_INLINED) throw new Lacking('so many nested definitions')
    return this.node(target, [...refs, ref])
  }
}

function decoded(step: string): string {
  try {
    return decodeURIComponent(step)
  } catch {
    return step
  }
}

/** Sets a property of any name, also `__proto__`. */
function define(properties: JsonObject, name: string, value: JsonObject): void {
  Object.defineProperty(properties, name, { value, enumerable: true, writable: true, configurable: true })
}

/** Rewrites exclusive bounds as inclusive ones. That is exact only for integers. */
function exclusiveBounds(schema: JsonObject, out: JsonObject): void {
  for (const [keyword, inclusive, step] of [
    ['exclusiveMinimum', 'minimum', 1],
    ['exclusiveMaximum', 'maximum', -1],
  ] as const) {
    const bound = schema[keyword]
    if (bound === undefined || bound === false) continue
    // In drafts before 6 the value is `true` and makes the inclusive bound of the same schema exclusive.
    const number = bound === true ? schema[inclusive] : bound
    if (schema['type'] !== 'integer' || !Number.isInteger(number)) throw new Lacking(`the keyword ${keyword}`)
    const nearest = (number as number) + step
    const beside = bound === true ? undefined : schema[inclusive]
    out[inclusive] =
      typeof beside !== 'number' ? nearest : step > 0 ? Math.max(beside, nearest) : Math.min(beside, nearest)
  }
}

const TYPES: ReadonlySet<unknown> = new Set(['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'])
/** Keywords that apply to values of one type only. */
const OF_TYPE: Record<string, readonly string[]> = {
  string: ['minLength', 'maxLength', 'pattern', 'format'],
  number: ['minimum', 'maximum', 'format'],
  integer: ['minimum', 'maximum', 'format'],
  array: ['items', 'minItems', 'maxItems'],
  object: ['properties', 'required', 'minProperties', 'maxProperties'],
}

function writeTypes(schema: JsonObject, out: JsonObject): void {
  const { type } = schema
  const types = (Array.isArray(type) ? type : [type]).filter(name => TYPES.has(name)) as string[]
  const values = types.filter(name => name !== 'null')
  if (types.length > values.length && values.length > 0) out['nullable'] = true
  if (values.length === 1) out['type'] = values[0]!.toUpperCase()
  else if (values.length === 0 && types.length > 0) out['type'] = 'NULL'
  else if (values.length > 1) {
    // A keyword that applies to only one of the types would have no effect beside the union.
    const limited = values.flatMap(name => OF_TYPE[name] ?? []).find(keyword => schema[keyword] !== undefined)
    if (limited !== undefined || schema['enum'] !== undefined) throw new Lacking('several types at once, with limits')
    out['anyOf'] = values.map(name => ({ type: name.toUpperCase() }))
  }
}

/** Writes `enum`. Its values are strings for every type; null is expressed by `nullable`. */
function writeEnum(schema: JsonObject, out: JsonObject): void {
  const values = 'const' in schema ? [schema['const']] : schema['enum']
  if (!Array.isArray(values)) return
  const others = values.filter(value => value !== null)
  if (others.length === 0) {
    out['type'] = 'NULL'
    return
  }
  if (others.length < values.length) out['nullable'] = true
  const kinds = new Set(others.map(value => (Number.isInteger(value) ? 'integer' : typeof value)))
  if (kinds.has('number')) kinds.delete('integer')
  const [kind] = kinds
  if (kinds.size > 1 || kind === 'object') throw new Lacking('an enum of values that are not of one simple type')
  out['type'] ??= kind!.toUpperCase()
  out['enum'] = others.map(String)
}

function inferType(out: JsonObject): void {
  if (out['properties'] !== undefined) out['type'] = 'OBJECT'
  else if (out['items'] !== undefined) out['type'] = 'ARRAY'
}

/** Merges two schemas that must both hold. */
function both(near: JsonObject, far: JsonObject): JsonObject {
  const out = { ...near }
  for (const [keyword, value] of Object.entries(far)) {
    const mine = out[keyword]
    if (mine === undefined) out[keyword] = value
    else if (keyword === 'required') out[keyword] = [...new Set([...list(mine), ...list(value)])]
    else if (keyword === 'properties') out[keyword] = bothProperties(object(mine), object(value))
    else if (!ANNOTATIONS.has(keyword) && JSON.stringify(mine) !== JSON.stringify(value)) {
      throw new Lacking(`two schemas at once that differ in ${keyword}`)
    }
  }
  // Null is allowed only when both schemas allow it.
  if (near['nullable'] === true && far['type'] !== undefined && far['nullable'] !== true && near['type'] !== undefined)
    delete out['nullable']
  if (far['nullable'] === true && near['type'] !== undefined && near['nullable'] !== true) delete out['nullable']
  return out
}

function bothProperties(near: JsonObject, far: JsonObject): JsonObject {
  const out: JsonObject = {}
  for (const [name, value] of Object.entries(near)) define(out, name, object(value))
  for (const [name, value] of Object.entries(far)) {
    define(out, name, Object.hasOwn(out, name) ? both(object(out[name]), object(value)) : object(value))
  }
  return out
}
