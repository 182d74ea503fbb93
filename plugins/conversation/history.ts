import { type Conversation, type DocumentPart, formOf, type Part, type Turn } from '../../core/canon/conversation.ts'
import { deny, type Reply } from '../../core/plugin.ts'
import { jsonNodes } from '../../core/tools/json.ts'
import type { ContentBound } from '../shared/content-bounds.ts'
import type { ContentLimits } from '../shared/slots.ts'
import { handleOf } from './handles.ts'

/**
 * Checks the tool history once, before any model runs (TOOL-4, wire.md B.6). Refused are a call id that is used twice,
 * a result for an unknown call, a second result, and a call without a result before the next user turn or the end. So
 * is a second use of an id under which the gateway keeps data of reasoning or of a search: each copy would be sent with
 * all that is kept, and only its id would be counted (decision 48).
 */
export function checkHistory(turns: readonly Turn[]): undefined | Reply {
  /** By call id: true once the result has come. Made at the first call, because most conversations have none. */
  let answered: Map<string, boolean> | undefined
  /** Ids of reasoning and searches with stored data. */
  let stored: Set<string> | undefined
  let open = 0
  let lastPath = ''
  for (const turn of turns) {
    if (turn.role === 'user' && open > 0) return unanswered(answered, lastPath)
    for (const part of turn.parts) {
      if (part.type === 'call') {
        answered ??= new Map()
        if (answered.has(part.id))
          return broken(
            part.id,
            part.path,
            `the call id ${part.id} is issued twice. Every call needs an id of its own.`,
          )
        answered.set(part.id, false)
        open++
        lastPath = part.path
      } else if (part.type === 'result') {
        const state = answered?.get(part.callId)
        if (state === undefined)
          return broken(
            part.callId,
            part.path,
            `there is no earlier call ${part.callId} for this result. Replay the call before its result.`,
          )
        if (state)
          return broken(
            part.callId,
            part.path,
            `the call ${part.callId} has a second result. Send one result for each call.`,
          )
        answered!.set(part.callId, true)
        open--
      } else {
        const handle = handleOf(part)
        if (handle === undefined) continue
        stored ??= new Set()
        if (stored.has(handle)) return broken(handle, '', `the item ${handle} occurs twice. Send it once.`, 'item_id')
        stored.add(handle)
      }
    }
  }
  return open > 0 ? unanswered(answered, lastPath) : undefined
}

function unanswered(answered: Map<string, boolean> | undefined, path: string): Reply {
  for (const [id, done] of answered ?? []) {
    if (!done)
      return broken(
        id,
        path,
        `the call ${id} has no result before the next user turn or the end of the request. Send its result first.`,
      )
  }
  throw new Error('no open call')
}

function broken(id: string, path: string, why: string, detail = 'call_id'): Reply {
  return deny('conversation_invariant', {
    message: `The tool history is inconsistent: ${why}`,
    param: path || null,
    details: { [detail]: id },
  })
}

/**
 * The limits on images, documents, replayed history, and values in the arguments of its calls (REQ-2).
 * @returns the size of the replayed history, or the refusal
 */
export function checkContent(conversation: Conversation, limits: ContentLimits): number | Reply {
  let images = 0
  let documents = 0
  let replay = 0
  let input = 0
  const lastUser = conversation.turns.findLastIndex(turn => turn.role === 'user')
  for (const [i, turn] of conversation.turns.entries()) {
    for (const part of turn.parts) {
      for (const item of part.type === 'result' ? part.content : [part]) {
        if (item.type === 'image') images++
        else if (item.type === 'document') documents++
        else if (item.type === 'call' && item.kind === 'function') input += item.input.length
      }
      if (i !== lastUser) replay += sizeOf(part)
    }
  }
  if (images > limits.images) return over(conversation, 'images', images, limits.images, 'max_images')
  if (documents > limits.documents) return over(conversation, 'documents', documents, limits.documents, 'max_documents')
  if (replay > limits.replayBytes)
    return over(conversation, 'bytes of replayed history', replay, limits.replayBytes, 'max_replay')
  // A JSON value takes at least one byte, so shorter arguments need not be looked at.
  const nodes = input > limits.nodes ? nodesOf(conversation) : 0
  if (nodes > limits.nodes)
    return over(conversation, 'values in the arguments of tool calls', nodes, limits.nodes, 'max_nodes')
  return replay
}

/**
 * UTF-16 units of all that a client can make long in a part. Ids and unused reasoning count too: they cost no tokens,
 * but they are stored and read again.
 */
function sizeOf(part: Part): number {
  switch (part.type) {
    case 'text':
      return part.text.length + (part.capsule ? part.capsule.sealed.length : 0)
    case 'refusal':
      return part.text.length
    case 'image':
      return sourceSize(part.source)
    case 'document':
      return sourceSize(part.source) + (part.title?.length ?? 0) + (part.context?.length ?? 0)
    case 'call':
      return part.input.length + part.name.length + part.id.length
    case 'result':
      return part.content.reduce((size, item) => size + sizeOf(item), part.callId.length)
    case 'reasoning':
      return part.summary.reduce((size, text) => size + text.length, part.handle?.length ?? 0)
    case 'search':
      return part.results.reduce(
        (size, { title, url, text, pageAge, handle }) =>
          size + title.length + url.length + (text?.length ?? 0) + (pageAge?.length ?? 0) + (handle?.length ?? 0),
        part.query.length + part.id.length,
      )
  }
}

function sourceSize(source: DocumentPart['source']): number {
  return source.kind === 'data' ? source.data.length : source.kind === 'text' ? source.text.length : source.url.length
}

/** The size of all that a retained response brings back, counted like `sizeOf`. */
export function sizeOfAll({ system, turns }: { system: readonly Part[]; turns: readonly Turn[] }): number {
  let size = 0
  for (const part of system) size += sizeOf(part)
  for (const turn of turns) for (const part of turn.parts) size += sizeOf(part)
  return size
}

/** The refusal of stored responses that are over the limit before all of them have been read. */
export function tooMuchRecalled(conversation: Conversation, found: number, { replayBytes }: ContentLimits): Reply {
  return over(conversation, 'bytes of replayed history and more', found, replayBytes, 'max_replay')
}

/**
 * JSON values in the arguments of function calls. The token count and some dialects parse them, which takes as long as
 * parsing as many values of the body.
 */
function nodesOf({ turns }: Conversation): number {
  let nodes = 0
  for (const { parts } of turns) {
    for (const part of parts) {
      if (part.type !== 'call' || part.kind !== 'function') continue
      nodes += jsonNodes(part.input)
    }
  }
  return nodes
}

function over(conversation: Conversation, what: string, found: number, max: number, bound: ContentBound): Reply {
  return deny('content_limit_exceeded', {
    message: `The request holds ${found} ${what}; the limit is ${max} (${bound}). Send fewer.`,
    param: formOf(conversation).members.turns,
    bound,
  })
}
