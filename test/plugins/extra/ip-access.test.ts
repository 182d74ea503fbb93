/** ip-access: who may call, by address; that the listener's own rule finds the address, test/listener has. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { registerPluginHooks } from '../../../config/modules.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { runPlugin } = await import('sluice/testing')
const { default: plugin } = await import('../../../plugins/extra/ip-access.ts')

async function statusOf(config: object, remoteAddress: string): Promise<number> {
  const run = await runPlugin(plugin, { config, request: { remoteAddress } } as never)
  if (run.status === 403) assert.equal(run.json.error.code, 'address_not_allowed')
  return run.status
}

test('an address outside of allow is refused, and one of deny even inside of it', async () => {
  const config = { allow: ['203.0.113.0/24', '2001:db8::/32'], deny: ['203.0.113.66', '2001:db8:bad::/48'] }
  for (const [address, status] of [
    ['203.0.113.7', 200],
    ['203.0.113.66', 403],
    ['203.0.114.1', 403],
    ['::ffff:203.0.113.7', 200],
    ['::FFFF:203.0.113.66', 403],
    ['2001:db8::1', 200],
    ['2001:db8:bad::1', 403],
    ['2001:db9::1', 403],
    ['fe80::1%eth0', 403],
    ['', 403],
    ['unix', 403],
  ] as const)
    assert.equal(await statusOf(config, address), status, address)
})

test('deny alone lets all others in, and nobody whose address cannot be read', async () => {
  const config = { deny: ['10.0.0.0/8', '::1'] }
  for (const [address, status] of [
    ['10.1.2.3', 403],
    ['::1', 403],
    ['11.0.0.1', 200],
    ['2001:db8::1', 200],
    ['', 403],
  ] as const)
    assert.equal(await statusOf(config, address), status, address)
})

test('what is no network does not load, and neither does a list of nobody', () => {
  const faults = (config: object) => plugin.check!({ allow: [], deny: [], ...config }, {} as never)
  assert.deepEqual(faults({ allow: ['10.0.0.0/8'], deny: ['::ffff:10.0.0.1', 'fe80::/10'] }), [])
  assert.equal(faults({}).length, 1)
  for (const text of [
    '10.0.0.0/33',
    '10.0.0',
    '2001:db8::/129',
    'localhost',
    '::ffff:10.0.0.0/104',
    '10.0.0.0/',
    ' 1.2.3.4',
  ])
    assert.match(faults({ deny: [text] })[0]!, /is no address and no network/, text)
})

test('any address and network: as the arithmetic says', async () => {
  const octet = fc.nat(255)
  const address = fc.tuple(octet, octet, octet, octet)
  await fc.assert(
    fc.asyncProperty(address, address, fc.nat(32), async (one, net, bits) => {
      const number = (parts: readonly number[]) => parts.reduce((sum, part) => sum * 256 + part, 0)
      const size = 2 ** (32 - bits)
      const inside = Math.floor(number(one) / size) === Math.floor(number(net) / size)
      const allow = [`${net.join('.')}/${bits}`]
      assert.equal((await statusOf({ allow }, one.join('.'))) === 200, inside)
      assert.equal((await statusOf({ allow }, `::ffff:${one.join('.')}`)) === 200, inside)
    }),
    { numRuns: 50 },
  )
})
