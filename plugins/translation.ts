import { hash } from 'node:crypto'
import type { Conversation } from '../core/conversation.ts'
import type { OutboundContext } from '../core/dialect.ts'
import { callId, searchId } from '../core/ids.ts'
import { conversation, definePlugin, type Exchange } from '../core/plugin.ts'
import { dialects } from '../providers/index.ts'
import { translationOptions } from './options.ts'
import { candidates, identity, outbound, upstreamConversation } from './slots.ts'

/** Writes the upstream request of each attempt in its backend's dialect, and reads the reply back (decisions 3). */
export const translation = definePlugin({
  name: 'translation',
  summary: 'Translates requests into the backend’s dialect and replies back.',
  config: translationOptions,
  needs: [identity, conversation, candidates],
  provides: [outbound],
  create() {
    return {
      onRequest(x) {
        const first = x.peek(upstreamConversation) ?? x.get(conversation)
        const stream = first.stream || mayOutlastIdle(first)
        const context: OutboundContext = { stream, upstreamCallId, cacheKey: cacheKey(x, first) }
        x.set(outbound, (backend, asked = first) => {
          const dialect = dialects[backend.dialect]!
          const request = dialect.request(asked, backend, context)
          return {
            request,
            stream,
            decoder: () =>
              dialect.decoder({
                backend,
                conversation: asked,
                state: request.state,
                mintCallId: callId,
                mintSearchId: searchId,
              }),
          }
        })
        return undefined
      },
    }
  },
})

/** A reply of so many tokens is whole within the shortest idle row at any speed worth serving. */
const SURELY_SHORT = 2048

/**
 * Whether a buffered reply could take longer than an idle row allows silence. Those are read from the upstream as a stream, so that the idle and
 * ceiling clocks see activity (decisions 12) and a client that leaves stops it; short ones are asked for whole, which costs half.
 */
function mayOutlastIdle(asked: Conversation): boolean {
  const { effort, thinking } = asked.reasoning
  const quiet = effort === undefined || effort === 'none' || effort === 'minimal' || effort === 'low'
  const thinks = thinking !== undefined && thinking !== 'disabled'
  return !quiet || thinks || asked.maxOutputTokens === undefined || asked.maxOutputTokens > SURELY_SHORT
}

/** Deterministic, [A-Za-z0-9_-], 29 characters: fits every dialect, and the same call has the same id every turn (wire.md F.7). */
export function upstreamCallId(publicId: string): string {
  return `call_${hash('sha256', publicId, 'base64url').slice(0, 24)}`
}

/** The client's own cache hint, unreadable for others. */
function cacheKey(x: Exchange, asked: Conversation): string | undefined {
  const hint =
    asked.cacheKey ?? x.incoming.headers.get('x-claude-code-session-id') ?? x.incoming.headers.get('session-id')
  if (hint === undefined) return undefined
  return hash('sha256', `${x.get(identity).organization.id}\0${hint}`, 'base64url').slice(0, 32)
}
