import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GatewayError, setRetryAfter } from '../../core/canon/errors.ts'
import { type FinishReason, type StreamEvent, ZERO_USAGE } from '../../core/canon/events.ts'
import { ReplyRecorder } from '../../core/canon/recorder.ts'
import { compact } from '../../surfaces/compact/index.ts'
import { responses } from '../../surfaces/responses/index.ts'
import { contextFor, drive, encode, frames, golden, USAGE } from './openai-kit.ts'

const body = (extra = {}) => ({ model: 'eb1-preview', input: 'hi', stream: true, ...extra })
const stop = { type: 'finish' as const, reason: 'stop' as const }
const text = (t: string): StreamEvent => ({ type: 'text', text: t })
const call = (index: number, args: string[], extra = {}): StreamEvent[] => [
  { type: 'tool_call', index, id: `call_eba1_${index}`, kind: 'function', name: 'get_weather', ...extra },
  ...args.map((t): StreamEvent => ({ type: 'tool_args', index, text: t })),
  { type: 'tool_end', index },
]
const think = (handle?: string): StreamEvent[] => [
  { type: 'reasoning', text: 'First, ', part: 0 },
  { type: 'reasoning', text: 'look.', part: 0 },
  { type: 'reasoning', text: 'Then answer.', part: 1 },
  handle === undefined ? { type: 'reasoning_end' } : { type: 'reasoning_end', handle },
]
const search = (errorCode?: string): StreamEvent[] => [
  { type: 'search_start', id: 'hist_eba1_s' },
  {
    type: 'search_end',
    id: 'hist_eba1_s',
    query: 'oslo weather',
    results: [{ title: 'W', url: 'https://e.x/w' }],
    ...(errorCode && { errorCode }),
  },
]
const COMPACTION: StreamEvent = {
  ...{ type: 'compaction', id: 'item_eba1_c', summary: 'in short', sealed: 'cmp_eba1_x', keeps: 'user', most: 9 },
  ...{
    kept: [{ role: 'user', parts: [{ type: 'text', text: 'hi' }] }],
    tokens: 2,
    reasoning: 0,
    usage: {},
    estimated: false,
    asked: 0,
    next: 5,
  },
}
const types = (sse: string) => frames(sse).map(f => f.type)

const STRICT = { type: 'object', properties: {}, required: [], additionalProperties: false }

describe('responses encoder: golden streams', () => {
  const scenarios: Record<
    string,
    {
      body?: object
      events: StreamEvent[]
      end?: { type: 'finish'; reason: FinishReason; explanation?: string } | GatewayError
    }
  > = {
    text: { events: [text('Hel'), text('lo')] },
    compaction: { events: [COMPACTION, text('Hi')] },
    'two-parts': { events: [text('One.'), { type: 'break' }, text('Two.')] },
    reasoning: {
      body: { reasoning: { summary: 'auto' }, include: ['reasoning.encrypted_content'] },
      events: [...think('item_eba1_handle'), text('Hi')],
    },
    'hidden-reasoning': { events: [...think('item_eba1_handle'), { type: 'activity' }, text('Hi')] },
    'parallel-calls': {
      events: [text('Looking.'), ...call(0, ['{"city":', '"Oslo"}']), ...call(1, [])],
      end: { type: 'finish', reason: 'tool_calls' },
    },
    'namespaced-and-custom': {
      events: [
        ...call(0, ['{}'], { namespace: 'mcp__fs' }),
        ...call(1, ['*** Begin', ' Patch'], { kind: 'custom', name: 'apply_patch' }),
      ],
    },
    'tool-search': {
      body: { tools: [{ type: 'tool_search', execution: 'client' }] },
      events: call(0, ['{"query"', ':"mail"}'], { name: 'tool_search' }),
    },
    'web-search': {
      body: { tools: [{ type: 'web_search' }], include: ['web_search_call.action.sources'] },
      events: [
        ...search(),
        text('It is 5° '),
        { type: 'citation', citation: { url: 'https://e.x/w', title: 'W', start: 6, end: 8 } },
        text('there.'),
        { type: 'citation', citation: { url: 'https://e.x/v', title: 'V' } },
        { type: 'break' },
        text('Bye.'),
      ],
    },
    'failed-search': { events: [...search('unavailable'), text('No luck.')] },
    refusal: {
      events: [
        { type: 'refusal', text: 'I ca' },
        { type: 'refusal', text: 'nnot.' },
      ],
      end: { type: 'finish', reason: 'refusal' },
    },
    'max-tokens': { events: [text('Half a sen')], end: { type: 'finish', reason: 'length' } },
    'reasoning-ate-the-budget': {
      body: { max_output_tokens: 16 },
      events: [{ type: 'reasoning_end' }],
      end: { type: 'finish', reason: 'length' },
    },
    'cut-call': { events: call(0, ['{"city":"Os']).slice(0, -1), end: { type: 'finish', reason: 'length' } },
    failure: {
      events: [text('Half')],
      end: new GatewayError('provider_unavailable', { message: 'A dependency is gone.' }),
    },
    empty: { events: [] },
  }
  for (const [name, { body: extra, events, end }] of Object.entries(scenarios)) {
    it(`[RESP-5] ${name}`, () => {
      const { sse, object } = encode(responses, body(extra), { events, end: end ?? stop })
      golden(`responses/${name}.sse`, sse)
      golden(`responses/${name}.json`, `${JSON.stringify(object, null, 2)}\n`)
      const buffered = encode(responses, { ...body(extra), stream: false }, { events, end: end ?? stop })
      assert.deepEqual(buffered.object, object, 'buffered and streamed objects are one')
      const last = frames(sse).at(-1)
      assert.deepEqual(last.response, object, 'the terminal event carries the whole response')
    })
  }
})

describe('responses encoder: rules', () => {
  const numbered = (sse: string) => {
    for (const [i, f] of frames(sse).entries()) assert.equal(f.sequence_number, i)
  }

  it('[RESP-5] sequence numbers have no gap, keep-alives and errors included (wire.md G22)', () => {
    const encoder = responses.encoder(contextFor(responses, body()))
    let sse = encoder.keepAlive()
    assert.equal(sse, ': keep-alive\n\n', 'before response.created only a comment (wire.md G19)')
    sse += encoder.start()
    sse += encoder.keepAlive()
    sse += encoder.event(text('a'))
    sse += encoder.keepAlive()
    sse += encoder.error(new GatewayError('upstream_server_error', { message: 'm' }))
    numbered(sse)
    assert.deepEqual(types(sse).filter(t => t === 'keepalive').length, 2)
    assert.deepEqual(types(sse).slice(-2), ['error', 'response.failed'])
  })

  it('[RESP-5] ends: completed, or incomplete with its reason', () => {
    const expected: Record<FinishReason, string | null> = {
      stop: null,
      stop_sequence: null,
      tool_calls: null,
      refusal: null,
      pause: null,
      compaction: null,
      length: 'max_output_tokens',
      context_full: 'max_output_tokens',
      content_filter: 'content_filter',
      idle_timeout: 'stream_idle_timeout',
      ceiling_timeout: 'stream_ceiling_timeout',
    }
    for (const [reason, want] of Object.entries(expected)) {
      const { sse, object } = encode(responses, body(), {
        events: [text('x')],
        end: { type: 'finish', reason: reason as FinishReason },
      })
      const last = frames(sse).at(-1)
      assert.equal(last.type, want === null ? 'response.completed' : 'response.incomplete')
      assert.deepEqual(
        [object['status'], object['incomplete_details']],
        want === null ? ['completed', null] : ['incomplete', { reason: want }],
      )
      assert.equal(object['completed_at'], want === null ? 1_700_000_005 : null)
      assert.equal((object as any).output[0].status, want === null ? 'completed' : 'incomplete')
    }
  })

  it('[STR-2] idle and ceiling stops keep what there was and name the reason', () => {
    const { object } = encode(responses, body(), {
      events: [text('half')],
      end: { type: 'finish', reason: 'idle_timeout' },
    })
    assert.deepEqual(object['incomplete_details'], { reason: 'stream_idle_timeout' })
    assert.equal((object as any).output[0].content[0].text, 'half')
  })

  it('[STR-3] a warning names the fix when reasoning ate the whole budget, and only then', () => {
    const warning = (events: StreamEvent[], reason: FinishReason, usage = USAGE) =>
      (
        encode(responses, body({ max_output_tokens: 16 }), { events, end: { type: 'finish', reason } }, usage)
          .object as any
      ).warning
    const given = warning([{ type: 'reasoning_end' }], 'length')
    assert.equal(given.code, 'reasoning_exhausted_budget')
    assert.match(given.message, /max_output_tokens/)
    assert.equal(warning([text('x')], 'length'), undefined)
    assert.equal(warning([], 'idle_timeout'), undefined)
    assert.equal(warning([], 'length', { ...USAGE, reasoning: 0 }), undefined)
    assert.equal(warning([], 'stop'), undefined)
  })

  it('[RESP-5] ids and indexes are stable from added to the terminal event (wire.md G20, G21)', () => {
    const { sse } = encode(responses, body({ reasoning: { summary: 'auto' } }), {
      events: [...think(), text('a'), ...call(0, ['{}']), ...search(), text('b')],
      end: stop,
    })
    const all = frames(sse)
    numbered(sse)
    const added = all.filter(f => f.type === 'response.output_item.added')
    const done = all.filter(f => f.type === 'response.output_item.done')
    const { output } = all.at(-1).response
    assert.deepEqual(
      added.map(f => [f.output_index, f.item.id, f.item.type]),
      output.map((o: any, i: number) => [i, o.id, o.type]),
    )
    assert.deepEqual(
      done.map(f => f.item),
      output,
    )
    for (const f of all) if (f.item_id !== undefined) assert.equal(f.item_id, output[f.output_index].id)
    for (const o of output) assert.match(o.id, /^item_eba1_/)
    assert.equal(new Set(output.map((o: any) => o.id)).size, output.length)
    assert.ok(all.every(f => f.type === 'error' || f.error === undefined))
  })

  it('[RESP-5] a call without arguments is {} (wire.md G13); a cut one has no arguments.done (wire.md G15)', () => {
    const whole = encode(responses, body(), { events: call(0, []), end: stop })
    assert.equal((whole.object as any).output[0].arguments, '{}')
    assert.equal(frames(whole.sse).find(f => f.type === 'response.function_call_arguments.done').arguments, '{}')
    for (const reason of ['length', 'stop', 'tool_calls', 'idle_timeout'] as const) {
      const cut = encode(responses, body(), { events: call(0, ['{"a']).slice(0, -1), end: { type: 'finish', reason } })
      assert.ok(!types(cut.sse).includes('response.function_call_arguments.done'))
      assert.deepEqual([(cut.object as any).output[0].status, cut.object['status']], ['incomplete', 'incomplete'])
    }
    const unseen = encode(responses, body({ tools: [{ type: 'tool_search', execution: 'client' }] }), {
      events: call(0, ['{"a'], { name: 'tool_search' }).slice(0, -1),
      end: { type: 'finish', reason: 'length' },
    })
    assert.deepEqual((unseen.object as any).output, [])
  })

  it('[RESP-5] the arguments of a tool search are an object whatever the model wrote', () => {
    const args = (pieces: string[]) =>
      (
        encode(responses, body({ tools: [{ type: 'tool_search', execution: 'client' }] }), {
          events: call(0, pieces, { name: 'tool_search' }),
          end: stop,
        }).object as any
      ).output[0].arguments
    assert.deepEqual(args(['{"query":"a"}']), { query: 'a' })
    assert.deepEqual(args([]), {})
    assert.deepEqual(args(['mail']), { query: 'mail' })
    assert.deepEqual(args(['"mail"']), { query: 'mail' })
  })

  it('[RESP-5] a refusal is no output text (wire.md G23), and has one even without words', () => {
    const { object } = encode(
      responses,
      body(),
      { events: [], end: { type: 'finish', reason: 'refusal', explanation: 'Not this.' } },
      ZERO_USAGE,
    )
    assert.deepEqual((object as any).output[0].content, [{ type: 'refusal', refusal: 'Not this.' }])
    assert.equal((object as any).usage.total_tokens, 0)
    assert.match(
      (encode(responses, body(), { events: [], end: { type: 'finish', reason: 'refusal' } }).object as any).output[0]
        .content[0].refusal,
      /declined/,
    )
  })

  it('[TOOL-6] encrypted_content is a handle, and only for those who asked; summaries likewise', () => {
    const item = (extra: object) =>
      (encode(responses, body(extra), { events: think('item_eba1_handle'), end: stop }).object as any).output[0]
    assert.deepEqual(Object.keys(item({})), ['id', 'type', 'status', 'summary'])
    assert.deepEqual(item({}).summary, [])
    assert.equal(item({ include: ['reasoning.encrypted_content'] }).encrypted_content, 'item_eba1_handle')
    assert.deepEqual(item({ reasoning: { summary: 'concise' } }).summary, [
      { type: 'summary_text', text: 'First, look.' },
      { type: 'summary_text', text: 'Then answer.' },
    ])
  })

  it('[METER-5] [METER-6] usage: cache figures inside the input, total is input plus output, null until the end', () => {
    const { sse, object } = encode(responses, body(), { events: [], end: stop })
    assert.deepEqual(object['usage'], {
      input_tokens: 120,
      input_tokens_details: { cached_tokens: 100, cache_write_tokens: 10 },
      output_tokens: 30,
      output_tokens_details: { reasoning_tokens: 12 },
      total_tokens: 150,
    })
    assert.deepEqual(
      frames(sse)
        .slice(0, 2)
        .map(f => [f.type, f.response.status, f.response.usage]),
      [
        ['response.created', 'in_progress', null],
        ['response.in_progress', 'in_progress', null],
      ],
    )
  })

  it('[RESP-1] the response echoes the request, defaults where it said nothing', () => {
    const plain = encode(responses, body(), { events: [], end: stop }).object as any
    assert.deepEqual(
      [
        plain.instructions,
        plain.metadata,
        plain.temperature,
        plain.top_p,
        plain.tool_choice,
        plain.tools,
        plain.parallel_tool_calls,
        plain.store,
        plain.truncation,
        plain.service_tier,
        plain.access_programs,
        plain.error,
      ],
      [null, {}, 1, 1, 'auto', [], true, true, 'disabled', 'default', null, null],
    )
    assert.ok(!('user' in plain) && !('warning' in plain) && !('output_text' in plain))
    const tools = [{ type: 'function', name: 'f', parameters: null, strict: null }]
    const full = encode(
      responses,
      body({
        instructions: 'I',
        metadata: { a: 'b' },
        temperature: 0,
        user: 'u',
        tools,
        max_output_tokens: 9,
        previous_response_id: 'resp_0',
        store: false,
        reasoning: { effort: 'low' },
        text: { verbosity: 'low' },
      }),
      { events: [], end: stop },
    ).object as any
    assert.deepEqual(
      [
        full.instructions,
        full.metadata,
        full.temperature,
        full.user,
        full.tools,
        full.tool_choice,
        full.max_output_tokens,
        full.previous_response_id,
        full.store,
        full.reasoning,
        full.text,
      ],
      [
        'I',
        { a: 'b' },
        0,
        'u',
        [{ ...tools[0], description: null, strict: false }],
        'auto',
        9,
        'resp_0',
        false,
        { effort: 'low', summary: null },
        { format: { type: 'text' }, verbosity: 'low' },
      ],
    )
  })

  it('[RESP-1] the object has every member that Open Responses requires, and so have its function tools', () => {
    const required =
      'id object created_at completed_at status incomplete_details model previous_response_id instructions output error tools tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs temperature reasoning usage max_output_tokens max_tool_calls store background service_tier metadata safety_identifier prompt_cache_key'
    const tools = [
      { type: 'function', name: 'f' },
      { type: 'function', name: 'g', strict: true, parameters: STRICT },
    ]
    const { object, sse }: any = encode(responses, body({ tools, presence_penalty: 0 }), { events: [], end: stop })
    const begun = JSON.parse(/^data: (.*)$/m.exec(sse)![1]!).response
    for (const shown of [object, begun]) {
      assert.deepEqual(
        required.split(' ').filter(member => !(member in shown)),
        [],
      )
      assert.deepEqual(shown.tools, [
        { type: 'function', name: 'f', description: null, parameters: null, strict: false },
        { type: 'function', name: 'g', description: null, parameters: STRICT, strict: true },
      ])
    }
  })

  it('[RESP-5] surrogate pairs split across deltas are sent whole (wire.md G16)', () => {
    const { sse, object } = encode(responses, body({ reasoning: { summary: 'auto' } }), {
      events: [
        { type: 'reasoning', text: '\ud83d', part: 0 },
        { type: 'reasoning', text: '\ude00', part: 0 },
        { type: 'reasoning_end' },
        text('a\ud83d'),
        text('\ude00'),
        { type: 'break' },
        text('\ud83d'),
        ...call(0, ['{"e":"\ud83d', '\ude00"}']),
      ],
      end: stop,
    })
    assert.ok(!sse.includes('\\ud8'))
    const { output } = object as any
    assert.equal(output[0].summary[0].text, '😀')
    assert.deepEqual(
      output[1].content.map((c: any) => c.text),
      ['a😀', '\ufffd'],
    )
    assert.equal(output[2].arguments, '{"e":"😀"}')
  })

  it('[RESP-5] log probabilities go with their text, when asked for', () => {
    const events: StreamEvent[] = [
      { type: 'text', text: 'H', logprobs: [{ token: 'H', logprob: -1, bytes: null, top: [] }] },
    ]
    const asked = encode(responses, body({ include: ['message.output_text.logprobs'] }), { events, end: stop })
      .object as any
    assert.deepEqual(asked.output[0].content[0].logprobs, [{ token: 'H', logprob: -1, bytes: [72], top_logprobs: [] }])
    assert.deepEqual((encode(responses, body(), { events, end: stop }).object as any).output[0].content[0].logprobs, [])
  })

  it('[ERR-8] an error frame, then response.failed; retry signals in both forms (wire.md D.4)', () => {
    const error = new GatewayError('provider_unavailable', { message: 'Gone.' })
    setRetryAfter(error, () => 0)
    const all = frames(drive(responses.encoder(contextFor(responses, body())), { events: [text('a')], end: error }))
    const [frame, failed] = all.slice(-2)
    const { sequence_number, ...rest } = frame
    assert.deepEqual(rest, {
      type: 'error',
      code: 'provider_unavailable',
      message: 'Gone.',
      param: null,
      request_id: 'req_test',
      retry_after_seconds: 5,
      error: {
        type: 'server_error',
        code: 'provider_unavailable',
        message: 'Gone.',
        request_id: 'req_test',
        param: null,
        retryable: true,
        details: { retry_after_seconds: 5 },
      },
    })
    assert.equal(failed.type, 'response.failed')
    assert.deepEqual(
      [failed.response.status, failed.response.error, failed.response.usage],
      ['failed', rest.error, null],
    )
    assert.equal(failed.response.output[0].status, 'incomplete')
    assert.equal(failed.sequence_number, sequence_number + 1)
  })

  it('[STR-6] a failure before the first event still opens the response', () => {
    const sse = responses
      .encoder(contextFor(responses, body()))
      .error(new GatewayError('internal_error', { message: 'm' }), ZERO_USAGE)
    assert.deepEqual(types(sse), ['response.created', 'response.in_progress', 'error', 'response.failed'])
    numbered(sse)
  })

  it('[STR-6] an event out of grammar is a bug and throws', () => {
    const fresh = (events: StreamEvent[]) => {
      const encoder = responses.encoder(contextFor(responses, body()))
      encoder.start()
      for (const e of events) encoder.event(e)
      return encoder
    }
    const open = call(0, ['{']).slice(0, -1)
    assert.throws(() => fresh([...open, text('x')]), /grammar/)
    assert.throws(() => fresh([{ type: 'tool_args', index: 0, text: '' }]), /grammar/)
    assert.throws(() => fresh([...open, { type: 'tool_end', index: 1 }]), /grammar/)
    assert.throws(() => fresh([search()[1]!]), /grammar/)
    assert.throws(() => fresh(call(1, [])), /grammar/)
    assert.throws(() => responses.encoder(contextFor(responses, body())).event(text('x')), /grammar/)
    const done = fresh([])
    assert.throws(() => done.start(), /grammar/)
    done.finish(stop, ZERO_USAGE)
    assert.throws(() => done.event(text('x')), /grammar/)
    assert.throws(() => done.finish(stop, ZERO_USAGE), /grammar/)
    assert.throws(() => done.error(new GatewayError('internal_error', { message: '' })), /grammar/)
  })
})

describe('reply recorder', () => {
  it('[RESP-2] a reply becomes the turn that a replay of its items would be', () => {
    const recorder = new ReplyRecorder()
    assert.equal(recorder.turn(), null)
    const continuation = { dialect: 'x', model: 'y', data: 1 }
    for (const event of [
      ...think('item_eba1_handle'),
      { type: 'reasoning_end', continuation },
      text('One'),
      text('.'),
      { type: 'break' },
      text('Two.'),
      { type: 'citation', citation: { url: 'u', title: 't' } },
      { type: 'refusal', text: 'No' },
      { type: 'refusal', text: '.' },
      { type: 'activity' },
      ...search('unavailable'),
      ...call(0, [], { namespace: 'ns', continuation }),
      ...call(1, ['a', 'b'], { kind: 'custom' }),
      ...call(2, ['{"cut']).slice(0, -1),
    ] as StreamEvent[])
      recorder.push(event)
    const path = 'previous_response_id'
    assert.deepEqual(recorder.turn(), {
      role: 'assistant',
      parts: [
        { type: 'reasoning', summary: ['First, look.', 'Then answer.'], handle: 'item_eba1_handle' },
        { type: 'reasoning', summary: [], continuation },
        { type: 'text', text: 'One.' },
        { type: 'text', text: 'Two.' },
        { type: 'refusal', text: 'No.' },
        {
          type: 'search',
          id: 'hist_eba1_s',
          query: 'oslo weather',
          results: [{ title: 'W', url: 'https://e.x/w' }],
          errorCode: 'unavailable',
        },
        {
          type: 'call',
          id: 'call_eba1_0',
          kind: 'function',
          name: 'get_weather',
          input: '{}',
          path,
          namespace: 'ns',
          continuation,
        },
        { type: 'call', id: 'call_eba1_1', kind: 'custom', name: 'get_weather', input: 'ab', path },
      ],
    })
  })
})

describe('compaction of Responses', () => {
  it('is one object: what the client keeps of its messages, the capsule, and the usage', () => {
    const { object } = encode(compact, { model: 'eb1-preview', input: 'hi' }, { events: [COMPACTION], end: stop })
    golden('responses/compact.json', `${JSON.stringify(object, null, 2)}\n`)
  })

  it('a refusal of the gateway itself is a message of it', () => {
    const events: StreamEvent[] = [{ type: 'refusal', text: 'No.' }]
    const { object } = encode(compact, { model: 'eb1-preview', input: 'hi' }, { events, end: stop })
    assert.deepEqual(
      (object as any).output.map((item: any) => item.content),
      [[{ type: 'refusal', refusal: 'No.' }]],
    )
  })
})
