import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runSimulate } from '../../providers/simulator/cli.ts'
import type { Simulator } from '../../providers/simulator/server.ts'
import { ask, bodyFor, eventsOf, NAMES, pathFor, post, textOf, withSimulator } from './harness.ts'

for (const name of NAMES) {
  test(`${name}: streamed and buffered replies say the same, and say it again`, () =>
    withSimulator(async simulator => {
      const buffered: any = await (await ask(simulator, name, 'Hello there')).json()
      const response = await ask(simulator, name, 'Hello there', true)
      assert.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8')
      const streamed = eventsOf(await response.text())
        .map(event => textOf(name, event))
        .join('')
      assert.equal(streamed, 'You said: Hello there. This is the built-in simulator, so that is all there is to it.')
      assert.equal(textOf(name, buffered), streamed)
      assert.equal(textOf(name, await (await ask(simulator, name, 'Hello there')).json()), streamed)
      for (const request of simulator.requests) assert.equal(request.dialect, name)
    }))

  test(`${name}: tokens, chunk and text shape the reply; max tokens cut it`, () =>
    withSimulator(async simulator => {
      const long = textOf(name, await (await ask(simulator, name, '[[sim: tokens 200]]')).json())
      assert.equal(long.split(' ').length, 200)
      const events = eventsOf(await (await ask(simulator, name, '[[sim: text "abcdefgh"; chunk 3]]', true)).text())
      assert.deepEqual(
        events.map(event => textOf(name, event)).filter(text => text !== ''),
        ['abc', 'def', 'gh'],
      )
    }))

  test(`${name}: a version prefix in the path is fine, an unknown path is 404, GET is 405`, () =>
    withSimulator(async simulator => {
      const prefix = name === 'gemini' ? '/v1beta' : '/v1'
      assert.equal((await post(simulator, prefix + pathFor(name, false), bodyFor(name, 'x', false))).status, 200)
      assert.equal((await post(simulator, '/nothing', {})).status, 404)
      assert.equal((await fetch(simulator.url + pathFor(name, false))).status, 405)
    }))

  test(`${name}: status and error directives answer as the provider does`, () =>
    withSimulator(async simulator => {
      const limited = await ask(simulator, name, 'x [[sim: status 429 retry-after 7]]')
      assert.deepEqual([limited.status, limited.headers.get('retry-after')], [429, '7'])
      const body: any = await limited.json()
      const code = {
        'openai-chat': body.error.code,
        'openai-responses': body.error.code,
        'anthropic-messages': body.error.type,
        gemini: body.error.status,
      }[name]
      assert.ok(['rate_limit_exceeded', 'rate_limit_error', 'RESOURCE_EXHAUSTED'].includes(code))
      const html = await ask(simulator, name, 'x [[sim: status 502 html]]')
      assert.deepEqual([html.status, html.headers.get('content-type')], [502, 'text/html'])
      assert.equal(
        (await ask(simulator, name, 'x [[sim: error overloaded]]')).status,
        name === 'anthropic-messages' ? 529 : 503,
      )
      const stream = await ask(simulator, name, 'x [[sim: error server after 2]]', true)
      assert.equal(stream.status, 200)
      assert.ok(eventsOf(await stream.text()).at(-1).error !== undefined || name === 'openai-responses')
      const typo = await ask(simulator, name, 'x [[sim: stauts 429]]')
      assert.equal(typo.status, 400)
      assert.match(await typo.text(), /unknown directive 'stauts'/)
    }))

  test(`${name}: usage reports a repeated prompt as cached, and none when told so`, () =>
    withSimulator(async simulator => {
      const usage = async (prompt: string) => {
        const reply: any = await (await ask(simulator, name, prompt)).json()
        return reply.usage ?? reply.usageMetadata
      }
      const cached = (u: any) =>
        u.prompt_tokens_details?.cached_tokens ??
        u.input_tokens_details?.cached_tokens ??
        u.cache_read_input_tokens ??
        u.cachedContentTokenCount
      const prompt = 'the same long prompt '.repeat(20)
      assert.equal(cached(await usage(prompt)), 0)
      // Anthropic caches only what is marked.
      assert.equal(cached(await usage(prompt)) > 0, name !== 'anthropic-messages')
      assert.ok((await usage('x [[sim: usage none]]')) == null)
      const negative = await usage('x [[sim: usage negative]]')
      assert.ok(Object.values(negative).some(value => typeof value === 'number' && value < 0))
    }))
}

test('openai-chat: usage comes in a chunk of its own after finish_reason, then [DONE]', () =>
  withSimulator(async simulator => {
    const text = await (await ask(simulator, 'openai-chat', 'x', true)).text()
    assert.ok(text.endsWith('data: [DONE]\n\n'))
    const events = eventsOf(text)
    assert.equal(events.at(-2).choices[0].finish_reason, 'stop')
    assert.deepEqual(events.at(-1).choices, [])
    assert.equal(typeof events.at(-1).usage.prompt_tokens, 'number')
  }))

test('openai-chat: stop strings, max tokens, reasoning and finish words', () =>
  withSimulator(async simulator => {
    const chat = async (prompt: string, more: object) => {
      const reply: any = await (
        await post(simulator, '/chat/completions', { ...bodyFor('openai-chat', prompt, false), ...more })
      ).json()
      return { ...reply.choices[0].message, finish: reply.choices[0].finish_reason, usage: reply.usage }
    }
    const text = '[[sim: text "one two three four"]]'
    assert.deepEqual(await chat(text, { stop: ['three'] }).then(r => [r.content, r.finish]), ['one two ', 'stop'])
    assert.deepEqual(await chat(text, { max_tokens: 2 }).then(r => [r.content, r.finish]), ['one two ', 'length'])
    assert.deepEqual(
      await chat('[[sim: hidden 500]]', { max_completion_tokens: 100 }).then(r => [
        r.content,
        r.finish,
        r.usage.completion_tokens_details.reasoning_tokens,
      ]),
      [null, 'length', 100],
    )
    assert.equal((await chat('[[sim: finish content_filter]]', {})).finish, 'content_filter')
    const reasoned = await chat('hello', { reasoning_effort: 'high' })
    assert.equal(reasoned.usage.completion_tokens_details.reasoning_tokens, 1024)
    assert.match(reasoned.reasoning_content, /step 1/)
    assert.equal((await chat('hello', {})).reasoning_content, undefined)
    assert.equal((await chat('[[sim: refuse "No."]]', {})).refusal, 'No.')
    assert.equal((await chat('[[sim: text "a b"]]', { logprobs: true, top_logprobs: 2 })).content, 'a b')
  }))

test('openai-chat: images and documents are seen', () =>
  withSimulator(async simulator => {
    const content = [
      { type: 'text', text: 'Look' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
      { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,AA==' } },
    ]
    const reply: any = await (
      await post(simulator, '/chat/completions', { model: 'sim', messages: [{ role: 'user', content }] })
    ).json()
    assert.match(
      reply.choices[0].message.content,
      /I see 2 images \(image\/png, url\)\. I read 1 document \(application\/pdf\)\./,
    )
  }))

const TOOLS = [
  {
    type: 'function',
    function: { name: 'add', parameters: { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] } },
  },
]

test('openai-chat: calls by directive, in rounds, one at a time, forced, and refused', () =>
  withSimulator(async simulator => {
    const chat = async (messages: unknown[], more: object = {}) => {
      const response = await post(simulator, '/chat/completions', { model: 'sim', messages, tools: TOOLS, ...more })
      const reply: any = await response.json()
      return reply.choices?.[0].message
    }
    const user = { role: 'user', content: 'go [[sim: call add {"a":1}; call add {"a":2}; next call add {"a":3}]]' }
    const first = await chat([user])
    assert.deepEqual(
      first.tool_calls.map((call: any) => call.function.arguments),
      ['{"a":1}', '{"a":2}'],
    )
    assert.equal((await chat([user], { parallel_tool_calls: false })).tool_calls.length, 1)
    assert.equal((await chat([user], { tool_choice: 'none' })).tool_calls, undefined)
    const results = first.tool_calls.map((call: any) => ({ role: 'tool', tool_call_id: call.id, content: 'ok' }))
    const second = await chat([user, first, ...results])
    assert.deepEqual(
      second.tool_calls.map((call: any) => call.function.arguments),
      ['{"a":3}'],
    )
    const attached = {
      role: 'user',
      content: [
        { type: 'text', text: 'Attached to the result of tool call x:' },
        { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
      ],
    }
    assert.equal(
      (await chat([user, first, ...results, attached])).tool_calls.length,
      1,
      'hoisted media are no new turn',
    )
    const third = await chat([
      user,
      first,
      ...results,
      second,
      { role: 'tool', tool_call_id: second.tool_calls[0].id, content: '42' },
    ])
    assert.match(third.content, /The tool answered: 42\./)
    assert.deepEqual(
      (await chat([{ role: 'user', content: 'hi' }], { tool_choice: 'required' })).tool_calls[0].function,
      { name: 'add', arguments: '{"a":1}' },
    )
    assert.equal(
      (await chat([{ role: 'user', content: '[[sim: call ghost {}]]' }])).tool_calls[0].function.name,
      'ghost',
    )
    assert.equal((await chat([{ role: 'user', content: '[[sim: call #1 {}]]' }])).tool_calls[0].function.name, 'add')
  }))

test('openai-chat: what the provider refuses is refused', () =>
  withSimulator(async simulator => {
    const call = (id: string, name = 'add') => ({
      role: 'assistant',
      content: null,
      tool_calls: [{ id, type: 'function', function: { name, arguments: '{}' } }],
    })
    const user = { role: 'user', content: 'x' }
    const bad: [string, object][] = [
      ['no messages', { messages: [] }],
      ['an unanswered call', { messages: [user, call('c1'), user] }],
      ['a call unanswered at the end', { messages: [user, call('c1')] }],
      ['a result without a call', { messages: [user, { role: 'tool', tool_call_id: 'c1', content: 'x' }] }],
      ['a long id', { messages: [user, call('c'.repeat(41))] }],
      ['a bad name in history', { messages: [user, call('c1', 'a.b')] }],
      ['a bad tool name', { messages: [user], tools: [{ type: 'function', function: { name: 'a.b' } }] }],
      ['a choice without tools', { messages: [user], tool_choice: 'required' }],
      ['five stop strings', { messages: [user], stop: ['1', '2', '3', '4', '5'] }],
      [
        'an image in a tool message',
        { messages: [user, call('c1'), { role: 'tool', tool_call_id: 'c1', content: [] }] },
      ],
    ]
    for (const [name, body] of bad)
      assert.equal((await post(simulator, '/chat/completions', { model: 'sim', ...body })).status, 400, name)
    assert.equal((await fetch(`${simulator.url}/chat/completions`, { method: 'POST', body: '{' })).status, 400)
  }))

test('openai-responses: reasoning comes back only as it was given out, and ids have their prefixes', () =>
  withSimulator(async simulator => {
    const first: any = await (
      await post(simulator, '/responses', {
        model: 'sim',
        input: 'x [[sim: reason 1]]',
        reasoning: { effort: 'low', summary: 'auto' },
      })
    ).json()
    const [reasoning, message] = first.output
    assert.equal(reasoning.summary.length, 1)
    const again = (items: unknown[]) =>
      post(simulator, '/responses', {
        model: 'sim',
        input: [{ role: 'user', content: 'x' }, ...items, { role: 'user', content: 'y' }],
      })
    assert.equal((await again([reasoning, message])).status, 200)
    const forged = await again([{ ...reasoning, encrypted_content: 'gAAAAAforged.x' }])
    assert.deepEqual([forged.status, ((await forged.json()) as any).error.code], [400, 'invalid_encrypted_content'])
    assert.equal((await again([{ ...reasoning, encrypted_content: null }])).status, 404)
    assert.equal((await again([{ ...message, id: 'item_eba1_x' }])).status, 400)
    assert.equal((await again([{ type: 'function_call_output', call_id: 'c', output: 'x' }])).status, 400)
    assert.equal((await again([{ type: 'function_call', call_id: 'c', name: 'f', arguments: '{}' }])).status, 400)
  }))

test('anthropic-messages: signed thinking comes back only as it was given out', () =>
  withSimulator(async simulator => {
    const base = {
      model: 'sim',
      max_tokens: 5000,
      thinking: { type: 'enabled', budget_tokens: 1024 },
      tools: [{ name: 'f', input_schema: { type: 'object' } }],
    }
    const user = { role: 'user', content: 'x [[sim: call f {}]]' }
    const first: any = await (await post(simulator, '/messages', { ...base, messages: [user] })).json()
    const [thinking, call] = first.content
    assert.deepEqual([thinking.type, call.type, first.stop_reason], ['thinking', 'tool_use', 'tool_use'])
    const result = { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'ok' }] }
    const again = async (content: unknown[]) =>
      (await post(simulator, '/messages', { ...base, messages: [user, { role: 'assistant', content }, result] })).status
    assert.equal(await again([thinking, call]), 200)
    assert.equal(await again([{ ...thinking, signature: 'x' }, call]), 400)
    assert.equal(await again([{ ...thinking, thinking: 'other' }, call]), 400)
    assert.equal(await again([call]), 400, 'thinking is missing in the running tool loop')
    const hidden: any = await (
      await post(simulator, '/messages', {
        ...base,
        messages: [{ role: 'user', content: '[[sim: hidden 100; call f {}]]' }],
      })
    ).json()
    assert.equal(hidden.content[0].type, 'redacted_thinking')
  }))

test('anthropic-messages: what the provider refuses is refused', () =>
  withSimulator(async simulator => {
    const user = { role: 'user', content: 'x' }
    const use = (id: string) => ({ role: 'assistant', content: [{ type: 'tool_use', id, name: 'f', input: {} }] })
    const bad: [string, object][] = [
      ['no max_tokens', { messages: [user], max_tokens: undefined }],
      ['assistant first', { messages: [{ role: 'assistant', content: 'x' }] }],
      ['empty text', { messages: [{ role: 'user', content: [{ type: 'text', text: '' }] }] }],
      ['a dotted id', { messages: [user, use('call_eb2.1'), user] }],
      ['an unanswered call', { messages: [user, use('c1'), user] }],
      [
        'a result that is not first',
        {
          messages: [
            user,
            use('c1'),
            {
              role: 'user',
              content: [
                { type: 'text', text: 'x' },
                { type: 'tool_result', tool_use_id: 'c1' },
              ],
            },
          ],
        },
      ],
      ['hot sampling', { messages: [user], temperature: 1.5 }],
      ['a small budget', { messages: [user], thinking: { type: 'enabled', budget_tokens: 100 } }],
      [
        'a budget over the cap',
        { messages: [user], max_tokens: 2000, thinking: { type: 'enabled', budget_tokens: 2000 } },
      ],
      ['top_k with thinking', { messages: [user], top_k: 5, thinking: { type: 'adaptive' } }],
      [
        'a schema with anyOf',
        { messages: [user], tools: [{ name: 'f', input_schema: { type: 'object', anyOf: [] } }] },
      ],
    ]
    for (const [name, body] of bad)
      assert.equal((await post(simulator, '/messages', { model: 'sim', max_tokens: 100, ...body })).status, 400, name)
  }))

const mark = { cache_control: { type: 'ephemeral' } }

/** Asks for a message, and gives what its usage says of the cache: tokens read, written, and neither. */
async function cacheOf(simulator: Simulator, body: object): Promise<{ read: number; written: number; rest: number }> {
  const response = await post(simulator, '/messages', { model: 'sim', max_tokens: 100, ...body })
  const { usage }: any = await response.json()
  return {
    read: usage.cache_read_input_tokens,
    written: usage.cache_creation_input_tokens,
    rest: usage.input_tokens,
  }
}

test('anthropic-messages: marked prefixes are written to the cache and then read; what differs before a mark is a miss', () =>
  withSimulator(async simulator => {
    const body = (system: string, marked: object, ...turns: string[]) => ({
      system: [{ type: 'text', text: system.repeat(1200), ...marked }],
      messages: turns.map((content, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content })),
    })
    const first = await cacheOf(simulator, body('long ', mark, 'x'))
    assert.equal(first.read, 0)
    assert.ok(first.written > 1024 && first.rest > 0 && first.rest < 20)
    const second = await cacheOf(simulator, body('long ', mark, 'y', 'of course', 'z'))
    assert.equal(second.read, first.written, 'the same prefix, whatever follows')
    assert.equal(second.written, 0)
    assert.deepEqual(await cacheOf(simulator, body('lang ', mark, 'x')), first, 'another text')
    const unmarked = await cacheOf(simulator, body('long ', {}, 'x'))
    assert.deepEqual(unmarked, { read: 0, written: 0, rest: first.written + first.rest }, 'only marks read')
    const short = await cacheOf(simulator, { ...body('', mark, 'x'), tools: [] })
    assert.deepEqual([short.read, short.written], [0, 0], 'below the minimum')
    const tools = [{ name: 'f', input_schema: { type: 'object' } }]
    assert.equal((await cacheOf(simulator, { ...body('long ', mark, 'x'), tools })).read, 0, 'tools come first')
  }))

test('anthropic-messages: a prefix lives for five minutes or an hour after its last use', async () => {
  let now = 0
  await withSimulator(
    async simulator => {
      for (const [ttl, life] of [
        [undefined, 300_000],
        ['1h', 3_600_000],
      ] as const) {
        const cache_control = { type: 'ephemeral', ttl }
        const system = [{ type: 'text', text: `${ttl} `.repeat(2000), cache_control }]
        const ask = () => cacheOf(simulator, { system, messages: [{ role: 'user', content: 'x' }] })
        const { written } = await ask()
        assert.ok(written > 1024)
        now += life - 1
        assert.equal((await ask()).read, written)
        now += life - 1
        assert.equal((await ask()).read, written, 'a use renews it')
        now += life
        assert.equal((await ask()).read, 0)
      }
    },
    { now: () => now },
  )
})

test('anthropic-messages: a mark finds what was stored up to 20 blocks before it; a fifth mark is refused', () =>
  withSimulator(async simulator => {
    const text = (i: number) => ({ type: 'text', text: `${i} ${'word '.repeat(100)}` })
    const blocks = (count: number) => Array.from({ length: count }, (_, i) => text(i))
    const ask = (content: object[]) => cacheOf(simulator, { messages: [{ role: 'user', content }] })
    const marked = (count: number) => blocks(count).map((block, i) => (i === count - 1 ? { ...block, ...mark } : block))
    const { written } = await ask(marked(10))
    assert.equal((await ask(marked(30))).read, written)
    assert.equal(
      (await ask([...marked(10).slice(0, 9), { ...text(9), ...mark }, ...marked(60).slice(10)])).read,
      written,
    )
    assert.equal((await ask(marked(100))).read, 0)
    const five = blocks(5).map(block => ({ ...block, ...mark }))
    const refused = await post(simulator, '/messages', {
      model: 'sim',
      max_tokens: 10,
      messages: [{ role: 'user', content: five }],
    })
    assert.equal(refused.status, 400)
  }))

test('gemini: thought signatures come back as they were given out, or as the documented stand-in', () =>
  withSimulator(async simulator => {
    const tools = [{ functionDeclarations: [{ name: 'f', parametersJsonSchema: { type: 'object' } }] }]
    const user = { role: 'user', parts: [{ text: 'x [[sim: call f {"a":1}; call f {"a":2}]]' }] }
    const first: any = await (await post(simulator, '/models/sim:generateContent', { contents: [user], tools })).json()
    const { parts } = first.candidates[0].content
    assert.deepEqual(
      parts.map((part: any) => typeof part.thoughtSignature),
      ['string', 'undefined'],
    )
    const answers = parts.map(() => ({ functionResponse: { name: 'f', response: { output: 'ok' } } }))
    const again = async (model: unknown[], responses = answers) =>
      (
        await post(simulator, '/models/sim:generateContent', {
          contents: [user, { role: 'model', parts: model }, { role: 'user', parts: responses }],
          tools,
        })
      ).status
    assert.equal(await again(parts), 200)
    assert.equal(await again([{ ...parts[0], thoughtSignature: 'skip_thought_signature_validator' }, parts[1]]), 200)
    assert.equal(await again([{ ...parts[0], thoughtSignature: 'forged' }, parts[1]]), 400)
    assert.equal(await again([{ functionCall: parts[0].functionCall }, parts[1]]), 400)
    assert.equal(await again(parts, answers.slice(1)), 400, 'a response is missing')
  }))

test('gemini: a blocked prompt, grounding, thoughts', () =>
  withSimulator(async simulator => {
    const generate = async (prompt: string, more: object = {}) =>
      (await (
        await post(simulator, '/models/sim:generateContent', { ...bodyFor('gemini', prompt, false), ...more })
      ).json()) as any
    assert.equal((await generate('[[sim: refuse]]')).promptFeedback.blockReason, 'SAFETY')
    const grounded = await generate('[[sim: search "cats"]]', { tools: [{ googleSearch: {} }] })
    assert.deepEqual(grounded.candidates[0].groundingMetadata.webSearchQueries, ['cats'])
    const thought = await generate('x', {
      generationConfig: { thinkingConfig: { includeThoughts: true, thinkingLevel: 'LOW' } },
    })
    assert.equal(thought.candidates[0].content.parts[0].thought, true)
    // A candidate's tokens are those of its text alone.
    const { promptTokenCount, candidatesTokenCount, thoughtsTokenCount, totalTokenCount } = thought.usageMetadata
    assert.ok(thoughtsTokenCount > 0)
    assert.equal(promptTokenCount + candidatesTokenCount + thoughtsTokenCount, totalTokenCount)
    for (const thinkingBudget of [0, 1000]) {
      const { usageMetadata } = await generate('x', { generationConfig: { thinkingConfig: { thinkingBudget } } })
      assert.equal(usageMetadata.thoughtsTokenCount > 0, thinkingBudget > 0)
    }
    assert.equal((await generate('[[sim: finish SAFETY]]')).candidates[0].finishReason, 'SAFETY')
  }))

test('credentials are checked when the simulator was given one, in each dialect’s header', () =>
  withSimulator(
    async simulator => {
      assert.equal((await ask(simulator, 'openai-chat', 'x')).status, 401)
      assert.equal((await ask(simulator, 'openai-chat', 'x', false, { authorization: 'Bearer k' })).status, 200)
      assert.equal((await ask(simulator, 'anthropic-messages', 'x', false, { 'x-api-key': 'k' })).status, 200)
      assert.equal((await ask(simulator, 'gemini', 'x', false, { 'x-goog-api-key': 'k' })).status, 200)
    },
    { apiKey: 'k' },
  ))

test('requests are recorded, the newest kept; directives may come from an option, and the header wins', () =>
  withSimulator(
    async simulator => {
      for (let i = 0; i < 5; i++) await ask(simulator, 'openai-chat', `n${i}`, false, { 'x-test': String(i) })
      assert.deepEqual(
        simulator.requests.map(request => request.headers['x-test']),
        ['2', '3', '4'],
      )
      const last = simulator.requests.at(-1)!
      assert.equal(await last.settled, 'finished')
      assert.deepEqual(
        [last.method, last.path, (last.json as any).messages[0].content],
        ['POST', '/chat/completions', 'n4'],
      )
      assert.equal((await ask(simulator, 'openai-chat', 'teapot')).status, 418)
      assert.equal((await ask(simulator, 'openai-chat', 'teapot', false, { 'x-sim': 'tokens 1' })).status, 200)
    },
    { keep: 3, directives: request => (request.body.includes('teapot') ? 'status 418' : undefined) },
  ))

test('the search page serves the example of a search provider', () =>
  withSimulator(async simulator => {
    const found: any = await (await fetch(`${simulator.url}/search?q=blue+cats`)).json()
    assert.equal(found.results.length, 3)
    assert.deepEqual(found.results[0], {
      title: 'An introduction to blue cats',
      url: 'https://example.com/blue-cats/1',
      text: 'An introduction to blue cats: page 1 of the simulated web.',
    })
  }))

test('simulate: help, wrong arguments, a taken port', async t => {
  const said: string[] = []
  t.mock.method(process.stdout, 'write', (text: string) => said.push(text) > 0)
  t.mock.method(process.stderr, 'write', (text: string) => said.push(text) > 0)
  assert.equal(await runSimulate(['--help']), 0)
  assert.match(said.join(''), /Usage: sluice simulate/)
  assert.ok(
    said
      .join('')
      .split('\n')
      .every(line => line.length <= 80),
  )
  assert.equal(await runSimulate(['--prot', '1']), 2)
  assert.equal(await runSimulate(['--port', 'x']), 2)
  await withSimulator(async simulator => assert.equal(await runSimulate(['--port', String(simulator.port)]), 1))
})
