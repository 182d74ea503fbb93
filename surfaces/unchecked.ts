/** Reading a body that its schema may not have accepted: by the schema's names, and as if any value could be any other. */
declare const misfit: unique symbol
/** Stands for every value that the schema does not allow at a place. */
export interface Misfit {
  readonly [misfit]: never
}
type Scalar = string | number | boolean | null | undefined
type AnyList = readonly unknown[]
/**
 * A `T` that the schema may not have accepted: at any depth something may be missing, or be another thing. A union of objects has the members of
 * them all. What is left of the schema are its names and values, so that a reader can't ask for others.
 */
export type Unchecked<T> = unknown extends T
  ? unknown
  : Misfit | Extract<T, Scalar> | UncheckedList<Extract<T, AnyList>> | UncheckedObject<Exclude<T, Scalar | AnyList>>
type UncheckedList<L extends AnyList> = [L] extends [never] ? never : readonly Unchecked<L[number]>[]
/** The same of objects alone. */
export type UncheckedObject<O> = [O] extends [never]
  ? never
  : { readonly [K in O extends unknown ? keyof O : never]?: Unchecked<MemberOf<O, K>> }
type MemberOf<O, K> = O extends unknown ? (K extends keyof O ? O[K] : never) : never

/** The objects among what `T` may be. */
export type ObjectOf<T> = Exclude<T, Scalar | AnyList | Misfit>

export function isObject<T>(value: T): value is ObjectOf<T> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
/** The value where it is a list, else an empty one. */
export const listOf = <T>(value: T): Extract<T, AnyList> =>
  (Array.isArray(value) ? value : NONE) as AnyList as Extract<T, AnyList>
const NONE: AnyList = []
export const stringOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)
export const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined)
