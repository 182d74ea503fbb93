/** Whose a request is before and after its organization is known. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addressTenant, Tenants } from '../../core/engine/tenant.ts'
import { tenantOf } from '../../core/plugin.ts'
import type { Incoming } from '../../core/ports/listener.ts'
import { ManualClock } from '../../core/tools/clock.ts'

function request(remoteAddress: string, headers: Record<string, string> = {}): Incoming {
  return { remoteAddress, headers: new Map(Object.entries(headers)) } as unknown as Incoming
}
const bearer = (credential: string) => ({ authorization: `Bearer ${credential}` })
const keys = new Map([['sk-known', 'acme']])

function setUp() {
  const clock = new ManualClock()
  const tenants = new Tenants(credential => keys.get(credential), clock)
  return { clock, tenants, of: (address: string, headers = {}) => tenants.of(request(address, headers)) }
}

test('a credential that the directory has in memory stands for its organization, any other for its address', () => {
  const { of } = setUp()
  for (const headers of [bearer('sk-known'), { authorization: 'bearer  sk-known ' }, { 'x-api-key': 'sk-known' }])
    assert.equal(of('192.0.2.1', headers), 'acme')
  const others = [
    {},
    bearer('sk-wrong'),
    bearer(''),
    { authorization: 'sk-known' },
    { authorization: 'Basic sk-known' },
  ]
  // `auth` looks at one of the two headers alone.
  for (const headers of [...others, { ...bearer('sk-wrong'), 'x-api-key': 'sk-known' }])
    assert.equal(of('192.0.2.1', headers), '@192.0.2.1', JSON.stringify(headers))
})

test('whoever brings another random key each time is one tenant; the key of another client there is its own', () => {
  const { of } = setUp()
  const flood = Array.from({ length: 1000 }, (_, i) => of('192.0.2.1', bearer(`sk-random-${i}`)))
  assert.deepEqual([...new Set(flood)], ['@192.0.2.1'])
  assert.equal(of('192.0.2.1', bearer('sk-known')), 'acme')
})

test('a network of 64 bits is one tenant', () => {
  const cases: [string, string][] = [
    ['192.0.2.1', '@192.0.2.1'],
    ['2001:db8::1', '@2001:db8:0:0::/64'],
    ['2001:db8::ffff:1:2:3', '@2001:db8:0:0::/64'],
    ['2001:db8:0:1::1', '@2001:db8:0:1::/64'],
    ['2001:db8:1:2:3:4:5:6', '@2001:db8:1:2::/64'],
    ['2001:db8:1:2:3:4:5::', '@2001:db8:1:2::/64'],
    ['::1', '@0:0:0:0::/64'],
    ['::', '@0:0:0:0::/64'],
    ['', '@'],
  ]
  for (const [address, tenant] of cases) assert.equal(addressTenant(address), tenant, address)
})

test('of strangers ten thousand addresses a second are told apart; a known key is told apart whatever they do', () => {
  const { clock, of } = setUp()
  const tenants = new Set<string>()
  for (let i = 0; i < 20_000; i++) tenants.add(of(`2001:db8:${(i >> 8).toString(16)}:${(i & 255).toString(16)}::1`))
  assert.equal(tenants.size, 10_001)
  assert.deepEqual([of('192.0.2.1'), of('2001:db8:0:1::2')], ['@', '@2001:db8:0:1::/64'])
  assert.equal(of('192.0.2.1', bearer('sk-known')), 'acme')
  clock.advance(1000)
  assert.equal(of('192.0.2.1'), '@192.0.2.1')
})

test('a request keeps its tenant, even when its key becomes known', () => {
  const { tenants } = setUp()
  const first = request('192.0.2.1', bearer('eyJ.token.x'))
  assert.equal(tenants.of(first), '@192.0.2.1')
  tenants.learn(first, 'acme')
  assert.equal(tenants.of(first), '@192.0.2.1')
})

test('a token that a plugin has checked stands for its organization, for a minute', () => {
  const { clock, tenants, of } = setUp()
  const token = bearer('eyJ.token.x')
  const first = request('192.0.2.1', token)
  tenants.of(first)
  tenants.learn(first, 'acme')
  assert.deepEqual([of('192.0.2.9', token), of('192.0.2.9', bearer('eyJ.other.x'))], ['acme', '@192.0.2.9'])
  clock.advance(60_000)
  assert.equal(of('192.0.2.9', token), '@192.0.2.9')
})

test('checked tokens are remembered up to a bound; the oldest are forgotten', () => {
  const { tenants, of } = setUp()
  const learn = (i: number) => {
    const incoming = request('192.0.2.1', bearer(`t${i}`))
    tenants.of(incoming)
    tenants.learn(incoming, 'acme')
  }
  for (let i = 0; i <= 10_000; i++) learn(i)
  assert.deepEqual([of('a', bearer('t0')), of('a', bearer('t1')), of('a', bearer('t10000'))], ['@a', 'acme', 'acme'])
})

test('once a plugin has found the organization, it is the tenant', () => {
  const exchange = (incoming: Incoming, organization?: string) => ({
    incoming,
    peek: ({ name }: { name: string }): any =>
      name === 'identity' && organization ? { organization: { id: organization } } : undefined,
  })
  const { tenants } = setUp()
  const incoming = request('192.0.2.1', bearer('sk-new'))
  assert.equal(tenantOf(exchange(incoming)), '@192.0.2.1')
  tenants.of(incoming)
  assert.equal(tenantOf(exchange(incoming, 'late')), 'late')
  const known = request('192.0.2.1', bearer('sk-known'))
  tenants.of(known)
  assert.equal(tenantOf(exchange(known)), 'acme', 'in a pipeline that asks for no key')
})
