/**
 * What a backend cannot be told is named: in the header `x-adjusted` on all surfaces, and in the `warning` of Responses.
 * Before, a seed that no provider got, or a temperature that was lowered, stood in the gateway's log alone.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  const model = (backends: string) =>
    `{ context_window: 400000, price: { input: 1, output: 1 }, backends: [${backends}] }`
  t = await startGateway({
    models: [
      `  claude: ${model('{ provider: messages, model: m }')}`,
      `  google: ${model('{ provider: gemini, model: m }')}`,
      `  capped: ${model('{ provider: messages, model: claude-opus-4-8 }').replace('{ context', '{ effort_ceiling: low, context')}`,
      `  either: ${model('{ provider: responses, model: m }, { provider: chat, model: m }')}`,
    ].join('\n'),
    plugins: { conversation: '{ max_retained: 2KiB }' },
  })
})
after(() => t.close())

const chat = (model: string, more: object = {}) => ({ model, messages: [{ role: 'user', content: 'Hello' }], ...more })
const responses = (model: string, more: object = {}) => ({ model, input: 'Hello', ...more })
const messages = (model: string, more: object = {}) => ({ ...chat(model), max_tokens: 4000, ...more })

for (const stream of [false, true]) {
  const how = stream ? 'streamed' : 'buffered'
  test(`[GEN-2] ${how}: what is left out or lowered is named, with its reason`, async () => {
    const sent = { stream, temperature: 1.7, seed: 7 }
    const reply = await t.post('/v1/chat/completions', chat('claude', sent))
    assert.equal(reply.status, 200)
    assert.equal(reply.headers.get('x-adjusted'), 'temperature=sent_as_1, seed=not_supported')
    await reply.text()
    const plain = await t.post('/v1/chat/completions', chat('claude', { stream, temperature: 0.5 }))
    assert.equal(plain.headers.get('x-adjusted'), null)
    await plain.text()
  })

  test(`[GEN-2] ${how}: on Responses the warning says it too`, async () => {
    const reply = await t.post('/v1/responses', responses('claude', { stream, temperature: 1.7 }))
    assert.equal(reply.headers.get('x-adjusted'), 'temperature=sent_as_1')
    const text = await reply.text()
    const object = stream ? JSON.parse(/data: (.*"response\.completed".*)/.exec(text)![1]!).response : JSON.parse(text)
    assert.equal(object.warning.code, 'adjusted')
    assert.match(object.warning.message, /temperature \(sent as 1\)/)
  })

  test(`[MSG-2] ${how}: an effort that the model's ceiling lowered is named by the client's member`, async () => {
    const reply = await t.post('/v1/messages', messages('capped', { stream, output_config: { effort: 'max' } }))
    assert.equal(reply.status, 200)
    assert.equal(reply.headers.get('x-adjusted'), 'output_config.effort=sent_as_low')
    await reply.text()
  })

  test(`[MSG-3] ${how}: a bound on searches never refuses a request, and is named where a provider has none`, async () => {
    const tools = [{ type: 'web_search_20250305', name: 'web_search', max_uses: 8 }]
    const reply = await t.post('/v1/messages', messages('google', { stream, tools }))
    assert.equal(reply.status, 200)
    assert.equal(reply.headers.get('x-adjusted'), 'max_uses=not_supported')
    await reply.text()
  })
}

test('[GEN-2] an error names no adjustment', async () => {
  const failed = await t.post('/v1/chat/completions', {
    ...chat('claude', { seed: 7 }),
    messages: [{ role: 'user', content: '[[sim: status 500 code server]]' }],
  })
  assert.equal(failed.status, 502)
  assert.equal(failed.headers.get('x-adjusted'), null)
})

test('[GEN-2] a seed goes to a backend that has one, where there is one', async () => {
  const made = async (more: object) => {
    const reply = await t.post('/v1/chat/completions', chat('either', more))
    assert.equal(reply.status, 200)
    assert.equal(reply.headers.get('x-adjusted'), null)
    return JSON.parse(t.simulator.requests.at(-1)!.body) as Record<string, unknown>
  }
  assert.ok('input' in (await made({})), 'the first backend speaks openai-responses')
  assert.equal((await made({ seed: 7 }))['seed'], 7)
})

test('[RESP-3] a response that is too large to be retained says so', async () => {
  const words = Array.from({ length: 900 }, (_, i) => `word${i}`).join(' ')
  const ask = async (text: string) => {
    const reply = await t.post('/v1/responses', responses('either', { input: `[[sim: text ${JSON.stringify(text)}]]` }))
    return (await reply.json()) as { id: string; warning?: { code: string; message: string } }
  }
  const large = await ask(words)
  assert.equal(large.warning?.code, 'not_retained')
  const next = await t.post('/v1/responses', responses('either', { previous_response_id: large.id }))
  assert.equal(((await next.json()) as any).error.code, 'previous_response_not_found')

  const small = await ask('few words')
  assert.equal(small.warning, undefined)
  assert.equal((await t.post('/v1/responses', responses('either', { previous_response_id: small.id }))).status, 200)
})
