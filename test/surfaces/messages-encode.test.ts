import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import type { FinishReason, StreamEvent } from '../../core/canon/events.ts'
import { messages } from '../../surfaces/messages/index.ts'
import { contextOf, encode, errorOf, type Reply } from './messages-support.ts'

/**
 * Golden files: what the request said, one event a line, the last of them the end; dashes; the frames; dashes; the
 * object. `UPDATE_GOLDEN=1` writes them anew, to be read before they are believed.
 */
test('golden replies', async t => {
  const folder = new URL('./golden/messages/', import.meta.url)
  const names = readdirSync(folder).filter(name => name.endsWith('.txt'))
  assert.ok(names.length >= 14)
  for (const name of names) {
    await t.test(name, () => {
      const file = new URL(name, folder)
      const found = readFileSync(file, 'utf8')
      const input = found.split('\n-----\n')[0]!.trimEnd()
      const { frames, object } = encode(replyOf(input))
      const text = [input, frames.join('').trimEnd(), JSON.stringify(object, null, 2)].join('\n-----\n') + '\n'
      if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(file, text)
      else assert.equal(text, found)
    })
  }
})

function replyOf(input: string): Reply {
  const [head, ...lines] = input.split('\n').map(line => JSON.parse(line))
  const end = lines.pop()
  if (end.type === 'error') end.error = errorOf(end.error, end.retryAfterMs)
  return { ...head, events: lines, end }
}

test('[STR-2] every way to end has its stop_reason', () => {
  const expected: Record<FinishReason, string> = {
    stop: 'end_turn',
    stop_sequence: 'stop_sequence',
    tool_calls: 'tool_use',
    length: 'max_tokens',
    context_full: 'model_context_window_exceeded',
    content_filter: 'refusal',
    refusal: 'refusal',
    pause: 'pause_turn',
    compaction: 'compaction',
    idle_timeout: 'max_tokens',
    ceiling_timeout: 'max_tokens',
  }
  for (const [reason, stopReason] of Object.entries(expected)) {
    const end = {
      type: 'finish',
      reason: reason as FinishReason,
      stopSequence: 'END',
      explanation: 'Because.',
    } as const
    const { object, frames } = encode({ events: [{ type: 'text', text: 'a' }], end })
    const delta = JSON.parse(frames.at(-1)!.match(/event: message_delta\ndata: (.*)/)![1]!).delta
    assert.equal(object['stop_reason'], stopReason, reason)
    assert.equal(delta.stop_reason, stopReason, reason)
    assert.equal(object['stop_sequence'], reason === 'stop_sequence' ? 'END' : null, reason)
    const details = stopReason === 'refusal' ? { type: 'refusal', category: null, explanation: 'Because.' } : null
    assert.deepEqual(object['stop_details'], details, reason)
    assert.ok(frames.at(-1)!.endsWith('event: message_stop\ndata: {"type":"message_stop"}\n\n'), reason)
  }
})

test('[METER-5] message_start carries the whole prompt; the end splits it, and the three add up', () => {
  const { frames, object } = encode({
    events: [{ type: 'text', text: 'a' }],
    end: { type: 'finish', reason: 'stop' },
    usage: { input: 100, cached: 60, cacheWrite: 15, output: 9, reasoning: 4 },
  })
  const start = JSON.parse(frames[0]!.split('data: ')[1]!).message.usage
  assert.deepEqual([start.input_tokens, start.cache_read_input_tokens, start.output_tokens], [100, 0, 0])
  const usage = object['usage'] as Record<string, number>
  assert.equal(usage['input_tokens'], 25)
  assert.equal(usage['cache_read_input_tokens'], 60)
  assert.equal(usage['cache_creation_input_tokens'], 15)
  assert.equal(usage['output_tokens'], 9)
})

test('[STR-5] the keep-alive is a ping while the message runs, a comment before and nothing after', () => {
  const encoder = messages.encoder(contextOf({}))
  assert.equal(encoder.keepAlive(), ': keep-alive\n\n')
  encoder.start()
  assert.equal(encoder.keepAlive(), 'event: ping\ndata: {"type":"ping"}\n\n')
  encoder.error(errorOf('provider_unavailable'))
  assert.equal(encoder.keepAlive(), '')
})

test('thinking is shown only where it was asked for', () => {
  const events: StreamEvent[] = [{ type: 'reasoning', text: 'hm', part: 0 }, { type: 'reasoning_end' }]
  const shown = (thinking: unknown) =>
    (encode({ body: { thinking }, events, end: { type: 'finish', reason: 'stop' } }).object['content'] as unknown[])
      .length
  assert.equal(shown({ type: 'enabled', budget_tokens: 1024 }), 1)
  assert.equal(shown({ type: 'adaptive' }), 1)
  assert.equal(shown({ type: 'adaptive', display: 'updates' }), 1)
  assert.equal(shown({ type: 'between_tools' }), 1)
  assert.equal(shown({ type: 'adaptive', display: 'omitted' }), 0)
  assert.equal(shown({ type: 'disabled' }), 0)
  assert.equal(shown(null), 0)
})

test('arguments that are no JSON object do not break the buffered reply', () => {
  const input = (text: string) => {
    const { object } = encode({
      events: [
        { type: 'tool_call', index: 0, id: 'c', kind: 'function', name: 'f' },
        { type: 'tool_args', index: 0, text },
        { type: 'tool_end', index: 0 },
      ],
      end: { type: 'finish', reason: 'tool_calls' },
    })
    return (object['content'] as { input: unknown }[])[0]!.input
  }
  assert.deepEqual(input('{"a":'), { _raw: '{"a":' })
  assert.deepEqual(input('[1]'), { _raw: '[1]' })
  assert.deepEqual(input('"x"'), { _raw: '"x"' })
  assert.deepEqual(input('null'), { _raw: 'null' })
  assert.deepEqual(input(''), {})
  assert.deepEqual(input('{"a":1}'), { a: 1 })
  const nested = (levels: number) => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`
  assert.deepEqual(input(nested(250)), JSON.parse(nested(250)))
  // What a model can write and JSON.stringify can't.
  assert.deepEqual(input(nested(20_000)), { _raw: nested(20_000) })
})

test('events out of grammar throw; nothing can follow the end', () => {
  const encoder = () => {
    const e = messages.encoder(contextOf({}))
    e.start()
    return e
  }
  assert.throws(() => messages.encoder(contextOf({})).event({ type: 'text', text: 'x' }), /while new/)
  assert.throws(() => encoder().start(), /while open/)
  assert.throws(() => encoder().event({ type: 'tool_args', index: 0, text: '{' }), /not open/)
  assert.throws(() => encoder().event({ type: 'tool_end', index: 0 }), /not open/)
  assert.throws(() => encoder().event({ type: 'search_end', id: 'h', query: '', results: [] }), /not open/)
  assert.throws(() => encoder().event({ type: 'usage', usage: {} }), /usage/)
  const two = encoder()
  two.event({ type: 'tool_call', index: 0, id: 'a', kind: 'function', name: 'f' })
  assert.throws(() => two.event({ type: 'tool_args', index: 1, text: '{' }), /not open/)
  for (const end of ['finish', 'error'] as const) {
    const e = encoder()
    if (end === 'finish') e.finish({ type: 'finish', reason: 'stop' }, { ...zero })
    else e.error(errorOf('internal_error'))
    assert.throws(() => e.event({ type: 'text', text: 'x' }), /while ended/)
    assert.throws(() => e.finish({ type: 'finish', reason: 'stop' }, { ...zero }), /while ended/)
    assert.throws(() => e.error(errorOf('internal_error')), /while ended/)
  }
})

const zero = { input: 0, cached: 0, cacheWrite: 0, output: 0, reasoning: 0, searches: 0, estimated: false }
