/**
 * Appends all entries of a list to another one. `push(...more)` puts each entry on the stack, and some hundred thousand
 * of them overflow it: how many entries a list has is often up to a client or a provider.
 */
export function appendAll<T>(list: T[], more: Iterable<T>): void {
  for (const entry of more) list.push(entry)
}
