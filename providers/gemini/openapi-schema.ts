/**
 * Converts a tool's JSON Schema to the `Schema` of `FunctionDeclaration.parameters`, a subset of OpenAPI 3.0, for
 * servers that do not know `parametersJsonSchema` (wire.md F.2). What wire.md lists is left out or rewritten. Any
 * other assertion that the subset cannot express makes the backend unfit (decision 30). Annotations, and keywords
 * that JSON Schema itself ignores, are left out.
 */
import type { Work } from '../../core/canon/work.ts'
import { isObject, type JsonObject, list, object } from '../loose-json.ts'

/** The result: a schema of the subset, or a description of what it cannot express. */
export type OpenApiSchema = { schema: JsonObject } | { lacks: string }

/** The deepest nesting, references included: deep nesting overflows the stack. */
const MOST_DEPTH = 64
/**
 * Units of work (core/canon/work.ts) for each schema, beside its texts, its lists and what is merged: some 30 look-ups.
 */
const NODE = 30
/** Units of work for each member of a list or an object that is copied. */
const MEMBER = 4
/** The same for each member that two merged schemas have: it goes into an object that grows. */
const MERGED = 16
/** Characters of JSON that each schema takes at least. */
const SCHEMA_CHARACTERS = 16
/**
 * A reference is written out each time that it occurs, so a description may be written many times that the client sent
 * once. The count of tokens is that of what the client sent, the same for every backend and for count_tokens. So what
 * is written for a request may be larger than that by a fixed multiple and no more; else the model would read far more
 * than was counted (decision 73).
 */
const MULTIPLE = 4
/** So many more characters may be written for a request, since references make small schemas grow most. */
const SMALL = 32 * 1024

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

const COPIED = 1
const LACKS = 2
const KINDS: ReadonlyMap<string, number> = new Map([
  ...SAME.map(keyword => [keyword, COPIED] as const),
  ...LACKING.map(keyword => [keyword, LACKS] as const),
])

class Lacking extends Error {}

/** What was made of a schema: routing asks for each backend, and each attempt writes it. */
const made = new WeakMap<JsonObject, { found: OpenApiSchema; written: number }>()
/** Characters of JSON of a schema as the client sent it. */
const sizes = new WeakMap<JsonObject, number>()

/**
 * Converts the parameters of all functions of a request, so that `openApiSchema` has them.
 * @param work the budget of the request
 * @returns what one of them cannot be said in, with its place in the list; null when each has a form
 */
export function convertAll(all: readonly JsonObject[], work: Work): { at: number; lacks: string } | null {
  let sent = 0
  for (const parameters of all) sent += sizeIn(parameters, work)
  const room = { left: MULTIPLE * sent + SMALL }
  for (const [at, parameters] of all.entries()) {
    const known = made.get(parameters)
    if (known && !fits(room, known.written)) return { at, lacks: TOO_LARGE }
    const found = known?.found ?? openApiSchema(parameters, work, room)
    if ('lacks' in found) return { at, lacks: found.lacks }
  }
  return null
}

/** Characters of JSON that may still be written. No `Work`: that counts requests which used up their units. */
interface Room {
  left: number
}

function fits(room: Room, characters: number): boolean {
  if (characters > room.left) return false
  room.left -= characters
  return true
}

const TOO_LARGE = 'so many nested definitions'
const TOO_MANY = 'so many schemas at once'

/**
 * Converts the parameters of a function.
 * @param work the budget of the request
 * @param room characters of JSON that may be written
 */
export function openApiSchema(
  parameters: JsonObject,
  work: Work,
  room: Room = { left: MULTIPLE * sizeIn(parameters, work) + SMALL },
): OpenApiSchema {
  const known = made.get(parameters)
  if (known) return known.found
  const before = room.left
  let found: OpenApiSchema
  try {
    const schema = new Converter(parameters, work, room).node(parameters, 0, null)
    // The parameters of a function are always one object.
    found = schema['anyOf'] === undefined ? { schema: { ...schema, type: 'OBJECT' } } : { lacks: 'a union at its top' }
  } catch (error) {
    if (!(error instanceof Lacking)) throw error
    found = { lacks: error.message }
    // Other requests may have more left for a schema that the gateway itself declares.
    if (error instanceof Exhausted) return found
  }
  made.set(parameters, { found, written: before - room.left })
  return found
}

/** The request may do no more, or a schema would grow too much. */
class Exhausted extends Lacking {}

/**
 * About the characters of a value's JSON. Not recursive, and counted as it goes.
 * @returns what was seen until the work was used up
 */
function sizeIn(value: unknown, work: Work): number {
  const known = isObject(value) ? sizes.get(value) : undefined
  if (known !== undefined) return known
  let size = 0
  const open: unknown[] = [value]
  while (open.length > 0) {
    const next = open.pop()
    let more = 4
    if (typeof next === 'string') more += next.length
    else if (Array.isArray(next)) {
      if (!work.take(next.length)) return size
      for (const item of next) open.push(item)
    } else if (typeof next === 'object' && next !== null) {
      for (const name in next) {
        more += name.length + 4
        open.push((next as JsonObject)[name])
      }
    } else more += 4
    size += more
    if (!work.take(more)) return size
  }
  if (isObject(value)) sizes.set(value, size)
  return size
}

/** References that are being written out, the innermost first. */
interface Inlining {
  target: unknown
  around: Inlining | null
}

class Converter {
  readonly #root: JsonObject
  readonly #work: Work
  readonly #room: Room
  /** By reference: where it leads. */
  readonly #targets = new Map<string, unknown>()
  /** Characters of values that are written as they are, such as defaults and lists of values. */
  readonly #sizes = new Map<object, number>()

  constructor(root: JsonObject, work: Work, room: Room) {
    this.#root = root
    this.#work = work
    this.#room = room
  }

  /**
   * @param depth of the schema, references included
   * @param inlined the references that it is in
   */
  node(schema: unknown, depth: number, inlined: Inlining | null): JsonObject {
    if (schema === false) throw new Lacking('a schema that allows nothing')
    if (!isObject(schema)) return {}
    if (depth > MOST_DEPTH) throw new Lacking(TOO_LARGE)
    this.#spend(NODE, SCHEMA_CHARACTERS)
    // A schema has few members: they are looked up in the lists, not the lists in them.
    let same = 0
    for (const keyword in schema) {
      const kind = KINDS.get(keyword)
      if (kind === LACKS) throw new Lacking(`the keyword ${keyword}`)
      if (kind === COPIED) same++
    }
    const out: JsonObject = {}
    for (let i = 0; same > 0 && i < SAME.length; i++) {
      const keyword = SAME[i]!
      const value = schema[keyword]
      if (value === undefined) continue
      this.#writes(value)
      out[keyword] = value
      same--
    }
    exclusiveBounds(schema, out)
    this.#reads(schema['type'])
    writeTypes(schema, out)
    this.#writes(schema['enum'])
    this.#reads(schema['enum'])
    this.#writes(schema['const'])
    writeEnum(schema, out)
    this.#writeProperties(schema, out, depth, inlined)
    if (Array.isArray(schema['items'])) throw new Lacking('a list of item schemas')
    if (schema['items'] !== undefined) out['items'] = this.node(schema['items'], depth + 1, inlined)
    if (out['type'] === undefined && out['anyOf'] === undefined) inferType(out)
    let whole = this.#withUnion(schema, out, depth, inlined)
    for (const branch of list(schema['allOf'])) whole = this.#both(whole, this.node(branch, depth + 1, inlined))
    const ref = schema['$ref']
    return typeof ref === 'string' ? this.#both(whole, this.#inlined(ref, depth, inlined)) : whole
  }

  /** Takes what the next step costs, before it is done. */
  #spend(units: number, characters = 0): void {
    if (!this.#work.take(units + characters) || !fits(this.#room, characters)) throw new Exhausted(TOO_LARGE)
  }

  /** A list is about to be walked. */
  #reads(value: unknown): void {
    if (Array.isArray(value)) this.#spend(MEMBER * value.length)
  }

  /** A value is about to be written as it is. */
  #writes(value: unknown): void {
    if (value === undefined) return
    if (typeof value !== 'object' || value === null) {
      this.#spend(0, typeof value === 'string' ? value.length + 2 : 4)
      return
    }
    let size = this.#sizes.get(value)
    if (size === undefined) this.#sizes.set(value, (size = sizeIn(value, this.#work)))
    this.#spend(0, size)
  }

  #writeProperties(schema: JsonObject, out: JsonObject, depth: number, inlined: Inlining | null): void {
    const properties: JsonObject = {}
    const declared = object(schema['properties'])
    let any = false
    for (const name in declared) {
      this.#spend(MEMBER, name.length + 4)
      define(properties, name, this.node(declared[name], depth + 1, inlined))
      any = true
    }
    this.#reads(schema['required'])
    this.#writes(schema['required'])
    const required = list(schema['required']).filter(name => typeof name === 'string')
    // The API requires that every required property is declared.
    for (const name of required) {
      if (Object.hasOwn(properties, name)) continue
      this.#spend(MEMBER, name.length + 6)
      define(properties, name, {})
      any = true
    }
    if (any) out['properties'] = properties
    if (required.length > 0) out['required'] = required
  }

  #withUnion(schema: JsonObject, out: JsonObject, depth: number, inlined: Inlining | null): JsonObject {
    const { anyOf, oneOf } = schema
    if (anyOf === undefined && oneOf === undefined) return out
    if ((anyOf !== undefined && oneOf !== undefined) || out['anyOf'] !== undefined)
      throw new Lacking('two unions at once')
    const branches = list(anyOf ?? oneOf).map(branch => this.node(branch, depth + 1, inlined))
    const values = branches.filter(branch => branch['type'] !== 'NULL')
    if (values.length < branches.length) out['nullable'] = true
    if (values.length === 1) return this.#both(out, values[0]!)
    return values.length === 0 ? { ...out, type: 'NULL' } : { ...out, anyOf: values }
  }

  #inlined(ref: string, depth: number, inlined: Inlining | null): JsonObject {
    const target = this.#targetOf(ref)
    for (let outer = inlined; outer; outer = outer.around) {
      if (outer.target === target) throw new Lacking('a schema that contains itself')
    }
    return this.node(target, depth + 1, { target, around: inlined })
  }

  #targetOf(ref: string): unknown {
    this.#spend(ref.length)
    if (this.#targets.has(ref)) return this.#targets.get(ref)
    if (ref !== '#' && !ref.startsWith('#/')) throw new Lacking('a $ref to elsewhere')
    let target: unknown = this.#root
    for (const step of ref.split('/').slice(1)) {
      const name = decoded(step).replaceAll('~1', '/').replaceAll('~0', '~')
      const holder: JsonObject = isObject(target) || Array.isArray(target) ? (target as JsonObject) : {}
      if (!Object.hasOwn(holder, name)) throw new Lacking('a $ref to nothing')
      target = holder[name]
    }
    this.#targets.set(ref, target)
    return target
  }

  /** Merges two schemas that must both hold. */
  #both(near: JsonObject, far: JsonObject): JsonObject {
    this.#merges(NODE)
    const out = { ...near }
    for (const [keyword, value] of Object.entries(far)) {
      const mine = out[keyword]
      if (mine === undefined) out[keyword] = value
      else if (keyword === 'required') {
        this.#merges(MERGED * (list(mine).length + list(value).length))
        out[keyword] = [...new Set([...list(mine), ...list(value)])]
      } else if (keyword === 'properties') out[keyword] = this.#bothProperties(object(mine), object(value))
      else if (!ANNOTATIONS.has(keyword) && !this.#same(mine, value)) {
        throw new Lacking(`two schemas at once that differ in ${keyword}`)
      }
    }
    // Null is allowed only when both schemas allow it.
    if (
      near['nullable'] === true &&
      far['type'] !== undefined &&
      far['nullable'] !== true &&
      near['type'] !== undefined
    )
      delete out['nullable']
    if (far['nullable'] === true && near['type'] !== undefined && near['nullable'] !== true) delete out['nullable']
    return out
  }

  #bothProperties(near: JsonObject, far: JsonObject): JsonObject {
    const out: JsonObject = {}
    for (const name in near) {
      this.#merges(MERGED)
      define(out, name, object(near[name]))
    }
    for (const name in far) {
      this.#merges(MERGED)
      const value = object(far[name])
      define(out, name, Object.hasOwn(out, name) ? this.#both(object(out[name]), value) : value)
    }
    return out
  }

  #same(one: unknown, other: unknown): boolean {
    this.#merges(sizeIn(one, this.#work) + sizeIn(other, this.#work))
    return JSON.stringify(one) === JSON.stringify(other)
  }

  #merges(units: number): void {
    if (!this.#work.take(units)) throw new Exhausted(TOO_MANY)
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
  if (name !== '__proto__') properties[name] = value
  else Object.defineProperty(properties, name, { value, enumerable: true, writable: true, configurable: true })
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
