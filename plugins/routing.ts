import type { Conversation } from '../core/canon/conversation.ts'
import {
  conversation as conversationSlot,
  definePlugin,
  deny,
  type Exchange,
  estimate,
  type Reply,
} from '../core/plugin.ts'
import type { Backend, Unfit } from '../core/ports/dialect.ts'
import { dialectOf } from '../providers/index.ts'
import { lackedBy, requirementsOf } from '../providers/requirements.ts'
import { unfitFor } from '../providers/structured-output.ts'
import type { WantedMedia } from './media/fetch-media.ts'
import { unsatisfied } from './model-access/rights.ts'
import { type Alike, choicesOf } from './shared/backend-order.ts'
import { sessionOf } from './shared/session.ts'
import {
  type CompactionPlan,
  candidates,
  compacting,
  counted,
  hostedSearch,
  identity,
  mediaFetch,
  model,
  plan,
  rights,
  type SearchPlan,
  upstreamConversation,
} from './shared/slots.ts'

/** Finds the backends that can serve the request, in order of preference (REQ-1, TOOL-5). */
export const routing = definePlugin({
  name: 'routing',
  summary: 'Finds the backends that can serve the request, in order.',
  needs: [identity, conversationSlot, model, rights, estimate],
  // What a line that is left out would offer is not offered; nothing else changes.
  reads: [compacting, hostedSearch, mediaFetch],
  provides: [candidates, plan],
  mayProvide: [upstreamConversation],
  aboveTerminal: true,
  dryRun: 'safe',
  create() {
    return {
      onRequest(x): undefined | Reply | Promise<undefined | Reply> {
        const conversation = x.get(conversationSlot)
        const denied = x.get(rights)(conversation)
        if (denied) return unsatisfied(x.get(model).id, denied)
        const unsearched = x.peek(hostedSearch)
          ? undefined
          : conversation.tools.find(tool => tool.type === 'web_search')
        if (unsearched)
          return unsatisfied(x.get(model).id, {
            param: unsearched.path,
            requirement: 'web_search, which is not offered here',
          })
        if (!conversation.compaction && !conversation.edits) return planned(x, conversation)
        const unmanaged = x.peek(compacting) ? undefined : managementOf(conversation)
        if (unmanaged !== undefined)
          return unsatisfied(x.get(model).id, {
            param: unmanaged,
            requirement: 'compaction, which is not offered here',
          })
        const compaction = x.get(compacting)(x)
        const goOn = (found: CompactionPlan | null | Reply) =>
          found && 'kind' in found ? found : planned(x, conversation, found ?? undefined)
        return compaction instanceof Promise ? compaction.then(goOn) : goOn(compaction)
      },
    }
  },
})

/** The member that asks for a compaction, or for edits of the history. */
function managementOf({ compaction, edits }: Conversation): string | undefined {
  return compaction?.path ?? (edits ? 'context_management.edits' : undefined)
}

/** Makes the plan, and chooses backends. */
function planned(
  x: Exchange,
  conversation: Conversation,
  compaction?: CompactionPlan,
): undefined | Reply | Promise<undefined | Reply> {
  const input = x.get(estimate).input + (compaction?.added ?? 0)
  let way = wayFor(x, conversation, input)
  let keepsFirstCall = false
  // Where no backend can be told to make one call, the gateway keeps the first (decision 59).
  if (!isServed(way.suited) && requirementsOf(conversation).needs.has('single_tool_call')) {
    const instead = wayFor(x, { ...conversation, parallelToolCalls: true }, input)
    if (isServed(instead.suited)) {
      way = instead
      keepsFirstCall = true
    }
  }
  x.set(plan, { search: way.search, keepsFirstCall, input, ...(compaction && { compaction }) })
  if (way.conversation !== conversation) x.set(upstreamConversation, way.conversation)
  return choose(x, way.conversation, way.suited)
}

/** How a request can be served. */
interface Way {
  conversation: Conversation
  suited: Suitability
  /** How its hosted search is run; null without one. */
  search: SearchPlan | null
}

function wayFor(x: Exchange, conversation: Conversation, tokens: number): Way {
  const suited = suitability(x, conversation, tokens)
  const hosted = x.peek(hostedSearch)
  const search = hosted?.native(conversation) ?? null
  const form = search && !isServed(suited) ? hosted!.asFunction(conversation) : null
  // No backend searches by itself: the gateway runs the search, and the model sees a function (decisions 34).
  const ours = form && suitability(x, form.conversation, tokens)
  return form && ours && isServed(ours)
    ? { conversation: form.conversation, suited: ours, search: form.plan }
    : { conversation, suited, search }
}

/** Which backends can serve a conversation, as it is or with its media fetched. */
function suitability(x: Exchange, conversation: Conversation, tokens: number): Suitability {
  const suited: Suitability = { fit: new Set(), lacksBytes: new Map(), why: new Map() }
  for (const alike of choicesOf(x.get(model)).alike) {
    const { one } = alike
    const dialect = dialectOf(one)
    const over = overWindow(one, tokens)
    const reason = over ?? unfitFor(conversation, one, dialect)
    if (!reason) {
      suited.fit.add(alike)
      continue
    }
    suited.why.set(alike, reason)
    if (over || !dialect.bytesOnly) continue
    const lacking = x.peek(mediaFetch)?.lacking(conversation, dialect.bytesOnly)
    if (lacking && !unfitFor(lacking.whole, one, dialect)) suited.lacksBytes.set(alike, lacking.wanted)
  }
  return suited
}

function choose(
  x: Exchange,
  conversation: Conversation,
  suited: Suitability,
): undefined | Reply | Promise<undefined | Reply> {
  const { fit, lacksBytes, why } = suited
  if (!isServed(suited)) return why.size > 0 ? refusal(x, conversation, why) : noBackend()
  if (lacksBytes.size > 0) {
    const first = inOrder(x, conversation, new Set([...fit, ...lacksBytes.keys()]))[0]
    const wanted = first && lacksBytes.get(choicesOf(x.get(model)).of(first))
    if (wanted) return withBytes(x, conversation, suited, wanted)
  }
  x.set(candidates, inOrder(x, conversation, fit))
  return undefined
}

/**
 * Names what no backend can do; where each can do a part, the requirements that none meets together. Named alone, a
 * requirement that another backend meets would hide that it is the combination which is at fault.
 */
function refusal(x: Exchange, conversation: Conversation, why: ReadonlyMap<Alike, Unfit>): Reply {
  const keyOf = ({ param, requirement }: Unfit) => `${param}\0${requirement}`
  const lacks = [...why].map(
    ([{ one }, first]) => new Map([first, ...lackedBy(conversation, one)].map(unfit => [keyOf(unfit), unfit])),
  )
  for (const [key, unfit] of lacks[0]!)
    if (lacks.every(others => others.has(key))) return unsatisfied(x.get(model).id, unfit)
  const named = new Map<string, Unfit>()
  for (const own of lacks) {
    if ([...named.keys()].some(key => own.has(key))) continue
    const [key, unfit] = [...own][0]!
    named.set(key, unfit)
  }
  const [first, ...together] = named.values()
  return unsatisfied(x.get(model).id, first!, ...together)
}

/** The preferred backend needs bytes: fetches them, then checks again which backends can serve the conversation. */
async function withBytes(
  x: Exchange,
  conversation: Conversation,
  { fit }: Suitability,
  wanted: readonly WantedMedia[],
): Promise<undefined | Reply> {
  const fetched = await x.get(mediaFetch).fetch(x, conversation, wanted)
  if (fetched.refused) {
    if (fetched.final || fit.size === 0) return fetched.refused
    // Another backend takes the URL itself.
    x.set(candidates, inOrder(x, conversation, fit))
    return undefined
  }
  // What was fetched is not billed by its size, but it counts in limits and in the window.
  const count = x.peek(counted)
  const added = x.get(plan).compaction?.added ?? 0
  const tokens = (await count?.again(fetched.whole)) ?? x.get(estimate).input
  if (typeof tokens !== 'number') return tokens
  const over = count?.over(tokens)
  if (over) return over
  const suited = suitability(x, fetched.whole, tokens)
  // A fetched file may have a type that no backend takes.
  if (suited.fit.size === 0) return refusal(x, fetched.whole, suited.why)
  x.set(plan, { ...x.get(plan), input: Math.max(tokens, x.get(estimate).input) + added })
  x.set(upstreamConversation, fetched.whole)
  x.set(candidates, inOrder(x, conversation, suited.fit))
  return undefined
}

function inOrder(x: Exchange, conversation: Conversation, chosen: ReadonlySet<Alike>): Backend[] {
  const { backends } = x.get(model)
  if (backends.length === 1) return [...backends]
  const choices = choicesOf(x.get(model))
  const order = choices.order(chosen.size === choices.alike.length ? null : chosen)
  const ordered = order.by(affinity(x, conversation))
  if (conversation.sampling.seed === undefined) return ordered
  // Among those that take the seed, and among the others, the order stays.
  return [...ordered.filter(takesSeed), ...ordered.filter(backend => !takesSeed(backend))]
}

function takesSeed(backend: Backend): boolean {
  return dialectOf(backend).seeds?.(backend) === true
}

interface Suitability {
  fit: Set<Alike>
  /** Backends that could serve the conversation if the gateway fetched its media, with the files to fetch. */
  lacksBytes: Map<Alike, readonly WantedMedia[]>
  /** The first reason why each unfit backend is unfit, in the order of the configuration. */
  why: Map<Alike, Unfit>
}

function isServed({ fit, lacksBytes }: Suitability): boolean {
  return fit.size > 0 || lacksBytes.size > 0
}

/**
 * A key that all requests of a conversation share: the client's cache key, else its session header, else the first
 * texts of the conversation. The organization is always part of it.
 */
function affinity(x: Exchange, conversation: Conversation): string {
  const organization = x.get(identity).organization.id
  if (conversation.cacheKey !== undefined) return `${organization}\0${conversation.cacheKey}`
  const session = sessionOf(x.incoming.headers)
  if (session !== undefined) return `${organization}\0${session}`
  let first = ''
  for (const part of conversation.system) first += part.text.slice(0, 2000)
  const user = conversation.turns.find(turn => turn.role === 'user')?.parts[0]
  if (user?.type === 'text') first += `\0${user.text.slice(0, 2000)}`
  return `${organization}\0${first}`
}

function overWindow(backend: Backend, tokens: number): Unfit | null {
  if (backend.contextWindow === undefined || tokens <= backend.contextWindow) return null
  return { param: 'model', requirement: `a context window of ${tokens} tokens` }
}

function noBackend(): Reply {
  return deny('provider_unavailable', {
    message: 'No upstream is configured for this model at present. Retry shortly.',
  })
}
