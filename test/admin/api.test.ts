/** The admin API through listening gateways, on both engines, driven by docs/admin-api.yaml. */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { request as rawRequest } from 'node:http'
import path from 'node:path'
import { describe, type TestContext, test } from 'node:test'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { parse } from 'yaml'
import { formatUsd } from '../../core/canon/money.ts'
import { defaultYaml, sha256, startGateway, type TestGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { engines } from '../stores/redis-server.ts'

const document = parse(readFileSync(path.join(import.meta.dirname, '../../docs/admin-api.yaml'), 'utf8'))
const ajv = new Ajv2020({ strict: false })
ajv.addFormat('date-time', text => !Number.isNaN(Date.parse(text)))
ajv.addSchema({ $id: 'doc', components: document.components })

const READ = 'adm-read-0001'
const OPERATE = 'adm-operate-0001'
const TOKENS = `tokens: [{ name: ci, role: read, sha256: "${sha256(READ)}" }, { name: ops, role: operate, sha256: "${sha256(OPERATE).toUpperCase()}" }]`

interface Sent {
  token?: string | null
  body?: unknown
  headers?: Record<string, string>
}
interface Got {
  status: number
  body: any
  etag: string
}

/** Calls the API; every answer is held against the document. */
async function call(t: TestGateway, method: string, where: string, sent: Sent = {}): Promise<Got> {
  const { token = OPERATE, body, headers } = sent
  const answer = await fetch(`${t.gateway.adminAddress}/api/v1/${where}`, {
    method,
    headers: {
      ...(token !== null && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  })
  assert.equal(answer.headers.get('access-control-allow-origin'), null)
  const text = await answer.text()
  const json = answer.headers.get('content-type') === 'application/json' ? JSON.parse(text) : text
  const [, item] = Object.entries<any>(document.paths).find(([pattern]) =>
    new RegExp(`^${pattern.replace(/\{\w+\}/g, '[^/]+')}$`).test(`/api/v1/${where.split('?')[0]}`),
  ) ?? [undefined, undefined]
  if (item?.[method.toLowerCase()] && typeof json === 'object') {
    const { responses } = item[method.toLowerCase()]
    const told = responses[answer.status] ?? responses.default
    const { schema } = (told.$ref ? document.components.responses.Error : told).content['application/json']
    const fits = ajv.compile({ $ref: `doc${schema.$ref}` })
    assert.ok(fits(json), `${method} ${where}: ${JSON.stringify(fits.errors)} ${text}`)
  }
  return { status: answer.status, body: json, etag: answer.headers.get('etag') ?? '' }
}

const start = (url: string, admin = TOKENS, sections = '') =>
  startGateway({
    yaml: sim =>
      `${defaultYaml(sim)}${sections}`
        .replace('admin: 127.0.0.1:0', `admin: { listen: 127.0.0.1:0, ${admin} }`)
        .replace('"sqlite::memory:"', `{ url: "${url}", timeout: 5s }`),
  })

// Those of users came in nano-USD, under a name that ends in _usd.
test('limits of money of a plan are exact text in USD, those of users, too', async t => {
  const limits = '{ daily_spend_usd: 2.5, requests_per_minute: 7 }'
  const plan = `plans: { mine: { limits: ${limits}, user_limits: ${limits}, model_limits: { eb1-preview: ${limits} } } }`
  const g = await start('sqlite::memory:', TOKENS, `${plan}\n`)
  t.after(() => g.close())
  const { plans } = (await call(g, 'GET', 'plans')).body
  const mine = plans.find((one: any) => one.id === 'mine')
  for (const found of [mine.limits, mine.user_limits, mine.model_limits['eb1-preview']])
    assert.deepEqual([found.daily_spend_usd, found.requests_per_minute], ['2.50', 7])
})

const ask = async (t: TestGateway, secret: string) => {
  const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hi' }] }
  const reply = await t.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
  await reply.text()
  return reply.status
}

test('docs/admin-api.yaml is valid OpenAPI 3.1', async () => {
  const { errors, valid } = await new Validator().validate(structuredClone(document))
  assert.deepEqual(errors ?? [], [])
  assert.equal(valid, true)
})

for (const [name, skip, newUrl] of engines()) {
  describe(name, { skip }, () => {
    async function serve(t: TestContext): Promise<TestGateway> {
      const gateway = await start(newUrl())
      t.after(() => gateway.close())
      return gateway
    }

    test('what a single request may need is told of organization and key, those of the plan included', async t => {
      const most = '{ max_request_tokens: 9000, max_request_usd: 0.75 }'
      const g = await start(newUrl(), TOKENS, `\nplans: { small: { limits: ${most} } }\n`)
      t.after(() => g.close())
      const limits = { max_request_usd: '0.50', requests_per_day: 500 }
      const model_limits = { 'eb1-preview': { max_output_tokens: 64 } }
      assert.equal((await call(g, 'POST', 'organizations', { body: { id: 'm', plan: 'small', limits } })).status, 201)
      const key = { id: 'k1', limits: { max_input_tokens: 1000, max_searches: 0 }, model_limits }
      assert.equal((await call(g, 'POST', 'organizations/m/keys', { body: key })).status, 201)
      const { maxima, keys, limits: counted } = (await call(g, 'GET', 'organizations/m')).body
      assert.deepEqual(maxima, [
        { limit: 'max_request_tokens', most: 9000 },
        { limit: 'max_request_usd', most_usd: '0.50' },
      ])
      assert.deepEqual(keys[0].maxima, [
        { limit: 'max_input_tokens', most: 1000 },
        { limit: 'max_searches', most: 0 },
        { model: 'eb1-preview', limit: 'max_output_tokens', most: 64 },
      ])
      assert.deepEqual((await call(g, 'GET', 'organizations/m/keys/k1')).body.maxima, keys[0].maxima)
      assert.ok(counted.every(({ dimension }: any) => !dimension.startsWith('max')))
    })

    test('an organization and its keys from their making to their end', async t => {
      const g = await serve(t)
      const made = { id: 'a/b', plan: 'tier1', limits: { requests_per_day: 500, daily_spend_usd: '9.50' } }
      const created = await call(g, 'POST', 'organizations', { body: made })
      assert.deepEqual([created.status, created.body.created, created.etag], [201, true, `"${created.body.version}"`])
      const again = await call(g, 'POST', 'organizations', { body: made })
      assert.deepEqual([again.status, again.body], [200, { ...created.body, created: false }])
      assert.equal((await call(g, 'POST', 'organizations', { body: { ...made, plan: 'tier2' } })).status, 409)
      // The same amount, spelled in another way.
      const spelled = { ...made, limits: { ...made.limits, daily_spend_usd: 9.5 } }
      assert.equal((await call(g, 'POST', 'organizations', { body: spelled })).status, 200)
      const here = 'organizations/a%2Fb'
      const key = await call(g, 'POST', `${here}/keys`, { body: { id: 'k1' } })
      assert.equal(key.status, 201)
      const { secret } = key.body
      const repeated = await call(g, 'POST', `${here}/keys`, { body: { id: 'k1' } })
      assert.deepEqual([repeated.status, repeated.body.id, repeated.body.secret], [200, 'k1', undefined])
      await eventually(async () => (await ask(g, secret)) === 200)
      await g.ledger()
      const shown = await call(g, 'GET', here)
      const used = shown.body.limits.find((limit: any) => limit.dimension === 'requests' && limit.per === 'day')
      assert.deepEqual([used.capacity, used.used], [500, 1])
      assert.ok(shown.body.spend.day > 0 && shown.body.spend.month === shown.body.spend.day)
      const { day } = shown.body.spend
      assert.deepEqual(shown.body.spend_usd, { day: formatUsd(day, 9), month: formatUsd(day, 9) })
      const money = shown.body.limits.find((limit: any) => limit.dimension === 'spend' && limit.per === 'day')
      assert.deepEqual([money.capacity_usd, money.used_usd], ['9.50', formatUsd(day, 9)])
      assert.deepEqual(
        shown.body.keys.map((k: any) => [k.id, k.status]),
        [['k1', 'active']],
      )
      const { usage } = (await call(g, 'GET', `${here}/usage`)).body
      assert.deepEqual(
        usage.map((sum: any) => [sum.key, sum.model, sum.requests, sum.cost, sum.cost_usd]),
        [['k1', 'eb1-preview', 1, day, formatUsd(day, 9)]],
      )
      const byPlan = (await call(g, 'GET', 'usage?group_by=plan,organization')).body
      assert.deepEqual(
        byPlan.usage.map((sum: any) => [sum.plan, sum.organization, sum.requests, sum.cost, sum.costed]),
        [['tier1', 'a/b', 1, shown.body.spend.day, 0]],
      )
      assert.deepEqual(byPlan.group_by, ['plan', 'organization'])
      const page = async (query: string) => (await call(g, 'GET', `${here}/rows?${query}`)).body
      const { rows, next } = await page('limit=1&key=k1&outcome=completed&code=')
      assert.deepEqual(
        [rows.length, rows[0].key_id, rows[0].provider_model, rows[0].cost_usd, rows[0].price_used],
        [1, 'k1', 'sim-large', shown.body.spend_usd.day, 'model'],
      )
      assert.deepEqual((await page(`limit=1&after=${next ?? '0-0'}`)).rows, [])
      for (const query of [
        'key=k2',
        'outcome=refused',
        'code=provider_overloaded',
        'until=2026-01-01&since=2026-01-01',
      ])
        assert.deepEqual(await page(query), { rows: [], next: null }, query)
      for (const query of ['after=x', 'limit=501', 'who=k1', 'since=2020-01-01'])
        assert.equal((await call(g, 'GET', `${here}/rows?${query}`)).status, 400, query)
      assert.equal((await call(g, 'GET', 'usage?group_by=who')).status, 400)
      assert.equal((await call(g, 'GET', 'organizations/nobody/rows')).status, 404)
      await g.gateway.store.notices.post({
        ...{ time: g.gateway.store.engine === 'redis' ? 1 : 2, organization: 'a/b', key: 'k1', model: '' },
        ...{ period: 'month', number: 24_322, percent: 80, limit: 5e9, spent: 4_100_000_000 },
      })
      const noticed = (await call(g, 'GET', 'notices?organization=a%2Fb', { token: READ })).body
      assert.deepEqual(
        noticed.notices.map((one: any) => [one.key, one.model, one.period_start, one.percent, one.spent_nano_usd]),
        [['k1', null, '2026-11-01T00:00:00.000Z', 80, 4_100_000_000]],
      )
      assert.deepEqual((await call(g, 'GET', `notices?after=${noticed.next}`)).body, {
        notices: [],
        next: noticed.next,
      })
      assert.equal((await call(g, 'GET', 'notices?after=x')).status, 400)
      const { plans } = (await call(g, 'GET', 'plans')).body
      assert.ok(plans.some((plan: any) => plan.id === 'tier1' && Number(plan.limits.monthly_spend_usd) > 1))
      const { models } = (await call(g, 'GET', 'models')).body
      assert.deepEqual(models[0].price, { input: '1.25', output: '10.00' })
      assert.deepEqual(models[0].backends[0].id, 'chat/sim-large')
      assert.doesNotMatch(JSON.stringify([plans, models]), /api_key|apiKey|"k"/)
      const rotated = await call(g, 'POST', `${here}/keys/k1/rotate`, { body: { id: 'k2', grace: '1h' } })
      assert.equal(rotated.status, 201)
      const twice = await call(g, 'POST', `${here}/keys/k1/rotate`, { body: { id: 'k2', grace: '1h' } })
      assert.deepEqual([twice.status, twice.body.secret], [200, undefined])
      await eventually(async () => (await ask(g, rotated.body.secret)) === 200)
      assert.equal(await ask(g, secret), 200)
      for (let i = 0; i < 2; i++) assert.equal((await call(g, 'POST', `${here}/keys/k1/revoke`)).status, 200)
      await eventually(async () => (await ask(g, secret)) === 401)
      const back = await call(g, 'POST', `${here}/keys/k1/activate`)
      assert.deepEqual([back.status, back.body.error.code], [400, 'invalid'])
      const { etag } = await call(g, 'GET', here)
      const off = { body: { status: 'disabled', limits: { daily_spend_usd: null } }, headers: { 'if-match': etag } }
      assert.equal((await call(g, 'PATCH', here, off)).status, 200)
      await eventually(async () => (await ask(g, rotated.body.secret)) === 401)
      assert.deepEqual((await call(g, 'GET', here)).body.settings, {
        plan: 'tier1',
        limits: { requests_per_day: 500 },
        status: 'disabled',
      })

      const audit = await call(g, 'GET', 'audit?organization=a%2Fb')
      assert.deepEqual(
        audit.body.entries.map(({ operation, by }: any) => [operation, by]).reverse(),
        ['organization.create', 'key.create', 'key.rotate', 'key.revoke', 'organization.change'].map(operation => [
          operation,
          'token:ops',
        ]),
      )
      assert.match(audit.body.entries[0].address, /127\.0\.0\.1/)
      // No secret and no digest anywhere but in the answer that made the key.
      const metrics = await fetch(`${g.gateway.adminAddress}/metrics`, { headers: { authorization: `Bearer ${READ}` } })
      const everything = [
        JSON.stringify([audit.body, (await call(g, 'GET', here)).body, (await call(g, 'GET', `${here}/keys`)).body]),
        JSON.stringify(g.log),
        await metrics.text(),
      ].join()
      for (const hidden of [secret, rotated.body.secret, OPERATE, READ])
        for (const text of [hidden, sha256(hidden)]) assert.equal(everything.toLowerCase().includes(text), false)
    })

    test('a prepaid organization is served while its credits last, and not a nano-USD longer', async t => {
      const g = await serve(t)
      const org = { id: 'pre', plan: 'custom', billing: 'prepaid' }
      const unbounded = await call(g, 'POST', 'organizations', { body: org })
      assert.equal(unbounded.status, 400)
      assert.match(unbounded.body.error.message, /limits\.unbilled_usd_per_day: .*prepaid.*set unbilled_usd_per_day/)
      const limits = { unbilled_usd_per_day: '1.00' }
      assert.equal((await call(g, 'POST', 'organizations', { body: { ...org, limits } })).status, 201)
      const { secret } = (await call(g, 'POST', 'organizations/pre/keys', { body: { id: 'k' } })).body
      const headers = { authorization: `Bearer ${secret}` }
      const chat = async (model: string, more = {}) => {
        const body = { model, messages: [{ role: 'user', content: 'Hi' }], ...more }
        const reply = await g.post('/v1/chat/completions', body, headers)
        return { status: reply.status, headers: reply.headers, body: (await reply.json()) as any }
      }
      const cap = { max_tokens: 10 }
      await eventually(async () => (await ask(g, secret)) !== 401)
      const empty = await chat('eb1-preview', cap)
      assert.equal(empty.status, 429)
      assert.equal(empty.body.error.code, 'rate_limit_exceeded')
      assert.doesNotMatch(empty.body.error.message, /balance|credit|prepaid|bill|USD/i)
      assert.deepEqual(
        ['retry-after', 'x-should-retry', 'x-ratelimit-limit-spend'].map(name => empty.headers.get(name)),
        [null, 'false', null],
      )

      const give = (body: object) => call(g, 'POST', 'organizations/pre/credits', { body })
      const given = await give({ id: 'pay_1', amount_usd: '0.001', note: 'by wire' })
      assert.deepEqual([given.status, given.body.created, given.body.balance.left_nano_usd], [201, true, 1_000_000])
      const again = await give({ id: 'pay_1', amount_usd: '0.001' })
      assert.deepEqual([again.status, again.body.created, again.body.balance.left_nano_usd], [200, false, 1_000_000])
      assert.equal((await give({ id: 'pay_1', amount_usd: '0.002' })).status, 409)
      for (const bad of [
        { id: 'x', amount_usd: '0' },
        { id: 'x', amount_usd: 'much' },
        { id: 'x', amount_usd: '-1.00' },
        { id: 'x', amount_usd: '9000000.00', more: 1 },
        { id: 'x y', amount_usd: '1.00' },
        { id: 'x', amount_usd: '9100000' },
        { amount_usd: '1.00' },
      ])
        assert.equal((await give(bad)).status, 400, JSON.stringify(bad))
      const { etag } = await call(g, 'GET', 'organizations/pre')
      const sum = { body: { credited: 5e9 }, headers: { 'if-match': etag } }
      assert.match((await call(g, 'PATCH', 'organizations/pre', sum)).body.error.message, /credited: /)
      assert.equal(
        (await call(g, 'POST', 'organizations/acme/credits', { body: { id: 'x', amount_usd: 1 } })).status,
        409,
      )

      await eventually(async () => (await chat('eb1-preview', cap)).status === 200)
      // Nobody knows what a request of this model can cost at most.
      const unknown = await chat('eb1-preview-fast', cap)
      assert.deepEqual([unknown.status, unknown.body.error.code], [403, 'model_not_available'])
      assert.match(unknown.body.error.message, /can call: eb1-preview\.$/)
      const list = await fetch(`${g.url}/v1/models`, { headers })
      assert.deepEqual(
        ((await list.json()) as any).data.map(({ id }: any) => id),
        ['eb1-preview'],
      )
      let served = 1
      while ((await chat('eb1-preview', cap)).status === 200) served++
      await g.ledger()
      const shown = await call(g, 'GET', 'organizations/pre/credits')
      const { credited_nano_usd, billed_nano_usd, left_nano_usd } = shown.body.balance
      assert.ok(served > 2 && left_nano_usd >= 0 && left_nano_usd < 110_000, JSON.stringify(shown.body))
      assert.equal(credited_nano_usd - billed_nano_usd, left_nano_usd)
      const { usage } = (await call(g, 'GET', 'organizations/pre/usage')).body
      assert.deepEqual([usage[0].requests, usage[0].cost], [served, billed_nano_usd])
      assert.deepEqual(
        shown.body.credits.map(({ id, amount_nano_usd, by, note }: any) => [id, amount_nano_usd, by, note]),
        [['pay_1', 1_000_000, 'token:ops', 'by wire']],
      )
      const organization = await call(g, 'GET', 'organizations/pre')
      assert.deepEqual(organization.body.balance, shown.body.balance)
      assert.deepEqual(organization.body.settings, { plan: 'custom', billing: 'prepaid', limits })
      const [entry] = (await call(g, 'GET', 'audit?organization=pre')).body.entries
      assert.deepEqual(
        [entry.operation, entry.before.credited, entry.after.credited],
        ['organization.credit', undefined, 1e6],
      )
    })

    test('of two who change one thing, one is told; a change without a version is refused', async t => {
      const g = await serve(t)
      const { etag } = await call(g, 'POST', 'organizations', { body: { id: 'acme2', plan: 'tier1' } })
      const both = await Promise.all(
        ['tier2', 'tier3'].map(plan =>
          call(g, 'PATCH', 'organizations/acme2', { body: { plan }, headers: { 'if-match': etag } }),
        ),
      )
      assert.deepEqual(both.map(({ status }) => status).sort(), [200, 412])
      assert.equal((await call(g, 'PATCH', 'organizations/acme2', { body: { plan: 'tier1' } })).status, 428)
      const stale = { body: { id: 'k' }, headers: { 'if-match': etag } }
      assert.equal((await call(g, 'POST', 'organizations/acme2/keys', stale)).status, 412)
      // Keys that are made at the same time without a version are all made.
      const keys = await Promise.all(
        ['a', 'b'].map(id => call(g, 'POST', 'organizations/acme2/keys', { body: { id } })),
      )
      assert.deepEqual(
        keys.map(({ status }) => status),
        [201, 201],
      )
    })

    test('pages, prefixes and digests find an organization in either place', async t => {
      const g = await serve(t)
      for (const id of ['b', 'b1', 'b2', 'zz']) await call(g, 'POST', 'organizations', { body: { id, plan: 'tier1' } })
      const ids = async (query: string) => {
        const { body } = await call(g, 'GET', `organizations?${query}`, { token: READ })
        return [body.organizations.map(({ id }: any) => id).join(), body.next]
      }
      assert.deepEqual(await ids('limit=2'), ['acme,b', 'b'])
      assert.deepEqual(await ids('limit=2&after=b'), ['b1,b2', 'b2'])
      assert.deepEqual(await ids('limit=2&after=b2'), ['other,zz', null])
      assert.deepEqual(await ids('find=b'), ['b,b1,b2', null])
      assert.deepEqual(await ids('find=b&after=b1'), ['b2', null])
      const { secret } = (await call(g, 'POST', 'organizations/b1/keys', { body: { id: 'k' } })).body
      assert.deepEqual(await ids(`sha256=${sha256(secret)}`), ['b1', null])
      assert.deepEqual(await ids(`sha256=${sha256('sk-test-0001-secret')}`), ['acme', null])
      assert.deepEqual(await ids(`sha256=${'0'.repeat(64)}`), ['', null])
    })

    test('the id of a key finds the organizations that have one, in either place', async t => {
      const g = await serve(t)
      for (const id of ['b', 'a/1', 'zz']) await call(g, 'POST', 'organizations', { body: { id, plan: 'tier1' } })
      for (const [id, key] of [
        ['b', 'ci'],
        ['a%2F1', 'ci'],
        ['zz', 'ci'],
        ['zz', 'key_other'],
      ])
        assert.equal((await call(g, 'POST', `organizations/${id}/keys`, { body: { id: key } })).status, 201)
      const ids = async (query: string) => {
        const { body } = await call(g, 'GET', `organizations?${query}`, { token: READ })
        return [body.organizations.map(({ id }: any) => id).join(), body.next]
      }
      assert.deepEqual(await ids('key=ci'), ['a/1,b,zz', null])
      assert.deepEqual(await ids('key=ci&limit=2'), ['a/1,b', 'b'])
      assert.deepEqual(await ids('key=ci&limit=2&after=b'), ['zz', null])
      assert.deepEqual(await ids('key=key_other'), ['other,zz', null])
      assert.deepEqual(await ids('key=key_other&limit=1'), ['other', 'other'])
      assert.deepEqual(await ids('key=c'), ['', null])
      const both = await call(g, 'GET', 'organizations?key=ci&find=b')
      assert.deepEqual([both.status, both.body.error.message], [400, 'find, key, sha256: one of them'])
    })

    test('the last exchanges of an organization and of one key, the latest first; of nobody else', async t => {
      const g = await serve(t)
      await call(g, 'POST', 'organizations', { body: { id: 'a/b', plan: 'tier1' } })
      const secrets: string[] = []
      for (const id of ['k1', 'k2'])
        secrets.push((await call(g, 'POST', 'organizations/a%2Fb/keys', { body: { id } })).body.secret)
      const here = 'organizations/a%2Fb/exchanges'
      assert.deepEqual((await call(g, 'GET', here, { token: READ })).body, { exchanges: [] })
      await eventually(async () => (await ask(g, secrets[0]!)) === 200)
      for (const secret of [secrets[1]!, secrets[0]!, 'sk-test-0001-secret']) assert.equal(await ask(g, secret), 200)
      const rows = await g.ledger()
      const { exchanges } = (await call(g, 'GET', here, { token: READ })).body
      assert.deepEqual(
        exchanges.map((one: any) => one.key),
        ['k1', 'k2', 'k1'],
      )
      const last = rows.findLast(row => row.organization === 'a/b')!
      const { request_id, time, model, provider, surface, outcome, input, output, cost, duration_ms, ttfb_ms } = last
      assert.deepEqual(exchanges[0], {
        ...{ request_id, time, key: 'k1', model, provider, surface, outcome, input, output, cost },
        ...{ cost_usd: formatUsd(cost, 9), duration_ms, ttfb_ms },
      })
      assert.ok(cost > 0 && input > 0)
      const some = async (query: string) =>
        (await call(g, 'GET', `${here}?${query}`)).body.exchanges.map((one: any) => one.key).join()
      assert.deepEqual([await some('key=k2'), await some('key=no'), await some('limit=2')], ['k2', '', 'k1,k2'])
      assert.equal((await call(g, 'GET', 'organizations/acme/exchanges')).body.exchanges.length, 1)
      assert.equal((await call(g, 'GET', 'organizations/other/exchanges')).body.exchanges.length, 0)
      assert.equal((await call(g, 'GET', 'organizations/nobody/exchanges')).status, 404)
    })

    test('what is refused, with the words of the file', async t => {
      const g = await serve(t)
      const refused = async (status: number, why: RegExp, method: string, where: string, sent?: Sent) => {
        const { status: got, body } = await call(g, method, where, sent)
        assert.equal(got, status, JSON.stringify(body))
        assert.match(body.error.message, why)
      }
      const create = (body: unknown) => ['POST', 'organizations', { body }] as const
      await refused(400, /no plan 'tier9'; did you mean/, ...create({ id: 'x', plan: 'tier9' }))
      await refused(400, /speed/, ...create({ id: 'x', plan: 'tier1', speed: 1 }))
      await refused(400, /__proto__/, ...create('{"id":"x","plan":"tier1","__proto__":{"status":"active"}}'))
      await refused(400, /is no name/, ...create({ id: 'a b', plan: 'tier1' }))
      await refused(400, /^id:/, ...create({ plan: 'tier1' }))
      await refused(400, /keys: is not taken/, ...create({ id: 'x', plan: 'tier1', keys: [] }))
      await refused(400, /no JSON/, ...create('{'))
      await refused(400, /nested deeper/, ...create(`{"id":"x","limits":${'{"a":'.repeat(9000)}1${'}'.repeat(9000)}}`))
      await refused(413, /1 MiB/, ...create(`"${'x'.repeat(1 << 20)}"`))
      await refused(409, /stands in the file/, ...create({ id: 'acme', plan: 'tier1' }))
      await refused(409, /gateway|yaml/, 'PATCH', 'organizations/acme', { body: { plan: 'tier1' } })
      await refused(409, /yaml/, 'POST', 'organizations/acme/keys', { body: { id: 'k' } })
      await refused(404, /no organization nobody/, 'GET', 'organizations/nobody')
      await refused(404, /no such path/, 'GET', 'nothing')
      await refused(400, /no such parameter: page/, 'GET', 'organizations?page=1')
      await refused(400, /limit/, 'GET', 'organizations?limit=501')
      await refused(405, /GET only/, 'POST', 'audit', { body: {} })
      await refused(415, /JSON/, 'POST', 'organizations', { body: '{}', headers: { 'content-type': 'text/plain' } })
      assert.deepEqual((await call(g, 'GET', 'audit')).body, { entries: [], next: null })
    })
  })
}

/** Every operation of the document. */
const operations = Object.entries<any>(document.paths).flatMap(([where, item]) =>
  Object.keys(item)
    .filter(method => method !== 'parameters')
    .map(method => [method.toUpperCase(), where.replace('/api/v1/', '').replace(/\{\w+\}/g, 'x')] as const),
)

test('each path needs a token, changes need the role operate, and no page of another site may ask', async t => {
  const g = await start('sqlite::memory:')
  t.after(() => g.close())
  for (const [method, where] of operations) {
    const body = method === 'GET' ? undefined : { id: 'x', plan: 'tier1' }
    assert.equal((await call(g, method, where, { body, token: null })).status, 401, where)
    if (method === 'GET') continue
    const wrongRole = await call(g, method, where, { body, token: READ })
    assert.deepEqual([wrongRole.status, wrongRole.body.error.code], [403, 'role'], where)
    for (const headers of [
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { 'sec-fetch-site': 'cross-site' },
    ] as Record<string, string>[]) {
      const foreign = await call(g, method, where, { body, headers })
      assert.deepEqual([foreign.status, foreign.body.error.code], [403, 'origin'], where)
    }
  }
  assert.equal((await call(g, 'GET', 'organizations', { token: READ })).body.organizations.length, 2)
  for (const [token, role, by] of [
    [READ, 'read', 'token:ci'],
    [OPERATE, 'operate', 'token:ops'],
  ] as const)
    assert.deepEqual((await call(g, 'GET', 'caller', { token })).body, {
      by,
      role,
      acts_for: 'optional',
      actions: null,
    })
  const own = { origin: g.gateway.adminAddress! }
  const body = { id: 'x', plan: 'tier1' }
  assert.equal((await call(g, 'POST', 'organizations', { body, headers: own })).status, 201)
  assert.equal((await fetch(`${g.gateway.adminAddress}/metrics`)).status, 401, 'a token of any kind closes the rest')
})

test('without a token nothing can be changed, on loopback too, and a foreign name is refused', async t => {
  const g = await start('sqlite::memory:', 'hosts: []')
  t.after(() => g.close())
  assert.deepEqual((await call(g, 'GET', 'caller', { token: null })).body, {
    ...{ by: '', role: 'read', acts_for: 'optional', actions: null },
  })
  for (const [method, where] of operations) {
    const body = method === 'GET' ? undefined : { id: 'x', plan: 'tier1' }
    const { status } = await call(g, method, where, { body, token: null })
    if (method === 'GET') assert.notEqual(status, 401)
    else assert.equal(status, 403, where)
    const named = await new Promise<number>((resolve, reject) => {
      const url = `${g.gateway.adminAddress}/api/v1/${where}`
      const sent = rawRequest(url, { method, headers: { host: 'evil.example' } }, answer => {
        answer.destroy()
        resolve(answer.statusCode!)
      })
      sent.on('error', reject)
      sent.end()
    })
    assert.equal(named, 421, where)
  }
})

test('a busy operator is never throttled: valid tokens, open pages and some typing errors within a minute', async t => {
  const g = await start('sqlite::memory:')
  t.after(() => g.close())
  for (let i = 0; i < 150; i++) {
    assert.equal((await call(g, 'GET', 'caller', { token: i % 2 ? READ : OPERATE })).status, 200)
    // A page that asks for the token: its requests have none, and are no guesses.
    assert.equal((await call(g, 'GET', 'caller', { token: null })).status, 401)
    if (i % 10 === 0) assert.equal((await call(g, 'GET', 'caller', { token: `typed-${i}` })).status, 401)
  }
  assert.equal((await call(g, 'GET', 'organizations')).status, 200)
  const metrics = await fetch(`${g.gateway.adminAddress}/metrics`, { headers: { authorization: `Bearer ${READ}` } })
  assert.match(await metrics.text(), /sluice_admin_tokens_refused_total\{reason="throttled"\} 0\n/)
})

test('wrong tokens are noted once, and throttled; a reload brings and takes tokens', async t => {
  const g = await start('sqlite::memory:')
  t.after(() => g.close())
  const yaml = readFileSync(g.file, 'utf8')
  writeFileSync(g.file, yaml.replace(sha256(OPERATE).toUpperCase(), sha256('adm-next')))
  assert.equal((await g.gateway.reload()).applied, true)
  assert.equal((await call(g, 'GET', 'audit')).status, 401)
  const noted = await call(g, 'GET', 'audit', { token: 'adm-next' })
  assert.deepEqual(
    noted.body.entries.map(({ operation, by }: any) => [operation, by]),
    [['token.refused', '']],
  )
  const authorization = 'Bearer adm-next'
  const metrics = await (await fetch(`${g.gateway.adminAddress}/metrics`, { headers: { authorization } })).text()
  assert.match(metrics, /sluice_admin_tokens_refused_total\{reason="wrong"\} 1\n/)
  const statuses = new Set<number>()
  for (let i = 0; i < 200 && !statuses.has(429); i++)
    statuses.add((await call(g, 'GET', 'audit', { token: `wrong-${i}` })).status)
  assert.deepEqual([...statuses], [401, 429])
  // The valid token of that address waits, too: guessing must not go on beside it.
  assert.deepEqual((await call(g, 'GET', 'audit', { token: 'adm-next' })).status, 429)
  assert.equal(JSON.stringify(g.log).includes('wrong-'), false)
})
