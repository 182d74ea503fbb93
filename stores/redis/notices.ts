/**
 * Notices in Redis.
 *
 *   {sluice:notices}                     stream: `o` organization, `n` JSON of the notice; the last NOTICES_KEPT
 *   {sluice:notices}:once:PERIOD:NUMBER  set: what was noticed of a day or month, kept beyond its end
 */
import type { Notice, NoticePage, NoticeStore } from '../../core/ports/store.ts'
import { newsUnless, ONCE_KEEP_MS } from '../notices.ts'
import type { RedisClient } from './client.ts'
import { script } from './scripts.ts'

const NOTICE = script('notice')
export const NOTICES = '{sluice:notices}'
/** The set of the identities of one day or month. */
export const onceKey = ({ period, number }: Notice): string => `${NOTICES}:once:${period}:${number}`
/** The stream has no index by organization: a page looks through at most this many. */
const SCAN = 5000

export class RedisNotices implements NoticeStore {
  readonly #client: RedisClient

  constructor(client: RedisClient) {
    this.#client = client
  }

  async post(notice: Notice): Promise<boolean> {
    const args = [notice.organization, JSON.stringify(notice), ONCE_KEEP_MS, ...newsUnless(notice)]
    return (await this.#client.script(NOTICE, [NOTICES, onceKey(notice)], args)) === 1
  }

  async page(after: string, most: number, organization?: string): Promise<NoticePage> {
    const count = organization === undefined ? most : Math.max(most, SCAN)
    const from = after === '' ? '-' : `(${after}`
    const found = await this.#client.call(this.#client.redis.xrange(NOTICES, from, '+', 'COUNT', count))
    const notices: NoticePage['notices'] = []
    for (const [id, [, of, , json]] of found) {
      if (organization === undefined || of === organization) notices.push({ id, ...(JSON.parse(json!) as Notice) })
      if (notices.length === most) return { notices, next: id }
    }
    return { notices, next: found.at(-1)?.[0] ?? after }
  }
}
