import { createHash, hash } from 'node:crypto'
import { definePlugin, loopTurn, requestBody } from '../core/plugin.ts'
import { bodyDigest } from './shared/slots.ts'

/** A larger body is digested in slices of this many bytes, each some milliseconds at most. */
const SLICE = 4 << 20

/**
 * Makes the digest of the request's body, which the ledger row keeps, and a receipt tells (docs/receipts.md). Below
 * `admission` it costs nothing of what is refused.
 */
export const bodyDigestPlugin = definePlugin({
  name: 'body-digest',
  summary: 'Makes the digest of the body, for the ledger row and its receipt.',
  needs: [requestBody],
  // A request whose client leaves meanwhile has none.
  mayProvide: [bodyDigest],
  aboveTerminal: true,
  dryRun: 'safe',
  create(_, { terminal }) {
    return {
      onRequest(x) {
        if (terminal.advisory) return undefined
        const body = x.get(requestBody)
        if (body.length > SLICE)
          return (async () => {
            const digest = createHash('sha256')
            for (let at = 0; at < body.length; at += SLICE) {
              if (at > 0) await loopTurn(x)
              if (x.closed) return undefined
              digest.update(body.subarray(at, at + SLICE))
            }
            x.set(bodyDigest, digest.digest('hex'))
            return undefined
          })()
        x.set(bodyDigest, hash('sha256', body, 'hex'))
        return undefined
      },
    }
  },
})
