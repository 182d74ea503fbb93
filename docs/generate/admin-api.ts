/** The members of organizations and keys for docs/admin-api.yaml, made from the schemas of gateway.yaml. */
import { stringify } from 'yaml'
import { PATTERNS } from '../../config/json-schema.ts'
import { backend, key, LIMITS, organization, priceList } from '../../config/schema.ts'
import { MADE_WITH_KEY } from '../../config/stored.ts'

type AnySchema = Record<string, any>

const propertiesOf = (schema: AnySchema): Record<string, AnySchema> => schema['properties']

/** Schemas that occur at several places, and are written once. */
const SHARED = new Map<unknown, string>([
  [LIMITS, 'Limits'],
  [propertiesOf(priceList), 'Price'],
])

/** The schemas of what may be sent, as members of `components.schemas`. */
export function adminApiSchemas(): string {
  const { keys: _, ...ofOrganization } = propertiesOf(organization)
  const keyWithout = (...names: readonly string[]) =>
    Object.fromEntries(Object.entries(propertiesOf(key)).filter(([name]) => !names.includes(name)))
  const ofKey = keyWithout(...MADE_WITH_KEY, 'status')
  const id = { type: 'string', description: 'It also tells a repeated request.' }
  const schemas = {
    Limits: mapping(LIMITS, true),
    Price: { ...mapping(propertiesOf(priceList), false), required: priceList['required'] },
    Cost: { ...mapping(propertiesOf(propertiesOf(backend)['cost']!), false), required: ['input'] },
    Members: {
      ...mapping(ofOrganization, true),
      description: 'Members of an organization, as in gateway.yaml (docs/configuration.md). null takes one away.',
    },
    NewOrganization: {
      ...mapping(ofOrganization, true, { id }),
      required: ['id', 'plan'],
    },
    KeyMembers: {
      ...mapping(ofKey, true),
      description: 'Members of a key, as in gateway.yaml (docs/configuration.md). null takes one away.',
    },
    NewKey: {
      ...mapping(ofKey, true, { id, status: { type: 'string', enum: ['active', 'staged'], default: 'active' } }),
      required: ['id'],
    },
  }
  const settings = { ...mapping(keyWithout('id', 'sha256'), true), description: 'Members of a key as they are stored.' }
  return stringify(
    { ...schemas, KeySettings: settings },
    { lineWidth: 0, aliasDuplicateObjects: false, singleQuote: true },
  ).replace(/^(?=.)/gm, '    ')
}

/** @param nulls whether each member may be null */
function mapping(properties: object, nulls: boolean, first: object = {}): AnySchema {
  const members = Object.entries(properties).map(([name, member]) => [name, plain(member, nulls)])
  return { type: 'object', additionalProperties: false, properties: { ...first, ...Object.fromEntries(members) } }
}

/** A schema of an option as JSON Schema knows it. */
function plain(schema: AnySchema, mayBeNull: boolean): AnySchema {
  const {
    format,
    default: fallback,
    description,
    properties,
    items,
    additionalProperties,
    examples: _,
    ...rest
  } = schema
  const about = {
    ...(description && { description }),
    ...(fallback !== undefined && typeof fallback !== 'object' && { default: fallback }),
  }
  const types = [...new Set([rest['type'] ?? [], mayBeNull ? 'null' : []].flat())]
  const shared = SHARED.get(properties)
  if (shared !== undefined) {
    const ref = { $ref: `#/components/schemas/${shared}` }
    return mayBeNull ? { ...about, anyOf: [ref, { type: 'null' }] } : ref
  }
  return {
    ...rest,
    type: types.length === 1 ? types[0] : types,
    ...(mayBeNull && rest['enum'] && { enum: [...new Set([...rest['enum'], null])] }),
    ...(format && PATTERNS[format] !== undefined && { pattern: PATTERNS[format] }),
    ...(properties && { ...mapping(properties, false), required: rest['required'] }),
    ...(items && { items: plain(items, false) }),
    ...(additionalProperties && { additionalProperties: plain(additionalProperties, mayBeNull) }),
    ...about,
  }
}
