import { definePlugin } from '../../core/plugin.ts'
import { count, duration, nullable, object, size, text } from '../../core/tools/vocabulary.ts'
import { leastOf } from '../shared/account-limits.ts'
import { type HostedSearch, hostedSearch, identity, plan as planSlot } from '../shared/slots.ts'
import { sharedTicker } from '../shared/ticker.ts'
import { searchToolOf, withSearchFunction } from './function-form.ts'
import { ModelSearch, searchBackend } from './model-search.ts'
import { OpenSearches } from './provider.ts'
import { SearchLoop } from './search-loop.ts'

const schema = object({
  provider: nullable(
    text(
      'What runs the searches: `simulator` (made-up pages), a name of `providers`, or a plugin. Not set: no search runs.',
      {
        minLength: 1,
      },
    ),
  ),
  model: nullable(
    text(
      'A model of the provider that searches by itself: each search is a small call to it. Not set: the provider is a search server.',
      { minLength: 1 },
    ),
  ),
  max_turns: count(8, 'Most rounds of searches for one request.', 1),
  max_searches: count(32, 'Most searches that the gateway makes for one request.', 1),
  max_results: size('256KiB', 'Most bytes of results that a model gets for one request; later searches get none.'),
  connect_timeout: duration('5s', 'Longest wait for a connection to a search server.'),
})

/**
 * Offers routing how a hosted search goes upstream: unchanged, or as a function. As a layer of the call it runs the calls
 * of that function, and continues a native search that its provider pauses (MSG-3).
 */
export const webSearch = definePlugin({
  name: 'web-search',
  summary: 'Runs web searches for backends without one of their own.',
  config: schema,
  provides: [hostedSearch],
  layers: ['call'],
  searchProvider: 'provider',
  aboveTerminal: true,
  dryRun: 'safe',
  uses: ['providers', 'models'],
  create({ provider, model, max_turns, max_searches, max_results, connect_timeout }, context) {
    const { clock, config, log, searchProviders, shared } = context
    const searches = new OpenSearches(config.providers, searchProviders, connect_timeout)
    const searching = model === null ? null : searchBackend(config, provider, model)
    // `searchProviderFault` says so where the configuration is loaded.
    const backend = typeof searching === 'string' ? null : searching
    const ticker = sharedTicker(shared, clock)
    const bounds = { maxTurns: max_turns, maxSearches: max_searches, maxResultBytes: max_results }
    const service: HostedSearch = {
      native(conversation) {
        const tool = searchToolOf(conversation)
        return tool ? { tool, name: null, provider, ...bounds } : null
      },
      asFunction(conversation) {
        const form = provider === null ? undefined : withSearchFunction(conversation)
        if (!form) return null
        const { tool, name } = form
        return { conversation: form.conversation, plan: { tool, name, provider, ...bounds } }
      },
    }
    return {
      onRequest(x) {
        x.set(hostedSearch, service)
        return undefined
      },
      callLayer: next => (call, sink) => {
        const search = call.facts.peek(planSlot)?.search
        if (!search) return next(call, sink)
        const caller = call.facts.peek(identity)
        const allowed = caller && leastOf('max_searches', caller, call.asked.model)
        const plan = { ...search, maxSearches: Math.min(search.maxSearches, allowed ?? Number.POSITIVE_INFINITY) }
        const answers = backend ? new ModelSearch(call, next, backend) : searches.of(search.provider)
        const options = { plan, provider: answers, ticker, log }
        return new SearchLoop(call, sink, next, options).start()
      },
      close: () => searches.close(),
    }
  },
})
