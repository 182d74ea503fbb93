/** Large prompts: read and counted off the event loop, exactly, while others are served. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { countTokens } from '../../meter/index.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

const ask = (content: string) => ({ model: 'eb1-preview', max_tokens: 50, messages: [{ role: 'user', content }] })

test('[METER-1] a 1.6 MB prompt counts what its text counts, and others are answered meanwhile', async () => {
  const text = Array.from({ length: 60_000 }, (_, i) => `word${i} of a long prompt`)
    .join(' ')
    .slice(0, 1_200_000)
  const pending = t.post('/v1/chat/completions', ask(text))
  const small = await Promise.all(
    Array.from({ length: 20 }, (_, i) => t.post('/v1/chat/completions', ask(`small ${i}`))),
  )
  assert.deepEqual([...new Set(small.map(r => r.status))], [200])
  const body = (await (await pending).json()) as any
  const overhead =
    ((await (await t.post('/v1/chat/completions', ask('x'))).json()) as any).usage.prompt_tokens - countTokens('x')
  assert.equal(body.usage.prompt_tokens, countTokens(text) + overhead)
})

test('[GEN-2] a large body is refused for what a small one would be', async () => {
  const long = 'x '.repeat(300_000)
  const cases: [string, string][] = [
    [JSON.stringify({ ...ask(long), foo: 1 }), 'unknown_parameter'],
    [`${JSON.stringify(ask(long)).slice(0, -1)},`, 'invalid_json'],
    [`["${long}"]`, 'invalid_json'],
    [`{"model":"eb1-preview","messages":${'['.repeat(400)}"${long}"`, 'content_limit_exceeded'],
  ]
  for (const [body, code] of cases) {
    const response = await t.post('/v1/chat/completions', body)
    assert.equal(response.status, 400)
    assert.equal(((await response.json()) as any).error.code, code)
  }
})

test('a client that leaves while its prompt is read frees its place', async () => {
  const gone = new AbortController()
  const pending = fetch(`${t.url}/v1/chat/completions`, {
    method: 'POST',
    signal: gone.signal,
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(ask('的'.repeat(400_000))),
  })
  while (t.gateway.ingress.running.size === 0) await new Promise<void>(resolve => setImmediate(resolve))
  gone.abort()
  await assert.rejects(pending)
  while (t.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
  assert.equal((await t.post('/v1/chat/completions', ask('after'))).status, 200)
})

for (const listener of ['uws', 'node'] as const) {
  test(`[STR-4] [BILL-3] a client that leaves while a large prompt is answered cancels the upstream (${listener})`, async () => {
    const own = await startGateway({ gateway: { listener } })
    const gone = new AbortController()
    const response = await fetch(`${own.url}/v1/chat/completions`, {
      method: 'POST',
      signal: gone.signal,
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        ...ask(`${'word '.repeat(100_000)} [[sim: text "some words"; stall 4]] x`),
        stream: true,
      }),
    })
    await response.body!.getReader().read()
    const [request] = own.simulator.requests
    gone.abort()
    // Would wait for ever: the upstream's stall has no end.
    await request!.settled
    assert.equal(request!.state, 'aborted')
    while (own.gateway.ingress.running.size > 0) await new Promise<void>(resolve => setImmediate(resolve))
    assert.equal((await own.ledger())[0]!.outcome, 'client_gone')
    await own.close()
  })
}
