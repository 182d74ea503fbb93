/**
 * Types and functions to read a body that its schema may not have accepted. Member names come from the schema; any
 * value may have any type.
 */
declare const misfit: unique symbol
/** Stands for every value that the schema does not allow at this place. */
export interface Misfit {
  readonly [misfit]: never
}
type Scalar = string | number | boolean | null | undefined
type AnyList = readonly unknown[]
/**
 * A `T` that the schema may not have accepted: at any depth a value may be missing or of another type. A union of
 * objects has the members of all of them. Names and values still come from the schema, so reading a member that it
 * does not have is a type error.
 */
export type Unchecked<T> = unknown extends T
  ? unknown
  : Misfit | Extract<T, Scalar> | UncheckedList<Extract<T, AnyList>> | UncheckedObject<Exclude<T, Scalar | AnyList>>
type UncheckedList<L extends AnyList> = [L] extends [never] ? never : readonly Unchecked<L[number]>[]
/** `Unchecked` for object types only. */
export type UncheckedObject<O> = [O] extends [never]
  ? never
  : { readonly [K in O extends unknown ? keyof O : never]?: Unchecked<MemberOf<O, K>> }
type MemberOf<O, K> = O extends unknown ? (K extends keyof O ? O[K] : never) : never

/** The object types of the union `T`. */
export type ObjectOf<T> = Exclude<T, Scalar | AnyList | Misfit>

export function isObject<T>(value: T): value is ObjectOf<T> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
/** The value when it is a list, else an empty list. */
export const listOf = <T>(value: T): Extract<T, AnyList> =>
  (Array.isArray(value) ? value : NONE) as AnyList as Extract<T, AnyList>
const NONE: AnyList = []
export const stringOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)
export const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined)
