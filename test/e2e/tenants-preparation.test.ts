/**
 * Work before admission: what one organization can make the gateway do, and what another one then meets. Before, a key
 * of one request a day and 40 connections had 10 of 12 large prompts of another organization refused, 60 unfinished
 * uploads held 2 GB, and `count_tokens` had no limit.
 */
import assert from 'node:assert/strict'
import { connect, type Socket } from 'node:net'
import { mock, test } from 'node:test'
import { meterPool, PromptCount, SYNC_LIMIT } from '../../meter/index.ts'
import { eventually } from '../eventually.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { defaultYaml, KEY, startGateway, stillClock, type TestGateway, type TestOptions } from './harness.ts'
import { SocketClient } from './socket-client.ts'

const OTHER = { authorization: 'Bearer sk-other-0001-secret' }

async function using(options: TestOptions, run: (t: TestGateway) => Promise<void>): Promise<void> {
  const t = await startGateway(options)
  try {
    await run(t)
  } finally {
    await t.close()
  }
}

const ask = (content = 'x', more: object = {}) => ({
  model: 'eb1-preview',
  max_tokens: 16,
  messages: [{ role: 'user', content }],
  ...more,
})
/** A prompt that no cache of counts knows, and that is counted by a thread. */
let prompts = 0
const large = (units = SYNC_LIMIT * 2) => ask(`${prompts++} ${'word '.repeat(units / 5)}`)
const chat = (t: TestGateway, body: object = ask(), headers?: Record<string, string>) =>
  t.post('/v1/chat/completions', body, headers)
const codeOf = async (response: Response) => [response.status, ((await response.json()) as any).error?.code]

async function metric(t: TestGateway, name: string): Promise<number> {
  const text = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
  return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1])
}

/** Sends a head and a part of a body, and no more. */
async function upload(t: TestGateway, headers: string, part: string | Buffer): Promise<Socket & { answer: string }> {
  const socket = Object.assign(connect(t.gateway.port, '127.0.0.1'), { answer: '' })
  socket.on('error', () => {})
  socket.on('data', bytes => {
    socket.answer += bytes
  })
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer ${KEY}\r\n${headers}\r\n\r\n`,
  )
  socket.write(part)
  return socket
}

const NARROW = 'platform: { preparation: { organization_bytes: 1MiB, bytes: 8MiB } }'

test('unfinished uploads with a declared length have a total for each organization', () =>
  using({ extra: NARROW }, async t => {
    const first = await upload(t, 'content-length: 700000', '{')
    await eventually(async () => (await metric(t, 'sluice_preparing_bytes')) === 700_000)
    const second = await upload(t, 'content-length: 700000', '{')
    await eventually(() => second.answer.includes('\r\n\r\n{'))
    assert.match(second.answer, /^HTTP\/1.1 429 /)
    assert.match(second.answer, /"code":"concurrency_limit_exceeded"/)
    assert.match(second.answer, /"limit":1048576/)
    assert.match(second.answer, /\r\nretry-after: [12]\r\n/i)
    assert.match(second.answer, /"dimension":"concurrency"/)
    assert.deepEqual(second.answer.match(/x-ratelimit\S+: \S+/gi), ['x-ratelimit-scope: org'])
    assert.equal(await metric(t, 'sluice_preparation_refused_total{bound="organization"}'), 1)
    // What fits goes on, and so does another organization.
    assert.equal((await chat(t)).status, 200)
    assert.equal((await chat(t, ask('x'.repeat(900_000)), OTHER)).status, 200)
    first.destroy()
    second.destroy()
    await eventually(async () => (await metric(t, 'sluice_preparing_bytes')) === 0)
    assert.equal(await metric(t, 'sluice_preparing_requests'), 0)
    assert.equal((await chat(t, ask('x'.repeat(900_000)))).status, 200)
  }))

test('uploads without a declared length count as their bytes arrive', () =>
  using({ extra: NARROW }, async t => {
    const piece = `${(600_000).toString(16)}\r\n${'x'.repeat(600_000)}\r\n`
    const first = await upload(t, 'transfer-encoding: chunked', piece)
    await eventually(async () => (await metric(t, 'sluice_preparing_bytes')) === 600_000)
    const second = await upload(t, 'transfer-encoding: chunked', piece)
    await eventually(() => second.answer.includes('\r\n\r\n{'))
    assert.match(second.answer, /^HTTP\/1.1 429 .*"code":"concurrency_limit_exceeded"/s)
    first.destroy()
    second.destroy()
    await eventually(async () => (await metric(t, 'sluice_preparing_bytes')) === 0)
  }))

test('messages that wait on a WebSocket have a total for each organization, over all its connections', () =>
  using({ extra: NARROW }, async t => {
    // Was: each connection kept up to 32 MiB that counted nowhere.
    const clients = [await SocketClient.open(t), await SocketClient.open(t)]
    const [first, second] = clients as [SocketClient, SocketClient]
    for (const [i, client] of clients.entries()) {
      client.create('[[sim: delay 60s]] x')
      await eventually(() => t.simulator.requests.length === i + 1)
    }
    first.create('x'.repeat(700_000))
    await eventually(async () => (await metric(t, 'sluice_preparing_bytes')) > 700_000)
    assert.equal(await metric(t, 'sluice_preparing_requests'), 1)
    second.create('x'.repeat(700_000))
    await eventually(() => second.frames.some(frame => frame.type === 'error'))
    const error = second.frames.find(frame => frame.type === 'error')!
    assert.deepEqual(
      [error['status'], error['error'].code, error['error'].details.limit],
      [429, 'concurrency_limit_exceeded', 1_048_576],
    )
    assert.match(error['headers']['retry-after'], /^[12]$/)
    const other = await SocketClient.open(t, { headers: OTHER })
    other.create('x'.repeat(700_000))
    assert.equal((await other.response()).at(-1)!.type, 'response.completed')
    for (const client of [...clients, other]) client.close()
    await eventually(async () => (await metric(t, 'sluice_preparing_bytes')) === 0)
    assert.equal(await metric(t, 'sluice_preparing_requests'), 0)
  }))

test('recalled responses count as if they had come in the body', () =>
  using({ extra: NARROW }, async t => {
    // Was: a message of 100 bytes that recalled megabytes counted as 100 bytes.
    const kept = (await (
      await t.post('/v1/responses', { model: 'eb1-preview', input: 'x'.repeat(500_000) })
    ).json()) as any
    const unfinished = await upload(t, 'content-length: 700000', '{')
    await eventually(async () => (await metric(t, 'sluice_preparing_bytes')) === 700_000)
    const follow = () => t.post('/v1/responses', { model: 'eb1-preview', input: 'x', previous_response_id: kept.id })
    const refused = await follow()
    assert.equal(refused.headers.get('x-ratelimit-limit-requests'), null)
    assert.deepEqual(await codeOf(refused), [429, 'concurrency_limit_exceeded'])
    unfinished.destroy()
    await eventually(async () => (await metric(t, 'sluice_preparing_bytes')) === 0)
    assert.equal((await follow()).status, 200)
    assert.equal(await metric(t, 'sluice_preparing_bytes'), 0)
  }))

test('one request that is larger than the bound of its organization is served, when it is alone', () =>
  using({ extra: 'platform: { preparation: { organization_bytes: 1KiB } }' }, async t => {
    assert.equal((await chat(t, ask('x'.repeat(5000)))).status, 200)
  }))

test('40 connections with large prompts, and another organization’s 12 all succeed', () =>
  using({}, async t => {
    const gone = new AbortController()
    const flood = Array.from({ length: 40 }, async () => {
      while (!gone.signal.aborted) {
        await fetch(`${t.url}/v1/chat/completions`, {
          method: 'POST',
          signal: gone.signal,
          headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
          body: JSON.stringify(large(400_000)),
        }).then(
          response => response.text(),
          () => {},
        )
      }
    })
    try {
      await eventually(() => meterPool().jobs.waiting >= 32)
      for (let i = 0; i < 12; i++) assert.equal((await chat(t, large(), OTHER)).status, 200, `prompt ${i}`)
    } finally {
      gone.abort()
      await Promise.all(flood)
    }
  }))

test('a full limit of requests refuses a large prompt before it is read or counted, and takes nothing', () =>
  using({ organization: '    limits: { requests_per_day: 1 }' }, async t => {
    assert.equal((await chat(t)).status, 200)
    const inPool = mock.method(PromptCount.prototype, 'inPool')
    try {
      for (const headers of [undefined, { 'idempotency-key': 'a' }]) {
        const refused = await chat(t, large(), headers)
        assert.ok(Number(refused.headers.get('retry-after')) > 80_000)
        assert.equal(refused.headers.get('x-ratelimit-limit-requests-day'), '1')
        assert.deepEqual(await codeOf(refused), [429, 'requests_limit_exceeded'])
      }
      assert.equal(inPool.mock.callCount(), 0)
    } finally {
      inPool.mock.restore()
    }
    const unfinished = await upload(t, 'content-length: 700000', '{')
    await eventually(() => unfinished.answer.includes('"code":"requests_limit_exceeded"'))
    unfinished.destroy()
    assert.equal((await chat(t, large(), OTHER)).status, 200)
  }))

test('a replay of an Idempotency-Key is served although the limit is full', () =>
  using({ organization: '    limits: { requests_per_day: 1 }' }, async t => {
    const key = { 'idempotency-key': 'once' }
    const first = await chat(t, ask(), key)
    assert.equal(first.status, 200)
    const again = await chat(t, ask(), key)
    assert.deepEqual([again.status, again.headers.get('x-idempotent-replay')], [200, 'true'])
    assert.equal(await again.text(), await first.text())
  }))

test('[CNT-1] count_tokens takes from a bucket of its own, as large as requests_per_minute', () =>
  using({ organization: '    limits: { requests_per_minute: 3 }', gateway: { clock: stillClock() } }, async t => {
    const count = (headers?: Record<string, string>) => t.post('/v1/messages/count_tokens', ask(), headers)
    for (let i = 0; i < 3; i++) assert.equal((await count()).status, 200)
    const refused = await count()
    assert.ok(Number(refused.headers.get('retry-after')) >= 1)
    assert.equal(refused.headers.get('x-ratelimit-limit-requests'), '3')
    assert.deepEqual(await codeOf(refused), [429, 'requests_limit_exceeded'])
    // Completions have theirs, and other organizations have their own.
    for (let i = 0; i < 3; i++) assert.equal((await chat(t)).status, 200)
    assert.equal((await chat(t)).status, 429)
    for (let i = 0; i < 5; i++) assert.equal((await count(OTHER)).status, 200)
  }))

test('an organization with 200 requests of 50 KB at once meets no bound of the budget', () =>
  using({}, async t => {
    const replies = await Promise.all(Array.from({ length: 200 }, () => chat(t, ask('word '.repeat(10_000)))))
    assert.deepEqual([...new Set(replies.map(r => r.status))], [200])
    for (const bound of ['organization', 'process'])
      assert.equal(await metric(t, `sluice_preparation_refused_total{bound="${bound}"}`), 0)
  }))

test('on Redis a full limit refuses a large body, and a recall, before the work; count_tokens has its bucket', {
  skip: skipWithoutRedis,
}, async context => {
  const redis = await RedisServer.start()
  context.after(() => redis.stop())
  const organization = '    limits: { requests_per_minute: 2, requests_per_day: 2 }'
  const yaml = (url: string) => defaultYaml(url, { organization, store: `{ url: "${redis.url}", timeout: 10s }` })
  await using({ yaml }, async t => {
    const kept = await t.post('/v1/responses', { model: 'eb1-preview', input: 'x' })
    const { id } = (await kept.json()) as any
    assert.equal((await chat(t, large())).status, 200)
    const inPool = mock.method(PromptCount.prototype, 'inPool')
    const reads = mock.method(t.gateway.store.records, 'get')
    assert.deepEqual(await codeOf(await chat(t, large())), [429, 'requests_limit_exceeded'])
    const recall = { model: 'eb1-preview', input: 'x', previous_response_id: id }
    assert.deepEqual(await codeOf(await t.post('/v1/responses', recall)), [429, 'requests_limit_exceeded'])
    assert.deepEqual([inPool.mock.callCount(), reads.mock.callCount()], [0, 0])
    inPool.mock.restore()
    const counts = []
    for (let i = 0; i < 3; i++) counts.push((await t.post('/v1/messages/count_tokens', ask())).status)
    assert.deepEqual(counts, [200, 200, 429])
  })
})

test('bodies of very many values: of one organization two at a time reach the event loop', () =>
  using({}, async t => {
    const properties = Object.fromEntries(Array.from({ length: 12_000 }, (_, i) => [`p${i}`, { type: 'string' }]))
    const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', properties } } }]
    const pool = meterPool()
    const { parse } = pool
    let running = 0
    let most = 0
    const spied = mock.method(pool, 'parse', (...args: Parameters<typeof parse>) => {
      most = Math.max(most, ++running)
      return parse(...args).finally(() => running--)
    })
    const flood = Array.from({ length: 6 }, () => chat(t, ask('x', { tools })))
    for (const reply of await Promise.all(flood)) await reply.text()
    assert.equal(spied.mock.callCount(), 6)
    spied.mock.restore()
    assert.equal(most, 2)
  }))

// Twenty requests with 20 MiB of images each, at a provider that was slow to answer, held 1.3 GB.
test('requests wait for their turn while no provider has answered the ones before, and others do not', () =>
  using({ extra: 'platform: { preparation: { organization_unsent_bytes: 1KiB } }' }, async t => {
    const text = 'word '.repeat(300)
    const gone = new AbortController()
    const slow = fetch(`${t.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
      body: JSON.stringify(ask(`[[sim: delay 60s; tokens 5]] ${text}`)),
      signal: gone.signal,
    })
    await eventually(async () => (await metric(t, 'sluice_unsent_bytes')) > 1024)
    const waits = chat(t, ask(`[[sim: tokens 5]] ${text}`))
    await eventually(async () => (await metric(t, 'sluice_unsent_waiting')) === 1)
    assert.equal((await chat(t, ask('[[sim: tokens 5]] x'), OTHER)).status, 200)
    assert.equal(await metric(t, 'sluice_unsent_waiting'), 1)
    gone.abort()
    await assert.rejects(slow)
    assert.equal((await waits).status, 200)
    await eventually(async () => (await metric(t, 'sluice_unsent_bytes')) === 0)
  }))

test('the bytes of a request are given back when a provider answers, not when the reply has ended', () =>
  using({ extra: 'platform: { preparation: { organization_unsent_bytes: 1KiB } }' }, async t => {
    const stream = await chat(t, ask(`[[sim: stall 3]] ${'word '.repeat(300)}`, { stream: true }))
    assert.equal(stream.status, 200)
    assert.equal(await metric(t, 'sluice_unsent_bytes'), 0)
    await stream.body!.cancel()
  }))
