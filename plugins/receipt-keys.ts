import { answer, definePlugin } from '../core/plugin.ts'
import { receiptKeys } from './shared/receipt-keys.ts'

/** For how long clients and proxies may keep the published keys, in seconds: a new key signs later than that. */
const MAX_AGE = 60

/** Answers GET /v1/receipts/keys with the public keys of receipts, as a JSON Web Key Set. They are for everybody. */
export const receiptKeysPlugin = definePlugin({
  name: 'receipt-keys',
  summary: 'Answers with the public keys by which receipts are verified.',
  terminal: true,
  uses: ['receipts'],
  check: (_, { receipts }) => (receipts.fault === null ? [] : [receipts.fault]),
  create(_, { config, shared, clock, log }) {
    const keys = receiptKeys(config.receipts, shared, clock, log)
    return {
      forward(x) {
        x.reply(answer(200, { keys: keys.published }, { 'cache-control': `public, max-age=${MAX_AGE}` }))
        return undefined
      },
    }
  },
})
