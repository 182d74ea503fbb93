/**
 * An ordinary busy tenant meets no bound that exists against hostile ones (decision 66): as many requests at once as its
 * plan allows, of each kind, with history, tools, stop strings, recalled responses and long prompts.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defaultYaml, KEY, startGateway } from './harness.ts'
import { SocketClient } from './socket-client.ts'

/** `concurrent_requests` of the plan `tier5`, the largest of the published tiers. */
const AT_ONCE = 100
const SOCKETS = 10

test('as many requests at once as the largest tier allows meet no bound', async () => {
  const t = await startGateway({
    yaml: url => defaultYaml(url).replace('acme:\n    plan: custom', 'acme:\n    plan: tier5'),
  })
  try {
    const kept = (await (await t.post('/v1/responses', { model: 'eb1-preview', input: 'hello' })).json()) as any
    const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties: {} } } }]
    const turns = Array.from({ length: 20 }, (_, i) => ({ role: i % 2 ? 'assistant' : 'user', content: `turn ${i}` }))
    const model = 'eb1-preview'
    const kinds: ((i: number) => [path: string, body: object])[] = [
      i => [
        '/v1/chat/completions',
        {
          model,
          max_tokens: 100,
          messages: [...turns, { role: 'user', content: `${i} ${'word '.repeat(800)}` }],
          tools,
          stop: ['END', 'STOP'],
        },
      ],
      i => ['/v1/chat/completions', { model, stream: true, messages: [{ role: 'user', content: `stream ${i}` }] }],
      i => ['/v1/responses', { model, input: `and ${i}?`, previous_response_id: kept.id }],
      i => ['/v1/messages', { model, max_tokens: 100, messages: [{ role: 'user', content: `hello ${i}` }] }],
      i => ['/v1/messages/count_tokens', { model, messages: [...turns, { role: 'user', content: `count ${i}` }] }],
    ]
    const client = await SocketClient.open(t)
    for (let i = 0; i < SOCKETS; i++) client.create(`over a socket ${i}`, { stream_id: `lane${i % 10}` })
    const statuses = await Promise.all(
      Array.from({ length: AT_ONCE - SOCKETS }, async (_, i) => {
        const [path, body] = kinds[i % kinds.length]!(i)
        const response = await fetch(`${t.url}${path}`, {
          method: 'POST',
          headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
          body: JSON.stringify(body),
        })
        const text = await response.text()
        return response.status === 200 ? 200 : text
      }),
    )
    assert.deepEqual([...new Set(statuses)], [200])
    for (let i = 0; i < SOCKETS; i++) assert.equal((await client.response()).at(-1)!.type, 'response.completed')
    client.close()

    const text = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
    const refusals = text
      .split('\n')
      .filter(line =>
        /^sluice_(refused_total|limit_denials_total|shed_total|preparation_refused_total|provider_refused|backend_failures_total|store_evicted_total|backend_closed_organizations)\b/.test(
          line,
        ),
      )
      .filter(line => !line.endsWith(' 0'))
    assert.deepEqual(refusals, [])
  } finally {
    await t.close()
  }
})
