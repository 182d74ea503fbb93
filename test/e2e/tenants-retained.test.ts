/**
 * What one organization has retained stays when another one floods: through a listening gateway, on both engines.
 *
 * Retained responses were bounded by one total over all organizations, oldest first, so that one organization evicted
 * the others' responses: they could not be continued (SQLite). On Redis nothing bounded them, and a full Redis refused
 * everyone. Kept replies of Idempotency-Keys had one total on SQLite, too, and on Redis none over all.
 */
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { temporary } from '../stores/kit.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

const FLOOD = { authorization: 'Bearer sk-other-0001-secret' }
const ask = (input: string) => ({ model: 'eb1-preview', input })

/** @param store as in gateway.yaml */
async function run(store: string): Promise<void> {
  const gateway = await startGateway({
    yaml: sim => defaultYaml(sim, { plugins: { idempotency: '{ max_total: 200KiB }' }, store }),
  })
  try {
    const key = randomUUID()
    const first = await gateway.post('/v1/responses', ask('My name is Ada.'), { 'idempotency-key': key })
    const text = await first.text()
    assert.equal(first.status, 200, text)
    const { id } = JSON.parse(text) as { id: string }

    const flood: string[] = []
    for (let i = 0; i < 40; i++) {
      const reply = await gateway.post('/v1/responses', ask('x'.repeat(4000)), {
        ...FLOOD,
        'idempotency-key': `flood-${i}`,
      })
      flood.push(((await reply.json()) as { id: string }).id)
    }
    const again = await gateway.post('/v1/responses', ask('My name is Ada.'), { 'idempotency-key': key })
    assert.equal(again.headers.get('x-original-request-id'), first.headers.get('x-request-id'))
    assert.equal(await again.text(), text)
    const next = await gateway.post('/v1/responses', { ...ask('What is it?'), previous_response_id: id })
    assert.equal(next.status, 200, await next.text())

    // The flood has lost its own oldest, and has its newest.
    const continued = async (id: string) => {
      const reply = await gateway.post('/v1/responses', { ...ask('And?'), previous_response_id: id }, FLOOD)
      await reply.text()
      return reply.status
    }
    assert.equal(await continued(flood[0]!), 400)
    assert.equal(await continued(flood.at(-1)!), 200)
    const replay = await gateway.post('/v1/responses', ask('x'.repeat(4000)), {
      ...FLOOD,
      'idempotency-key': 'flood-0',
    })
    assert.equal(replay.status, 409)
    await replay.text()

    const metrics = await metricsOf(gateway)
    for (const kind of ['records', 'idempotency']) {
      assert.ok(metrics(`sluice_store_kept_bytes{kind="${kind}"}`) > 0)
      assert.ok(metrics(`sluice_store_evicted_total{kind="${kind}",full="share"}`) > 0)
      assert.equal(metrics(`sluice_store_evicted_total{kind="${kind}",full="total"}`), 0)
    }
  } finally {
    await gateway.close()
  }
}

async function metricsOf({ gateway }: TestGateway): Promise<(series: string) => number> {
  const lines = (await (await fetch(`${gateway.adminAddress}/metrics`)).text()).split('\n')
  return series => Number(lines.find(line => line.startsWith(`${series} `))?.slice(series.length))
}

test('[RESP-2] sqlite: a flood of retained responses and replies takes nothing from another organization', () =>
  run('{ url: "sqlite::memory:", max_records: 200KiB }'))

test('[RESP-2] redis: the same', { skip: skipWithoutRedis }, async t => {
  const server = await RedisServer.start()
  const home = process.cwd()
  // A gateway keeps its journal in ./data.
  process.chdir(temporary())
  t.after(async () => {
    process.chdir(home)
    await server.stop()
  })
  await run(`{ url: "${server.url}", timeout: 10s, max_records: 200KiB }`)
})

/** A busy tenant of ordinary size, with the bounds that ship: nothing of it is evicted. */
test('with the default bounds a busy tenant loses nothing', async () => {
  const gateway = await startGateway()
  try {
    let previous: string | undefined
    for (let i = 0; i < 60; i++) {
      const reply = await gateway.post(
        '/v1/responses',
        { ...ask('word '.repeat(2000)), ...(previous && i % 20 ? { previous_response_id: previous } : {}) },
        { 'idempotency-key': `busy-${i}` },
      )
      assert.equal(reply.status, 200)
      previous = ((await reply.json()) as { id: string }).id
    }
    const metrics = await metricsOf(gateway)
    for (const kind of ['records', 'idempotency'])
      for (const full of ['share', 'total'])
        assert.equal(metrics(`sluice_store_evicted_total{kind="${kind}",full="${full}"}`), 0)
  } finally {
    await gateway.close()
  }
})
