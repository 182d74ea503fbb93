import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ProviderConfig } from '../../config/types.ts'
import { systemClock } from '../../core/clock.ts'
import { Http1Client } from '../../plugins/upstream/http1/client.ts'
import { Pools } from '../../plugins/upstream/pools.ts'

/** The benchmark of the two clients compares nothing when its switch does nothing. */
test('HTTP/1.1 has the own client; HTTP/2, proxies and SLUICE_HTTP1_CLIENT have undici', async context => {
  context.after(() => delete process.env['SLUICE_HTTP1_CLIENT'])
  const provider: ProviderConfig = {
    name: 'one',
    dialect: 'openai-chat',
    base_url: 'http://127.0.0.1:9/v1',
    headers: {},
    max_connections: 1,
    queue: { max: 0, wait: 0 },
    http2: false,
    cache_control: 'auto',
    tls: null,
    proxy: null,
    key_header: undefined,
    auth: null,
    at: { file: '', line: 1, column: 1 },
  }
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
