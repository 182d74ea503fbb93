/**
 * `npm run bench:frames`: measures how long reading one event of a provider's stream takes, with
 * providers/frame-parser.ts and with JSON.parse alone. Both take turns on the same streams. Events are slices of one
 * text, as they are after a read of the upstream's socket. A figure is in ns for each event, from the fastest turn,
 * because other work on the machine can only add time.
 */
import { cpus, loadavg } from 'node:os'
import { FrameParser } from '../providers/frame-parser.ts'
import { parseObject } from '../providers/loose-json.ts'
import { row, time } from './meter-print.ts'

const EVENTS = 200
/** Number of turns. The code is compiled after a few of them. */
const TURNS = 600
/** Streams in one turn: so few that many turns are not interrupted by other work. */
const STREAMS = 5

/** Events with the same members, and ids of the same length, as those of the real providers. */
const dialects: Record<string, (text: string, i: number) => object> = {
  'openai-chat': content => ({
    id: 'chatcmpl-CfK2mXk1p0QvYcWb7Zt9Lr3sNd5Ha',
    object: 'chat.completion.chunk',
    created: 1763800000,
    model: 'gpt-4o-mini-2024-07-18',
    service_tier: 'default',
    system_fingerprint: 'fp_560af6e559',
    choices: [{ index: 0, delta: { content }, logprobs: null, finish_reason: null }],
    usage: null,
    obfuscation: 'aB3dE5f',
  }),
  'anthropic-messages': text => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } }),
  'openai-responses': (delta, i) => ({
    type: 'response.output_text.delta',
    sequence_number: i + 4,
    item_id: 'msg_68a1b2c3d4e5f60718293a4b5c6d7e8f9012',
    output_index: 0,
    content_index: 0,
    delta,
    logprobs: [],
    obfuscation: 'aB3dE5f6',
  }),
}

console.log(`Node ${process.version}, ${cpus()[0]?.model}, load ${loadavg()[0]!.toFixed(1)}\n`)
row('', ['frame parser', 'plain parse', 'plain / frame'])
for (const [name, event] of Object.entries(dialects)) {
  const events = Array.from({ length: EVENTS }, (_, i) => JSON.stringify(event(` word${i}`, i)))
  const read = events.join('\n')
  const nanoseconds = (open: () => (data: string) => unknown): number =>
    (time(() => {
      for (let n = 0; n < STREAMS; n++) {
        const parse = open()
        let at = 0
        for (const { length } of events) {
          if (parse(read.slice(at, at + length)) === undefined) throw new Error('an event was not read')
          at += length + 1
        }
      }
    }) *
      1e6) /
    (STREAMS * EVENTS)
  let frame = Number.POSITIVE_INFINITY
  let plain = Number.POSITIVE_INFINITY
  for (let turn = 0; turn < TURNS; turn++) {
    const frames = () => {
      const parser = new FrameParser(() => true)
      return (data: string) => parser.parse(data)
    }
    frame = Math.min(frame, nanoseconds(frames))
    plain = Math.min(
      plain,
      nanoseconds(() => parseObject),
    )
  }
  row(name, [frame, plain, plain / frame])
}
