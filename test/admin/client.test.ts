/**
 * A client that is made from docs/admin-api.yaml and knows nothing else does the story of docs/admin-api.md. What it
 * sends and what it gets is held against the document, in which no object may have members that it does not name.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import { parse } from 'yaml'
import { defaultYaml, sha256, startGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'

const read = (name: string) => readFileSync(path.join(import.meta.dirname, '../../docs', name), 'utf8')
const document = parse(read('admin-api.yaml'))

interface Parameters {
  headers?: Record<string, string>
  [parameter: string]: unknown
}
interface Got {
  status: number
  etag: string
  body: any
}
type Operation = (parameters: Parameters, body?: unknown) => Promise<Got>

/** One function for each operation of the document, by its id. */
function clientOf(address: string, token: string): Record<string, Operation> {
  const ajv = new Ajv2020({ strict: false })
  ajv.addFormat('date-time', text => !Number.isNaN(Date.parse(text)))
  ajv.addSchema({ $id: 'doc', components: document.components })
  const validator = (schema: object): ValidateFunction =>
    ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"doc#/')))
  const resolved = (of: any) => (of.$ref ? at(of.$ref) : of)
  const at = (ref: string) =>
    ref
      .slice(2)
      .split('/')
      .reduce((node, name) => node[name], document)
  const hold = (check: ValidateFunction, value: unknown, what: string) =>
    assert.ok(check(value), `${what}: ${JSON.stringify(check.errors)} ${JSON.stringify(value)}`)

  const operations: Record<string, Operation> = {}
  for (const [template, item] of Object.entries<any>(document.paths))
    for (const method of ['get', 'post', 'patch', 'delete']) {
      const operation = item[method]
      if (!operation) continue
      const declared = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(resolved)
      const request = operation.requestBody?.content['application/json'].schema
      const takes = request && validator(request)
      const id: string = operation.operationId
      operations[id] = async ({ headers = {}, ...given }, body) => {
        for (const name of Object.keys(given))
          assert.ok(
            declared.some(parameter => parameter.name === name),
            `${id} has no parameter ${name}`,
          )
        const query = new URLSearchParams()
        let where = template
        const sent: Record<string, string> = { authorization: `Bearer ${token}`, ...headers }
        for (const { name, in: place, required, schema } of declared) {
          const value = given[name]
          if (value === undefined) {
            assert.notEqual(required, true, `${id} needs ${name}`)
            continue
          }
          hold(validator(schema), value, `${id} ${name}`)
          if (place === 'path') where = where.replace(`{${name}}`, encodeURIComponent(`${value}`))
          else if (place === 'query') query.set(name, `${value}`)
          else sent[name] = `${value}`
        }
        assert.equal(body !== undefined, takes !== undefined, `${id}: body`)
        if (takes) {
          hold(takes, body, `${id} body`)
          sent['content-type'] = 'application/json'
        }
        const answer = await fetch(`${address}${where}${query.size > 0 ? `?${query}` : ''}`, {
          method: method.toUpperCase(),
          headers: sent,
          ...(takes && { body: JSON.stringify(body) }),
        })
        const json = await answer.json()
        const told = operation.responses[answer.status]
        assert.ok(told, `${id}: ${answer.status} ${JSON.stringify(json)}`)
        hold(validator(resolved(told).content['application/json'].schema), json, `${id} ${answer.status}`)
        return { status: answer.status, etag: answer.headers.get('etag') ?? '', body: json }
      }
    }
  return operations
}

const OPERATE = 'adm-operate-0003'
const CUSTOMER = 'adm-customer-0003'

test('the client does the story of docs/admin-api.md', async t => {
  const tokens = [
    `{ name: billing, role: operate, sha256: "${sha256(OPERATE)}" }`,
    `{ name: console, role: operate, acts_for: required, actions: [keys, usage], sha256: "${sha256(CUSTOMER)}" }`,
  ]
  const g = await startGateway({
    yaml: sim => defaultYaml(sim).replace('admin: 127.0.0.1:0', `admin: { listen: 127.0.0.1:0, tokens: [${tokens}] }`),
  })
  t.after(() => g.close())
  const all = clientOf(g.gateway.adminAddress!, OPERATE)
  const called = new Set<string>()
  const client = new Proxy(all, {
    get: (of, name: string) => {
      called.add(name)
      return of[name]
    },
  }) as Record<string, Operation>
  const model = 'eb1-preview'

  assert.deepEqual((await client['showCaller']!({})).body.by, 'token:billing')
  const settings = { plan: 'tier1', name: 'Acme Ltd', metadata: { customer: 'cus_1' } }
  assert.equal((await client['createOrganization']!({}, { id: 'acme2', ...settings })).status, 201)
  const made = await client['createKey']!(
    { organization: 'acme2', headers: { 'sluice-actor': 'user:42' } },
    { id: 'key_1', label: 'CI', limits: { requests_per_day: 100, daily_spend_usd: '2.50' } },
  )
  const ask = async (secret: string) => {
    const body = { model, messages: [{ role: 'user', content: 'Hi' }] }
    const reply = await g.post('/v1/chat/completions', body, { authorization: `Bearer ${secret}` })
    await reply.text()
    return reply.status
  }
  await eventually(async () => (await ask(made.body.secret)) === 200)
  await g.ledger()
  const shown = await client['showOrganization']!({ organization: 'acme2' })
  assert.deepEqual(
    [shown.body.name, shown.body.keys[0].label, shown.body.keys[0].creator],
    ['Acme Ltd', 'CI', 'user:42'],
  )
  assert.ok(Number(shown.body.spend_usd.day) > 0)

  // Another plan, a price of its own and a raise until the end of the year.
  const better = {
    plan: 'tier2',
    prices: { [model]: { input: 1, output: 4 } },
    raises: [{ until: '2999-12-31T00:00:00Z', limits: { requests_per_minute: 1000 } }],
  }
  await client['changeOrganization']!({ organization: 'acme2', 'If-Match': shown.etag }, better)
  await client['changeKey']!(
    { organization: 'acme2', key: 'key_1' },
    { label: 'Build', expires: null, models: [model] },
  )
  const key = (await client['showKey']!({ organization: 'acme2', key: 'key_1' })).body
  assert.deepEqual([key.label, key.models, key.settings.limits.daily_spend_usd], ['Build', [model], '2.50'])
  const minute = (await client['showOrganization']!({ organization: 'acme2' })).body.limits.find(
    (limit: any) => limit.dimension === 'requests' && limit.per === 'minute',
  )
  assert.equal(minute.capacity, 1000)
  const [before] = await g.ledger()
  await eventually(async () => {
    assert.equal(await ask(made.body.secret), 200)
    const last = (await g.ledger()).at(-1)!
    // The same request, by the price of the organization: 1 and 4 USD in place of 1.25 and 10.
    const { input, cached, output } = last
    return last.cost === (input - cached) * 1000 + cached * 100 + output * 4000 && last.cost < before!.cost
  })

  const rotated = await client['rotateKey']!({ organization: 'acme2', key: 'key_1' }, { id: 'key_2', grace: '24h' })
  assert.equal(rotated.status, 201)
  await client['createKey']!({ organization: 'acme2' }, { id: 'key_3', status: 'staged' })
  await client['activateKey']!({ organization: 'acme2', key: 'key_3' })
  await client['revokeKey']!({ organization: 'acme2', key: 'key_1' })
  await client['deleteKey']!({ organization: 'acme2', key: 'key_1' })
  assert.deepEqual(
    (await client['listKeys']!({ organization: 'acme2' })).body.keys.map((one: any) => one.id),
    ['key_2', 'key_3'],
  )
  const { usage } = (await client['showUsage']!({ organization: 'acme2', since: '2026-01-01' })).body
  assert.equal(usage[0].key, 'key_1')
  const { rows, next } = (await client['listRows']!({ organization: 'acme2', key: 'key_1', limit: 1 })).body
  assert.deepEqual(
    [rows.length, rows[0].price_used, rows[0].price_input_pico_usd, rows[0].output_reserved > 0],
    [1, 'organization', 1_000_000, true],
  )
  const second = (await client['listRows']!({ organization: 'acme2', after: next, limit: 1 })).body.rows
  assert.ok(second.length === 1 && second[0].request_id !== rows[0].request_id)
  const byPlan = (await client['showAllUsage']!({ group_by: 'plan,organization' })).body.usage
  assert.deepEqual([byPlan[0].plan, byPlan[0].organization], ['tier2', 'acme2'])
  assert.equal(
    byPlan[0].cost,
    usage.reduce((sum: number, one: any) => sum + one.cost, 0),
  )
  assert.ok((await client['listPlans']!({})).body.plans.some(({ id }: any) => id === 'tier2'))
  assert.ok((await client['listModels']!({})).body.models.some(({ id }: any) => id === model))
  assert.deepEqual((await client['listNotices']!({ organization: 'acme2' })).body.notices, [])
  assert.ok((await client['listExchanges']!({ organization: 'acme2', limit: 5 })).body.exchanges.length >= 2)
  assert.ok((await client['listAudit']!({ organization: 'acme2' })).body.entries.length >= 8)
  assert.ok((await client['listAuditOfOrganization']!({ organization: 'acme2' })).body.entries.length >= 8)
  assert.equal((await client['listOrganizations']!({ find: 'acme2' })).body.organizations.length, 1)

  await client['createOrganization']!({}, { id: 'paid', plan: 'tier1', billing: 'prepaid' })
  const payment = { id: 'payment-1', amount_usd: '25.00' }
  assert.equal((await client['createCredit']!({ organization: 'paid' }, payment)).status, 201)
  assert.equal((await client['createCredit']!({ organization: 'paid' }, payment)).status, 200)
  const { credits, balance } = (await client['listCredits']!({ organization: 'paid' })).body
  assert.deepEqual([credits.length, balance.left_nano_usd], [1, 25e9])

  // The customer's own page: for one organization, its keys and its use.
  const page = clientOf(g.gateway.adminAddress!, CUSTOMER)
  const acting = { headers: { 'sluice-act-for': 'acme2', 'sluice-actor': 'user:7' } }
  assert.equal((await page['createKey']!({ organization: 'acme2', ...acting }, { id: 'key_4' })).status, 201)
  assert.equal((await page['showUsage']!({ organization: 'acme2', ...acting })).status, 200)
  for (const refused of [
    () => page['listKeys']!({ organization: 'acme', ...acting }),
    () => page['listKeys']!({ organization: 'acme2' }),
    () => page['listAudit']!(acting),
    () => page['deleteOrganization']!({ organization: 'acme2', ...acting }),
  ])
    await assert.rejects(refused, /: 403 /)

  const deleted = await client['deleteOrganization']!({ organization: 'acme2', grace: '30d' })
  assert.equal(deleted.body.status, 'disabled')
  assert.deepEqual(
    Object.keys(all).filter(id => !called.has(id)),
    [],
    'the story uses every operation',
  )
})

test('the document names every member, and each amount of money has its unit in its name', () => {
  const open: string[] = []
  const amounts: string[] = []
  const walk = (node: any, where: string): void => {
    if (typeof node !== 'object' || node === null) return
    const types = [node.type ?? []].flat()
    if (types.includes('object') && node.additionalProperties === undefined) open.push(where)
    for (const [name, member] of Object.entries<any>(node.properties ?? {}))
      if (/nano-USD/i.test(member.description ?? '') && member.deprecated !== true) amounts.push(`${where}/${name}`)
    for (const [name, child] of Object.entries(node)) walk(child, `${where}/${name}`)
  }
  walk(document.components.schemas, '')
  walk(document.paths, '')
  assert.deepEqual(open, [])
  assert.deepEqual(amounts, [])
})
