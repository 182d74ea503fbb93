/** A stream of Responses that is read again: while it is made, and of the finished object with its log. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { GatewayError } from '../../core/canon/errors.ts'
import type { StreamEvent, TokenLogprob } from '../../core/canon/events.ts'
import type { Encoder, SentStream, StreamReader } from '../../core/ports/surface.ts'
import { responses } from '../../surfaces/responses/index.ts'
import { streamOf } from '../../surfaces/responses/sent-stream.ts'
import { bare, contextFor, frames, playing, type Reply, replies, USAGE } from './openai-kit.ts'

const BODY = {
  model: 'eb1-preview',
  input: 'hi',
  stream: true as const,
  reasoning: { summary: 'auto' as const },
  metadata: { note: '"é\ud83d' },
  tools: [
    { type: 'tool_search' as const, execution: 'client' as const },
    { type: 'function' as const, name: 'get_weather', parameters: { type: 'object', minimum: 1.5 }, strict: false },
  ],
  top_logprobs: 1,
  include: [
    'reasoning.encrypted_content' as const,
    'web_search_call.action.sources' as const,
    'message.output_text.logprobs' as const,
  ],
}

const encoderOf = (body: object = BODY): Encoder =>
  responses.encoder(contextFor(responses, structuredClone(body) as never))

/** Everything that a reader can have now. */
function rest(reader: StreamReader, visible: number): string {
  let all = ''
  for (let frame = reader.next(visible); frame !== undefined; frame = reader.next(visible)) all += frame
  return all
}
const tail = (stream: SentStream, after: number): string => rest(stream.read(after), stream.count)

const A = { token: 'a', logprob: -0.25, bytes: [97] }

/** The frames of a stream, each whole. */
const split = (sse: string): string[] => sse.split(/(?<=\n\n)/)

const COMPACTION: StreamEvent = {
  ...{ type: 'compaction', id: 'item_eba1_c', summary: 's', sealed: 'cmp_eba1_x', keeps: 'nothing', kept: [], most: 0 },
  ...{ tokens: 1, reasoning: 0, usage: null, estimated: false, asked: 0, next: 5 },
}

/** Keep-alives between events; log probabilities for some texts. */
const withRest = fc
  .tuple(replies({ custom: true }), fc.array(fc.nat(3), { minLength: 60, maxLength: 60 }))
  .map(([reply, chance]): Reply & { alive: boolean[] } => {
    const logprob: TokenLogprob = { ...A, top: [A] }
    const events = reply.events.map((event, i): StreamEvent => {
      const some = chance[(i + 7) % 60]!
      return event.type === 'text' && some < 3 ? { ...event, logprobs: Array(some).fill(logprob) } : event
    })
    // A compaction comes before all else.
    return { ...reply, events: chance[0] === 0 ? [COMPACTION, ...events] : events, alive: chance.map(n => n === 0) }
  })

test('[RESP-8] read again from any event on, a stream has the same bytes: while it is made, and of the stored object', async () => {
  await fc.assert(
    fc.asyncProperty(withRest, fc.nat(), async ({ events, end, alive }, chance) => {
      const encoder = encoderOf()
      let sse = encoder.start()
      const stream = encoder.sent!
      const follower = stream.read(-1)
      let followed = ''
      for (const [i, event] of events.entries()) {
        if (alive[i % 60]) sse += encoder.keepAlive()
        sse += encoder.event(event)
        followed += rest(follower, stream.count)
        const now = split(sse)
        assert.equal(stream.count, now.length)
        const after = chance % now.length
        assert.equal(tail(stream, after), now.slice(after + 1).join(''))
      }
      const failed = end instanceof GatewayError
      sse += failed ? encoder.error(end) : encoder.finish(end, USAGE)
      followed += rest(follower, stream.count)
      assert.equal(followed, sse)
      const whole = split(sse)
      for (let after = -1; after < whole.length; after++)
        assert.equal(tail(stream, after), whole.slice(after + 1).join(''))
      if (failed) return

      const stored = streamOf(encoder.body(), stream.events())
      assert.equal(stored.count, whole.length)
      for (let after = -1; after < whole.length; after++)
        assert.equal(tail(stored, after), whole.slice(after + 1).join(''))
      const cut = chance % whole.length
      const client = playing(whole.slice(0, cut + 1).join('') + tail(stored, cut))
      assert.deepEqual(bare(await client.responses.stream(BODY).finalResponse()), bare(JSON.parse(encoder.body())))
    }),
    { numRuns: 200, seed: 24 },
  )
})

test('[RESP-8] a response that was not streamed is one delta a part, in the grammar of a stream', async () => {
  await fc.assert(
    fc.asyncProperty(withRest, async ({ events, end }) => {
      if (end instanceof GatewayError) return
      const encoder = encoderOf({ ...BODY, stream: false })
      encoder.start()
      for (const event of events) encoder.event(event)
      encoder.finish(end, USAGE)
      assert.equal(encoder.sent, undefined)
      const stored = streamOf(encoder.body(), undefined)
      const whole = split(tail(stored, -1))
      assert.equal(whole.length, stored.count)
      for (const [i, frame] of frames(whole.join('')).entries()) assert.equal(frame.sequence_number, i)
      for (let after = -1; after < whole.length; after++)
        assert.equal(tail(stored, after), whole.slice(after + 1).join(''))
      const { output } = JSON.parse(encoder.body())
      // Without the terminal event, which repeats the whole response, the events alone make the same items.
      const pieced = await playing(whole.slice(0, -1).join('')).responses.stream(BODY).finalResponse()
      assert.deepEqual(bare(pieced.output), bare(output))
    }),
    { numRuns: 100, seed: 25 },
  )
})

test('[RESP-8] arguments that a model spelled in its own way keep their numbers', () => {
  const encoder = encoderOf()
  let sse = encoder.start()
  const call = { type: 'tool_call', index: 0, id: 'call_eba1_0', kind: 'function', name: 'tool_search' } as const
  sse += encoder.event(call)
  sse += encoder.event({ type: 'tool_args', index: 0, text: '{"id":175928847299117063,"n":1.10}' })
  sse += encoder.event({ type: 'tool_end', index: 0 })
  sse += encoder.finish({ type: 'finish', reason: 'stop' }, USAGE)
  assert.match(sse, /175928847299117063/)
  assert.equal(tail(streamOf(encoder.body(), encoder.sent!.events()), -1), sse)
})

test('[RESP-8] what is kept of the events is about a byte each; a stream that is not stored keeps nothing', () => {
  const encoder = encoderOf()
  encoder.start()
  for (let i = 0; i < 10_000; i++) encoder.event({ type: 'text', text: 'word ' })
  encoder.event({ type: 'text', text: 'x'.repeat(300_000) })
  encoder.finish({ type: 'finish', reason: 'stop' }, USAGE)
  const kept = encoder.sent!.events()
  assert.ok(kept.length < 1.4 * 10_050, `${kept.length}`)
  assert.equal(tail(streamOf(encoder.body(), kept), 10_000), tail(encoder.sent!, 10_000))
  const unstored = encoderOf({ ...BODY, store: false })
  unstored.start()
  assert.equal(unstored.sent, undefined)

  const measured = encoderOf()
  measured.start()
  const { size } = measured.sent!
  const logprobs = Array(50).fill({ ...A, top: [A] })
  measured.event({ type: 'text', text: 'word', logprobs })
  assert.ok(measured.sent!.size - size > 50 * JSON.stringify(A).length)
})
