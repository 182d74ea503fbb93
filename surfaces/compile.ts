/**
 * Compiles a request schema (see `schema.ts`) with ajv. The schema is first rewritten, so that
 * - a member that is not required may be null, at any depth;
 * - only the matching variant of a tagged union, or of alternatives by JSON type, is checked, and a fault names an
 *   exact place (decision 41: the tag may be absent or null, which ajv's own `discriminator` cannot express);
 * - unknown members are faults, or are removed and listed; each call chooses which.
 *
 * This module is loaded only when no stored code exists for a schema (core/tools/validators/read.ts).
 */
import { _, Ajv, type Code, type CodeKeywordDefinition, type KeywordCxt, type Name, nil, stringify } from 'ajv'
import names from 'ajv/dist/compile/names.js'
import type { ValidatorsText } from '../core/tools/validators/read.ts'
import { standaloneText } from '../core/tools/validators/write.ts'
import type { Schema, TagAnnotation } from './schema.ts'

/** Generates the source code of the validators of several schemas. */
export const validatorsText: ValidatorsText = schemas => {
  const ajv = new Ajv({
    strict: true,
    allowUnionTypes: true,
    // `verbose` puts the schema node into an error: code, hint and expectation are read from it. The messages of ajv
    // are not used.
    verbose: true,
    messages: false,
    validateSchema: false,
    // One function for each variant and array entry: with inlining there is one huge function, which V8 never
    // optimizes.
    inlineRefs: false,
    code: { source: true },
  })
  for (const name of ['x-sluice', 'x-hint', 'x-wish', 'x-bound', 'x-tag']) ajv.addKeyword(name)
  for (const keyword of [BY_TYPE, BY_TAG, CLOSED, STRIP_UNKNOWN]) ajv.addKeyword(keyword)
  const shared: Shared = new Map()
  const names = schemas.map((schema, i) => {
    ajv.addSchema(internal(schema as Schema, shared), `request${i}`)
    return `request${i}`
  })
  for (const { name, schema } of shared.values()) ajv.addSchema(schema, name)
  return standaloneText(ajv, names, ['unknown'])
}

/** Rewritten schemas that are used by reference. The key is their JSON text, so equal schemas are compiled once. */
type Shared = Map<string, { name: string; schema: Schema }>

function reference(rewritten: Schema, shared: Shared): Schema {
  const text = JSON.stringify(rewritten)
  let entry = shared.get(text)
  if (!entry) shared.set(text, (entry = { name: `s${shared.size}`, schema: rewritten }))
  return { $ref: entry.name }
}

/** An object with members becomes a reference: many such objects occur in several places. */
const place = (rewritten: Schema, shared: Shared): Schema =>
  'properties' in rewritten || 'byTag' in rewritten ? reference(rewritten, shared) : rewritten

/** Rewrites a schema of `schema.ts` into the form that ajv compiles. */
function internal(schema: Schema, shared: Shared): Schema {
  const out: Schema = {}
  for (const [key, value] of Object.entries(schema)) {
    if (key === 'title' || key === 'description' || key === 'examples' || key === 'x-forms' || key === '$schema')
      continue
    out[key] = value
  }
  if (out['x-tag']) {
    out['byTag'] = (out['oneOf'] as Schema[]).map(v => reference(internal(v, shared), shared))
    delete out['oneOf']
  }
  if (schema['x-forms']) {
    const alternatives = (out['anyOf'] as Schema[]).map(v => internal(v, shared))
    delete out['anyOf']
    out['type'] = alternatives.flatMap(v => v['type'] as string | string[])
    out['byType'] = alternatives
  }
  const properties = out['properties'] as Record<string, Schema> | undefined
  if (properties) {
    const required = new Set((out['required'] as string[] | undefined) ?? [])
    const inner: Record<string, Schema> = {}
    for (const [name, member] of Object.entries(properties)) {
      const m = internal(member, shared)
      inner[name] = place(required.has(name) ? m : orNull(m), shared)
    }
    out['properties'] = inner
    if (out['additionalProperties'] === false) {
      delete out['additionalProperties']
      out['closed'] = true
      out['stripUnknown'] = true
    }
  }
  if (out['items']) out['items'] = place(internal(out['items'] as Schema, shared), shared)
  if (typeof out['propertyNames'] === 'object')
    out['propertyNames'] = { type: 'string', ...(out['propertyNames'] as Schema) }
  if (typeof out['additionalProperties'] === 'object')
    out['additionalProperties'] = internal(out['additionalProperties'] as Schema, shared)
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

/** Alternatives by JSON type. The `type` keyword of the same node refuses all other types. */
const BY_TYPE: CodeKeywordDefinition = {
  keyword: 'byType',
  schemaType: 'array',
  code(cxt) {
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

const BY_TAG: CodeKeywordDefinition = {
  keyword: 'byTag',
  type: 'object',
  schemaType: 'array',
  error: { message: '', params: ({ params }) => _`{fault: ${params['fault']}}` },
  code(cxt) {
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
    const variant = (fits: Code, index: number) => {
      gen.elseIf(fits)
      const inner = gen.name('valid')
      cxt.subschema({ keyword: 'byTag', schemaProp: index }, inner)
      gen.assign(valid, _`${inner as Name}`)
    }
    for (const [name, index] of Object.entries(tag.variants)) variant(_`${value} === ${name}`, index)
    for (const [source, index] of tag.patterns ?? []) {
      const code = _`new RegExp(${source}, "u")`
      const pattern = gen.scopeValue('pattern', { key: source, ref: new RegExp(source, 'u'), code })
      variant(_`typeof ${value} == "string" && ${pattern}.test(${value})`, index)
    }
    gen.else()
    const fault = gen.const(
      'fault',
      _`${value} === undefined || ${value} === null ? "missing" : typeof ${value} == "string" ? "unknown" : "type"`,
    )
    cxt.error(false, { fault })
    gen.endIf()
    cxt.ok(valid)
  },
}

/**
 * Does what `additionalProperties: false` does, unless unknown members are to be removed. Like ajv's own keyword, it
 * runs before the members are checked.
 */
const CLOSED: CodeKeywordDefinition = {
  keyword: 'closed',
  type: 'object',
  schemaType: 'boolean',
  before: 'properties',
  error: { message: '', params: ({ params }) => _`{additionalProperty: ${params['key']}}` },
  code(cxt) {
    cxt.gen.if(_`!unknown.strip`, () => forUnknown(cxt, key => cxt.error(false, { key })))
  },
}

/** Removes the unknown members of an object that is otherwise valid. The objects inside it come first. */
const STRIP_UNKNOWN: CodeKeywordDefinition = {
  keyword: 'stripUnknown',
  type: 'object',
  schemaType: 'boolean',
  code({ gen, data, it, parentSchema }) {
    const remove = (key: Name) =>
      gen.code(_`unknown.remove(${data}, ${key}, ${names.default.instancePath} + ${it.errorPath})`)
    gen.if(_`unknown.strip`, () => forUnknown({ gen, data, parentSchema }, remove))
  },
}

function forUnknown(
  { gen, data, parentSchema }: Pick<KeywordCxt, 'gen' | 'data' | 'parentSchema'>,
  run: (key: Name) => void,
): void {
  const known = Object.keys(parentSchema['properties'] as Schema)
  gen.forIn('key', data, key => {
    let isKnown: Code = known.length === 0 ? _`false` : nil
    if (known.length > MOST_COMPARED) {
      const set = gen.scopeValue('obj', {
        key: known.join(),
        ref: new Set(known),
        code: _`new Set(${stringify(known)})`,
      })
      isKnown = _`${set}.has(${key})`
    } else {
      for (const name of known) isKnown = isKnown === nil ? _`${key} === ${name}` : _`${isKnown} || ${key} === ${name}`
    }
    gen.if(_`!(${isKnown})`, () => run(key))
  })
}

/** Up to this many known names, comparing with each is faster than a lookup in a Set. */
const MOST_COMPARED = 8
