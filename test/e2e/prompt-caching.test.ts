import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defaultYaml, startGateway, type TestGateway, type TestOptions } from './harness.ts'

/**
 * Clients of Chat Completions and Responses cannot say what a provider shall cache, and anthropic-messages caches only
 * what is marked: each turn of an agent paid for its whole history.
 */

/** A small image of many bytes. */
const IMAGE = Buffer.concat([
  Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  ),
  Buffer.alloc(30_000),
]).toString('base64')
const MODEL = 'eb1-fast-preview'
const LONG = 'You are the build assistant of a large repository. '.repeat(120) // About 1,500 tokens.
const TOOL = {
  name: 'read_file',
  description: 'Reads one file. '.repeat(300), // About 1,200 tokens.
  parameters: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
}

async function using(options: TestOptions, run: (t: TestGateway) => Promise<void>): Promise<void> {
  const t = await startGateway(options)
  try {
    await run(t)
  } finally {
    await t.close()
  }
}

/** The places of the cache markers in the newest request to the provider, in the order of the prompt. */
function marks(t: TestGateway): string[] {
  const { json } = t.simulator.requests.at(-1)!
  const found: string[] = []
  const look = (path: string, value: any) => {
    if (typeof value !== 'object' || value === null) return
    if (value.cache_control) found.push(path)
    for (const [key, inner] of Object.entries(value)) look(path === '' ? key : `${path}.${key}`, inner)
  }
  for (const member of ['tools', 'system', 'messages']) look(member, (json as any)[member])
  return found
}

const chat = async (t: TestGateway, messages: object[], more: object = {}) => {
  const response = await t.post('/v1/chat/completions', { model: MODEL, messages, ...more })
  const body: any = await response.json()
  assert.equal(response.status, 200, JSON.stringify(body))
  return body
}

test('the second turn of a Chat agent reads its prefix from the cache, and figures, bill and row agree', () =>
  using({}, async t => {
    const tools = [{ type: 'function', function: TOOL }]
    const history: object[] = [
      { role: 'system', content: LONG },
      { role: 'user', content: 'Look. [[sim: call read_file {"path":"a"}; next call read_file {"path":"b"}]]' },
    ]
    let written = 0
    for (let turn = 0; turn < 3; turn++) {
      const { choices, usage } = await chat(t, history, { tools })
      const row = (await t.ledger()).at(-1)!
      assert.equal(row.input, usage.prompt_tokens)
      assert.equal(row.cached, usage.prompt_tokens_details.cached_tokens)
      const price = 2500 * (row.input - row.cached) + 250 * row.cached + 20_000 * row.output
      assert.equal(row.cost, price, 'a cached token costs a tenth, a written one as any other')
      if (turn === 0) {
        assert.equal(row.cached, 0)
        assert.ok(row.cacheWrite > 0.9 * row.input, 'tools and system are written')
        assert.deepEqual(marks(t), ['tools.0', 'system.0'])
      } else {
        // The provider's shares are applied to the gateway's count, and the two count results and texts differently.
        assert.ok(row.cached > 0.9 * written, `turn ${turn}: ${row.cached} of ${written}`)
        assert.ok(row.cacheWrite > 0 && row.cached + row.cacheWrite <= row.input)
      }
      written = row.cached + row.cacheWrite
      if (turn === 1)
        assert.deepEqual(marks(t), ['tools.0', 'system.0', 'messages.0.content.0', 'messages.2.content.0'])
      if (turn === 2)
        assert.deepEqual(marks(t), ['tools.0', 'system.0', 'messages.2.content.0', 'messages.4.content.0'])
      const [call] = choices[0].message.tool_calls ?? []
      history.push(choices[0].message)
      if (call) history.push({ role: 'tool', tool_call_id: call.id, content: `result ${turn} `.repeat(200) })
    }
  }))

test('Responses too: by items, by previous_response_id, streamed', () =>
  using({}, async t => {
    const tools = [{ type: 'function', ...TOOL }]
    const ask = async (body: object) => {
      const response = await t.post('/v1/responses', { model: MODEL, instructions: LONG, tools, ...body })
      assert.equal(response.status, 200)
      const text = await response.text()
      if (!text.startsWith('event:')) return JSON.parse(text)
      const done = text.split('\n').find(line => line.startsWith('data:') && line.includes('"response.completed"'))!
      return JSON.parse(done.slice(5)).response
    }
    const cacheOf = ({ usage }: any) => [
      usage.input_tokens_details.cached_tokens,
      usage.input_tokens_details.cache_write_tokens,
    ]
    const first = await ask({ input: 'One.' })
    assert.equal(cacheOf(first)[0], 0)
    assert.ok(cacheOf(first)[1] > 2000)
    for (const body of [
      { input: 'Two.', previous_response_id: first.id },
      { input: 'Three.', previous_response_id: first.id, stream: true },
      { input: [{ role: 'user', content: 'One.' }, ...first.output, { role: 'user', content: 'Four.' }] },
    ]) {
      const next = await ask(body)
      const [read, written] = cacheOf(next)
      assert.ok(Math.abs(read - cacheOf(first)[1]) < 0.02 * read, `${read} of ${cacheOf(first)[1]}`)
      const row = (await t.ledger()).at(-1)!
      assert.deepEqual([row.cached, row.cacheWrite], [read, written])
    }
  }))

test('no mark below the minimum of the model, none for a first question’s end, never more than four', () =>
  using({}, async t => {
    const question = { role: 'user', content: 'What is in it?' }
    await chat(t, [{ role: 'system', content: 'Be brief.' }, question])
    assert.deepEqual(marks(t), [])
    await chat(t, [{ role: 'user', content: LONG }])
    assert.deepEqual(marks(t), [], 'it may be the only request')
    await chat(t, [question, { role: 'assistant', content: 'Nothing.' }, question])
    assert.deepEqual(marks(t), [])
    await chat(t, [{ role: 'user', content: LONG }, { role: 'assistant', content: 'Read.' }, question])
    assert.deepEqual(marks(t), ['messages.0.content.0', 'messages.2.content.0'])
    // The gateway adds a last message where the assistant has the last word. The next request does not repeat it.
    await chat(t, [
      { role: 'user', content: LONG },
      { role: 'assistant', content: 'Read.' },
    ])
    assert.deepEqual(marks(t), ['messages.0.content.0', 'messages.1.content.0'])
    const results = Array.from({ length: 40 }, (_, i) => [
      { role: 'assistant', tool_calls: [{ id: `c${i}`, type: 'function', function: { name: 'f', arguments: '{}' } }] },
      { role: 'tool', tool_call_id: `c${i}`, content: LONG },
    ])
    const tools = [{ type: 'function', function: TOOL }]
    await chat(t, [{ role: 'system', content: LONG }, question, ...results.flat()], { tools })
    assert.deepEqual(marks(t), ['tools.0', 'system.0', 'messages.78.content.0', 'messages.80.content.0'])
    const image = { type: 'image_url', image_url: { url: `data:image/png;base64,${IMAGE}` } }
    await chat(t, [{ role: 'user', content: [image] }, { role: 'assistant', content: 'Seen.' }, question])
    assert.deepEqual(marks(t), [], 'the bytes of an image are no text')
    // opencode marks messages of models that are named after Claude; it got 400 `unknown_parameter`.
    const cache_control = { type: 'ephemeral' }
    await chat(t, [
      { role: 'system', content: LONG, cache_control },
      { ...question, cache_control },
    ])
    assert.deepEqual(marks(t), ['system.0'])
    const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' }, cache_control }
    await chat(t, [
      question,
      { role: 'assistant', tool_calls: [call] },
      { role: 'tool', tool_call_id: 'c', content: 'x' },
    ])
  }))

test('a Messages client has its own marks only', () =>
  using({}, async t => {
    const ask = async (system: object[]) => {
      const messages = [
        { role: 'user', content: LONG },
        { role: 'assistant', content: 'Read.' },
        { role: 'user', content: 'And?' },
      ]
      const response = await t.post('/v1/messages', { model: MODEL, max_tokens: 50, system, messages })
      assert.equal(response.status, 200)
      return (await response.json()) as any
    }
    await ask([{ type: 'text', text: LONG }])
    assert.deepEqual(marks(t), [])
    await ask([
      { type: 'text', text: LONG, cache_control: { type: 'ephemeral' } },
      { type: 'text', text: 'And be brief.' },
    ])
    assert.deepEqual(marks(t), ['system.0'])
  }))

test('cache_control: off sends no marks', () =>
  using(
    {
      yaml: url =>
        defaultYaml(url).replace('dialect: anthropic-messages,', 'dialect: anthropic-messages, cache_control: off,'),
    },
    async t => {
      const messages = [
        { role: 'user', content: LONG },
        { role: 'assistant', content: 'Read.' },
        { role: 'user', content: 'And?' },
      ]
      for (let i = 0; i < 2; i++) assert.equal((await chat(t, messages)).usage.prompt_tokens_details.cached_tokens, 0)
      assert.deepEqual(marks(t), [])
    },
  ))
