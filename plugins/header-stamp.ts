import { definePlugin } from '../core/plugin.ts'
import { limitHeaders } from './admission/headers.ts'
import { reservation } from './shared/slots.ts'

/**
 * Errors that come from the state of an upstream or of the platform. Their code tells the client so; limit headers
 * would mislead (ERR-7, LIM-10).
 */
const WITHOUT_LIMITS = new Set(['insufficient_quota', 'capacity_exceeded'])

/**
 * Adds the headers that every reply has: limits as they were at admission (LIM-9), and the surface's aliases of the
 * request id (ERR-2).
 */
export const headerStamp = definePlugin({
  name: 'header-stamp',
  summary: 'Stamps rate-limit headers and request-id aliases on every reply.',
  create() {
    return {
      onResponseHead(x, head) {
        const { headers } = head
        for (const name of x.errorForm?.requestIdHeaders ?? []) headers.set(name, x.id)
        const reserved = x.peek(reservation)
        if (!reserved || (x.error && WITHOUT_LIMITS.has(x.error.code))) return undefined
        limitHeaders(reserved.cells, reserved.states, headers)
        if (reserved.compressed) headers.set('x-ratelimit-scope', 'platform')
        return undefined
      },
    }
  },
})
