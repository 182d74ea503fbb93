/** `admission`: what a request that names no cap may cost of what is left to spend (decisions 50). */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { conversation, estimate, usage } from '../../core/plugin.ts'
import { admission } from '../../plugins/admission/index.ts'
import { capWithin, isPlentiful } from '../../plugins/admission/output-cap.ts'
import { identity, model, reservation } from '../../plugins/shared/slots.ts'
import { createSharedState, ManualClock, plainConversation, runPlugin } from '../../plugins/testing.ts'
import { caller, gatewayOf, memoryStore, modelOf, text } from './kit.ts'

// A prompt of 10 tokens costs 10,000 nano-USD, and a token of the reply 4000. Only a test through a whole gateway
// noticed a share of another size.
test('the cap that is sent costs a quarter of what is left, prompt included, and what is reserved at least', async () => {
  const clock = new ManualClock()
  const store = await memoryStore(clock)
  const shared = createSharedState()
  const who = caller({ limits: { daily_spend_usd: 40_000_000 } })
  let sent = 0
  const ask = async (cost: number) => {
    const run = await runPlugin(admission, {
      ...{ id: `req_${++sent}`, config: { output_reserve: 100 }, gateway: gatewayOf(), store, shared, clock },
      events: [text('hi')],
      slots: [
        [identity, who],
        [model, modelOf({ context_window: 1_000_000 })],
        [estimate, { input: 10 }],
        [conversation, plainConversation()],
        [usage, { usage: { input: 10, cached: 0, output: 5 }, cost, billed: true }],
      ],
    })
    assert.equal(run.status, 200)
    assert.equal(run.exchange.get(reservation).output, 100)
    return run.exchange.get(reservation).cap
  }
  assert.equal(await ask(20_000_000), 2497, 'a quarter of 40 million, less the prompt')
  assert.equal(await ask(18_000_000), 1247)
  assert.equal(await ask(30_000), 122, 'a quarter of 2 million')
  assert.equal(await ask(30_000), 120)
})

test('a share that pays for less than the reserve sends the reserve, and one that pays for all sends all', () => {
  const price = { input: 1_000_000, output: 4_000_000 }
  const none = { input: 0, output: 0, cost: 0 }
  assert.equal(capWithin(1_000_000, { reserve: 100, most: 1000 }, 10, price, none), 100)
  assert.equal(capWithin(40_000_000, { reserve: 100, most: 1000 }, 10, price, none), 1000)
})

test('what is left pays for the whole cap only with a margin of as much again', () => {
  assert.deepEqual([isPlentiful(8000, 1000), isPlentiful(7999, 1000)], [true, false])
})
