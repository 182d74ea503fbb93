/** `web-search`: in which forms a hosted search can go upstream, and who answers it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Tool } from '../../core/canon/conversation.ts'
import { hostedSearch } from '../../plugins/shared/slots.ts'
import { plainConversation, runPlugin } from '../../plugins/testing.ts'
import { webSearch } from '../../plugins/web-search/index.ts'

const search: Tool = { type: 'web_search', path: 'tools[0]' }
const mine: Tool = { type: 'function', name: 'web_search', parameters: {}, path: 'tools[1]' }
const asked = (...tools: Tool[]) => plainConversation({ tools })

async function service(config: { provider?: string | null; max_turns?: number } = {}) {
  const run = await runPlugin(webSearch, { config, events: [{ type: 'finish', reason: 'stop' }] })
  return run.exchange.get(hostedSearch)
}

const BOUNDS = { maxSearches: 32, maxResultBytes: 256 * 1024 }

test('[MSG-3] a request without a hosted search has no plan', async () => {
  const hosted = await service({ provider: 'simulator' })
  assert.equal(hosted.native(asked(mine)), null)
  assert.equal(hosted.asFunction(asked(mine)), null)
})

test('[MSG-3] a backend that searches by itself is sent the search as it is', async () => {
  const plan = (await service({ provider: 'simulator', max_turns: 3 })).native(asked(search))
  assert.deepEqual(plan, { tool: search, name: null, provider: 'simulator', maxTurns: 3, ...BOUNDS })
})

test('[MSG-3] for others it is a function, which the named provider answers', async () => {
  const { conversation, plan } = (await service({ provider: 'searxng' })).asFunction(asked(search))!
  assert.deepEqual(plan, { tool: search, name: 'web_search', provider: 'searxng', maxTurns: 8, ...BOUNDS })
  assert.deepEqual(
    conversation.tools.map(tool => [tool.type, 'name' in tool && tool.name]),
    [['function', 'web_search']],
  )
})

test("[MSG-3] the function gives way to a tool of the client's", async () => {
  const { plan } = (await service({ provider: 'searxng' })).asFunction(asked(search, mine))!
  assert.equal(plan.name, 'web_search_2')
})

test('[MSG-3] where nobody answers searches there is no function', async () => {
  const hosted = await service()
  assert.equal(hosted.asFunction(asked(search)), null)
  assert.equal(hosted.native(asked(search))!.provider, null)
})
