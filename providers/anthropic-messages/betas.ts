/**
 * The `anthropic-beta` header of a request: the operator's names for the provider, and those of the client's names
 * that may be passed on (wire.md 0.3).
 */

/**
 * Features that only change how the model works on content that this dialect carries anyway. Only the operator can
 * enable other features, in the provider's `headers`: those that add members or blocks, which would need translation,
 * and those that change context windows or prices.
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

/** The header's value; undefined when there is none to send. */
export function betaHeader(operators: string | undefined, clients: readonly string[]): string | undefined {
  const passed = clients.filter(name => PASSED_ON.has(name))
  if (passed.length === 0) return operators
  return [...new Set([...names(operators), ...passed])].join(',')
}

/** The names in a header's value. */
function names(value: string | undefined): string[] {
  return (value ?? '')
    .split(',')
    .map(name => name.trim())
    .filter(name => name !== '')
}
