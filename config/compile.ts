/**
 * Compiles validators of option schemas with ajv. This module is loaded only for schemas whose validators are not kept
 * yet (core/tools/validators/read.ts).
 */
import { createHash } from 'node:crypto'
import { _, Ajv } from 'ajv'
import type { ValidatorsText } from '../core/tools/validators/read.ts'
import { standaloneText } from '../core/tools/validators/write.ts'
import type { Schema } from '../core/tools/vocabulary.ts'
import { TEXT_FORMATS } from './validate.ts'

/**
 * The text of a module that exports a validator for each schema.
 * @throws when a schema is not valid JSON Schema
 */
export const validatorsText: ValidatorsText = schemas => {
  const ajv = new Ajv({
    allErrors: true,
    useDefaults: true,
    verbose: true,
    strict: true,
    allowUnionTypes: true,
    strictRequired: false,
    // Inlined, a referenced schema would be written again at every place that uses it.
    inlineRefs: false,
    code: { source: true, formats: _`formats` },
  })
  for (const [name, format] of Object.entries(TEXT_FORMATS)) ajv.addFormat(name, format)
  const names = schemas.map((schema, i) => {
    // A single schema may belong to a plugin of the operator and have its own `$ref`s, so it is not rewritten.
    ajv.addSchema(schemas.length === 1 ? schema : withReferences(schema as Schema, ajv), `options${i}`)
    return `options${i}`
  })
  return standaloneText(ajv, names, ['formats'])
}

/**
 * The schema with every object in it replaced by a `$ref`. Limits and rights occur at several places, and are compiled
 * once this way.
 */
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
  // These stay at the place of use: ajv fills a default from there, and messages about a missing member quote the
  // description.
  const { default: fallback, description, ...rest } = whole
  const name = `part-${createHash('sha256').update(JSON.stringify(rest)).digest('hex')}`
  if (!ajv.schemas[name]) ajv.addSchema(rest, name)
  return { $ref: name, description, ...('default' in whole && { default: fallback }) }
}
