/** Deltas of one read as one event (core/canon/joined.ts). */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { StreamEvent } from '../../core/canon/events.ts'
import { DeltaJoiner, piecesOf, withItemId } from '../../core/canon/joined.ts'
import { asks, part, run, terminal } from './harness.ts'

const text = (t: string): StreamEvent => ({ type: 'text', text: t })
const reasoning = (t: string, summary = 0): StreamEvent => ({ type: 'reasoning', text: t, part: summary })
const args = (t: string, index = 0): StreamEvent => ({ type: 'tool_args', text: t, index })

/** The events that come out; `null` is the end of a read. */
function joined(events: readonly (StreamEvent | null)[]): StreamEvent[] {
  const out: StreamEvent[] = []
  const joiner = new DeltaJoiner(event => out.push(event))
  for (const event of events) {
    if (event) joiner.push(event)
    else joiner.flush()
  }
  joiner.flush()
  return out
}

/** Each piece as an event of its own. */
const apart = (events: readonly StreamEvent[]): StreamEvent[] =>
  events.flatMap(event => piecesOf(event)?.map(piece => ({ ...event, text: piece }) as StreamEvent) ?? [event])

const word = fc.string({ maxLength: 3, unit: 'grapheme' })
const anyEvent: fc.Arbitrary<StreamEvent> = fc.oneof(
  { weight: 3, arbitrary: word.map(text) },
  word.map((t): StreamEvent => ({ type: 'text', text: t, logprobs: [] })),
  { weight: 2, arbitrary: fc.tuple(word, fc.nat(1)).map(([t, summary]) => reasoning(t, summary)) },
  word.map((t): StreamEvent => ({ type: 'reasoning', text: t, part: 0, id: 'rs_1' })),
  { weight: 2, arbitrary: fc.tuple(word, fc.nat(1)).map(([t, index]) => args(t, index)) },
  fc.constantFrom<StreamEvent>(
    { type: 'refusal', text: 'no' },
    { type: 'break' },
    { type: 'reasoning_end' },
    { type: 'activity' },
    { type: 'usage', usage: {} },
  ),
)

test('the pieces of what comes out are what went in, and nothing waits beyond its read', () => {
  fc.assert(
    fc.property(fc.array(fc.option(anyEvent, { freq: 6 }), { maxLength: 20 }), events => {
      const went = events.filter(event => event !== null)
      const out = joined(events)
      assert.deepEqual(apart(out), went)
      for (const event of out) {
        const pieces = piecesOf(event)
        if (pieces) assert.equal((event as { text: string }).text, pieces.join(''))
      }
      const reads: StreamEvent[][] = [[]]
      for (const event of events) {
        if (event) reads.at(-1)!.push(event)
        else reads.push([])
      }
      assert.deepEqual(reads.flatMap(joined), out)
    }),
  )
})

test('deltas of one item become one event; what says more than its text stays alone', () => {
  const types = (events: StreamEvent[]) => joined(events).map(event => `${event.type}${piecesOf(event)?.length ?? ''}`)
  assert.deepEqual(types([text('a'), text('b'), text('c')]), ['text3'])
  assert.deepEqual(types([text('a')]), ['text'])
  assert.deepEqual(types([reasoning('a'), reasoning('b'), reasoning('c', 1)]), ['reasoning2', 'reasoning'])
  assert.deepEqual(types([args('{'), args('}'), args('{', 1)]), ['tool_args2', 'tool_args'])
  assert.deepEqual(types([text('a'), { type: 'text', text: 'b', logprobs: [] }, text('c')]), ['text', 'text', 'text'])
  assert.deepEqual(types([text('a'), text(''), text('c')]), ['text', 'text', 'text'])
  const named: StreamEvent = { type: 'reasoning', text: 'a', part: 0, id: 'rs_1' }
  assert.deepEqual(types([named, reasoning('b')]), ['reasoning', 'reasoning'])
  assert.deepEqual(types([reasoning('b'), named]), ['reasoning', 'reasoning'])
  assert.deepEqual(types([text('a'), args('b')]), ['text', 'tool_args'])
})

test('the first delta of an item may get its id, and keeps its pieces', () => {
  const [event] = joined([reasoning('a'), reasoning('b')])
  const named = withItemId(event as Parameters<typeof withItemId>[0], 'rs_1')
  assert.deepEqual([named.text, named.id, named.part, piecesOf(named)], ['ab', 'rs_1', 0, ['a', 'b']])
  const alone = withItemId(reasoning('a') as Parameters<typeof withItemId>[0], 'rs_1')
  assert.deepEqual([alone.id, piecesOf(alone)], ['rs_1', null])
})

const two = joined([text('ab'), text('cd')])[0]!
const says = terminal(x => {
  x.emit(two)
  x.end()
})

test('the client of a stream gets a frame for each piece; plugins see one event', async () => {
  const seen: unknown[] = []
  const looks = part('looks', {
    onEvent(_, event) {
      if (event.type === 'text') seen.push(event.text)
      return undefined
    },
  })
  const r = await run([asks({ stream: true }), looks, says])
  await r.settled
  assert.deepEqual(seen, ['abcd'])
  const texts = r.events().filter(event => event.type === 'text')
  assert.deepEqual(texts, [text('ab'), text('cd')])
})

test('a client without a stream gets the whole', async () => {
  const r = await run([asks({ stream: false }), says])
  await r.settled
  assert.match(r.incoming.sent, /abcd/)
})

test('what a plugin makes of a joined event is one delta', async () => {
  const loud = part('loud', {
    rewriteEvent(_, event, push) {
      push(event.type === 'text' ? { ...event, text: event.text.toUpperCase() } : event)
      return undefined
    },
  })
  const r = await run([asks({ stream: true }), loud, says])
  await r.settled
  const texts = r.events().filter(event => event.type === 'text')
  assert.deepEqual(texts, [text('ABCD')])
})
