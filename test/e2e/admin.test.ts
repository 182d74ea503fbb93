/** The admin listener: health, readiness, metrics, and who may see them. */
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { ConfigRefused } from '../../cli/assembly.ts'
import { buildGateway } from '../../cli/gateway.ts'
import { silent } from '../../cli/log.ts'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { eventually } from '../eventually.ts'
import { RawClient } from '../listener/harness.ts'
import { defaultYaml, KEY, startGateway, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

const ask = (content: string, more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content }],
  ...more,
})
const admin = (g: TestGateway, path: string, init?: RequestInit) => fetch(`${g.gateway.adminAddress}${path}`, init)
const idle = (g: TestGateway) => eventually(() => g.gateway.ingress.running.size === 0)

/** Samples of the exposition format: `name{labels}` → value. */
async function samples(g: TestGateway): Promise<Map<string, number>> {
  const text = await (await admin(g, '/metrics')).text()
  const found = new Map<string, number>()
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue
    const space = line.lastIndexOf(' ')
    found.set(line.slice(0, space), Number(line.slice(space + 1)))
  }
  return found
}

test('/healthz and /readyz answer without a token; other paths and methods are refused', async () => {
  const health = await admin(t, '/healthz')
  assert.deepEqual([health.status, await health.text(), health.headers.get('cache-control')], [200, 'ok\n', 'no-store'])
  const ready = await admin(t, '/readyz')
  assert.deepEqual([ready.status, await ready.text()], [200, 'ready\n'])
  assert.equal((await admin(t, '/healthz?x=1', { method: 'HEAD' })).status, 200)
  assert.equal((await admin(t, '/nothing')).status, 404)
  const post = await admin(t, '/metrics', { method: 'POST', body: 'x' })
  assert.deepEqual([post.status, post.headers.get('allow')], [405, 'GET, HEAD'])
  const raw = await RawClient.open(Number(new URL(t.gateway.adminAddress!).port))
  raw.send('GET // HTTP/1.1\r\nHost: localhost\r\n\r\n')
  assert.equal((await raw.answers(1))[0]!.status, 404)
  raw.destroy()
})

test('the admin paths are not on the public listener, nor the public ones here', async () => {
  for (const path of ['/healthz', '/readyz', '/metrics']) assert.equal((await fetch(t.url + path)).status, 404)
  assert.equal((await admin(t, '/v1/models', { headers: { authorization: `Bearer ${KEY}` } })).status, 404)
})

test('/readyz is 503 when the store does not answer, and says why', async () => {
  const g = await startGateway()
  try {
    const { store } = g.gateway
    const { ready } = store
    store.ready = async () => ({ ok: false, reason: 'the store is down' })
    const down = await admin(g, '/readyz')
    assert.deepEqual([down.status, await down.text()], [503, 'not ready: the store is down\n'])
    const others = await admin(g, '/readyz?exclude=store')
    assert.deepEqual([others.status, await others.text()], [200, 'ready\n'])
    assert.equal((await admin(g, '/readyz?exclude=stoer')).status, 400)
    store.ready = async () => {
      throw new StoreUnavailable('secret address of the store')
    }
    const failed = await admin(g, '/readyz')
    assert.equal(failed.status, 503)
    assert.doesNotMatch(await failed.text(), /secret/)
    store.ready = ready
    assert.equal((await admin(g, '/readyz')).status, 200)
    await store.close()
    assert.equal((await admin(g, '/readyz')).status, 503, 'a store that is closed answers nothing')
    assert.equal((await admin(g, '/healthz')).status, 200)
  } finally {
    await g.close()
  }
})

test('/readyz is 503 while the gateway drains; /healthz is not', async () => {
  const g = await startGateway({ server: 'drain: 10s' })
  try {
    const stream = await g.post('/v1/chat/completions', ask('[[sim: tokens 20; pace 20ms]] x', { stream: true }))
    const drained = g.gateway.drain()
    const ready = await admin(g, '/readyz')
    assert.deepEqual([ready.status, await ready.text()], [503, 'not ready: draining\n'])
    assert.equal((await admin(g, '/readyz?exclude=store')).status, 503)
    assert.equal((await admin(g, '/healthz')).status, 200)
    assert.ok((await samples(g)).get('sluice_open_exchanges')! >= 1, 'metrics can be scraped to the end')
    assert.match(await stream.text(), /\[DONE\]/)
    await drained
  } finally {
    await g.close()
  }
})

test('/metrics counts exchanges by route, model, status and outcome; durations, first byte, tokens, plugins', async () => {
  const g = await startGateway()
  try {
    const usage = ((await (await g.post('/v1/chat/completions', ask('[[sim: text "one two"]] hi'))).json()) as any)
      .usage
    await (await g.post('/v1/chat/completions', ask('x', { stream: true, model: 'eb1-preview-fast' }))).text()
    await g.post('/v1/chat/completions', ask('x', { model: 'gpt-9' }))
    await g.post('/v1/nothing', {})
    const open = await g.post('/v1/chat/completions', ask('[[sim: stall 3]] x', { stream: true }))
    await eventually(() => g.gateway.ingress.running.size === 1)
    const seen = await samples(g)
    const route = 'route="POST /v1/chat/completions"'
    assert.equal(seen.get(`sluice_exchanges_total{${route},model="eb1-preview",status="200",outcome="completed"}`), 1)
    assert.equal(
      seen.get(`sluice_exchanges_total{${route},model="eb1-fast-preview",status="200",outcome="completed"}`),
      1,
    )
    assert.equal(seen.get(`sluice_exchanges_total{${route},model="",status="404",outcome="refused"}`), 1)
    assert.equal(seen.get(`sluice_refused_total{${route},code="model_not_found"}`), 1)
    assert.equal(seen.get('sluice_refused_total{route="",code="not_found"}'), 1)
    assert.equal(seen.get('sluice_tokens_total{model="eb1-preview",kind="input"}'), usage.prompt_tokens)
    assert.equal(seen.get('sluice_tokens_total{model="eb1-preview",kind="output"}'), usage.completion_tokens)
    assert.equal(seen.get(`sluice_exchange_duration_seconds_count{${route}}`), 3)
    assert.equal(seen.get(`sluice_exchange_first_byte_seconds_count{${route}}`), 3)
    assert.equal(seen.get('sluice_open_exchanges'), 1)
    assert.ok(seen.get('sluice_open_connections')! >= 1)
    assert.ok(seen.has('sluice_event_loop_delay_seconds{quantile="0.99"}'))
    assert.equal(seen.get('sluice_plugin_calls_total{pipeline="completions",plugin="auth"}'), 4)
    assert.equal(seen.get('sluice_plugin_refusals_total{pipeline="completions",plugin="model-access"}'), 1)
    assert.ok(seen.has('sluice_plugin_sampled_seconds_total{pipeline="completions",plugin="translation"}'))
    assert.ok(seen.has('process_resident_memory_bytes'))
    await g.gateway.reload()
    assert.equal((await samples(g)).get('sluice_config_reloads_total{result="applied"}'), 1)
    await open.body!.cancel()
    await idle(g)
    assert.equal(
      (await samples(g)).get(`sluice_exchanges_total{${route},model="eb1-preview",status="200",outcome="client_gone"}`),
      1,
    )
  } finally {
    await g.close()
  }
})

test('[AUTH-3] a thousand bad models, keys, paths and methods make no new series, and no value of a client’s is in one', async () => {
  const bad = async (i: number): Promise<void> => {
    const word = `bad${i}canary`
    await (await t.post('/v1/chat/completions', ask('x', { model: word }))).text()
    await (await t.post('/v1/chat/completions', ask('x'), { authorization: `Bearer sk-${word}` })).text()
    // One in ten of the rest: each costs as much as the two that matter.
    if (i % 10 > 3) return
    await (await fetch(`${t.url}/v1/${word}`)).text()
    await (
      await fetch(`${t.url}/v1/chat/completions?${word}`, { method: ['GET', 'PUT', 'PATCH', 'DELETE'][i % 4] })
    ).text()
    await (await t.post('/v1/chat/completions', ask('x', { [word]: 1 }), { 'user-agent': word })).text()
  }
  for (let i = 0; i < 4; i++) await bad(i)
  await idle(t)
  const before = [...(await samples(t)).keys()].sort()
  for (let i = 4; i < 1004; i += 20) await Promise.all(Array.from({ length: 20 }, (_, j) => bad(i + j)))
  await idle(t)
  const after = [...(await samples(t)).keys()].sort()
  assert.deepEqual(
    after.filter(name => !name.startsWith('nodejs_') && !name.startsWith('process_')),
    before.filter(name => !name.startsWith('nodejs_') && !name.startsWith('process_')),
  )
  assert.doesNotMatch(after.join('\n'), /canary|sk-/)
  const logged = JSON.stringify(t.log)
  assert.doesNotMatch(logged, /sk-bad/)
  assert.ok(!logged.includes(KEY))
})

test('a token guards what tells more than yes or no; without one, only loopback is allowed', async () => {
  const g = await startGateway({
    yaml: url => defaultYaml(url).replace('admin: 127.0.0.1:0', 'admin: { listen: 127.0.0.1:0, token: "let-me-in" }'),
  })
  try {
    assert.equal((await admin(g, '/healthz')).status, 200)
    assert.equal((await admin(g, '/readyz')).status, 200)
    for (const authorization of [
      undefined,
      'Bearer let-me-i',
      'Bearer let-me-inn',
      'Bearer ',
      'Basic let-me-in',
      `Bearer ${KEY}`,
    ]) {
      const refused = await admin(g, '/metrics', { headers: authorization === undefined ? {} : { authorization } })
      assert.equal(refused.status, 401, authorization)
      assert.equal(refused.headers.get('www-authenticate'), 'Bearer')
    }
    assert.equal((await admin(g, '/metrics', { headers: { authorization: 'Bearer let-me-in' } })).status, 200)
  } finally {
    await g.close()
  }
  const folder = await mkdtemp(join(tmpdir(), 'sluice-admin-'))
  try {
    const file = join(folder, 'gateway.yaml')
    await writeFile(file, defaultYaml('http://127.0.0.1:1').replace('admin: 127.0.0.1:0', 'admin: 0.0.0.0:0'))
    await assert.rejects(buildGateway(file, { log: silent, watch: false }), (error: unknown) => {
      assert.ok(error instanceof ConfigRefused)
      assert.equal(error.errors[0]!.line, 2)
      assert.match(error.message, /token/)
      return true
    })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})
