/** canary: which requests get the backend, and that they keep it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { registerPluginHooks } from '../../../config/modules.ts'
import { candidates, identity } from '../../../plugins/shared/slots.ts'
import { backend } from '../../plugins/kit.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { plainConversation, runPlugin } = await import('sluice/testing')
const { conversation } = await import('sluice')
const { default: plugin } = await import('../../../plugins/extra/canary.ts')

const [one, two, next] = ['one', 'two', 'next'].map(model => ({ ...backend(), id: `p/${model}`, model }))

async function orderOf(
  config: object,
  who: { org?: string; key?: string; words?: string },
  backends = [one, next, two],
) {
  const said = plainConversation({
    turns: [{ role: 'user', parts: [{ type: 'text', text: who.words ?? 'hello' }] }],
  } as never)
  const caller = { organization: { id: who.org ?? 'acme' }, key: { id: who.key ?? 'k' } }
  const run = await runPlugin(plugin, {
    config: { backend: 'p/next', ...config },
    slots: [
      [identity, caller],
      [conversation, said],
      [candidates, backends],
    ],
  } as never)
  return run.exchange.get(candidates).map(({ id }) => id)
}
/** How many of a thousand get it. */
async function share(config: object, who: (n: number) => object): Promise<number> {
  let chosen = 0
  for (let n = 0; n < 1000; n++) if ((await orderOf(config, who(n)))[0] === 'p/next') chosen++
  return chosen
}

test('it gets its share first and nothing else; the others stay in their order behind it', async () => {
  assert.deepEqual(await orderOf({ share: 1 }, {}), ['p/next', 'p/one', 'p/two'])
  assert.deepEqual(await orderOf({ share: 0 }, {}), ['p/one', 'p/two'])
  const chosen = await share({ share: 0.1 }, n => ({ words: `conversation ${n}` }))
  assert.ok(chosen > 60 && chosen < 140, String(chosen))
})

test('where it serves alone, or not at all, there is no choice', async () => {
  assert.deepEqual(await orderOf({ share: 0 }, {}, [next]), ['p/next'])
  assert.deepEqual(await orderOf({ share: 1 }, {}, [one, two]), ['p/one', 'p/two'])
})

test('a conversation, a key or an organization stays on its side, and a larger share adds to a smaller one', async () => {
  for (let n = 0; n < 50; n++) {
    const words = `conversation ${n}`
    const small = (await orderOf({ share: 0.2 }, { words }))[0]
    assert.equal((await orderOf({ share: 0.2 }, { words }))[0], small)
    if (small === 'p/next') assert.equal((await orderOf({ share: 0.6 }, { words }))[0], 'p/next')
  }
  // By key, what is said makes no difference; by organization the key makes none either.
  const by = async (what: string, one: object, other: object) => {
    for (let n = 0; n < 30; n++) {
      const first = await orderOf({ share: 0.5, by: what }, { org: `o${n}`, ...one })
      assert.deepEqual(await orderOf({ share: 0.5, by: what }, { org: `o${n}`, ...other }), first)
    }
  }
  await by('key', { words: 'a' }, { words: 'b' })
  await by('organization', { key: 'a' }, { key: 'b' })
  const keys = await share({ share: 0.5, by: 'key' }, n => ({ key: `k${n}` }))
  assert.ok(keys > 420 && keys < 580, String(keys))
})

test('a backend that no model has does not load', () => {
  const models = { m: { backends: [one] } }
  const check = (id: string) => plugin.check!({ backend: id, share: 1, by: 'key' }, { models } as never)
  assert.deepEqual(check('p/one'), [])
  assert.match(check('p/other')[0]!, /no model has the backend 'p\/other'; backends: p\/one/)
})
