/** GET /v1/usage and GET /v1/limits: what the holder of a key sees of its own use, and of nobody else's. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { after, before, test } from 'node:test'
import { defaultYaml, KEY, startGateway, stillClock, type TestGateway } from './harness.ts'

const HOLDER = 'sk-holder-0001-secret'
const LEAD = 'sk-lead-00001-secret'
const OTHER = 'sk-other-0001-secret'
const sha256 = (secret: string) => createHash('sha256').update(secret).digest('hex')

const clock = stillClock()
let t: TestGateway
before(async () => {
  t = await startGateway({
    yaml: url =>
      defaultYaml(url, {
        plugins: { 'usage-capture': '{ tags: { team: { from: header.x-team } } }' },
        organization: '    limits: { requests_per_minute: 60, tokens_per_minute: 90000, monthly_spend_usd: 50 }',
      }).replace(
        '\n  other:\n',
        `
      - { id: key_holder, sha256: "${sha256(HOLDER)}", limits: { requests_per_minute: 10, daily_spend_usd: 1 } }
      - { id: key_lead, sha256: "${sha256(LEAD)}", usage: organization }
  other:
`,
      ),
    gateway: { clock },
  })
  await ask(KEY, 'eb1-preview')
  await ask(KEY, 'eb1-fast-preview')
  await ask(HOLDER, 'eb1-preview')
  await ask(HOLDER, 'eb1-preview', 'blue')
  await ask(OTHER, 'eb1-preview')
  await t.gateway.store.ledger.flush()
})
after(() => t.close())

async function ask(key: string, model: string, team = ''): Promise<void> {
  const response = await fetch(`${t.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'x-team': team },
    body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello there' }] }),
  })
  assert.equal(response.status, 200)
  await response.text()
}
const get = async (path: string, key = HOLDER) => {
  const response = await fetch(`${t.url}${path}`, { headers: { authorization: `Bearer ${key}` } })
  return { status: response.status, body: (await response.json()) as any }
}

test('a key sees its own use by day and model; one that may see more, that of its organization; nobody another’s', async () => {
  const rows = (await t.ledger()).filter(row => row.organization === 'acme')
  const day = new Date(clock.now()).toISOString().slice(0, 10)
  const own = await get('/v1/usage')
  const mine = rows.filter(row => row.key_id === 'key_holder')
  assert.equal(own.status, 200)
  assert.equal(own.body.scope, 'key')
  assert.deepEqual(own.body.data, [
    {
      object: 'usage',
      day,
      model: 'eb1-preview',
      requests: 2,
      input_tokens: mine[0]!.input + mine[1]!.input,
      cached_tokens: mine[0]!.cached + mine[1]!.cached,
      cache_write_tokens: 0,
      output_tokens: mine[0]!.output + mine[1]!.output,
      reasoning_tokens: mine[0]!.reasoning + mine[1]!.reasoning,
      searches: 0,
      cost_nano_usd: mine[0]!.cost + mine[1]!.cost,
    },
  ])
  const all = await get('/v1/usage?group_by=key,model', LEAD)
  assert.equal(all.body.scope, 'organization')
  assert.deepEqual(
    all.body.data.map((sum: any) => [sum.key, sum.model, sum.requests]),
    [
      ['key_holder', 'eb1-preview', 2],
      ['key_test', 'eb1-fast-preview', 1],
      ['key_test', 'eb1-preview', 1],
    ],
  )
  const cost = (sums: any[]) => sums.reduce((sum, one) => sum + one.cost_nano_usd, 0)
  assert.equal(
    cost(all.body.data),
    rows.reduce((sum, row) => sum + row.cost, 0),
  )
  assert.deepEqual((await get('/v1/usage?group_by=key&key=key_test', LEAD)).body.data[0].requests, 2)
  const tagged = (await get('/v1/usage?tag=team')).body.data
  assert.deepEqual(
    tagged.map((sum: any) => [sum.day, sum.tag, sum.requests, sum.cost_nano_usd]),
    [[day, 'blue', 1, mine.find(row => row.tags)!.cost]],
  )
  assert.equal((await get('/v1/usage?tag=team&group_by=tag', OTHER)).body.data.length, 0)
  assert.deepEqual((await get('/v1/usage?group_by=key&model=nope')).body.data, [])
  assert.equal((await get('/v1/usage?group_by=key', OTHER)).body.data[0].requests, 1)
  assert.equal((await get('/v1/usage', 'sk-nobody')).status, 401)
})

test('what the provider counted and charged is told to no caller', async () => {
  const { body } = await get('/v1/usage?group_by=day,model,key', LEAD)
  assert.doesNotMatch(JSON.stringify(body), /provider|sim-large|counted|costed|backend/)
})

test('a question that is not valid is refused with the cure', async () => {
  const refused = async (query: string, code: string, words: RegExp) => {
    const { status, body } = await get(`/v1/usage?${query}`)
    assert.deepEqual([status, body.error.code], [400, code], query)
    assert.match(body.error.message, words)
  }
  await refused('key=key_test', 'invalid_value', /sees its own use alone/)
  await refused('group_by=backend', 'invalid_value', /takes hour, day, month, model, key, tag/)
  await refused('group_by=tag', 'invalid_value', /tag needs the name of a tag/)
  await refused('since=yesterday', 'invalid_value', /write 2026-11-01/)
  await refused('since=2026-01-01&until=2026-12-01', 'invalid_value', /more than 92 days/)
  await refused('org=other', 'unknown_parameter', /there are since, until/)
})

test('limits: each with what is used, when it is whole again, and which one binds', async () => {
  const { status, body } = await get('/v1/limits')
  assert.equal(status, 200)
  const at = (name: string, scope: string) => body.data.find((one: any) => one.name === name && one.scope === scope)
  const cost = (await t.ledger()).filter(row => row.key_id === 'key_holder').reduce((sum, row) => sum + row.cost, 0)
  const midnight = new Date((Math.floor(clock.now() / 86_400_000) + 1) * 86_400_000).toISOString()
  assert.deepEqual(at('daily_spend_usd', 'key'), {
    object: 'limit',
    name: 'daily_spend_usd',
    scope: 'key',
    model: null,
    unit: 'nano_usd',
    limit: 1e9,
    used: cost,
    remaining: 1e9 - cost,
    resets_at: midnight,
    binds: true,
  })
  assert.deepEqual(
    [at('requests_per_minute', 'key').used, at('requests_per_minute', 'key').binds],
    [2, true],
    '8 of 10 are less than what is left of 60',
  )
  assert.equal(at('requests_per_minute', 'organization').binds, false)
  assert.equal(at('monthly_spend_usd', 'organization'), undefined, 'what the organization spends is not for this key')
  const lead = (await get('/v1/limits', LEAD)).body.data
  const month = lead.find((one: any) => one.name === 'monthly_spend_usd')
  const all = (await t.ledger()).filter(row => row.organization === 'acme').reduce((sum, row) => sum + row.cost, 0)
  assert.deepEqual([month.used, month.scope, month.binds], [all, 'organization', true])
})

test('both take from the bucket of counts, and nothing from completions', async () => {
  const before = (await get('/v1/limits', OTHER)).body
  assert.deepEqual(before.data, [], 'no limits')
  let refused = 0
  for (let i = 0; i < 70; i++) {
    const { status, body } = await get(i % 2 ? '/v1/usage' : '/v1/limits')
    if (status === 200) continue
    refused++
    assert.deepEqual([status, body.error.code], [429, 'requests_limit_exceeded'])
    assert.match(
      body.error.message,
      /looks at usage, limits and receipts, and streams read again per minute of this organization/,
    )
  }
  assert.ok(refused > 0)
  await ask(KEY, 'eb1-preview')
})
