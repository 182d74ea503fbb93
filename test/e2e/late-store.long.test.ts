/**
 * A gateway that starts while Redis is out listens and waits, unready, and serves as soon as Redis is there; one with a
 * wrong configuration ends at once. Run as an operator runs it.
 *
 * A start without Redis ended with "cannot start: redis is not reachable", because the secret is in Redis. After a
 * power cut of everything, whoever started the gateways had to start them again by hand.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { startSimulator } from '../../providers/simulator/server.ts'
import { eventually } from '../eventually.ts'
import { freePort } from '../ports.ts'
import { temporary } from '../stores/kit.ts'
import { RedisServer, skipWithoutRedis as skip } from '../stores/redis-server.ts'
import { defaultYaml, KEY } from './harness.ts'

const MAIN = new URL('../../cli/main.ts', import.meta.url).pathname
const { NODE_TEST_CONTEXT: _, ...ENV } = process.env

interface Running {
  child: ChildProcess
  port: number
  admin: number
  text(): string
  ended: Promise<number | null>
}

async function start(
  t: TestContext,
  store: string,
  more: { workers?: number; secret?: string } = {},
): Promise<Running> {
  const simulator = await startSimulator({ port: 0 })
  const folder = temporary()
  const { workers = 1 } = more
  const port = await freePort()
  let admin = await freePort()
  while (admin === port) admin = await freePort()
  const yaml = defaultYaml(simulator.url, { server: `workers: ${workers}` })
    .replace('127.0.0.1:0, admin: 127.0.0.1:0', `127.0.0.1:${port}, admin: 127.0.0.1:${admin}`)
    .replace('"sqlite::memory:"', `{ url: "${store}", timeout: 10s }`)
  writeFileSync(join(folder, 'gateway.yaml'), yaml + (more.secret ? `secret: ${more.secret}\n` : ''))
  const child = spawn(process.execPath, [...process.execArgv, MAIN, 'start', '--config', 'gateway.yaml'], {
    cwd: folder,
    env: ENV,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let text = ''
  for (const stream of [child.stdout!, child.stderr!])
    stream.setEncoding('utf8').on('data', piece => {
      text += piece
    })
  const ended = new Promise<number | null>(resolve => child.once('close', resolve))
  t.after(async () => {
    child.kill('SIGTERM')
    await ended
    await simulator.close()
  })
  return { child, port, admin, text: () => text, ended }
}

/** Redis that is not there yet; `up` starts it. */
async function laterRedis(t: TestContext, args: string[] = []): Promise<RedisServer> {
  const server = await RedisServer.start(args)
  t.after(() => server.stop())
  await server.down()
  return server
}

const probe = async (admin: number, path: string) => {
  const reply = await fetch(`http://127.0.0.1:${admin}${path}`).catch(() => undefined)
  return { status: reply?.status, text: await reply?.text() }
}
const post = (port: number, path: string, body: object) =>
  fetch(`http://127.0.0.1:${port}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
    body: JSON.stringify(body),
  })
const CHAT = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hi' }] }

for (const workers of [1, 2])
  test(`started before Redis, ${workers} process${workers > 1 ? 'es' : ''}: listens, says why it waits, and serves then`, {
    skip,
  }, async t => {
    const redis = await laterRedis(t)
    const gateway = await start(t, redis.url, { workers })
    const { admin } = gateway
    await eventually(async () => (await probe(admin, '/healthz')).status === 200)
    const waiting = /^not ready: starting, and waiting for the store: redis is not reachable: .*ECONNREFUSED/
    await eventually(async () => waiting.test((await probe(admin, '/readyz')).text ?? ''))
    assert.equal((await probe(admin, '/readyz')).status, 503)
    for (let worker = 1; worker <= workers; worker++) {
      const down = new RegExp(`^sluice_store_up${workers > 1 ? `\\{worker="${worker}"\\}` : ''} 0$`, 'm')
      assert.match((await probe(admin, '/metrics')).text!, down)
    }
    assert.equal((await probe(admin, '/')).status, 200)
    const refused = await post(gateway.port, '/v1/chat/completions', CHAT)
    assert.equal(refused.status, 503)
    assert.ok(Number(refused.headers.get('retry-after')) >= 1)
    assert.equal(((await refused.json()) as any).error.code, 'route_unavailable')
    assert.doesNotMatch(gateway.text(), /Sluice listens on/)

    await redis.up()
    await eventually(async () => (await probe(admin, '/readyz')).status === 200)
    const served = await post(gateway.port, '/v1/responses', { model: 'eb1-preview', input: 'Hi' })
    assert.equal(served.status, 200)
    const { id } = (await served.json()) as { id: string }
    // Sealed and opened by one secret, whichever process serves.
    for (let i = 0; i < 4; i++) {
      const next = { model: 'eb1-preview', input: 'And?', previous_response_id: id }
      assert.equal((await post(gateway.port, '/v1/responses', next)).status, 200)
    }
    await eventually(() => /Sluice listens on/.test(gateway.text()))
    gateway.child.kill('SIGTERM')
    assert.equal(await gateway.ended, 0)
  })

test('a signal ends a gateway that waits', { skip }, async t => {
  const gateway = await start(t, (await laterRedis(t)).url)
  await eventually(async () => (await probe(gateway.admin, '/readyz')).status === 503)
  gateway.child.kill('SIGTERM')
  assert.equal(await gateway.ended, 143)
})

test('a password or database that Redis refuses ends the start at once', { skip }, async t => {
  const redis = await RedisServer.start(['--requirepass', 'right'])
  t.after(() => redis.stop())
  const at = `127.0.0.1:${redis.port}`
  const wrong = [
    [`redis://:wrong@${at}/0`, /cannot start: redis refuses redis:\/\/127.*WRONGPASS.*correct 'store'/],
    [`redis://${at}/0`, /cannot start: redis refuses .*NOAUTH/],
    [`redis://:right@${at}/99`, /cannot start: redis refuses .*DB index is out of range/],
  ] as const
  for (const [url, said] of wrong)
    for (const secret of ['', 'a-secret-that-is-configured-and-long-enough']) {
      const gateway = await start(t, url, { secret })
      assert.equal(await gateway.ended, 1, gateway.text())
      assert.match(gateway.text(), said)
    }
})

test('a Redis that comes later and refuses the password ends the start then', { skip }, async t => {
  const redis = await laterRedis(t, ['--requirepass', 'right'])
  const gateway = await start(t, `redis://:wrong@127.0.0.1:${redis.port}/0`)
  await eventually(async () => (await probe(gateway.admin, '/readyz')).status === 503)
  await redis.up()
  assert.equal(await gateway.ended, 1)
  assert.match(gateway.text(), /cannot start: redis refuses .*WRONGPASS/)
})

test('a URL that can never work ends the start at once', async t => {
  for (const [url, said] of [
    ['redsi://127.0.0.1', /gateway\.yaml:\d+:\d+ .*redis/],
    ['redis://a,b', /several hosts need redis\+sentinel/],
  ] as const) {
    const gateway = await start(t, url)
    assert.equal(await gateway.ended, 1, gateway.text())
    assert.match(gateway.text(), said)
  }
})
