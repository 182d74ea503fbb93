/**
 * Takes from the limits what a request needs, at the highest output cap that they leave. It knows no exchange: the
 * admission of a request and `sluice replay` use the same.
 */
import type { Conversation } from '../../core/canon/conversation.ts'
import { countedOf, holdsMoney } from '../../core/canon/limits.ts'
import type { Admission, Cell, CellState, LimitEngine, MaybePromise, UserRequest } from '../../core/ports/store.ts'
import type { CellSet } from './cells.ts'
import type { Need } from './need.ts'
import { capWithin, isPlentiful, spendLeft } from './output-cap.ts'

export interface Taking {
  org: string
  /** Of the request. */
  id: string
  /** Unix ms. */
  now: number
  set: CellSet
  /** Those of the set, or what platform load leaves of them. */
  cells: readonly Cell[]
  need: Need
  conversation: Conversation | undefined
  /** The end user, '' for nobody; null where the key limits none. */
  user: string | null
}

export interface Taken {
  result: Admission
  /** The output cap to send; infinite where nothing sets one. */
  output: number
  /** The most that the request can cost with it, nano-USD. */
  cost: number
  /** Parallel to the cells. */
  amounts: readonly number[]
  user: UserRequest | null
}

/** The most that is billed, nano-USD: what the request can cost with the output cap that is sent (decision 150). */
export const mostOf = ({ output, cost }: Pick<Taken, 'output' | 'cost'>): number =>
  output === Number.POSITIVE_INFINITY ? output : cost

export function take(limits: LimitEngine, taking: Taking): MaybePromise<Taken> {
  const { org, id, now, set, cells, need, conversation } = taking
  const { own, input, price, besides, cap, reserve, costOf } = need
  const { users } = set
  const spends = price !== null && set.spendCells.length > 0

  const ask = (output: number): MaybePromise<Taken> => {
    // Where nothing sets a cap, nothing limits spend either.
    const cost = costOf(output === Number.POSITIVE_INFINITY ? cap.reserve : output)
    const amountsOf = (of: readonly Cell[]) =>
      of.map(({ dimension }) => countedOf(dimension).reserve(input, reserve, cost, conversation))
    const amounts = amountsOf(cells)
    const user = users && { name: taking.user!, cells: users, amounts: amountsOf(users) }
    const asked = { org, id, cells, amounts, now }
    const result = limits.admit(user ? { ...asked, user } : asked)
    return result instanceof Promise
      ? result.then(admission => hear({ result: admission, output, cost, amounts, user }))
      : hear({ result, output, cost, amounts, user })
  }

  const hear = (taken: Taken): MaybePromise<Taken> => {
    const { result, output, user } = taken
    if (spends) set.spendLeft = spendLeft(cells, result.states)
    if (result.admitted || output <= cap.reserve) return taken
    if (result.user && user) {
      // What this user has left was not known before: a lower cap may fit.
      if (!price || !holdsMoney(user.cells[result.denied]!)) return taken
      const left = Math.min(spends ? set.spendLeft : Number.POSITIVE_INFINITY, spendLeft(user.cells, result.user))
      return ask(capWithin(left, cap, own, price, besides))
    }
    // Another request was faster: less is left than was seen, and a lower cap may still fit.
    if (spends && holdsMoney(cells[result.denied]!)) return ask(capWithin(set.spendLeft, cap, own, price, besides))
    return taken
  }

  const most =
    price && set.userSpend !== Number.POSITIVE_INFINITY ? capWithin(set.userSpend, cap, own, price, besides) : cap.most
  if (!spends || most === cap.reserve || isPlentiful(set.spendLeft, costOf(most))) return ask(most)
  const askShare = (states: CellState[]) =>
    ask(Math.min(most, capWithin(spendLeft(set.spendCells, states), cap, own, price, besides)))
  const states = limits.peek(org, set.spendCells, now)
  return states instanceof Promise ? states.then(askShare) : askShare(states)
}
