/** Where requests come from: behind proxies, and by which network attempts are counted. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addressOf, networkOf, Proxies } from '../web/address.ts'

function found(proxies: string[], peer: string | undefined, forwarded?: string): string {
  const c = { env: { incoming: { socket: { remoteAddress: peer } } }, req: { header: () => forwarded } }
  return addressOf(c as any, new Proxies(proxies))
}

test('X-Forwarded-For is read behind a proxy alone, from its end', () => {
  const networks = ['10.0.0.0/8', 'fd00::/8', '192.0.2.7', '2001:db8::7']
  for (const [peer, forwarded, wanted] of [
    ['198.51.100.1', '203.0.113.9', '198.51.100.1'],
    ['192.0.2.8', '203.0.113.9', '192.0.2.8'],
    ['10.1.2.3', undefined, '10.1.2.3'],
    ['10.1.2.3', '', '10.1.2.3'],
    ['10.1.2.3', '203.0.113.9', '203.0.113.9'],
    ['192.0.2.7', '203.0.113.9', '203.0.113.9'],
    ['2001:db8::7', '203.0.113.9', '203.0.113.9'],
    ['::ffff:10.1.2.3', '1.1.1.1, ::ffff:203.0.113.9 , 10.9.9.9', '203.0.113.9'],
    ['fd00::1', '2001:0DB8:0:0::1', '2001:db8::1'],
    ['10.1.2.3', '10.0.0.1, 10.0.0.2', '10.0.0.1'],
    // Some proxies add the port.
    ['10.1.2.3', '203.0.113.9:4711', '203.0.113.9'],
    ['10.1.2.3', '[2001:db8::1]:4711', '2001:db8::1'],
    // What is no address says nothing, and what stands before it the client may have written.
    ['10.1.2.3', '203.0.113.9, unknown', '10.1.2.3'],
    ['10.1.2.3', `203.0.113.9, ${'x'.repeat(5000)}, 10.0.0.1`, '10.0.0.1'],
    [undefined, '203.0.113.9', ''],
  ] as const)
    assert.equal(found(networks, peer, forwarded), wanted, `${peer}: ${forwarded?.slice(0, 80)}`)
  assert.equal(found([], '10.1.2.3', '203.0.113.9'), '10.1.2.3')
})

test('attempts are counted by an address of IPv4, and by a /64 of IPv6 however it is written', () => {
  assert.equal(networkOf('203.0.113.9'), '203.0.113.9')
  assert.notEqual(networkOf('203.0.113.9'), networkOf('203.0.113.8'))
  const one = (text: string) => networkOf(found([], text))
  for (const address of ['2001:db8::1', '2001:db8::2', '2001:db8:0:0:a:b:c:d', '2001:0db8::a:b:c:d', '2001:db8::'])
    assert.equal(one(address), '2001:db8:0:0::/64', address)
  assert.equal(one('2001:db8:1:2:3:4:5:6'), '2001:db8:1:2::/64')
  assert.equal(one('2001:db8:1::6'), '2001:db8:1:0::/64')
  for (const address of ['::1', '::']) assert.equal(one(address), '0:0:0:0::/64', address)
})
