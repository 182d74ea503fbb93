/**
 * The key of a person's playground: it lasts ten minutes, spends at most a dollar, and is the only one of its kind that
 * the person has. Its secret stays in the memory of the console and never reaches the browser.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { personOf } from '../gateway.ts'
import type { MemberVisit, Parts } from '../web/visit.ts'

export const LABEL = 'Playground'
const LIFE_MS = 10 * 60_000
/** A request may take this long, so a key with less than that left is replaced. */
export const REQUEST_MS = 3 * 60_000
/** A gateway knows a new key within a second. */
const KNOWN_MS = 3000
const EVERY_MS = 100
const LIMITS = { daily_spend_usd: '1.00', concurrent_requests: 2 }

interface PlaygroundKey {
  secret: string
  /** Unix ms. */
  until: number
}

/** By organization and person. */
const kept = new WeakMap<Parts, Map<string, Promise<PlaygroundKey>>>()

/** The secret of a key that works for the next minutes. */
export async function secretFor(visit: MemberVisit): Promise<string> {
  const { parts, organization, session, now } = visit
  let keys = kept.get(parts)
  if (!keys) kept.set(parts, (keys = new Map()))
  const whose = `${organization.id} ${session.person}`
  const known = await keys.get(whose)?.catch(() => undefined)
  if (known && known.until - now > REQUEST_MS) return known.secret
  // Two requests at once make one key.
  const making = makeKey(visit)
  keys.set(whose, making)
  making.catch(() => keys.delete(whose))
  for (const [other, key] of keys) key.then(({ until }) => until <= now && keys.delete(other)).catch(() => {})
  return (await making).secret
}

async function makeKey({ gateway, session, now, parts }: MemberVisit): Promise<PlaygroundKey> {
  // Those of before, also of another console or of one that was restarted.
  const mine = (await gateway.keys()).filter(
    ({ label, creator }) => label === LABEL && personOf(creator) === session.person,
  )
  for (const { id } of mine) await gateway.deleteKey(id)
  const until = now + LIFE_MS
  const secret = await gateway.createKey(`key_${randomBytes(8).toString('hex')}`, {
    label: LABEL,
    expires: new Date(until).toISOString(),
    limits: LIMITS,
  })
  await untilKnown(parts.config.gateway.api, secret!)
  return { secret: secret!, until }
}

/** Waits until the public API knows a key. Where it does not answer, the request that follows says so. */
async function untilKnown(api: string, secret: string): Promise<void> {
  for (let waited = 0; waited < KNOWN_MS; waited += EVERY_MS) {
    const headers = { authorization: `Bearer ${secret}` }
    const answer = await fetch(`${api}/models`, { headers, signal: AbortSignal.timeout(KNOWN_MS) }).catch(() => null)
    await answer?.body?.cancel()
    if (answer?.status !== 401) return
    await setTimeout(EVERY_MS)
  }
}
