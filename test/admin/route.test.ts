/** `POST /route` on the admin listener: the report of `sluice route`, by the gateway that runs. */
import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { load } from '../../cli/load.ts'
import { routeReport } from '../../cli/route-report.ts'
import { defaultYaml, startGateway, type TestGateway } from '../e2e/harness.ts'

const TOKEN = 'let-me-in-0001'
const two = (url: string) =>
  defaultYaml(url, {
    providers: `  near: { dialect: openai-chat, base_url: "${url}", api_key: sk-very-secret }
  far: { dialect: anthropic-messages, base_url: "${url}", api_key: sk-very-secret }`,
    models:
      '  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: near, model: m, supports: [tools] }, { provider: far, model: c }] }',
    plugins: { upstream: '{ attempts: 1, breaker: { failures: 1, open_for: 10m } }' },
  })
const ask = { messages: [{ role: 'user', content: 'x' }], max_tokens: 50 }

let t: TestGateway
let guarded: TestGateway
before(async () => {
  t = await startGateway({ yaml: two })
  guarded = await startGateway({
    yaml: url => two(url).replace('admin: 127.0.0.1:0', `admin: { listen: 127.0.0.1:0, token: "${TOKEN}" }`),
  })
})
after(async () => {
  await t.close()
  await guarded.close()
})

const post = (query: string, body: unknown, headers: Record<string, string> = {}, g = t) =>
  fetch(`${g.gateway.adminAddress}/route${query}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })

test('[REQ-1] the same report as the command, of the configuration that serves, and nothing is sent', async () => {
  const seen = t.simulator.requests.length
  const rows = (await t.ledger()).length
  const answer = await post('?model=eb1-preview', ask)
  assert.equal(answer.status, 200)
  const report = (await answer.json()) as any
  const loaded = await load(t.file)
  assert.ok(!loaded.errors)
  const body = JSON.stringify({ ...ask, model: 'eb1-preview' })
  assert.deepEqual(
    report,
    JSON.parse(JSON.stringify(await routeReport(loaded.config, loaded.plugins, t.file, { surface: 'chat', body }))),
  )
  assert.deepEqual(report.candidates, ['near/m', 'far/c'])
  assert.equal(report.request.body.messages[0].content, 'x')
  assert.doesNotMatch(JSON.stringify(report), /sk-very-secret/)
  const image = {
    role: 'user',
    content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } }],
  }
  const other = (await (
    await post('?surface=messages&org=acme&key=key_test', { model: 'eb1-preview', max_tokens: 9, messages: [image] })
  ).json()) as any
  assert.deepEqual([other.candidates, other.organization, other.key], [['far/c'], 'acme', 'key_test'])
  assert.match(other.passed[0].because, /can't carry .*image/)
  assert.equal(t.simulator.requests.length, seen)
  assert.equal((await t.ledger()).length, rows)
})

test('what would be refused is in the report; questions that make no sense are 400', async () => {
  const refused = (await (await post('', { ...ask, model: 'nope' })).json()) as any
  assert.deepEqual([refused.refused.status, refused.refused.body.error.code], [404, 'model_not_found'])
  const malformed = (await (await post('', '{"a')).json()) as any
  assert.equal(malformed.refused.body.error.code, 'invalid_json')
  for (const [query, body, says] of [
    ['?surface=voice', ask, /no surface 'voice'/],
    ['?org=nobody', ask, /no organization nobody/],
    ['?key=none', ask, /no key none/],
    ['?organisation=acme', ask, /no such parameter: organisation/],
    ['?model=eb1-preview', '[1]', /not a JSON object/],
  ] as const) {
    const answer = await post(query, body)
    assert.equal(answer.status, 400, query)
    assert.match(await answer.text(), says)
  }
})

test('a backend whose breaker is open is passed, and the report says so', async () => {
  const failing = await t.post('/v1/chat/completions', {
    model: 'eb1-preview',
    messages: [{ role: 'user', content: '[[sim: status 500]] x' }],
  })
  assert.equal(failing.status, 502)
  const report = (await (await post('?model=eb1-preview', ask)).json()) as any
  assert.deepEqual(report.candidates, ['far/c'])
  assert.deepEqual(report.passed, [
    { backend: 'near/m', because: 'it is out: its breaker is open, or it asked for a pause' },
  ])
  assert.match(report.request.url, /\/messages$/)
})

test('a reload is in the next report', async () => {
  const { writeFile, readFile } = await import('node:fs/promises')
  const before = await readFile(guarded.file, 'utf8')
  await writeFile(guarded.file, before.replace('model: c }', 'model: newer }'))
  assert.equal((await guarded.gateway.reload()).applied, true)
  const report = (await (
    await post('?model=eb1-preview', ask, { authorization: `Bearer ${TOKEN}` }, guarded)
  ).json()) as any
  assert.deepEqual(report.candidates, ['near/m', 'far/newer'])
})

test('who may ask: the token where there is one, else callers of this machine by address; never a form of another site', async () => {
  for (const authorization of [undefined, 'Bearer let-me-in-0002']) {
    const answer = await post('', ask, authorization === undefined ? {} : { authorization }, guarded)
    assert.equal(answer.status, 401)
  }
  const form = await fetch(`${t.gateway.adminAddress}/route`, { method: 'POST', body: JSON.stringify(ask) })
  assert.equal(form.status, 415)
  assert.equal(form.headers.get('access-control-allow-origin'), null)
  const foreign = await new Promise<number>((resolve, reject) => {
    const url = `${t.gateway.adminAddress}/route`
    const headers = { host: 'evil.example', 'content-type': 'application/json' }
    const sent = request(url, { method: 'POST', headers }, answer => {
      answer.resume()
      resolve(answer.statusCode!)
    })
    sent.on('error', reject)
    sent.end(JSON.stringify(ask))
  })
  assert.equal(foreign, 421)
  const wrong = await fetch(`${t.gateway.adminAddress}/route`)
  assert.deepEqual([wrong.status, wrong.headers.get('allow')], [405, 'POST'])
  assert.equal((await fetch(`${t.gateway.adminAddress}/metrics`, { method: 'POST' })).status, 405)
})

test('a body beyond any request is 413', async () => {
  const answer = await post('', 'x'.repeat(33 * 1024 * 1024)).catch(() => null)
  // The connection closes while the client may still be uploading.
  if (answer) assert.equal(answer.status, 413)
  assert.equal((await post('?model=eb1-preview', ask)).status, 200)
})
