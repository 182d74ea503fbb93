/** Pages of a list of items, in the form of OpenAI's Responses API: `limit`, `order`, `after`, `include`. */
import { printable } from '../../core/canon/errors.ts'
import { answer, deny, type Reply } from '../../core/plugin.ts'
import { INCLUDES } from '../../surfaces/responses/schema.ts'

/** Which of the items a client asks for. */
export interface Page {
  /** 1 to 100. */
  limit: number
  descending: boolean
  /** The id of the item before the first one. */
  after: string | null
  include: ReadonlySet<string>
}

/** The page that a query asks for; the refusal of a query that is not valid. */
export function pageOf(query: URLSearchParams): Page | Reply {
  const limit = query.get('limit') ?? '20'
  if (!/^\d{1,3}$/.test(limit) || Number(limit) < 1 || Number(limit) > 100)
    return wrong('limit', `'limit' is ${JSON.stringify(printable(limit))}; it must be a whole number from 1 to 100.`)
  const order = query.get('order') ?? 'desc'
  if (order !== 'asc' && order !== 'desc')
    return wrong('order', `'order' is ${JSON.stringify(printable(order))}; it must be asc or desc.`)
  if (query.has('before'))
    return deny('unsupported_parameter', {
      message: "'before' is not offered here. Page with 'after', in either 'order'.",
      param: 'before',
    })
  const include = new Set<string>()
  for (const [name, value] of query) {
    // SDKs write lists as `include`, `include[]` or `include[0]`.
    if (!/^include(?:\[\d*\])?$/.test(name)) continue
    if (!(INCLUDES as readonly string[]).includes(value))
      return wrong('include', `'include' has ${JSON.stringify(printable(value))}; it takes ${INCLUDES.join(', ')}.`)
    include.add(value)
  }
  return { limit: Number(limit), descending: order === 'desc', after: query.get('after'), include }
}

function wrong(param: string, message: string): Reply {
  return deny('invalid_value', { message, param })
}

/** The page of `items`, which are in ascending order, or the refusal when `after` is none of them. */
export function listed(items: { id: string }[], { limit, descending, after }: Page): Reply {
  if (descending) items.reverse()
  const before = after === null ? -1 : items.findIndex(({ id }) => id === after)
  if (after !== null && before < 0)
    return wrong('after', "'after' is not the id of an item of this response's input. Take last_id of the page before.")
  const data = items.slice(before + 1, before + 1 + limit)
  return answer(200, {
    object: 'list',
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: before + 1 + limit < items.length,
  })
}
