import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { StreamEvent, TokenLogprob } from '../../core/canon/events.ts'
import type { Decoder } from '../../core/ports/dialect.ts'
import { StopDecoder, StopMatcher } from '../../providers/stop-matcher.ts'

function run(stops: string[], deltas: string[]): { text: string; outs: string[]; matched: string | undefined } {
  const matcher = new StopMatcher(stops)
  const outs = deltas.map(delta => matcher.push(delta))
  if (matcher.matched === undefined) outs.push(matcher.flush())
  return { text: outs.join(''), outs, matched: matcher.matched }
}

test('stop: text before the string is kept, nothing of the string and nothing after it goes out (wire.md G 17)', () => {
  assert.deepEqual(run(['STOP'], ['hello ST', 'OP more', ' and more']), {
    text: 'hello ',
    outs: ['hello ', '', ''],
    matched: 'STOP',
  })
  assert.deepEqual(run(['\n\nHuman:'], ['a\n', '\nHu', 'bert']).text, 'a\n\nHubert')
  assert.equal(run(['aab'], ['a', 'a', 'a', 'b']).text, 'a')
  assert.equal(run(['abab'], ['ababab']).text, '')
  assert.equal(run(['x'], ['']).matched, undefined)
  assert.deepEqual(run(['END'], ['E', 'N']), { text: 'EN', outs: ['', '', 'EN'], matched: undefined })
})

test('stop: the first string to be complete wins; of two that end together, the longer', () => {
  assert.equal(run(['bc', 'abcd'], ['xabcd']).matched, 'bc')
  assert.deepEqual(run(['c', 'abc'], ['xabc']), { text: 'x', outs: ['x'], matched: 'abc' })
})

test('stop: only what may be the beginning of a stop string is held back', () => {
  const matcher = new StopMatcher(['STOP', '###'])
  assert.equal(matcher.push('plain text'), 'plain text')
  assert.equal(matcher.push('with S'), 'with ')
  assert.equal(matcher.push('un ##'), 'Sun ')
  assert.equal(matcher.flush(), '##')
})

test('stop: any split gives the same text and match, and no fragment leaks (property)', () => {
  const unit = fc.constantFrom('a', 'b', 'c', '\n', '\u{1f600}')
  const stop = fc.string({ unit, minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(
      fc.string({ unit, maxLength: 60 }),
      fc.array(stop, { minLength: 1, maxLength: 5 }),
      fc.array(fc.nat({ max: 60 }), { maxLength: 10 }),
      (text, stops, cuts) => {
        const at = [0, ...cuts.map(cut => Math.min(cut, text.length)).sort((a, b) => a - b), text.length]
        const deltas = at.slice(1).map((end, i) => text.slice(at[i], end))
        // The plain definition: the earliest end, then the longest.
        let expected: { end: number; string: string } | undefined
        for (const string of stops) {
          const start = text.indexOf(string)
          if (start === -1) continue
          const end = start + string.length
          if (!expected || end < expected.end || (end === expected.end && string.length > expected.string.length))
            expected = { end, string }
        }
        const result = run(stops, deltas)
        assert.equal(result.matched, expected?.string)
        assert.equal(result.text, expected ? text.slice(0, expected.end - expected.string.length) : text)
      },
    ),
    { numRuns: 1000, seed: 3 },
  )
})

// Milliseconds; a matcher that starts over at each letter would need hours: the runner's end of this file is the
// assertion.
test('stop: linear on a stop string that nearly matches everywhere', () => {
  const stop = 'a'.repeat(50_000) + 'b'
  const matcher = new StopMatcher([stop])
  for (let i = 0; i < 200; i++) matcher.push('a'.repeat(5000))
  assert.equal(matcher.push('b'), '')
  assert.equal(matcher.matched, stop)
})

/** A decoder that pushes the events of its data. */
const scripted: Decoder = {
  frame: (_event, data, push) => (JSON.parse(data) as StreamEvent[]).forEach(push),
  body: (text, push) => (JSON.parse(text) as StreamEvent[]).forEach(push),
  end: push => push({ type: 'finish', reason: 'stop' }),
}
function decode(stops: string[], events: StreamEvent[]): StreamEvent[] {
  const out: StreamEvent[] = []
  const decoder = new StopDecoder(scripted, stops)
  decoder.body(JSON.stringify(events), event => out.push(event))
  decoder.end(event => out.push(event))
  return out
}

test('stop decoder: finish names the string, later output is dropped, a usage report still passes', () => {
  assert.deepEqual(
    decode(
      ['STOP'],
      [
        { type: 'text', text: 'aST' },
        { type: 'text', text: 'OPb' },
        { type: 'text', text: 'c' },
        { type: 'usage', usage: { output: 3 } },
        { type: 'finish', reason: 'stop' },
      ],
    ),
    [
      { type: 'text', text: 'a' },
      { type: 'finish', reason: 'stop_sequence', stopSequence: 'STOP' },
      { type: 'usage', usage: { output: 3 } },
    ],
  )
})

test('stop decoder: held text goes out before whatever ends its block, and no match spans blocks', () => {
  assert.deepEqual(
    decode(
      ['STOP'],
      [{ type: 'text', text: 'ST' }, { type: 'activity' }, { type: 'break' }, { type: 'text', text: 'OP' }],
    ),
    [
      { type: 'activity' },
      { type: 'text', text: 'ST' },
      { type: 'break' },
      { type: 'text', text: 'OP' },
      { type: 'finish', reason: 'stop' },
    ],
  )
})

test('stop decoder: logprobs go with the text they belong to, and not with what is dropped', () => {
  const token = (text: string): TokenLogprob => ({ token: text, logprob: -1, bytes: null, top: [] })
  assert.deepEqual(
    decode(
      ['YZ'],
      [
        { type: 'text', text: 'aX', logprobs: [token('aX')] },
        { type: 'text', text: 'bY', logprobs: [token('bY')] },
        { type: 'text', text: 'c', logprobs: [token('c')] },
      ],
    ),
    [
      { type: 'text', text: 'aX', logprobs: [token('aX')] },
      { type: 'text', text: 'b' },
      { type: 'text', text: 'Yc', logprobs: [token('bY'), token('c')] },
      { type: 'finish', reason: 'stop' },
    ],
  )
  assert.deepEqual(
    decode(
      ['Z'],
      [
        { type: 'text', text: 'a', logprobs: [token('a')] },
        { type: 'text', text: 'bZ', logprobs: [token('bZ')] },
      ],
    ),
    [
      { type: 'text', text: 'a', logprobs: [token('a')] },
      { type: 'text', text: 'b' },
      { type: 'finish', reason: 'stop_sequence', stopSequence: 'Z' },
    ],
  )
})
