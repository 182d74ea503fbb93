/**
 * The preview features (`anthropic-beta`) whose members and blocks this surface knows, or that only tell who the client
 * is. Which of them a provider gets is a matter of its dialect. A name that is not here is no error; where unknown
 * members are removed, it is reported as they are.
 */
export const PREVIEWS: ReadonlySet<string> = new Set([
  'claude-code-20250219', // marks the client
  'compact-2026-01-12',
  'context-management-2025-06-27',
  'effort-2025-11-24',
  'extended-cache-ttl-2025-04-11',
  'fine-grained-tool-streaming-2025-05-14',
  'interleaved-thinking-2025-05-14',
  'mid-conversation-system-2026-04-07',
  'output-128k-2025-02-19',
  'pdfs-2024-09-25',
  'prompt-caching-2024-07-31',
  'prompt-caching-scope-2026-01-05',
  'structured-outputs-2025-11-13',
  'token-counting-2024-11-01',
  'token-efficient-tools-2025-02-19',
])
