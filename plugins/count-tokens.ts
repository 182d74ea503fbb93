import { answer, definePlugin, type Exchange, estimate, type Reply } from '../core/plugin.ts'
import type { Admission, Cell } from '../core/store.ts'
import { countingCell } from './admission/cells.ts'
import { denied } from './admission/denials.ts'
import { type Identity, identity } from './shared/slots.ts'

/**
 * Answers POST /v1/messages/count_tokens and POST /v1/responses/input_tokens with the metered prompt (CNT-1, CNT-2).
 * Each count takes one from one bucket for both, which is as large as the organization's requests per minute; it takes
 * nothing from the limits of completions.
 */
export const countTokens = definePlugin({
  name: 'count-tokens',
  summary: 'Answers with the prompt’s metered size.',
  needs: [estimate],
  terminal: true,
  advisory: true,
  create(_, { store }) {
    const cells = new WeakMap<Identity, readonly Cell[]>()
    const amounts = [1]

    function cellsOf(caller: Identity): readonly Cell[] {
      let known = cells.get(caller)
      if (!known) {
        const cell = countingCell(caller.organization)
        cells.set(caller, (known = cell ? [cell] : []))
      }
      return known
    }

    return {
      // Before the body, because what it costs is to read and count it.
      beforeBody(x: Exchange): undefined | Reply | Promise<undefined | Reply> {
        const caller = x.peek(identity)
        const taken = caller ? cellsOf(caller) : []
        if (!caller || taken.length === 0) return undefined
        const org = caller.organization.id
        const decide = (admission: Admission): undefined | Reply => {
          if (!admission.admitted) return denied(taken, amounts, admission, false)
          store.limits.settle(org, x.id, amounts, x.clock.now())
          return undefined
        }
        const admission = store.limits.admit({ org, id: x.id, cells: taken, amounts, now: x.clock.now() })
        return admission instanceof Promise ? admission.then(decide) : decide(admission)
      },
      forward(x) {
        const { input } = x.get(estimate)
        x.reply(answer(200, x.surface?.countReply?.(input) ?? { input_tokens: input }))
        return undefined
      },
    }
  },
})
