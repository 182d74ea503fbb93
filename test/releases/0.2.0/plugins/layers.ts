/** A plugin as release 0.2.0 documents them with a layer in each place around the call of a model. */
import { type AttemptLayer, type CallLayer, definePlugin, type WireLayer } from 'sluice'

export default definePlugin({
  name: 'layers',
  summary: 'Passes a call on, and counts what passes.',
  layers: ['call', 'attempt', 'wire'],
  create(_, { log }) {
    const callLayer: CallLayer = next => (call, sink) => {
      log.info({ tokens: call.input, candidates: call.candidates.length }, 'layers called')
      return next(call, sink)
    }
    const attemptLayer: AttemptLayer = next => (call, sink) => {
      log.info({ backend: call.backend.id }, 'layers tried')
      return next(call, sink)
    }
    const wireLayer: WireLayer = next => (request, handler) => {
      next({ ...request, own: { ...request.own, 'x-layers': request.method } }, handler)
    }
    return { callLayer, attemptLayer, wireLayer }
  },
})
