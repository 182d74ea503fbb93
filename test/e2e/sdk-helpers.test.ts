/** What the official clients do by themselves: tool runners, thinking, model lists, counting. */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

const DIALECTS = {
  'openai-chat': 'eb1-preview',
  'openai-responses': 'eb1-efficient-preview',
  'anthropic-messages': 'eb1-fast-preview',
  gemini: 'eb1-frontier-preview',
}

describe('helpers of the clients', () => {
  const ASK = '[[sim: reason 1; call add {"a":1,"b":2}; call add {"a":3,"b":4}; next call add {"a":3,"b":7}]] add'

  for (const [dialect, id] of Object.entries(DIALECTS)) {
    test(`[CHAT-4] [TOOL-1] openai runTools over ${dialect}, buffered and streamed`, async () => {
      for (const stream of [false, true]) {
        const sums: number[] = []
        const params = {
          model: id,
          messages: [{ role: 'user' as const, content: ASK }],
          tools: [
            {
              type: 'function' as const,
              function: {
                name: 'add',
                description: 'Adds.',
                parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } } },
                parse: JSON.parse,
                function: ({ a, b }: { a: number; b: number }) => {
                  sums.push(a + b)
                  return String(a + b)
                },
              },
            },
          ],
        }
        const runner = stream
          ? t.openai().chat.completions.runTools({ ...params, stream: true } as any)
          : t.openai().chat.completions.runTools(params as any)
        const final = await runner.finalContent()
        assert.deepEqual(sums, [3, 7, 10])
        assert.match(final!, /10/)
        const usage = await runner.totalUsage()
        if (!stream) assert.ok(usage.total_tokens > 0)
      }
    })

    test(`[MSG-1] [TOOL-1] the anthropic tool runner over ${dialect}, buffered and streamed`, async () => {
      for (const stream of [false, true]) {
        const sums: number[] = []
        const runner = t.anthropic().beta.messages.toolRunner({
          model: id,
          max_tokens: 2000,
          stream,
          messages: [{ role: 'user', content: ASK }],
          tools: [
            {
              type: 'custom',
              name: 'add',
              description: 'Adds.',
              input_schema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } } },
              parse: (input: unknown) => input as { a: number; b: number },
              run: ({ a, b }: { a: number; b: number }) => {
                sums.push(a + b)
                return String(a + b)
              },
            } as any,
          ],
        })
        const last: any = await runner.runUntilDone()
        assert.deepEqual(sums, [3, 7, 10])
        assert.match(last.content.map((b: any) => b.text ?? '').join(''), /10/)
      }
    })

    test(`[MSG-1] [MSG-6] thinking over ${dialect}: enabled, adaptive and off; replayed thinking does no harm`, async () => {
      const client = t.anthropic()
      const ask = {
        model: id,
        max_tokens: 4000,
        messages: [{ role: 'user' as const, content: '[[sim: reason 2]] think' }],
      }
      for (const thinking of [{ type: 'enabled', budget_tokens: 2000 }, { type: 'adaptive' }] as any[]) {
        const stream = client.messages.stream({ ...ask, thinking })
        const deltas: string[] = []
        stream.on('thinking', delta => void deltas.push(delta))
        const final = await stream.finalMessage()
        const block: any = final.content[0]
        assert.equal(block.type, 'thinking')
        assert.equal(block.signature, '')
        assert.equal(deltas.join(''), block.thinking)
        assert.ok(final.usage.output_tokens_details!.thinking_tokens > 0)
        const again = await client.messages.create({
          ...ask,
          thinking,
          messages: [
            ...ask.messages,
            { role: 'assistant', content: final.content },
            { role: 'user', content: 'go on' },
          ],
        })
        assert.equal(again.stop_reason, 'end_turn')
        assert.doesNotMatch(t.simulator.requests.at(-1)!.body, /"signature":""/)
      }
      const off = await client.messages.create({ ...ask, thinking: { type: 'disabled' } })
      assert.ok(off.content.every((b: any) => b.type === 'text'))
      const omitted = await client.messages.create({
        ...ask,
        thinking: { type: 'adaptive', display: 'omitted' },
      } as any)
      assert.ok(omitted.content.every((b: any) => b.type === 'text'))
    })
  }

  test('[MOD-1] models.list in both clients, every page', async () => {
    const ids = ['eb1-preview', 'eb1-efficient-preview', 'eb1-fast-preview', 'eb1-frontier-preview']
    const openai = []
    for await (const entry of t.openai().models.list()) openai.push(entry)
    assert.deepEqual(
      openai.map(m => m.id),
      ids,
    )
    assert.ok(openai.every(m => m.object === 'model' && Number.isInteger(m.created) && m.owned_by))
    const anthropic: any[] = []
    for await (const entry of t.anthropic().models.list({ limit: 2 })) anthropic.push(entry)
    assert.deepEqual(
      anthropic.map(m => m.id),
      ids,
    )
    for (const m of anthropic) {
      assert.equal(m.type, 'model')
      assert.ok(m.display_name)
      assert.ok(!Number.isNaN(Date.parse(m.created_at)))
      assert.equal(m.max_input_tokens, m.context_window)
    }
    assert.deepEqual(
      anthropic.map(m => m.context_window),
      [400000, 400000, 400000, 869811],
    )
  })
})

describe('count_tokens', () => {
  const schema = {
    type: 'object' as const,
    properties: { city: { type: 'string', description: 'Where — «quotes» 🌍' } },
  }
  const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
  const pdf = Buffer.from('%PDF-1.4\n%%EOF').toString('base64')
  const tools = [
    { name: 'get_weather', description: 'Weather.', input_schema: schema },
    { type: 'bash_20250124', name: 'bash' },
  ]
  const BODIES: Record<string, any> = {
    text: { system: 'Be brief.', messages: [{ role: 'user', content: 'Grüße, 世界 🌍' }] },
    'blocks and roles': {
      system: [
        { type: 'text', text: 'One.', cache_control: { type: 'ephemeral' } },
        { type: 'text', text: 'Two.' },
      ],
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'text', text: 'b' },
          ],
        },
        { role: 'assistant', content: 'c' },
        { role: 'system', content: 'remember' },
        { role: 'user', content: 'd' },
      ],
    },
    tools: { tools, tool_choice: { type: 'auto' }, messages: [{ role: 'user', content: 'x' }] },
    'tool history': {
      tools,
      messages: [
        { role: 'user', content: 'x' },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'hm', signature: '' },
            { type: 'text', text: 'I look.' },
            { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: { city: 'Oslo' } },
          ],
        },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'toolu_1',
              content: [
                { type: 'text', text: 'sunny' },
                { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } },
              ],
            },
            { type: 'text', text: 'and?' },
          ],
        },
      ],
    },
    images: {
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } },
            { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
          ],
        },
      ],
    },
    documents: {
      messages: [
        {
          role: 'user',
          content: [
            {
              type: 'document',
              title: 'T',
              context: 'C',
              source: { type: 'base64', media_type: 'application/pdf', data: pdf },
            },
            { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'plain words' } },
            { type: 'text', text: 'sum up' },
          ],
        },
      ],
    },
    'a tool without properties': {
      tools: [{ name: 'now', input_schema: { type: 'object' } }],
      messages: [{ role: 'user', content: 'x' }],
    },
    thinking: {
      thinking: { type: 'adaptive' },
      output_config: { effort: 'low' },
      messages: [{ role: 'user', content: 'x' }],
    },
  }
  for (const [name, body] of Object.entries(BODIES)) {
    test(`[CNT-1] [METER-1] ${name}: the bill's prompt count of the same body`, async () => {
      const client = t.anthropic()
      const { input_tokens } = await client.messages.countTokens({ model: 'eb1-preview', ...body })
      for (const stream of [false, true]) {
        const { data, request_id } = await client.messages
          .create({ model: 'eb1-preview', max_tokens: 50, stream, ...body })
          .withResponse()
        if (stream) for await (const _ of data as any);
        else {
          const { usage } = data as any
          assert.equal(
            usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
            input_tokens,
          )
        }
        const row = (await t.ledger()).find(r => r.request_id === request_id)!
        assert.equal(row.input, input_tokens)
      }
      // The members that only count_tokens ignores make no difference.
      const more = await t.post('/v1/messages/count_tokens', {
        model: 'eb1-preview',
        max_tokens: 50,
        stream: true,
        ...body,
      })
      assert.deepEqual(await more.json(), { input_tokens })
    })
  }

  test('[CNT-1] a body that Messages would refuse still gets an estimate; three things do not', async () => {
    const count = async (body: unknown, headers = {}) => {
      const response = await t.post('/v1/messages/count_tokens', body, headers)
      return { status: response.status, body: (await response.json()) as any }
    }
    const plain = await count({ model: 'eb1-preview', messages: [{ role: 'user', content: 'hello there' }] })
    const refused: any[] = [
      { model: 'eb1-preview', messages: [{ role: 'user', content: 'hello there' }], foo: 1 },
      { model: 'no-such-model', messages: [{ role: 'user', content: 'hello there' }] },
      { messages: [{ role: 'user', content: 'hello there' }] },
      {
        model: 'eb1-preview',
        messages: [{ role: 'user', content: 'hello there' }],
        temperature: 7,
        max_tokens: 'many',
      },
      { model: 'eb1-preview', messages: [{ role: 'user', content: [{ type: 'text', text: 'hello there', bar: 1 }] }] },
    ]
    for (const body of refused) {
      const counted = await count(body)
      assert.equal(counted.status, 200, JSON.stringify(body))
      assert.deepEqual(counted.body, plain.body)
    }
    for (const body of [
      { messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'nobody', content: 'r' }] }] },
      { messages: [{ role: 'robot', content: 'x' }, 7, null] },
      { messages: [] },
      { messages: [{ role: 'user', content: [{ type: 'mcp_thing', text: 'x' }] }], tools: 'none' },
      {
        messages: [{ role: 'user', content: 'x' }],
        tools: [{ type: 'web_search_20250305', name: 'web_search', allowed_domains: [{ a: 1 }, ['b']] }],
      },
      { messages: [], tools: [{ type: 'web_search_20250305', name: 'web_search', blocked_domains: [1, 'a.example'] }] },
    ]) {
      const counted = await count(body)
      assert.equal(counted.status, 200, JSON.stringify(body))
      assert.ok(Number.isInteger(counted.body.input_tokens) && counted.body.input_tokens >= 0)
    }
    // Agents count bodies that they have not finished: without the list, or with the messages alone.
    const hello = { role: 'user', content: 'hello there' }
    for (const body of [
      { model: 'eb1-preview', messages: 'hello there' },
      { messages: hello },
      [hello],
      '"hello there"',
    ])
      assert.deepEqual(await count(body), plain, JSON.stringify(body))
    for (const body of [{ model: 'eb1-preview' }, {}, '[]', '7', 'null']) assert.equal((await count(body)).status, 200)
    assert.equal((await count('{')).status, 400)
    assert.equal((await count({}, { authorization: 'Bearer nope' })).status, 401)
    assert.equal((await count('x', { 'content-type': 'text/plain' })).status, 415)
  })
})
