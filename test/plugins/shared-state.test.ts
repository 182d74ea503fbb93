/**
 * A plugin's shared state is its own. There was one name space for all: a plugin above `admission` that made
 * `platform` first gave it a value of another shape, and with `running` as NaN no request was ever refused for
 * `platform.max_concurrent_requests`.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { conversation, definePlugin, estimate, usage } from '../../core/plugin.ts'
import { admission } from '../../plugins/admission/index.ts'
import { mediaGate } from '../../plugins/media/index.ts'
import { accountsOf, Directory, directoryOf } from '../../plugins/shared/directory.ts'
import { Preparation, preparationOf } from '../../plugins/shared/preparation.ts'
import { identity, model } from '../../plugins/shared/slots.ts'
import { createSharedState, ManualClock, plainConversation, runPlugin } from '../../plugins/testing.ts'
import { upstreamHealth } from '../../plugins/upstream/health.ts'
import { caller, gatewayOf, memoryStore, modelOf, platformOf, text } from './kit.ts'

const KEYS = ['directory', 'accounts', 'preparation', 'media.fetching']
  .concat(['upstream.backends', 'upstream.pools', 'upstream.retries', 'upstream.ticker', 'ticker', 'upstream/ticker'])
  .concat(['platform', 'admission/platform', '/platform', '../admission/platform'])

/** Makes a value of another shape under each key before anybody else does. */
const squatter = definePlugin({
  name: 'squatter',
  summary: '',
  create: (_, { shared }) => {
    for (const key of KEYS) shared.use(key, () => ({ ios: 0, web: 0 }))
    return {}
  },
})

test("a plugin that comes first under the gateway's keys does not set the platform's limit aside", async () => {
  const shared = createSharedState()
  await runPlugin(squatter, { shared, events: [text('hi')] })

  const clock = new ManualClock()
  const store = await memoryStore(clock)
  const gateway = gatewayOf({ platform: platformOf({ max_concurrent_requests: 1, scale_limits_above: 1 }) })
  const ask = (id: string, events: Parameters<typeof runPlugin>[1] = {}) =>
    runPlugin<any>(admission, {
      ...{ id, gateway, store, shared, clock, events: [text('hi')] },
      slots: [
        [identity, caller()],
        [model, modelOf()],
        [estimate, { input: 10 }],
        [conversation, plainConversation()],
        [usage, { usage: { input: 10, cached: 0, output: 5 }, cost: 30_000, billed: true }],
      ],
      ...events,
    })
  let go = () => {}
  const first = ask('req_1', { events: [x => void (go = x.hold()), text('slow')] })
  const second = await ask('req_2')
  assert.deepEqual([second.status, second.json.error.code], [429, 'capacity_exceeded'])
  go()
  assert.equal((await first).status, 200)
  assert.equal((await ask('req_3')).status, 200)
})

test("nor does it get in place of the gateway's directory, budget, gate and backends", async () => {
  const shared = createSharedState()
  await runPlugin(squatter, { shared, events: [text('hi')] })
  assert.ok(directoryOf(shared) instanceof Directory)
  assert.ok(preparationOf(shared) instanceof Preparation)
  assert.equal(typeof mediaGate(shared).enter, 'function')
  assert.deepEqual(upstreamHealth(shared, 0).backends, [])
  const config = { organizations: {}, plans: {}, models: {} }
  assert.equal(accountsOf(shared, config), accountsOf(shared, config))
})
