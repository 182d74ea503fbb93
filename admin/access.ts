/**
 * Who may do what on the admin listener: the one place that decides. What a request needs follows from its route
 * (api.ts), so that no route can be without an answer.
 */
import type { ACTIONS } from '../config/schema.ts'
import type { Caller } from './callers.ts'

export type Action = (typeof ACTIONS)[number]

/** What a request needs of its caller. */
export interface Need {
  /** `one`: an organization, `all`: what belongs to no single one, `caller`: what the token itself is. */
  about: 'one' | 'all' | 'caller'
  /** A token that is bound to actions needs one of these. */
  actions: readonly Action[]
  /** Whether something may be changed. */
  changes: boolean
}

/** What is outside the admin API: metrics, the dashboard and what it shows. */
export const OUTSIDE: Need = { about: 'all', actions: [], changes: false }

/**
 * Why a caller may not do it; null when it may.
 * @param actingFor the header `Sluice-Act-For`: the request is for this organization and nothing else
 * @param organization the one that it is about, where the need is about one
 */
export function refusal(
  caller: Caller,
  actingFor: string | undefined,
  need: Need,
  organization: string | undefined,
): { code: string; message: string } | null {
  const no = (code: string, message: string) => ({ code, message })
  if (caller.actsFor === 'required' && actingFor === undefined)
    return no('act_for', 'this token is good for requests with Sluice-Act-For: ORGANIZATION alone; send that header')
  if (actingFor !== undefined && need.about === 'all')
    return no('act_for', 'a request with Sluice-Act-For reaches that organization alone, and this is outside of it')
  if (actingFor !== undefined && need.about === 'one' && actingFor !== organization)
    return no('act_for', 'the organization of the path is not the one of Sluice-Act-For; make them the same')
  if (need.about !== 'caller' && caller.actions !== null && !need.actions.some(one => caller.actions!.includes(one)))
    return no(
      'action',
      `this needs ${need.actions.join(' or ') || 'a token without actions'}; the token is bound to ${caller.actions.join(', ')}`,
    )
  if (need.changes && caller.role !== 'operate')
    return no('role', 'changes need a token of the role operate: server.admin.tokens of gateway.yaml')
  return null
}
