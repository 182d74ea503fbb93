/**
 * Mails before a key ends, a week and a day before. Organizations are looked at one after the other, all of them within
 * some hours.
 */
import { underLease } from '../db/lease.ts'
import { Gateway, GatewayRefused, type Key } from '../gateway.ts'
import type { Parts } from '../web/visit.ts'
import { tellMembers } from './outbox.ts'

const DAY = 86_400_000
const LEASE_MS = 120_000
/** All organizations are looked at once in this many calls, which come once a minute: six hours. */
const CALLS = 360
const LEAST = 20
const TOGETHER = 4

/** A key that lives shorter than `life` is meant to: it gets no mail so early. */
const WARNINGS = [
  { name: 'week', before: 7 * DAY, life: 14 * DAY },
  { name: 'day', before: DAY, life: 2 * DAY },
] as const

/** Looks at the next organizations. */
export async function lookAtKeys(parts: Parts): Promise<void> {
  const { db } = parts
  const now = parts.now()
  await underLease(db, 'ends of keys', { now, forMs: LEASE_MS }, async after => {
    const live = db.selectFrom('organization').where('deleted', 'is', null)
    const { count } = await live.select(eb => eb.fn.countAll<number | bigint>().as('count')).executeTakeFirstOrThrow()
    const next = await live
      .select('id')
      .where('id', '>', after)
      .orderBy('id')
      .limit(Math.max(LEAST, Math.ceil(Number(count) / CALLS)))
      .execute()
    for (let i = 0; i < next.length; i += TOGETHER)
      await Promise.all(next.slice(i, i + TOGETHER).map(({ id }) => lookAt(parts, id, now)))
    return next.at(-1)?.id ?? ''
  })
}

async function lookAt(parts: Parts, organization: string, now: number): Promise<void> {
  let keys: Key[]
  try {
    keys = await new Gateway(parts.send, organization, 'console').keys()
  } catch (error) {
    if (!(error instanceof GatewayRefused)) throw error
    // With 404 it is gone from the gateway. One that is refused is no reason to tell the others nothing.
    if (error.status !== 404) parts.tell(`keys of ${organization}: ${error.message}`)
    return
  }
  for (const key of keys) {
    const warning = warningOf(key, now)
    if (warning === null) continue
    const { subject, body } = mailOf(key, organization, parts.config)
    const id = `key:${organization}:${key.id}:${key.expires}:${warning}`
    await tellMembers(parts.db, organization, 'keys.change', { id, subject, body }, now)
  }
}

/** The latest warning that is due; null for none. */
export function warningOf({ status, expires, created }: Pick<Key, 'status' | 'expires' | 'created'>, now: number) {
  if (status === 'revoked' || expires === null) return null
  const end = Date.parse(expires)
  if (end <= now) return null
  const life = created === null ? Number.POSITIVE_INFINITY : end - Date.parse(created)
  return WARNINGS.findLast(warning => end - now <= warning.before && life >= warning.life)?.name ?? null
}

function mailOf({ id, label, expires, hint }: Key, organization: string, { url, name }: Parts['config']) {
  // A label is its maker's words, and goes to others.
  const called = label === null ? id : `${label.replace(/[\p{C}\s]+/gu, ' ').slice(0, 80)} (${id})`
  const secret = hint === null ? '' : `, which ends in ${hint}`
  return {
    subject: `${name}: a key of ${organization} ends on ${expires!.slice(0, 10)}`,
    body: `The key ${called}${secret}, ends at ${expires!.slice(0, 16).replace('T', ' ')} UTC. Requests with it are
refused then. Make another one, or give it a later end:

${url}/o/${organization}/keys/${encodeURIComponent(id)}
`,
  }
}
