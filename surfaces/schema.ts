/**
 * Words for writing a request schema. They make plain JSON Schema (2020-12) with a few annotations that `check.ts` reads:
 *
 * - `x-sluice`: the class of a member (wire.md): `NOOP` validated and not acted upon; `DEF` only the listed values are offered;
 *   `REJ` an official member that is not offered. Absent: `USE`.
 * - `x-hint`: the cure, appended to error messages.
 * - `x-tag`: on a `oneOf`, the member that tells its variants apart.
 * - `x-forms`: on an `anyOf`, that its alternatives differ by JSON type.
 *
 * Members that are not `required` may also be JSON null, which means absent (wire.md 0.2 rule 2); schemas do not say so again.
 */
export type Schema = Record<string, unknown>

/** What to answer when no variant of a tagged union fits. */
export interface TagFault {
  code: 'unsupported_value' | 'unsupported_parameter' | 'invalid_value' | 'missing_required_parameter'
  /** `tag`: param is the tag member (the default); `self`: param is the object that carries it. */
  at?: 'tag' | 'self'
  hint?: string
}

export interface TagOptions {
  /** Variant to take when the tag is absent or null. */
  absent?: string
  /** `absent` holds only if one of these members is there. */
  absentGiven?: readonly string[]
  /** Answer when the tag is a string that no variant has. Default: `unsupported_value` at the tag. */
  unknown?: TagFault
  /** Answer when the tag is missing and `absent` does not hold. Default: `missing_required_parameter` at the tag. */
  missing?: TagFault
}

export interface TagAnnotation extends TagOptions {
  name: string
  /** Tag value → index in `oneOf`. */
  variants: Record<string, number>
  /** Variants whose tag is a family of values: [regular expression, index in `oneOf`], tried after `variants`. */
  patterns?: [string, number][]
}

export const string = (extra?: Schema): Schema => ({ type: 'string', ...extra })
export const number = (minimum: number, maximum: number, extra?: Schema): Schema => ({
  type: 'number',
  minimum,
  maximum,
  ...extra,
})
/** A JSON integer; `100.0` is one. */
export const integer = (minimum: number, maximum?: number, extra?: Schema): Schema =>
  maximum === undefined ? { type: 'integer', minimum, ...extra } : { type: 'integer', minimum, maximum, ...extra }
export const boolean = (extra?: Schema): Schema => ({ type: 'boolean', ...extra })
/** One of the listed strings. */
export const oneOfStrings = (values: readonly string[], extra?: Schema): Schema => ({
  type: 'string',
  enum: [...values],
  ...extra,
})
export const array = (items: Schema, extra?: Schema): Schema => ({ type: 'array', items, ...extra })
/** An object with these members and no others. */
export const object = (
  properties: Record<string, Schema>,
  required: readonly string[] = [],
  extra?: Schema,
): Schema => ({
  type: 'object',
  properties,
  ...(required.length > 0 && { required: [...required] }),
  additionalProperties: false,
  ...extra,
})
/** An object with any member names, all values alike. */
export const map = (values: Schema, extra?: Schema): Schema => ({
  type: 'object',
  additionalProperties: values,
  ...extra,
})
/** Opaque JSON object: its inside is the client's (wire.md 0.2 rule 1). */
export const opaqueObject = (extra?: Schema): Schema => ({ type: 'object', ...extra })
/** Any JSON. */
export const anything = (extra?: Schema): Schema => ({ ...extra })

/** One variant of a tagged union: an object whose `tag` member has one of `values`. */
export function variant(
  tag: string,
  values: string | readonly string[],
  properties: Record<string, Schema>,
  required: readonly string[] = [],
  extra?: Schema,
): Schema {
  const own: Schema = typeof values === 'string' ? { const: values } : { enum: [...values] }
  return object({ [tag]: own, ...properties }, required, extra)
}

/** A union of objects told apart by the string member `tag`. Exactly one variant is looked at, so that faults name the exact place. */
export function tagged(tag: string, variants: readonly Schema[], options: TagOptions = {}, extra?: Schema): Schema {
  const index: Record<string, number> = {}
  const patterns: [string, number][] = []
  variants.forEach((v, i) => {
    const own = (v['properties'] as Record<string, Schema>)[tag]!
    if (typeof own['pattern'] === 'string') {
      patterns.push([own['pattern'], i])
      return
    }
    for (const value of 'const' in own ? [own['const']] : (own['enum'] as unknown[])) index[value as string] = i
  })
  const annotation: TagAnnotation = {
    name: tag,
    variants: index,
    ...(patterns.length > 0 && { patterns }),
    ...options,
  }
  const oneOf =
    options.absent === undefined
      ? variants.map(v => ({ ...v, required: [tag, ...((v['required'] as string[] | undefined) ?? [])] }))
      : [...variants]
  return { type: 'object', oneOf, 'x-tag': annotation, ...extra }
}

/** Alternatives that differ by JSON type, e.g. a string or an array of parts. */
export const forms = (alternatives: readonly Schema[], extra?: Schema): Schema => ({
  anyOf: [...alternatives],
  'x-forms': true,
  ...extra,
})

/** Marks a member as accepted and not acted upon. */
export const noop = (schema: Schema, hint?: string): Schema => classed(schema, 'NOOP', hint)
/** Marks a member of which only the listed values are offered: other values of the right type are `unsupported_value`. */
export const only = (schema: Schema, hint?: string): Schema => classed(schema, 'DEF', hint)
/** An official member that is not offered: `unsupported_parameter` unless null (or one of `harmless`, its official defaults). */
export const rejected = (hint?: string, harmless: readonly unknown[] = []): Schema =>
  classed(harmless.length > 0 ? { enum: [null, ...harmless] } : { type: 'null' }, 'REJ', hint)

function classed(schema: Schema, name: string, hint?: string): Schema {
  return { ...schema, 'x-sluice': name, ...(hint !== undefined && { 'x-hint': hint }) }
}
