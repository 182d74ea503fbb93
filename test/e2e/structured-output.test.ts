/**
 * Structured output through a listening gateway with `structured_output: translate`: three surfaces, and backends that
 * are asked natively or by a forced tool.
 */
import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, jsonSchema, Output, streamText } from 'ai'
import fc from 'fast-check'
import { KEY, startGateway, type TestGateway } from './harness.ts'

// The SDK prints hints to stderr otherwise.
;(globalThis as { AI_SDK_LOG_WARNINGS?: boolean }).AI_SDK_LOG_WARNINGS = false

/** By model id: the dialect, whether it is asked natively, and how its backend is written. */
const BACKENDS: Record<string, { native: boolean; backend: string }> = {
  'chat-native': { native: true, backend: '{ provider: chat, model: m }' },
  'chat-tool': {
    native: false,
    backend: '{ provider: chat, model: m, supports: [tools, strict_tools, forced_tool_choice, reasoning] }',
  },
  'chat-loose': { native: false, backend: '{ provider: chat, model: m, supports: [tools, forced_tool_choice] }' },
  'responses-native': { native: true, backend: '{ provider: responses, model: m }' },
  'responses-tool': {
    native: false,
    backend: '{ provider: responses, model: m, supports: [tools, strict_tools, forced_tool_choice, reasoning] }',
  },
  'messages-native': { native: true, backend: '{ provider: messages, model: claude-sonnet-4-5 }' },
  'messages-tool': { native: false, backend: '{ provider: messages, model: m }' },
  'messages-thinks': { native: false, backend: '{ provider: messages, model: claude-fable-5 }' },
  'gemini-native': { native: true, backend: '{ provider: gemini, model: gemini-2.5-flash }' },
  'gemini-tool': { native: false, backend: '{ provider: gemini, model: gemini-2.0-flash }' },
}
const SERVING = Object.entries(BACKENDS).filter(([id]) => id !== 'messages-thinks')

const SCHEMA = {
  type: 'object',
  properties: {
    city: { type: 'string' },
    days: { type: 'array', items: { $ref: '#/$defs/day' } },
  },
  required: ['city', 'days'],
  additionalProperties: false,
  $defs: {
    day: {
      type: 'object',
      properties: { cold: { type: 'boolean' }, degrees: { type: 'number', minimum: -80 } },
      required: ['cold', 'degrees'],
      additionalProperties: false,
    },
  },
}
const GOOD = '{"city":"Ås \\"1\\"","days":[{"cold":true,"degrees":-3.5}]}'
/** What a model is made to write: as text, and where it has to call the tool, as the tool's arguments. */
const says = (text: string, tool: string | null): string =>
  tool === null ? `[[sim: chunk 3; text ${JSON.stringify(text)}]]` : `[[sim: chunk 3; call ${tool} ${text}]]`
const askFor = (id: string, text: string) => says(text, BACKENDS[id]!.native ? null : 'final_reply')

let t: TestGateway
before(async () => {
  const models = Object.entries(BACKENDS).map(
    ([id, { backend }]) =>
      `  ${id}: { context_window: 400000, max_output_tokens: 8000, price: { input: 1, output: 1 }, backends: [${backend}] }`,
  )
  t = await startGateway({ plugins: { validation: '{ structured_output: translate }' }, models: models.join('\n') })
})
after(() => t.close())

/** How each surface asks, and where its reply has the text. */
const SURFACES: Record<
  string,
  {
    path: string
    body(model: string, ask: string, more?: object): any
    text(reply: any): string
    delta(event: any): string
  }
> = {
  chat: {
    path: '/v1/chat/completions',
    body: (model, ask, more) => ({
      model,
      messages: [{ role: 'user', content: ask }],
      response_format: { type: 'json_schema', json_schema: { name: 'weather', schema: SCHEMA, strict: true } },
      ...more,
    }),
    text: reply => reply.choices[0].message.content,
    delta: event => event.choices?.[0]?.delta?.content ?? '',
  },
  responses: {
    path: '/v1/responses',
    body: (model, ask, more) => ({
      model,
      input: ask,
      text: { format: { type: 'json_schema', name: 'weather', schema: SCHEMA, strict: true } },
      ...more,
    }),
    text: reply => reply.output.find((item: any) => item.type === 'message').content[0].text,
    delta: event => (event.type === 'response.output_text.delta' ? event.delta : ''),
  },
  messages: {
    path: '/v1/messages',
    body: (model, ask, more) => ({
      model,
      max_tokens: 2000,
      messages: [{ role: 'user', content: ask }],
      output_config: { format: { type: 'json_schema', schema: SCHEMA } },
      ...more,
    }),
    text: reply => reply.content.find((block: any) => block.type === 'text').text,
    delta: event => event.delta?.text ?? '',
  },
}

/** The events of a stream, parsed. */
async function eventsOf(response: Response): Promise<any[]> {
  const text = await response.text()
  return text
    .split('\n')
    .filter(line => line.startsWith('data: {'))
    .map(line => JSON.parse(line.slice(6)))
}
const isError = (event: any) =>
  event.type === 'error' || event.type === 'response.failed' || event.error?.code !== undefined
const isTerminal = (event: any) =>
  event.type === 'response.completed' || event.type === 'message_stop' || event.choices?.[0]?.finish_reason != null

for (const [name, surface] of Object.entries(SURFACES)) {
  describe(`${name}: structured output`, () => {
    for (const [id, { native }] of SERVING) {
      test(`[GEN-3] over ${id}: the text is the object, buffered and streamed, and no tool is seen`, async () => {
        const ask = askFor(id, GOOD)
        const buffered = await t.post(surface.path, surface.body(id, ask))
        const whole = await buffered.text()
        assert.equal(buffered.status, 200, whole)
        assert.equal(surface.text(JSON.parse(whole)), GOOD)
        assert.doesNotMatch(whole, /final_reply|"tool_calls"|"tool_use"|"function_call"/)
        const sent = JSON.stringify(t.simulator.requests.at(-1)!.body)
        assert.equal(sent.includes('final_reply'), !native)

        const events = await eventsOf(await t.post(surface.path, surface.body(id, ask, { stream: true })))
        const deltas = events.map(surface.delta).filter(delta => delta !== '')
        assert.equal(deltas.join(''), GOOD)
        // Gemini sends a call whole.
        assert.ok(deltas.length > 5 || id === 'gemini-tool', 'the text streams while the model writes it')
        assert.ok(events.some(isTerminal))
        assert.ok(!events.some(isError))
      })

      test(`[GEN-3] over ${id}: a reply that does not meet its schema is a 502, or an error in a stream`, async () => {
        for (const bad of [
          '{"city":7,"days":[]}',
          '{"city":"x"}',
          '{"city":"x","days":[{"cold":true,"degrees":-90}]}',
          '{"city":',
        ]) {
          const ask = askFor(id, bad.endsWith(':') && !native ? '{"city":7}' : bad)
          const rows = (await t.ledger()).length
          const made = t.simulator.requests.length
          const buffered = await t.post(surface.path, surface.body(id, ask))
          assert.equal(buffered.status, 502, await buffered.clone().text())
          assert.equal(buffered.headers.get('x-should-retry'), 'false')
          assert.match(await buffered.text(), /schema/)
          const row = (await t.ledger()).slice(rows)
          assert.deepEqual(
            row.map(({ outcome, cost }) => [outcome, cost]),
            [['upstream_error', 0]],
          )
          assert.equal(t.simulator.requests.length, made + 1, 'it is not tried again')

          const events = await eventsOf(await t.post(surface.path, surface.body(id, ask, { stream: true })))
          assert.ok(events.some(isError), JSON.stringify(events.at(-1)))
          assert.ok(!events.some(isTerminal))
          // BILL-3: billed where output was delivered.
          const [streamed] = (await t.ledger()).slice(rows + 1)
          assert.equal(streamed!.outcome, 'upstream_error')
          assert.equal(
            streamed!.cost! > 0,
            events.some(event => surface.delta(event) !== ''),
          )
        }
      })
    }

    test('[GEN-3] a model that always thinks is not asked by a forced tool', async () => {
      const loose = { ...SCHEMA, additionalProperties: true }
      const body = surface.body('messages-thinks', 'hi')
      const format = body.response_format?.json_schema ?? body.text?.format ?? body.output_config.format
      format.schema = loose
      if ('strict' in format) format.strict = false
      const refused = await t.post(surface.path, body)
      assert.equal(refused.status, 400)
      const { error } = (await refused.json()) as any
      assert.match(error.message, /structured output/)
    })

    test('[GEN-3] the schema counts as input', async () => {
      const input = async (more: object) => {
        const reply: any = await (
          await t.post(
            surface.path,
            surface.body('chat-native', '[[sim: text "{\\"city\\":\\"\\",\\"days\\":[]}"]]', more),
          )
        ).json()
        const {
          prompt_tokens,
          input_tokens,
          cache_read_input_tokens: read,
          cache_creation_input_tokens: made,
        } = reply.usage
        return (prompt_tokens ?? input_tokens) + (read ?? 0) + (made ?? 0)
      }
      const without = { response_format: undefined, text: undefined, output_config: undefined }
      assert.ok((await input({})) - (await input(without)) > 60)
    })
  })
}

describe('structured output with tools', () => {
  const tools = [{ type: 'function', function: { name: 'get', parameters: { type: 'object', properties: {} } } }]
  const { path, body } = SURFACES['chat']!

  for (const [id] of SERVING) {
    test(`[GEN-3] over ${id}: the model may call the client's tool first, and its result leads to the object`, async () => {
      const call: any = await (await t.post(path, body(id, '[[sim: call get {}]]', { tools }))).json()
      const [made] = call.choices[0].message.tool_calls
      assert.equal(call.choices[0].finish_reason, 'tool_calls')
      assert.equal(made.function.name, 'get')
      const native = !JSON.stringify(t.simulator.requests.at(-1)!.body).includes('final_reply')
      const plan = native ? `text ${JSON.stringify(GOOD)}` : `call get {}; next call final_reply ${GOOD}`
      const messages = [
        { role: 'user', content: `[[sim: ${plan}]]` },
        call.choices[0].message,
        { role: 'tool', tool_call_id: made.id, content: 'cold' },
      ]
      const reply: any = await (await t.post(path, body(id, '', { messages, tools }))).json()
      assert.equal(reply.choices?.[0].message.content, GOOD, JSON.stringify(reply))
      assert.equal(reply.choices[0].finish_reason, 'stop')
      assert.equal(reply.choices[0].message.tool_calls, undefined)
    })
  }

  test('[GEN-3] an answer beside a call of the client: both arrive, and the calls are numbered without gaps', async () => {
    const ask = `[[sim: call final_reply ${GOOD}; call get {}; call final_reply {"x":1}; call get {}]]`
    const reply: any = await (await t.post(path, body('chat-tool', ask, { tools }))).json()
    const { message, finish_reason } = reply.choices[0]
    assert.equal(message.content, GOOD)
    assert.equal(finish_reason, 'tool_calls')
    assert.deepEqual(
      message.tool_calls.map((call: any) => call.function.name),
      ['get', 'get'],
    )
    const events = await eventsOf(await t.post(path, body('chat-tool', ask, { tools, stream: true })))
    const indexes = events.flatMap(event => event.choices?.[0]?.delta?.tool_calls ?? []).map((call: any) => call.index)
    assert.deepEqual([...new Set(indexes)], [0, 1])
  })

  test('[GEN-3] a tool of the client with the name of the gateway’s tool', async () => {
    const own = [
      { type: 'function', function: { name: 'final_reply', parameters: { type: 'object', properties: {} } } },
    ]
    const ask = `[[sim: call final_reply_2 ${GOOD}]]`
    const reply: any = await (await t.post(path, body('chat-tool', ask, { tools: own }))).json()
    assert.equal(reply.choices[0].message.content, GOOD)
  })

  test('[GEN-3] a forced call of the client’s own tool needs no object', async () => {
    for (const id of ['chat-native', 'chat-tool']) {
      const reply: any = await (await t.post(path, body(id, 'hi', { tools, tool_choice: 'required' }))).json()
      assert.equal(reply.choices[0].message.tool_calls[0].function.name, 'get')
    }
  })
})

describe('any JSON object', () => {
  const { path, body } = SURFACES['chat']!
  for (const [id] of SERVING) {
    test(`[GEN-3] json_object over ${id}`, async () => {
      const format = { response_format: { type: 'json_object' } }
      await t.post(path, body(id, 'hi', format))
      const native = !JSON.stringify(t.simulator.requests.at(-1)!.body).includes('final_reply')
      const ask = (text: string) => says(text, native ? null : 'final_reply')
      const good: any = await (await t.post(path, body(id, ask('{"a":[1]}'), format))).json()
      assert.equal(good.choices[0].message.content, '{"a":[1]}')
      const bad = await t.post(path, body(id, '[[sim: text "no JSON"]]', format))
      assert.equal(bad.status, native ? 502 : 200, 'a forced tool gets made-up arguments')
    })
  }
})

describe('what a reply is besides', () => {
  const { path, body } = SURFACES['chat']!
  test('[GEN-3] refusals, cut replies and stop strings are not held against the schema', async () => {
    const refused: any = await (await t.post(path, body('chat-native', '[[sim: refuse "no"]]'))).json()
    assert.equal(refused.choices[0].message.refusal, 'no')
    for (const id of ['chat-native', 'chat-tool']) {
      const cut: any = await (await t.post(path, body(id, askFor(id, GOOD), { max_tokens: 3 }))).json()
      assert.equal(cut.choices?.[0].finish_reason, 'length', id + JSON.stringify(cut))
      const stopped: any = await (await t.post(path, body(id, askFor(id, GOOD), { stop: ['days'] }))).json()
      assert.equal(stopped.choices?.[0].finish_reason, 'stop', JSON.stringify(stopped))
      assert.equal(stopped.choices[0].message.content, GOOD.slice(0, GOOD.indexOf('days')))
    }
  })

  test('[GEN-3] a retained response is continued as text, and repeats its format', async () => {
    const { path, body } = SURFACES['responses']!
    for (const id of ['responses-tool', 'gemini-native', 'messages-tool']) {
      const first: any = await (await t.post(path, body(id, askFor(id, GOOD)))).json()
      assert.deepEqual(first.text.format, {
        type: 'json_schema',
        name: 'weather',
        description: null,
        schema: SCHEMA,
        strict: true,
      })
      const next = await t.post(path, { model: id, input: 'And now?', previous_response_id: first.id })
      assert.equal(next.status, 200, await next.clone().text())
      assert.deepEqual(((await next.json()) as any).text.format, { type: 'text' })
      const sent = JSON.stringify(t.simulator.requests.at(-1)!.body)
      assert.doesNotMatch(sent.replace(/\[\[sim:.*?\]\]/g, ''), /final_reply/)
      assert.match(sent.replace(/\[\[sim:.*?\]\]/g, ''), /cold/)
    }
  })

  test('[GEN-3] a repeated request with an idempotency key gets the same object', async () => {
    const headers = { 'idempotency-key': 'structured-1' }
    const replies = []
    for (let i = 0; i < 2; i++)
      replies.push(await (await t.post(path, body('chat-tool', askFor('chat-tool', GOOD)), headers)).json())
    assert.deepEqual(replies[0], replies[1])
  })

  test('[GEN-3] the older member of Messages asks for the same', async () => {
    const { path, body, text } = SURFACES['messages']!
    const format = { output_config: undefined, output_format: { type: 'json_schema', schema: SCHEMA } }
    const reply = await (await t.post(path, body('messages-tool', askFor('messages-tool', GOOD), format))).json()
    assert.equal(text(reply), GOOD)
  })
})

describe('official clients', () => {
  for (const [id] of SERVING) {
    test(`[GEN-3] [CHAT-4] openai parse and stream over ${id}`, async () => {
      const ask = SURFACES['chat']!.body(id, askFor(id, GOOD))
      const parsed = await t.openai().chat.completions.parse(ask)
      assert.deepEqual(parsed.choices[0]!.message.parsed, JSON.parse(GOOD))
      const stream = t.openai().chat.completions.stream(ask)
      const final = await stream.finalChatCompletion()
      assert.deepEqual(final.choices[0]!.message.parsed, JSON.parse(GOOD))
    })
    test(`[GEN-3] [RESP-5] openai responses.parse and stream over ${id}`, async () => {
      const ask = SURFACES['responses']!.body(id, askFor(id, GOOD))
      assert.deepEqual((await t.openai().responses.parse(ask)).output_parsed, JSON.parse(GOOD))
      const final = await t.openai().responses.stream(ask).finalResponse()
      assert.deepEqual(final.output_parsed, JSON.parse(GOOD))
    })
    test(`[GEN-3] [MSG-1] anthropic parse and stream over ${id}`, async () => {
      const ask = SURFACES['messages']!.body(id, askFor(id, GOOD))
      const parsed: any = await t.anthropic().messages.parse(ask)
      assert.deepEqual(parsed.parsed_output, JSON.parse(GOOD))
      const final: any = await t.anthropic().messages.stream(ask).finalMessage()
      assert.deepEqual(JSON.parse(final.content[0].text), JSON.parse(GOOD))
    })
    test(`[GEN-3] the AI SDK's objects over ${id}, on each surface, whole and streamed`, async () => {
      const openai = createOpenAI({ baseURL: `${t.url}/v1`, apiKey: KEY })
      const models = [
        openai.chat(id),
        openai.responses(id),
        createAnthropic({ baseURL: `${t.url}/v1`, authToken: KEY })(id),
      ]
      for (const model of models) {
        const settings = {
          model,
          prompt: askFor(id, GOOD),
          maxRetries: 0,
          output: Output.object({ schema: jsonSchema<any>(SCHEMA as any) }),
          providerOptions: { openai: { store: false }, anthropic: { structuredOutputMode: 'outputFormat' } },
        }
        assert.deepEqual((await generateText(settings)).output, JSON.parse(GOOD))
        assert.deepEqual(await streamText(settings).output, JSON.parse(GOOD))
      }
    })
  }
})

describe('streams that are cut', () => {
  for (const [name, surface] of Object.entries(SURFACES)) {
    test(`[GEN-3] [STR-6] ${name}: cut at any byte, a stream has an error and no end, over each backend (property)`, async () => {
      for (const [id] of SERVING) {
        await fc.assert(
          fc.asyncProperty(fc.integer({ min: 1, max: 900 }), fc.integer({ min: 1, max: 50 }), async (cut, split) => {
            const ask = `[[sim: cut byte ${cut}; split ${split}]]${askFor(id, GOOD)}`
            const response = await t.post(surface.path, surface.body(id, ask, { stream: true }))
            if (response.status !== 200) return
            const events = await eventsOf(response)
            const text = events.map(surface.delta).join('')
            assert.ok(GOOD.startsWith(text), text)
            assert.equal(events.some(isError), !events.some(isTerminal), JSON.stringify(events.slice(-2)))
            if (events.some(isTerminal)) assert.equal(text, GOOD)
          }),
          { numRuns: 6 },
        )
      }
    })
  }
})

describe('searches that the gateway runs', () => {
  for (const id of ['chat-native', 'chat-tool', 'messages-tool']) {
    for (const stream of [false, true]) {
      test(`[GEN-3] over ${id}, ${stream ? 'streamed' : 'buffered'}: the text is the object, without what was said before the search`, async () => {
        const searching = await startGateway({
          plugins: { validation: '{ structured_output: translate }', 'web-search': '{ provider: chat }' },
          models: `  m: { context_window: 400000, price: { input: 1, output: 1 }, backends: [${
            id === 'messages-tool'
              ? '{ provider: messages, model: m, supports: [tools, forced_tool_choice] }'
              : BACKENDS[id]!.backend
          }] }`,
        })
        try {
          const native = BACKENDS[id]!.native
          // Asked natively, the simulated model makes up an object. Text of a directive it would say in each round.
          const plan = native
            ? 'call web_search {"query":"a"}'
            : `text "Let me look."; call web_search {"query":"a"}; next call final_reply ${GOOD}`
          const ask = `[[sim: ${plan}]] go`
          const { path, body, text, delta } = SURFACES['responses']!
          const response = await searching.post(path, body('m', ask, { tools: [{ type: 'web_search' }], stream }))
          const found = stream ? (await eventsOf(response)).map(delta).join('') : text(await response.json())
          if (native) assert.deepEqual(Object.keys(JSON.parse(found)), ['city', 'days'])
          else assert.equal(found, GOOD)
        } finally {
          await searching.close()
        }
      })
    }
  }
})

describe('where structured output is offered', () => {
  const models =
    '  m: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: chat, model: m }] }'
  /** For each option of `validation`: the surfaces that refuse. */
  const OPTIONS: Record<string, string[]> = {
    '{}': ['chat'],
    '{ structured_output: reject }': ['chat', 'responses', 'messages'],
    '{ structured_output: translate }': [],
    '{ structured_output: { responses: reject } }': ['chat', 'responses'],
    '{ structured_output: { chat: translate, messages: reject } }': ['messages'],
  }
  for (const [option, refusing] of Object.entries(OPTIONS)) {
    test(`[GEN-3] validation: ${option}`, async () => {
      const gateway = await startGateway({ plugins: { validation: option }, models })
      try {
        for (const [name, surface] of Object.entries(SURFACES)) {
          const response = await gateway.post(surface.path, surface.body('m', says(GOOD, null)))
          const reply = (await response.json()) as any
          assert.equal(response.status, refusing.includes(name) ? 400 : 200, `${name}: ${JSON.stringify(reply)}`)
          if (response.status === 200) assert.equal(surface.text(reply), GOOD)
          else assert.match(reply.error.param, /format/)
        }
      } finally {
        await gateway.close()
      }
    })
  }
})
