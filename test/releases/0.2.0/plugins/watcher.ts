/** A plugin as release 0.2.0 documents them that sees the events and changes none. */
import { definePlugin, slot } from 'sluice'

const events = slot<number>('watcher.events')

export default definePlugin({
  name: 'watcher',
  summary: 'Counts events.',
  mayProvide: [events],
  create: (_, { log }) => ({
    onEvent(x, event) {
      if (event.type === 'text') x.set(events, (x.peek(events) ?? 0) + 1)
      return undefined
    },
    onSettle(x) {
      log.info({ events: x.peek(events) }, 'watcher settled')
      return undefined
    },
  }),
})
