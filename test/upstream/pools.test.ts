import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import type { ProviderConfig } from '../../config/types.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { Http1Client } from '../../plugins/upstream/http1/client.ts'
import { Pools } from '../../plugins/upstream/pools.ts'

const provider: ProviderConfig = {
  name: 'one',
  dialect: 'openai-chat',
  base_url: 'http://127.0.0.1:9/v1',
  headers: {},
  max_connections: 1,
  queue: { max: 0, wait: 0 },
  http2: false,
  settings: {},
  tls: null,
  proxy: null,
  key_header: undefined,
  auth: null,
  at: { file: '', line: 1, column: 1 },
}

/** The benchmark of the two clients compares nothing when its switch does nothing. */
test('HTTP/1.1 has the own client; HTTP/2, proxies and SLUICE_HTTP1_CLIENT have undici', async context => {
  context.after(() => delete process.env['SLUICE_HTTP1_CLIENT'])
  const own = async (more: Partial<ProviderConfig> = {}) => {
    const pools = new Pools()
    const pool = pools.acquire({ ...provider, ...more }, 1000, systemClock)
    await pools.release(pool)
    return pool.dispatcher instanceof Http1Client
  }
  assert.equal(await own(), true)
  assert.equal(await own({ base_url: 'https://127.0.0.1:9/v1' }), true)
  assert.equal(await own({ base_url: 'https://127.0.0.1:9/v1', http2: true }), false)
  assert.equal(await own({ proxy: 'http://127.0.0.1:9' }), false)
  process.env['SLUICE_HTTP1_CLIENT'] = 'undici'
  assert.equal(await own(), false)
})

/** A pool was named by the paths of its files, so that a renewed certificate was used only after a restart. */
test('a file of tls whose contents changed brings a pool of its own, and the same contents do not', async context => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-pools-'))
  context.after(() => rmSync(folder, { recursive: true }))
  const ca = join(folder, 'ca.pem')
  const pools = new Pools()
  const acquire = () =>
    pools.acquire({ ...provider, base_url: 'https://127.0.0.1:9/v1', tls: { ca } }, 1000, systemClock)
  writeFileSync(ca, '')
  const before = acquire()
  assert.equal(acquire(), before)
  writeFileSync(ca, '\n')
  const after = acquire()
  assert.notEqual(after, before)
  assert.equal(pools.load().length, 2)
  for (const pool of [before, before, after]) await pools.release(pool)
  assert.equal(pools.load().length, 0)
})
