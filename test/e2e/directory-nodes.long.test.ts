/** Accounts of the store behind sentinels, over a failover, and on a cluster: two gateways on each. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import type { AccountStore } from '../../core/ports/accounts.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { eventually } from '../eventually.ts'
import { skipWithoutRedis as skip, startCluster, startFailoverSet } from '../stores/redis-server.ts'
import { defaultYaml, sha256, startGateway, type TestGateway } from './harness.ts'

const [FIRST, SECOND, UNUSED, NEW] = ['sk-stored-1', 'sk-stored-2', 'sk-stored-3', 'sk-stored-4'] as const
const CHAT = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hi' }] }

async function status(gateway: TestGateway, secret: string): Promise<number> {
  const reply = await gateway.post('/v1/chat/completions', CHAT, { authorization: `Bearer ${secret}` })
  await reply.text()
  return reply.status
}
const everywhere = (gateways: TestGateway[], secret: string, expected: number): Promise<void> =>
  eventually(
    async () => {
      for (const gateway of gateways) if ((await status(gateway, secret)) !== expected) return false
      return true
    },
    () => Promise.all(gateways.map(gateway => status(gateway, secret))),
  )

async function serve(t: TestContext, url: string): Promise<{ gateways: TestGateway[]; accounts: AccountStore }> {
  const gateways: TestGateway[] = []
  const opened = await openAccounts(url)
  t.after(async () => {
    await opened.close()
    for (const gateway of gateways) await gateway.close()
  })
  const yaml = (sim: string) => defaultYaml(sim, { store: `{ url: "${url}", timeout: 10s }` })
  for (let i = 0; i < 2; i++) gateways.push(await startGateway({ yaml }))
  return { gateways, accounts: opened.accounts }
}

/** Adds or changes one key of an organization on a plan without limits, as the command line does. */
async function setKey(accounts: AccountStore, id: string, secret: string, settings: object = {}): Promise<void> {
  const before = await accounts.read(id)
  const key = { id: secret, sha256: sha256(secret), settings: JSON.stringify(settings) }
  const [result] = await accounts.change([
    { id, expected: before?.version ?? 0, settings: '{"plan":"custom"}', keys: [key] },
  ])
  assert.equal(result!.refused, undefined)
}

test('behind sentinels: keys in memory are served while the master is out; after the failover all are, and changes take effect', {
  skip,
}, async t => {
  const set = await startFailoverSet()
  t.after(() => set.stop())
  const { gateways, accounts } = await serve(t, set.url)
  for (const secret of [FIRST, SECOND, UNUSED]) await setKey(accounts, 'stored', secret)
  for (const secret of [FIRST, SECOND]) await everywhere(gateways, secret, 200)

  await set.replicated()
  await set.master.down()
  for (const gateway of gateways) {
    assert.equal(await status(gateway, UNUSED), 503, 'nobody can tell whose key this is')
    assert.equal(await status(gateway, FIRST), 200)
  }

  await everywhere(gateways, UNUSED, 200)
  await eventually(() =>
    setKey(accounts, 'stored', FIRST, { status: 'revoked' }).then(
      () => true,
      () => false,
    ),
  )
  await everywhere(gateways, FIRST, 401)
  await setKey(accounts, 'new', NEW)
  await everywhere(gateways, NEW, 200)
  await everywhere(gateways, SECOND, 200)
})

test('on a cluster: accounts are found from every gateway, and changes take effect in each', { skip }, async t => {
  const nodes = await startCluster(t)
  const { gateways, accounts } = await serve(t, `redis+cluster://127.0.0.1:${nodes[2]!.port}`)
  // Their levels and ledger rows are on all nodes, their accounts on one.
  const organizations = Array.from({ length: 12 }, (_, i) => `org-${i}`)
  for (const id of organizations) await setKey(accounts, id, `sk-of-${id}`)
  for (const id of organizations) await everywhere(gateways, `sk-of-${id}`, 200)
  for (const id of organizations.slice(6)) await setKey(accounts, id, `sk-of-${id}`, { status: 'revoked' })
  for (const [i, id] of organizations.entries()) await everywhere(gateways, `sk-of-${id}`, i < 6 ? 200 : 401)
  await everywhere(gateways, 'sk-of-nobody', 401)
})
