/** mirror: which requests are copied. test/e2e/mirror.test.ts has what becomes of the copies. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { registerPluginHooks } from '../../../config/modules.ts'
import { candidates, identity } from '../../../plugins/shared/slots.ts'
import { backend } from '../../plugins/kit.ts'

// With them a file can import `sluice`.
registerPluginHooks()
const { runPlugin } = await import('sluice/testing')
const { slot } = await import('sluice')
const { default: plugin } = await import('../../../plugins/extra/mirror.ts')

const [one, two, next] = ['one', 'two', 'next'].map(model => ({ ...backend(), id: `p/${model}`, model }))
/** Null once the copy was sent. */
const chosen = slot<object | null>('mirror.backend')

async function after(config: object, backends = [next, one, two], org = 'acme') {
  const run = await runPlugin(plugin, {
    config: { backend: 'p/next', ...config },
    slots: [
      [identity, { organization: { id: org }, key: { id: 'k' } }],
      [candidates, backends],
    ],
  } as never)
  return [run.exchange.get(candidates).map(({ id }) => id), run.exchange.peek(chosen) === null] as const
}

test('the backend serves no client, whether the request is copied or not', async () => {
  assert.deepEqual(await after({ share: 1 }), [['p/one', 'p/two'], true])
  assert.deepEqual(await after({ share: 0 }), [['p/one', 'p/two'], false])
  assert.deepEqual(await after({ share: 1, organizations: ['other'] }), [['p/one', 'p/two'], false])
  assert.deepEqual(await after({ share: 1, organizations: ['other', 'acme'] }), [['p/one', 'p/two'], true])
})

test('where it serves alone, or cannot serve, nothing is copied', async () => {
  assert.deepEqual(await after({ share: 1 }, [next]), [['p/next'], false])
  assert.deepEqual(await after({ share: 1 }, [one, two]), [['p/one', 'p/two'], false])
})

test('a backend that no model has does not load', () => {
  const models = { m: { backends: [one] } }
  const check = (id: string) => plugin.check!({ backend: id, share: 1 } as never, { models } as never)
  assert.deepEqual(check('p/one'), [])
  assert.match(check('p/other')[0]!, /no model has the backend 'p\/other'; backends: p\/one/)
})
