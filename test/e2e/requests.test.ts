/** Requirements, caps, unknown fields, counts and retained responses, on every surface. */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import {
  bodyOf,
  DIALECTS,
  type Entry,
  PATHS,
  PNG,
  refused,
  SURFACES,
  type SurfaceName,
  served,
  type Tool,
} from './conversations.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

const user = (text: string): Entry[] => [{ user: text }]
const SUM: Tool = { name: 'sum', schema: { type: 'object', properties: {}, additionalProperties: false, required: [] } }

// ---- requirements ---------------------------------------------------------------------------------------------------

describe('[REQ-1] what no backend can do is refused before dispatch, naming the member', () => {
  const PROVIDERS = { oc: 'chat', or: 'responses', am: 'messages', gg: 'gemini' } as const
  type Short = keyof typeof PROVIDERS
  const ALL: Short[] = ['oc', 'or', 'am', 'gg']
  let gateway: TestGateway
  before(async () => {
    // Each dialect three times: with all it has, with nothing, and with a model of its maker that takes less.
    const lines: string[] = []
    const famous = { oc: 'sim-large', or: 'o4-mini', am: 'claude-opus-4-7', gg: 'gemini-2.0-flash' }
    for (const short of ALL) {
      const model = (id: string, backend: string) =>
        `  ${id}: { context_window: 100000, price: { input: 1, output: 1 }, backends: [{ provider: ${PROVIDERS[short]}, ${backend} }] }`
      lines.push(
        model(short, 'model: sim-large'),
        model(`${short}-bare`, 'model: sim-large, supports: []'),
        model(`${short}-own`, `model: ${famous[short]}`),
      )
    }
    gateway = await startGateway({ models: lines.join('\n') })
  })
  after(() => gateway.close())

  const thinking = { thinking: { type: 'enabled', budget_tokens: 1024 } }
  interface Case {
    name: string
    surfaces: Partial<Record<SurfaceName, { body: (model: string) => Record<string, unknown>; param: RegExp }>>
    /** Models that serve it, and those that can't. */
    can: string[]
    cannot: string[]
  }
  const everywhere = (
    make: (surface: SurfaceName, model: string) => Record<string, unknown>,
    params: Record<SurfaceName, RegExp>,
  ): Case['surfaces'] =>
    Object.fromEntries(SURFACES.map(s => [s, { body: (model: string) => make(s, model), param: params[s] }]))
  const CASES: Case[] = [
    {
      name: 'image input',
      surfaces: everywhere((s, m) => bodyOf(s, m, [{ user: 'x', image: true }]), {
        chat: /^messages\[0\]\.content\[1\]/,
        responses: /^input\[0\]\.content\[1\]/,
        messages: /^messages\[0\]\.content\[1\]/,
      }),
      can: ['oc', 'or', 'am', 'gg'],
      cannot: ['oc-bare', 'or-bare', 'am-bare', 'gg-bare'],
    },
    {
      name: 'a PDF',
      surfaces: everywhere((s, m) => bodyOf(s, m, [{ user: 'x', pdf: true }]), {
        chat: /^messages\[0\]\.content\[1\]/,
        responses: /^input\[0\]\.content\[1\]/,
        messages: /^messages\[0\]\.content\[1\]/,
      }),
      can: ['oc', 'or', 'am', 'gg'],
      cannot: ['oc-bare', 'or-bare', 'am-bare', 'gg-bare'],
    },
    {
      name: 'log probabilities',
      surfaces: {
        chat: {
          body: m => bodyOf('chat', m, user('x'), { more: { logprobs: true, top_logprobs: 2 } }),
          param: /^logprobs$/,
        },
        responses: {
          body: m => bodyOf('responses', m, user('x'), { more: { include: ['message.output_text.logprobs'] } }),
          param: /^include/,
        },
      },
      can: ['oc', 'or', 'gg'],
      cannot: ['oc-bare', 'or-bare', 'gg-bare', 'am', 'am-bare', 'or-own'],
    },
    {
      name: 'at most one call a turn',
      surfaces: everywhere(
        (s, m) =>
          bodyOf(s, m, user('x'), {
            tools: [SUM],
            more:
              s === 'messages'
                ? { tool_choice: { type: 'auto', disable_parallel_tool_use: true } }
                : { parallel_tool_calls: false },
          }),
        {
          chat: /^parallel_tool_calls$/,
          responses: /^parallel_tool_calls$/,
          messages: /^tool_choice\.disable_parallel_tool_use$/,
        },
      ),
      can: ['oc', 'or', 'am', 'gg'],
      cannot: [],
    },
    {
      name: 'a forced tool while thinking can’t be off',
      surfaces: {
        messages: {
          body: m =>
            bodyOf('messages', m, user('x'), { tools: [SUM], more: { ...thinking, tool_choice: { type: 'any' } } }),
          param: /^tool_choice$/,
        },
      },
      can: ['oc', 'or', 'gg'],
      cannot: ['am'],
    },
    {
      name: 'tools at all',
      surfaces: everywhere((s, m) => bodyOf(s, m, user('x'), { tools: [SUM] }), {
        chat: /^tools\[0\]/,
        responses: /^tools\[0\]/,
        messages: /^tools\[0\]/,
      }),
      can: ['oc', 'or', 'am', 'gg'],
      cannot: ['oc-bare', 'or-bare', 'am-bare', 'gg-bare'],
    },
    {
      name: 'a strict tool',
      surfaces: everywhere((s, m) => bodyOf(s, m, user('x'), { tools: [{ ...SUM, strict: true }] }), {
        chat: /^tools\[0\]\.function\.strict$/,
        responses: /^tools\[0\]\.strict$/,
        messages: /^tools\[0\]\.strict$/,
      }),
      can: ['oc', 'or', 'am', 'gg'],
      cannot: ['gg-own'],
    },
    {
      name: 'top_k',
      surfaces: { messages: { body: m => bodyOf('messages', m, user('x'), { more: { top_k: 5 } }), param: /^top_k$/ } },
      can: ['am', 'gg'],
      cannot: ['oc', 'or', 'am-own'],
    },
    {
      name: 'an assistant message to continue',
      surfaces: {
        messages: { body: m => bodyOf('messages', m, [{ user: 'x' }, { assistant: 'It is' }]), param: /^messages/ },
      },
      can: ['oc', 'am', 'gg'],
      cannot: ['oc-bare', 'or', 'am-own', 'am-bare'],
    },
    {
      name: 'reasoning controls',
      surfaces: {
        chat: {
          body: m => bodyOf('chat', m, user('x'), { more: { reasoning_effort: 'high' } }),
          param: /^reasoning_effort$/,
        },
        responses: {
          body: m => bodyOf('responses', m, user('x'), { more: { reasoning: { effort: 'high' } } }),
          param: /^reasoning\.effort$/,
        },
        messages: { body: m => bodyOf('messages', m, user('x'), { more: thinking }), param: /^thinking/ },
      },
      can: ['oc', 'or', 'am', 'gg'],
      cannot: ['oc-bare', 'or-bare', 'am-bare', 'gg-bare', 'gg-own'],
    },
    {
      name: 'a document by URL',
      surfaces: {
        messages: {
          body: m =>
            bodyOf('messages', m, [], {
              more: {
                messages: [
                  {
                    role: 'user',
                    content: [{ type: 'document', source: { type: 'url', url: 'https://example.com/a.pdf' } }],
                  },
                ],
              },
            }),
          param: /^messages\[0\]\.content\[0\]/,
        },
        responses: {
          body: m => ({
            model: m,
            input: [{ role: 'user', content: [{ type: 'input_file', file_url: 'https://example.com/a.pdf' }] }],
          }),
          param: /^input\[0\]\.content\[0\]/,
        },
      },
      can: ['or', 'am'],
      cannot: ['oc', 'gg'],
    },
  ]
  for (const { name, surfaces, can, cannot } of CASES) {
    for (const [surface, { body, param }] of Object.entries(surfaces) as [
      SurfaceName,
      NonNullable<Case['surfaces'][SurfaceName]>,
    ][]) {
      test(`[REQ-1] ${surface}: ${name}`, async () => {
        for (const model of can) await served(gateway, surface, body(model))
        for (const model of cannot) {
          const executed = gateway.simulator.requests.length
          const error = await refused(gateway, surface, body(model))
          assert.deepEqual(
            [error.code, error.type, error.retryable],
            ['request_requirements_unsatisfied', 'invalid_request_error', false],
            model,
          )
          assert.match(error.param, param, model)
          assert.equal(gateway.simulator.requests.length, executed)
          const streamed = await gateway.post(PATHS[surface], { ...body(model), stream: true })
          assert.equal(streamed.status, 400, 'before the stream')
          await streamed.text()
        }
      })
    }
  }

  test('[REQ-1] stop strings of any number and effort none are no requirement: they are met', async () => {
    const stops = ['never1', 'never2', 'never3', 'never4', 'never5', 'never6', 'stops here']
    for (const model of ALL) {
      const message = await served(
        gateway,
        'messages',
        bodyOf('messages', model, user('[[sim: text "One two stops here, not there."]] x'), {
          more: { stop_sequences: stops },
        }),
      )
      assert.equal(message.text, 'One two ')
      assert.deepEqual([message.body.stop_reason, message.body.stop_sequence], ['stop_sequence', 'stops here'])
      const chat = await served(
        gateway,
        'chat',
        bodyOf('chat', model, user('[[sim: text "One two stops here, not there."]] x'), {
          more: { stop: 'stops here' },
        }),
      )
      assert.deepEqual([chat.text, chat.body.choices[0].finish_reason], ['One two ', 'stop'])
      await served(gateway, 'chat', bodyOf('chat', model, user('x'), { more: { reasoning_effort: 'none' } }))
      await served(
        gateway,
        'responses',
        bodyOf('responses', model, user('x'), { more: { reasoning: { effort: 'none' } } }),
      )
    }
  })
})

// ---- caps -----------------------------------------------------------------------------------------------------------

test('[REQ-2] caps on images, documents, replay, nodes and nesting, each named, on every surface', async () => {
  const small = await startGateway({
    plugins: { validation: '{ max_images: 2, max_documents: 1, max_replay: 200B, max_nodes: 300, max_depth: 12 }' },
  })
  try {
    for (const surface of SURFACES) {
      const ask = (entries: Entry[], tools?: Tool[]) => bodyOf(surface, 'eb1-preview', entries, { tools })
      let deep: any = { type: 'string' }
      for (let i = 0; i < 12; i++) deep = { type: 'array', items: deep }
      const wide = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`p${i}`, {}]))
      const image: Entry = { user: 'x', image: true }
      const cases: [Record<string, unknown>, RegExp][] = [
        [ask([image, image, image]), /3 images; the limit is 2 \(max_images\)/],
        [
          ask([
            { user: 'x', pdf: true },
            { user: 'x', pdf: true },
          ]),
          /2 documents; the limit is 1 \(max_documents\)/,
        ],
        [
          ask([{ user: 'x'.repeat(150) }, { assistant: 'y'.repeat(100) }, { user: 'z' }]),
          /250 bytes of replayed history; the limit is 200 \(max_replay\)/,
        ],
        [
          ask([{ user: 'x' }], [{ name: 'f', schema: { type: 'object', properties: wide } }]),
          /values; the limit is 300 \(max_nodes\)/,
        ],
        [
          ask([{ user: 'x' }], [{ name: 'f', schema: { type: 'object', properties: { deep } } }]),
          /levels deep; the limit is 12 \(max_depth\)/,
        ],
      ]
      for (const [body, message] of cases) {
        const error = await refused(small, surface, body)
        assert.deepEqual([error.code, error.type], ['content_limit_exceeded', 'invalid_request_error'])
        assert.match(error.message, message)
      }
      await served(small, surface, ask([image, image]))
      await served(small, surface, ask([{ user: 'x'.repeat(1000) }]))
    }
  } finally {
    await small.close()
  }
})

test('[REQ-2] [RESP-2] what counts no tokens is replayed history too: a chain of retained responses does not grow by it', async () => {
  const small = await startGateway({ plugins: { validation: '{ max_replay: 4KiB, max_body: 16KiB }' } })
  try {
    const long = 'x'.repeat(3000)
    const said = () => [{ type: 'reasoning', summary: [{ type: 'summary_text', text: long }] }]
    const called = (id: string) => [
      { type: 'function_call', call_id: `${id}${'x'.repeat(1500)}`, name: 'f', arguments: '{}' },
      { type: 'function_call_output', call_id: `${id}${'x'.repeat(1500)}`, output: 'y' },
    ]
    for (const hidden of [said, called]) {
      const post = (id: string, previous_response_id?: string) => {
        const input = [{ role: 'user', content: 'x' }, ...hidden(id), { role: 'user', content: 'y' }]
        return small.post('/v1/responses', { model: 'eb1-preview', input, previous_response_id })
      }
      const first = (await (await post('a')).json()) as any
      const second = await post('b', first.id)
      assert.equal(second.status, 400)
      assert.match(((await second.json()) as any).error.message, /bytes of replayed history; the limit is/)
    }
  } finally {
    await small.close()
  }
})

// ---- unknown fields -------------------------------------------------------------------------------------------------

test('[GEN-2] strip mode removes unknown fields at any depth and says which; what is known is still checked', async () => {
  const lenient = await startGateway({
    plugins: { validation: '{ unknown_fields: { chat: strip, responses: strip, messages: strip } }' },
  })
  try {
    const bodies: Record<SurfaceName, [Record<string, unknown>, string[]]> = {
      chat: [
        {
          model: 'eb1-preview',
          foo: 1,
          messages: [{ role: 'user', content: [{ type: 'text', text: 'x', bar: { deep: 1 } }], baz: null }],
          stream_options: { qux: true },
        },
        ['foo', 'messages[0].content[0].bar', 'messages[0].baz', 'stream_options.qux'],
      ],
      responses: [
        {
          model: 'eb1-preview',
          foo: 1,
          input: [{ role: 'user', content: [{ type: 'input_text', text: 'x', bar: 1 }] }],
          reasoning: { qux: true },
        },
        ['foo', 'input[0].content[0].bar', 'reasoning.qux'],
      ],
      messages: [
        {
          model: 'eb1-preview',
          foo: 1,
          max_tokens: 9,
          messages: [{ role: 'user', content: [{ type: 'text', text: 'x', bar: 1 }] }],
          thinking: { type: 'disabled', qux: 1 },
        },
        ['foo', 'messages[0].content[0].bar', 'thinking.qux'],
      ],
    }
    for (const surface of SURFACES) {
      const [body, paths] = bodies[surface]
      for (const stream of [false, true]) {
        const response = await lenient.post(PATHS[surface], { ...body, stream })
        assert.equal(response.status, 200, await response.text())
        assert.deepEqual(response.headers.get('x-sluice-stripped')!.split(', ').sort(), [...paths].sort())
        assert.doesNotMatch(lenient.simulator.requests.at(-1)!.body, /foo|bar|qux/)
      }
      const clean = await lenient.post(PATHS[surface], bodyOf(surface, 'eb1-preview', user('x')))
      await clean.text()
      assert.equal(clean.headers.get('x-sluice-stripped'), null)
      // An official member that is not offered is no unknown one.
      const rejected = {
        chat: { response_format: { type: 'json_object' } },
        responses: { conversation: 'c' },
        messages: { container: 'c' },
      }[surface]
      const error = await refused(lenient, surface, bodyOf(surface, 'eb1-preview', user('x'), { more: rejected }))
      assert.equal(error.param, Object.keys(rejected)[0])
      assert.equal((await refused(t, surface, { ...body })).code, 'unknown_parameter')
    }
  } finally {
    await lenient.close()
  }
})

test('[GEN-2] [MSG-5] paths are in the notation of the surface, and the codes are those of each fault', async () => {
  const cases: [SurfaceName, Record<string, unknown>, string, string][] = [
    [
      'chat',
      {
        model: 'eb1-preview',
        messages: [
          {
            role: 'user',
            content: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}`, foo: 1 } }],
          },
        ],
      },
      'unknown_parameter',
      'messages[0].content[0].image_url.foo',
    ],
    [
      'chat',
      { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }], temperature: 3 },
      'invalid_value',
      'temperature',
    ],
    ['chat', { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }], n: 2 }, 'unsupported_value', 'n'],
    [
      'chat',
      { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }], functions: [] },
      'unsupported_parameter',
      'functions',
    ],
    [
      'chat',
      { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }], max_tokens: '5' },
      'invalid_type',
      'max_tokens',
    ],
    [
      'chat',
      { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }], max_tokens: 5, max_completion_tokens: 6 },
      'invalid_value',
      'max_tokens',
    ],
    ['chat', { model: 'eb1-preview' }, 'missing_required_parameter', 'messages'],
    [
      'chat',
      {
        model: 'eb1-preview',
        system: 's',
        messages: [
          { role: 'system', content: 'x' },
          { role: 'user', content: 'x' },
        ],
      },
      'invalid_value',
      'system',
    ],
    [
      'chat',
      {
        model: 'eb1-preview',
        messages: [
          { role: 'assistant', content: [{ type: 'image_url', image_url: { url: 'https://example.com/a.png' } }] },
        ],
      },
      'unsupported_value',
      'messages[0].content[0].type',
    ],
    [
      'chat',
      {
        model: 'eb1-preview',
        messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'http://example.com/a.png' } }] }],
      },
      'invalid_value',
      'messages[0].content[0].image_url.url',
    ],
    [
      'responses',
      { model: 'eb1-preview', input: [{ type: 'item_reference', id: 'item_eba1_x' }] },
      'unsupported_value',
      'input[0].type',
    ],
    ['responses', { model: 'eb1-preview', input: [{ id: 'item_eba1_x' }] }, 'unsupported_value', 'input[0].type'],
    [
      'responses',
      { model: 'eb1-preview', input: 'x', conversation: 'conv_1' },
      'unsupported_parameter',
      'conversation',
    ],
    [
      'responses',
      { model: 'eb1-preview', input: [{ type: 'function_call', call_id: 'c', name: 'f', arguments: '{}', foo: 1 }] },
      'unknown_parameter',
      'input[0].foo',
    ],
    [
      'responses',
      { model: 'eb1-preview', input: 'x', tools: [{ type: 'file_search' }] },
      'unsupported_value',
      'tools[0].type',
    ],
    [
      'messages',
      {
        model: 'eb1-preview',
        max_tokens: 9,
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'x' },
              { type: 'text', text: 'x', foo: 1 },
            ],
          },
        ],
      },
      'unknown_parameter',
      'messages[0].content[1].foo',
    ],
    [
      'messages',
      {
        model: 'eb1-preview',
        max_tokens: 9,
        messages: [{ role: 'user', content: [{ type: 'container_upload', file_id: 'f' }] }],
      },
      'unsupported_value',
      'messages[0].content[0].type',
    ],
    [
      'messages',
      { model: 'eb1-preview', max_tokens: 0, messages: [{ role: 'user', content: 'x' }] },
      'invalid_value',
      'max_tokens',
    ],
    [
      'messages',
      { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }] },
      'missing_required_parameter',
      'max_tokens',
    ],
    [
      'messages',
      {
        model: 'eb1-preview',
        max_tokens: 9,
        messages: [{ role: 'user', content: 'x' }],
        output_config: { format: { type: 'json_schema', schema: {} } },
      },
      'invalid_value',
      'output_config.format.schema.type',
    ],
  ]
  for (const [surface, body, code, param] of cases) {
    for (const stream of [false, true]) {
      const error = await refused(t, surface, { ...body, stream })
      assert.deepEqual([error.code, error.param, error.retryable], [code, param, false], JSON.stringify(body))
    }
  }
})

test('[RESP-4] [GEN-2] null on an optional member is absent; empty lists are absent; what was sent out is accepted back', async () => {
  await served(t, 'responses', {
    model: 'eb1-preview',
    input: 'x',
    conversation: null,
    prompt: null,
    background: false,
    tools: [],
    include: [],
    metadata: null,
    temperature: null,
  })
  await served(t, 'chat', {
    model: 'eb1-preview',
    messages: [{ role: 'user', content: 'x' }],
    audio: null,
    tools: [],
    stop: [],
    logit_bias: {},
    presence_penalty: 0,
    n: 1,
  })
  await served(t, 'messages', {
    model: 'eb1-preview',
    max_tokens: 9,
    messages: [{ role: 'user', content: 'x' }],
    tools: [],
    stop_sequences: [],
    metadata: null,
  })
  for (const model of Object.values(DIALECTS)) {
    const refusal = await served(t, 'responses', bodyOf('responses', model, user('[[sim: refuse "No."]] bad')))
    const parts = refusal.body.output.flatMap((o: any) => o.content ?? [])
    if (parts.some((p: any) => p.type === 'refusal'))
      assert.ok(
        parts.every((p: any) => p.type === 'refusal'),
        'no text beside a refusal',
      )
    await served(t, 'responses', {
      model,
      input: [{ role: 'user', content: 'x' }, ...refusal.body.output, { role: 'user', content: 'y' }],
    })
    const chat = await served(t, 'chat', bodyOf('chat', model, user('[[sim: refuse "No."]] bad')))
    await served(t, 'chat', {
      model,
      messages: [
        { role: 'user', content: 'x' },
        { ...chat.body.choices[0].message, parsed: null },
        { role: 'user', content: 'y' },
      ],
    })
    // One dialect's refusal ended Chat Completions as `content_filter`, and Responses as incomplete, the others' not.
    assert.deepEqual(
      [
        refusal.body.status,
        parts.length,
        chat.body.choices[0].finish_reason,
        typeof chat.body.choices[0].message.refusal,
      ],
      ['completed', 1, 'stop', 'string'],
      model,
    )
    const message = await served(t, 'messages', bodyOf('messages', model, user('[[sim: refuse "No."]] bad')))
    assert.equal(message.body.stop_reason, 'refusal')
    await served(t, 'messages', {
      model,
      max_tokens: 9,
      messages: [
        { role: 'user', content: 'x' },
        { role: 'assistant', content: message.body.content },
        { role: 'user', content: 'y' },
      ],
    })
  }
})

// ---- counts ---------------------------------------------------------------------------------------------------------

test('[METER-1] one conversation counts the same on all three surfaces, on every dialect, every time', async () => {
  const call = { id: 'c1', name: 'get_weather', input: { city: 'Zürich 🌍' } }
  const tools: Tool[] = [
    {
      name: 'get_weather',
      description: 'Weather «here».',
      schema: { type: 'object', properties: { city: { type: 'string' } } },
    },
  ]
  const cases: Record<string, [Entry[], Tool[]?]> = {
    text: [[{ user: 'Grüße, 世界 🌍' }]],
    system: [[{ system: 'Be brief.' }, { user: 'hi' }]],
    history: [[{ user: 'one' }, { assistant: 'two' }, { user: 'three' }]],
    'two user messages': [[{ user: 'one' }, { user: 'two' }]],
    tools: [[{ user: 'weather?' }], tools],
    'tool history': [
      [
        { user: 'weather?' },
        { text: 'I look.', calls: [call, { ...call, id: 'c2' }] },
        {
          results: [
            { id: 'c1', output: 'sunny' },
            { id: 'c2', output: '{"a": 1}' },
          ],
        },
        { user: 'thanks' },
      ],
      tools,
    ],
    image: [[{ user: 'what?', image: true }]],
    document: [[{ user: 'sum up', pdf: true }]],
    all: [
      [
        { system: 'S' },
        { user: 'a', image: true, pdf: true },
        { assistant: 'b' },
        { user: 'c' },
        { calls: [call] },
        { results: [{ id: 'c1', output: 'r' }] },
      ],
      tools,
    ],
  }
  for (const [name, [entries, declared]] of Object.entries(cases)) {
    const counts = new Map<string, number>()
    for (const [dialect, model] of Object.entries(DIALECTS)) {
      for (const surface of SURFACES) {
        for (let again = 0; again < 2; again++)
          counts.set(
            `${surface} ${dialect} ${again}`,
            (await served(t, surface, bodyOf(surface, model, entries, { tools: declared }))).prompt,
          )
      }
    }
    const counted: any = await (
      await t.post('/v1/messages/count_tokens', bodyOf('messages', 'eb1-preview', entries, { tools: declared }))
    ).json()
    counts.set('count_tokens', counted.input_tokens)
    assert.equal(new Set(counts.values()).size, 1, `${name}: ${JSON.stringify([...counts])}`)
  }
})

test('[METER-5] [METER-6] [METER-4] the cached share is the provider’s, on the metered prompt; totals add up; streams report the same', async () => {
  for (const [dialect, model] of Object.entries(DIALECTS)) {
    for (const surface of SURFACES) {
      const marked = surface === 'messages' ? { cache_control: { type: 'ephemeral' } } : {}
      const ask = bodyOf(
        surface,
        model,
        [{ user: `${surface} ${'long prompt '.repeat(400)}` }, { assistant: 'ok' }, { user: 'go on' }],
        { more: marked },
      )
      const first = await served(t, surface, ask)
      const second = await served(t, surface, ask)
      assert.equal(first.prompt, second.prompt)
      assert.equal(first.cached, 0)
      assert.ok(
        second.cached > 0 && second.cached <= second.prompt,
        `${surface} ${dialect}: ${second.cached} of ${second.prompt}`,
      )
      const row = (await t.ledger()).at(-1)!.input === second.prompt
      assert.ok(row)
      if (surface === 'messages') {
        const { usage } = second.body
        assert.equal(
          usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
          second.prompt,
        )
        assert.ok(usage.input_tokens < second.prompt)
        if (dialect === 'anthropic-messages') assert.ok(first.cacheWrite > 0, 'written the first time')
      } else if (surface === 'chat') {
        const { usage } = second.body
        assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        assert.ok(usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens)
      } else {
        const { usage } = second.body
        assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens)
        assert.ok(
          usage.input_tokens_details.cached_tokens + usage.input_tokens_details.cache_write_tokens <=
            usage.input_tokens,
        )
      }
      const reasons = {
        chat: { reasoning_effort: 'high' },
        responses: { reasoning: { effort: 'high' } },
        messages: { thinking: { type: 'adaptive' }, output_config: { effort: 'high' } },
      }[surface]
      const thought = await served(
        t,
        surface,
        bodyOf(surface, model, user('[[sim: reason 1 tokens 777; text "four words of text"]] think'), {
          more: reasons,
        }),
      )
      assert.equal(thought.reasoning, 777, `${surface} ${dialect}: as reported, not clamped`)
      assert.equal(thought.output, 777 + 4)
    }
  }
})

test('[STR-3] reasoning that ate the whole budget says so on every surface', async () => {
  for (const model of Object.values(DIALECTS)) {
    for (const stream of [false, true]) {
      const text = '[[sim: reason 1 tokens 900]] think'
      const ask = { model, input: text, max_output_tokens: 100, reasoning: { effort: 'high' as const } }
      const response: any = stream
        ? await t.openai().responses.stream(ask).finalResponse()
        : await t.openai().responses.create(ask)
      assert.deepEqual([response.status, response.incomplete_details.reason], ['incomplete', 'max_output_tokens'])
      assert.match(response.warning.message, /max_output_tokens/)
      const chat = await served(
        t,
        'chat',
        bodyOf('chat', model, user(text), { more: { max_tokens: 100, reasoning_effort: 'high' } }),
      )
      assert.deepEqual([chat.text, chat.body.choices[0].finish_reason], ['', 'length'])
      const message = await served(t, 'messages', { ...bodyOf('messages', model, user(text)), max_tokens: 100 })
      assert.equal(message.body.stop_reason, 'max_tokens')
    }
  }
})

// ---- retained responses ---------------------------------------------------------------------------------------------

test('[RESP-2] [MOD-3] a chain continues on any model, by legacy ids too, and keeps what was said; instructions are not inherited', async () => {
  const say = (body: Record<string, unknown>) => served(t, 'responses', body)
  const ids = [...Object.values(DIALECTS), 'eb1-preview-efficient', 'eb1-preview-fast', 'eb1-preview-delta']
  let previous: string | undefined
  for (const [i, model] of ids.entries()) {
    const said = await say({
      model,
      input: [
        { role: 'developer', content: `rule ${i}` },
        { role: 'user', content: `[[sim: text "answer ${i}"]] question ${i}` },
      ],
      instructions: `instruction ${i}`,
      ...(previous && { previous_response_id: previous }),
    })
    const sent = t.simulator.requests.at(-1)!.body
    for (let k = 0; k < i; k++)
      assert.ok(
        sent.includes(`question ${k}`) && sent.includes(`answer ${k}`) && sent.includes(`rule ${k}`),
        `${model}: turn ${k} of ${i}`,
      )
    assert.ok(sent.includes(`instruction ${i}`))
    if (i > 0) assert.ok(!sent.includes(`instruction ${i - 1}`))
    assert.equal(said.body.previous_response_id, previous ?? null)
    assert.equal(
      said.body.model,
      {
        'eb1-preview-efficient': 'eb1-efficient-preview',
        'eb1-preview-fast': 'eb1-fast-preview',
        'eb1-preview-delta': 'eb1-delta-preview',
      }[model] ?? model,
    )
    previous = said.body.id
  }
  // A chain forks: two continue the same response.
  for (const text of ['left', 'right'])
    assert.equal(
      (await say({ model: 'eb1-preview', input: text, previous_response_id: previous })).body.status,
      'completed',
    )
})

test('[METER-2] half a surrogate pair is U+FFFD to every upstream, which would take it for no JSON', async () => {
  for (const length of [1, 40_000]) {
    const text = `${'a '.repeat(length)}\ud83d, 😀 \\ud83d`
    for (const model of Object.values(DIALECTS)) {
      await served(t, 'chat', bodyOf('chat', model, [{ user: text }]))
      const sent = t.simulator.requests.at(-1)!.body
      assert.ok(sent.includes('a \ufffd, 😀 \\\\ud83d'), sent.slice(-300))
    }
  }
})

test('[RESP-2] [METER-1] tools that items have loaded stay loaded, and count as they do when all is sent again', async () => {
  const fn = (name: string) => ({ type: 'function', name, parameters: { type: 'object', properties: {} } })
  const tools = [{ type: 'tool_search', execution: 'client' }, fn('now')]
  const say = async (input: unknown[], previous?: string) => {
    const body = { model: 'eb1-preview', tools, input, ...(previous && { previous_response_id: previous }) }
    const { body: response } = await served(t, 'responses', body)
    const sent = JSON.parse(t.simulator.requests.at(-1)!.body).tools.map((tool: any) => tool.function.name)
    return { ...response, sent }
  }
  const opening = [
    { type: 'additional_tools', role: 'developer', tools: [fn('mail')] },
    { role: 'user', content: '[[sim: call tool_search {"query":"weather"}]] find' },
  ]
  const first = await say(opening)
  const [call] = first.output
  const found = [
    {
      type: 'tool_search_output',
      call_id: call.call_id,
      execution: 'client',
      tools: [{ type: 'namespace', name: 'sky', tools: [fn('weather')] }, fn('now')],
    },
  ]
  const second = await say(found, first.id)
  const last = [
    { type: 'additional_tools', role: 'developer', tools: [fn('mail'), fn('post')] },
    { role: 'user', content: 'and now?' },
  ]
  const third = await say(last, second.id)
  assert.deepEqual(third.sent, ['tool_search', 'now', 'mail', 'sky__weather', 'post'])
  // Chosen by name in the same breath: no item of this request has the tool.
  const chosen = { input: 'x', previous_response_id: second.id, tool_choice: { type: 'function', name: 'weather' } }
  await served(t, 'responses', { model: 'eb1-preview', ...chosen })
  const { tool_choice } = JSON.parse(t.simulator.requests.at(-1)!.body)
  assert.deepEqual(tool_choice, { type: 'function', function: { name: 'sky__weather' } })
  const whole = await say([...opening, ...first.output, ...found, ...second.output, ...last])
  assert.deepEqual([whole.sent, whole.usage.input_tokens], [third.sent, third.usage.input_tokens])
})

test('[RESP-2] [RESP-3] unknown, not stored, another organization’s and too large: one answer', async () => {
  const unknown = (body: Record<string, unknown>, headers: Record<string, string> = {}) =>
    t
      .post('/v1/responses', { model: 'eb1-preview', input: 'x', ...body }, headers)
      .then(async r => ({ status: r.status, error: ((await r.json()) as any).error }))
  const kept = await served(t, 'responses', { model: 'eb1-preview', input: 'x' })
  const dropped = await served(t, 'responses', { model: 'eb1-preview', input: 'x', store: false })
  const large = await served(t, 'responses', {
    model: 'eb1-preview',
    input: 'x',
    instructions: `w${' '.repeat(1_100_000)}`,
  })
  assert.equal(large.body.status, 'completed', 'served all the same')
  const streamed: any = await t.openai().responses.stream({ model: 'eb1-preview', input: 'x' }).finalResponse()
  for (const [id, headers] of [
    ['resp_unknown', {}],
    [dropped.body.id, {}],
    [large.body.id, {}],
    [kept.body.id, { authorization: 'Bearer sk-other-0001-secret' }],
    ['<script>', {}],
  ] as [string, Record<string, string>][]) {
    const { status, error } = await unknown({ previous_response_id: id }, headers)
    assert.deepEqual(
      [status, error.code, error.param],
      [400, 'previous_response_not_found', 'previous_response_id'],
      id,
    )
  }
  for (const id of [kept.body.id, streamed.id])
    assert.equal((await unknown({ previous_response_id: id }, { authorization: `Bearer ${KEY}` })).status, 200)
})

test('[METER-5] a client’s cache markers become an affinity key where the dialect has no markers, and its accounts are no part of it', async () => {
  const keyOf = async (model: string, more: object): Promise<string | undefined> => {
    const body = { model, max_tokens: 50, messages: [{ role: 'user', content: 'x' }], ...more }
    assert.equal((await t.post('/v1/messages', body)).status, 200)
    return JSON.parse(t.simulator.requests.at(-1)!.body).prompt_cache_key
  }
  const cache_control = { type: 'ephemeral' }
  const text = (value: string, more = {}) => ({ type: 'text', text: value, ...more })
  const account = (n: number) => text(`x-anthropic-billing-header: cch=${n};`)
  for (const model of ['eb1-preview', 'eb1-efficient-preview']) {
    const marked = await keyOf(model, { system: [account(1), text('Be brief.', { cache_control })] })
    assert.match(marked!, /^[A-Za-z0-9_-]{32}$/)
    assert.equal(await keyOf(model, { system: [account(2), text('Be brief.', { cache_control })] }), marked)
    const later = [{ role: 'user', content: [text('y', { cache_control })] }]
    assert.equal(await keyOf(model, { system: [text('Be brief.')], messages: later }), marked)
    assert.notEqual(await keyOf(model, { system: [text('Be long.', { cache_control })] }), marked)
    assert.equal(await keyOf(model, { system: [text('Be brief.')] }), undefined)
    assert.equal(await keyOf(model, { messages: later }), undefined)
  }
})

test('[RESP-2] [METER-1] a response with reasoning counts the same by previous_response_id and sent back as it came, its summary shown or not', async () => {
  const user = [{ role: 'user', content: '[[sim: reason 3; text "So."]] why?' }]
  const more = [{ role: 'user', content: 'and then?' }]
  for (const [dialect, model] of Object.entries(DIALECTS)) {
    for (const reasoning of [{ effort: 'high', summary: 'auto' }, { effort: 'high' }]) {
      const first = await served(t, 'responses', { model, input: user, reasoning })
      const { id, output } = first.body
      const whole = await served(t, 'responses', { model, input: [...user, ...output, ...more], store: false })
      const linked = await served(t, 'responses', { model, input: more, previous_response_id: id, store: false })
      assert.ok(first.reasoning > 0)
      assert.equal(linked.prompt, whole.prompt, `${dialect} ${JSON.stringify(reasoning)}`)
    }
  }
})
