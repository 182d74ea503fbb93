/**
 * The key of a person's playground: it lasts ten minutes and spends at most a dollar. Its secret stays in the memory of
 * the console and never reaches the browser, so each of several consoles has a key of its own for the person.
 */
import { randomBytes } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { GatewayRefused, personOf } from '../gateway.ts'
import type { MemberVisit, Parts } from '../web/visit.ts'

export const LABEL = 'Playground'
const LIFE_MS = 10 * 60_000
/** A request may take this long, so a key with less than that left is replaced. */
export const REQUEST_MS = 3 * 60_000
/** A gateway knows a new key within a second. */
const KNOWN_MS = 3000
const EVERY_MS = 100
/** Several places: the gateway reads a reply that was stopped to its end, since the provider charges for all of it. */
const LIMITS = { daily_spend_usd: '1.00', concurrent_requests: 5 }

export interface PlaygroundKey {
  id: string
  secret: string
  /** Unix ms. */
  until: number
}

/** By organization and person. */
const kept = new WeakMap<Parts, Map<string, Promise<PlaygroundKey>>>()

/** Those of a console, and what the one of a visit is kept under. */
function keptFor({ parts, organization, session }: MemberVisit) {
  let keys = kept.get(parts)
  if (!keys) kept.set(parts, (keys = new Map()))
  return { keys, whose: `${organization.id} ${session.person}` }
}

/** A key that works for the next minutes, as far as this console knows. */
export async function keyFor(visit: MemberVisit): Promise<PlaygroundKey> {
  const { now } = visit
  const { keys, whose } = keptFor(visit)
  const known = await keys.get(whose)?.catch(() => undefined)
  if (known && known.until - now > REQUEST_MS) return known
  // Two requests at once make one key.
  const making = makeKey(visit)
  keys.set(whose, making)
  making.catch(() => keys.delete(whose))
  for (const [other, key] of keys) key.then(({ until }) => until <= now && keys.delete(other)).catch(() => {})
  return making
}

/** Forgets a key that the public API does not take, because somebody has deleted or revoked it. */
export async function forget(visit: MemberVisit, { id }: PlaygroundKey): Promise<void> {
  const { keys, whose } = keptFor(visit)
  const known = await keys.get(whose)?.catch(() => undefined)
  // Another request has been faster.
  if (known?.id !== id) return
  keys.delete(whose)
  await drop(visit, id)
}

async function drop({ gateway }: MemberVisit, id: string): Promise<void> {
  try {
    await gateway.deleteKey(id)
  } catch (error) {
    if (!(error instanceof GatewayRefused && error.status === 404)) throw error
  }
}

async function makeKey(visit: MemberVisit): Promise<PlaygroundKey> {
  const { gateway, session, now, parts } = visit
  // Those that are over, also of a console that was restarted. Of one that is not, another console may have the secret.
  const over = (await gateway.keys()).filter(
    ({ label, creator, expires }) =>
      label === LABEL && personOf(creator) === session.person && expires !== null && Date.parse(expires) <= now,
  )
  for (const { id } of over) await drop(visit, id)
  const until = now + LIFE_MS
  const id = `key_${randomBytes(8).toString('hex')}`
  const secret = await gateway.createKey(id, {
    label: LABEL,
    expires: new Date(until).toISOString(),
    limits: LIMITS,
  })
  await untilKnown(parts.config.gateway.api, secret!)
  return { id, secret: secret!, until }
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
