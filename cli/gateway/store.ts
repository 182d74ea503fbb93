/** Opens what a gateway keeps its state in: the store, its secret, and what ships its ledger. */
import { randomUUID } from 'node:crypto'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { storeSettings } from '../../config/store.ts'
import type { GatewayConfig } from '../../config/types.ts'
import { StoreRefused, StoreUnavailable } from '../../core/canon/errors.ts'
import type { Logger } from '../../core/plugin.ts'
import type { Store } from '../../core/ports/store.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { DRAIN_TAIL, drainOf, holdsDrained } from '../../stores/redis/drained.ts'
import { Shipping } from '../../stores/ship/background.ts'
import { checkTarget, nameOfTarget } from '../../stores/ship/ship.ts'
import type { Loaded } from '../problems.ts'

/** Time in milliseconds between two looks whether the store answers, at a start. */
const STORE_AGAIN_MS = 250

interface Services {
  clock: Clock
  log: Logger
}

/** @throws StoreUnavailable, and ShipError when the ledger cannot be shipped to its target */
export async function openStoreOf(
  { config, plugins }: Pick<Loaded, 'config' | 'plugins'>,
  instance: string | undefined,
  { clock, log }: Services,
): Promise<Store> {
  const set = storeSettings(config.pipelines, plugins).filter(({ value }) => value !== undefined)
  const bounds = new Map(set.map(({ bound, value }) => [bound, value as number]))
  const { ship } = config.ledger
  if (ship) await checkTarget(ship.to)
  return openStore({
    url: config.store.url,
    configDir: join(dirname(config.files[0]!), 'data'),
    timeout: config.store.timeout,
    instance,
    clock,
    log,
    ledgerKeep: config.ledger.keep,
    ship: ship && { target: nameOfTarget(ship.to), keepUnshipped: ship.keep_unshipped },
    audit: config.server.admin.audit,
    maxMemory: config.store.max_memory,
    maxRecords: config.store.max_records,
    maxValues: config.store.max_plugin_values,
    share: config.store.share,
    replicas: config.store.replicas,
    idempotency: { maxRecord: bounds.get('idempotency.maxRecord'), maxTotal: bounds.get('idempotency.maxTotal') },
  })
}

/**
 * Ships the ledger from now on; undefined where it is not shipped.
 * @throws ShipError when the target's URL is wrong
 */
export function shippingOf({ ledger, store }: GatewayConfig, { clock, log }: Services): Shipping | undefined {
  const { ship } = ledger
  if (!ship) return undefined
  const drained = drainOf(store.url)
  const drains = drained !== null && ship.to === `file:${drained}`
  if (drained !== null && !drains && holdsDrained(drained))
    log.warn({ folder: drained }, 'ledger rows of before are in this folder, and are not shipped')
  const work = {
    ...{ store: store.url, to: ship.to, interval: ship.interval, holder: randomUUID() },
    ...(drains && { drain: { tail: DRAIN_TAIL, keep: ledger.keep } }),
  }
  return new Shipping(work, { clock, log })
}

/** The gateway's secret; undefined when the store, which has it, does not answer yet. */
export async function earlySecretOf(store: Store, configured: string, log: Logger): Promise<Uint8Array | undefined> {
  return secretOf(store, configured, error =>
    log.warn(
      { error: error.message },
      'waiting for the store, which has the secret; until it answers, every request is refused with 503',
    ),
  )
}

/** Waits for the store. */
export async function lateSecretOf(store: Store, configured: string, log: Logger): Promise<Uint8Array> {
  for (;;) {
    await sleep(STORE_AGAIN_MS)
    const secret = await secretOf(store, configured, () => {})
    if (!secret) continue
    log.info({}, 'the store answers')
    return secret
  }
}

/** @param missing called when the store does not answer; waiting for it may help */
async function secretOf(
  store: Store,
  configured: string,
  missing: (error: StoreUnavailable) => void,
): Promise<Uint8Array | undefined> {
  try {
    return await store.secret(configured)
  } catch (error) {
    if (error instanceof StoreRefused || !(error instanceof StoreUnavailable)) throw error
    missing(error)
    return undefined
  }
}
