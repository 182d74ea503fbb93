/**
 * Building blocks of option schemas: JSON Schema with the units of gateway.yaml and, for TypeScript, the type in
 * which each option arrives. One definition gives the check, the defaults, the docs, the editor's help and the type.
 */
declare const arrives: unique symbol

/** The JSON Schema of an option that arrives as a `T`. */
export interface Schema<T = any> extends Record<string, unknown> {
  /** For the compiler only; it does not exist at run time. */
  readonly [arrives]?: T
}
/** A schema with a default: the option always has a value. */
export interface Filled<T> extends Schema<T> {
  readonly default: unknown
}
type Plain = Record<never, never>
/** The type in which an option with schema `S` arrives. */
export type Arrives<S> = S extends { readonly [arrives]?: infer T } ? T : never

/** A duration such as `250ms`, `60s`, `5m`, `24h`; arrives in milliseconds. */
export const duration = (fallback: string, description: string): Filled<number> => ({
  type: ['string', 'integer'],
  format: 'duration',
  default: fallback,
  description,
})

/** A size such as `64KiB`, `32MiB`; arrives in bytes. */
export const size = (fallback: string, description: string): Filled<number> => ({
  type: ['string', 'integer'],
  format: 'size',
  default: fallback,
  description,
})

/** A whole number, at least `minimum`. */
export const count = (fallback: number, description: string, minimum = 0): Filled<number> => ({
  type: 'integer',
  minimum,
  default: fallback,
  description,
})

/** A number within `bounds` (members of JSON Schema, such as `minimum`). */
export const number = (fallback: number, description: string, bounds: Schema): Filled<number> => ({
  type: 'number',
  ...bounds,
  default: fallback,
  description,
})

/** True or false. */
export const flag = (fallback: boolean, description: string): Filled<boolean> => ({
  type: 'boolean',
  default: fallback,
  description,
})

/** One of a few words. */
export function choice<const W extends string>(words: readonly W[], description: string): Schema<W>
export function choice<const W extends string>(words: readonly W[], description: string, fallback: W): Filled<W>
export function choice(words: readonly string[], description: string, fallback?: string): Schema {
  return { type: 'string', enum: [...words], ...(fallback === undefined ? {} : { default: fallback }), description }
}

/**
 * One of a few words for every key, or a mapping of keys to words. A key that the mapping lacks has its own default.
 * It arrives as it was written, with the mapping filled: `wordFor` reads both forms.
 * @param keys each key, with its default
 */
export function choiceByKey<const W extends string, K extends string>(
  words: readonly W[],
  keys: Readonly<Record<K, W>>,
  description: string,
  about: (key: K) => string,
): Filled<W | Record<K, W>> {
  const members = Object.entries<W>(keys).map(([key, word]) => [key, choice(words, about(key as K), word)])
  return {
    type: ['string', 'object'],
    pattern: `^(${words.join('|')})$`,
    examples: [words[0], `{ ${Object.keys(keys)[0]}: ${words[0]} }`],
    additionalProperties: false,
    properties: Object.fromEntries(members),
    default: { ...keys },
    description,
  }
}

/** The word that an option of `choiceByKey` has for a key. */
export const wordFor = <W extends string, K extends string>(option: W | Readonly<Record<K, W>>, key: K): W =>
  typeof option === 'string' ? option : option[key]

export const text = <M extends Schema = Plain>(description: string, more: M = {} as M): Schema<string> & M => ({
  type: 'string',
  ...more,
  description,
})

/** Text that no message may show, marked by JSON Schema's `writeOnly`. */
export const secretText = <M extends Schema = Plain>(description: string, more: M = {} as M): Schema<string> & M =>
  text(description, { writeOnly: true, ...more })

export const list = <I extends Schema, M extends Schema = Plain>(
  items: I,
  description: string,
  more: M = {} as M,
): Schema<Arrives<I>[]> & M => ({ type: 'array', items, ...more, description })

type Always<P, R> = { [K in keyof P]: P[K] extends { default: unknown } ? K : K extends R ? K : never }[keyof P]
/** What a mapping of options with these schemas arrives as. `R` are those that are required. */
export type Members<P, R = never> = { [K in Always<P, R>]: Arrives<P[K]> } & {
  [K in Exclude<keyof P, Always<P, R>>]?: Arrives<P[K]>
} extends infer All
  ? { [K in keyof All]: All[K] }
  : never

/** A mapping that refuses unknown keys. An option that is neither required nor has a default may be missing. */
export const object = <P extends Record<string, Schema>, R extends string & keyof P = never, M extends Schema = Plain>(
  properties: P,
  required: readonly R[] = [],
  more: M = {} as M,
): Schema<Members<P, R>> & M => ({
  type: 'object',
  additionalProperties: false,
  properties,
  required,
  ...more,
})

/** The same schema or null; null is the default. */
export const nullable = <S extends Schema>(schema: S): Filled<Arrives<S> | null> => ({
  ...schema,
  type: [...[schema['type'] as string | string[]].flat(), 'null'],
  ...(schema['enum'] ? { enum: [...(schema['enum'] as unknown[]), null] } : {}),
  default: null,
})
