/**
 * Compiles a request schema (see `schema.ts`) with ajv. The schema is turned into one in which
 * - a member that is not required may be null, at any depth;
 * - tagged unions and alternatives by JSON type are dispatches, so that only the meant variant is looked at and a fault has an exact
 *   place (decisions 41: the tag may be absent or null, which ajv's own `discriminator` can't say);
 * - unknown members are refused, or removed and listed, by the mode of the call.
 *
 * Loaded for `npm run generate` and for schemas that it has not written yet.
 */
import { _, Ajv, type Code, type CodeKeywordDefinition, type KeywordCxt, type Name, nil, stringify } from 'ajv'
import names from 'ajv/dist/compile/names.js'
import { digest, type Validator } from '../core/validators/read.ts'
import { validatorsText } from '../core/validators/write.ts'
import type { UnknownMembers } from './check.ts'
import type { Schema, TagAnnotation } from './schema.ts'

export function compileSchema(schema: Schema, unknown: UnknownMembers): Validator {
  const [ajv] = compiler([schema], unknown, false)
  return ajv.getSchema(digest(schema)) as Validator
}

/** Source of the validators of these schemas, as a file of core/validators/generated/. */
export function requestValidatorsText(schemas: readonly Schema[]): string {
  const [ajv, digests] = compiler(schemas, { strip: false, remove: () => {} }, true)
  return validatorsText(ajv, digests, ['unknown'])
}

/** An ajv that knows the schemas by their digests. */
function compiler(schemas: readonly Schema[], unknown: UnknownMembers, source: boolean): [Ajv, string[]] {
  const ajv = new Ajv({
    strict: true,
    allowUnionTypes: true,
    // `verbose` puts the schema node into an error, from which code, hint and expectation are read; `messages` are our own.
    verbose: true,
    messages: false,
    validateSchema: false,
    // One function for each variant and array entry: V8 never optimizes the single huge one that inlining makes.
    inlineRefs: false,
    code: { source, lines: true },
  })
  for (const name of ['x-sluice', 'x-hint', 'x-tag']) ajv.addKeyword(name)
  ajv.addKeyword(BY_TYPE)
  ajv.addKeyword(BY_TAG)
  ajv.addKeyword(closed(unknown))
  ajv.addKeyword(stripUnknown(unknown))
  const shared: Shared = new Map()
  const digests = schemas.map(digest)
  for (const [i, schema] of schemas.entries()) ajv.addSchema(internal(schema, shared), digests[i])
  for (const { name, schema } of shared.values()) ajv.addSchema(schema, name)
  return [ajv, digests]
}

/** Rewritten schemas that are used by reference, by their JSON text: equal ones are compiled once. */
type Shared = Map<string, { name: string; schema: Schema }>

function reference(rewritten: Schema, shared: Shared): Schema {
  const text = JSON.stringify(rewritten)
  let entry = shared.get(text)
  if (!entry) shared.set(text, (entry = { name: `s${shared.size}`, schema: rewritten }))
  return { $ref: entry.name }
}

/** Objects with members are compiled by themselves: many are the same in several places. */
const place = (rewritten: Schema, shared: Shared): Schema =>
  'properties' in rewritten || 'byTag' in rewritten ? reference(rewritten, shared) : rewritten

/** Rewrites a schema of `schema.ts` into the form ajv compiles. */
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

/** Alternatives by JSON type; `type` beside it has already refused the others. */
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

/** `additionalProperties: false` while unknown members are refused. Before the members are looked at, as ajv's own is. */
function closed(unknown: UnknownMembers): CodeKeywordDefinition {
  return {
    keyword: 'closed',
    type: 'object',
    schemaType: 'boolean',
    before: 'properties',
    error: { message: '', params: ({ params }) => _`{additionalProperty: ${params['key']}}` },
    code(cxt) {
      cxt.gen.if(_`!${scopeName(cxt, unknown)}.strip`, () => forUnknown(cxt, key => cxt.error(false, { key })))
    },
  }
}

/** Removes unknown members of an object that is valid otherwise, its inner ones first. */
function stripUnknown(unknown: UnknownMembers): CodeKeywordDefinition {
  return {
    keyword: 'stripUnknown',
    type: 'object',
    schemaType: 'boolean',
    code(cxt) {
      const { gen, data, it } = cxt
      const mode = scopeName(cxt, unknown)
      const remove = (key: Name) =>
        gen.code(_`${mode}.remove(${data}, ${key}, ${names.default.instancePath} + ${it.errorPath})`)
      gen.if(_`${mode}.strip`, () => forUnknown(cxt, remove))
    },
  }
}

function forUnknown({ gen, data, parentSchema }: KeywordCxt, run: (key: Name) => void): void {
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

/** From so many names on a look-up takes less than comparing. */
const MOST_COMPARED = 8

const scopeName = ({ gen }: KeywordCxt, unknown: UnknownMembers): Name =>
  gen.scopeValue('obj', { key: 'unknown', ref: unknown, code: _`unknown` })
