/** The plugin `response-cache`: the same request of the same organization is answered without a backend. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { after, beforeEach, test } from 'node:test'
import { eventually } from '../eventually.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { temporary } from '../stores/kit.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { defaultYaml, startGateway, stillClock, type TestGateway } from './harness.ts'

/** How often a backend was asked, and what it answers. */
let asked = 0
let finish = 'stop'
let words = 'hello'
const upstream = await startFakeUpstream(async turn => {
  asked++
  const body = JSON.parse(turn.request.body)
  const message = { role: 'assistant', content: `${words} ${asked}` }
  const usage = { prompt_tokens: 11, completion_tokens: 22, total_tokens: 33 }
  if (!body.stream) {
    const choices = [{ index: 0, message, finish_reason: finish }]
    return void (await turn.answer(200, { id: 'c', object: 'chat.completion', model: 'now', choices, usage }))
  }
  await turn.head(200, { 'content-type': 'text/event-stream', 'transfer-encoding': 'chunked' })
  const chunk = (delta: object, finish_reason: string | null) =>
    turn.chunk(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`)
  await chunk(message, null)
  await chunk({}, finish)
  await turn.chunk('data: [DONE]\n\n')
  await turn.end()
})
after(() => upstream.close())
beforeEach(() => {
  asked = 0
  finish = 'stop'
  words = 'hello'
})

/** The key of another organization. */
const OTHER = 'sk-other-0001-secret'
const still = stillClock()
let later = 0
const clock = { ...still, now: () => still.now() + later, mono: () => still.mono() + later }
async function gateway(options: string, store = '"sqlite::memory:"'): Promise<TestGateway> {
  return startGateway({
    gateway: { clock },
    yaml: url =>
      defaultYaml(url, {
        store,
        providers: `  a: { dialect: openai-chat, base_url: "${upstream.url}", api_key: k }`,
        models:
          '  eb1-preview: { context_window: 100000, price: { input: 1, output: 2 }, backends: [{ provider: a, model: now }] }',
      }).replace('routing, admission', `routing, { response-cache: { ${options} } }, admission`),
  })
}
const messages = [{ role: 'user', content: 'hi' }]

async function ask(t: TestGateway, more: object = {}, headers: Record<string, string> = {}) {
  const reply = await t.post('/v1/chat/completions', { model: 'eb1-preview', messages, ...more }, headers)
  const text = await reply.text()
  assert.equal(reply.status, 200, text)
  return { cache: reply.headers.get('x-sluice-cache'), said: /hello \d+|x+ \d+/.exec(text)?.[0], text }
}

async function withGateway(options: string, then: (t: TestGateway) => Promise<void>, store?: string) {
  const t = await gateway(options, store)
  try {
    await then(t)
  } finally {
    await t.close()
  }
}

test('a hit is streamed or whole, has an id and a row of its own, and costs the share', () =>
  withGateway('share: 0.5', async t => {
    const first = await ask(t)
    const again = await ask(t)
    const streamed = await ask(t, { stream: true })
    assert.deepEqual([first.cache, again.cache, streamed.cache], ['miss', 'hit, age_s=0', 'hit, age_s=0'])
    assert.equal(asked, 1)
    assert.deepEqual([first.said, again.said, streamed.said], ['hello 1', 'hello 1', 'hello 1'])
    assert.match(streamed.text, /data: \[DONE\]\n\n$/)
    assert.notEqual(JSON.parse(first.text).id, JSON.parse(again.text).id)
    const rows = (await t.ledger()).sort((a, b) => a.time - b.time)
    assert.deepEqual(rows.map(({ provider }) => provider).sort(), ['a', 'response-cache', 'response-cache'])
    const whole = rows.find(({ provider }) => provider === 'a')!
    for (const row of rows)
      if (row !== whole)
        assert.deepEqual([row.cost, row.price_used, row.provider_cost], [Math.ceil(whole.cost / 2), 'model*0.5', 0])
  }))

test('another prompt, seed, cap, tool or organization is asked anew; ids of calls make no difference', () =>
  withGateway('share: 0', async t => {
    await ask(t)
    const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }]
    const variants: object[] = [
      { messages: [{ role: 'user', content: 'hi!' }] },
      { messages: [{ role: 'system', content: 'hi' }, ...messages] },
      { seed: 7 },
      { temperature: 0.5 },
      { max_completion_tokens: 9 },
      { stop: ['x'] },
      { tools },
      { tools: [{ ...tools[0], function: { ...tools[0]!.function, name: 'g' } }] },
      {
        tools: [
          {
            type: 'function',
            function: { name: 'f', parameters: { type: 'object', properties: { path: { type: 'string' } } } },
          },
        ],
      },
      { tools, tool_choice: 'required' },
    ]
    for (const variant of variants) assert.equal((await ask(t, variant)).cache, 'miss', JSON.stringify(variant))
    for (const variant of variants) assert.equal((await ask(t, variant)).cache, 'hit, age_s=0')
    const rival = await ask(t, {}, { authorization: `Bearer ${OTHER}` })
    assert.equal(rival.cache, 'miss')
    const called = (id: string, city: string) => ({
      tools,
      messages: [
        ...messages,
        {
          role: 'assistant',
          tool_calls: [{ id, type: 'function', function: { name: 'f', arguments: `{"city":"${city}"}` } }],
        },
        { role: 'tool', tool_call_id: id, content: 'sun' },
      ],
    })
    assert.equal((await ask(t, called('call_1', 'Rome'))).cache, 'miss')
    assert.equal((await ask(t, called('call_2', 'Rome'))).cache, 'hit, age_s=0')
    assert.equal((await ask(t, called('call_1', 'Oslo'))).cache, 'miss')
  }))

test('a reply that was cut, or is longer than max_reply, is not kept; nor is a longer request looked for', () =>
  withGateway('share: 0, max_reply: 1KiB, max_request: 2KiB', async t => {
    finish = 'length'
    for (const _ of [1, 2]) assert.equal((await ask(t, { seed: 1 })).cache, 'miss')
    finish = 'stop'
    words = 'x'.repeat(2000)
    for (const _ of [1, 2]) assert.equal((await ask(t, { seed: 2 })).cache, 'miss')
    words = 'hello'
    const long = { messages: [{ role: 'user', content: 'y'.repeat(3000) }] }
    for (const _ of [1, 2]) assert.equal((await ask(t, long)).cache, null)
    assert.equal(asked, 6)
    // What is behind a URL may have changed; data have not.
    const image = (url: string) => ({
      messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }],
    })
    for (const _ of [1, 2]) assert.equal((await ask(t, image('https://example.com/a.png'))).cache, null)
    const data = `data:image/png;base64,${Buffer.from('not looked into').toString('base64')}`
    assert.equal((await ask(t, image(data))).cache, 'miss')
    assert.equal((await ask(t, image(data))).cache, 'hit, age_s=0')
  }))

test('Cache-Control: no-cache asks anew and keeps that; no-store does neither; what is kept ends', () =>
  withGateway('share: 0, keep: 10s', async t => {
    const own = { 'cache-control': 'no-store' }
    assert.deepEqual([(await ask(t, {}, own)).cache, (await ask(t)).said], [null, 'hello 2'])
    assert.equal((await ask(t, {}, { 'cache-control': 'no-cache' })).said, 'hello 3')
    later += 9_000
    const late = await ask(t)
    assert.deepEqual([late.said, late.cache], ['hello 3', 'hit, age_s=9'])
    later += 1_000
    assert.equal((await ask(t)).said, 'hello 4')
  }))

test('an organization forgets its own replies first, those that it used longest ago', () =>
  withGateway('share: 0, max_reply: 1KiB, each: 1500B, max_bytes: 4KiB', async t => {
    const seed = async (n: number, headers = {}) => (await ask(t, { seed: n }, headers)).cache!.slice(0, 3)
    const rival = { authorization: `Bearer ${OTHER}` }
    assert.equal(await seed(0, rival), 'mis')
    assert.deepEqual([await seed(1), await seed(2), await seed(1)], ['mis', 'mis', 'hit'])
    // The third one takes the place of the second.
    assert.deepEqual([await seed(3), await seed(1), await seed(2)], ['mis', 'hit', 'mis'])
    assert.equal(await seed(0, rival), 'hit')
  }))

test('replies that are kept in the store outlive a restart, and stay with their organization', async () => {
  const store = `"sqlite:${join(temporary(), 'gateway.db')}"`
  const stored = 'share: 0, kept_in: store, keep: 10s'
  await withGateway(
    stored,
    async t => {
      assert.equal((await ask(t, { stream: true })).cache, 'miss')
      assert.equal((await ask(t)).cache, 'hit, age_s=0')
      assert.equal((await ask(t, {}, { authorization: `Bearer ${OTHER}` })).cache, 'miss')
    },
    store,
  )
  later += 9_000
  await withGateway(
    stored,
    async t => {
      const again = await ask(t)
      assert.deepEqual([again.said, again.cache], ['hello 1', 'hit, age_s=9'])
      assert.equal((await ask(t, { stream: true }, { authorization: `Bearer ${OTHER}` })).said, 'hello 2')
      later += 1_000
      assert.equal((await ask(t)).cache, 'miss')
    },
    store,
  )
})

test('gateways on one Redis share replies', { skip: skipWithoutRedis }, async () => {
  const server = await RedisServer.start()
  try {
    const store = `{ url: "${server.url}", timeout: 10s }`
    await withGateway(
      'share: 0, kept_in: store',
      first =>
        withGateway(
          'share: 0, kept_in: store',
          async second => {
            // The reply of the first one is kept a moment after its client has it.
            let seed = 0
            await eventually(async () => {
              assert.equal((await ask(first, { seed: ++seed })).cache, 'miss')
              return (await ask(second, { seed })).cache === 'hit, age_s=0'
            })
          },
          store,
        ),
      store,
    )
  } finally {
    await server.stop()
  }
})
