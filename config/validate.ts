/**
 * Checks data against a schema, and says what is wrong in the terms of gateway.yaml: names, units and cures instead of
 * JSON Schema keywords. Fills defaults and converts units to numbers, so that one schema gives the check, the defaults,
 * the docs and the types.
 */

import { isIP } from 'node:net'
import { type Fault, type Validator, type ValidatorSet, validatorsOf } from '../core/tools/validators/read.ts'
import type { Arrives, Schema } from '../core/tools/vocabulary.ts'
import type { Path } from './source.ts'
import { didYouMean } from './suggest.ts'
import { parseDuration, parseListen, parsePrice, parseSize, parseTimestamp, parseUsd } from './units.ts'

export interface Problem {
  /** The path from the value that was checked to the one that is wrong. */
  path: Path
  /** What to point at: a wrong value, or a key that should not be there. */
  part: 'key' | 'value'
  message: string
}

export interface ValidateOptions {
  /** What messages call the checked value, e.g. `admission`. */
  name: string
  /** Whether the text at a path came from an unquoted `${NAME}`, and so may be read as a number. */
  fromEnvironment?(path: Path): boolean
  /** The text of a scalar as written, for values that YAML read as something else. */
  written?(path: Path): string | undefined
  /** Accept whole numbers as milliseconds or bytes. In YAML a number without a unit is refused. */
  bareNumbers?: boolean
}

interface Format {
  /** What is expected, in words with an example. */
  expected: string
  /** The converted value; null when the text is not in this format. */
  parse(value: string | number): unknown
}

/**
 * Formats of option schemas. `duration`, `size`, `usd`, `usd_per_million_tokens` and `timestamp` convert the value; the others only
 * check it.
 */
export const FORMATS: Record<string, Format> = {
  duration: {
    expected: 'a duration such as 250ms, 60s, 5m or 24h',
    parse: v => (typeof v === 'number' ? v : parseDuration(v)),
  },
  size: {
    expected: 'a size such as 512B, 64KiB, 32MiB or 1GiB',
    parse: v => (typeof v === 'number' ? v : parseSize(v)),
  },
  usd: { expected: 'an amount in USD such as 500.00, at most 9,000,000 with nine decimals', parse: parseUsd },
  usd_per_million_tokens: {
    expected: 'USD per million tokens such as 1.25, with at most six decimals',
    parse: parsePrice,
  },
  timestamp: {
    expected: 'a time with its zone such as 2026-11-24T18:00:00Z',
    parse: v => parseTimestamp(String(v)),
  },
  listen: { expected: 'an address such as 127.0.0.1:8080, [::1]:8080 or :8080', parse: v => parseListen(String(v)) },
  credential: {
    expected: 'visible ASCII without spaces (a line break at the end of the variable or file it comes from?)',
    parse: v => (/^[\x21-\x7e]*$/.test(String(v)) ? v : null),
  },
  network: { expected: 'an IP address or a network such as 10.0.0.0/8', parse: v => (isNetwork(String(v)) ? v : null) },
}
const CONVERTED = new Set(['duration', 'size', 'usd', 'usd_per_million_tokens', 'timestamp'])

function isNetwork(text: string): boolean {
  const [address, bits, more] = text.split('/')
  const family = isIP(address ?? '')
  if (!family || more !== undefined) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128))
}

/** `FORMATS` in the form that ajv takes. */
export const TEXT_FORMATS: Record<string, { type: 'string'; validate(text: string): boolean }> = Object.fromEntries(
  Object.entries(FORMATS).map(([name, format]) => [
    name,
    { type: 'string', validate: (text: string) => format.parse(text) !== null },
  ]),
)

const validators = new WeakMap<Schema, Validator>()

/**
 * Schemas in the form that core/tools/validators/read.ts takes: with the module that compiles them and the formats they
 * use.
 */
export const optionValidators = (schemas: readonly Schema[]): ValidatorSet => ({
  // ajv refuses a default at the root of a schema. The caller fills that default.
  schemas: schemas.map(({ default: _, ...root }) => root),
  writer: new URL('compile.ts', import.meta.url),
  scope: { formats: TEXT_FORMATS },
})

/**
 * Loads or compiles the validators of schemas that are used together, all in one file. A schema that was never passed
 * here gets its own file, at its first use.
 * @throws when a schema is not valid JSON Schema
 */
export function ready(schemas: readonly Schema[]): void {
  if (schemas.every(schema => validators.has(schema))) return
  for (const [i, validator] of validatorsOf(optionValidators(schemas)).entries()) validators.set(schemas[i]!, validator)
}

function validatorOf(schema: Schema): Validator {
  ready([schema])
  return validators.get(schema)!
}

/**
 * Checks `input`, which is not changed.
 * @returns a copy with defaults filled and units converted, or all problems of the input
 * @throws when the schema itself is not valid JSON Schema
 */
export function validate(
  schema: Schema,
  input: unknown,
  options: ValidateOptions,
): { value: unknown; problems?: undefined } | { value?: undefined; problems: Problem[] } {
  const check = validatorOf(schema)
  const holder = { value: input === null || input === undefined ? emptyOf(schema) : structuredClone(input) }
  const problems: Problem[] = []
  prepare(schema, holder.value, [], problems, options)
  let valid = check(holder.value)
  if (!valid && options.fromEnvironment && coerce(check.errors ?? [], holder, options.fromEnvironment))
    valid = check(holder.value)
  if (!valid) problems.push(...describe(check.errors ?? [], options))
  if (problems.length > 0) return { problems }
  return { value: convert(schema, holder.value) }
}

function emptyOf(schema: Schema): unknown {
  const types = [schema['type']].flat()
  return types.includes('null') ? null : types.includes('object') ? {} : null
}

/** An object of the schema in which nothing is set: its members' defaults, with units converted. */
export function defaultsOf<S extends Schema>(schema: S): Arrives<S> {
  const filled: Record<string, unknown> = {}
  for (const [name, member] of Object.entries(schema['properties'] as Record<string, Schema>)) {
    if (!('default' in member)) continue
    const value: any = convert(member, structuredClone(member['default']))
    filled[name] = member['type'] === 'object' ? { ...defaultsOf(member), ...value } : value
  }
  return filled as Arrives<S>
}

type AnySchema = Record<string, any>

function childSchema(schema: AnySchema, key: string): AnySchema | undefined {
  const own = schema['properties']?.[key]
  if (own) return own
  const rest = schema['additionalProperties']
  return typeof rest === 'object' ? rest : undefined
}

/**
 * Prepares `value` for ajv, in place: removes `~` where the schema has no null (it means "not set" there), and reports
 * numbers without a unit.
 */
function prepare(schema: AnySchema, value: unknown, path: Path, problems: Problem[], options: ValidateOptions): void {
  if (Array.isArray(value)) {
    if (typeof schema['items'] === 'object') {
      for (const [i, item] of value.entries()) prepare(schema['items'], item, [...path, i], problems, options)
    }
    return
  }
  if (typeof value === 'object' && value !== null) {
    const members = value as Record<string, unknown>
    for (const [key, member] of Object.entries(members)) {
      const child = childSchema(schema, key)
      if (!child) continue
      const types = [child['type'] ?? []].flat()
      if (member === null && types.length > 0 && !types.includes('null')) {
        if (schema['properties']?.[key]) delete members[key]
        else if (types.includes('object')) members[key] = {}
      }
      prepare(child, members[key], [...path, key], problems, options)
    }
    return
  }
  const format = FORMATS[schema['format']]
  if (typeof value !== 'number' || !format) return
  const unit = { duration: 's', size: 'MiB' }[String(schema['format'])]
  const name = nameOf(path, options)
  if (unit && value !== 0 && !options.bareNumbers) {
    problems.push({ path, part: 'value', message: `${name} needs a unit: ${value}${unit}? It is ${format.expected}` })
  } else if (format.parse(value) === null) {
    // ajv checks the format of text only, so a number is checked here.
    problems.push({ path, part: 'value', message: `${name} must be ${format.expected}, and is ${shown(value)}` })
  }
}

/**
 * Converts text from an unquoted `${NAME}` to a number or a boolean where the schema wants one, as if that value had
 * been written there. Changes `holder`.
 * @returns whether anything was converted
 */
function coerce(
  errors: readonly Fault[],
  holder: { value: unknown },
  fromEnvironment: (path: Path) => boolean,
): boolean {
  let changed = false
  for (const error of errors) {
    const path = pathOf(error.instancePath)
    const at = path.at(-1)
    if (at === undefined || typeof error.data !== 'string' || !fromEnvironment(path)) continue
    const types = [(error.parentSchema as AnySchema | undefined)?.['type'] ?? []].flat()
    const value =
      (types.includes('integer') || types.includes('number')) && /^-?\d+(\.\d+)?$/.test(error.data)
        ? Number(error.data)
        : types.includes('boolean') && /^(true|false)$/.test(error.data)
          ? error.data === 'true'
          : undefined
    if (value === undefined) continue
    const parent = path.slice(0, -1).reduce<any>((v, key) => v[key], holder.value)
    parent[at] = value
    changed = true
  }
  return changed
}

function convert(schema: AnySchema, value: unknown): unknown {
  if (Array.isArray(value))
    return typeof schema['items'] === 'object' ? value.map(item => convert(schema['items'], item)) : value
  if (typeof value === 'object' && value !== null) {
    const members = value as Record<string, unknown>
    for (const key of Object.keys(members)) {
      const child = childSchema(schema, key)
      if (child) members[key] = convert(child, members[key])
    }
    return members
  }
  if (!CONVERTED.has(schema['format']) || (typeof value !== 'string' && typeof value !== 'number')) return value
  return FORMATS[schema['format']]!.parse(value)
}

// ---- messages -------------------------------------------------------------------------------------------------------

function pathOf(pointer: string): (string | number)[] {
  if (pointer === '') return []
  return pointer
    .slice(1)
    .split('/')
    .map(step => step.replaceAll('~1', '/').replaceAll('~0', '~'))
}

function nameOf(path: Path, options: ValidateOptions): string {
  let name = ''
  for (const step of path) name += /^\d+$/.test(String(step)) ? `[${step}]` : `${name ? '.' : ''}${step}`
  return name ? (options.name ? `${options.name}.${name}`.replace('.[', '[') : name) : options.name
}

const TYPE_WORDS: Record<string, string> = {
  integer: 'a whole number',
  number: 'a number',
  string: 'text',
  boolean: 'true or false',
  object: 'a mapping (key: value)',
  array: 'a list',
  null: '~',
}

/**
 * The wrong value as a message may show it: without secrets, and without the password of a URL, because messages are
 * logged and shown on the dashboard.
 */
function shown(value: unknown, schema: AnySchema = {}): string {
  if (value === null) return 'empty'
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object') return 'a mapping'
  if (schema['writeOnly']) return value === '' ? 'empty' : 'not (what it is stays out of messages)'
  const text = String(value).replace(/\/\/[^/\s]*@/, '//…@')
  return `'${text.length > 60 ? text.slice(0, 60) + '…' : text}'`
}

/** What the schema wants, in words. */
function expected(schema: AnySchema): string {
  if (schema['enum']) return `one of ${schema['enum'].map((v: unknown) => (v === null ? '~' : v)).join(', ')}`
  if ('const' in schema) return String(schema['const'])
  if (schema['format'] && FORMATS[schema['format']]) return FORMATS[schema['format']]!.expected
  if (schema['examples']) return `written like ${schema['examples'].join(' or ')}`
  const types = [schema['type'] ?? 'a value'].flat().filter(t => t !== 'null')
  return types.map(t => TYPE_WORDS[t] ?? t).join(' or ')
}

function describe(errors: readonly Fault[], options: ValidateOptions): Problem[] {
  const problems = new Map<string, Problem>()
  for (const error of errors) {
    const path = pathOf(error.instancePath)
    const problem = describeOne(error, path, options)
    // One message for each position: a value of the wrong type also fails format, pattern and bounds.
    const id = JSON.stringify([problem.path, problem.part])
    if (!problems.has(id) || error.keyword === 'type') problems.set(id, problem)
  }
  return [...problems.values()]
}

function describeOne(error: Fault, path: Path, options: ValidateOptions): Problem {
  const name = nameOf(path, options)
  const schema = (error.parentSchema ?? {}) as AnySchema
  const at = (message: string): Problem => ({ path, part: 'value', message })
  switch (error.keyword) {
    case 'additionalProperties': {
      const key: string = error.params['additionalProperty']
      const known = Object.keys(schema['properties'] ?? {})
      const near = didYouMean(key, known)
      const cure = near || (known.length > 0 ? `; it takes ${known.join(', ')}` : '; it takes no options')
      return {
        path: [...path, key],
        part: 'key',
        message: `${name ? `${name} has no key '${key}'` : `unknown key '${key}'`}${cure}`,
      }
    }
    case 'required': {
      const key: string = error.params['missingProperty']
      const about = schema['properties']?.[key]?.['description']
      return { path, part: 'key', message: `${name} needs '${key}'${about ? `: ${decapitalize(about)}` : ''}` }
    }
    case 'type': {
      const wantsText = [schema['type']].flat().includes('string')
      if (wantsText && (typeof error.data === 'number' || typeof error.data === 'boolean')) {
        const written = options.written?.(path) ?? String(error.data)
        // A digest is not secret, but a value in its place may be, so only a digest is quoted.
        const text = schema['writeOnly'] && !/^[0-9a-f]{64}$/i.test(written) ? '…' : written
        return at(`${name} must be in quotes: "${text}". Without them YAML reads a ${typeof error.data}`)
      }
      return at(`${name} must be ${expected(schema)}, and is ${shown(error.data, schema)}`)
    }
    case 'enum':
    case 'const': {
      const words = (schema['enum'] ?? [schema['const']]).filter((v: unknown) => typeof v === 'string')
      return at(
        `${name} must be ${expected(schema)}, and is ${shown(error.data)}${didYouMean(String(error.data), words)}`,
      )
    }
    case 'format':
    case 'pattern':
      return at(`${name} must be ${expected(schema)}, and is ${shown(error.data, schema)}`)
    case 'minimum':
      return at(`${name} must be at least ${schema['minimum']}, and is ${shown(error.data)}`)
    case 'maximum':
      return at(`${name} must be at most ${schema['maximum']}, and is ${shown(error.data)}`)
    case 'exclusiveMinimum':
      return at(`${name} must be more than ${schema['exclusiveMinimum']}, and is ${shown(error.data)}`)
    case 'minItems':
    case 'minProperties':
    case 'minLength':
      return at(`${name} must not be empty`)
    case 'uniqueItems':
      return at(`${name} lists ${shown((error.data as unknown[])[error.params['j']])} twice`)
    default:
      return at(`${name} ${error.message ?? 'is not valid'}`)
  }
}

const decapitalize = (text: string) =>
  (/^[A-Z][a-z]/.test(text) ? text[0]!.toLowerCase() + text.slice(1) : text).replace(/\.$/, '')
