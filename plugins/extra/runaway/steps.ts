/**
 * What of a conversation is new. A conversation is a row of steps: what the user says, or a tool call with its result.
 * A step that the same conversation has had before brings nothing new, whatever the model has written in between.
 */
import { createHash, type Hash } from 'node:crypto'
import type { Conversation } from 'sluice'
import { Steps, untimed } from './times.ts'

type Turn = Conversation['turns'][number]
type Part = Turn['parts'][number]
type Call = Extract<Part, { type: 'call' }>
type Result = Extract<Part, { type: 'result' }>

/** UTF-16 units of text that are digested in one turn of the event loop: a millisecond at most. */
const SLICE = 262_144

/** Where a conversation stands. */
export interface Place {
  /** A digest of all up to the last new step: the same in all requests that have brought nothing new since. */
  id: string
  /** How many steps follow that one. */
  stale: number
}

/** Whether the last step may have been there before. It compares a few texts and digests nothing. */
export function mayBeStale({ turns }: Conversation): boolean {
  const last = turns.at(-1)
  if (!last) return false
  if (last.role !== 'tool') {
    const words = [...wordsOf(last)]
    return turns.some(turn => turn !== last && turn.role === last.role && isSame([...wordsOf(turn)], words))
  }
  const result = last.parts.findLast(part => part.type === 'result')
  const calls = turns.flatMap(({ parts }) => parts.filter(part => part.type === 'call'))
  const own = calls.findLast(({ id }) => id === result?.callId)
  return own !== undefined && calls.some(call => call !== own && call.name === own.name && call.input === own.input)
}

function isSame(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((text, i) => text === others[i])
}

/**
 * Finds the last new step. It yields after each slice of the work.
 * @param user for whom, within the key, the request is
 * @param now Unix milliseconds
 */
export function* placeOf(asked: Conversation, user: string, now: number): Generator<undefined, Place> {
  const { model, sampling, reasoning, output, toolChoice, tools, cacheKey, system, turns } = asked
  const settings = JSON.stringify([model, sampling, reasoning.effort, output, toolChoice, tools, cacheKey, user])
  const pieces = [digestOf([settings, ...system.map(({ text }) => text)])]
  const steps = new Steps()
  const calls = new Map<string, Call>()
  let [newest, stale, units] = [pieces.length, 0, 0]
  const step = (digest: string, times: readonly number[] = []): void => {
    // What differs in such a time alone is another place.
    pieces.push(times.length === 0 ? digest : digestOf([digest, String(times)]))
    stale++
    if (!steps.isNew(digest, times)) return
    newest = pieces.length
    stale = 0
  }
  for (const [i, turn] of turns.entries()) {
    for (const part of turn.parts) {
      if (part.type === 'call') calls.set(part.id, part)
      if (part.type !== 'result') continue
      const times: number[] = []
      const texts = textsOfResult(part, calls.get(part.callId), now, times)
      step(digestOf(texts), times)
      for (const text of texts) units += text.length
    }
    const words = [...wordsOf(turn)]
    for (const text of words) units += text.length
    if (turn.role === 'assistant') {
      // What the model says makes no step, unless the client ends the prompt with it. A step it is for who answers it.
      if (i === turns.length - 1) step(digestOf(['assistant', ...words]))
      else pieces.push(digestOf(words))
    } else if (turn.role !== 'tool') {
      const before = turns[i - 1]
      step(digestOf([turn.role, ...words, ...(before?.role === 'assistant' ? wordsOf(before) : [])]))
    }
    if (units < SLICE) continue
    units = 0
    yield
  }
  return { id: digestOf(pieces.slice(0, newest)), stale }
}

/** A call and what it brought, without the times of that. */
function textsOfResult({ content, isError }: Result, call: Call | undefined, now: number, times: number[]): string[] {
  const asked = call ? [...wordsOfPart(call)] : []
  const told = content.flatMap(part => [...wordsOfPart(part)])
  return [...asked, String(isError === true), ...told.map(text => untimed(text, now, times))]
}

/** All that a turn says, but for results of tools and for reasoning, of which clients drop what is old. */
function* wordsOf({ parts }: Turn): Iterable<string> {
  for (const part of parts) if (part.type !== 'result') yield* wordsOfPart(part)
}

function* wordsOfPart(part: Part): Iterable<string> {
  switch (part.type) {
    case 'text':
    case 'refusal':
      yield part.text
      break
    case 'call':
      yield* [part.kind, part.namespace ?? '', part.name, part.input]
      break
    case 'image':
      yield part.source.kind === 'url' ? part.source.url : part.source.data
      break
    case 'document': {
      const { source, title = '', context = '' } = part
      yield* [title, context, source.kind === 'url' ? source.url : source.kind === 'text' ? source.text : source.data]
      break
    }
    case 'search':
      yield part.query
      for (const { url, text = '' } of part.results) yield* [url, text]
      break
    case 'result':
    case 'reasoning':
      break
  }
}

/** Two lists of texts have one digest only when they are the same. */
function digestOf(texts: readonly string[]): string {
  const hash: Hash = createHash('sha256')
  for (const text of texts) hash.update(`${text.length}:`).update(text)
  return hash.digest('base64')
}
