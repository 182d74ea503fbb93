/** What is open in a gateway, and whether it is ready, for the admin listener. */
import type { GatewayView, OpenNow } from '../../admin/view.ts'
import type { Listener } from '../../core/ports/listener.ts'
import type { Store } from '../../core/ports/store.ts'
import type { Ingress } from '../../http/ingress.ts'
import type { Shipping } from '../../stores/ship/background.ts'

export function openNow(ingress: Ingress, listener: Listener): OpenNow {
  return {
    get exchanges() {
      return ingress.running.size
    },
    get streams() {
      let open = 0
      for (const x of ingress.running) if (x.headSent) open++
      return open
    },
    get webSockets() {
      return ingress.webSockets
    },
    get connections() {
      return listener.connections
    },
    get overrunTunnels() {
      return listener.overrunTunnels
    },
    get overrunTurns() {
      return listener.overrunTurns
    },
  }
}

/** Ready: requests are served, the store answers, and nobody has asked for the end. */
export function readiness(
  ingress: Ingress,
  store: Store,
  shipping: Shipping | undefined,
  draining: () => boolean,
): GatewayView['ready'] {
  return async exclude => {
    if (draining()) return { ok: false, reason: 'draining' }
    if (exclude === 'store' && ingress.generation) return { ok: true }
    const state = await store.ready()
    const reason = state.reason ?? shipping?.waiting
    if (ingress.generation) return { ok: state.ok, ...(reason !== undefined && { reason }) }
    return { ok: false, reason: `starting${state.ok ? '' : `, and waiting for the store: ${state.reason}`}` }
  }
}
