import { conversation, definePlugin, type Exchange } from '../../core/plugin.ts'
import { Ticker } from '../../core/tools/ticker.ts'
import { LIMITED } from '../shared/safeguards.ts'
import { sentConversation } from '../shared/sent-conversation.ts'
import {
  candidates,
  failedAttempts,
  model,
  outbound,
  preparing,
  promptTaken,
  searchPlan,
  servedBy,
} from '../shared/slots.ts'
import { OpenSearches } from '../web-search/provider.ts'
import { SearchLoop } from '../web-search/search-loop.ts'
import { type AttemptContext, Attempts } from './attempts.ts'
import { schema } from './options.ts'
import { clocksOf } from './stream-limits.ts'
import { Targets } from './targets.ts'

/** Milliseconds between two checks of the clocks of running attempts. */
const TICK_MS = 250

/**
 * Sends the request to the first healthy candidate and reads its reply; tries another only while nothing has been sent
 * to the client. It knows HTTP and no dialect: `outbound`, which `translation` fills, writes each attempt's request and
 * gives the decoder for the reply.
 */
export const upstream = definePlugin({
  name: 'upstream',
  summary: 'Calls the backend: sends the request that translation writes, and streams the decoded reply back.',
  config: schema,
  needs: [conversation, model, candidates, outbound],
  mayProvide: [failedAttempts, promptTaken],
  providesLate: [servedBy],
  terminal: true,
  safeguards: () => [LIMITED],
  uses: ['providers', 'stream_limits'],
  create(options, { config, clock, log, random, shared, searchProviders }) {
    const ticker = shared.use('ticker', () => new Ticker(clock, TICK_MS))
    const targets = new Targets(config.providers, options, shared, clock)
    const searches = new OpenSearches(config.providers, searchProviders, options.connect_timeout)
    const context: AttemptContext = { options, targets, ticker, clock, log, random }

    function attemptsOf(x: Exchange): Attempts {
      const clocks = clocksOf(x.get(conversation), x.get(model), config.stream_limits, options.first_byte_timeout)
      return new Attempts(x, clocks, context)
    }

    return {
      forward(x) {
        x.peek(preparing)?.leave()
        const attempts = attemptsOf(x)
        const plan = x.peek(searchPlan)
        if (!plan) attempts.send(undefined, x)
        else {
          const first = sentConversation(x)
          const provider = searches.of(plan.provider)
          new SearchLoop(x, first, attempts, { plan, provider, ticker, log }).start()
        }
        return undefined
      },
      async close() {
        await searches.close()
        await targets.close()
      },
    }
  },
})
