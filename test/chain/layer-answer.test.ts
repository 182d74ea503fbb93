/** A layer that answers by itself, and what keeps the events of a reply for it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { StreamEvent } from '../../core/canon/events.ts'
import {
  answerCall,
  type Call,
  type CallControl,
  type CallSink,
  definePlugin,
  EventRecorder,
  GatewayError,
  type LayerAnswer,
} from '../../core/plugin.ts'
import { runPlugin } from '../../plugins/testing.ts'
import { eventually } from '../eventually.ts'

const FREE: LayerAnswer = { by: 'mine', share: 0 }
const finish: StreamEvent = { type: 'finish', reason: 'stop' }

/** A plugin whose layer answers with these events. */
const answering = (events: readonly StreamEvent[], answer = FREE) =>
  definePlugin({
    name: 'mine',
    summary: 'Answers by itself.',
    layers: ['call'],
    create: () => ({ callLayer: () => (call, sink) => answerCall(call, sink, events, answer) }),
  })

class Sink implements CallSink {
  readonly events: StreamEvent[] = []
  ends = 0
  failure: unknown
  /** Called for each flush. */
  ready = () => true
  onEmit = (_: StreamEvent) => {}
  headSent = false
  clientGone = false
  closed = false
  emit(event: StreamEvent) {
    this.events.push(event)
    this.onEmit(event)
  }
  flush() {
    return this.ready()
  }
  sendHead() {}
  end() {
    this.ends++
  }
  fail(error: unknown) {
    this.failure = error
  }
  get text(): string {
    return this.events.map(event => (event.type === 'text' ? event.text : '')).join('')
  }
}

function answer(sink: Sink, events: readonly StreamEvent[]): CallControl {
  const call = { report: { answeredInstead() {} }, facts: { peek: () => undefined, incoming: { tenant: 'acme' } } }
  return answerCall(call as unknown as Call, sink, events, FREE)
}

test('no backend is asked; the report says who answered, and at what share', async () => {
  const run = await runPlugin(answering([{ type: 'text', text: 'Hello' }, finish], { by: 'mine', share: 0.25 }))
  assert.deepEqual(
    run.events.map(({ type, text }) => text ?? type),
    ['start', 'Hello', 'finish'],
  )
  assert.deepEqual(
    [run.requests.length, run.instead, run.settlement.outcome],
    [0, { by: 'mine', share: 0.25 }, 'completed'],
  )
})

test('a finish that is left out is added, and usage comes before it', async () => {
  const run = await runPlugin(answering([{ type: 'text', text: 'Hello' }]))
  assert.deepEqual(run.events.at(-1)?.reason, 'stop')
})

test('a share that is none is a fault of the plugin', async () => {
  for (const share of [-0.1, 1.1, Number.NaN]) {
    const run = await runPlugin(answering([], { by: 'mine', share }))
    assert.equal(run.status, 500)
    assert.match(String(run.log.find(({ fields }) => fields.err)?.fields.err), /give a share from 0 to 1/)
  }
})

test('ids are new, those of one search agree, and private data stays with its part', () => {
  const continuation = { dialect: 'gemini', model: 'm', data: 'signature' }
  const said: StreamEvent[] = [
    { type: 'reasoning', text: 'Hm', part: 0, id: 'item_old' },
    { type: 'reasoning_end', continuation, handle: 'item_old' },
    { type: 'search_start', id: 'hist_one' },
    { type: 'search_start', id: 'hist_two' },
    { type: 'search_end', id: 'hist_one', query: 'q', results: [] },
    { type: 'search_end', id: 'hist_two', query: 'r', results: [] },
    { type: 'tool_call', index: 0, id: 'call_old', kind: 'function', name: 'f', continuation },
    { type: 'tool_args', index: 0, text: '{}' },
    { type: 'tool_end', index: 0 },
    finish,
  ]
  const seen = [0, 1].map(() => {
    const sink = new Sink()
    answer(sink, said)
    return sink.events as any[]
  })
  for (const events of seen) {
    assert.doesNotMatch(JSON.stringify(events), /old|hist_(one|two)/)
    assert.deepEqual(events[0], { type: 'reasoning', text: 'Hm', part: 0 })
    assert.deepEqual(events[1], { type: 'reasoning_end', continuation })
    assert.deepEqual([events[2].id, events[3].id], [events[4].id, events[5].id])
    assert.notEqual(events[2].id, events[3].id)
    assert.match(events[2].id, /^hist_eba1_/)
    assert.match(events[6].id, /^call_eba1_/)
    assert.deepEqual(events[6].continuation, continuation)
  }
  assert.notEqual(seen[0]![6].id, seen[1]![6].id)
  assert.notEqual(seen[0]![2].id, seen[1]![2].id)
})

test('a long text is cut between characters, and nothing of it is lost', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom('a', '🙂', 'é'), { maxLength: 12 }), async letters => {
      const text = letters.join('').repeat(1000)
      const sink = new Sink()
      answer(sink, [{ type: 'text', text }, finish])
      await eventually(() => sink.ends === 1)
      assert.equal(sink.text, text)
      for (const event of sink.events)
        if (event.type === 'text') {
          assert.equal(event.text.isWellFormed(), true)
          assert.ok(event.text.length <= 4097)
        }
    }),
    { numRuns: 50 },
  )
})

test('a text with log probabilities is not cut', () => {
  const logprobs = [{ token: 'a', logprob: 0, bytes: null, top: [] }]
  const sink = new Sink()
  answer(sink, [{ type: 'text', text: 'a'.repeat(10_000), logprobs }, finish])
  assert.deepEqual([sink.events.length, sink.ends], [2, 1])
})

test('a large answer leaves turns of the event loop to others, and says nothing after the end', async () => {
  const sink = new Sink()
  const text = 'x'.repeat(200_000)
  const control = answer(sink, [{ type: 'text', text }, finish])
  assert.ok(sink.text.length > 0 && sink.text.length < text.length / 2)
  // Neither starts a second loop beside the one that waits for its turn.
  control.pause()
  control.resume()
  assert.ok(sink.text.length < text.length / 2)
  await eventually(() => sink.ends === 1)
  assert.equal(sink.text, text)
  assert.equal(sink.events.at(-1)!.type, 'finish')
})

test('a client that reads slowly is waited for; one that has left gets nothing more', () => {
  const events: StreamEvent[] = [1, 2, 3, 4].map(n => ({ type: 'text', text: `${n}` }))
  const sink = new Sink()
  sink.ready = () => sink.events.length % 2 === 1
  const control = answer(sink, events)
  assert.equal(sink.text, '12')
  control.resume()
  assert.equal(sink.text, '1234')
  assert.equal(sink.ends, 0)
  control.resume()
  assert.equal(sink.ends, 1)
  control.resume()
  assert.equal(sink.ends, 1)

  const left = new Sink()
  left.ready = () => false
  const stopped = answer(left, events)
  assert.equal(stopped.abort('client_gone'), undefined)
  stopped.resume()
  assert.deepEqual([left.text, left.ends], ['1', 0])

  const closed = new Sink()
  closed.onEmit = () => {
    closed.closed = true
  }
  answer(closed, events)
  assert.deepEqual([closed.text, closed.ends], ['1', 0])
})

test('what throws on the way ends the exchange, also in a later turn', async () => {
  for (const at of [1, 20]) {
    const sink = new Sink()
    sink.onEmit = () => {
      if (sink.events.length === at) throw new Error('broken')
    }
    answer(sink, [{ type: 'text', text: 'x'.repeat(200_000) }, finish])
    await eventually(() => sink.failure !== undefined)
    assert.ok(sink.failure instanceof GatewayError)
    assert.deepEqual([sink.events.length, sink.ends], [at, 0])
  }
})

// ---- what is kept --------------------------------------------------------------------------------------------------------

/** What is kept of a reply of these events. */
function kept(events: readonly StreamEvent[], most = 10_000, ending: 'end' | 'fail' = 'end') {
  const sink = new Sink()
  const answers: (readonly StreamEvent[] | null)[] = []
  const recorder = new EventRecorder(sink, most, found => {
    assert.equal(sink.ends + (sink.failure ? 1 : 0), 1)
    answers.push(found)
  })
  for (const event of events) {
    recorder.emit(event)
    recorder.flush()
  }
  if (ending === 'end') recorder.end()
  else recorder.fail(new GatewayError('internal_error', { message: 'no' }))
  assert.deepEqual(sink.events, events)
  assert.equal(answers.length, 1)
  return answers[0]!
}

test('a whole reply is kept, with its deltas joined; what shows nothing is left out', () => {
  const events: StreamEvent[] = [
    { type: 'text', text: 'Hel' },
    { type: 'activity' },
    { type: 'text', text: 'lo' },
    { type: 'activity', unseen: { item: 'i', text: 'u' } },
    { type: 'usage', usage: { prompt: 3, output: 2 } },
    finish,
  ]
  // The parsed JSON, since what is stored is that.
  assert.deepEqual(JSON.parse(JSON.stringify(kept(events))), [
    { type: 'text', text: 'Hello' },
    { type: 'activity', unseen: { item: 'i', text: 'u' } },
    { type: 'usage', usage: { prompt: 3, output: 2 } },
    finish,
  ])
})

test('nothing is kept of a reply that failed, was cut, had no finish, or is too long', () => {
  const text: StreamEvent = { type: 'text', text: 'Hello' }
  assert.equal(kept([text, finish], 10_000, 'fail'), null)
  assert.equal(kept([text]), null)
  assert.equal(kept([text, { type: 'usage', usage: {}, cut: true }, finish]), null)
  assert.equal(
    kept([text, { type: 'error', error: new GatewayError('internal_error', { message: 'no' }) }, finish]),
    null,
  )
  const all = 'Hello'.length + 1 + JSON.stringify(finish).length + 2 * 64
  assert.ok(kept([text, finish], all))
  assert.equal(kept([text, finish], all - 1), null)
  const pieces = Array.from('Hello', letter => ({ type: 'text' as const, text: letter }))
  assert.equal(kept([...pieces, finish], all), null)
  assert.ok(kept([...pieces, finish], all + 4))
  const nothing = Array.from({ length: 100 }, () => ({ type: 'text' as const, text: '' }))
  assert.equal(kept([...nothing, finish], 100 * 64), null)
  const call: StreamEvent = { type: 'tool_call', index: 0, id: 'c', kind: 'function', name: 'f'.repeat(500) }
  assert.equal(kept([call, finish], 500), null)
  const logprobs = [{ token: 'a'.repeat(500), logprob: 0, bytes: null, top: [] }]
  assert.equal(kept([{ type: 'text', text: 'a', logprobs }, finish], 500), null)
})
