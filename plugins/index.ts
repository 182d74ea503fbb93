/** The built-in plugins, by name. */
import type { Plugin } from '../core/plugin.ts'
import { admission } from './admission/index.ts'
import { auth } from './auth.ts'
import { bodyDigestPlugin } from './body-digest.ts'
import { compaction } from './compaction/index.ts'
import { conversationPlugin } from './conversation/index.ts'
import { countTokens } from './count-tokens.ts'
import { embeddings } from './embeddings.ts'
import { headerStamp } from './header-stamp.ts'
import { idempotency } from './idempotency.ts'
import { media } from './media/index.ts'
import { modelAccess } from './model-access/index.ts'
import { models } from './models.ts'
import { otel } from './otel/index.ts'
import { ownLimits } from './own-limits.ts'
import { ownReceipts } from './own-receipts.ts'
import { ownUsage } from './own-usage.ts'
import { proxy } from './proxy/index.ts'
import { quote } from './quote.ts'
import { receiptKeysPlugin } from './receipt-keys.ts'
import { retainedResponses } from './retained-responses/index.ts'
import { routing } from './routing.ts'
import { tokenEstimate } from './token-estimate.ts'
import { translation } from './translation/index.ts'
import { upstream } from './upstream/index.ts'
import { usageCapture } from './usage-capture.ts'
import { validation } from './validation.ts'
import { webSearch } from './web-search/index.ts'

/** In the order of the reference pipeline, then the other terminals, then what no pipeline has by itself. */
export const plugins: readonly Plugin[] = [
  auth,
  validation,
  idempotency,
  modelAccess,
  conversationPlugin,
  compaction,
  tokenEstimate,
  webSearch,
  media,
  routing,
  admission,
  translation,
  upstream,
  usageCapture,
  headerStamp,
  models,
  retainedResponses,
  countTokens,
  embeddings,
  ownUsage,
  ownLimits,
  ownReceipts,
  receiptKeysPlugin,
  quote,
  proxy,
  otel,
  bodyDigestPlugin,
]

/** By the name that a pipeline uses. */
export const catalog: ReadonlyMap<string, Plugin> = new Map(plugins.map(plugin => [plugin.name, plugin]))
