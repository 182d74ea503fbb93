/**
 * `proxy`: a terminal that passes an exchange to its target, bytes untouched. What it sends, and what becomes of a
 * target that is slow, cut or gone, needs a real one: test/e2e/proxy.test.ts and test/e2e/proxy-tunnel.test.ts. Here is
 * what never leaves the gateway.
 */
import assert from 'node:assert/strict'
import http from 'node:http'
import { mock, test } from 'node:test'
import { proxy } from '../../plugins/proxy/index.ts'
import { type RunOptions, runPlugin } from '../../plugins/testing.ts'

const target = 'http://target.invalid'
const ask = (path: string, config: RunOptions<any>['config'] = { target }) =>
  runPlugin(proxy, { config: config as never, request: { method: 'GET', path } })

for (const path of [
  '/v1/files/../admin',
  '/v1/files/..',
  '/v1/%2e%2e/admin',
  '/v1/.%2E/admin',
  '/v1%2f..%2fadmin',
  '/v1/..\\admin',
  '/v1%5c..%5cadmin',
  '/v1/..;/admin',
  '/v1/..%00/admin',
  '/v1/..%09/admin',
  '/v1/%20..%20/admin',
  '/v1/%252e%252e/admin',
  '/v1/..%252f..%252fadmin',
  '/v1/%25252e%25252e%25252fadmin',
  '/v1/..%3bx/admin',
  '/v1/%c0%ae%c0%ae/admin',
  '/v1/%u002e%u002e/admin',
  `/v1/${'%'.padEnd(41, '25')}2e`,
]) {
  test(`a path that climbs is refused, however it is spelled, and the target hears nothing of it: ${path}`, async () => {
    const request = mock.method(http, 'request')
    const { status, json, settlement } = await ask(path)
    request.mock.restore()
    assert.deepEqual([status, json.error.code], [400, 'bad_request'])
    assert.match(json.error.message, /Send it resolved/)
    assert.equal(settlement.outcome, 'refused')
    assert.equal(request.mock.callCount(), 0)
  })
}

test('it is a terminal: nothing answers in its place', () => assert.equal(proxy.terminal, true))

for (const [what, config, why] of [
  ['a target', {}, /target/],
  ['a target that is a URL', { target: 'target.invalid' }, /target/],
  ['a target without a query', { target: 'http://target.invalid/?a=1' }, /target/],
  ['known options', { target, tiemout: 1 }, /tiemout/],
] as const) {
  test(`it needs ${what}`, () => assert.rejects(ask('/v1/x', config), why))
}
