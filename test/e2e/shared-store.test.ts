/** Several gateways on one Redis: limits exact over all of them, calls and replays answered by any, failures of the engine said clearly. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../stores/kit.ts'
import { RedisServer, skipWithoutRedis as skip } from '../stores/redis-server.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

let redis: RedisServer
before(async () => {
  if (!skip) redis = await RedisServer.start()
})
after(() => redis?.stop())

let databases = 0
/** So many gateways on a database of their own. */
async function gateways(count: number, organization = ''): Promise<TestGateway[]> {
  const url = redis.url.replace(/\/0$/, `/${databases++}`)
  const all: TestGateway[] = []
  for (let i = 0; i < count; i++) {
    all.push(
      await startGateway({
        yaml: sim => defaultYaml(sim, { organization }).replace('"sqlite::memory:"', `{ url: "${url}", timeout: 5s }`),
      }),
    )
  }
  return all
}
const closeAll = (all: TestGateway[]) => Promise.all(all.map(t => t.close()))
const ask = (text = 'x', more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content: text }],
  max_tokens: 50,
  ...more,
})

for (const count of [2, 4]) {
  test(`[LIM-3] ${count} gateways, one Redis: of 20·N simultaneous requests exactly N pass`, { skip }, async () => {
    const N = 5
    for (const limit of [`requests_per_day: ${N}`, `tokens_per_day: ${N * 200}`, `concurrent_requests: ${N}`]) {
      const all = await gateways(count, `    limits: { ${limit} }`)
      try {
        const concurrent = limit.startsWith('concurrent')
        const body = limit.startsWith('tokens')
          ? ask('x', { max_tokens: 190 })
          : ask(concurrent ? '[[sim: delay 700ms]] x' : 'x')
        const estimate = limit.startsWith('tokens') ? await tokens(all[0]!) : 0
        const replies = await Promise.all(
          Array.from({ length: 20 * N }, (_, i) => all[i % count]!.post('/v1/chat/completions', body)),
        )
        const passed = replies.filter(r => r.status === 200).length
        if (limit.startsWith('tokens'))
          assert.ok(passed >= Math.floor((N * 200) / (estimate + 190)), `${limit}: ${passed}`)
        else assert.equal(passed, N, limit)
        for (const r of replies) if (r.status !== 200) assert.equal(r.status, 429)
      } finally {
        await closeAll(all)
      }
    }
  })
}

async function tokens(t: TestGateway): Promise<number> {
  const response = await t.post('/v1/messages/count_tokens', {
    model: 'eb1-preview',
    max_tokens: 1,
    messages: [{ role: 'user', content: 'x' }],
  })
  return ((await response.json()) as any).input_tokens
}

test('[TOOL-1] [IDEM-1] [RESP-2] what one gateway began another goes on with', { skip }, async () => {
  const all = await gateways(2)
  const [a, b] = all as [TestGateway, TestGateway]
  try {
    const tools = [{ type: 'function', name: 'f', parameters: { type: 'object', properties: {} } }]
    const first = (await (
      await a.post('/v1/responses', {
        model: 'eb1-fast-preview',
        input: '[[sim: reason 2; call f {}]] go',
        tools,
        reasoning: { effort: 'high' },
      })
    ).json()) as any
    const call = first.output.find((o: any) => o.type === 'function_call')
    const second = await b.post('/v1/responses', {
      model: 'eb1-fast-preview',
      previous_response_id: first.id,
      tools,
      input: [{ type: 'function_call_output', call_id: call.call_id, output: 'done' }],
    })
    assert.equal(second.status, 200, await second.clone().text())
    const headers = { 'idempotency-key': 'across' }
    const one = await a.post('/v1/chat/completions', ask('idem'), headers)
    const bytes = await one.text()
    // The record is written behind the reply: until it is there, the first use counts as running.
    let two = await b.post('/v1/chat/completions', ask('idem'), headers)
    while (two.status === 409) two = await b.post('/v1/chat/completions', ask('idem'), headers)
    assert.equal(two.headers.get('x-idempotent-replay'), 'true')
    assert.equal(await two.text(), bytes)
  } finally {
    await closeAll(all)
  }
})

test('[AUTH-1] Redis down: 503 provider_unavailable with 5–15 s, never 401; recovery needs no restart; streams go on', {
  skip,
}, async () => {
  const own = await RedisServer.start(['--appendonly', 'yes', '--appendfsync', 'always'])
  const t = await startGateway({
    yaml: sim =>
      defaultYaml(sim, { organization: '    limits: { requests_per_minute: 1000 }' }).replace(
        '"sqlite::memory:"',
        `{ url: "${own.url}", timeout: 2s }`,
      ),
  })
  try {
    assert.equal((await t.post('/v1/chat/completions', ask())).status, 200)
    const running = await t.post('/v1/chat/completions', ask('[[sim: tokens 30; pace 30ms]] x', { stream: true }))
    await own.down()
    const denied = await t.post('/v1/chat/completions', ask())
    const { error } = (await denied.json()) as any
    assert.equal(denied.status, 503)
    assert.equal(error.code, 'provider_unavailable')
    const wait = Number(denied.headers.get('retry-after'))
    assert.ok(wait >= 5 && wait <= 15)
    assert.match(await running.text(), /\[DONE\]/)
    await own.up()
    // The client of the store tries again by itself, ever later.
    await until(async () => (await t.post('/v1/chat/completions', ask())).status === 200, 20_000)
    const rows = await t.ledger()
    assert.equal(rows.filter(r => r.outcome === 'completed').length >= 3, true)
  } finally {
    await t.close()
    await own.stop()
  }
})
