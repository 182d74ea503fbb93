import { hash } from 'node:crypto'
import { type CallPart, type Conversation, capped, formOf } from '../../core/canon/conversation.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import { type AttemptCall, type CallFacts, conversation, definePlugin, estimate, slot } from '../../core/plugin.ts'
import type { Adjustment, Backend, OutboundContext } from '../../core/ports/dialect.ts'
import { dialectOf } from '../../providers/index.ts'
import { inWords } from '../../providers/left-out.ts'
import { memberOf } from '../../providers/requirements.ts'
import { exceedsCounted } from '../shared/sent-bound.ts'
import {
  type Adjusted,
  adjusted,
  candidates,
  contentLimits,
  counted,
  identity,
  recent,
  verbatim,
  type WrittenArguments,
  writtenArguments,
} from '../shared/slots.ts'
import { sharedTicker } from '../shared/ticker.ts'
import { Verbatim } from '../shared/verbatim.ts'
import { sharedBackends } from '../upstream/health.ts'
import { Attempt } from './attempt.ts'
import { Written } from './written.ts'

/** What all attempts of a call are written with. */
interface Writing {
  /** The call's conversation: attempts at several backends have it in common. */
  asked: Conversation
  /** What went out first. */
  first: Conversation
  context: OutboundContext
  marks: Verbatim | undefined
}
const writing = slot<Writing>('translation.writing')

/**
 * Knows the dialects, so that no other layer of a call need know one. An attempt goes in as a conversation and comes
 * back as events; below it, it is a written request and the reply's bytes.
 */
export const translation = definePlugin({
  name: 'translation',
  summary: 'Writes each attempt’s request in its backend’s dialect, and reads the reply.',
  needs: [identity, conversation, candidates],
  mayProvide: [adjusted, writing],
  layers: ['translate'],
  aboveTerminal: true,
  dryRun: 'safe',
  create(_, { clock, log, shared }) {
    const backends = sharedBackends(shared)
    const ticker = sharedTicker(shared, clock)

    /** @throws GatewayError when the request cannot be written */
    function write(call: AttemptCall): Written {
      const { backend, facts, sent } = call
      const input = facts.peek(estimate)?.input ?? 0
      const { first, context, marks } = writingOf(call)
      const written = new Written(call, forBackend(sent, backend, call.input), context, marks)
      const base = facts.peek(counted)?.conversation
      const replayBytes = facts.peek(contentLimits)?.replayBytes ?? Number.POSITIVE_INFINITY
      const { body } = written.wire
      if (base && exceedsCounted({ body, backend, said: sent }, base, input, replayBytes)) {
        log.error({ request_id: facts.id, backend: backend.id, tokens: input }, 'request larger than counted')
        backends.notSent(backend.id)
        throw new GatewayError('internal_error', {
          message:
            'The request that was written for the provider is larger than what was counted, so it was not sent. Quote the request id.',
          retriable: false,
        })
      }
      const changes = written.adjusted
      if (changes.length > 0) {
        const fields = { request_id: facts.id, backend: backend.id, left_out: changes.map(inWords) }
        log.debug(fields, 'controls were left out or lowered')
      }
      // Of an attempt that fails, nothing reaches the client.
      if (changes.length > 0 || facts.peek(adjusted)) facts.set(adjusted, named(first, changes))
      return written
    }

    return {
      translate: next => (call, sink) => new Attempt(call, write(call), sink, ticker).start(next),
      onResponseHead(x, head) {
        const changes = x.peek(adjusted)
        if (changes?.length && head.origin === 'upstream')
          head.headers.set('x-adjusted', changes.map(({ field, reason }) => `${field}=${reason}`).join(', '))
        return undefined
      },
    }
  },
})

/** What the attempts of a call share; the first one makes it. */
function writingOf({ asked, sent, facts }: AttemptCall): Writing {
  const known = facts.peek(writing)
  if (known?.asked === asked) return known
  const verbatims = facts.peek(verbatim)
  const written = facts.peek(writtenArguments)
  // Arguments that a thread has written stand in the body as marks, which another body does not have.
  const again = verbatims || written ? undefined : facts.peek(recent)
  const marks = verbatims ?? (written || again ? new Verbatim() : undefined)
  const made: Writing = {
    asked,
    first: sent,
    marks,
    context: {
      stream: sent.stream || mayOutlastIdle(sent),
      upstreamCallId: again ? id => again.upstreamId(id, upstreamCallId) : upstreamCallId,
      cacheKey: cacheKey(facts, sent),
      previews: previewsOf(facts),
      json: verbatims ? body => verbatims.write(body) : again && marks && (body => again.write(body, marks)),
      written: written && marks && writer(written, marks),
    },
  }
  facts.set(writing, made)
  return made
}

/**
 * What is reported to a client of the controls that are not sent as it wrote them. What means the same is not reported.
 */
function named(conversation: Conversation, changes: readonly Adjustment[]): Adjusted[] {
  return changes
    .filter(change => !change.same)
    .map(({ control, sent }) => ({
      field: control === 'effort' ? memberOf(conversation, 'effort') : control,
      reason: sent === undefined ? 'not_supported' : `sent_as_${sent}`,
    }))
}

/**
 * A cap that the client did not name is lowered to what the backend takes, and to what its own window leaves. So is the
 * one that a dialect sends where nothing sets any.
 */
function forBackend(conversation: Conversation, backend: Backend, input: number): Conversation {
  if (conversation.maxOutputField !== undefined) return conversation
  const left = Math.max(1, (backend.contextWindow ?? Infinity) - input)
  const configured = Math.min(conversation.maxOutputTokens ?? Infinity, backend.maxOutputTokens ?? Infinity)
  if (configured === Infinity && left >= (dialectOf(backend).outputCap ?? 0)) return conversation
  return capped(conversation, Math.min(configured, left))
}

/** Puts arguments that a thread has written into a request, without looking at them again. */
function writer(written: ReadonlyMap<CallPart, WrittenArguments>, marks: Verbatim): OutboundContext['written'] {
  return (call, as) => {
    const made = written.get(call)
    if (made === undefined || (as === 'object' && !made.object)) return undefined
    return marks.insert(as === 'object' ? made.text : made.quoted)
  }
}

/**
 * Output tokens. A reply of at most this many ends within the shortest idle limit of `stream_limits`, at any usable
 * speed.
 */
const SURELY_SHORT = 2048

/**
 * Whether a buffered reply could take longer than the idle limit allows. Such a reply is read from the upstream as a
 * stream: then the idle and ceiling clocks see activity (decisions 12), and the upstream stops when the client
 * disconnects. Short replies are requested whole, which costs half.
 */
function mayOutlastIdle({ reasoning, maxOutputTokens }: Conversation): boolean {
  const { effort, thinking } = reasoning
  const quiet = effort === undefined || effort === 'none' || effort === 'minimal' || effort === 'low'
  const thinks = thinking !== undefined && thinking !== 'disabled'
  return !quiet || thinks || maxOutputTokens === undefined || maxOutputTokens > SURELY_SHORT
}

/**
 * An upstream call id. It is deterministic, so that a call has the same id in every request; 29 characters of
 * [A-Za-z0-9_-], which fit every dialect (wire.md F.7).
 */
export function upstreamCallId(publicId: string): string {
  return `call_${hash('sha256', publicId, 'base64url').slice(0, 24)}`
}

function previewsOf(x: CallFacts): string[] | undefined {
  const header = x.surface?.previewHeader
  const value = header === undefined ? undefined : x.incoming.headers.get(header)
  return value?.split(',').map(name => name.trim())
}

/**
 * The cache hint for the provider, hashed so that others cannot read it: the client's own hint, or for a client that
 * marks what to cache, the beginning that its requests share (wire.md F.8).
 */
function cacheKey(x: CallFacts, own: Conversation): string | undefined {
  const { organization } = x.get(identity)
  const hashed = (hint: string) => hash('sha256', `${organization.id}\0${hint}`, 'base64url').slice(0, 32)
  const hint =
    own.cacheKey ?? x.incoming.headers.get('x-claude-code-session-id') ?? x.incoming.headers.get('session-id')
  if (hint !== undefined) return hashed(hint)
  const prefix = markedPrefix(own)
  if (prefix === undefined) return undefined
  const make = (value: unknown) => hashed(JSON.stringify(value))
  return x.peek(recent)?.beginning(prefix, make) ?? make(prefix)
}

/** System text and tools of a request with cache markers; later requests of the conversation have the same. */
function markedPrefix(conversation: Conversation): unknown[] | undefined {
  const { system, tools, turns } = conversation
  if (!formOf(conversation).marksCache || (system.length === 0 && tools.length === 0)) return undefined
  const marked =
    system.some(part => part.cache) ||
    tools.some(tool => 'cache' in tool && tool.cache) ||
    turns.some(turn => turn.parts.some(part => 'cache' in part && part.cache))
  if (!marked) return undefined
  return [system.filter(part => !part.meteredOnly).map(part => part.text), tools]
}
