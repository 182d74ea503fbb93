/** Answers `POST /route` of the admin listener. */
import type { RouteRequest } from '../../admin/server.ts'
import type { SurfaceName } from '../../core/canon/conversation.ts'
import type { SharedState } from '../../core/plugin.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { directoryOf } from '../../plugins/shared/directory.ts'
import { sharedBackends } from '../../plugins/upstream/health.ts'
import { surfaces } from '../../surfaces/index.ts'
import { routeReport, withModel } from '../route-report.ts'
import { Failure } from '../terminal.ts'
import type { CurrentConfig } from './current.ts'

/** The report of `sluice route` for the configuration that serves, with the present health of its backends. */
export async function answerRoute(
  current: CurrentConfig,
  shared: SharedState,
  clock: Clock,
  { surface = 'chat', model, organization, key, body: sent }: RouteRequest,
): Promise<{ report: unknown } | { fault: string }> {
  if (!Object.hasOwn(surfaces, surface)) return { fault: `there is no surface '${surface}'` }
  const backends = sharedBackends(shared)
  const now = clock.mono()
  try {
    const body = model === undefined ? sent : withModel(sent, model, 'the body')
    const question = { surface: surface as SurfaceName, body, organization, key }
    const outOf = (backend: string, organization: string) =>
      backends.leavesOut(backend, organization, now)
        ? 'it is out: its breaker is open, or it asked for a pause'
        : undefined
    const config = structuredClone(current.config)
    const stored = organization === undefined ? null : directoryOf(shared).organization(organization)
    if (stored) config.organizations[stored.id] ??= structuredClone(stored)
    return { report: await routeReport(config, current.plugins, current.path, question, outOf) }
  } catch (error) {
    if (error instanceof Failure) return { fault: error.message }
    throw error
  }
}
