import type { Exchange } from '../../core/plugin.ts'

/** A signal that is aborted when the client disconnects: for work that threads do, and for waiting. */
export function disconnection(x: Pick<Exchange, 'incoming'>): AbortSignal {
  const disconnected = new AbortController()
  x.incoming.onAborted(() => disconnected.abort())
  return disconnected.signal
}
