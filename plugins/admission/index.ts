import { alwaysCosts } from '../../core/canon/money.ts'
import {
  conversation as conversationSlot,
  definePlugin,
  type Exchange,
  estimate,
  type Reply,
  request,
  slot,
  usage,
} from '../../core/plugin.ts'
import type { Cell, CellState, Denial, MaybePromise } from '../../core/ports/store.ts'
import { count, type Filled, object } from '../../core/tools/vocabulary.ts'
import { disconnection } from '../shared/disconnection.ts'
import { declaredBytes } from '../shared/preparation.ts'
import { type Identity, identity, limitsCheck, model, preparing, reservation, unsent } from '../shared/slots.ts'
import { type Tag, tag, valueReader } from '../shared/tags.ts'
import { UnsentRequest, unsentOf } from '../shared/unsent.ts'
import { cellSets, cellsAt, early } from './cells.ts'
import { denied } from './denials.ts'
import { finals } from './left.ts'
import { needOf } from './need.ts'
import { platformFull, platformOf } from './platform.ts'
import { standingsOf } from './standing.ts'
import { mostOf, type Taken, take } from './take.ts'

/** Where a look at limits is a call, they are looked at before the body is read only for bodies of more bytes. */
const SMALL_BYTES = 32 * 1024

const schema = object({
  output_reserve: count(4096, 'Output tokens reserved when the request names no cap.', 1),
  user: {
    ...tag,
    default: { from: 'user' },
    description:
      'Where a request names the end user whom user_limits of its key are for. All requests that name nobody are one user.',
  } as Filled<Tag>,
})

/** What a request that `x-max-cost` bounds was sent with, for `x-adjusted`. */
const boundedCap = slot<string>('boundedCap')
/** The name of a cap that the request did not name. */
const OUTPUT_MEMBER = 'max_output_tokens'

/**
 * Admits an exchange against every limit of organization and key in one step, reserves its estimate, and opens its
 * ledger row (LIM-1…10).
 */
export const admission = definePlugin({
  name: 'admission',
  summary: 'Checks the request against every limit at once, and reserves its estimate.',
  config: schema,
  needs: [identity],
  provides: [reservation],
  mayProvide: [limitsCheck, unsent, boundedCap],
  // Above what fills them it would admit every prompt as one of no tokens and of no price. A `proxy` route has none.
  reads: [conversationSlot, model, estimate, request],
  aboveTerminal: true,
  dryRun: 'safe',
  // Admission reserves, and opens the ledger row. The plugin that fills `usage` closes the row, and the reservation is
  // settled by `usage`.
  needsLate: [usage],
  uses: ['platform', 'price_book', 'models'],
  create({ output_reserve, user }, context) {
    const { store, config } = context
    const userOf = valueReader(user, context.secret)
    const cellSet = cellSets()
    const standings = standingsOf(context.shared)
    const platform = platformOf(context.shared)
    const ledger = unsentOf(context.shared)
    const { max_concurrent_requests } = config.platform

    function saw(
      caller: Identity,
      cells: readonly Cell[],
      states: readonly CellState[],
      compressed: boolean,
      seenAt: number,
    ): void {
      const standing = standings.get(caller)
      if (!standing) return void standings.set(caller, { cells, states, compressed, seenAt })
      standing.cells = cells
      standing.states = states
      standing.compressed = compressed
      standing.seenAt = seenAt
    }

    /**
     * Whether no model can be used free of charge. Then a request with any model needs some of what is left to spend.
     */
    const allCost = Object.values(config.models).every(({ price }) => price === null || alwaysCosts(price))
    const costs = ({ billing, prices }: Identity['organization']) =>
      allCost && billing !== 'free' && Object.values(prices ?? {}).every(alwaysCosts)
    const earlyCells = new WeakMap<Identity, { cells: readonly Cell[]; amounts: readonly number[] }>()

    /** Refuses a request for which a limit is full already. Takes nothing. */
    function check(x: Exchange): undefined | Reply | Promise<undefined | Reply> {
      const caller = x.get(identity)
      let looked = earlyCells.get(caller)
      if (!looked) {
        const cells = early(cellSet(caller, null), costs(caller.organization))
        earlyCells.set(caller, (looked = { cells, amounts: cells.map(() => 1) }))
      }
      const { cells, amounts } = looked
      if (cells.length === 0) return undefined
      const now = x.clock.now()
      const decide = (denial: Denial | null) => (denial ? denied(cells, amounts, denial, now) : undefined)
      const denial = store.limits.wouldDeny({ org: caller.organization.id, cells, amounts, now })
      if (denial instanceof Promise) return denial.then(decide)
      return decide(denial)
    }

    /** Holds the bytes of the request until a provider has taken them and answered, or the exchange is over. */
    function keep(x: Exchange, release: () => void): void {
      x.defer(release)
      x.set(unsent, new UnsentRequest(release))
    }

    return {
      onResponseHead(x, head) {
        const adjusted = x.peek(boundedCap)
        if (adjusted === undefined || head.origin !== 'upstream') return undefined
        const others = head.headers.get('x-adjusted')
        head.headers.set('x-adjusted', others ? `${others}, ${adjusted}` : adjusted)
        return undefined
      },
      beforeBody(x) {
        if (!x.peek(identity)) return undefined
        // A replay uses no limit, so a full limit must not refuse it. With a Redis store this early check costs a round
        // trip, and small requests skip it.
        const small = store.remote && (declaredBytes(x.incoming) ?? Number.POSITIVE_INFINITY) <= SMALL_BYTES
        const mayReplay = x.incoming.headers.has('idempotency-key')
        // Looked at again in onRequest, since others may be admitted while the body arrives. Without the look here, a
        // full gateway would read and count what it then refuses, at three times the cost of the refusal.
        if (!mayReplay && platform.running >= max_concurrent_requests) return platformFull()
        if (!small && !mayReplay) return check(x)
        x.set(limitsCheck, check)
        return undefined
      },
      onRequest(x) {
        const prepared = x.peek(preparing)
        if (!prepared || platform.running >= max_concurrent_requests) return admit(x)
        const owner = x.get(identity).organization.id
        const held = ledger.enter(owner, prepared.bytes, config.platform.preparation, x.clock, () => disconnection(x))
        if (held instanceof Promise) {
          return held.then(answer => {
            if (typeof answer !== 'function') return answer
            keep(x, answer)
            return x.closed ? undefined : admit(x)
          })
        }
        keep(x, held)
        return admit(x)
      },
    }

    function admit(x: Exchange): MaybePromise<undefined | Reply> {
      if (platform.running >= max_concurrent_requests) return platformFull()
      const caller = x.get(identity)
      const requested = x.peek(model)
      const set = cellSet(caller, requested?.id ?? null)
      const conversation = x.peek(conversationSlot)
      const need = needOf(x, set, output_reserve)
      if ('kind' in need) return need
      const { input, reserve, bounded } = need

      const cells = cellsAt(set, platform.running, config.platform)
      const compressed = cells !== set.cells
      const now = x.clock.now()
      const org = caller.organization.id

      const decide = ({ result, output, cost, amounts, user }: Taken): MaybePromise<undefined | Reply> => {
        saw(caller, cells, result.states, compressed, x.clock.mono())
        if (!result.admitted && result.user && user)
          return denied(user.cells, user.amounts, { ...result, states: result.user }, now, {
            nameless: user.name === '',
          })
        if (!result.admitted) return denied(cells, amounts, result, now, { full: set.cells })
        x.defer(() => {
          const ofUser = user ? finals(user.cells, user.amounts, x) : undefined
          store.limits.settle(org, x.id, finals(cells, amounts, x), x.clock.now(), ofUser)
        })
        // The client disconnected while the store decided: the reservation was settled at once, and nothing would
        // close a row that is opened now.
        if (x.closed) return undefined
        x.peek(preparing)?.leave()
        const assumed = bounded || (conversation?.maxOutputTokens === undefined && output !== Number.POSITIVE_INFINITY)
        x.set(reservation, {
          cells,
          states: result.states,
          compressed,
          taken: { amounts, at: now },
          input,
          output: reserve,
          cost,
          most: mostOf({ output, cost }),
          ...(conversation && assumed && { cap: output }),
        })
        if (bounded) x.set(boundedCap, `${conversation?.maxOutputField ?? OUTPUT_MEMBER}=sent_as_${output}`)
        return store.ledger.intent({
          request_id: x.id,
          time: x.startedAt,
          organization: org,
          key_id: caller.key.id,
          surface: x.surface?.name ?? x.route,
          model: requested?.id ?? '',
          price_book: config.price_book,
          billing: caller.organization.billing,
          input_tokens: x.peek(estimate)?.input ?? 0,
        })
      }
      // Counted before the store is asked, so that exchanges that wait for its answer count too.
      platform.running++
      x.defer(() => {
        platform.running--
      })
      const user = set.users && userOf(x)
      const taken = take(store.limits, { org, id: x.id, now, set, cells, need, conversation, user })
      return taken instanceof Promise ? taken.then(decide) : decide(taken)
    }
  },
})
