/** cors: what stands on the heads of replies. test/e2e/extra-plugins.test.ts has preflight requests and refusals. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { registerPluginHooks } from '../../../config/modules.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { runPlugin } = await import('sluice/testing')
const { default: plugin } = await import('../../../plugins/extra/cors.ts')

async function headersFor(config: object, headers: Record<string, string>) {
  return (await runPlugin(plugin, { config, request: { headers } })).headers
}

test('every origin: the reply does not depend on it', async () => {
  const headers = await headersFor({ origins: ['*'] }, { origin: 'https://a.example' })
  assert.equal(headers.get('access-control-allow-origin'), '*')
  assert.equal(headers.get('vary'), undefined)
})

test('a listed origin is named, with its port; caches are told of it, also where the request has none', async () => {
  const config = { origins: ['http://localhost:5173'], expose: [] }
  const headers = await headersFor(config, { origin: 'http://localhost:5173' })
  assert.equal(headers.get('access-control-allow-origin'), 'http://localhost:5173')
  assert.equal(headers.get('access-control-expose-headers'), undefined)
  const other = await headersFor(config, { origin: 'http://localhost:51730' })
  assert.equal(other.get('access-control-allow-origin'), undefined)
  assert.equal((await headersFor(config, {})).get('vary'), 'Origin')
})

test('credentials with every origin are a fault of the configuration', () => {
  const config = { origins: ['*'], headers: [], expose: [], credentials: true, max_age: 0 }
  assert.match(plugin.check!(config, {} as never)[0]!, /credentials need a list/)
  assert.deepEqual(plugin.check!({ ...config, credentials: false }, {} as never), [])
})

test('an origin with a path is refused when the configuration loads', async () => {
  await assert.rejects(headersFor({ origins: ['https://a.example/app'] }, {}), /origins/)
})
