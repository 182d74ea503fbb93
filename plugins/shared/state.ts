/**
 * State of the process that several parts of the gateway share on purpose, and that outlives a reload. What one plugin
 * alone has needs no entry here: `context.shared.use` takes a string for it.
 */
import type { GatewayConfig } from '../../config/types.ts'
import type { SharedKey } from '../../core/plugin.ts'
import type { FairGate } from '../../core/tools/fair.ts'
import type { Ticker } from '../../core/tools/ticker.ts'
import type { Platform } from '../admission/platform.ts'
import type { Standings } from '../admission/standing.ts'
import type { Backends } from '../upstream/health.ts'
import type { Pools } from '../upstream/pools.ts'
import type { RetryBudgets } from '../upstream/retry-budget.ts'
import type { Accounts, Directory } from './directory.ts'
import type { Preparation } from './preparation.ts'
import type { ReadableStreams } from './readable.ts'
import type { ReceiptKeys } from './receipt-keys.ts'
import type { RecentConversations } from './recent.ts'
import type { Unsent } from './unsent.ts'

/** Made by `directoryOf`: accounts of the store that this process has read. */
export const directoryKey: SharedKey<Directory> = { name: 'directory' }
/** Made by `accountsOf`: the accounts of each configuration. */
export const accountsKey: SharedKey<WeakMap<GatewayConfig['organizations'], Accounts>> = { name: 'accounts' }
/** Made by `preparationOf`: what is between the body and admission. */
export const preparationKey: SharedKey<Preparation> = { name: 'preparation' }
/** Made by `recentOf`: what the next turns of conversations share with the last ones. */
export const recentKey: SharedKey<RecentConversations> = { name: 'recent' }
/** Made by `unsentOf`: bytes of admitted requests that no provider has taken and answered yet. */
export const unsentKey: SharedKey<Unsent> = { name: 'unsent' }
/** Made by `readableOf`: responses whose streams can be read at present. */
export const readableKey: SharedKey<ReadableStreams> = { name: 'readable' }
/** Made by `platformOf`: how many exchanges run. */
export const platformKey: SharedKey<Platform> = { name: 'platform' }
/** Made by `standingsOf`: what was last seen of the limits of each caller. */
export const standingsKey: SharedKey<Standings> = { name: 'standings' }
/** Made by `mediaGate`: what fetches of media wait for. */
export const mediaGateKey: SharedKey<FairGate> = { name: 'media.fetching' }
/** Made by `sharedBackends`, `sharedPools` and `sharedRetries`: what is known of backends, their connections, retries. */
export const backendsKey: SharedKey<Backends> = { name: 'upstream.backends' }
export const poolsKey: SharedKey<Pools> = { name: 'upstream.pools' }
export const retriesKey: SharedKey<RetryBudgets> = { name: 'upstream.retries' }
/** Made by `receiptKeys`: the keys of receipts, by configuration. */
export const receiptKeysKey: SharedKey<Map<string, ReceiptKeys>> = { name: 'receipt-keys' }
/** Made by `sharedTicker`: what checks the clocks of running calls. */
export const tickerKey: SharedKey<Ticker> = { name: 'ticker' }
