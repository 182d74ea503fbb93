/** The admin API (docs/admin-api.md) for the pages, and what a person reads when a request fails. */
import { ask } from './feed.mjs'

/** Why a request failed. `status` is 0 when there was no answer. */
export class Fault extends Error {
  constructor(status, code, message) {
    super(message)
    this.status = status
    this.code = code
  }
}

/**
 * Asks `/api/v1/<path>`. `etag` is sent as `If-Match`.
 * @returns { body, etag }
 * @throws Fault
 */
export async function call(path, { method = 'GET', body, etag } = {}) {
  const headers = {
    ...(body !== undefined && { 'content-type': 'application/json' }),
    ...(etag && { 'if-match': etag }),
  }
  const options = { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) }
  const answer = await ask(`/api/v1/${path}`, options).catch(() => null)
  if (!answer) throw new Fault(0, 'no_answer', 'The gateway does not answer')
  const json = await answer.json().catch(() => null)
  if (answer.ok && json) return { body: json, etag: answer.headers.get('etag') }
  throw new Fault(answer.status, json?.error?.code ?? '', json?.error?.message ?? `status ${answer.status}`)
}

/** Whether it is not known if a change was made that ended with this fault. */
export const isOpen = ({ status }) => status === 0 || status >= 500

/** Says what failed, and what to do. */
export function wordsOf({ status, code, message }) {
  if (status === 0) return 'The gateway does not answer. Look whether it runs; the page goes on trying.'
  if (status === 401) return 'The token is not valid, or not any more. Give one that is.'
  if (status === 403 && code === 'role') return 'This token may only read. Changes need a token of the role operate.'
  if (status === 412)
    return 'Somebody else has changed this organization meanwhile, and nothing was done. It is shown as it is now: look at it, then try again if you still want to.'
  if (status === 429) return 'Too many wrong tokens came from this address. Wait a minute, then try again.'
  if (status === 503) return 'The store does not answer. Look at /readyz; the page goes on trying.'
  if (status >= 500) return 'The gateway failed at it. Its log says why.'
  return `${message}.`
}
