import { conversation, definePlugin, type Exchange, usage } from '../core/plugin.ts'
import type { CellState } from '../core/ports/store.ts'
import { limitHeaders } from './admission/headers.ts'
import { finals, statesAfter } from './admission/left.ts'
import { standingHeaders, standingsOf } from './admission/standing.ts'
import { identity, type Reservation, reservation } from './shared/slots.ts'

/**
 * Errors that come from the state of an upstream or of the platform. Their code says so; limit headers
 * would mislead (ERR-7, LIM-10).
 */
const WITHOUT_LIMITS = new Set(['insufficient_quota', 'capacity_exceeded'])

/**
 * Adds the headers that every reply has: the caller's limits (LIM-9), and the surface's aliases of the request id
 * (ERR-2). A refusal by a limit has the headers of that limit.
 */
export const headerStamp = definePlugin({
  name: 'header-stamp',
  summary: 'Stamps rate-limit headers and request-id aliases on every reply.',
  create(_, { shared }) {
    const standings = standingsOf(shared)
    return {
      onResponseHead(x, head) {
        const { headers } = head
        for (const name of x.errorForm?.requestIdHeaders ?? []) headers.set(name, x.id)
        if (x.error && WITHOUT_LIMITS.has(x.error.code)) return undefined
        const reserved = x.peek(reservation)
        if (reserved) {
          const scope = reserved.compressed ? 'platform' : 'org'
          let states = reserved.states
          if (head.origin === 'upstream' && isWhole(x)) {
            states = after(x, reserved)
            const caller = x.peek(identity)
            const standing = caller && standings.get(caller)
            if (standing?.cells === reserved.cells) standing.states = states
          }
          limitHeaders(reserved.cells, states, headers, scope)
        } else if (head.status < 500 && !headers.has('x-ratelimit-scope')) {
          // A store that does not answer, or a gateway that is full, says nothing of the caller's limits.
          const caller = x.peek(identity)
          const standing = caller && standings.get(caller)
          if (standing) standingHeaders(standing, x.clock.mono(), headers)
        }
        return undefined
      },
    }
  },
})

/** A reply of one body has ended when its head goes out, and its usage is known. */
function isWhole(x: Exchange): boolean {
  return !x.error && x.peek(conversation)?.stream === false && x.peek(usage)?.billed === true
}

/** What the exchange leaves of its limits. An operator's plugin may reserve and not report what it took. */
function after(x: Exchange, { cells, states, taken }: Reservation): readonly CellState[] {
  if (!taken) return states
  return statesAfter(cells, states, taken.amounts, finals(cells, taken.amounts, x), taken.at, x.clock.now())
}
