import { keptTurns, standIn, withCapsule } from '../../core/canon/compaction.ts'
import { type Conversation, formOf, type Turn } from '../../core/canon/conversation.ts'
import type { CompactionEvent, FinishEvent, ReplyWarning, StreamEvent } from '../../core/canon/events.ts'
import { withItemId } from '../../core/canon/joined.ts'
import { ReplyRecorder } from '../../core/canon/recorder.ts'
import {
  conversation as conversationSlot,
  definePlugin,
  deny,
  type Exchange,
  GatewayError,
  type Reply,
  request,
  requestBody,
  slot,
} from '../../core/plugin.ts'
import type { MaybePromise } from '../../core/ports/store.ts'
import { itemId } from '../../core/tools/ids.ts'
import { Sealer } from '../../core/tools/sealer.ts'
import { duration, object, size } from '../../core/tools/vocabulary.ts'
import { counting } from '../admission/counting.ts'
import { ModelAccess } from '../model-access/access.ts'
import { type Asked, allAsked, askedBy, isNarrowed, refusalOf, refusalOfUnknown } from '../model-access/asked.ts'
import { type ReadableResponse, readableOf } from '../shared/readable.ts'
import { recentOf } from '../shared/recent.ts'
import {
  type Adjusted,
  adjusted,
  contentLimits,
  identity,
  limitsCheck,
  parsedConversation,
  plan,
  preparing,
  recalledAsked,
} from '../shared/slots.ts'
import { Capsules } from './capsules.ts'
import { checkContent, checkHistory, tooMuchRecalled } from './history.ts'
import {
  type Added,
  ConnectionMemory,
  continueFrom,
  type Links,
  Memory,
  type Reader,
  type Recalled,
  type Take,
} from './memory.ts'
import { modelOf, notKnown, RetainedReplies, shown } from './replies.ts'

/** What has less time left may be gone when it is renewed: the clock of Redis is another one, and a write takes time. */
const RENEWABLE_MS = 60_000

/** What this exchange will retain; filled while its reply is recorded. */
const recording = slot<Recording>('recording')
interface Recording {
  recorder: ReplyRecorder
  /** What this request added, without the stored responses that it continues. */
  fresh: Added
  /** The conversation as this plugin handed it on; a plugin below may have put another in its place. */
  handedOn: Conversation
  /** Whether the client gets summaries of the reasoning. */
  summaries: boolean
  /** A capsule stands for earlier responses: what is retained needs no link to them. */
  cut: boolean
  /** Where it is kept: with the client's connection when the client asked not to store it, else in the store. */
  local: ConnectionMemory | undefined
  /** What the request continues; undefined when it continues nothing. */
  links?: Links
  /** Set once the turn is being stored; settles when it is. */
  stored?: Promise<void>
  /** What the request asked for; set with the turn. */
  asked?: Asked
  /** Set where the request asked that its response can be read while it runs, and runs on without its client. */
  readable?: ReadableResponse
}

/** The header of a request whose stream can be read while it runs (RESP-9). */
const RESUMABLE = 'x-sluice-resumable'

/**
 * Public id of the open reasoning item. It is made at the item's first delta, and is also the handle of the item's
 * private data.
 */
const openReasoning = slot<string | undefined>('openReasoning')

const schema = object({
  retain: duration('24h', 'How long a response can be retrieved, and continued by previous_response_id, from its end.'),
  max_retained: size('1MiB', 'A larger response object is served and not retained.'),
  continuation: duration(
    '72h',
    'How long the data is kept that a provider needs back on the next turn, and that no client sees.',
  ),
})

/**
 * Completes the conversation: adds the turns behind previous_response_id, checks the tool history, and restores
 * providers' private data. When the reply comes back, it stores such data and retains the reply.
 */
export const conversationPlugin = definePlugin({
  name: 'conversation',
  summary: 'Recalls and checks the history, and remembers what the next turn needs.',
  config: schema,
  needs: [identity, request, parsedConversation],
  provides: [conversationSlot],
  mayProvide: [recording, openReasoning, recalledAsked],
  aboveTerminal: true,
  dryRun: 'safe',
  uses: ['models', 'platform'],
  create(options, context) {
    const bounds = context.config.platform.recent_conversations
    // A plugin that is not the gateway's own may change a record that others share.
    const keeps = bounds.bytes > 0 && !context.foreign
    const memory = new Memory(
      context.store,
      new Sealer(context.secret),
      context.clock,
      options.retain,
      options.continuation,
      keeps ? { all: recentOf(context.shared), bounds } : null,
    )
    // Objects are stored only where a route gives them out.
    const retrievable = context.retrieved.has('reply')
    const replies = new RetainedReplies(context.store, context.secret, context.clock)
    const access = new ModelAccess(context.config)
    const capsules = new Capsules(context.secret)
    const takeOne = counting(context.store)
    const readable = readableOf(context.shared)

    function onRequest(x: Exchange): undefined | Reply | Promise<undefined | Reply> {
      const conversation = x.get(parsedConversation)
      x.set(conversationSlot, conversation)
      // An advisory chain refuses no history and retains nothing, but it counts what would be sent.
      if (context.terminal.advisory) {
        const id = conversation.previousResponseId
        if (id === undefined) return restore(x, opened(x, conversation))
        return recall(x, conversation, id).then(found => restore(x, 'kind' in found ? found : opened(x, found)))
      }

      const connection = x.incoming.connection
      const retains =
        formOf(conversation).retains === true && (conversation.store !== false || connection !== undefined)
      const resumable = formOf(conversation).retains === true && isResumable(x, conversation, retrievable)
      if (typeof resumable === 'object') return resumable
      if (retains)
        x.set(recording, {
          recorder: new ReplyRecorder(),
          fresh: freshOf(conversation),
          handedOn: conversation,
          summaries: conversation.reasoning.summary !== undefined,
          cut: false,
          local: conversation.store === false && connection ? ConnectionMemory.of(connection) : undefined,
          ...(resumable && { readable: readable.run(x, x.get(identity).organization.id, () => askedBy(x)) }),
        })
      if (conversation.previousResponseId === undefined) return complete(x, opened(x, conversation))
      return recall(x, conversation, conversation.previousResponseId).then(found =>
        complete(x, 'kind' in found ? found : opened(x, found)),
      )
    }

    /** @returns the conversation with its capsule opened, which is then that of the exchange, or the refusal */
    function opened(x: Exchange, conversation: Conversation): Conversation | Reply {
      if (!conversation.sealed) return conversation
      const whole = capsules.open(x.get(identity).organization.id, conversation)
      // A count that judges no body counts what it can read.
      if ('kind' in whole) return context.terminal.advisory && !x.surface?.judgesCounts ? conversation : whole
      x.set(conversationSlot, whole)
      const kept = x.peek(recording)
      if (kept) {
        kept.handedOn = whole
        kept.cut = true
      }
      return whole
    }

    function restore(x: Exchange, conversation: Conversation | Reply): undefined | Reply | Promise<undefined> {
      if ('kind' in conversation) return conversation
      const { organization } = x.get(identity)
      const restored = memory.restore(organization.id, conversation, x.get(contentLimits).replayBytes, takerOf(x))
      return restored?.then(() => undefined)
    }

    /** @returns the conversation with the turns behind `id`, which is then that of the exchange, or the refusal */
    async function recall(x: Exchange, conversation: Conversation, id: string): Promise<Conversation | Reply> {
      const refused = await x.peek(limitsCheck)?.(x)
      if (refused) return refused
      const { connection } = x.incoming
      const local = connection && ConnectionMemory.of(connection)
      const limits = x.get(contentLimits)
      // The last user turn does not count as replayed history, and it may be one of the recalled turns.
      const room = limits.replayBytes + limits.bodyBytes
      const organization = x.get(identity).organization.id
      const stored = await memory.recall(organization, id, room, readerOf(x), local)
      if (typeof stored === 'number') return tooMuchRecalled(conversation, stored, limits)
      if ('gone' in stored) return unknownResponse(id, stored.gone)
      const beyond = await refusalOfRecall(x, stored)
      if (beyond) return beyond
      x.set(recalledAsked, allAsked(stored.asked))
      const whole = continueFrom(stored, conversation)
      x.set(conversationSlot, whole)
      const kept = x.peek(recording)
      if (kept) {
        kept.handedOn = whole
        kept.links = { stored: stored.stored, ends: stored.ends, local: stored.local }
      }
      return whole
    }

    /** The key may be another one of the organization than that which made the responses (decision 79). */
    async function refusalOfRecall(x: Exchange, { asked, unknown }: Recalled): Promise<undefined | Reply> {
      const caller = x.get(identity)
      for (const one of asked) {
        const refused = refusalOf(access, caller, one, false, 'previous_response_id')
        if (refused) return refused
      }
      if (!isNarrowed(caller)) return undefined
      for (const id of unknown) {
        const reply = await replies.get(caller.organization.id, id)
        const model = () => modelOf(reply?.object)
        const refused = refusalOfUnknown(access, caller, model, 'previous_response_id')
        if (refused) return refused
      }
      return undefined
    }

    function complete(x: Exchange, conversation: Conversation | Reply): undefined | Reply | Promise<undefined | Reply> {
      if ('kind' in conversation) return conversation
      const limits = x.get(contentLimits)
      const replayed = checkHistory(conversation.turns) ?? checkContent(conversation, limits)
      if (typeof replayed !== 'number') return replayed
      const organization = x.get(identity).organization.id
      if (conversation.generate === false) return takeIn(x, conversation)
      const restored = memory.restore(organization, conversation, limits.replayBytes - replayed, takerOf(x))
      return restored?.then(over =>
        over === undefined ? undefined : tooMuchRecalled(conversation, replayed + over, limits),
      )
    }

    /** A request that generates nothing: it is kept so that a later request can continue it. */
    function takeIn(x: Exchange, conversation: Conversation): Reply | Promise<Reply> {
      const kept = x.get(recording)
      const own = kept.cut ? freshOf(conversation) : kept.fresh
      if (Buffer.byteLength(JSON.stringify(own)) > options.max_retained && !kept.local)
        return tooLargeToKeep(options.max_retained)
      const saved = retain(x, kept, own, kept.cut ? undefined : conversation.previousResponseId, null)
      return saved instanceof Promise ? saved.then(() => ({ kind: 'empty' })) : { kind: 'empty' }
    }

    /**
     * Holds the reply until `saved` is done: what the next turn needs is written before the client sees this turn end
     * (decisions 5).
     */
    function holdFor(x: Exchange, saved: MaybePromise<void>): void {
      if (!(saved instanceof Promise)) return
      const release = x.hold()
      saved.then(release, error => {
        x.fail(
          new GatewayError('provider_unavailable', {
            message: 'A platform dependency is not available: the reply could not be stored. Retry shortly.',
            cause: error,
          }),
        )
        release()
      })
    }

    function keepPrivate(x: Exchange, event: StreamEvent): StreamEvent {
      const organization = x.get(identity).organization.id
      switch (event.type) {
        // What masks texts has put them back by now.
        case 'compaction':
          return { ...event, sealed: capsules.seal(organization, event) }
        case 'tool_call':
          if (!event.continuation) return event
          holdFor(x, memory.keep(organization, event.id, event.continuation))
          return { ...event, continuation: undefined }
        case 'search_end':
          if (!event.continuation) return event
          holdFor(x, memory.keep(organization, event.id, event.continuation))
          return { ...event, continuation: undefined }
        case 'reasoning': {
          if (x.peek(openReasoning) !== undefined) return event
          const id = itemId()
          x.set(openReasoning, id)
          return withItemId(event, id)
        }
        case 'reasoning_end': {
          const handle = x.peek(openReasoning) ?? itemId()
          x.set(openReasoning, undefined)
          if (!event.continuation) return event
          holdFor(x, memory.keep(organization, handle, event.continuation))
          return { type: 'reasoning_end', handle }
        }
        default:
          return event
      }
    }

    /** @returns false when the reply is too large to be retained */
    function retainReply(x: Exchange, kept: Recording): boolean {
      const { recorder, fresh, handedOn, cut, local, links } = kept
      const conversation = x.get(conversationSlot)
      const reply = recorder.turn()
      const { compaction } = recorder
      if (!local) {
        const said = compaction ? [reply, compaction.summary, compaction.sealed] : reply
        const size = Buffer.byteLength(JSON.stringify(said))
        // An echo is measured only where it may matter: it takes as long as writing it.
        const most = size + ECHO_BYTES + ECHOED_BYTES * (x.peek(requestBody)?.length ?? Number.POSITIVE_INFINITY)
        if (most > options.max_retained && size + echoBytes(x.get(request)) > options.max_retained) return false
      }
      // A plugin below may have masked what must not be kept. Then the whole conversation is kept as that plugin left
      // it, without a link to the earlier responses. So it is where these end before this reply is stored.
      const rewritten = conversation !== handedOn
      const ending = links?.ends !== undefined && links.ends - context.clock.now() < RENEWABLE_MS
      const whole = rewritten || ending || cut || compaction !== undefined
      const own = whole ? freshOf(compaction ? compacted(conversation, compaction) : conversation) : fresh
      holdFor(x, retain(x, kept, own, whole ? undefined : conversation.previousResponseId, reply))
      return true
    }

    /** @param own what is kept of the request; the reply's turn comes behind it */
    function retain(
      x: Exchange,
      kept: Recording,
      own: Added,
      previous: string | undefined,
      reply: Turn | null,
    ): MaybePromise<void> {
      kept.asked = askedBy(x)
      const turns = reply ? [...own.turns, reply] : own.turns
      const added = { ...own, turns, previous, inputs: own.turns.length, asked: kept.asked }
      const saved = memory.retain(x.get(identity).organization.id, `resp_${x.objectId}`, added, kept.links, kept.local)
      if (!kept.local) kept.stored = Promise.resolve(saved)
      return saved
    }

    /** A reply that its client left or deleted, or that broke off, after its turn was written cannot be continued either. */
    function forget(x: Exchange, stored: Promise<void>): void {
      const { organization } = x.get(identity)
      // A write that failed may have been done.
      stored
        .catch(() => {})
        .then(() => memory.forget(organization.id, `resp_${x.objectId}`))
        .catch(err => context.log.warn({ request_id: x.id, err }, 'a response that nobody received was not deleted'))
    }

    return {
      // A warm-up takes from no other limit, and what it costs is to read, count and keep it (decision 52).
      beforeBody: x => (x.incoming.warmUp ? takeOne(x) : undefined),
      onRequest,
      rewriteEvent(x, event, push) {
        const later = x.peek(plan)?.keepsFirstCall ? ofLaterCall(event) : undefined
        if (later) {
          if (event.type === 'tool_call' && event.index === 1)
            context.log.debug({ request_id: x.id }, 'later calls were dropped: the client wants one')
          push(later)
          return undefined
        }
        const kept = x.peek(recording)
        if (event.type === 'finish') {
          // A reply whose end the client did not wait for is billed for what was delivered (BILL-3). It is not
          // retained, whether the upstream was cancelled or drained: otherwise the rest could be had unpaid, by
          // continuing it.
          const retained = !kept || x.clientGone || retainReply(x, kept)
          push(withWarnings(event, retained ? undefined : notRetained(options.max_retained), x.peek(adjusted)))
          return undefined
        }
        const shown = keepPrivate(x, event)
        kept?.recorder.push(asShown(shown, kept))
        push(shown)
        return undefined
      },
      onSettle(x, { outcome, error }) {
        const { stored, asked, readable } = x.peek(recording) ?? {}
        if (!stored) return undefined
        if (outcome === 'client_gone' || error || readable?.deleted) {
          forget(x, stored)
          return undefined
        }
        const object = retrievable && x.wholeReply()
        if (!object) return undefined
        const { organization } = x.get(identity)
        const reply = { object, asked, events: x.sentStream?.events() ?? '' }
        const saved = replies.keep(organization.id, `resp_${x.objectId}`, reply, options.retain)
        readable?.stores(saved)
        // The reply does not wait for it, and is not lost with it: it can be continued, and not be retrieved.
        if (saved instanceof Promise)
          saved.catch(err => context.log.warn({ request_id: x.id, err }, 'a response object was not stored'))
        return undefined
      },
    }
  },
})

/** Whether the request asks for a stream that can be read while it runs; the refusal where it can't. */
function isResumable(x: Exchange, { store, stream, generate }: Conversation, retrievable: boolean): boolean | Reply {
  const value = x.incoming.headers.get(RESUMABLE)
  if (value === undefined || value === 'false') return false
  if (value !== 'true') {
    return deny('bad_request', { message: `The ${RESUMABLE} header must be true or false.`, param: RESUMABLE })
  }
  if (!stream || generate === false) return false
  if (store === false) {
    return deny('invalid_value', {
      message: `'store' is false, and ${RESUMABLE} asks for a response that can be read again. Leave one of them out.`,
      param: 'store',
    })
  }
  if (!retrievable) {
    return deny('unsupported_parameter', {
      message: `${RESUMABLE} is not offered here: this service gives out no stored responses. Leave the header out.`,
      param: RESUMABLE,
    })
  }
  return true
}

/** The conversation as a compaction leaves it. A plugin may have masked what stays, so it is taken from there. */
function compacted(conversation: Conversation, { id, summary, sealed, keeps, most }: CompactionEvent): Conversation {
  const capsule = { id, sealed, keeps, path: 'previous_response_id' }
  const kept = keptTurns(conversation.turns, keeps, most)
  return withCapsule(conversation, kept, { type: 'text', text: standIn(summary), capsule }, [])
}

/** The end of a reply, with what its client should know of it. */
function withWarnings(
  finish: FinishEvent,
  unretained: ReplyWarning | undefined,
  changes: readonly Adjusted[] | undefined,
): FinishEvent {
  const warnings = [...(finish.warnings ?? [])]
  if (unretained) warnings.push(unretained)
  if (changes?.length) warnings.push(notAsWritten(changes))
  return warnings.length === 0 ? finish : { ...finish, warnings }
}

function notRetained(max: number): ReplyWarning {
  return {
    code: 'not_retained',
    message: `This response is larger than ${max} bytes, so it is not retained: it can neither be retrieved nor continued by previous_response_id. Send the conversation as input.`,
  }
}

function notAsWritten(changes: readonly Adjusted[]): ReplyWarning {
  const list = changes.map(({ field, reason }) => `${field} (${reason.replaceAll('_', ' ')})`).join(', ')
  return {
    code: 'adjusted',
    message: `Not sent to the model as written: ${list}. Leave it out, or choose another model.`,
  }
}

/** Counts what is recalled in the budget of work before admission, as if it had come in the body. */
function takerOf(x: Exchange): Take {
  const prepared = x.peek(preparing)
  return bytes => {
    const refusal = prepared?.take(bytes)
    if (refusal) throw refusal.error
  }
}

function readerOf(x: Exchange): Reader {
  const prepared = x.peek(preparing)
  return { take: takerOf(x), onLeave: release => (prepared ? prepared.onLeave(release) : x.defer(release)) }
}

/**
 * What a continued response has of a conversation: everything but its `instructions` and declared tools, which belong
 * to one request.
 */
function freshOf({ system, instructionParts, turns, tools, loadedTools }: Conversation): Added {
  const fresh: Added = { system: system.slice(instructionParts), turns }
  if (loadedTools) fresh.tools = tools.slice(-loadedTools)
  return fresh
}

/**
 * What remains of an event of a call after the first: output to count, which nobody sees. Undefined for any other
 * event.
 */
function ofLaterCall(event: StreamEvent): StreamEvent | undefined {
  switch (event.type) {
    case 'tool_call':
      if (event.index === 0) return undefined
      return { type: 'activity', unseen: { item: `name${event.index}`, text: event.name } }
    case 'tool_args':
      if (event.index === 0) return undefined
      return { type: 'activity', unseen: { item: `args${event.index}`, text: event.text } }
    case 'tool_end':
      return event.index === 0 ? undefined : { type: 'activity' }
    default:
      return undefined
  }
}

/**
 * An event as it is recorded: without reasoning that the client did not get. The client cannot replay that, so it must
 * not pay for it either when it continues by `previous_response_id` (METER-1).
 */
function asShown(event: StreamEvent, { summaries }: Recording): StreamEvent {
  return event.type === 'reasoning' && !summaries ? { ...event, text: '' } : event
}

/** Bytes of the members of a Responses object that hardly differ, together. */
const ECHO_BYTES = 600
/** JSON that is parsed and written again has at most this many times its bytes: `1E20` becomes 21 digits. */
const ECHOED_BYTES = 6

/** Bytes of the members that a Responses object echoes. With the output they make the size that RESP-3 limits. */
function echoBytes(body: Record<string, unknown>): number {
  let bytes = ECHO_BYTES
  for (const member of ['instructions', 'tools', 'metadata', 'tool_choice']) {
    const value = body[member]
    if (value !== undefined) bytes += Buffer.byteLength(JSON.stringify(value))
  }
  return bytes
}

function tooLargeToKeep(max: number): Reply {
  return deny('content_limit_exceeded', {
    message: `With "generate": false the input is kept for the next request, and it is over the limit of ${max} bytes (max_retained). Send it with that request, or set "store": false to keep it with the connection alone.`,
    param: 'input',
    bound: 'max_retained',
  })
}

/** @param gone the id that is not there: `id`, or that of a response before it */
function unknownResponse(id: string, gone: string): Reply {
  const message =
    gone === id
      ? notKnown(id)
      : `The response${shown(id)} can be retrieved and not be continued: it continues${shown(gone)}, which was deleted, has expired or has made way for newer ones.`
  return deny('previous_response_not_found', {
    message: `${message} Send the whole conversation as input.`,
    param: 'previous_response_id',
  })
}
