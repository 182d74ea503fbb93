/** What the admin listener asks of a gateway: of this one, or of all workers through their primary process. */
import { AccountReader } from '../../admin/accounts.ts'
import { answerApi, noteRefusedToken } from '../../admin/api.ts'
import type { Metrics } from '../../admin/metrics.ts'
import type { Observer } from '../../admin/observer.ts'
import { type Admin, startAdmin } from '../../admin/server.ts'
import { Snapshots } from '../../admin/snapshot.ts'
import type { GatewayView } from '../../admin/view.ts'
import type { WorkerSources } from '../../admin/worker-api.ts'
import type { AdminConfig, GatewayConfig } from '../../config/types.ts'
import { directoryOf } from '../../plugins/shared/directory.ts'

export function adminSources(
  view: GatewayView,
  metrics: Metrics,
  { recent, troubles, use, incidents }: Observer,
  route: WorkerSources['route'],
): WorkerSources {
  const { clock, store, current, shared, accounts, ready } = view
  metrics.expose(view)
  const organizations = (): GatewayConfig['organizations'] => {
    const all = { ...current.config.organizations }
    for (const id of use.organizations()) {
      const stored = Object.hasOwn(all, id) ? null : directoryOf(shared).organization(id)
      if (stored) all[id] = stored
    }
    return all
  }
  const reader = new AccountReader(store, use)
  return {
    registry: metrics.registry,
    snapshots: new Snapshots({ view, metrics, recent, troubles, use, incidents, organizations }),
    recent,
    use,
    reader,
    organizations,
    tokens: () => current.config.server.admin.tokens,
    api: { store, config: () => current.config, reader, now: () => clock.now() },
    ready,
    route,
    usersOf: names => accounts.usersOf(names),
  }
}

/** @param listen overrides the address of the configuration */
export function openAdmin(
  sources: WorkerSources,
  admin: AdminConfig,
  listen: { host?: string; port?: number } = {},
): Promise<Admin> {
  const { registry, snapshots, tokens, api, ready, route } = sources
  return startAdmin({
    host: listen.host ?? admin.host,
    port: listen.port ?? admin.port,
    token: admin.token,
    localToken: admin.localToken,
    tokens,
    api: (caller, request, path, query) => answerApi(api, caller, request, path, query),
    tokenRefused: address => noteRefusedToken(api, address),
    hosts: admin.hosts,
    registry,
    metrics: () => registry.metrics(),
    snapshots,
    ready,
    route,
  })
}
