/**
 * Checks a request body against a surface's schema (GEN-2). The check is strict at every depth, uses the error codes
 * of wire.md 0.2, and gives `param` in path notation (`messages[2].content[0].image_url.url`). `compile.ts` makes the
 * code of a validator from the schema; that code is stored and loaded by core/tools/validators/read.ts.
 *
 * JSON.parse makes `__proto__` an own member. It is enumerated like any other member and is therefore unknown
 * (decision 36).
 */
import { type ErrorCode, GatewayError } from '../core/canon/errors.ts'
import { type Fault, type Validator, type ValidatorSet, validatorsOf } from '../core/tools/validators/read.ts'
import type { Schema, TagAnnotation, TagFault } from './schema.ts'

/**
 * Validates a body; a fault is thrown as a GatewayError.
 * @param unknownFields `reject`: an unknown member is a fault. `strip`: unknown members are removed in place.
 * @returns the paths of the removed members
 */
export type Validate = (body: unknown, unknownFields: 'reject' | 'strip') => string[]

/** How the generated code of a validator treats unknown members. */
export interface UnknownMembers {
  /** True: unknown members are removed. False: they are faults. */
  strip: boolean
  /** @param pointer JSON pointer of `data` */
  remove(data: Record<string, unknown>, key: string, pointer: string): void
}

/** The members that the running validation has removed. Validation is synchronous, so one list is enough. */
let removed: [pointer: string, key: string][] = []
const unknown: UnknownMembers = {
  strip: false,
  remove(data, key, pointer) {
    removed.push([pointer, key])
    delete data[key]
  },
}

/** The validators of a request schema: what their code is generated from, and the variables that it uses. */
export const requestValidators = (schema: Schema): ValidatorSet => ({
  schemas: [schema],
  writer: new URL('compile.ts', import.meta.url),
  scope: { unknown },
})

/**
 * The validator of a request schema. It is loaded or compiled on its first call; a chain that serves the surface
 * makes that call at start, with an empty body.
 * @param schema schema of an object, built with the functions of `schema.ts`
 */
export function compileRequest(schema: Schema): Validate {
  let check: Validator | undefined
  const wishes = [...wishesOf(schema, [])]
  return function validate(body, unknownFields) {
    if (typeof body !== 'object' || body === null || Array.isArray(body)) throw notAnObject(body)
    check ??= validatorsOf(requestValidators(schema))[0]!
    unknown.strip = unknownFields === 'strip'
    if (!unknown.strip) {
      if (!check(body)) throw faultOf(check.errors![0]!, body)
      return NONE
    }
    removed = []
    for (const wish of wishes) removeUnoffered(body as Record<string, unknown>, wish)
    const valid = check(body)
    const found = removed
    removed = []
    if (!valid) throw faultOf(check.errors![0]!, body)
    return found.map(([pointer, key]) => join(pathOf(pointer, body), key, false))
  }
}

const NONE: string[] = []

/** A member that may be removed, and the values with which it stays. */
interface Wish {
  path: readonly string[]
  offered: readonly unknown[]
}

function* wishesOf(schema: Schema, path: readonly string[]): Generator<Wish> {
  for (const [name, member] of Object.entries((schema['properties'] ?? {}) as Record<string, Schema>)) {
    const at = [...path, name]
    if (member['x-wish']) yield { path: at, offered: (member['enum'] as unknown[] | undefined) ?? [] }
    else yield* wishesOf(member, at)
  }
}

function removeUnoffered(body: Record<string, unknown>, { path, offered }: Wish): void {
  let holder: unknown = body
  for (const name of path.slice(0, -1)) holder = isMap(holder) && Object.hasOwn(holder, name) ? holder[name] : undefined
  const name = path.at(-1)!
  if (!isMap(holder) || !Object.hasOwn(holder, name) || holder[name] === null) return
  const text = JSON.stringify(holder[name])
  if (offered.some(value => JSON.stringify(value) === text)) return
  unknown.remove(
    holder,
    name,
    path
      .slice(0, -1)
      .map(segment => `/${segment}`)
      .join(''),
  )
}

const isMap = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

// ---- faults ---------------------------------------------------------------------------------------------------------

function notAnObject(body: unknown): GatewayError {
  return new GatewayError('invalid_json', {
    message: `The request body must be a JSON object; it is ${describe(body)}. Send an object with the members of this endpoint.`,
  })
}

function faultOf(error: Fault, body: unknown): GatewayError {
  const path = pathOf(error.instancePath, body)
  const node = error.parentSchema as Schema
  const { params } = error
  const value = error.data
  switch (error.keyword) {
    case 'closed': {
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
      return tagFault(node['x-tag'] as TagAnnotation, params['fault'], value, path)
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
  const bound = error.keyword === 'maxLength' ? (node['x-bound'] as string | undefined) : undefined
  return fault(code, path, w => `${w} is ${describe(value)}; ${verb} ${expected}${rule(error)}.${hint}`, bound)
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

/**
 * The error for a faulty member of the body.
 * @param text makes the message from the quoted path
 */
export function fault(code: ErrorCode, param: string, text: (where: string) => string, bound?: string): GatewayError {
  // The client decides how deeply a body is nested, so the path may be very long. The error does not repeat all of
  // it.
  const short = param.length > 500 ? `${param.slice(0, 500)}…` : param
  return new GatewayError(code, { message: text(`'${short}'`), param: short, bound })
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

/** The violated bound in words; '' when `expectation` already says everything. */
function rule(error: Fault): string {
  const limit = error.parentSchema[error.keyword]
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
      return ` that matches ${limit}`
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

/** A short description of a value, for error messages. */
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

/** True when two names differ by at most one edit or one swap of neighbours, or only in case and separators. */
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

// ---- paths ----------------------------------------------------------------------------------------------------------

/** Appends a member name or an array index to a path. A name that is not a plain identifier is quoted. */
export function join(path: string, key: string | number, index = typeof key === 'number'): string {
  if (index) return `${path}[${key}]`
  const name = String(key)
  const short = name.length > 100 ? `${name.slice(0, 100)}…` : name
  if (!/^[A-Za-z_$][A-Za-z0-9_$-]*$/.test(short)) return `${path}[${JSON.stringify(short)}]`
  return path === '' ? short : `${path}.${short}`
}

/** Converts a JSON pointer to path notation. The body decides whether a segment is an index or a name. */
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
