/**
 * Structured output: what a client asks the text of a reply to be (GEN-3). The forms of the three APIs differ; the
 * rules for the schema are the same.
 */

import type { OutputFormat } from '../core/canon/conversation.ts'
import { GatewayError } from '../core/canon/errors.ts'
import type { Surface } from '../core/ports/surface.ts'
import { appendAll } from '../core/tools/append.ts'
import { describe, fault, join } from './check.ts'
import { boolean, opaqueObject, type Schema, string } from './schema.ts'
import { checkStrict, isStrict, MAP } from './tools.ts'

/**
 * Bounds of one schema. Each reply is checked against it and each attempt may rewrite it, so they are lower than those
 * of the body; still each is several times what the providers take.
 */
export const SCHEMA_BOUNDS = {
  /** UTF-16 units of the schema as compact JSON. */
  size: 131_072,
  /** Levels of objects and arrays. */
  depth: 48,
  /** Values: members, items and scalars. */
  nodes: 10_000,
  /** Regular expressions, in `pattern` and as the names in `patternProperties`. */
  patterns: 100,
  /** UTF-16 units of one of them. */
  pattern: 1000,
} as const

/** The members of a format `json_schema` in both OpenAI APIs. */
export const namedSchema = {
  name: string({ minLength: 1, maxLength: 64, pattern: '^[a-zA-Z0-9_-]+$' }),
  description: string(),
  schema: opaqueObject(),
  strict: boolean(),
} satisfies Schema

export const OFFERED_BY_CHOICE =
  'JSON formats are taken unless the gateway has `structured_output: reject` for the surface, which is the default on Chat Completions.'

/** For a format without a type. */
export const NO_TYPE = {
  code: 'missing_required_parameter',
  hint: `Supported: 'text', and 'json_object' and 'json_schema' where the gateway has structured_output: translate.`,
} as const

/**
 * Checks a body like `surface.validate`, and refuses one that asks for structured output: a gateway without it knows no
 * member of such a format, so what is wrong inside the format does not matter.
 * @throws GatewayError
 */
export function validateUnstructured(
  surface: Surface,
  body: Record<string, unknown>,
  unknownFields: 'reject' | 'strip',
): string[] {
  try {
    const stripped = surface.validate(body, unknownFields)
    surface.refuseStructured?.(body)
    return stripped
  } catch (error) {
    if (error instanceof GatewayError && error.param?.includes('format')) surface.refuseStructured?.(body)
    throw error
  }
}

/** A format `json_schema` as a body has it, after the surface's schema has accepted it. */
interface WireFormat {
  name?: string | null | undefined
  description?: string | null | undefined
  schema?: Record<string, unknown> | null | undefined
  strict?: boolean | null | undefined
}

/** Any JSON object. */
export const anyObject = (path: string): OutputFormat => ({ strict: false, path })

/**
 * A format with a schema.
 * @param path the body member that asks for it, e.g. `response_format`
 * @param at the path of the schema in it
 * @throws GatewayError where the schema is not one of an object, is over the bounds, refers to what it does not hold, or
 *   is called strict and breaks the rule of strict schemas
 */
export function schemaFormat(format: WireFormat, path: string, at: string): OutputFormat {
  const schema = format.schema ?? { type: 'object' }
  if (schema['type'] !== 'object' && !(schema['type'] === undefined && '$ref' in schema))
    throw fault(
      'invalid_value',
      join(at, 'type'),
      w => `${w} is ${describe(schema['type'])}; the schema must be one of an object. Set it to "object".`,
    )
  checkBounds(schema, at)
  checkReferences(schema, at)
  const output: OutputFormat = { schema, strict: format.strict === true, path }
  if (output.strict) checkStrict(schema, at, 'schema')
  if (format.name != null) output.name = format.name
  if (format.description != null) output.description = format.description
  return output
}

/** A format whose API has no `strict`: strict where the schema follows the rule. */
export function strictIfPossible(format: OutputFormat): OutputFormat {
  return { ...format, strict: isStrict(format.schema!) }
}

function checkBounds(schema: Record<string, unknown>, at: string): void {
  let nodes = 0
  /** Of its texts alone. To write all of it as JSON only to see that it is too long could take as much as its body. */
  let characters = 0
  const open: [value: unknown, depth: number][] = [[schema, 1]]
  while (open.length > 0) {
    const [value, depth] = open.pop()!
    if (++nodes > SCHEMA_BOUNDS.nodes) throw over(at, `more than ${SCHEMA_BOUNDS.nodes} values`)
    if (typeof value === 'string') characters += value.length
    if (typeof value !== 'object' || value === null) continue
    if (depth > SCHEMA_BOUNDS.depth) throw over(at, `more than ${SCHEMA_BOUNDS.depth} levels`)
    if (!Array.isArray(value)) for (const name of Object.keys(value)) characters += name.length
    for (const member of Object.values(value)) open.push([member, depth + 1])
  }
  if (characters > SCHEMA_BOUNDS.size || JSON.stringify(schema).length > SCHEMA_BOUNDS.size)
    throw over(at, `more than ${SCHEMA_BOUNDS.size} characters`)
}

function over(at: string, what: string): GatewayError {
  return new GatewayError('content_limit_exceeded', {
    message: `'${at}' has ${what}, the limit for a schema of structured output. Send a smaller schema.`,
    param: at,
    bound: 'schema',
  })
}

/** Members of a schema that hold plain values, and no schemas. */
const PLAIN: ReadonlySet<string> = new Set(['const', 'enum', 'default', 'examples', 'required', 'type'])
const NAMES: ReadonlySet<string> = new Set(MAP)

/** Checks `$ref` and the patterns, at every place of the schema that can hold them. */
function checkReferences(root: Record<string, unknown>, at: string): void {
  let patterns = 0
  const pattern = (text: string) => {
    if (text.length > SCHEMA_BOUNDS.pattern)
      throw over(at, `a pattern of more than ${SCHEMA_BOUNDS.pattern} characters`)
    if (++patterns > SCHEMA_BOUNDS.patterns) throw over(at, `more than ${SCHEMA_BOUNDS.patterns} patterns`)
  }
  const open: unknown[] = [root]
  while (open.length > 0) {
    const node = open.pop()
    if (typeof node !== 'object' || node === null) continue
    if (Array.isArray(node)) {
      appendAll(open, node)
      continue
    }
    for (const [key, value] of Object.entries(node)) {
      if (key === '$ref' || key === '$dynamicRef' || key === '$recursiveRef') {
        if (key !== '$ref' || typeof value !== 'string' || !resolves(root, value)) throw noReference(at, key, value)
      } else if (key === 'pattern') {
        if (typeof value === 'string') pattern(value)
      } else if (NAMES.has(key) && typeof value === 'object' && value !== null) {
        if (key === 'patternProperties') Object.keys(value).forEach(pattern)
        appendAll(open, Object.values(value))
      } else if (!PLAIN.has(key)) open.push(value)
    }
  }
}

function noReference(at: string, key: string, value: unknown): GatewayError {
  return fault(
    'invalid_value',
    at,
    w =>
      `${w} has ${key} ${describe(value)}; only references into the schema itself are taken, such as "#/$defs/Name".`,
  )
}

function resolves(root: unknown, ref: string): boolean {
  if (ref !== '#' && !ref.startsWith('#/')) return false
  let target = root
  for (const step of ref.split('/').slice(1)) {
    const name = step.replaceAll('~1', '/').replaceAll('~0', '~')
    if (typeof target !== 'object' || target === null || !Object.hasOwn(target, name)) return false
    target = (target as Record<string, unknown>)[name]
  }
  return typeof target === 'object' || typeof target === 'boolean'
}
