/**
 * Functions to build the schemas of requests and replies. The result is plain JSON Schema (2020-12) with a few
 * annotations that `check.ts` reads:
 *
 * - `x-sluice`: the class of a member (wire.md). `NOOP`: validated, but without effect. `DEF`: only the listed values
 *   are offered. `REJ`: an official member that is not offered. Absent: `USE`.
 * - `x-hint`: the cure, appended to error messages.
 * - `x-wish`: the member asks for speed, price or a budget, never for content. Where unknown members are removed, it is
 *   removed as well when its value is not offered.
 * - `x-bound`: what the metrics call the bound `maxLength` (plugins/shared/content-bounds.ts).
 * - `x-tag`: on a `oneOf`, the member that tells its variants apart.
 * - `x-forms`: on an `anyOf`, says that its alternatives differ by JSON type.
 *
 * A member that is not `required` may also be JSON null, which means absent (wire.md 0.2 rule 2). Schemas do not
 * repeat this.
 */
import type { Arrives, Schema } from '../core/tools/vocabulary.ts'

export type { Arrives, Schema }

/** The error for an object that no variant of a tagged union fits. */
export interface TagFault {
  code: 'unsupported_value' | 'unsupported_parameter' | 'invalid_value' | 'missing_required_parameter'
  /** The `param` of the error. `tag` (the default): the tag member. `self`: the object that has the tag. */
  at?: 'tag' | 'self'
  hint?: string
}

/** How a tagged union treats a tag that is missing or unknown. */
export interface TagOptions {
  /** The variant that is assumed when the tag is absent or null. */
  absent?: string
  /** `absent` applies only when at least one of these members is present. */
  absentGiven?: readonly string[]
  /** The error when the tag is a string that no variant has. Default: `unsupported_value` at the tag. */
  unknown?: TagFault
  /**
   * The error when the tag is missing and `absent` does not apply. Default: `missing_required_parameter` at the tag.
   */
  missing?: TagFault
}

/** The value of `x-tag`. */
export interface TagAnnotation extends TagOptions {
  name: string
  /** Tag value → index in `oneOf`. */
  variants: Record<string, number>
  /**
   * Variants whose tag is a family of values: [regular expression, index in `oneOf`]. They are tried after
   * `variants`.
   */
  patterns?: [string, number][]
}

/** A member that may be left out. */
export type Optional<T> = T | null | undefined
type Members = Record<string, Schema>
/** The type of an object that has passed its schema: members that are not required may be missing or null. */
type Proved<P, R> = { [K in keyof P as K extends R ? K : never]: Arrives<P[K]> } & {
  [K in keyof P as K extends R ? never : K]?: Optional<Arrives<P[K]>>
} extends infer All
  ? { [K in keyof All]: All[K] }
  : never

export const string = (extra?: Schema): Schema<string> => ({ type: 'string', ...extra })
export const number = (minimum: number, maximum: number, extra?: Schema): Schema<number> => ({
  type: 'number',
  minimum,
  maximum,
  ...extra,
})
/** A JSON integer; `100.0` counts as one. */
export const integer = (minimum: number, maximum?: number, extra?: Schema): Schema<number> =>
  maximum === undefined ? { type: 'integer', minimum, ...extra } : { type: 'integer', minimum, maximum, ...extra }
export const boolean = (extra?: Schema): Schema<boolean> => ({ type: 'boolean', ...extra })
/** Exactly this value. */
export const exactly = <const V extends string | number | boolean>(value: V, extra?: Schema): Schema<V> => ({
  ...extra,
  const: value,
})
/** One of the listed strings. */
export const oneOfStrings = <const W extends string>(values: readonly W[], extra?: Schema): Schema<W> => ({
  type: 'string',
  enum: [...values],
  ...extra,
})
export const array = <I extends Schema>(items: I, extra?: Schema): Schema<Arrives<I>[]> => ({
  type: 'array',
  items,
  ...extra,
})
/** An object with these members and no others. */
export const object = <P extends Members, const R extends string = never>(
  properties: P,
  required: readonly R[] = [],
  extra?: Schema,
): Schema<Proved<P, R>> => ({
  type: 'object',
  properties,
  ...(required.length > 0 && { required: [...required] }),
  additionalProperties: false,
  ...extra,
})
/** An object with any member names whose values all have one schema. */
export const map = <V extends Schema>(values: V, extra?: Schema): Schema<Record<string, Arrives<V>>> => ({
  type: 'object',
  additionalProperties: values,
  ...extra,
})
/** An opaque JSON object: the gateway does not look inside it (wire.md 0.2 rule 1). */
export const opaqueObject = (extra?: Schema): Schema<Record<string, unknown>> => ({ type: 'object', ...extra })
/** The schema of a whole body. */
export const titled = <S extends Schema>(title: string, schema: S): S => ({
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title,
  ...schema,
})
/** Any JSON value. */
export const anything = (extra?: Schema): Schema<unknown> => ({ ...extra })

/** One variant of a tagged union: an object whose `tag` member has one of `values`. */
export function variant<T extends string, const W extends string, P extends Members, const R extends string = never>(
  tag: T,
  values: W | readonly W[],
  properties: P,
  required: readonly R[] = [],
  extra?: Schema,
): Schema<{ [K in T]: W } & Proved<P, R>> {
  const own: Schema = typeof values === 'string' ? { const: values } : { enum: [...values] }
  return object({ [tag]: own, ...properties }, required, extra) as Schema
}

/** Makes the tag optional in the variant that is assumed when the tag is absent. */
type Untagged<V, T extends string, A> =
  V extends Record<T, infer W> ? (A extends W ? Omit<V, T> & { [K in T]?: Optional<W> } : V) : V

/**
 * A union of objects that the string member `tag` tells apart. Only the matching variant is checked, so that a fault
 * names the exact place.
 */
export function tagged<T extends string, const V extends readonly Schema[], const A extends string = never>(
  tag: T,
  variants: V,
  options: TagOptions & { absent?: A } = {},
  extra?: Schema,
): Schema<[A] extends [never] ? Arrives<V[number]> : Untagged<Arrives<V[number]>, T, A>> {
  const index: Record<string, number> = {}
  const patterns: [string, number][] = []
  variants.forEach((v, i) => {
    const own = (v['properties'] as Members)[tag]!
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

/** The values of `type` for which a union has a variant. */
export const tagsOf = <T extends string>(union: Schema<{ type: T }>): readonly T[] =>
  Object.keys((union['x-tag'] as TagAnnotation).variants) as T[]
/** True when a union has a variant for this value of `type`. */
export const hasTag = <T extends string>(union: Schema<{ type: T }>, value: unknown): value is T =>
  typeof value === 'string' && Object.hasOwn((union['x-tag'] as TagAnnotation).variants, value)

/** Alternatives that differ by JSON type, e.g. a string or an array of parts. */
export const forms = <const A extends readonly Schema[]>(
  alternatives: A,
  extra?: Schema,
): Schema<Arrives<A[number]>> => ({
  anyOf: [...alternatives],
  'x-forms': true,
  ...extra,
})

// ---- replies --------------------------------------------------------------------------------------------------------

/** One of the listed strings, in a reply. */
export const among = <const W extends string>(values: readonly W[]): Schema<W> => ({ enum: [...values] })
export const orNull = <T>(schema: Schema<T>): Schema<T | null> => ({ anyOf: [schema, { type: 'null' }] })
/** An object in a reply. It has these members; others may be added later. */
export const shape = <P extends Members, const O extends string = never>(
  properties: P,
  optional: readonly O[] = [],
): Schema<
  { [K in keyof P as K extends O ? never : K]: Arrives<P[K]> } & {
    [K in keyof P as K extends O ? K : never]?: Arrives<P[K]>
  }
> => ({
  type: 'object',
  properties,
  required: Object.keys(properties).filter(name => !(optional as readonly string[]).includes(name)),
})

// ---- classes --------------------------------------------------------------------------------------------------------

/** Marks a member that is accepted and has no effect. */
export const noop = <T>(schema: Schema<T>, hint?: string): Schema<T> => classed(schema, 'NOOP', hint)
/**
 * Marks a member that is offered only with the listed values. Any other value of the right type is
 * `unsupported_value`.
 */
export const only = <T>(schema: Schema<T>, hint?: string): Schema<T> => classed(schema, 'DEF', hint)
/**
 * An official member that is not offered: any value but null gives `unsupported_parameter`.
 * @param harmless official default values that are accepted as well
 */
export const rejected = (hint?: string, harmless: readonly unknown[] = []): Schema<unknown> =>
  classed(harmless.length > 0 ? { enum: [null, ...harmless] } : { type: 'null' }, 'REJ', hint)

/** Marks a member without which the reply has the same content (`x-wish`). */
export const wish = <T>(schema: Schema<T>): Schema<T> => ({ ...schema, 'x-wish': true })

function classed(schema: Schema, name: string, hint?: string): Schema {
  return { ...schema, 'x-sluice': name, ...(hint !== undefined && { 'x-hint': hint }) }
}
