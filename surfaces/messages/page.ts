/** Pages of a list, in the form of Anthropic's API: `limit`, `after_id`, `before_id`. */
import { printable } from '../../core/canon/errors.ts'
import type { ListPage } from '../../core/ports/surface.ts'
import { fault } from '../check.ts'

/** Anthropic's own bound of `limit`. */
const MOST = 1000

/** Without a limit the page has all that is left: an account has a few models, and most clients read one page. */
export function page(query: URLSearchParams, ids: readonly string[]): ListPage {
  const limit = limitOf(query.get('limit'))
  const after = query.get('after_id')
  const before = query.get('before_id')
  if (after !== null && before !== null)
    throw fault('invalid_value', 'before_id', w => `${w} and 'after_id' exclude each other. Send one of them.`)
  if (before !== null) {
    const to = placeOf(ids, 'before_id', before)
    const from = Math.max(0, to - limit)
    return { from, to, more: from > 0 }
  }
  const from = after === null ? 0 : placeOf(ids, 'after_id', after) + 1
  const to = Math.min(ids.length, from + limit)
  return { from, to, more: to < ids.length }
}

function limitOf(limit: string | null): number {
  if (limit === null) return Number.POSITIVE_INFINITY
  if (/^\d{1,4}$/.test(limit) && Number(limit) >= 1 && Number(limit) <= MOST) return Number(limit)
  throw fault(
    'invalid_value',
    'limit',
    w => `${w} is ${JSON.stringify(printable(limit))}; it must be a whole number from 1 to ${MOST}.`,
  )
}

function placeOf(ids: readonly string[], name: string, id: string): number {
  const at = ids.indexOf(id)
  if (at >= 0) return at
  throw fault(
    'invalid_value',
    name,
    w => `${w} is ${JSON.stringify(printable(id))}, which is no id of this list. Take it from the page before.`,
  )
}
