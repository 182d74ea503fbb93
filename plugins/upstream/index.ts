import { conversation, definePlugin } from '../../core/plugin.ts'
import { LIMITED } from '../shared/safeguards.ts'
import { callReport, candidates, failedAttempts, model, preparing, servedBy } from '../shared/slots.ts'
import { type AttemptContext, Attempts } from './attempts.ts'
import { callOf } from './call.ts'
import { schema } from './options.ts'
import { Targets } from './targets.ts'
import { wireOf } from './wire.ts'

/**
 * Makes the call of a plan: sends the request to the first healthy candidate, and tries another only while nothing has
 * been sent to the client. It knows HTTP and no dialect: the layer `translation` is between its attempts and its
 * connections.
 */
export const upstream = definePlugin({
  name: 'upstream',
  summary: 'Calls the backend: sends the request that translation writes, and streams the decoded reply back.',
  config: schema,
  needs: [conversation, model, candidates],
  mayProvide: [callReport, failedAttempts],
  providesLate: [servedBy],
  terminal: true,
  calls: true,
  safeguards: () => [LIMITED],
  uses: ['providers', 'stream_limits'],
  create(options, { config, clock, log, random, shared }) {
    const targets = new Targets(config.providers, options, shared, clock)
    const context: AttemptContext = { options, targets, clock, log, random }
    return {
      forward(x, send) {
        x.peek(preparing)?.leave()
        x.control(send(callOf(x, config.stream_limits, options), x))
        return undefined
      },
      call: next => (call, sink) => new Attempts(call, sink, context, next).start(),
      wire: wireOf(targets),
      close: () => targets.close(),
    }
  },
})
