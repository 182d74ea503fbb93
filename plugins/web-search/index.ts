import { definePlugin } from '../../core/plugin.ts'
import { count, nullable, object, size, text } from '../../core/tools/vocabulary.ts'
import { type HostedSearch, hostedSearch } from '../shared/slots.ts'
import { searchToolOf, withSearchFunction } from './function-form.ts'

const schema = object({
  provider: nullable(
    text(
      'What runs the searches: `simulator` (made-up pages), a name of `providers`, or a plugin. Not set: no search runs.',
      {
        minLength: 1,
      },
    ),
  ),
  max_turns: count(8, 'Most rounds of searches for one request.', 1),
  max_searches: count(32, 'Most searches that the gateway makes for one request.', 1),
  max_results: size('256KiB', 'Most bytes of results that a model gets for one request; later searches get none.'),
})

/** Provides how a hosted search goes upstream: unchanged, or as a function whose calls the gateway runs (MSG-3). */
export const webSearch = definePlugin({
  name: 'web-search',
  summary: 'Runs web searches for backends without one of their own.',
  config: schema,
  provides: [hostedSearch],
  aboveTerminal: true,
  dryRun: 'safe',
  create({ provider, max_turns, max_searches, max_results }) {
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
    }
  },
})
