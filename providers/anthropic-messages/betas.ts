/** The `anthropic-beta` header of a request: what the operator set for the provider, and what of the client's may go along (wire.md 0.3). */

/**
 * Features that change how the model works on what this dialect carries anyway. One that adds members or blocks, which would have to be translated, or
 * that changes windows and prices, is the operator's to set, in the provider's `headers`.
 */
const PASSED_ON: ReadonlySet<string> = new Set([
  'context-management-2025-06-27', // the memory tool
  'effort-2025-11-24',
  'extended-cache-ttl-2025-04-11',
  'fine-grained-tool-streaming-2025-05-14',
  'interleaved-thinking-2025-05-14',
  'mid-conversation-system-2026-04-07',
  'token-efficient-tools-2025-02-19',
])

/** Undefined: there is none to send. */
export function betaHeader(operators: string | undefined, clients: readonly string[]): string | undefined {
  const passed = clients.filter(name => PASSED_ON.has(name))
  if (passed.length === 0) return operators
  return [...new Set([...names(operators), ...passed])].join(',')
}

/** Names in a header's value. */
function names(value: string | undefined): string[] {
  return (value ?? '')
    .split(',')
    .map(name => name.trim())
    .filter(name => name !== '')
}
