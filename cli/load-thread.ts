/**
 * The thread in which a reload reads, parses and checks the configuration, so that a large file does not hold up the
 * event loop. It answers a `LoadTask` with a `Head`, and each `next` with a `Slice`.
 */
import { parentPort } from 'node:worker_threads'
import type { ConfigError } from '../config/load.ts'
import type { GatewayConfig, OrganizationConfig } from '../config/types.ts'
import { load } from './load.ts'

export interface LoadTask {
  path: string
  generation: number
  env: Record<string, string | undefined> | undefined
}

/** The first answer: all but the organizations. Either `config` or `errors` is set. */
export interface Head {
  warnings: ConfigError[]
  unset: ConfigError[]
  files: string[]
  errors?: ConfigError[]
  /** `organizations` is empty. */
  config?: GatewayConfig
}
/** Further answers: organizations in the order of the file. None: there are no more. */
export type Slice = OrganizationConfig[]

/** The receiver needs about a millisecond for this many. */
const SLICE = 100

const port = parentPort!
let organizations: OrganizationConfig[] = []
let sent = 0
port.on('message', async (asked: LoadTask | 'next') => {
  if (asked === 'next') {
    port.postMessage(organizations.slice(sent, sent + SLICE) satisfies Slice)
    sent += SLICE
    if (sent - SLICE >= organizations.length) organizations = []
    return
  }
  const { path, generation, env } = asked
  const loaded = await load(path, { env, generation })
  const { warnings, files } = loaded
  if (loaded.errors) return port.postMessage({ warnings, files, unset: [], errors: loaded.errors } satisfies Head)
  const { config, unset } = loaded
  organizations = Object.values(config.organizations)
  sent = 0
  port.postMessage({ warnings, files, unset, config: { ...config, organizations: {} } } satisfies Head)
})
