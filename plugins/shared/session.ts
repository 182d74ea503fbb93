import type { Incoming } from '../../core/plugin.ts'

/** Headers by which known clients name their session, in order of preference. */
const SESSION_HEADERS = ['x-claude-code-session-id', 'session-id', 'session_id', 'thread-id', 'x-session-id']

/** What a client calls its session; undefined when it does not say. */
export function sessionOf(headers: Incoming['headers']): string | undefined {
  for (const name of SESSION_HEADERS) {
    const value = headers.get(name)
    if (value !== undefined) return value
  }
  return undefined
}
