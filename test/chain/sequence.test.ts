import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { StreamEvent } from '../../core/canon/events.ts'
import { Sequencer } from '../../core/engine/sequence.ts'

function ordered(events: StreamEvent[]): StreamEvent[] {
  const out: StreamEvent[] = []
  const sequencer = new Sequencer(event => out.push(event))
  for (const event of events) sequencer.push(event)
  sequencer.end({ type: 'finish', reason: 'stop' })
  return out
}
const call = (index: number): StreamEvent => ({
  type: 'tool_call',
  index,
  id: `call_eba1_${index}`,
  kind: 'function',
  name: `f${index}`,
})
const args = (index: number, text: string): StreamEvent => ({ type: 'tool_args', index, text })
const shape = (events: StreamEvent[]) => events.map(e => ('index' in e ? `${e.type}${e.index}` : e.type))

test('usage and finish come last whatever the provider’s order', () => {
  const out = ordered([
    { type: 'finish', reason: 'stop' },
    { type: 'usage', usage: { prompt: 3 } },
    { type: 'text', text: 'late' },
  ])
  assert.deepEqual(shape(out), ['text', 'usage', 'finish'])
})

test('interleaved calls are put one after the other', () => {
  const out = ordered([
    call(0),
    call(1),
    args(0, '{"a"'),
    args(1, '{"b":1}'),
    args(0, ':2}'),
    { type: 'finish', reason: 'tool_calls' },
  ])
  assert.deepEqual(shape(out), [
    'tool_call0',
    'tool_args0',
    'tool_args0',
    'tool_end0',
    'tool_call1',
    'tool_args1',
    'tool_end1',
    'finish',
  ])
})

test('a complete call is closed by what follows it, not only by the end', () => {
  const out: StreamEvent[] = []
  const sequencer = new Sequencer(event => out.push(event))
  sequencer.push(call(0))
  sequencer.push(args(0, '{"a":"}"}'))
  sequencer.push(call(1))
  assert.deepEqual(shape(out), ['tool_call0', 'tool_args0', 'tool_end0', 'tool_call1'])
})

test('a call cut by a limit has no end: it is not executable', () => {
  const out = ordered([call(0), args(0, '{"a":'), { type: 'finish', reason: 'length' }])
  assert.deepEqual(shape(out), ['tool_call0', 'tool_args0', 'finish'])
})

test('[RESP-5] of calls that come at the same time, none that a limit cut is executable', () => {
  const length: StreamEvent = { type: 'finish', reason: 'length' }
  const both = [call(0), args(0, '{"a":'), call(1), args(1, '{"b":')]
  assert.deepEqual(shape(ordered([...both, args(0, '1'), length])), [
    'tool_call0',
    'tool_args0',
    'tool_args0',
    'finish',
  ])
  const first = ordered([...both, args(0, '1}'), length])
  assert.deepEqual(shape(first).slice(2), ['tool_args0', 'tool_end0', 'tool_call1', 'tool_args1', 'finish'])
  const stopped = ordered([...both, { type: 'finish', reason: 'stop' }])
  assert.deepEqual(shape(stopped).slice(2), ['tool_end0', 'tool_call1', 'tool_args1', 'tool_end1', 'finish'])
})

test('a stop with complete calls means tool_calls; tool_calls without calls means stop', () => {
  const called = ordered([call(0), args(0, '{}'), { type: 'finish', reason: 'stop' }]).at(-1)
  assert.deepEqual(called, { type: 'finish', reason: 'tool_calls' })
  const none = ordered([
    { type: 'text', text: 'x' },
    { type: 'finish', reason: 'tool_calls' },
  ]).at(-1)
  assert.deepEqual(none, { type: 'finish', reason: 'stop' })
})

test('reasoning is closed before anything else begins', () => {
  const out = ordered([
    { type: 'reasoning', text: 'hm', part: 0 },
    { type: 'text', text: 'so' },
    { type: 'finish', reason: 'stop' },
  ])
  assert.deepEqual(shape(out), ['reasoning', 'reasoning_end', 'text', 'finish'])
})

test('[STR-6] any interleaving comes out in grammar order, with nothing lost', () => {
  const pieces = fc.array(
    fc.oneof(
      fc.record({
        kind: fc.constant('args' as const),
        call: fc.nat(3),
        text: fc.constantFrom('{"a":1}', '{"a"', ':1}', '', '[1,2]', '"x"'),
      }),
      fc.record({ kind: fc.constant('text' as const), call: fc.constant(0), text: fc.string({ minLength: 1 }) }),
      fc.record({ kind: fc.constant('end' as const), call: fc.nat(3), text: fc.constant('') }),
      fc.record({ kind: fc.constant('think' as const), call: fc.constant(0), text: fc.string({ minLength: 1 }) }),
    ),
    { maxLength: 40 },
  )
  fc.assert(
    fc.property(pieces, list => {
      const events: StreamEvent[] = []
      const started = new Set<number>()
      const ended = new Set<number>()
      for (const p of list) {
        if (p.kind === 'text') events.push({ type: 'text', text: p.text })
        else if (p.kind === 'think') events.push({ type: 'reasoning', text: p.text, part: 0 })
        else {
          if (!started.has(p.call)) events.push(call(p.call))
          started.add(p.call)
          if (ended.has(p.call)) continue
          if (p.kind === 'end') {
            ended.add(p.call)
            events.push({ type: 'tool_end', index: p.call })
          } else events.push(args(p.call, p.text))
        }
      }
      events.push({ type: 'finish', reason: 'stop' })
      const out = ordered(events)
      let open = -1
      for (const e of out) {
        if (e.type === 'tool_call') {
          assert.equal(open, -1)
          open = e.index
        } else if (e.type === 'tool_args') assert.equal(e.index, open)
        else if (e.type === 'tool_end') {
          assert.equal(e.index, open)
          open = -1
        } else assert.equal(open, -1)
      }
      assert.equal(out.at(-1)!.type, 'finish')
      const texts = (es: StreamEvent[]) => es.filter(e => e.type === 'text').map(e => e.text)
      assert.deepEqual(texts(out), texts(events))
      assert.equal(out.filter(e => e.type === 'tool_call').length, started.size)
      assert.equal(out.filter(e => e.type === 'tool_end').length, started.size)
    }),
    { numRuns: 500 },
  )
})
