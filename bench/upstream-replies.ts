/**
 * What the benchmarks' upstream answers, in the form of each API, and what a client must find in it whichever gateway
 * stands between.
 */

import { type Said, streamOf, type WrittenDialect, wholeOf } from '../test/fake-upstream/replies.ts'
import { agentEcho } from './agents.ts'
import type { Route } from './requests.ts'

/** Number of content events of a stream. Frames that open and close the stream are not counted. */
export const EVENTS = 200
/** The same of an answer to an agent. */
export const AGENT_EVENTS = 60
export const eventsOf = ({ agents }: Pick<Route, 'agents'>): number => (agents ? AGENT_EVENTS : EVENTS)
/** The length of the body of the buffered chat reply, in bytes. */
const REPLY_BYTES = 400

const words = (events: number) => Array.from({ length: events }, (_, i) => ` word${i}`)
/** The text of a stream with this many events. */
export const streamText = (events: number): string => words(events).join('')

/** A reply of this many tokens. It is bare, because short events are the harder load for a proxy. */
const said = (pieces: readonly string[], output: number): Said => ({
  pieces,
  tag: 'bench',
  model: 'bench',
  created: 1700000000,
  usage: { input: 250, cached: 0, output, reasoning: 0 },
  bare: true,
})
const buffered = (text: string) => said([text], 30)

/** The text of a buffered reply. */
export const TEXT = 'The quick brown fox jumps over the lazy dog. '
  .repeat(9)
  .slice(0, REPLY_BYTES - wholeOf('openai-chat', buffered('')).length)
  .replace(/.$/, '.')

export interface Reply {
  whole: Buffer
  /** The frames of the stream, one buffer for each. */
  frames: Buffer[]
  /** Those of a stream to an agent. */
  agentFrames: Buffer[]
}

const frames = (dialect: WrittenDialect, events: number, more?: Pick<Said, 'echo'>) =>
  streamOf(dialect, { ...said(words(events), 2 * events), ...more }).map(text => Buffer.from(text))
const reply = (dialect: WrittenDialect): Reply => ({
  whole: Buffer.from(wholeOf(dialect, buffered(TEXT))),
  frames: frames(dialect, EVENTS),
  agentFrames: frames(dialect, AGENT_EVENTS, { echo: agentEcho() }),
})

/** The replies, by the path of the request. */
export const replies: Record<string, Reply> = {
  '/v1/chat/completions': reply('openai-chat'),
  '/v1/messages': reply('anthropic-messages'),
  '/v1/responses': reply('openai-responses'),
}
