/**
 * What a client's schemas make the gateway do, through a listening gateway. A request of 69 KB with patterns of nested
 * repetitions ended the process, out of memory; one with 2^14 ways to a long `enum` took 6 s of the event loop; a chain
 * of references was answered with 500, and so was a reply with 140,000 log probabilities.
 */
import assert from 'node:assert/strict'
import { after, afterEach, before, mock, test } from 'node:test'
import { REQUEST_WORK, Work } from '../../core/canon/work.ts'
import { patterns } from '../../providers/patterns.ts'
import { scrape, value } from '../admin/exposition.ts'
import { type FakeUpstream, startFakeUpstream } from '../fake-upstream/server.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'
import { memory } from './memory.ts'

const MiB = 1024 * 1024

/** An upstream that speaks the dialect openai-chat, and says what the test says. */
let upstream: FakeUpstream
let choice: { message: any; logprobs?: unknown }
let t: TestGateway
before(async () => {
  upstream = await startFakeUpstream(turn => {
    const { stream } = JSON.parse(turn.request.body)
    const { message, logprobs } = choice
    const finish_reason = message.tool_calls ? 'tool_calls' : 'stop'
    const usage = { prompt_tokens: 5, completion_tokens: 5, total_tokens: 10 }
    const base = { id: 'c', created: 1, model: 'm' }
    if (!stream) {
      const choices = [{ index: 0, message: { role: 'assistant', content: null, ...message }, logprobs, finish_reason }]
      return turn.answer(200, { ...base, object: 'chat.completion', choices, usage })
    }
    const event = (choices: unknown[], more = {}) =>
      `data: ${JSON.stringify({ ...base, object: 'chat.completion.chunk', choices, ...more })}\n\n`
    const tool_calls = message.tool_calls?.map((call: object, index: number) => ({ index, ...call }))
    return turn.stream(
      event([{ index: 0, delta: { role: 'assistant', ...message, tool_calls }, logprobs, finish_reason: null }]) +
        event([{ index: 0, delta: {}, finish_reason }]) +
        event([], { usage }) +
        'data: [DONE]\n\n',
    )
  })
  const url = `${upstream.url}/v1`
  t = await startGateway({
    yaml: simulator =>
      defaultYaml(simulator, {
        plugins: { validation: '{ structured_output: translate }' },
        providers: `  own: { dialect: openai-chat, base_url: "${url}" }
  again: { dialect: openai-chat, base_url: "${url}" }
  claude: { dialect: anthropic-messages, base_url: "${simulator}", api_key: k }`,
        models: `  m: { context_window: 4000000, price: { input: 1, output: 1 }, backends: [{ provider: own, model: m }, { provider: again, model: m }] }
  claude: { context_window: 4000000, max_output_tokens: 8000, price: { input: 1, output: 1 }, backends: [{ provider: claude, model: claude-sonnet-4-5 }] }`,
      }),
  })
})
afterEach(() => mock.restoreAll())
after(async () => {
  await t.close()
  await upstream.close()
})

const call = (name: string, args: unknown) => ({
  id: `call_${name}`,
  type: 'function',
  function: { name, arguments: JSON.stringify(args) },
})
const strict = (name: string, p: unknown, $defs?: unknown) => ({
  type: 'function',
  function: {
    name,
    strict: true,
    parameters: { type: 'object', properties: { p }, required: ['p'], additionalProperties: false, $defs },
  },
})
const chat = (tools: unknown[], more: object = {}) => ({
  model: 'm',
  messages: [{ role: 'user', content: 'call them' }],
  max_tokens: 500,
  tools,
  ...more,
})

/** Budgets that were drawn on, with what was taken of each. */
function budgets(): Map<Work, number> {
  const taken = new Map<Work, number>()
  const take = Work.prototype.take
  mock.method(Work.prototype, 'take', function (this: Work, units: number) {
    const took = take.call(this, units)
    if (took) taken.set(this, (taken.get(this) ?? 0) + units)
    return took
  })
  return taken
}

/** 2^14 ways to the leaf. */
function ways(leaf: unknown): Record<string, unknown> {
  const $defs: Record<string, unknown> = { d14: leaf }
  for (let i = 0; i < 14; i++) {
    const next = { $ref: `#/$defs/d${i + 1}` }
    $defs[`d${i}`] = { anyOf: [next, next] }
  }
  return $defs
}

for (const stream of [false, true]) {
  const how = stream ? 'streamed' : 'buffered'

  test(`[TOOL-2] patterns of nested repetitions are not compiled: 60 tools, 60 calls, ${how}`, async () => {
    const names = Array.from({ length: 60 }, (_, i) => `f${i}`)
    choice = { message: { tool_calls: names.map(name => call(name, { p: 'x' })) } }
    const body = (round: number) =>
      chat(
        names.map((name, i) => strict(name, { type: 'string', pattern: `${'(){1000}'.repeat(122)}${round}${i}` })),
        { stream },
      )
    const ask = async (round: number) => {
      const response = await t.post('/v1/chat/completions', body(round))
      const text = await response.text()
      assert.equal(response.status, 200, text.slice(0, 300))
      assert.equal(text.match(/"name":"f\d+"/g)!.length, 60)
    }
    await ask(0)
    const used = await memory()
    for (let round = 1; round < 5; round++) await ask(round)
    // One of these patterns alone took 80 MB.
    const grown = (await memory()) - used
    assert.ok(grown < 16 * MiB, `${grown} bytes`)
    assert.ok(patterns.size <= 12_000)
  })

  test(`[TOOL-2] many calls of a tool with many ways to a long list draw on one budget, ${how}`, async () => {
    const leaf = { enum: Array.from({ length: 60_000 }, (_, i) => i) }
    choice = { message: { tool_calls: [1, 2, 3, 4, 5].map(() => call('f', { p: -1 })) } }
    const usedUp = async () => value(await scrape(t), 'sluice_work_used_up_total')
    const before = (await usedUp())!
    const taken = budgets()
    const response = await t.post(
      '/v1/chat/completions',
      chat([strict('f', { $ref: '#/$defs/d0' }, ways(leaf))], { stream }),
    )
    const text = await response.text()
    assert.equal(response.status, 200, text.slice(0, 300))
    // What the budget does not suffice for passes.
    assert.equal(text.match(/"name":"f"/g)!.length, 5)
    assert.equal(taken.size, 1)
    const [[work, units]] = [...taken] as [[Work, number]]
    assert.ok(units > REQUEST_WORK / 2 && units <= REQUEST_WORK, `${units}`)
    assert.equal(work.left, 0)
    assert.equal(await usedUp(), before + 1)
  })

  test(`140,000 log probabilities in one piece of a reply arrive, ${how}`, async () => {
    const content = Array.from({ length: 140_000 }, () => ({ token: 'a', logprob: -1 }))
    choice = { message: { content: 'a'.repeat(140_000) }, logprobs: { content, refusal: null } }
    for (const stop of [undefined, ['never']]) {
      const response = await t.post(
        '/v1/chat/completions',
        chat([], { stream, logprobs: true, stop, tools: undefined }),
      )
      const text = await response.text()
      assert.equal(response.status, 200, text.slice(0, 300))
      assert.equal(text.match(/"logprob":-1/g)!.length, 140_000)
    }
    const response = await t.post('/v1/responses', {
      model: 'm',
      input: 'x',
      stream,
      store: false,
      max_output_tokens: 500,
      include: ['message.output_text.logprobs'],
    })
    const text = await response.text()
    assert.equal(response.status, 200, text.slice(0, 300))
    assert.ok(text.match(/"logprob":-1/g)!.length >= 140_000)
  })
}

test('[GEN-3] a chain of references is rewritten for anthropic-messages at the first request', async () => {
  const $defs: Record<string, unknown> = { d212: { type: 'null' } }
  for (let i = 0; i < 212; i++) {
    let inner: unknown = { $ref: `#/$defs/d${i + 1}` }
    for (let j = 0; j < 40; j++) inner = [inner]
    $defs[`d${i}`] = { anyOf: [{ type: 'null' }], examples: inner }
  }
  const response = await t.post('/v1/messages', {
    model: 'claude',
    max_tokens: 100,
    messages: [{ role: 'user', content: `[[sim: text ${JSON.stringify('{"a":null}')}]]` }],
    output_config: {
      format: {
        type: 'json_schema',
        schema: {
          type: 'object',
          properties: { a: { $ref: '#/$defs/d0' } },
          required: ['a'],
          additionalProperties: false,
          $defs,
        },
      },
    },
  })
  const text = await response.text()
  assert.equal(response.status, 200, text.slice(0, 300))
  assert.equal(JSON.parse(text).content[0].text, '{"a":null}')
  const sent = JSON.stringify(t.simulator.requests.at(-1)!.body)
  assert.ok(sent.includes('d211') && !sent.includes('final_reply'), 'asked natively')
})
