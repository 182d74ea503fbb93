import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GatewayError, setRetryAfter } from '../../core/canon/errors.ts'
import { type FinishReason, type StreamEvent, ZERO_USAGE } from '../../core/canon/events.ts'
import { chat } from '../../surfaces/chat/index.ts'
import { cursor } from '../../surfaces/cursor/index.ts'
import { contextFor, drive, encode, frames, golden } from './openai-kit.ts'

const body = (extra = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content: 'hi' }],
  stream: true,
  ...extra,
})
const stop = { type: 'finish' as const, reason: 'stop' as const }
const text = (t: string): StreamEvent => ({ type: 'text', text: t })
const call = (index: number, args: string[], name = 'get_weather'): StreamEvent[] => [
  { type: 'tool_call', index, id: `call_eba1_${index}`, kind: 'function', name },
  ...args.map((t): StreamEvent => ({ type: 'tool_args', index, text: t })),
  { type: 'tool_end', index },
]
const lp = (token: string) => ({ token, logprob: -0.5, bytes: null, top: [{ token, logprob: -0.5, bytes: [1] }] })

describe('chat encoder: golden streams', () => {
  const scenarios: Record<
    string,
    { body?: object; events: StreamEvent[]; end?: { type: 'finish'; reason: FinishReason; explanation?: string } }
  > = {
    text: { events: [text('Hel'), text('lo'), { type: 'break' }, text('!')] },
    'text-usage': { body: { stream_options: { include_usage: true } }, events: [{ type: 'activity' }, text('Hi')] },
    logprobs: {
      body: { logprobs: true, top_logprobs: 1 },
      events: [
        { type: 'text', text: 'Hé', logprobs: [lp('H'), lp('é')] },
        { type: 'text', text: '!', logprobs: [lp('!')] },
      ],
    },
    refusal: {
      events: [
        { type: 'refusal', text: 'I ca' },
        { type: 'refusal', text: 'nnot.' },
      ],
      end: { type: 'finish', reason: 'refusal' },
    },
    'refusal-explained': { events: [], end: { type: 'finish', reason: 'refusal', explanation: 'Not this.' } },
    'parallel-calls': {
      events: [...call(0, ['{"city"', ':"Oslo"}']), ...call(1, [])],
      end: { type: 'finish', reason: 'tool_calls' },
    },
    'text-then-call': { events: [text('Let me look.'), ...call(0, ['{}'])] },
    'cut-call': { events: call(0, ['{"city":"Os']).slice(0, -1), end: { type: 'finish', reason: 'length' } },
    'hidden-parts': {
      events: [
        { type: 'reasoning', text: 'hm', part: 0 },
        { type: 'reasoning_end' },
        { type: 'search_start', id: 'hist_eba1_0' },
        { type: 'search_end', id: 'hist_eba1_0', query: 'q', results: [] },
        text('Done.'),
        { type: 'citation', citation: { url: 'https://e.x/', title: 't' } },
      ],
    },
    empty: { events: [] },
  }
  for (const [name, { body: extra, events, end }] of Object.entries(scenarios)) {
    it(`[CHAT-4] ${name}`, () => {
      const { sse, object } = encode(chat, body(extra), { events, end: end ?? stop })
      golden(`chat/${name}.sse`, sse)
      golden(`chat/${name}.json`, `${JSON.stringify(object, null, 2)}\n`)
      const buffered = encode(
        chat,
        { ...body(extra), stream: false, stream_options: null },
        { events, end: end ?? stop },
      )
      assert.deepEqual(buffered.object, object, 'buffered and streamed objects are one')
    })
  }
})

describe('chat encoder: rules', () => {
  const chunks = (sse: string) => frames(sse).filter(f => f !== '[DONE]')

  it('[CHAT-4] the finish reason of every end', () => {
    const expected: Record<FinishReason, string> = {
      stop: 'stop',
      stop_sequence: 'stop',
      tool_calls: 'stop',
      length: 'length',
      context_full: 'length',
      content_filter: 'content_filter',
      refusal: 'stop',
      pause: 'stop',
      compaction: 'stop',
      idle_timeout: 'length',
      ceiling_timeout: 'length',
    }
    for (const [reason, want] of Object.entries(expected)) {
      const end = { type: 'finish' as const, reason: reason as FinishReason }
      const { sse, object } = encode(chat, body(), { events: [text('x')], end })
      const ends = chunks(sse).filter(c => c.choices[0].finish_reason !== null)
      assert.deepEqual(
        ends.map(c => c.choices[0].finish_reason),
        [want],
        reason,
      )
      assert.equal((object as any).choices[0].finish_reason, want)
      assert.ok(sse.endsWith('data: [DONE]\n\n'))
    }
  })

  it('[CHAT-1] logprobs of tokens without a text of their own are in streams and bodies', () => {
    const events: StreamEvent[] = [
      { type: 'text', text: 'H', logprobs: [lp('H')] },
      { type: 'text', text: '', logprobs: [lp('end')] },
    ]
    const { sse, object } = encode(chat, body({ logprobs: true }), { events, end: stop })
    const streamed = chunks(sse).flatMap(c => c.choices[0].logprobs?.content ?? [])
    assert.deepEqual(
      streamed.map(l => l.token),
      ['H', 'end'],
    )
    assert.deepEqual((object as any).choices[0].logprobs.content, streamed)
    assert.equal((object as any).choices[0].message.content, 'H')
  })

  it('[STR-2] idle and ceiling stops end with length and what there was', () => {
    for (const reason of ['idle_timeout', 'ceiling_timeout'] as const) {
      const { object } = encode(chat, body(), { events: [text('half a')], end: { type: 'finish', reason } })
      assert.equal((object as any).choices[0].finish_reason, 'length')
      assert.equal((object as any).choices[0].message.content, 'half a')
    }
  })

  it('[STR-3] reasoning that ate the budget is length with empty content', () => {
    const { object } = encode(chat, body(), {
      events: [{ type: 'reasoning_end' }],
      end: { type: 'finish', reason: 'length' },
    })
    assert.deepEqual((object as any).choices[0], {
      index: 0,
      message: { role: 'assistant', content: '', refusal: null, annotations: [] },
      logprobs: null,
      finish_reason: 'length',
    })
  })

  it('[CHAT-4] whole calls make tool_calls of a plain stop; a cut call never does (wire.md G14, G15)', () => {
    const end = (events: StreamEvent[], reason: FinishReason) =>
      (encode(chat, body(), { events, end: { type: 'finish', reason } }).object as any).choices[0].finish_reason
    assert.equal(end(call(0, ['{}']), 'stop'), 'tool_calls')
    assert.equal(end(call(0, ['{"a']).slice(0, -1), 'stop'), 'length')
    assert.equal(end(call(0, ['{"a']).slice(0, -1), 'tool_calls'), 'length')
    assert.equal(end([...call(0, ['{}']), ...call(1, ['{"']).slice(0, -1)], 'length'), 'length')
    assert.equal(end(call(0, ['{}']), 'idle_timeout'), 'length')
  })

  it('[CHAT-4] include_usage: usage null everywhere, then one chunk without choices; else no usage member (wire.md G8)', () => {
    const withUsage = chunks(
      encode(chat, body({ stream_options: { include_usage: true } }), {
        events: [text('a'), ...call(0, ['{}'])],
        end: stop,
      }).sse,
    )
    const last = withUsage.pop()
    assert.deepEqual(last.choices, [])
    assert.deepEqual(last.usage, {
      prompt_tokens: 120,
      completion_tokens: 30,
      total_tokens: 150,
      completion_tokens_details: { reasoning_tokens: 12 },
      prompt_tokens_details: { cached_tokens: 100 },
    })
    for (const c of withUsage) assert.equal(c.usage, null)
    for (const extra of [{}, { stream_options: { include_usage: false } }, { stream_options: {} }])
      for (const c of chunks(encode(chat, body(extra), { events: [text('a')], end: stop }).sse))
        assert.ok(!('usage' in c))
  })

  it('[METER-6] total is prompt plus completion; a refusal of the gateway has zero usage', () => {
    const usage = (
      encode(chat, body(), { events: [], end: { type: 'finish', reason: 'refusal' } }, ZERO_USAGE).object as any
    ).usage
    assert.deepEqual([usage.prompt_tokens, usage.completion_tokens, usage.total_tokens], [0, 0, 0])
  })

  it('[METER-5] cached tokens are a subset of the prompt', () => {
    const { usage } = encode(chat, body(), { events: [], end: stop }).object as any
    assert.ok(usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens)
  })

  it('[CHAT-4] id, created and model are the same in every chunk and in the object (wire.md G36)', () => {
    const { sse, object } = encode(chat, body({ model: 'eb1-preview-fast' }), { events: [text('a')], end: stop })
    for (const c of [...chunks(sse), object])
      assert.deepEqual([c.id, c.created, c.model], ['chatcmpl-Abc123Abc123Abc123Abc123', 1_700_000_000, 'eb1-preview'])
  })

  it('[CHAT-4] the first delta carries the role, the first of a call id, type and name, and later ones neither (wire.md G10, G12)', () => {
    const deltas = chunks(
      encode(chat, body(), { events: [...call(0, ['{"a":', '1}']), ...call(1, [])], end: stop }).sse,
    ).map(c => c.choices[0].delta)
    assert.deepEqual(deltas, [
      { role: 'assistant', content: null, refusal: null },
      {
        tool_calls: [
          { index: 0, id: 'call_eba1_0', type: 'function', function: { name: 'get_weather', arguments: '' } },
        ],
      },
      { tool_calls: [{ index: 0, function: { arguments: '{"a":' } }] },
      { tool_calls: [{ index: 0, function: { arguments: '1}' } }] },
      {
        tool_calls: [
          { index: 1, id: 'call_eba1_1', type: 'function', function: { name: 'get_weather', arguments: '' } },
        ],
      },
      { tool_calls: [{ index: 1, function: { arguments: '{}' } }] },
      {},
    ])
  })

  it('[CHAT-4] a surrogate pair split across deltas is sent whole, in text, refusals and arguments (wire.md G16)', () => {
    const { sse, object } = encode(chat, body(), {
      events: [
        text('a\ud83d'),
        text('\ude00'),
        { type: 'refusal', text: '\ud83d' },
        ...call(0, ['{"e":"\ud83d', '\ude00"}']),
      ],
      end: stop,
    })
    assert.ok(!sse.includes('\\ud8'))
    const { message } = (object as any).choices[0]
    assert.deepEqual(
      [message.content, message.refusal, message.tool_calls[0].function.arguments],
      ['a😀', '\ufffd', '{"e":"😀"}'],
    )
  })

  it('[CHAT-1] metadata is echoed in the buffered object', () => {
    const { object } = encode(
      chat,
      { ...body({ metadata: { a: 'b' } }), stream: false },
      { events: [text('x')], end: stop },
    )
    assert.deepEqual(object['metadata'], { a: 'b' })
  })

  it('[STR-5] a keep-alive is a comment', () => {
    const encoder = chat.encoder(contextFor(chat, body()))
    assert.equal(encoder.start() + encoder.keepAlive(), ': keep-alive\n\n')
  })

  it('[ERR-8] the error frame: nested object, flat copies, no choices, nothing after it (wire.md D.4, G24, G25)', () => {
    const error = new GatewayError('provider_unavailable', { message: 'Gone.', details: { dimension: 'x' } })
    setRetryAfter(error, () => 0)
    const sse = drive(chat.encoder(contextFor(chat, body())), { events: [text('a')], end: error })
    const frame = frames(sse).at(-1)
    assert.deepEqual(frame, {
      error: {
        message: 'Gone.',
        type: 'server_error',
        code: 'provider_unavailable',
        param: null,
        request_id: 'req_test',
        retryable: true,
        details: { dimension: 'x', retry_after_seconds: 5 },
        retry_after_seconds: 5,
      },
      message: 'Gone.',
      type: 'server_error',
      code: 'provider_unavailable',
      request_id: 'req_test',
      retryable: true,
    })
    assert.ok(!sse.includes('[DONE]'))
    for (const c of frames(sse).slice(0, -1)) assert.equal(c.choices[0].finish_reason, null)
  })

  it('[ERR-1] the error body', () => {
    const error = new GatewayError('unknown_parameter', { message: 'm', param: 'foo' })
    assert.deepEqual(JSON.parse(chat.error(error, 'req_1')), {
      error: {
        message: 'm',
        type: 'invalid_request_error',
        code: 'unknown_parameter',
        param: 'foo',
        request_id: 'req_1',
        retryable: false,
      },
    })
  })

  it('[STR-6] an event out of grammar is a bug and throws', () => {
    const fresh = (events: StreamEvent[]) => {
      const encoder = chat.encoder(contextFor(chat, body()))
      for (const e of events) encoder.event(e)
      return encoder
    }
    const open = call(0, ['{']).slice(0, -1)
    assert.throws(() => fresh([...open, text('x')]), /grammar/)
    assert.throws(() => fresh([...open, ...call(1, [])]), /grammar/)
    assert.throws(() => fresh([...open, { type: 'tool_args', index: 1, text: '' }]), /grammar/)
    assert.throws(() => fresh([{ type: 'tool_end', index: 0 }]), /grammar/)
    assert.throws(() => fresh(call(1, [])), /grammar/)
    const done = fresh([])
    done.finish(stop, ZERO_USAGE)
    assert.throws(() => done.event(text('x')), /grammar/)
    assert.throws(() => done.finish(stop, ZERO_USAGE), /grammar/)
    assert.throws(() => done.error(new GatewayError('internal_error', { message: '' })), /grammar/)
  })
})

// A model of another dialect may call a custom tool where the client declared a function.
it('a call of a custom tool is a function call to all but Cursor', () => {
  const events: StreamEvent[] = [
    { type: 'tool_call', index: 0, id: 'call_eba1_0', kind: 'custom', name: 'patch' },
    { type: 'tool_args', index: 0, text: '*** "x"' },
    { type: 'tool_end', index: 0 },
  ]
  const said = (surface: typeof chat) => {
    const encoder = surface.encoder(contextFor(surface, body({ stream: false })))
    for (const event of events) encoder.event(event)
    encoder.finish({ type: 'finish', reason: 'tool_calls' }, ZERO_USAGE)
    return JSON.parse(encoder.body()).choices[0].message.tool_calls[0]
  }
  assert.deepEqual(said(chat), {
    id: 'call_eba1_0',
    type: 'function',
    function: { name: 'patch', arguments: '*** "x"' },
  })
  assert.deepEqual(said(cursor), { id: 'call_eba1_0', type: 'custom', custom: { name: 'patch', input: '*** "x"' } })
})
