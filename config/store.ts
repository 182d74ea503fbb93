/** Reads `store` and `ledger`, and checks what the other sections ask of a store. */
import { dirname, join } from 'node:path'
import type { PipelineEntry } from '../core/engine/chain.ts'
import type { StoreBound } from '../core/plugin.ts'
import type { PluginCatalog } from './check-chain.ts'
import type { Report } from './report.ts'
import { type Sections, ship, storeMembers } from './schema.ts'
import type { ConfigSource } from './source.ts'
import type { GatewayConfig, ServerConfig } from './types.ts'
import { defaultsOf } from './validate.ts'

/** The store with an absolute path. */
export function readStore(raw: Sections['store'], source: ConfigSource): GatewayConfig['store'] {
  const store = typeof raw === 'string' ? { ...defaultsOf(storeMembers), url: raw } : raw
  const folder = /^local(?::(.+))?$/s.exec(store.url)
  if (folder) return { ...store, url: `local:${source.resolvePath(['store'], folder[1] ?? './data')}` }
  const file = /^sqlite:(?!:memory:)(.+)$/s.exec(store.url)?.[1]
  return file === undefined ? store : { ...store, url: `sqlite:${source.resolvePath(['store'], file)}` }
}

/**
 * The folder of a target is relative to the file that names it. The ledger of a local store is in memory, so its rows go
 * to files where they are told to go nowhere else.
 */
export function readLedger(
  ledger: Sections['ledger'],
  store: GatewayConfig['store'],
  source: ConfigSource,
): GatewayConfig['ledger'] {
  if (!ledger.ship && store.url.startsWith('local:'))
    return { ...ledger, ship: { ...defaultsOf(ship), to: `file:${store.url.slice('local:'.length)}/ledger` } }
  const folder = /^file:(.+)$/s.exec(ledger.ship?.to ?? '')?.[1]
  if (!ledger.ship || folder === undefined) return ledger
  return { ...ledger, ship: { ...ledger.ship, to: `file:${source.resolvePath(['ledger', 'ship', 'to'], folder)}` } }
}

/**
 * The keys of receipts: those of the list, or of a folder that is beside the data of the store unless one is named.
 * Gateways on one Redis share no folder unless they say so.
 */
export function readReceipts(
  { folder, keys }: Sections['receipts'],
  { url }: GatewayConfig['store'],
  source: ConfigSource,
  report: Report,
): GatewayConfig['receipts'] {
  if (folder !== undefined && keys.length > 0)
    report.error(['receipts'], 'name a folder or list keys, and not both: the folder has its own keys')
  if (keys.length > 0) return { folder: null, keys, fault: null }
  if (folder !== undefined) return { folder: source.resolvePath(['receipts', 'folder'], folder), keys, fault: null }
  const beside = /^local:(.+)$/s.exec(url)?.[1] ?? (/^sqlite:(?!:memory:)(.+)$/s.exec(url) && dirname(url.slice(7)))
  if (beside) return { folder: join(beside, 'receipt-keys'), keys, fault: null }
  const shared = !url.startsWith('sqlite:')
  const fault = shared
    ? 'gateways that share this store have to sign with the same keys: list them in receipts.keys, or name a folder that all of them share in receipts.folder'
    : null
  return { folder: null, keys, fault }
}

/** A look for new rows, and a try to reach a target that is out, cost something; more often than this is a mistake. */
const LEAST_INTERVAL_MS = 1000

export function checkLedger({ keep, ship }: Sections['ledger'], store: GatewayConfig['store'], report: Report): void {
  if (keep === null && ship && store.url.startsWith('local:'))
    report.warn(
      ['ledger', 'keep'],
      'ledger rows stay in the memory of the local store for ever, about 200 MB a million, and a full store refuses; set how long they are kept, e.g. 30d, or leave out `ship`: then they go to files',
    )
  if (!ship) return
  if (store.url === 'sqlite::memory:')
    report.error(['ledger', 'ship'], 'a ledger in memory cannot be shipped; name a file or a Redis in `store`')
  if (ship.interval < LEAST_INTERVAL_MS) report.error(['ledger', 'ship', 'interval'], 'at least 1s')
}

/** An option that bounds the store: its name, such as `idempotency.max_record`, and its value where a pipeline sets it. */
export interface StoreSetting {
  name: string
  bound: StoreBound
  value: unknown
}

/** The bounds of the store that options of plugins set: those of a plugin's first entry in any pipeline. */
export function storeSettings(pipelines: Record<string, PipelineEntry[]>, plugins: PluginCatalog): StoreSetting[] {
  const entries = Object.values(pipelines).flat()
  return [...plugins.keys()].flatMap(plugin => {
    const entry = entries.find(candidate => candidate.plugin === plugin)
    return Object.entries(plugins.get(plugin)?.storeBounds ?? {}).map(([option, bound]) => ({
      name: `${plugin}.${option}`,
      bound,
      value: entry?.config[option],
    }))
  })
}

/** Reports entries of a plugin that give the one store different bounds. */
export function checkBounds(pipelines: Record<string, PipelineEntry[]>, plugins: PluginCatalog, report: Report): void {
  for (const entry of Object.values(pipelines).flat()) {
    for (const option of Object.keys(plugins.get(entry.plugin)?.storeBounds ?? {})) {
      const differs = Object.entries(pipelines).find(([, entries]) =>
        entries.some(({ plugin, config }) => plugin === entry.plugin && config[option] !== entry.config[option]),
      )
      if (!differs) continue
      const rule = `${option} bounds the store that all pipelines share`
      const message = `${entry.id}: ${rule}, and pipeline ${differs[0]} sets another. Give both the same.`
      report.push({ ...entry.at, message })
    }
  }
}

/** A store that several workers cannot share is one for a single worker. */
export function checkWorkers({ workers }: ServerConfig, { url }: GatewayConfig['store'], report: Report): void {
  if (workers === 1 || !url.startsWith('sqlite:')) return
  report.error(
    ['server', 'workers'],
    `${workers} workers cannot share an sqlite store: each would count limits by itself, and N workers would admit N times as much. Use workers: 1, or store: local, or a redis store`,
  )
}
