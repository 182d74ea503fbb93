/**
 * Checks a request body against a surface's schema (GEN-2): strict at every depth, the codes of wire.md 0.2, and `param` in path
 * notation (`messages[2].content[0].image_url.url`).
 *
 * The schema (see `schema.ts`) is turned once, at load, into one that ajv compiles to a single function:
 * - a member that is not required may be null, at any depth;
 * - tagged unions and alternatives by JSON type become dispatches, so that only the meant variant is looked at and a fault has an exact
 *   place (decisions 41: the tag may be absent or null, which ajv's own `discriminator` can't say);
 * - unknown members are refused, or removed and listed, by mode.
 *
 * Own `__proto__` members, which JSON.parse makes, are enumerated like any other and so are unknown (decisions 36).
 */
import { _, type ErrorObject, type FuncKeywordDefinition, type KeywordCxt, type Name } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { type ErrorCode, GatewayError } from '../core/errors.ts'
import type { Schema, TagAnnotation, TagFault } from './schema.ts'

/** `reject`: throws on the first unknown member. `strip`: removes unknown members in place and returns their paths. Other faults throw in both. */
export type Validate = (body: unknown, unknownFields: 'reject' | 'strip') => string[]

/**
 * Each form is compiled on its first use, some 50 ms: a chain that serves the surface sends an empty body through at start.
 * @param schema of an object, in the words of `schema.ts`
 */
export function compileRequest(schema: Schema): Validate {
  let strict: ((body: unknown) => ErrorObject | undefined) | undefined
  let lenient: ((body: unknown) => ErrorObject | undefined) | undefined
  return function validate(body, unknownFields) {
    if (typeof body !== 'object' || body === null || Array.isArray(body)) throw notAnObject(body)
    if (unknownFields === 'reject') {
      strict ??= compile(schema, false)
      const error = strict(body)
      if (error) throw faultOf(error, body)
      return NONE
    }
    lenient ??= compile(schema, true)
    removed = []
    const error = lenient(body)
    const found = removed
    removed = []
    if (error) throw faultOf(error, body)
    return found.map(([pointer, key]) => join(pathOf(pointer, body), key, false))
  }
}

const NONE: string[] = []
/** What the running strip validation has removed; validation never waits, so one list serves. */
let removed: [pointer: string, key: string][] = []

// ---- compiling --------------------------------------------------------------------------------------------------------

function compile(schema: Schema, strip: boolean): (body: unknown) => ErrorObject | undefined {
  const ajv = new Ajv2020({
    strict: true,
    allowUnionTypes: true,
    // `verbose` puts the schema node into an error, from which code, hint and expectation are read; `messages` are our own.
    verbose: true,
    messages: false,
    validateSchema: false,
    addUsedSchema: false,
    // One function for each variant and array entry: V8 never optimizes the single huge one that inlining makes.
    inlineRefs: false,
  })
  for (const name of ['x-sluice', 'x-hint', 'x-tag']) ajv.addKeyword(name)
  ajv.addKeyword(BY_TYPE)
  ajv.addKeyword({
    keyword: 'byTag',
    type: 'object',
    schemaType: 'array',
    error: { message: '', params: ({ params }) => _`{fault: ${params['fault']}}` },
    code: tagDispatch,
  })
  ajv.addKeyword(STRIP)
  const shared: Shared = new Map()
  const root = internal(schema, strip, shared)
  const run = ajv.compile({ ...root, $defs: Object.fromEntries([...shared.values()].map(d => [d.name, d.schema])) })
  return body => (run(body) ? undefined : run.errors![0])
}

/** Rewritten schemas that are used by reference, by their JSON text: equal ones are compiled once. */
type Shared = Map<string, { name: string; schema: Schema }>

function reference(schema: Schema, strip: boolean, shared: Shared): Schema {
  const inner = internal(schema, strip, shared)
  const text = JSON.stringify(inner)
  let entry = shared.get(text)
  if (!entry) shared.set(text, (entry = { name: `s${shared.size}`, schema: inner }))
  return { $ref: `#/$defs/${entry.name}` }
}

/** Rewrites a schema of `schema.ts` into the form ajv compiles. */
function internal(schema: Schema, strip: boolean, shared: Shared): Schema {
  const out: Schema = {}
  for (const [key, value] of Object.entries(schema)) {
    if (key === 'title' || key === 'description' || key === 'examples' || key === 'x-forms' || key === '$schema')
      continue
    out[key] = value
  }
  if (out['x-tag']) {
    out['byTag'] = (out['oneOf'] as Schema[]).map(v => reference(v, strip, shared))
    delete out['oneOf']
  }
  if (schema['x-forms']) {
    const alternatives = (out['anyOf'] as Schema[]).map(v => internal(v, strip, shared))
    delete out['anyOf']
    out['type'] = alternatives.flatMap(v => v['type'] as string | string[])
    out['byType'] = alternatives
  }
  const properties = out['properties'] as Record<string, Schema> | undefined
  if (properties) {
    const required = new Set((out['required'] as string[] | undefined) ?? [])
    const inner: Record<string, Schema> = {}
    for (const [name, member] of Object.entries(properties)) {
      const m = internal(member, strip, shared)
      inner[name] = required.has(name) ? m : orNull(m)
    }
    out['properties'] = inner
    if (strip && out['additionalProperties'] === false) {
      delete out['additionalProperties']
      out['stripUnknown'] = Object.keys(properties)
    }
  }
  const items = out['items'] as Schema | undefined
  if (items) out['items'] = 'x-tag' in items ? reference(items, strip, shared) : internal(items, strip, shared)
  if (typeof out['propertyNames'] === 'object')
    out['propertyNames'] = { type: 'string', ...(out['propertyNames'] as Schema) }
  if (typeof out['additionalProperties'] === 'object')
    out['additionalProperties'] = internal(out['additionalProperties'] as Schema, strip, shared)
  return out
}

function orNull(schema: Schema): Schema {
  const out = { ...schema }
  if (out['type'] !== undefined) {
    const types = ([] as unknown[]).concat(out['type'])
    if (!types.includes('null')) out['type'] = [...types, 'null']
  }
  if ('const' in out) {
    out['enum'] = [out['const'], null]
    delete out['const']
  } else if (Array.isArray(out['enum']) && !out['enum'].includes(null)) out['enum'] = [...out['enum'], null]
  return out
}

/** Alternatives by JSON type; `type` beside it has already refused the others. */
const BY_TYPE = {
  keyword: 'byType',
  schemaType: 'array' as const,
  code(cxt: KeywordCxt) {
    const { gen, data, schema } = cxt
    const valid = gen.let('valid', true)
    gen.if(_`false`)
    ;(schema as Schema[]).forEach((alternative, i) => {
      for (const type of ([] as string[]).concat(alternative['type'] as string)) {
        if (type === 'null') continue
        if (type === 'array') gen.elseIf(_`Array.isArray(${data})`)
        else if (type === 'object')
          gen.elseIf(_`typeof ${data} == "object" && ${data} !== null && !Array.isArray(${data})`)
        else gen.elseIf(_`typeof ${data} == ${type === 'integer' ? 'number' : type}`)
        const inner = gen.name('valid')
        cxt.subschema({ keyword: 'byType', schemaProp: i }, inner)
        gen.assign(valid, inner)
      }
    })
    gen.endIf()
    cxt.ok(valid)
  },
}

function tagDispatch(cxt: KeywordCxt): void {
  const { gen, data, parentSchema } = cxt
  const tag = parentSchema['x-tag'] as TagAnnotation
  const valid = gen.let('valid', false)
  const value = gen.let('tag', _`${data}[${tag.name}]`)
  if (tag.absent !== undefined) {
    const given = (tag.absentGiven ?? []).map(name => _`${data}[${name}] !== undefined`)
    const fits = given.length === 0 ? _`true` : given.reduce((a, b) => _`${a} || ${b}`)
    gen.if(_`(${value} === undefined || ${value} === null) && (${fits})`, () => gen.assign(value, _`${tag.absent}`))
  }
  gen.if(_`false`)
  for (const [name, index] of Object.entries(tag.variants)) {
    gen.elseIf(_`${value} === ${name}`)
    const inner = gen.name('valid')
    cxt.subschema({ keyword: 'byTag', schemaProp: index }, inner)
    gen.assign(valid, _`${inner as Name}`)
  }
  for (const [source, index] of tag.patterns ?? []) {
    const pattern = gen.scopeValue('pattern', { key: source, ref: new RegExp(source, 'u') })
    gen.elseIf(_`typeof ${value} == "string" && ${pattern}.test(${value})`)
    const inner = gen.name('valid')
    cxt.subschema({ keyword: 'byTag', schemaProp: index }, inner)
    gen.assign(valid, inner)
  }
  gen.else()
  const fault = gen.const(
    'fault',
    _`${value} === undefined || ${value} === null ? "missing" : typeof ${value} == "string" ? "unknown" : "type"`,
  )
  cxt.error(false, { fault })
  gen.endIf()
  cxt.ok(valid)
}

const STRIP: FuncKeywordDefinition = {
  keyword: 'stripUnknown',
  type: 'object',
  schemaType: 'array',
  modifying: true,
  errors: false,
  compile(known: string[]) {
    const names = new Set(known)
    return function stripUnknown(data: Record<string, unknown>, cxt) {
      for (const key of Object.keys(data)) {
        if (names.has(key)) continue
        removed.push([cxt?.instancePath ?? '', key])
        delete data[key]
      }
      return true
    }
  },
}

// ---- faults -----------------------------------------------------------------------------------------------------------

function notAnObject(body: unknown): GatewayError {
  return new GatewayError('invalid_json', {
    message: `The request body must be a JSON object; it is ${describe(body)}. Send an object with the members of this endpoint.`,
  })
}

function faultOf(error: ErrorObject, body: unknown): GatewayError {
  const path = pathOf(error.instancePath, body)
  const node = error.parentSchema as Schema
  const params = error.params as Record<string, unknown>
  const value = error.data
  switch (error.keyword) {
    case 'additionalProperties': {
      const key = String(params['additionalProperty'])
      const known = Object.keys(node['properties'] as Schema)
      return fault(
        'unknown_parameter',
        join(path, key, false),
        where => `Unknown parameter: ${where}.${suggestion(key, known)}`,
      )
    }
    case 'required': {
      const at = join(path, String(params['missingProperty']), false)
      return fault('missing_required_parameter', at, where => `Missing required parameter: ${where}.`)
    }
    case 'byTag':
      return tagFault(node['x-tag'] as TagAnnotation, params['fault'] as string, value, path)
    default:
  }
  const hint = node['x-hint'] === undefined ? '' : ` ${node['x-hint']}`
  const kind = node['x-sluice']
  if (kind === 'REJ')
    return fault('unsupported_parameter', path, w => `${w} is not offered by this service.${hint || ' Leave it out.'}`)
  if (error.propertyName !== undefined)
    return fault(
      'invalid_value',
      join(path, error.propertyName, false),
      w => `The name of ${w} has ${error.propertyName!.length} characters; it must be a name${rule(error)}.`,
    )
  const expected = expectation(node)
  if (error.keyword === 'type' || !typeFits(node, value))
    return fault('invalid_type', path, w => `${w} must be ${expected}; it is ${describe(value)}.${hint}`)
  const code = kind === 'DEF' ? 'unsupported_value' : 'invalid_value'
  const verb = kind === 'DEF' ? 'this service offers only' : 'it must be'
  return fault(code, path, w => `${w} is ${describe(value)}; ${verb} ${expected}${rule(error)}.${hint}`)
}

function tagFault(tag: TagAnnotation, kind: string, value: unknown, path: string): GatewayError {
  const found = (value as Record<string, unknown>)[tag.name]
  const names = Object.keys(tag.variants).map(v => `'${v}'`)
  const listed = names.length > 24 ? '' : ` Supported: ${names.join(', ')}.`
  const at = join(path, tag.name, false)
  if (kind === 'type') return fault('invalid_type', at, w => `${w} must be a string; it is ${describe(found)}.`)
  const missing: TagFault = tag.missing ?? { code: 'missing_required_parameter' }
  const unknown: TagFault = tag.unknown ?? { code: 'unsupported_value' }
  const rules = kind === 'missing' ? missing : unknown
  const cure = rules.hint ? ` ${rules.hint}` : listed
  return fault(rules.code, rules.at === 'self' ? path : at, w =>
    kind === 'missing'
      ? `Missing required parameter: ${w}.${cure}`
      : `${w} does not support ${describe(found)}.${cure}`,
  )
}

/** A refusal of a body member. `text` gets the quoted path. */
export function fault(code: ErrorCode, param: string, text: (where: string) => string): GatewayError {
  // The depth of a body is the client's; an error that repeats it need not be as long.
  const short = param.length > 500 ? `${param.slice(0, 500)}…` : param
  return new GatewayError(code, { message: text(`'${short}'`), param: short })
}

const TYPE_WORDS: Record<string, string> = {
  string: 'a string',
  number: 'a number',
  integer: 'an integer',
  boolean: 'a boolean',
  array: 'an array',
  object: 'an object',
}

function expectation(node: Schema): string {
  if (Array.isArray(node['enum'])) {
    const values = node['enum'].filter(v => v !== null).map(v => JSON.stringify(v))
    return values.length === 1 ? values[0]! : `one of ${values.join(', ')}`
  }
  const types = ([] as unknown[])
    .concat(node['type'] ?? [])
    .filter(t => t !== 'null')
    .map(t => TYPE_WORDS[t as string] ?? String(t))
  return types.length === 0 ? 'another value' : types.join(' or ')
}

/** The broken bound in words, '' where `expectation` says it all. */
function rule(error: ErrorObject): string {
  const limit = (error.params as { limit?: number }).limit
  switch (error.keyword) {
    case 'minimum':
      return ` of at least ${limit}`
    case 'maximum':
      return ` of at most ${limit}`
    case 'minLength':
      return limit === 1 ? ' that is not empty' : ` of at least ${limit} characters`
    case 'maxLength':
      return ` of at most ${limit} characters`
    case 'minItems':
      return ` with at least ${limit} ${limit === 1 ? 'entry' : 'entries'}`
    case 'maxItems':
      return ` with at most ${limit} entries`
    case 'minProperties':
      return ` with at least ${limit} members`
    case 'maxProperties':
      return limit === 0 ? ' without members' : ` with at most ${limit} members`
    case 'pattern':
      return ` that matches ${(error.params as { pattern: string }).pattern}`
    default:
      return ''
  }
}

function typeFits(node: Schema, value: unknown): boolean {
  const declared = ([] as unknown[]).concat(node['type'] ?? [])
  const types = declared.length > 0 ? declared : ((node['enum'] as unknown[] | undefined) ?? []).map(jsonType)
  const own = jsonType(value)
  return types.length === 0 || types.some(t => t === own || (t === 'integer' && own === 'number'))
}

function jsonType(value: unknown): string {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value
}

/** What was found, short, for messages. */
export function describe(value: unknown): string {
  switch (jsonType(value)) {
    case 'null':
      return 'null'
    case 'undefined':
      return 'absent'
    case 'array': {
      const n = (value as unknown[]).length
      return `an array of ${n} ${n === 1 ? 'entry' : 'entries'}`
    }
    case 'object':
      return 'an object'
    case 'string':
      return (value as string).length > 40
        ? `a string of ${(value as string).length} characters`
        : JSON.stringify(value)
    default:
      return String(value)
  }
}

function suggestion(key: string, known: string[]): string {
  let best: string | undefined
  for (const name of known) {
    if (
      near(key, name) &&
      (best === undefined || Math.abs(name.length - key.length) < Math.abs(best.length - key.length))
    )
      best = name
  }
  if (best !== undefined) return ` Did you mean '${best}'?`
  return known.length > 12 || known.length === 0
    ? ' Remove it: this service accepts only documented members.'
    : ` Remove it; known here: ${known.join(', ')}.`
}

/** At most one edit or swap apart, or equal but for case and separators. */
function near(a: string, b: string): boolean {
  if (a.length > 64) return false
  const bare = (s: string) => s.toLowerCase().replaceAll('_', '').replaceAll('-', '')
  if (bare(a) === bare(b)) return true
  if (Math.abs(a.length - b.length) > 1) return false
  let i = 0
  while (i < a.length && i < b.length && a[i] === b[i]) i++
  const ra = a.slice(i)
  const rb = b.slice(i)
  const swapped = ra.length > 1 && ra[0] === rb[1] && ra[1] === rb[0] && ra.slice(2) === rb.slice(2)
  return swapped || ra.slice(1) === rb || ra === rb.slice(1) || ra.slice(1) === rb.slice(1)
}

// ---- paths ------------------------------------------------------------------------------------------------------------

/** Appends a member name or an array index to a path. Names that are no plain words are quoted. */
export function join(path: string, key: string | number, index = typeof key === 'number'): string {
  if (index) return `${path}[${key}]`
  const name = String(key)
  const short = name.length > 100 ? `${name.slice(0, 100)}…` : name
  if (!/^[A-Za-z_$][A-Za-z0-9_$-]*$/.test(short)) return `${path}[${JSON.stringify(short)}]`
  return path === '' ? short : `${path}.${short}`
}

/** JSON pointer to path notation; the body tells indexes from names. */
function pathOf(pointer: string, body: unknown): string {
  let path = ''
  let at: any = body
  for (const segment of pointer.split('/').slice(1)) {
    const key = segment.replaceAll('~1', '/').replaceAll('~0', '~')
    path = join(path, key, Array.isArray(at))
    at = at?.[key]
  }
  return path
}
