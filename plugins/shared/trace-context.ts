/** W3C Trace Context, as a client sends it. */

const PARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/

/**
 * @returns the client's `traceparent` if it is valid. Version ff, and an id of only zeros for trace or span, are not
 * (Trace Context 3.2.2).
 */
export function traceParent(headers: ReadonlyMap<string, string>): string | undefined {
  const parent = headers.get('traceparent')
  if (parent === undefined || parent.length !== 55 || !PARENT.test(parent) || parent.startsWith('ff')) return undefined
  if (parent.startsWith('0'.repeat(32), 3) || parent.startsWith('0'.repeat(16), 36)) return undefined
  return parent
}
