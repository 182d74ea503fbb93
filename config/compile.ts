/** Compiles schemas of options with ajv: for `npm run generate`, and for plugins that are not built in. */
import { _, Ajv } from 'ajv'
import { digest, type Validator } from '../core/validators/read.ts'
import { validatorsText } from '../core/validators/write.ts'
import type { Schema } from '../core/vocabulary.ts'

/** What ajv knows of a format. */
export interface TextFormat {
  type: 'string'
  validate(text: string): boolean
}

/**
 * A function that compiles one schema after the other.
 * Throws when a schema is not valid JSON Schema.
 */
export function optionsCompiler(formats: Record<string, TextFormat>): (schema: Schema) => Validator {
  const ajv = newAjv(formats, false)
  return schema => ajv.compile(schema) as Validator
}

/** Source of the validators of these schemas, as a file of core/validators/generated/. */
export function optionsValidatorsText(schemas: readonly Schema[], formats: Record<string, TextFormat>): string {
  const ajv = newAjv(formats, true)
  const byDigest = new Map(schemas.map(schema => [digest(schema), schema]))
  for (const [name, schema] of byDigest) if (!ajv.schemas[name]) ajv.addSchema(withReferences(schema, ajv), name)
  return validatorsText(ajv, [...byDigest.keys()], ['formats'])
}

/** The schema with every object in it by reference: limits and rights stand in several places, and are written once. */
function withReferences(schema: Schema, ajv: Ajv): Schema {
  const out = { ...schema }
  const properties = Object.entries((schema['properties'] ?? {}) as Record<string, Schema>)
  if (properties.length > 0)
    out['properties'] = Object.fromEntries(properties.map(([name, member]) => [name, reference(member, ajv)]))
  for (const key of ['items', 'additionalProperties'])
    if (typeof schema[key] === 'object') out[key] = reference(schema[key] as Schema, ajv)
  return out
}

function reference(schema: Schema, ajv: Ajv): Schema {
  const whole = withReferences(schema, ajv)
  if (!('properties' in whole)) return whole
  // What belongs to the place: ajv fills a default from here, and messages about a missing member describe it.
  const { default: fallback, description, ...rest } = whole
  const name = digest(rest)
  if (!ajv.schemas[name]) ajv.addSchema(rest, name)
  return { $ref: name, description, ...('default' in whole && { default: fallback }) }
}

function newAjv(formats: Record<string, TextFormat>, source: boolean): Ajv {
  const ajv = new Ajv({
    allErrors: true,
    useDefaults: true,
    verbose: true,
    strict: true,
    allowUnionTypes: true,
    strictRequired: false,
    // References are made to be written once.
    inlineRefs: !source,
    // Keywords of the gateway's own schemas have words in validate.ts.
    messages: !source,
    code: { source, lines: true, formats: _`formats` },
  })
  for (const [name, format] of Object.entries(formats)) ajv.addFormat(name, format)
  return ajv
}
